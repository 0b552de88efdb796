"""Learning from the experience of the current policy alone."""

from abc import abstractmethod
from functools import partial

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import LearnedRewards, Learner
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import FloatArray


class OnPolicyAlgorithm(Algorithm):
    """An algorithm that learns from the experience of its current policy alone."""

    @abstractmethod
    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the current policy; return numbers to plot, by tag.

        Args:
            segments: New experience.
            rewards: (N, signals) reward of every step, from `score`.
            step: Step count of the behavior, for schedules.
        """


class OnPolicyLearner(Learner):
    """Learns from `buffer_size` steps at a time and uses each step in one update only.

    The policy that learns from the steps also decided them. The only exception is steps of a
    threaded behavior that its agents took during the previous update.

    Learned reward signals score experience at the beginning of the update that trains them on it.
    No other thread may use a signal while it learns, and earlier scores would be outdated.
    """

    algorithm: OnPolicyAlgorithm

    def __init__(self, name: str, algorithm: OnPolicyAlgorithm, settings: BehaviorSettings) -> None:
        super().__init__(name, algorithm, settings)
        self._learned_rewards = LearnedRewards(algorithm.signals)

    @property
    def wants(self) -> int:
        """Steps needed for an update: `buffer_size`, or this learner's share of it."""
        return self.algorithm.shards.share(self.settings.hyperparameters.buffer_size)

    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Start an update with the segments, if there are any."""
        if segments is not None:
            self.start(partial(self._learn_from, segments, step))
        return 0

    def _learn_from(self, segments: Segments, step: int) -> dict[str, float]:
        """Score experience and update, in the update's thread if there is one."""
        rewards = self.algorithm.score(segments)
        of_episodes = self._learned_rewards.add(segments, rewards)
        return self.algorithm.update(segments, rewards, step=step) | of_episodes
