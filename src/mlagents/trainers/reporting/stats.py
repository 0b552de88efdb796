"""Statistics of a run: `StatsReporter` collects them, and writers show or store them.

Values such as rewards and losses arrive one by one or in arrays. For each summary, the reporter
passes a `StatsSummary` of each statistic to every writer: the console, TensorBoard, the gauges of
`timers.json`.
"""

import io
import math
import os
import shutil
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import set_gauge

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

logger = get_logger(__name__)

CUMULATIVE_REWARD = "Environment/Cumulative Reward"
GROUP_CUMULATIVE_REWARD = "Environment/Group Cumulative Reward"
EPISODE_LENGTH = "Environment/Episode Length"
ELO = "Self-play/ELO"
HELD_OUT_ACCURACY = "Imitation/Held-out Accuracy"
"""Fraction of demonstrated choices that equal the policy's most likely choices."""
HELD_OUT_ERROR = "Imitation/Held-out Error"
"""Mean squared error of the policy's mean continuous actions on demonstrations."""
EVALUATED_REWARD = "Evaluation/Cumulative Reward"
EVALUATED_LENGTH = "Evaluation/Episode Length"
EVALUATION_ERROR = "Evaluation/Standard Error"
IS_TRAINING = "Is Training"
STEP = "Step"


class StatsPropertyType(Enum):
    """Kind of a behavior's property."""

    HYPERPARAMETERS = "hyperparameters"
    """All settings of the behavior: nested dictionaries of plain values."""
    SELF_PLAY = "selfplay"
    """Whether the behavior uses self-play: a bool."""


@dataclass(frozen=True, eq=False)
class StatsSummary:
    """The values of one statistic since the last summary.

    Attributes:
        full_dist: (n,) float64 values in order of arrival, at least one.
        aggregation_method: Method that reduces the values to one number.
    """

    full_dist: NDArray[np.float64]
    aggregation_method: StatsAggregationMethod = StatsAggregationMethod.AVERAGE

    @property
    def aggregated_value(self) -> float:
        """Sum or mean of the values, according to `aggregation_method`."""
        return self.sum if self.aggregation_method is StatsAggregationMethod.SUM else self.mean

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return float(self.full_dist.mean())

    @property
    def std(self) -> float:
        """Population standard deviation of the values."""
        return float(self.full_dist.std())

    @property
    def num(self) -> int:
        """Number of values."""
        return len(self.full_dist)

    @property
    def sum(self) -> float:
        """Sum of the values."""
        return float(self.full_dist.sum())


