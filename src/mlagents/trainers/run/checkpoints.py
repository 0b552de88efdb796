"""Files of a run: folders, checkpoints and the status of a run, and how a later run continues.

    <results_dir>/<run_id>/
      configuration.yaml            effective options
      <behavior>.onnx               newest model
      <behavior>/
        <behavior>-<step>.pt        checkpoint
        <behavior>-<step>.onnx      the policy at that checkpoint
        checkpoint.pt               copy of the newest
        last_replay_buffer.npz      experience to learn from again, if it is saved
        events.out.tfevents.*       TensorBoard
      run_logs/
        timers.json
        training_status.json        which checkpoints there are
        .lock                       held while the run is active Player-<worker>.log

Every file is written under a temporary name, flushed and renamed, so a killed run leaves no partial
files.
"""

import io
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from mlagents import __version__
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.run.curriculum import ParameterState
from mlagents.trainers.settings.base import did_you_mean, quoted
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import holds_run
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger

STATUS_FORMAT_VERSION = "0.3.0"

_OWN_NAMES = {
    *("metadata", "run_logs", "configuration.yaml", "training.png"),
    *("config.json", "readme.md"),  # of a run on the Hub
}
"""Names in a run's folder and in its status that no behavior may have, in lower case."""

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
        # If the folder was moved to a backup, its lock moved too.
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

        With `force`, the files of an earlier run are moved to a backup folder beside it.

        Raises:
            UnityTrainerException: The folder holds an earlier run and no flag says what to do, the
                run to resume does not exist, or the folder cannot be created.
        """
        if resume and not self.path.exists():
            raise UnityTrainerException(
                f"there is no run to resume in {self.path}. Check --run-id and --results-dir, "
                f"or leave out --resume to start it{_other_runs(self.path)}."
            )
        # What failed before its first step left logs at most; it may be tried again as it was.
        exists = holds_run(self.path)
        if exists and not (resume or force or inference):
            raise UnityTrainerException(
                f"{self.path} contains an earlier run. Continue it with --resume, replace it with "
                "--force, or choose another --run-id."
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
        """Raise if the run keeps something else under the name of a behavior.

        Raises:
            UnityTrainerException: It does.
        """
        if behavior.lower() in _OWN_NAMES or behavior.lower().endswith(".onnx"):
            raise UnityTrainerException(
                f"a behavior is named {behavior!r}, and the folder of a run keeps something else "
                "under this name. Change the Behavior Name in the simulation."
            )

    def model(self, behavior: str) -> Path:
        """Return the path of a behavior's newest exported policy."""
        return self.path / f"{behavior}.onnx"

    def checkpoint(self, behavior: str) -> Path:
        """Return the path of a behavior's newest checkpoint."""
        return self.path / behavior / "checkpoint.pt"

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
"""Suffix of runs that `--force` moved to a backup."""


def _other_runs(path: Path) -> str:
    """Return a hint with the runs beside `path` that have checkpoints, the closest name first."""
    folders = {checkpoint.parent.parent.name for checkpoint in path.parent.glob("*/*/*.pt")}
    found = sorted(name for name in folders if not _BACKUP.search(name))
    if not found:
        return ""
    return f"{did_you_mean(path.name, found)}; runs there: {', '.join(found)}"


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


