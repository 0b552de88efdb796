"""A task small enough to learn in seconds: say which way the observation points."""

from collections.abc import Sequence

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report


class GuessEnvironment(LocalEnv):
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
        super().__init__()
        self.spec = BehaviorSpec(
            list(observation_specs), action_spec or ActionSpec.create_hybrid(1, (3,))
        )
        self.announce({self.BEHAVIOR: self.spec})
        self._n_agents = n_agents
        self._episode_steps = episode_steps
        self._rng = np.random.default_rng(seed)
        self._time = 0
        self.forbidden_actions = 0
        self.closed = False

    def restart(self) -> dict[str, Report]:
        self._time = 0
        self._look()
        return self._report(np.zeros(self._n_agents, np.float32))

    def advance(self) -> dict[str, Report]:
        action = self.take_actions(self.BEHAVIOR)
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
            return self._report(reward)
        ids = np.arange(self._n_agents)
        ended = TerminalSteps.of(self._obs(), reward, ids, ids % 2 == 1)
        return self._report(np.zeros(self._n_agents, np.float32), ended)

    def close(self) -> None:
        self.closed = True

    def _look(self) -> None:
        self._number = self._rng.uniform(-1, 1, (self._n_agents, 1)).astype(np.float32)

    def _obs(self) -> list[np.ndarray]:
        noise = self._rng.standard_normal((self._n_agents, 2)).astype(np.float32)
        return [self._number.copy(), noise]

    def _report(
        self, reward: np.ndarray, terminals: TerminalSteps | None = None
    ) -> dict[str, Report]:
        masks = [
            np.tile(np.arange(size) == 2, (self._n_agents, 1))
            for size in self.spec.action_spec.discrete_branches
        ]
        ids = np.arange(self._n_agents)
        decisions = DecisionSteps.of(self._obs(), reward, ids, masks=masks or None)
        return {self.BEHAVIOR: Report(decisions, terminals)}


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
