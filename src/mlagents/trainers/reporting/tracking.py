"""Experiment trackers: Weights & Biases, MLflow, Trackio; and statistics as JSON lines.

A tracker may be slow, offline or fail. Each tracker runs in its own thread, so training never waits
for it. Its first failure is logged as a warning, and the run continues without it.
"""

import json
import math
import queue
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.reporting.stats import (
    IS_TRAINING,
    STEP,
    StatsPropertyType,
    StatsSummary,
    StatsWriter,
    leaves,
)
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import command, python

logger = get_logger(__name__)

PROJECT = "mlagents"
"""Default project or experiment. The tracker's own environment variable overrides it."""

_MOST_WAITING = 10_000
"""Largest number of calls queued for a tracker. If the queue overflows, the tracker has failed."""
_END_S = 20.0
"""Longest time to wait for a tracker at the end of a run, in seconds."""


class Tracker(ABC):
    """Sends the statistics of a run to a service or a store. One thread makes all calls."""

    @abstractmethod
    def open(self) -> None:
        """Begin or continue the run."""

    @abstractmethod
    def configure(self, settings: Mapping[str, Any]) -> None:
        """Record settings of a behavior: numbers and strings, by dotted key."""

    @abstractmethod
    def log(self, behavior: str, numbers: Mapping[str, float], step: int) -> None:
        """Record finite numbers of a summary, by their tags in TensorBoard."""

    @abstractmethod
    def close(self) -> None:
        """End the run."""


class _Wandb(Tracker):
    """Weights & Biases. Its environment variables apply, such as WANDB_MODE=offline."""

    def __init__(self, options: RunOptions, folder: RunFolder) -> None:
        self._options = options
        self._folder = folder
        self._known: set[str] = set()

    def open(self) -> None:
        import os

        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=self._options.checkpoint_settings.run_id,
            id=_kept(self._folder, "wandb", lambda: uuid.uuid4().hex),
            resume="allow",
            dir=str(self._folder.path),
            settings=wandb.Settings(silent=True, init_timeout=30),
        )

    def configure(self, settings: Mapping[str, Any]) -> None:
        self._run.config.update(dict(settings), allow_val_change=True)

    def log(self, behavior: str, numbers: Mapping[str, float], step: int) -> None:
        axis = f"{behavior}/{STEP}"
        if behavior not in self._known:
            self._known.add(behavior)
            self._run.define_metric(axis)
            self._run.define_metric(f"{behavior}/*", step_metric=axis)
        self._run.log({axis: step, **{f"{behavior}/{tag}": x for tag, x in numbers.items()}})

    def close(self) -> None:
        self._run.finish()


