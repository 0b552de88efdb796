"""Training from all past experience, not only that of the present policy."""

from pathlib import Path
from typing import Any

import torch

from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.hyperparameters import SACSettings
from mlagents.trainers.training.trainer import LearnedRewards, Trainer
from mlagents_envs.files import written_atomically
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

LONGEST_SEGMENT = 16
"""Steps after which an agent's experience can be learned from. Shorter is fresher, and costs more:
what was observed last in a segment is held once more as the first of the next."""


class OffPolicyTrainer(Trainer):
    """Keeps experience in a replay buffer and takes a gradient step every few steps of its agents.

    The gradient steps follow the agents' steps one by one, not the ends of segments: there are no
    pauses in which the agents wait for many at once. The replay buffer belongs to the update;
    between updates, and while one runs, new segments wait.

    Attributes:
        replay: Experience to learn from, without what waits.
    """

    algorithm: SAC

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = self.settings.hyperparameters
        assert isinstance(settings, SACSettings)
        self._hyperparameters = settings
        self.replay = Replay(
            self.spec,
            capacity=settings.buffer_size,
            longest=self.algorithm.sequence_length,
            memory_size=self._policy.memory_size,
        )
        self._learned_rewards = LearnedRewards(self.algorithm.signals)
        self._waiting: list[Segments] = []
        self._n_experiences = 0
        self._learned_to = 0.0
        """Steps up to which all gradient steps were taken."""

    @property
    def longest_segment(self) -> int:
        """Few steps, but all of `time_horizon` where sequences are cut from segments."""
        horizon = self.settings.time_horizon
        return horizon if self.algorithm.has_memory else min(horizon, LONGEST_SEGMENT)

    def make_algorithm(self, *, device: torch.device, seed: int) -> SAC:
        """Make SAC."""
        return SAC(self.spec, self.settings, device=device, seed=seed, inference=self._inference)

    def add_experience(self, segments: Segments) -> None:
        """Let segments wait for the next update; they are scored anew whenever replayed."""
        self._waiting.append(segments)
        self._n_experiences += segments.n_steps

    def learn(self) -> None:
        """Take the gradient steps that are due."""
        settings = self._hyperparameters
        made = self.step + self._collector.n_unfinished
        if self._n_experiences < settings.batch_size or made < settings.buffer_init_steps:
            self._learned_to = max(self._learned_to, float(made))
            return
        n_updates = int((made - self._learned_to) / settings.steps_per_update)
        if n_updates < 1:
            return
        self._learned_to += n_updates * settings.steps_per_update
        waiting, self._waiting = self._waiting, []
        step = self.step

        def update() -> dict[str, float]:
            of_episodes = self._store(waiting)
            return of_episodes | self.algorithm.update(self.replay, n_updates=n_updates, step=step)

        self.start_update(update)

    def state(self) -> dict[str, Any]:
        """Everything a later run needs but past experience, for which see `save_experience`."""
        self._store_waiting()
        return super().state() | {
            "learned_to_step": self._learned_to,
            "signal_updates_due": self.algorithm.signal_updates_due,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where the run that saved `state` was."""
        super().load_state(state)
        self._learned_to = state["learned_to_step"]
        self.algorithm.signal_updates_due = state["signal_updates_due"]

    def save_experience(self, path: Path) -> None:
        """Write the replay buffer if it is to be saved."""
        if self._hyperparameters.save_replay_buffer:
            self._store_waiting()
            with written_atomically(path) as file:
                self.replay.save(file)

    def load_experience(self, path: Path) -> None:
        """Begin with the replay buffer of the run that saved it.

        Raises:
            UnityTrainerException: There is one that cannot be loaded.
        """
        if not self._hyperparameters.save_replay_buffer:
            return
        if not path.exists():
            logger.warning(f"{path} is missing: {self.name} resumes with an empty replay buffer.")
            return
        self.replay.load(path)
        self._n_experiences = self.replay.n_rows
        logger.info(f"Loaded {self.replay.n_rows} experiences of {self.name} from {path}.")

    def _store_waiting(self) -> None:
        self.finish_update()
        waiting, self._waiting = self._waiting, []
        self._take_over(self._store(waiting))  # from now on acts by the normalizers that are saved

    def _store(self, parts: list[Segments]) -> dict[str, float]:
        """Make experience part of what is learned from; return what to plot, by tag."""
        for part in parts:
            self.algorithm.see(part)
            self.replay.add(part)
        if not (parts and self._learned_rewards):
            return {}
        segments = Segments.concatenate(parts)
        return self._learned_rewards.add(segments, self.algorithm.score(segments))
