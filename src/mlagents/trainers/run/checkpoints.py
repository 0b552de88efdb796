"""Saves, lists and reads the checkpoints of a run."""

import io
import json
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from mlagents import __version__
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.run.curriculum import ParameterState
from mlagents.trainers.run.evaluation import Best
from mlagents.trainers.run.folder import RunFolder, other_runs
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger

STATUS_FORMAT_VERSION = "0.3.0"

logger = get_logger(__name__)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint. Reading it cannot run code.

    Raises:
        UnityTrainerException: The file does not exist or cannot be read.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UnityTrainerException(
            f"there is no checkpoint {path}. A run that ended before its first checkpoint cannot "
            "be resumed. Start it again with --force."
        ) from None
    except Exception as error:  # torch raises errors of many types for a damaged file
        first_line = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UnityTrainerException(
            f"checkpoint {path} cannot be read: it is damaged, or not a file that a run saved, "
            f"such as checkpoint.pt ({first_line:.200})."
        ) from error
    if not isinstance(state, dict):
        raise UnityTrainerException(
            f"{path} is not a checkpoint: expected a dictionary, got a {type(state).__name__}."
        )
    return state


def initial_checkpoint(
    run_id: str | None, init_path: str | None, *, results_dir: Path, behavior: str
) -> Path | None:
    """Return the checkpoint that a behavior starts from, or None to start from scratch.

    Args:
        run_id: Run given by `--initialize-from`.
        init_path: Setting `init_path` of the behavior: a path, or the name of a file in that run.
        results_dir: Folder of all runs.
        behavior: Name of the behavior.

    Raises:
        UnityTrainerException: The file does not exist.
    """
    if init_path is not None and len(Path(init_path).parts) > 1:
        path = Path(init_path)
    elif run_id is not None:
        path = results_dir / run_id / behavior / (init_path or "checkpoint.pt")
    elif init_path is not None:
        path = Path(init_path)
    else:
        return None
    if not path.is_file():
        raise UnityTrainerException(
            f"{behavior} cannot be initialized: there is no checkpoint {path}. "
            f"Check --initialize-from and init_path{other_runs(results_dir / (run_id or 'any'))}."
        )
    return path


