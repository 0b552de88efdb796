"""`Tally`: collects episodes of a behavior without a bias towards short ones."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlagents_envs.base_env import AgentId, DecisionSteps, TerminalSteps


class Episode(NamedTuple):
    """One episode of one agent.

    Attributes:
        reward: Sum of the agent's rewards and its group's rewards after the first decision.
        length: Number of decisions.
    """

    reward: float
    length: int


class Score(NamedTuple):
    """Mean result of episodes.

    Attributes:
        n_episodes: Number of episodes.
        mean: Mean reward.
        std: Standard deviation of the rewards.
        error: Standard error of the mean reward; NaN for a single episode.
        length: Mean number of decisions.
    """

    n_episodes: int
    mean: float
    std: float
    error: float
    length: float

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> "Score":
        """Return the score of at least one episode."""
        n, rewards = len(episodes), np.array([episode.reward for episode in episodes])
        error = float(rewards.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        length = float(np.mean([episode.length for episode in episodes]))
        return cls(n, float(rewards.mean()), float(rewards.std()), error, length)


@dataclass
class _Running:
    reward: float = 0.0
    length: int = 0


class Tally:
    """Collects the episodes of a behavior that begin first.

    If many agents act at once, the first episodes to *end* are short ones, so their mean reward is
    biased. The first episodes to *begin* do not depend on their length.

    Args:
        n_episodes: Number of episodes to collect.

    Attributes:
        episodes: Collected episodes that have ended, in the order of their ends.
    """

    def __init__(self, n_episodes: int) -> None:
        self.episodes: list[Episode] = []
        self._n_episodes = n_episodes
        self._n_begun = 0
        self._running: dict[AgentId, _Running | None] = {}  # None: began too late

    @property
    def is_complete(self) -> bool:
        """Whether all collected episodes have ended."""
        return len(self.episodes) == self._n_episodes

    def forget(self) -> None:
        """Drop the running episodes; others take their place."""
        self._n_begun -= sum(running is not None for running in self._running.values())
        self._running.clear()

    def observe(self, decisions: DecisionSteps, terminals: TerminalSteps) -> None:
        """Add reported steps; an agent may end an episode and begin another in one report."""
        for agent, reward in _rewards(terminals):
            ended = self._running.pop(agent, None)
            if ended is not None:
                self.episodes.append(Episode(ended.reward + reward, ended.length))
        for agent, reward in _rewards(decisions):
            if agent not in self._running:
                self._running[agent] = self._begin()
                reward = 0.0  # rewards before the first decision do not count
            running = self._running[agent]
            if running is not None:
                running.reward += reward
                running.length += 1

    def restart(self) -> None:
        """Drop all unfinished episodes, because the environment begins others."""
        self._running.clear()
        self._n_begun = len(self.episodes)

    def _begin(self) -> _Running | None:
        self._n_begun += 1
        return _Running() if self._n_begun <= self._n_episodes else None


def _rewards(steps: DecisionSteps | TerminalSteps) -> Iterator[tuple[AgentId, float]]:
    rewards = steps.reward.astype(float) + steps.group_reward
    return zip(steps.agent_id.tolist(), rewards.tolist(), strict=True)
