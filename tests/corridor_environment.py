"""A corridor with a reward at its far end, which chance alone does not reach."""

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report


class CorridorEnvironment(LocalEnv):
    """N agents walk among `length` places in a row, of which the last pays 1.

    At every place another one of four choices leads forth; the others lead back. So who chooses by
    chance, or the same everywhere, hardly leaves the first place, where all begin. Agents observe,
    one-hot, which place they are at. The last place ends the episode; a clock interrupts it after
    `episode_steps`.
    """

    BEHAVIOR = "Corridor?team=0"

    def __init__(self, *, length: int, episode_steps: int, n_agents: int = 8) -> None:
        super().__init__()
        self.spec = BehaviorSpec(
            [ObservationSpec.vector(length, "place")], ActionSpec.create_discrete((4,))
        )
        self.announce({self.BEHAVIOR: self.spec})
        self._forth = np.random.default_rng(0).integers(4, size=length)
        self._length = length
        self._episode_steps = episode_steps
        self._n_agents = n_agents

    def restart(self) -> dict[str, Report]:
        self._place = np.zeros(self._n_agents, np.int64)
        self._time = np.zeros(self._n_agents, np.int64)
        return self._report(np.zeros(self._n_agents, np.bool_), np.zeros(self._n_agents, np.bool_))

    def advance(self) -> dict[str, Report]:
        choice = self.take_actions(self.BEHAVIOR).discrete[:, 0]
        self._place = np.maximum(
            self._place + np.where(choice == self._forth[self._place], 1, -1), 0
        )
        self._time += 1
        has_arrived = self._place == self._length - 1
        return self._report(has_arrived, ~has_arrived & (self._time == self._episode_steps))

    def _report(self, has_arrived: np.ndarray, interrupted: np.ndarray) -> dict[str, Report]:
        """Report; who has ended starts over at the first place."""
        has_ended = has_arrived | interrupted
        ids = np.flatnonzero(has_ended)
        last, reward = self._obs()[has_ended], has_arrived[has_ended]
        terminals = TerminalSteps.of([last], reward, ids, interrupted[has_ended])
        self._place[has_ended] = self._time[has_ended] = 0
        nothing = np.zeros(self._n_agents, np.float32)
        decisions = DecisionSteps.of([self._obs()], nothing, np.arange(self._n_agents))
        return {self.BEHAVIOR: Report(decisions, terminals)}

    def _obs(self) -> np.ndarray:
        return np.eye(self._length, dtype=np.float32)[self._place]