def require_sound(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> None:
    """Raise for what no run saves, and none could continue from.

    Args:
        state: The content of a checkpoint.
        fresh: The state of a trainer that has not begun, for the types of the parts.

    Raises:
        UnityTrainerException: A part is of another type or out of range, or a tensor holds NaN or
            infinite numbers; the text names it.
    """
    step = state.get("global_step", 0)
    if type(step) is not int or not 0 <= step < 2**63:
        raise UnityTrainerException(
            f"its global_step is {quoted(step)}; expected a whole number of steps, 0 or more"
        )
    kinds = {"random_states": dict, "lessons": dict, "settings": dict, "recent_returns": list}
    for name, kind in kinds.items():
        if name in state and not isinstance(state[name], kind):
            raise UnityTrainerException(
                f"its {name} is of type {type(state[name]).__name__}; expected {kind.__name__}"
            )
    for name in [name for name in fresh if name in state and _is_network(fresh[name])]:
        if not _is_network(state[name]):
            raise UnityTrainerException(f"its {name} is not a dictionary of tensors")
        for key, tensor in fresh[name].items():
            theirs = state[name].get(key, tensor)
            if theirs.dtype.is_floating_point != tensor.dtype.is_floating_point:
                raise UnityTrainerException(
                    f"{name}.{key} is of type {theirs.dtype}; expected {tensor.dtype}"
                )
    returns = state.get("recent_returns", [])
    if not all(isinstance(number, float) and math.isfinite(number) for number in returns):
        raise UnityTrainerException("its recent_returns are not all finite numbers")
    for path, tensor in _tensors(state):
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UnityTrainerException(
                f"{path} holds NaN or infinite numbers: training diverged before it was saved, or "
                "the file was changed"
            )


def _tensors(state: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a checkpoint, after the path of its key."""
    if isinstance(state, torch.Tensor):
        yield path, state
    elif isinstance(state, Mapping | list | tuple):
        items = state.items() if isinstance(state, Mapping) else enumerate(state)
        for key, value in items:
            yield from _tensors(value, f"{path}.{key}" if path else str(key))


def fitted(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the initial state of a trainer with all layers of a checkpoint that fit.

    A layer is copied as a whole or not at all, because a partial normalizer is worse than none.

    Args:
        state: Content of the checkpoint.
        fresh: Initial state of the trainer.

    Returns:
        `fresh` with the layers that fit, and the names of the layers that do not.

    Raises:
        ValueError: No layer fits.
    """
    fitting, unlike, n_taken = dict(fresh), [], 0
    for network, tensors in fresh.items():
        if not _is_network(tensors):
            continue
        found = state[network] if _is_network(state.get(network)) else {}
        layers: dict[str, list[str]] = {}
        for name in tensors:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        for layer, names in layers.items():
            if all(name in found and found[name].shape == tensors[name].shape for name in names):
                fitting[network] = fitting[network] | {name: found[name] for name in names}
                n_taken += 1
            else:
                unlike.append(f"{network}: {layer}")
    if not n_taken:
        raise ValueError("no layer has the name and size of one of its networks")
    return fitting, unlike


def misfits(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Return the differences of a checkpoint from the form of `fresh`, the trainer's own state."""
    found = []
    for name, ours in fresh.items():
        theirs = state.get(name, {})
        if name not in state or _is_network(theirs) != _is_network(ours):
            found.append(f"it has no {name}")
        elif _is_network(ours):
            found += [f"{name} has {tensor} beside" for tensor in theirs if tensor not in ours]
            for tensor, value in ours.items():
                if tensor not in theirs:
                    found.append(f"{name} lacks {tensor}")
                elif theirs[tensor].shape != value.shape:
                    shapes = f"{tuple(theirs[tensor].shape)}, not {tuple(value.shape)}"
                    found.append(f"{name} has {tensor} as {shapes}")
    return found


_WITHOUT_SHAPE = re.compile(
    r".*\.(deterministic|sequence_length|gamma|strength|learning_rate|demo_path)"
    r"|reward_signals\.extrinsic\..*"
)
"""Settings of networks that do not affect their shape."""


def shaping_settings(settings: BehaviorSettings) -> dict[str, Any]:
    """Return the settings that determine a behavior's networks, by dotted key."""
    written = settings.model_dump(
        mode="json", include={"trainer_type", "network_settings", "reward_signals"}
    )
    return {
        **{key: v for key, v in _flat(written) if not _WITHOUT_SHAPE.fullmatch(key)},
        "reward_signals": list(settings.reward_signals),
        "behavioral_cloning": settings.behavioral_cloning is not None,
        "hyperparameters.shared_critic": getattr(settings.hyperparameters, "shared_critic", False),
    }


def _flat(written: Mapping[str, Any], below: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in written.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{below}{key}.")
        elif value is not None:
            yield f"{below}{key}", value


def changed_settings(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return descriptions of the `shaping_settings` that differ between a checkpoint and now.

    Differences that follow from another `trainer_type` or other reward signals are left out.
    """
    keys = [key for key in {**saved, **now} if saved.get(key) != now.get(key)]
    if "trainer_type" in keys:
        keys = ["trainer_type"]
    elif "reward_signals" in keys:
        keys = [key for key in keys if not key.startswith("reward_signals.")]
    return [f"{key} was {quoted(saved.get(key))}, is {quoted(now.get(key))}" for key in keys]


def _is_network(state: object) -> bool:
    return isinstance(state, Mapping) and all(isinstance(t, torch.Tensor) for t in state.values())


def initial_checkpoint(
    run_id: str | None, init_path: str | None, *, results_dir: Path, behavior: str
) -> Path | None:
    """Return the checkpoint that a behavior starts from, or None to start from scratch.

    Args:
        run_id: Run given by `--initialize-from`.
        init_path: Setting of the behavior: a path, or the name of a file in that run.
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
            f"Check --initialize-from and init_path{_other_runs(results_dir / (run_id or 'any'))}."
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
        self._dropped: set[Path] = set()  # files to delete after the list on disk was written
        if resume:
            self._read()

    def _read(self) -> None:
        try:
            self._status = json.loads(self._path.read_text())
            for name, section in self._status.items():
                self._name_what_there_is(name, section)
        except FileNotFoundError:
            logger.warning(f"{self._path} is missing; the list of checkpoints starts empty.")
            return
        except (ValueError, OSError, AttributeError, KeyError, TypeError) as error:
            raise UnityTrainerException(
                f"{self._path} cannot be read: {error!r}. If you move it away, the run resumes "
                "from its newest checkpoints with an empty list and the first lessons."
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
        """Update the paths of a run that was moved; remove entries whose files do not exist."""
        folder = self._folder.path / behavior

        def is_there(entry: dict[str, Any], model_folder: Path) -> bool:
            model = model_folder / Path(entry["file_path"]).name
            others = [folder / Path(path).name for path in entry["auxillary_file_paths"]]
            entry["file_path"] = str(model)
            entry["auxillary_file_paths"] = [str(path) for path in others]
            return all(path.exists() for path in (model, *others))

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
        keep: int,
        is_final: bool = False,
    ) -> None:
        """Save a checkpoint and its policy; delete the oldest ones beyond `keep`.

        Args:
            behavior: Name of the behavior.
            step: Step count of the behavior, part of the file names.
            state: Content of the checkpoint.
            model: Exported policy, as ONNX.
            reward: Recent mean return, for the list.
            keep: Number of newest checkpoints to keep; 0 or less keeps all.
            is_final: Whether to write the policy as the finished model of the run, too.

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
        entries = [e for e in section.get("checkpoints", []) if e["steps"] != step] + [entry]
        section["checkpoints"] = entries[-keep:] if keep > 0 else entries
        if is_final:
            final = self._folder.model(behavior)
            write_atomically(final, model)
            section["final_checkpoint"] = entry | {"file_path": str(final)}
        listed = _files(section)
        self._dropped = (self._dropped | listed_before) - listed
        self.write_status()


def _files(section: dict[str, Any]) -> set[Path]:
    """Return all files that a behavior's section of the status lists."""
    entries = section.get("checkpoints", [])
    with_final = [*entries, *filter(None, [section.get("final_checkpoint")])]
    models = [entry["file_path"] for entry in entries]
    others = [path for entry in with_final for path in entry["auxillary_file_paths"]]
    return {Path(path) for path in (*models, *others)}
