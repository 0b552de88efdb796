"""`RunHandle`: the run as callbacks see and control it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from mlagents.playing.tally import Score
from mlagents.trainers.callbacks import Run
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class RunHandle(Run):
    """The run that callbacks receive.

    Args:
        options: All settings of the run.
        folder: Folder of the run's results.
        trainers: Trainers of the behaviors, by name.
        save: Function that saves all behaviors.
        evaluate: Function that evaluates all behaviors.

    Attributes:
        is_stopped: Whether a callback has ended the run.
    """

    def __init__(
        self,
        options: RunOptions,
        folder: Path,
        trainers: Mapping[str, Trainer],
        *,
        save: Callable[[], None],
        evaluate: Callable[[], Mapping[str, Score]],
    ) -> None:
        self.options = options
        self.folder = folder
        self.is_stopped = False
        self._trainers = trainers
        self._save = save
        self._evaluate = evaluate

    @property
    def steps(self) -> dict[str, int]:
        """Step count of each behavior, by name."""
        return {name: trainer.step for name, trainer in self._trainers.items()}

    def save(self) -> None:
        """Save a checkpoint and the policy of every behavior."""
        self._save()

    def evaluate(self) -> Mapping[str, Score]:
        """Evaluate all behaviors now; return the score of each, by name."""
        return self._evaluate()

    def stop(self, reason: str = "") -> None:
        """End the run cleanly as soon as all callbacks have returned."""
        if not self.is_stopped:
            logger.info(f"A callback ended the run{f': {reason}' if reason else '.'}")
        self.is_stopped = True