class _MLflow(Tracker):
    """MLflow, in the store of MLFLOW_TRACKING_URI or the folder `mlruns` beside the run."""

    def __init__(self, options: RunOptions, folder: RunFolder) -> None:
        self._options = options
        self._folder = folder

    def open(self) -> None:
        import os

        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow prefers databases
        from mlflow import MlflowClient

        own = self._folder.path.absolute().parent / "mlruns"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or own.as_uri()
        self._client = MlflowClient(tracking_uri=uri)
        self._id = _kept(self._folder, "mlflow", self._create)
        self._client.set_terminated(self._id, status="RUNNING")

    def _create(self) -> str:
        import os

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        run = self._client.create_run(number, run_name=self._options.checkpoint_settings.run_id)
        return str(run.info.run_id)

    def configure(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        had = self._client.get_run(self._id).data.params  # existing ones cannot be changed
        new = [Param(key, str(value)) for key, value in settings.items() if key not in had]
        for start in range(0, len(new), 100):  # MLflow's largest batch
            self._client.log_batch(self._id, params=new[start : start + 100])

    def log(self, behavior: str, numbers: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(1000 * time.time())
        metrics = [Metric(f"{behavior}/{tag}", x, now_ms, step) for tag, x in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._id)


class _Trackio(Tracker):
    """Trackio, in its local store."""

    def __init__(self, options: RunOptions, folder: RunFolder) -> None:
        self._options = options

    def open(self) -> None:
        import trackio

        self._run = trackio.init(
            project=PROJECT,
            name=self._options.checkpoint_settings.run_id.replace("/", "-"),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def configure(self, settings: Mapping[str, Any]) -> None:
        self._run.config.update(dict(settings))

    def log(self, behavior: str, numbers: Mapping[str, float], step: int) -> None:
        self._run.log({f"{behavior}/{tag}": x for tag, x in numbers.items()}, step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, tuple[str, str, Callable[[RunOptions, RunFolder], Tracker]]] = {
    "wandb": ("wandb", "wandb", _Wandb),
    "mlflow": ("mlflow", "mlflow-skinny", _MLflow),
    "trackio": ("trackio", "trackio", _Trackio),
}
"""Module, package to install, and class of each tracker, by name."""


def require_trackers(options: RunOptions) -> None:
    """Raise unless all trackers of a run are installed.

    Raises:
        TrainerConfigError: A tracker is missing. The message has the command that installs it.
    """
    if options.checkpoint_settings.inference:
        return  # inference is not tracked
    for name in options.track:
        module, package, _ = TRACKERS.get(name, ("json", "", None))
        if find_spec(module) is None:
            install = command(*python(), "-m", "pip", "install", package)
            raise TrainerConfigError(
                f"track (--track): {name} is not installed. Install it: {install}"
            )


def make_trackers(options: RunOptions, folder: RunFolder, *, resume: bool) -> list[StatsWriter]:
    """Return the writers for the trackers that the settings name, except TensorBoard."""
    writers: list[StatsWriter] = []
    for name in options.track:
        if name == "jsonl":
            writers.append(JsonLinesWriter(folder.path / "stats.jsonl", resume=resume))
        elif name in TRACKERS:
            writers.append(TrackingWriter(name, TRACKERS[name][2](options, folder)))
    return writers


def _kept(folder: RunFolder, name: str, make: Callable[[], str]) -> str:
    """Return the id of a run at a tracker; a resumed run uses the stored id."""
    path = folder.logs / f"{name}_run.txt"
    if path.exists():
        return path.read_text().strip()
    identity = make()
    write_atomically(path, identity.encode())
    return identity


class TrackingWriter(StatsWriter):
    """Passes statistics to a tracker in a separate thread.

    Args:
        name: Name of the tracker, for messages.
        tracker: Tracker to pass statistics to.
        end_s: Longest time to wait for the tracker at the end, in seconds.
    """

    def __init__(self, name: str, tracker: Tracker, *, end_s: float = _END_S) -> None:
        self._name = name
        self._tracker = tracker
        self._end_s = end_s
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._has_failed = False
        self._thread: threading.Thread | None = threading.Thread(
            target=self._work, name=f"track-{name}", daemon=True
        )
        self._thread.start()

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Queue the finite numbers of a summary."""
        numbers = {tag: x for tag, x in _numbers(values).items() if math.isfinite(x)}
        self._hand_over(lambda: self._tracker.log(category, numbers, step))

    def add_property(self, category: str, property_type: StatsPropertyType, value: Any) -> None:
        """Queue all settings of a behavior."""
        if property_type is StatsPropertyType.HYPERPARAMETERS:
            settings = {f"{category}.{key}": _plain(each) for key, each in leaves(value)}
            self._hand_over(lambda: self._tracker.configure(settings))

    def close(self) -> None:
        """Wait a limited time until the tracker has received everything."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        end = time.monotonic() + self._end_s
        try:
            self._waiting.put(None, timeout=self._end_s)
            thread.join(max(end - time.monotonic(), 0.0))
        except queue.Full:
            pass
        if thread.is_alive():
            logger.warning(
                f"track: {self._name} did not answer for {self._end_s:g} s. It may lack the last "
                "statistics of the run."
            )

    def _hand_over(self, use: Callable[[], None]) -> None:
        if self._has_failed or self._thread is None:
            return
        try:
            self._waiting.put_nowait(use)
        except queue.Full:
            self._fail("it does not keep up with the run")

    def _work(self) -> None:
        each = iter(self._waiting.get, None)  # ends for good with the None of `close`
        try:
            self._tracker.open()
            for use in each:
                if not self._has_failed:
                    use()
            self._tracker.close()
        except BaseException as error:  # other packages may raise anything, even SystemExit
            self._fail(f"{type(error).__name__}: {error}")
            for _ in each:  # so that the queue does not fill
                pass

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            logger.warning(f"track: {self._name} failed: {why:.500}. The run continues without it.")
        self._has_failed = True


class JsonLinesWriter(StatsWriter):
    """Appends each summary as one line of JSON: behavior, step, time, and all statistics.

    Args:
        path: Path of the file.
        resume: Whether to continue the file. Lines that a killed run wrote after the resumed step
            are removed.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self._resume = resume
        self._started: set[str] = set()
        self._is_failing = False

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Append a line. NaN and infinite numbers become null."""
        numbers = {tag: x if math.isfinite(x) else None for tag, x in _numbers(values).items()}
        line = {"behavior": category, "step": step, "time": time.time(), "stats": numbers}
        try:
            if category not in self._started:
                self._prepare(category, step)
                self._started.add(category)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            if not self._is_failing:
                logger.warning(f"Cannot write {self._path}: {error}. The run continues.")
            self._is_failing = True
        else:
            self._is_failing = False

    def _prepare(self, category: str, step: int) -> None:
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return
        if not self._resume:
            if not self._started:
                self._path.unlink()
            return
        kept = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
                is_later = entry["behavior"] == category and entry["step"] >= step
            except (ValueError, KeyError, TypeError):
                continue  # a line that a killed run wrote only partly
            if not is_later:
                kept.append(line + "\n")
        write_atomically(self._path, "".join(kept).encode())


def _numbers(values: Mapping[str, StatsSummary]) -> dict[str, float]:
    left_out = (IS_TRAINING, STEP)
    return {tag: each.aggregated_value for tag, each in values.items() if tag not in left_out}


def _plain(value: Any) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)
