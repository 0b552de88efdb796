"""A corridor with a reward at its far end, which chance alone does not reach."""

from collections.abc import Mapping

import numpy as np

from mlagents_envs.base_env import (
    ActionBuffer,
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)


class CorridorEnvironment(BaseEnv):
    """N agents walk among `length` places in a row, of which the last pays 1.

    At every place another one of four choices leads forth; the others lead back. So who chooses by
    chance, or the same everywhere, hardly leaves the first place, where all begin. Agents observe,
    one-hot, which place they are at. The last place ends the episode; a clock interrupts it after
    `episode_steps`.
    """

    BEHAVIOR = "Corridor?team=0"

    def __init__(self, *, length: int, episode_steps: int, n_agents: int = 8) -> None:
        self.spec = BehaviorSpec(
            [ObservationSpec.vector(length, "place")], ActionSpec.create_discrete((4,))
        )
        self._specs = {self.BEHAVIOR: self.spec}
        self._actions = ActionBuffer(self._specs)
        self._forth = np.random.default_rng(0).integers(4, size=length)
        self._length = length
        self._episode_steps = episode_steps
        self._n_agents = n_agents

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        return self._specs

    def reset(self) -> None:
        self._place = np.zeros(self._n_agents, np.int64)
        self._time = np.zeros(self._n_agents, np.int64)
        self._actions.clear()
        self._set_steps(np.zeros(self._n_agents, np.bool_), np.zeros(self._n_agents, np.bool_))

    def step(self) -> None:
        choice = self._actions.take(self.BEHAVIOR, self._n_agents).discrete[:, 0]
        self._place = np.maximum(
            self._place + np.where(choice == self._forth[self._place], 1, -1), 0
        )
        self._time += 1
        has_arrived = self._place == self._length - 1
        self._set_steps(has_arrived, ~has_arrived & (self._time == self._episode_steps))

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        return {self.BEHAVIOR: self._steps}[behavior_name]

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        self._actions.set(behavior_name, action, self._steps[0])

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        self._actions.set_for_agent(behavior_name, agent_id, action, self._steps[0])

    def close(self) -> None:
        pass

    def _set_steps(self, has_arrived: np.ndarray, interrupted: np.ndarray) -> None:
        """Report; who has ended begins anew at the first place."""
        has_ended = has_arrived | interrupted
        ids = np.flatnonzero(has_ended).astype(np.int32)
        no_group, nothing = np.zeros_like(ids), np.zeros(len(ids), np.float32)
        reward = has_arrived[has_ended].astype(np.float32)
        last = self._obs()[has_ended]
        terminals = TerminalSteps([last], reward, interrupted[has_ended], ids, no_group, nothing)
        self._place[has_ended] = self._time[has_ended] = 0
        everyone = np.arange(self._n_agents, dtype=np.int32)
        nothing = np.zeros(self._n_agents, np.float32)
        no_group = np.zeros_like(everyone)
        decisions = DecisionSteps([self._obs()], nothing, everyone, None, no_group, nothing)
        self._steps = decisions, terminals

    def _obs(self) -> np.ndarray:
        return np.eye(self._length, dtype=np.float32)[self._place]
