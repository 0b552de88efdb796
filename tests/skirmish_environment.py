"""Scouts and tanks that come and go by a script, and what they were told to do."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlagents_envs.base_env import (
    ActionBuffer,
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)

SCOUT, TANK = "Scout?team=0", "Tank?team=1"
GROUP = 7
GROUP_REWARD = 0.5

_CAMERA = ObservationSpec(
    (1, 2, 3),
    (
        DimensionProperty.NONE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    ),
    ObservationType.DEFAULT,
    "camera",
)
SPECS = {
    SCOUT: BehaviorSpec([ObservationSpec.vector(2, "radar")], ActionSpec.create_discrete((3,))),
    TANK: BehaviorSpec(
        [ObservationSpec.vector(2, "radar"), _CAMERA], ActionSpec.create_hybrid(1, (2, 3))
    ),
}


class Moment(NamedTuple):
    """What happens in one step: who asks, and who has ended and whether by a clock."""

    asking: Mapping[str, Sequence[int]]
    ended: Mapping[str, Mapping[int, bool]] = {}


# Scout 1 ends, tank 3 falls silent and is interrupted, scout 2 ends; then all begin anew.
GAME = (
    Moment({SCOUT: [1, 2], TANK: [3]}),
    Moment({SCOUT: [1, 2], TANK: [3]}),
    Moment({SCOUT: [1, 2]}, {SCOUT: {1: False}}),
    Moment({SCOUT: [1, 2], TANK: [3]}, {TANK: {3: True}}),
    Moment({SCOUT: [1, 2], TANK: [3]}, {SCOUT: {2: False}}),
)


class SkirmishEnvironment(BaseEnv):
    """Plays a script over and over; a reset goes back to its beginning.

    A vector that an agent sees is (id, number of the moment, 0.2, ...), its image is all 0.2. Its
    reward is the number of the moment. Tanks are of a group that has a reward of its own. Of every
    branch, agents with an even id may not choose the last.

    Attributes:
        told: For every step, what each agent was told to do, by behavior and id.
    """

    def __init__(
        self, script: Sequence[Moment] = GAME, specs: Mapping[str, BehaviorSpec] = SPECS
    ) -> None:
        self.specs = dict(specs)
        self.told: list[dict[str, dict[int, tuple[list[float], list[int]]]]] = []
        self.closed = False
        self._script = script
        self._actions = ActionBuffer(self.specs)
        self._now: dict[str, tuple[DecisionSteps, TerminalSteps]] = {}

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        return self.specs

    def reset(self) -> None:
        self._show(0)

    def step(self) -> None:
        told = {}
        for name, (decisions, _) in self._now.items():
            action = self._actions.take(name, len(decisions))
            told[name] = {
                agent: (action.continuous[row].tolist(), action.discrete[row].tolist())
                for row, agent in enumerate(decisions)
            }
        self.told.append(told)
        self._show(self._time + 1)

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        return self._now[behavior_name]

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        self._actions.set(behavior_name, action, self._now[behavior_name][0])

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        self._actions.set_for_agent(behavior_name, agent_id, action, self._now[behavior_name][0])

    def close(self) -> None:
        self.closed = True

    def _show(self, time: int) -> None:
        self._time = time % len(self._script)
        self._actions.clear()
        moment = self._script[self._time]
        self._now = {
            name: (
                self._decisions(name, spec, moment.asking.get(name, ())),
                self._terminals(name, spec, moment.ended.get(name, {})),
            )
            for name, spec in self.specs.items()
        }

    def _decisions(self, name: str, spec: BehaviorSpec, agents: Sequence[int]) -> DecisionSteps:
        if not agents:
            return DecisionSteps.empty(spec)
        is_even = np.array(agents) % 2 == 0
        masks = [
            is_even[:, None] & (np.arange(size) == size - 1)
            for size in spec.action_spec.discrete_branches
        ]
        obs, reward, agent_id, *group = self._fields(name, spec, agents)
        return DecisionSteps(obs, reward, agent_id, masks or None, *group)

    def _terminals(self, name: str, spec: BehaviorSpec, ended: Mapping[int, bool]) -> TerminalSteps:
        if not ended:
            return TerminalSteps.empty(spec)
        obs, reward, agent_id, *group = self._fields(name, spec, list(ended))
        return TerminalSteps(obs, reward, np.array(list(ended.values())), agent_id, *group)

    def _fields(self, name: str, spec: BehaviorSpec, agents: Sequence[int]) -> tuple[Any, ...]:
        n = len(agents)
        obs = [np.full((n, *o.shape), 0.2, np.float32) for o in spec.observation_specs]
        for batch in obs:
            if batch.ndim == 2:
                batch[:, 0], batch[:, 1] = agents, self._time
        is_grouped = name == TANK
        return (
            obs,
            np.full(n, self._time, np.float32),
            np.array(agents, np.int32),
            np.full(n, GROUP if is_grouped else 0, np.int32),
            np.full(n, GROUP_REWARD if is_grouped else 0.0, np.float32),
        )
