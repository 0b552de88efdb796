"""Learning from demonstrations alone, with an environment or without."""

from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import Learner


class CloningLearner(Learner):
    """Learns the next demonstrated steps, as many as `buffer_size`, whenever it is asked to.

    Agents, where there are any, show how well it does; nothing is learned from them.
    """

    algorithm: BC
    counts_own_steps = True

    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Learn from demonstrations, whatever the agents did."""
        n_steps = min(self.settings.hyperparameters.buffer_size, self.settings.max_steps - step)
        self.start(lambda: self.algorithm.update(n_steps, step=step))
        return n_steps
