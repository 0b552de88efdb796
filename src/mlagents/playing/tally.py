"""`Tally`: collects episodes of a behavior without a bias toward short ones."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mlagents_envs.base_env import AgentId, DecisionSteps, GroupId, TerminalSteps


class Episode(NamedTuple):
    """One episode of one agent.

    Attributes:
        reward: Sum of the agent's rewards and its group's rewards after the first decision,
            including those that the group earns after the agent has left.
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
    counts: bool  # False if the episode began too late
    group: GroupId
    reward: float = 0.0
    length: int = 0


@dataclass
class _Group:
    """Members of one group whose episodes have not ended.

    Attributes:
        members: The agents.
        earned: Sum of the group's rewards, as reported for its first member.
        left: Episodes of members that have left, each with `earned` at that time.
    """

    members: list[AgentId] = field(default_factory=list)
    earned: float = 0.0
    left: list[tuple[_Running, float]] = field(default_factory=list)


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
        self._running: dict[AgentId, _Running] = {}
        self._groups: dict[GroupId, _Group] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all collected episodes have ended."""
        return len(self.episodes) == self._n_episodes

    def forget(self) -> None:
        """Drop the unfinished episodes; others take their place."""
        left = [ended for group in self._groups.values() for ended, _ in group.left]
        self._n_begun -= sum(running.counts for running in [*self._running.values(), *left])
        self._running.clear()
        self._groups.clear()

    def observe(self, decisions: DecisionSteps, terminals: TerminalSteps) -> None:
        """Add reported steps; an agent may end an episode and begin another in one report."""
        for steps in (terminals, decisions):
            for agent, _, of_group, group_id in _rows(steps):
                group = self._groups.get(group_id)
                if group is not None and group.members[0] == agent:
                    group.earned += of_group
        for agent, reward, of_group, _ in _rows(terminals):
            ended = self._running.pop(agent, None)
            if ended is not None:
                ended.reward += reward + of_group
                self._end(agent, ended)
        for agent, reward, of_group, group_id in _rows(decisions):
            running = self._running.get(agent)
            if running is None:  # rewards before the first decision do not count
                running = self._running[agent] = self._begin(agent, group_id)
            else:
                running.reward += reward + of_group
            running.length += 1

    def restart(self) -> None:
        """Drop all unfinished episodes, because the environment begins others."""
        self._running.clear()
        self._groups.clear()
        self._n_begun = len(self.episodes)

    def _begin(self, agent: AgentId, group_id: GroupId) -> _Running:
        self._n_begun += 1
        if group_id:
            self._groups.setdefault(group_id, _Group()).members.append(agent)
        return _Running(self._n_begun <= self._n_episodes, group_id)

    def _end(self, agent: AgentId, ended: _Running) -> None:
        group = self._groups.get(ended.group)
        if group is None:
            self._collect(ended, 0.0)
            return
        group.members.remove(agent)
        group.left.append((ended, group.earned))
        if not group.members:
            del self._groups[ended.group]
            for each, earned in group.left:
                self._collect(each, group.earned - earned)

    def _collect(self, ended: _Running, earned_later: float) -> None:
        if ended.counts:
            self.episodes.append(Episode(ended.reward + earned_later, ended.length))


def _rows(
    steps: DecisionSteps | TerminalSteps,
) -> Iterator[tuple[AgentId, float, float, GroupId]]:
    """Yield agent, reward, group reward and group of each row."""
    columns = steps.agent_id, steps.reward, steps.group_reward, steps.group_id
    return zip(*(column.tolist() for column in columns), strict=True)
