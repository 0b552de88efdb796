"""`CloningLearner`: learns from demonstrations only, with or without an environment."""

from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import Learner


class CloningLearner(Learner):
    """Learns from the next `buffer_size` demonstrated steps at every call.

    If there are agents, their rewards only measure the policy: it does not learn from their steps.
    """

    algorithm: BC
    counts_own_steps = True

    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Learn from demonstrations; ignore the segments of agents."""
        n_steps = min(self.settings.hyperparameters.buffer_size, self.settings.max_steps - step)
        self.start(lambda: self.algorithm.update(n_steps, step=step))
        return n_steps
