"""An environment that reports what a script says, and notes what it is told."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlagents_envs.base_env import (
    ActionBuffer,
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)

BEHAVIOR = "Scripted?team=0"
CONTINUOUS = BehaviorSpec([ObservationSpec.vector(1, "number")], ActionSpec.create_continuous(1))


class Asks(NamedTuple):
    """An agent asks for an action; it observes `sees` everywhere."""

    agent: int
    sees: float
    reward: float = 0.0
    forbidden: Sequence[Sequence[bool]] | None = None
    group: int = 0
    group_reward: float = 0.0


class Ends(NamedTuple):
    """An agent's episode ends."""

    agent: int
    sees: float
    reward: float = 0.0
    interrupted: bool = False
    group: int = 0
    group_reward: float = 0.0


Message = Sequence[Asks | Ends]


class ScriptedEnvironment(BaseEnv):
    """Reports one message after the other; every reset begins the script anew.

    Attributes:
        told: For every step, the actions by agent, continuous before discrete.
    """

    def __init__(
        self, script: Sequence[Message], *, spec: BehaviorSpec = CONTINUOUS, name: str = BEHAVIOR
    ) -> None:
        self.told: list[dict[int, list[float]]] = []
        self.closed = 0
        self._script = script
        self._spec = spec
        self._name = name
        self._specs = BehaviorMapping({name: spec})
        self._actions = ActionBuffer(self._specs)
        self._steps = DecisionSteps.empty(spec), TerminalSteps.empty(spec)

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        return self._specs

    def reset(self) -> None:
        self._coming = iter(self._script)
        self._report()

    def step(self) -> None:
        ids = self._steps[0].agent_id.tolist()
        action = self._actions.take(self._name, len(ids))
        rows = np.concatenate([action.continuous, action.discrete], axis=1).tolist()
        self.told.append(dict(zip(ids, rows, strict=True)))
        self._report()

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        return {self._name: self._steps}[behavior_name]

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        self._actions.set(behavior_name, action, self._steps[0])

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        self._actions.set_for_agent(behavior_name, agent_id, action, self._steps[0])

    def close(self) -> None:
        self.closed += 1

    def _report(self) -> None:
        message = next(self._coming)
        asking = [report for report in message if isinstance(report, Asks)]
        ended = [report for report in message if isinstance(report, Ends)]
        self._actions.clear()
        decisions = DecisionSteps(**self._common(asking), action_mask=self._masks(asking))
        interrupted = np.array([report.interrupted for report in ended], np.bool_)
        self._steps = decisions, TerminalSteps(**self._common(ended), interrupted=interrupted)

    def _common(self, reports: Sequence[Asks] | Sequence[Ends]) -> dict[str, Any]:
        return {
            "obs": [
                np.stack([np.full(o.shape, r.sees, o.dtype) for r in reports])
                if reports
                else np.zeros((0, *o.shape), o.dtype)
                for o in self._spec.observation_specs
            ],
            "reward": np.array([r.reward for r in reports], np.float32),
            "agent_id": np.array([r.agent for r in reports], np.int32),
            "group_id": np.array([r.group for r in reports], np.int32),
            "group_reward": np.array([r.group_reward for r in reports], np.float32),
        }

    def _masks(self, asking: Sequence[Asks]) -> list[np.ndarray] | None:
        branches = self._spec.action_spec.discrete_branches
        if not branches or not asking:
            return None
        free = [[False] * size for size in branches]
        return [
            np.array([(report.forbidden or free)[branch] for report in asking], np.bool_)
            for branch in range(len(branches))
        ]