class StatsWriter(ABC):
    """Receives the statistics of a run, to show or store them."""

    @abstractmethod
    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Write one summary.

        Args:
            category: Name of the behavior.
            values: Summary of each statistic that has values, by name.
            step: Step count of the behavior.
        """

    def on_add_stat(  # noqa: B027  # most writers wait for the summary
        self,
        category: str,
        key: str,
        value: float,
        aggregation: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        """Handle a single value when it is added."""

    def add_property(  # noqa: B027  # most writers show numbers only
        self, category: str, property_type: StatsPropertyType, value: Any
    ) -> None:
        """Handle a property of the whole run. Its type determines the type of `value`."""

    def close(self) -> None:  # noqa: B027  # most writers hold nothing
        """Release all resources. Calling it again does nothing."""


class StatsReporter:
    """Collects the statistics of one behavior. All methods are thread-safe.

    Args:
        category: Name of the behavior.
        writers: Writers of the summaries, in this order.
    """

    def __init__(self, category: str, writers: Sequence[StatsWriter]) -> None:
        self._category = category
        self._writers = writers
        self._listeners = [
            writer for writer in writers if type(writer).on_add_stat is not StatsWriter.on_add_stat
        ]
        self._stats: dict[str, tuple[StatsAggregationMethod, list[float]]] = {}
        self._lock = threading.Lock()

    def add_stat(
        self,
        key: str,
        value: float,
        aggregation: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        """Add one value to the next summary.

        Args:
            key: Name of the statistic, which is also its tag in TensorBoard.
            value: Number to add.
            aggregation: Method that reduces the values to one number, the same for all values.
        """
        self._add(key, [float(value)], aggregation)

    def add_stats(
        self,
        key: str,
        values: ArrayLike,
        aggregation: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        """Add all values of an array of any shape, possibly empty; see `add_stat`."""
        self._add(key, np.asarray(values, np.float64).ravel().tolist(), aggregation)

    def set_stat(self, key: str, value: float) -> None:
        """Set a statistic, replacing its earlier values."""
        self.add_stat(key, value, StatsAggregationMethod.MOST_RECENT)

    def add_property(self, property_type: StatsPropertyType, value: Any) -> None:
        """Pass a property of the whole run to the writers."""
        for writer in self._writers:
            writer.add_property(self._category, property_type, value)

    def write_stats(self, step: int) -> dict[str, StatsSummary]:
        """Summarize the values added since the last summary; pass it to the writers and return it.

        Args:
            step: Step count of the behavior.
        """
        with self._lock:
            stats, self._stats = self._stats, {}
        values = {
            key: StatsSummary(np.array(numbers), aggregation)
            for key, (aggregation, numbers) in stats.items()
        }
        for writer in self._writers:
            writer.write_stats(self._category, values, step)
        return values

    def write_now(self, numbers: Mapping[str, float], step: int) -> None:
        """Pass numbers to the writers immediately, without the values for the next summary.

        Args:
            numbers: Number of each statistic. NaN values are skipped.
            step: Step count of the behavior.
        """
        latest = StatsAggregationMethod.MOST_RECENT
        values = {
            key: StatsSummary(np.array([number], np.float64), latest)
            for key, number in numbers.items()
            if not math.isnan(number)
        }
        for writer in self._writers:
            writer.write_stats(self._category, values, step)

    def drain(self) -> dict[str, tuple[int, list[float]]]:
        """Remove and return the values added since the last summary, ready for JSON."""
        with self._lock:
            stats, self._stats = self._stats, {}
        return {key: (aggregation.value, numbers) for key, (aggregation, numbers) in stats.items()}

    def add_drained(self, drained: Mapping[str, tuple[int, list[float]]]) -> None:
        """Add the values of another learner's reporter.

        Statistics with only the latest value keep the value of this reporter.
        """
        for key, (number, numbers) in drained.items():
            aggregation = StatsAggregationMethod(number)
            if aggregation is StatsAggregationMethod.MOST_RECENT and key in self._stats:
                continue
            self._add(key, numbers, aggregation)

    def _add(self, key: str, numbers: list[float], aggregation: StatsAggregationMethod) -> None:
        if not numbers:
            return
        with self._lock:
            if aggregation is StatsAggregationMethod.MOST_RECENT:
                self._stats[key] = (aggregation, numbers[-1:])
            else:
                self._stats.setdefault(key, (aggregation, []))[1].extend(numbers)
        for writer in self._listeners:
            for number in numbers:
                writer.on_add_stat(self._category, key, number, aggregation)


class ConsoleWriter(StatsWriter):
    """Logs one line per summary, shortened if it does not fit into the terminal.

    Args:
        verbose: Whether to log all settings at the start.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._start_s = time.monotonic()
        self._verbose = verbose
        self._is_terminal = sys.stdout.isatty()

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Log the line of a summary, except for evaluations, which the run itself logs."""
        if STEP not in values and EVALUATED_REWARD in values:
            return
        elapsed_s = time.monotonic() - self._start_s
        is_training = IS_TRAINING in values and values[IS_TRAINING].aggregated_value > 0
        mode = "Training" if is_training else "Not Training"
        time_elapsed = f"Time Elapsed: {elapsed_s:.3f} s"
        parts = [category, f"Step: {step}", time_elapsed]
        if CUMULATIVE_REWARD in values:
            reward = values[CUMULATIVE_REWARD]
            parts.append(f"Mean Reward: {reward.mean:.3f}")
            if GROUP_CUMULATIVE_REWARD in values:
                parts.append(f"Mean Group Reward: {values[GROUP_CUMULATIVE_REWARD].mean:.3f}")
            else:
                parts.append(f"Std of Reward: {reward.std:.3f}")
            parts.append(mode)
            if ELO in values:
                parts.append(f"ELO: {values[ELO].mean:.3f}")
        elif HELD_OUT_ACCURACY in values or HELD_OUT_ERROR in values:
            for key in (HELD_OUT_ACCURACY, HELD_OUT_ERROR):
                if key in values:
                    name = key.rpartition("/")[2]
                    parts.append(f"{name}: {values[key].full_dist[-1]:.3f}")
            parts.append(mode)
        else:
            parts += ["No episode was completed since last summary", mode]
        # In a terminal, the table shows the time.
        may_go = [time_elapsed, mode] if self._is_terminal else []
        while may_go and _log_width(parts) > shutil.get_terminal_size().columns:
            parts.remove(may_go.pop(0))
        logger.info("%s.", ". ".join(parts))

    def add_property(self, category: str, property_type: StatsPropertyType, value: Any) -> None:
        """Log the settings, one per line, if `verbose` is set."""
        if self._verbose and property_type is StatsPropertyType.HYPERPARAMETERS:
            logger.info("Hyperparameters of %s:\n%s", category, "\n".join(_tree(value)))


def _log_width(parts: Sequence[str]) -> int:
    """Return the width of a log line, in columns."""
    return len(f"[INFO] {'. '.join(parts)}.")


class GaugeWriter(StatsWriter):
    """Sets two gauges in this thread's timers for each statistic: its mean and its sum."""

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Set the gauges. Values that are not finite leave them unchanged."""
        for key, summary in values.items():
            name = f"{category}.{key.replace(' ', '').replace('/', '.')}"
            set_gauge(f"{name}.mean", summary.mean)
            set_gauge(f"{name}.sum", summary.sum)


class TensorBoardWriter(StatsWriter):
    """Writes TensorBoard event files, one folder per behavior.

    Each summary is on disk when `write_stats` returns. If writing fails, the error is logged, the
    summary is lost and the run continues. The next summary tries again.

    Args:
        run_dir: Folder of the run. The files of each behavior are in a subfolder.
        resume: Whether to keep earlier event files. Otherwise they are deleted before the first
            event of the behavior is written.
    """

    def __init__(self, run_dir: Path, *, resume: bool = False) -> None:
        self._run_dir = run_dir
        self._resume = resume
        self._paths: dict[str, Path] = {}
        self._started: set[str] = set()
        self._is_failing = False

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Write a scalar per statistic, and a histogram `<tag>_hist` if requested.

        NaN values are skipped.
        """
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary()
        for key, stat in values.items():
            if key in (IS_TRAINING, STEP):
                continue
            if not math.isnan(stat.aggregated_value):
                summary.value.add(tag=key, simple_value=stat.aggregated_value)
            finite = stat.full_dist[np.isfinite(stat.full_dist)]
            if stat.aggregation_method is StatsAggregationMethod.HISTOGRAM and len(finite):
                summary.value.add(tag=f"{key}_hist", histo=_histogram(finite))
        events = [Event(wall_time=time.time(), step=step, summary=summary)]
        if category not in self._started:
            # A session start makes TensorBoard drop the points that a killed run wrote after the
            # resumed checkpoint.
            start = SessionLog(status=SessionLog.START)
            events.insert(0, Event(wall_time=time.time(), step=step, session_log=start))
        if self._write(category, events):
            self._started.add(category)

    def add_property(self, category: str, property_type: StatsPropertyType, value: Any) -> None:
        """Write the settings for the tabs Text and HParams."""
        if property_type is not StatsPropertyType.HYPERPARAMETERS:
            return
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

        text = TensorProto(
            dtype="DT_STRING",
            string_val=["\n".join(_tree(value)).encode()],
            tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
        )
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        summary = Summary()
        summary.value.add(tag="Hyperparameters/text_summary", metadata=metadata, tensor=text)
        summary.value.append(_hparams(category, value))
        self._write(category, [Event(wall_time=time.time(), summary=summary)])

    def _write(self, category: str, events: list["Event"]) -> bool:
        """Append events to the behavior's file; return whether that succeeded."""
        try:
            if category not in self._paths:
                self._paths[category] = self._new_path(category)
            _append(self._paths[category], events)
        except OSError as error:
            if not self._is_failing:
                logger.warning(
                    "Cannot write TensorBoard events of %s: %s. The run continues and tries again "
                    "at the next summary. The curves will have a gap.",
                    category,
                    error,
                )
            self._is_failing = True
            return False
        self._is_failing = False
        return True

    def _new_path(self, category: str) -> Path:
        folder = self._run_dir / category
        if not self._resume:
            for path in folder.glob("events.out.tfevents.*"):
                path.unlink()
        # TensorBoard reads the files of a folder in the order of their names.
        started_s = int(time.time())
        return folder / f"events.out.tfevents.{started_s:010}.{socket.gethostname()}.{os.getpid()}"


