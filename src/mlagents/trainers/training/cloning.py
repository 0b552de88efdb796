"""`trainer_type: bc`: learns from demonstrations alone, with an environment or without."""

import torch

from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.training.trainer import Trainer


class CloningTrainer(Trainer):
    """Learns a part of the demonstrations at every `advance`. It counts the steps it learned from.

    Agents, where there are any, show how well it does; nothing is learned from them.
    """

    algorithm: BC

    def make_algorithm(self, *, device: torch.device, seed: int) -> BC:
        """Make behavioral cloning."""
        return BC(self.spec, self.settings, device=device, seed=seed, inference=self._inference)

    def add_experience(self, segments: Segments) -> None:
        """Nothing is learned from it."""

    def learn(self) -> None:
        """Learn from the next demonstrated steps, as many as `buffer_size`."""
        step = self.step
        n_steps = min(self.settings.hyperparameters.buffer_size, self.settings.max_steps - step)
        self.start_update(lambda: self.algorithm.update(n_steps, step=step))
        reached = step + n_steps
        self._summarize_until(reached)
        every = self.settings.checkpoint_interval
        self.step = reached
        if self.is_learning and reached // every > step // every:
            self._on_checkpoint()

    def _count(self, n_steps: int) -> None:
        """Count what agents did only if nothing is learned."""
        if self._inference:
            super()._count(n_steps)
