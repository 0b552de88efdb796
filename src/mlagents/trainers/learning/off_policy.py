"""`OffPolicyLearner`: learns from past experience in a replay buffer."""

from pathlib import Path
from typing import Any

from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.learner import LearnedRewards, Learner
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import SACSettings
from mlagents_envs.atomic_file import written_atomically
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

LONGEST_SEGMENT = 16
"""Longest segment, in steps. Shorter segments reach the replay buffer sooner but need more memory:
the last observation of a segment is stored again as the first observation of the next."""


class OffPolicyLearner(Learner):
    """Keeps experience in a replay buffer and takes a gradient step every few steps of its agents.

    The number of gradient steps depends on the agents' steps, not on the ends of segments. Agents
    therefore never wait for many gradient steps at once. Only updates change the replay buffer; new
    segments are queued until the next update.

    Attributes:
        replay: Experience to learn from, without the queued segments.
    """

    algorithm: SAC

    def __init__(self, name: str, algorithm: SAC, settings: BehaviorSettings) -> None:
        super().__init__(name, algorithm, settings)
        hyperparameters = settings.hyperparameters
        assert isinstance(hyperparameters, SACSettings)
        self._hyperparameters = hyperparameters
        self.replay = Replay(
            self.spec,
            capacity=self.algorithm.shards.share(hyperparameters.buffer_size),
            longest=algorithm.sequence_length,
            memory_size=algorithm.actor.body.memory_size,
            n_step=hyperparameters.n_step,
            gamma=settings.reward_signals["extrinsic"].gamma if hyperparameters.n_step > 1 else 1.0,
        )
        self._learned_rewards = LearnedRewards(algorithm.signals)
        self._waiting: list[Segments] = []
        self._n_experiences = 0
        self._learned_to = 0.0
        """Step count up to which all gradient steps have been taken."""

    @property
    def longest_segment(self) -> int:
        """Largest number of steps in a segment: `time_horizon`, or less without memory."""
        horizon = self.settings.time_horizon
        return horizon if self.algorithm.has_memory else min(horizon, LONGEST_SEGMENT)

    @property
    def sequence_length(self) -> int:
        """Number of steps replayed together; 1 without memory."""
        return self.algorithm.sequence_length

    @property
    def can_learn(self) -> bool:
        """Whether there is enough experience for a minibatch."""
        return self._n_experiences >= self.algorithm.shards.share(self._hyperparameters.batch_size)

    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Queue segments for the next update; take the gradient steps that are due."""
        if segments is not None:
            self._waiting.append(segments)
            self._n_experiences += segments.n_steps
        settings = self._hyperparameters
        made = step + n_unfinished
        can_learn = self.can_learn and self.others_can_learn
        if not can_learn or made < settings.buffer_init_steps:
            self._learned_to = max(self._learned_to, float(made))
            return 0
        n_updates = int((made - self._learned_to) / settings.steps_per_update)
        if n_updates < 1:
            return 0
        self._learned_to += n_updates * settings.steps_per_update
        waiting, self._waiting = self._waiting, []

        def update() -> dict[str, float]:
            of_episodes = self._store(waiting)
            return of_episodes | self.algorithm.update(self.replay, n_updates=n_updates, step=step)

        self.start(update)
        return 0

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, without experience; see `save_experience`."""
        self._store_waiting()
        return super().state() | {
            "learned_to_step": self._learned_to,
            "signal_updates_due": self.algorithm.signal_updates_due,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the saved `state` of a run."""
        super().load_state(state)
        self._learned_to = state["learned_to_step"]
        self.algorithm.signal_updates_due = state["signal_updates_due"]

    def save_experience(self, path: Path) -> None:
        """Write the replay buffer if `save_replay_buffer` is set."""
        if self._hyperparameters.save_replay_buffer:
            self._store_waiting()
            with written_atomically(path) as file:
                self.replay.save(file)

    def load_experience(self, path: Path) -> None:
        """Load the saved replay buffer if `save_replay_buffer` is set and the file exists.

        Raises:
            UnityTrainerException: The saved replay buffer cannot be loaded.
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
        self.settle()
        if self.algorithm.shards.size > 1:
            return  # all learners store together in their next update
        waiting, self._waiting = self._waiting, []
        self._has_updated(self._store(waiting))  # agents act with the normalizers that are saved

    def _store(self, parts: list[Segments]) -> dict[str, float]:
        """Add experience to the replay buffer; return numbers to plot, by tag."""
        if self.algorithm.shards.size > 1:
            self.algorithm.see(*parts)  # one call: the learners may have different numbers of parts
        else:
            for part in parts:
                self.algorithm.see(part)
        for part in parts:
            self.replay.add(part)
        if not (parts and self._learned_rewards):
            return {}
        segments = Segments.concatenate(parts)
        return self._learned_rewards.add(segments, self.algorithm.score(segments))
