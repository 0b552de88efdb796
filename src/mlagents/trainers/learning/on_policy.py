"""Learning from the experience of the present policy alone."""

from abc import abstractmethod
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import LearnedRewards, Learner
from mlagents.trainers.settings.behavior import BehaviorSettings

FloatArray = NDArray[np.float32]


class OnPolicyAlgorithm(Algorithm):
    """An algorithm that learns from the experience of its present policy alone."""

    @abstractmethod
    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the present policy; return what to plot, by tag.

        Args:
            segments: Fresh experience.
            rewards: (N, signals) reward of every step, from `score`.
            step: The behavior's step count, for schedules.
        """


class OnPolicyLearner(Learner):
    """Learns from `buffer_size` steps at a time, each of them in one update only.

    They were decided by the policy that learns from them, except for what agents of a threaded
    behavior did during the update before.

    Reward signals that learn score experience at the beginning of the update that they learn from
    it in: no other thread may look at a signal while it learns, and an earlier score would be worth
    less.
    """

    algorithm: OnPolicyAlgorithm

    def __init__(self, name: str, algorithm: OnPolicyAlgorithm, settings: BehaviorSettings) -> None:
        super().__init__(name, algorithm, settings)
        self._learned_rewards = LearnedRewards(algorithm.signals)

    @property
    def wants(self) -> int:
        """`buffer_size` steps."""
        return self.settings.hyperparameters.buffer_size

    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Learn from the segments."""
        if segments is not None:
            self.start(partial(self._learn_from, segments, step))
        return 0

    def _learn_from(self, segments: Segments, step: int) -> dict[str, float]:
        """Score experience and update; in the thread of updates if there is one."""
        rewards = self.algorithm.score(segments)
        of_episodes = self._learned_rewards.add(segments, rewards)
        return self.algorithm.update(segments, rewards, step=step) | of_episodes
