"""`Tally`: collects episodes of a behavior without a bias towards short ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mlagents_envs.base_env import AgentId, DecisionSteps, TerminalSteps


class Episode(NamedTuple):
    """One episode of one agent.

    Attributes:
        reward: Sum of the agent's rewards and its group's rewards after the first decision.
        length: Number of decisions.
    """

    reward: float
    length: int


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

    def _begin(self) -> _Running | None:
        self._n_begun += 1
        return _Running() if self._n_begun <= self._n_episodes else None


def _rewards(steps: DecisionSteps | TerminalSteps) -> Iterator[tuple[AgentId, float]]:
    rewards = steps.reward.astype(float) + steps.group_reward
    return zip(steps.agent_id.tolist(), rewards.tolist(), strict=True)
