"""A task for two: one has to leave, so that the other is paid for both long afterward."""

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report


class SacrificeEnvironment(LocalEnv):
    """Pairs of agents on a line of five fields, with a lever on the rightmost one.

    An agent that steps on the lever is removed. Ten decisions later its group receives 1, if the
    other agent is still there, and the episode of the group ends. Without it, or if the lever was
    not used in the first 20 decisions, the episode ends without a reward.

    Observations: the agent's field, which of the two it is, whether the lever was used, and the
    time, all one-hot or from 0 to 1. Action: one branch; 0 stays, 1 goes left, 2 goes right.
    A good pair earns 1.

    Args:
        n_groups: Number of pairs.

    Attributes:
        returns: Return of each group whose episode has ended.
    """

    BEHAVIOR = "Sacrifice?team=0"
    SPEC = BehaviorSpec([ObservationSpec.vector(9, "place")], ActionSpec.create_discrete((3,)))
    N_FIELDS, START, LEVER = 5, 2, 4
    DELAY, LIMIT = 10, 20

    def __init__(self, n_groups: int = 16) -> None:
        super().__init__()
        self.announce({self.BEHAVIOR: self.SPEC})
        self.returns: list[float] = []
        self._field = np.zeros((n_groups, 2), np.int64)
        self._is_there = np.zeros((n_groups, 2), np.bool_)
        self._time = np.zeros(n_groups, np.int64)
        self._used = np.zeros(n_groups, np.int64)
        """When the lever was used; -1 for not yet."""
        self._group = np.arange(1, n_groups + 1)
        self._agent = np.arange(2 * n_groups).reshape(n_groups, 2)

    def restart(self) -> dict[str, Report]:
        self._begin(np.ones(len(self._group), np.bool_))
        return self._report(self._is_there, np.zeros_like(self._field, np.float32))

    def advance(self) -> dict[str, Report]:
        action = self.take_actions(self.BEHAVIOR).discrete[:, 0]
        moved = np.zeros_like(self._field)
        moved[self._is_there] = np.array([0, -1, 1])[action]
        self._field = np.clip(self._field + moved, 0, self.N_FIELDS - 1)
        self._time += 1

        leaves = self._is_there & (self._field == self.LEVER)
        self._used[leaves.any(1) & (self._used < 0)] = self._time[leaves.any(1) & (self._used < 0)]
        remains = self._is_there & ~leaves
        is_paid = remains.any(1) & (self._used >= 0) & (self._time == self._used + self.DELAY)
        is_late = (self._used < 0) & (self._time == self.LIMIT)
        is_over = is_paid | is_late | ~remains.any(1)
        group_reward = np.where(is_paid[:, None] & remains, 1.0, 0.0)
        self.returns += is_paid[is_over].astype(float).tolist()

        ends = leaves | (remains & is_over[:, None])
        terminals = TerminalSteps.of(
            [self._obs()[ends]],
            np.zeros(ends.sum()),
            self._agent[ends],
            False,
            groups=(np.repeat(self._group, ends.sum(1)), group_reward[ends]),
        )
        self._is_there = remains & ~is_over[:, None]
        self._begin(is_over)
        return self._report(self._is_there, np.zeros_like(group_reward), terminals)

    def _begin(self, groups: NDArray[np.bool_]) -> None:
        self._field[groups] = self.START
        self._is_there[groups] = True
        self._time[groups] = 0
        self._used[groups] = -1

    def _obs(self) -> NDArray[np.float32]:
        obs = np.zeros((*self._field.shape, 9), np.float32)
        np.put_along_axis(obs, self._field[..., None], 1.0, axis=2)
        obs[:, 0, 5] = obs[:, 1, 6] = 1.0
        obs[..., 7] = (self._used >= 0)[:, None]
        obs[..., 8] = self._time[:, None] / (self.DELAY + self.LIMIT)
        return obs

    def _report(
        self,
        asks: NDArray[np.bool_],
        group_reward: NDArray[np.floating],
        terminals: TerminalSteps | None = None,
    ) -> dict[str, Report]:
        decisions = DecisionSteps.of(
            [self._obs()[asks]],
            np.zeros(asks.sum()),
            self._agent[asks],
            masks=[np.zeros((asks.sum(), 3), np.bool_)],
            groups=(np.repeat(self._group, asks.sum(1)), group_reward[asks]),
        )
        return {self.BEHAVIOR: Report(decisions, terminals)}