def _hparams(category: str, settings: Mapping[str, Any]) -> "Summary.Value":
    """Return the settings of a behavior as the start of a session for the tab HParams."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    start = plugin_data_pb2.SessionStartInfo(group_name=category, start_time_secs=time.time())
    for key, number in leaves(settings):
        if isinstance(number, bool):
            start.hparams[key].bool_value = number
        elif isinstance(number, int | float):
            start.hparams[key].number_value = number
        else:
            start.hparams[key].string_value = str(number)
    data = plugin_data_pb2.HParamsPluginData(session_start_info=start)
    return Summary.Value(
        tag=metadata.SESSION_START_INFO_TAG,
        metadata=metadata.create_summary_metadata(data),
        tensor=metadata.NULL_TENSOR,
    )


def leaves(settings: Mapping[str, Any], below: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings that are not null, by dotted key."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{below}{key}.")
        elif value is not None:
            yield f"{below}{key}", value


def _append(path: Path, events: list["Event"]) -> None:
    """Append either all events or none, because readers stop at a truncated record."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        if size == 0:
            events = [Event(wall_time=time.time(), file_version="brain.Event:2"), *events]
        records = io.BytesIO()
        writer = RecordWriter(records)
        for event in events:
            writer.write(event.SerializeToString())
        left = records.getvalue()
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(size)
            raise


def _histogram(values: NDArray[np.float64]) -> "HistogramProto":
    """Return a histogram of at least one finite value, with 30 bins of equal width."""
    from tensorboard.compat.proto.summary_pb2 import HistogramProto

    counts, edges = np.histogram(values, bins=30)
    return HistogramProto(
        min=values.min(),
        max=values.max(),
        num=len(values),
        sum=values.sum(),
        sum_squares=np.square(values).sum(),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )


def _tree(settings: Mapping[str, Any], indent: str = "\t") -> Iterator[str]:
    """Yield one line per setting, indented by level, so that Markdown shows it as code."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _tree(value, indent + "\t")
        else:
            yield f"{indent}{key}:\t{value}"
