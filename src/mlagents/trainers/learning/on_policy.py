"""`OnPolicyLearner`: learns from the experience of the current policy only."""

from abc import abstractmethod
from functools import partial

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import LearnedRewards, Learner
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import FloatArray


class OnPolicyAlgorithm(Algorithm):
    """An algorithm that learns from the experience of its current policy only."""

    @abstractmethod
    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the current policy; return numbers to plot, by tag.

        Args:
            segments: New experience.
            rewards: (N, signals) rewards from `score`.
            step: Step count of the behavior, for the schedules.
        """


class OnPolicyLearner(Learner):
    """Learns from `buffer_size` steps at a time and uses each step in one update only.

    The steps come from the policy that is updated, with one exception: if a behavior is threaded,
    its agents take steps during an update with the policy from before it.

    Learned reward signals score experience at the beginning of the update that trains them on it.
    Scoring earlier could use a signal while another thread trains it, and would be outdated.
    """

    algorithm: OnPolicyAlgorithm

    def __init__(self, name: str, algorithm: OnPolicyAlgorithm, settings: BehaviorSettings) -> None:
        super().__init__(name, algorithm, settings)
        self._learned_rewards = LearnedRewards(algorithm.signals)

    @property
    def wants(self) -> int:
        """Number of steps for an update: this learner's share of `buffer_size`."""
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
