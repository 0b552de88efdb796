"""A task small enough to learn in seconds: say which way the observation points."""

from collections.abc import Mapping, Sequence

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


class GuessEnvironment(BaseEnv):
    """N agents each see a number in [-1, 1] and should answer with what they see.

    Every continuous action should equal the number; every branch should choose its side: 0 for
    negative, 1 for positive. A third choice of every branch is forbidden by the mask.
    Episodes last `episode_steps`; odd agents' are interrupted, even agents' terminate.

    Reward per step: 1 at best, falling with the mean distance of continuous actions and the share
    of wrong branches.
    """

    BEHAVIOR = "Guess?team=0"

    def __init__(
        self,
        action_spec: ActionSpec | None = None,
        *,
        n_agents: int = 8,
        episode_steps: int = 4,
        seed: int = 0,
        observation_specs: Sequence[ObservationSpec] = (
            ObservationSpec.vector(1, "number"),
            ObservationSpec.vector(2, "noise"),
        ),
    ) -> None:
        self.spec = BehaviorSpec(
            list(observation_specs), action_spec or ActionSpec.create_hybrid(1, (3,))
        )
        self._specs = {self.BEHAVIOR: self.spec}
        self._actions = ActionBuffer(self._specs)
        self._n_agents = n_agents
        self._episode_steps = episode_steps
        self._rng = np.random.default_rng(seed)
        self._time: int | None = None
        self.forbidden_actions = 0
        self.closed = False

    @property
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]:
        return self._specs

    def reset(self) -> None:
        self._time = 0
        self._actions.clear()
        self._look()
        return self._set_steps(np.zeros(self._n_agents, np.float32), TerminalSteps.empty(self.spec))

    def step(self) -> None:
        if self._time is None:
            return self.reset()
        action = self._actions.take(self.BEHAVIOR, self._n_agents)
        side = (self._number > 0).astype(np.int32)
        reward = np.ones(self._n_agents, np.float32)
        if self.spec.action_spec.continuous_size:
            reward -= np.abs(action.continuous - self._number).mean(1)
        if self.spec.action_spec.discrete_size:
            reward -= (action.discrete != side).mean(1, dtype=np.float32)
            self.forbidden_actions += int((action.discrete == 2).sum())
        self._time += 1
        self._look()
        if self._time % self._episode_steps:
            return self._set_steps(reward, TerminalSteps.empty(self.spec))
        ids = np.arange(self._n_agents, dtype=np.int32)
        zeros = np.zeros(self._n_agents, np.float32)
        ended = TerminalSteps(self._obs(), reward, ids % 2 == 1, ids, np.zeros_like(ids), zeros)
        return self._set_steps(zeros, ended)

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        return {self.BEHAVIOR: self._steps}[behavior_name]

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        self._actions.set(behavior_name, action, self._steps[0])

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        self._actions.set_for_agent(behavior_name, agent_id, action, self._steps[0])

    def close(self) -> None:
        self.closed = True

    def _look(self) -> None:
        self._number = self._rng.uniform(-1, 1, (self._n_agents, 1)).astype(np.float32)

    def _obs(self) -> list[np.ndarray]:
        noise = self._rng.standard_normal((self._n_agents, 2)).astype(np.float32)
        return [self._number.copy(), noise]

    def _set_steps(self, reward: np.ndarray, terminals: TerminalSteps) -> None:
        ids = np.arange(self._n_agents, dtype=np.int32)
        masks = [
            np.tile(np.arange(size) == 2, (self._n_agents, 1))
            for size in self.spec.action_spec.discrete_branches
        ]
        decisions = DecisionSteps(
            self._obs(), reward, ids, masks or None, np.zeros_like(ids), np.zeros_like(reward)
        )
        self._steps = decisions, terminals


class BadObservations(GuessEnvironment):
    """Agent 2 observes an infinity."""

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        decisions, terminals = super().get_steps(behavior_name)
        decisions.obs[0][2] = np.inf
        return decisions, terminals


class BadRewards(GuessEnvironment):
    """Agent 1 is rewarded with NaN."""

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        decisions, terminals = super().get_steps(behavior_name)
        decisions.reward[1] = np.nan
        return decisions, terminals
