"""`Meter`: counts the steps of a behavior and keeps the statistics of its episodes."""

from collections import deque
from collections.abc import Iterable
from itertools import islice

from mlagents.trainers.acting.collector import Activity
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.reporting.stats import (
    CUMULATIVE_REWARD,
    GROUP_CUMULATIVE_REWARD,
    StatsReporter,
)
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod

logger = get_logger(__name__)

N_RETURNS = 100
"""Number of episodes whose mean reward is reported."""


class Meter:
    """Counts the steps of a behavior and keeps the statistics of its episodes.

    Args:
        name: Name of the behavior, for messages.
        settings: Settings of the behavior.
        stats: Reporter of statistics.
        learns_in_groups: Whether the algorithm learns for groups instead of single agents.
        n_returns: Smallest number of episode returns to remember.

    Attributes:
        step: Number of steps counted so far.
        recent_returns: Returns of the last episodes, without group rewards.
        recent_group_returns: Returns of the last groups whose episodes ended. Empty unless the
            algorithm learns for groups.
    """

    def __init__(
        self,
        name: str,
        settings: BehaviorSettings,
        stats: StatsReporter,
        *,
        learns_in_groups: bool = False,
        n_returns: int = N_RETURNS,
    ) -> None:
        self.step = 0
        self.recent_returns: deque[float] = deque(maxlen=max(n_returns, N_RETURNS))
        self.recent_group_returns: deque[float] = deque(maxlen=max(n_returns, N_RETURNS))
        self._name = name
        self._settings = settings
        self._stats = stats
        extrinsic = settings.reward_signals.get(ExtrinsicReward.name)
        self._extrinsic_strength = None if extrinsic is None else extrinsic.strength
        self._learns_in_groups = learns_in_groups
        self._has_warned_of_groups = False
        self._has_looked_for_groups = not learns_in_groups
        self._n_vanished_told = 0

    @property
    def mean_reward(self) -> float | None:
        """Mean return of the last hundred episodes; None before the first one has ended."""
        return _mean_of_last(self.recent_returns)

    @property
    def mean_group_reward(self) -> float | None:
        """Mean return of the last hundred groups; None before the first one has ended."""
        return _mean_of_last(self.recent_group_returns)

    def record(self, activity: Activity) -> None:
        """Add episodes that ended to the statistics, and store their returns."""
        self.plot_episodes(activity)
        self.remember(activity.episode_return.tolist(), activity.group_return.tolist())

    def remember(self, returns: Iterable[float], group_returns: Iterable[float]) -> None:
        """Store the returns of agents and groups whose episodes ended."""
        self.recent_returns.extend(returns)
        self.recent_group_returns.extend(group_returns)

    def plot_episodes(self, activity: Activity) -> None:
        """Add episodes that ended to the statistics."""
        is_alone = not self._learns_in_groups
        if activity.has_group_reward and is_alone and not self._has_warned_of_groups:
            self._has_warned_of_groups = True
            logger.warning(
                f"{self._name}: received a group reward. trainer_type "
                f"{self._settings.trainer_type} adds it to the reward of each agent and learns for "
                "each agent alone. The cumulative reward does not include group rewards."
            )
        of_groups = activity.group_return
        self._stats.add_stats(GROUP_CUMULATIVE_REWARD, of_groups, StatsAggregationMethod.HISTOGRAM)
        returns = activity.episode_return
        if not len(returns):
            return
        if self._extrinsic_strength is not None:
            earned = self._extrinsic_strength * (returns + activity.episode_group_return)
            self._stats.add_stats("Policy/Extrinsic Reward", earned)
        self._stats.add_stats(CUMULATIVE_REWARD, returns, StatsAggregationMethod.HISTOGRAM)
        # For comparison with the original, count transitions between decisions: one fewer than
        # decisions.
        self._stats.add_stats("Environment/Episode Length", activity.episode_length - 1)

    def look_for_groups(self, segments: Segments) -> None:
        """Log once if an algorithm that learns for groups gets agents without a group."""
        if self._has_looked_for_groups:
            return
        self._has_looked_for_groups = True
        if not (segments.group >= 0).any():
            logger.info(
                f"{self._name}: no agent is in a group. trainer_type "
                f"{self._settings.trainer_type} treats each agent as a group of one, which learns "
                "as with ppo. To reward agents together, register them with a "
                "SimpleMultiAgentGroup."
            )

    def warn_of(self, problems: list[str]) -> None:
        """Log problems with episodes, and remove them from the list."""
        while problems:
            logger.warning(f"{self._name}: {problems.pop(0)}")

    def warn_of_vanished(self, n_vanished: int) -> None:
        """Warn about vanished agents, and again each time their number has doubled."""
        if n_vanished < 2 * self._n_vanished_told + 1:
            return
        self._n_vanished_told = n_vanished
        logger.warning(
            f"{self._name}: {n_vanished} agents vanished: they stopped reporting before their "
            "episodes ended. Their steps are counted and learned from, except the last step of "
            "each, whose reward is unknown. The cumulative reward does not include these episodes. "
            "Before an agent is removed, end or interrupt its episode."
        )

    def plot(self, plots: Iterable[dict[str, float]]) -> None:
        """Add the numbers plotted by updates to the statistics."""
        for plotted in plots:
            for tag, value in plotted.items():
                self._stats.add_stat(tag, value)

    def passes(self, every: int, n_steps: int) -> bool:
        """Return whether the next `n_steps` reach or pass a multiple of `every`."""
        return (self.step + n_steps) // every > self.step // every


def _mean_of_last(returns: deque[float]) -> float | None:
    last = list(islice(reversed(returns), N_RETURNS))
    return sum(last) / len(last) if last else None
