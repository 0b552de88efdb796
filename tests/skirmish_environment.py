"""Scouts and tanks that come and go by a script, and what they were told to do."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report

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


class SkirmishEnvironment(LocalEnv):
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
        super().__init__()
        self.told: list[dict[str, dict[int, tuple[list[float], list[int]]]]] = []
        self.closed = False
        self._script = script
        self.announce(specs)

    def restart(self) -> dict[str, Report]:
        return self._show(0)

    def advance(self) -> dict[str, Report]:
        told = {}
        for name in self.behavior_specs:
            action = self.take_actions(name)
            told[name] = {
                agent: (action.continuous[row].tolist(), action.discrete[row].tolist())
                for row, agent in enumerate(self.get_steps(name)[0])
            }
        self.told.append(told)
        return self._show(self._time + 1)

    def close(self) -> None:
        self.closed = True

    def _show(self, time: int) -> dict[str, Report]:
        self._time = time % len(self._script)
        moment = self._script[self._time]
        return {
            name: Report(
                self._asking(name, spec, moment.asking.get(name, ())),
                self._ended(name, spec, moment.ended.get(name, {})),
            )
            for name, spec in self.behavior_specs.items()
        }

    def _asking(self, name: str, spec: BehaviorSpec, agents: Sequence[int]) -> DecisionSteps | None:
        if not agents:
            return None
        is_even = np.array(agents) % 2 == 0
        masks = [
            is_even[:, None] & (np.arange(size) == size - 1)
            for size in spec.action_spec.discrete_branches
        ]
        return DecisionSteps.of(**self._fields(name, spec, agents), masks=masks or None)

    def _ended(
        self, name: str, spec: BehaviorSpec, ended: Mapping[int, bool]
    ) -> TerminalSteps | None:
        if not ended:
            return None
        fields = self._fields(name, spec, list(ended))
        return TerminalSteps.of(**fields, interrupted=list(ended.values()))

    def _fields(self, name: str, spec: BehaviorSpec, agents: Sequence[int]) -> dict[str, Any]:
        n = len(agents)
        obs = [np.full((n, *o.shape), 0.2, np.float32) for o in spec.observation_specs]
        for batch in obs:
            if batch.ndim == 2:
                batch[:, 0], batch[:, 1] = agents, self._time
        return {
            "obs": obs,
            "reward": [self._time] * n,
            "agent_id": agents,
            "groups": ([GROUP] * n, [GROUP_REWARD] * n) if name == TANK else None,
        }
