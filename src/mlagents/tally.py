"""Counts episodes fairly."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mlagents_envs.base_env import AgentId, DecisionSteps, TerminalSteps


class Episode(NamedTuple):
    """One episode of one agent.

    Attributes:
        reward: The sum of what it and its group were given after its first decision.
        length: Decisions.
    """

    reward: float
    length: int


@dataclass
class _Running:
    reward: float = 0.0
    length: int = 0


class Tally:
    """The first episodes of a behavior to begin.

    Where many agents act at once, the first episodes to *end* are the short ones, so their mean
    reward is not the policy's. Which are the first to *begin* does not depend on how they go.

    Args:
        n_episodes: How many count.

    Attributes:
        episodes: Those of them that have ended, in the order in which they did.
    """

    def __init__(self, n_episodes: int) -> None:
        self.episodes: list[Episode] = []
        self._n_episodes = n_episodes
        self._n_begun = 0
        self._running: dict[AgentId, _Running | None] = {}  # None: began too late to count

    @property
    def is_complete(self) -> bool:
        """Whether all episodes that count have ended."""
        return len(self.episodes) == self._n_episodes

    def observe(self, decisions: DecisionSteps, terminals: TerminalSteps) -> None:
        """Take in what a behavior reported; an agent may end and begin anew in one report."""
        for agent, reward in _rewards(terminals):
            ended = self._running.pop(agent, None)
            if ended is not None:
                self.episodes.append(Episode(ended.reward + reward, ended.length))
        for agent, reward in _rewards(decisions):
            if agent not in self._running:
                self._running[agent] = self._begin()
                reward = 0.0  # of before the first decision
            running = self._running[agent]
            if running is not None:
                running.reward += reward
                running.length += 1

    def _begin(self) -> _Running | None:
        self._n_begun += 1
        return _Running() if self._n_begun <= self._n_episodes else None


def _rewards(steps: DecisionSteps | TerminalSteps) -> Iterator[tuple[AgentId, float]]:
    rewards = steps.reward.astype(float) + steps.group_reward
    return zip(steps.agent_id.tolist(), rewards.tolist(), strict=True)
