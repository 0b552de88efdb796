"""`RunFolder`: the folder of a run, and the paths of its files.

    <results_dir>/<run_id>/
      configuration.yaml            effective options
      <behavior>.onnx               newest model
      <behavior>-best.onnx          model of the best evaluation
      <behavior>/
        <behavior>-<step>.pt        checkpoint
        <behavior>-<step>.onnx      the policy at that checkpoint
        checkpoint.pt               copy of the newest checkpoint
        best.pt                     checkpoint of the best evaluation
        last_replay_buffer.npz      replay buffer, if it is saved
        events.out.tfevents.*       TensorBoard
      films/
        <step>.mp4                  the policies of that step in play
      run_logs/
        timers.json
        training_status.json        list of checkpoints
        .lock                       held while the run is active
        Player-<worker>.log         output of a player

Every file is written under a temporary name, flushed and renamed, so a killed run leaves no partial
files.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.settings.run_options import holds_run
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger
from mlagents_envs.suggestions import did_you_mean

_OWN_NAMES = {
    *("metadata", "run_logs", "films", "configuration.yaml", "training.png"),
    *("config.json", "readme.md"),  # of a run on the Hub
}
"""Reserved names in a run's folder and its status, in lower case. No behavior may have them."""

logger = get_logger(__name__)


def try_write(what: str, write: Callable[[], object]) -> bool:
    """Call `write`; log an `OSError` instead of raising it, and return whether it succeeded.

    Args:
        what: Description of the file, for the log.
        write: Function that writes the file.
    """
    try:
        write()
    except OSError as error:
        logger.error(
            f"Could not write {what}: {error}. Earlier files are intact. The run tries again at "
            "the next checkpoint."
        )
        return False
    return True


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    Args:
        path: `<results_dir>/<run_id>`.
    """

    path: Path

    @property
    def status(self) -> Path:
        """The list of checkpoints."""
        return self.logs / "training_status.json"

    @property
    def logs(self) -> Path:
        """Folder for the logs of players and timers."""
        return self.path / "run_logs"

    @contextmanager
    def opened(self, *, resume: bool, force: bool, inference: bool) -> Iterator[None]:
        """Prepare the folder and lock it against other runs until the end of the context.

        Raises:
            UnityTrainerException: Another run uses the folder, or `prepare` fails.
        """
        with self._claimed() if self.path.exists() and not inference else nullcontext():
            self.prepare(resume=resume, force=force, inference=inference)
        # If the folder was moved to a backup, the lock moved with it.
        with nullcontext() if inference else self._claimed():
            yield

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Hold the lock of the folder, if the file system supports locks."""
        lock = FileLock(self.logs / ".lock", timeout=0)
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            raise UnityTrainerException(
                f"another run uses {self.path}. Wait until it ends, or choose another --run-id."
            ) from None
        except OSError as error:
            logger.debug(f"No lock in {self.path}: {error}")
        try:
            yield
        finally:
            lock.release()

    def prepare(self, *, resume: bool, force: bool, inference: bool) -> None:
        """Create the folder, or check that the run to resume exists.

        With `force`, the folder of an earlier run is renamed to a backup.

        Raises:
            UnityTrainerException: The folder contains an earlier run and no flag says what to do,
                the run to resume does not exist, or the folder cannot be created.
        """
        if resume and not self.path.exists():
            raise UnityTrainerException(
                f"there is no run to resume in {self.path}. Check --run-id and --results-dir, "
                f"or leave out --resume to start a new run{other_runs(self.path)}."
            )
        # A run that failed before its first step left only logs, so the same command works again.
        exists = holds_run(self.path)
        if exists and not (resume or force or inference):
            raise UnityTrainerException(
                f"{self.path} contains an earlier run. Continue it with --resume, start over "
                "with --force, which keeps it as a backup, or choose another --run-id."
            )
        if inference:
            return
        try:
            if exists and force and not resume:
                stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
                backup = self.path.with_name(f"{self.path.name}-backup-{stamp}")
                self.path.rename(backup)
                logger.info(f"Moved the earlier run to {backup}.")
            self.logs.mkdir(parents=True, exist_ok=True)
            for left_by_a_kill in self.path.rglob(".*.[0-9]*.tmp"):
                left_by_a_kill.unlink()
        except OSError as error:
            raise UnityTrainerException(
                f"cannot write to the run folder {self.path}: {error}. Choose a writable folder "
                "with --results-dir."
            ) from error

    def require_free(self, behavior: str) -> None:
        """Raise if the name of a behavior is reserved in the folder.

        Raises:
            UnityTrainerException: The name is reserved.
        """
        if behavior.lower() in _OWN_NAMES or behavior.lower().endswith(".onnx"):
            raise UnityTrainerException(
                f"a behavior is named {behavior!r}, but this name is reserved in the folder of a "
                "run. Change the Behavior Name in the simulation."
            )

    def model(self, behavior: str) -> Path:
        """Return the path of a behavior's newest exported policy."""
        return self.path / f"{behavior}.onnx"

    def checkpoint(self, behavior: str) -> Path:
        """Return the path of a behavior's newest checkpoint."""
        return self.path / behavior / "checkpoint.pt"

    def best_model(self, behavior: str) -> Path:
        """Return the path of the policy of a behavior's best evaluation."""
        return self.path / f"{behavior}-best.onnx"

    def best_checkpoint(self, behavior: str) -> Path:
        """Return the path of the checkpoint of a behavior's best evaluation."""
        return self.path / behavior / "best.pt"

    def experience(self, behavior: str) -> Path:
        """Return the path of a behavior's saved replay buffer."""
        return self.path / behavior / "last_replay_buffer.npz"

    def write_configuration(self, text: str) -> None:
        """Write the effective options."""
        write_atomically(self.path / "configuration.yaml", text.encode())

    def write_timers(self, tree: dict[str, Any]) -> None:
        """Write the tree of timers."""
        write_atomically(self.logs / "timers.json", json.dumps(tree, indent=4).encode())


_BACKUP = re.compile(r"-backup-\d{8}-\d{6}-\d+$")
"""Suffix of the backups of runs that `--force` made."""


def other_runs(path: Path) -> str:
    """Return a hint that lists runs beside `path` with checkpoints, and suggests a similar name."""
    folders = {checkpoint.parent.parent.name for checkpoint in path.parent.glob("*/*/*.pt")}
    found = sorted(name for name in folders if not _BACKUP.search(name))
    if not found:
        return ""
    return f"{did_you_mean(path.name, found)}; runs there: {', '.join(found)}"
