"""Learning from demonstrations alone, with an environment or without."""

from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import Learner


class CloningLearner(Learner):
    """Learns from the next `buffer_size` demonstrated steps at every call.

    If there are agents, their rewards show how good the policy is. Their steps are not learned
    from.
    """

    algorithm: BC
    counts_own_steps = True

    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Learn from demonstrations; the segments of agents are ignored."""
        n_steps = min(self.settings.hyperparameters.buffer_size, self.settings.max_steps - step)
        self.start(lambda: self.algorithm.update(n_steps, step=step))
        return n_steps