class CheckpointStore:
    """Saves the checkpoints of a run's behaviors and maintains their list.

    Args:
        folder: Folder of the run.
        resume: Whether to continue the existing list.
    """

    def __init__(self, folder: RunFolder, *, resume: bool) -> None:
        self._folder = folder
        self._path = folder.status
        self._status: dict[str, Any] = {}
        self._dropped: set[Path] = set()  # files to delete once the new list is on disk
        if resume:
            self._read()

    def _read(self) -> None:
        try:
            self._status = json.loads(self._path.read_text())
            for name, section in self._status.items():
                self._name_what_there_is(name, section)
        except FileNotFoundError:
            logger.warning(f"{self._path} is missing, so the list of checkpoints starts empty.")
            return
        except (ValueError, OSError, AttributeError, KeyError, TypeError) as error:
            raise UnityTrainerException(
                f"{self._path} cannot be read: {error!r}. If you move it away, the run resumes "
                "from its newest checkpoints, with an empty list and with the first lessons."
            ) from error
        written_by = self._status.get("metadata", {}).get("mlagents_version")
        if written_by != __version__:
            logger.info(f"{self._path} was written by version {written_by}, not {__version__}.")

    @property
    def lessons(self) -> dict[str, ParameterState]:
        """Lessons of environment parameters in the status, by name."""
        return {
            name: section
            for name, section in self._status.items()
            if isinstance(section.get("lesson_num"), int)
        }

    @property
    def behaviors(self) -> set[str]:
        """Names of the behaviors that have checkpoints."""
        return {path.parent.name for path in self._folder.path.glob("*/*.pt")}

    def newest(self, behavior: str) -> Path | None:
        """Return the checkpoint from which a behavior continues, or None."""
        entries = self._status.get(behavior, {}).get("checkpoints", [])
        listed = [Path(entry["auxillary_file_paths"][0]) for entry in reversed(entries)]
        candidates = [self._folder.checkpoint(behavior), *listed]
        return next((path for path in candidates if path.exists()), None)

    def best(self, behavior: str) -> Best | None:
        """Return the best evaluation of a behavior; None if its checkpoint does not exist."""
        entry = self._status.get(behavior, {}).get("best")
        if entry is None or not self._folder.best_checkpoint(behavior).exists():
            return None
        return _read_best(entry)

    def set_best(self, behavior: str, entry: dict[str, Any]) -> None:
        """Set the best evaluation of a behavior for the next status."""
        self._status.setdefault(behavior, {})["best"] = entry

    def save_best(
        self, behavior: str, entry: dict[str, Any], *, state: dict[str, Any], model: bytes
    ) -> None:
        """Save the policy of the best evaluation, replacing the previous one.

        Args:
            behavior: Name of the behavior.
            entry: Description of the evaluation, for the list.
            state: Content of the checkpoint.
            model: Exported policy, as ONNX.

        Raises:
            OSError: The disk is full or the folder cannot be written.
        """
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_atomically(self._folder.best_checkpoint(behavior), buffer.getvalue())
        write_atomically(self._folder.best_model(behavior), model)
        self.set_best(behavior, entry)
        self.write_status()

    def set_lessons(self, lessons: Mapping[str, ParameterState]) -> None:
        """Set the lessons of environment parameters for the next status, by name."""
        for name, lesson in lessons.items():
            self._status.setdefault(name, {}).update(lesson)

    def write_status(self) -> None:
        """Write the list of checkpoints and the lessons; delete files no longer listed."""
        self._status["metadata"] = {
            "stats_format_version": STATUS_FORMAT_VERSION,
            "mlagents_version": __version__,
            "torch_version": torch.__version__,
        }
        write_atomically(self._path, json.dumps(self._status, indent=4).encode())
        while self._dropped:
            self._dropped.pop().unlink(missing_ok=True)

    def _name_what_there_is(self, behavior: str, section: dict[str, Any]) -> None:
        """Update the paths of a moved run; remove entries whose files do not exist."""
        folder = self._folder.path / behavior

        def is_there(entry: dict[str, Any], model_folder: Path) -> bool:
            model = model_folder / Path(entry["file_path"]).name
            others = [folder / Path(path).name for path in entry["auxillary_file_paths"]]
            entry["file_path"] = str(model)
            entry["auxillary_file_paths"] = [str(path) for path in others]
            return all(path.exists() for path in (model, *others))

        if "best" in section:
            _read_best(section["best"])
        if "checkpoints" in section:
            section["checkpoints"] = [e for e in section["checkpoints"] if is_there(e, folder)]
        if "final_checkpoint" in section and not is_there(
            section["final_checkpoint"], self._folder.path
        ):
            del section["final_checkpoint"]

    def save(
        self,
        behavior: str,
        *,
        step: int,
        state: dict[str, Any],
        model: bytes,
        reward: float | None,
        elo: float | None = None,
        keep: int,
        is_final: bool = False,
    ) -> None:
        """Save a checkpoint and its policy; delete the oldest checkpoints beyond `keep`.

        Args:
            behavior: Name of the behavior.
            step: Step count of the behavior, part of the file names.
            state: Content of the checkpoint.
            model: Exported policy, as ONNX.
            reward: Recent mean return, for the list.
            elo: Elo rating, for the list; None without self-play.
            keep: Number of newest checkpoints to keep; 0 or less keeps all.
            is_final: Whether to also write the policy as the final model of the run.

        Raises:
            OSError: The disk is full or the folder cannot be written. Earlier checkpoints stay.
        """
        folder = self._folder.path / behavior
        checkpoint, onnx = folder / f"{behavior}-{step}.pt", folder / f"{behavior}-{step}.onnx"
        buffer = io.BytesIO()
        torch.save(state, buffer)
        section = self._status.setdefault(behavior, {})
        listed_before = _files(section)
        try:
            write_atomically(checkpoint, buffer.getvalue())
            write_atomically(onnx, model)
            write_atomically(self._folder.checkpoint(behavior), buffer.getvalue())
        except OSError:
            for path in {checkpoint, onnx} - listed_before:  # free the space of unlisted files
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            raise
        self._name_what_there_is(behavior, section)
        entry = {
            "steps": step,
            "file_path": str(onnx),
            "reward": reward,
            "creation_time": time.time(),
            "auxillary_file_paths": [str(checkpoint)],  # the format has this spelling
        }
        if elo is not None:
            section["elo"] = elo
        entries = [e for e in section.get("checkpoints", []) if e["steps"] != step] + [entry]
        section["checkpoints"] = entries[-keep:] if keep > 0 else entries
        if is_final:
            final = self._folder.model(behavior)
            write_atomically(final, model)
            section["final_checkpoint"] = entry | {"file_path": str(final)}
        listed = _files(section)
        self._dropped = (self._dropped | listed_before) - listed
        self.write_status()


def none_if_nan(number: float) -> float | None:
    """Return a number, or None for NaN, which JSON does not support."""
    return None if math.isnan(number) else number


def _read_best(entry: dict[str, Any]) -> Best:
    """Return the best evaluation from its entry in the status.

    Raises:
        ValueError: The entry is damaged.
    """
    error = math.nan if entry["error"] is None else float(entry["error"])
    best = Best(
        int(entry["step"]), float(entry["reward"]), error, int(entry["n_since"]), entry["lessons"]
    )
    if not math.isfinite(best.reward):
        raise ValueError(f"the reward of the best evaluation is {best.reward}")
    return best


def _files(section: dict[str, Any]) -> set[Path]:
    """Return all files that a behavior's section of the status lists."""
    entries = section.get("checkpoints", [])
    with_final = [*entries, *filter(None, [section.get("final_checkpoint")])]
    models = [entry["file_path"] for entry in entries]
    others = [path for entry in with_final for path in entry["auxillary_file_paths"]]
    return {Path(path) for path in (*models, *others)}
