"""`Meter`: counts the steps of a behavior and keeps the statistics of its episodes."""

from collections import deque
from collections.abc import Iterable
from itertools import islice

from mlagents.trainers.acting.collector import Activity
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward
from mlagents.trainers.reporting.stats import CUMULATIVE_REWARD, StatsReporter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod

logger = get_logger(__name__)

N_RETURNS = 100
"""Number of episodes whose mean reward is reported."""


class Meter:
    """Counts of a behavior's steps and episodes.

    Args:
        name: Name of the behavior, for messages.
        settings: Settings of the behavior.
        stats: Reporter of statistics.
        n_returns: Smallest number of episode returns to remember.

    Attributes:
        step: Steps counted so far.
        recent_returns: Returns of the last episodes, without group rewards.
    """

    def __init__(
        self,
        name: str,
        settings: BehaviorSettings,
        stats: StatsReporter,
        *,
        n_returns: int = N_RETURNS,
    ) -> None:
        self.step = 0
        self.recent_returns: deque[float] = deque(maxlen=max(n_returns, N_RETURNS))
        self._name = name
        self._settings = settings
        self._stats = stats
        extrinsic = settings.reward_signals.get(ExtrinsicReward.name)
        self._extrinsic_strength = None if extrinsic is None else extrinsic.strength
        self._has_warned_of_groups = False
        self._n_vanished_told = 0

    @property
    def mean_reward(self) -> float | None:
        """Mean return of the last hundred episodes; None before the first one has ended."""
        last = list(islice(reversed(self.recent_returns), N_RETURNS))
        return sum(last) / len(last) if last else None

    def record(self, activity: Activity) -> None:
        """Add ended episodes to the statistics."""
        if activity.has_group_reward and not self._has_warned_of_groups:
            self._has_warned_of_groups = True
            logger.warning(
                f"{self._name}: received a group reward. trainer_type "
                f"{self._settings.trainer_type} adds it to the reward of each agent and learns for "
                "each agent alone. The cumulative reward does not include group rewards."
            )
        returns = activity.episode_return
        if not len(returns):
            return
        if self._extrinsic_strength is not None:
            earned = self._extrinsic_strength * (returns + activity.episode_group_return)
            self._stats.add_stats("Policy/Extrinsic Reward", earned)
        self.recent_returns.extend(returns.tolist())
        self._stats.add_stats(CUMULATIVE_REWARD, returns, StatsAggregationMethod.HISTOGRAM)
        # Count transitions between decisions, as the original does: one less than decisions.
        self._stats.add_stats("Environment/Episode Length", activity.episode_length - 1)

    def warn_of_vanished(self, n_vanished: int) -> None:
        """Warn of vanished agents, and again whenever their number has doubled."""
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
        """Add the numbers that updates plot to the statistics."""
        for plotted in plots:
            for tag, value in plotted.items():
                self._stats.add_stat(tag, value)

    def passes(self, every: int, n_steps: int) -> bool:
        """Whether the next steps reach or pass a multiple of `every`."""
        return (self.step + n_steps) // every > self.step // every
