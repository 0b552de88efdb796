"""An environment that reports what a script says, and notes what it is told."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report

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


class ScriptedEnvironment(LocalEnv):
    """Reports one message after the other; every reset begins the script anew.

    Attributes:
        told: For every step, the actions by agent, continuous before discrete.
    """

    def __init__(
        self, script: Sequence[Message], *, spec: BehaviorSpec = CONTINUOUS, name: str = BEHAVIOR
    ) -> None:
        super().__init__()
        self.told: list[dict[int, list[float]]] = []
        self.closed = 0
        self._script = script
        self._spec = spec
        self._name = name
        self.announce({name: spec})

    def restart(self) -> dict[str, Report]:
        self._coming = iter(self._script)
        return self._report()

    def advance(self) -> dict[str, Report]:
        ids = self.get_steps(self._name)[0].agent_id.tolist()
        action = self.take_actions(self._name)
        rows = np.concatenate([action.continuous, action.discrete], axis=1).tolist()
        self.told.append(dict(zip(ids, rows, strict=True)))
        return self._report()

    def close(self) -> None:
        self.closed += 1

    def _report(self) -> dict[str, Report]:
        message = next(self._coming)
        asking = [report for report in message if isinstance(report, Asks)]
        ended = [report for report in message if isinstance(report, Ends)]
        decisions = DecisionSteps.of(**self._common(asking), masks=self._masks(asking))
        interrupted = [report.interrupted for report in ended]
        terminals = TerminalSteps.of(**self._common(ended), interrupted=interrupted)
        return {self._name: Report(decisions, terminals)}

    def _common(self, reports: Sequence[Asks] | Sequence[Ends]) -> dict[str, Any]:
        return {
            "obs": [
                np.stack([np.full(o.shape, r.sees, o.dtype) for r in reports])
                if reports
                else np.zeros((0, *o.shape), o.dtype)
                for o in self._spec.observation_specs
            ],
            "reward": [r.reward for r in reports],
            "agent_id": [r.agent for r in reports],
            "groups": ([r.group for r in reports], [r.group_reward for r in reports]),
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
