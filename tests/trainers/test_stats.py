import itertools
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator,
)

from mlagents.trainers.reporting import stats
from mlagents.trainers.reporting.stats import (
    CUMULATIVE_REWARD,
    ELO,
    GROUP_CUMULATIVE_REWARD,
    IS_TRAINING,
    STEP,
    ConsoleWriter,
    GaugeWriter,
    StatsPropertyType,
    StatsReporter,
    StatsSummary,
    StatsWriter,
    TensorBoardWriter,
)
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import get_timer_tree, reset_timers

AVERAGE = StatsAggregationMethod.AVERAGE
MOST_RECENT = StatsAggregationMethod.MOST_RECENT
SUM = StatsAggregationMethod.SUM
HISTOGRAM = StatsAggregationMethod.HISTOGRAM


class Recorder(StatsWriter):
    """Keeps every summary: (category, values, step)."""

    def __init__(self) -> None:
        self.summaries: list[tuple[str, Mapping[str, StatsSummary], int]] = []

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        self.summaries.append((category, values, step))


def summary(*values: float, how: StatsAggregationMethod = AVERAGE) -> StatsSummary:
    return StatsSummary(np.array(values, np.float64), how)


def aggregated(values: Mapping[str, StatsSummary]) -> dict[str, float]:
    return {key: value.aggregated_value for key, value in values.items()}


# --- summaries and reporter


def test_a_summary_by_hand():
    # 1, 2, 6: mean 3, deviations -2, -1, 3, variance (4 + 1 + 9) / 3.
    values = summary(1, 2, 6)
    assert (values.num, values.sum, values.mean) == (3, 9.0, 3.0)
    assert math.isclose(values.std, math.sqrt(14 / 3))


@pytest.mark.parametrize(
    ("how", "expected"), [(AVERAGE, 3.0), (HISTOGRAM, 3.0), (SUM, 9.0), (MOST_RECENT, 6.0)]
)
def test_each_aggregation_gives_its_number(how: StatsAggregationMethod, expected: float):
    recorder = Recorder()
    one_by_one, at_once = StatsReporter("a", [recorder]), StatsReporter("b", [recorder])
    for value in (1, 2, 6):
        one_by_one.add_stat("key", value, how)
    at_once.add_stats("key", [1, 2, 6], how)
    for reporter in (one_by_one, at_once):
        reporter.write_stats(100)
    (a, a_values, a_step), (b, b_values, b_step) = recorder.summaries
    assert (a, a_step, b, b_step) == ("a", 100, "b", 100)
    assert aggregated(a_values) == aggregated(b_values) == {"key": expected}
    assert a_values["key"].aggregation_method is how


def test_a_summary_begins_anew_after_each_write():
    recorder = Recorder()
    reporter = StatsReporter("Ball", [recorder])
    reporter.add_stat("a", 1.0)
    reporter.write_stats(10)
    reporter.add_stat("b", 2.0)
    reporter.write_stats(20)
    assert [aggregated(values) for _, values, _ in recorder.summaries] == [{"a": 1.0}, {"b": 2.0}]


def test_no_values_are_no_statistic():
    recorder = Recorder()
    reporter = StatsReporter("Ball", [recorder])
    reporter.add_stats("a", np.zeros(0))
    reporter.write_stats(10)
    assert recorder.summaries == [("Ball", {}, 10)]


def test_set_stat_keeps_the_latest_value():
    recorder = Recorder()
    reporter = StatsReporter("Ball", [recorder])
    reporter.set_stat("lesson", 1.0)
    reporter.set_stat("lesson", 4.0)
    reporter.write_stats(10)
    ((_, values, _),) = recorder.summaries
    assert values["lesson"].full_dist.tolist() == [4.0]


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32)), min_size=1))
def test_batches_and_single_values_give_the_same_summary(batches: list[list[float]]):
    recorder = Recorder()
    single, batched = StatsReporter("a", [recorder]), StatsReporter("b", [recorder])
    for batch in batches:
        batched.add_stats("key", np.array(batch, np.float32).reshape(-1, 1))
        for value in batch:
            single.add_stat("key", np.float32(value))
    single.write_stats(1)
    batched.write_stats(1)
    (_, left, _), (_, right, _) = recorder.summaries
    expected = list(itertools.chain(*batches))
    for values in (left, right):
        assert [summary.full_dist.tolist() for summary in values.values()] == (
            [expected] if expected else []
        )


def test_only_writers_that_ask_see_single_values():
    class Listener(Recorder):
        def on_add_stat(
            self, category: str, key: str, value: float, aggregation: Any = AVERAGE
        ) -> None:
            seen.append((category, key, value, aggregation))

    seen: list[tuple[str, str, float, StatsAggregationMethod]] = []
    reporter = StatsReporter("Ball", [Recorder(), Listener()])
    reporter.add_stats("a", [1.0, 2.0], SUM)
    reporter.set_stat("b", 3.0)
    assert seen == [
        ("Ball", "a", 1.0, SUM),
        ("Ball", "a", 2.0, SUM),
        ("Ball", "b", 3.0, MOST_RECENT),
    ]


def test_threads_may_add_while_another_writes():
    recorder = Recorder()
    reporter = StatsReporter("Ball", [recorder])

    def add(thread: int) -> None:
        for number in range(500):
            reporter.add_stat(f"{thread}/{number % 7}", 1.0)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for step in range(200):
        reporter.write_stats(step)
    for thread in threads:
        thread.join()
    reporter.write_stats(200)
    count = sum(value.num for _, values, _ in recorder.summaries for value in values.values())
    assert count == 3 * 500


def test_two_runs_do_not_share_statistics():
    left, right = Recorder(), Recorder()
    StatsReporter("Ball", [left]).add_stat("a", 1.0)
    StatsReporter("Ball", [right]).write_stats(1)
    assert right.summaries == [("Ball", {}, 1)]
    assert left.summaries == []


def test_importing_the_module_loads_neither_torch_nor_tensorboard():
    program = (
        "import sys; import mlagents.trainers.reporting.stats\n"
        "assert not {'torch', 'tensorboard'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# --- console


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> ConsoleWriter:
    """A console writer that started 12.3456 seconds ago."""
    moments = itertools.chain([100.0], itertools.repeat(112.3456))
    monkeypatch.setattr(stats, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    return ConsoleWriter()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {CUMULATIVE_REWARD: summary(1, 2, 6), IS_TRAINING: summary(1)},
            "Mean Reward: 3.000. Std of Reward: 2.160. Training.",
        ),
        (
            {CUMULATIVE_REWARD: summary(0.5, how=HISTOGRAM), IS_TRAINING: summary(0)},
            "Mean Reward: 0.500. Std of Reward: 0.000. Not Training.",
        ),
        (
            {
                CUMULATIVE_REWARD: summary(-0.0625),
                GROUP_CUMULATIVE_REWARD: summary(1.5),
                IS_TRAINING: summary(1),
            },
            "Mean Reward: -0.062. Mean Group Reward: 1.500. Training.",
        ),
        (
            {
                CUMULATIVE_REWARD: summary(1),
                ELO: summary(1200.5, 1201.5),
                IS_TRAINING: summary(1),
            },
            "Mean Reward: 1.000. Std of Reward: 0.000. Training. ELO: 1201.000.",
        ),
        (
            {IS_TRAINING: summary(1)},
            "No episode was completed since last summary. Training.",
        ),
        ({}, "No episode was completed since last summary. Not Training."),
    ],
)
def test_console_line(
    values: dict[str, StatsSummary],
    line: str,
    console: ConsoleWriter,
    capsys: pytest.CaptureFixture[str],
):
    console.write_stats("3DBall", values, 12000)
    assert capsys.readouterr().out == (
        f"[INFO] 3DBall. Step: 12000. Time Elapsed: 12.346 s. {line}\n"
    )


@pytest.mark.parametrize(
    ("columns", "elapsed", "mode"),
    [(98, "Time Elapsed: 12.346 s. ", " Training."), (97, "", " Training."), (70, "", "")],
)
def test_a_line_leaves_out_what_does_not_fit_into_a_terminal(
    columns: int,
    elapsed: str,
    mode: str,
    console: ConsoleWriter,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    values = {CUMULATIVE_REWARD: summary(1, 2, 6), IS_TRAINING: summary(1)}
    monkeypatch.setenv("COLUMNS", str(columns))
    console.write_stats("B", values, 12000)
    assert "Time Elapsed" in capsys.readouterr().out, "what is no terminal gets whole lines"
    monkeypatch.setattr(console, "_is_terminal", True)
    console.write_stats("B", values, 12000)
    line = f"Step: 12000. {elapsed}Mean Reward: 3.000. Std of Reward: 2.160.{mode}"
    assert capsys.readouterr().out == f"[INFO] B. {line}\n"


def test_console_shows_no_settings_unless_asked(capsys: pytest.CaptureFixture[str]):
    reporter = StatsReporter("3DBall", [ConsoleWriter()])
    reporter.add_property(StatsPropertyType.HYPERPARAMETERS, {"trainer_type": "ppo"})
    assert capsys.readouterr().out == ""


def test_console_shows_the_settings_as_a_tree(capsys: pytest.CaptureFixture[str]):
    reporter = StatsReporter("3DBall", [ConsoleWriter(verbose=True)])
    reporter.add_property(
        StatsPropertyType.HYPERPARAMETERS,
        {"trainer_type": "ppo", "network_settings": {"normalize": True, "memory": None}},
    )
    reporter.add_property(StatsPropertyType.SELF_PLAY, True)
    assert capsys.readouterr().out == (
        "[INFO] Hyperparameters of 3DBall:\n"
        "\ttrainer_type:\tppo\n"
        "\tnetwork_settings:\n"
        "\t\tnormalize:\tTrue\n"
        "\t\tmemory:\tNone\n"
    )


# --- gauges


@pytest.fixture
def _fresh_timers() -> Iterator[None]:
    reset_timers()
    yield
    reset_timers()


@pytest.mark.usefixtures("_fresh_timers")
def test_gauges_of_mean_and_sum_under_the_name_without_spaces():
    reporter = StatsReporter("3DBall", [GaugeWriter()])
    reporter.add_stats(CUMULATIVE_REWARD, np.array([1, 2, 6], np.float32))
    reporter.set_stat(STEP, 1000.0)
    reporter.add_stat("Policy/Discrete Entropy Coeff", math.nan)
    reporter.write_stats(1000)

    def once(value: float) -> dict[str, float]:
        return {"value": value, "min": value, "max": value, "count": 1}

    assert get_timer_tree()["gauges"] == {
        "3DBall.Environment.CumulativeReward.mean": once(3.0),
        "3DBall.Environment.CumulativeReward.sum": once(9.0),
        "3DBall.Step.mean": once(1000.0),
        "3DBall.Step.sum": once(1000.0),
    }


# --- TensorBoard


def read(folder: Path) -> EventAccumulator:
    """What TensorBoard shows of a folder, nothing thinned out."""
    accumulator = EventAccumulator(str(folder), dict.fromkeys(("scalars", "histograms"), 0))
    accumulator.Reload()
    return accumulator


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*"))


def test_scalars_are_read_back_per_behavior(tmp_path: Path):
    writer = TensorBoardWriter(tmp_path)
    for name, offset in (("Striker", 0.0), ("Goalie", 10.0)):
        reporter = StatsReporter(name, [writer])
        for step in (1000, 2000):
            reporter.add_stats("Losses/Policy Loss", [offset, offset + 1.0])
            reporter.add_stats("goals", [1.0, 2.0], SUM)
            reporter.set_stat("Environment/Lesson Number/wall_height", np.float32(step / 1000))
            reporter.set_stat(STEP, step)
            reporter.set_stat(IS_TRAINING, 1.0)
            reporter.write_stats(step)
    for name, offset in (("Striker", 0.0), ("Goalie", 10.0)):
        assert set(read(tmp_path / name).Tags()["scalars"]) == {
            "Losses/Policy Loss",
            "goals",
            "Environment/Lesson Number/wall_height",
        }
        assert curve(tmp_path / name, "Losses/Policy Loss") == [
            (1000, offset + 0.5),
            (2000, offset + 0.5),
        ]
        assert curve(tmp_path / name, "goals") == [(1000, 3.0), (2000, 3.0)]
        assert curve(tmp_path / name, "Environment/Lesson Number/wall_height") == [
            (1000, 1.0),
            (2000, 2.0),
        ]


def test_a_histogram_stands_beside_the_mean(tmp_path: Path):
    reporter = StatsReporter("3DBall", [TensorBoardWriter(tmp_path)])
    reporter.add_stats(CUMULATIVE_REWARD, [0.0, 0.0, 3.0, 9.0], HISTOGRAM)
    reporter.write_stats(1000)
    events = read(tmp_path / "3DBall")
    assert events.Tags()["histograms"] == ["Environment/Cumulative Reward_hist"]
    assert events.Scalars(CUMULATIVE_REWARD)[0].value == 3.0
    (event,) = events.Histograms(f"{CUMULATIVE_REWARD}_hist")
    histogram = event.histogram_value
    assert (event.step, histogram.min, histogram.max) == (1000, 0.0, 9.0)
    assert (histogram.num, histogram.sum, histogram.sum_squares) == (4, 12.0, 90.0)
    # Bins of 0.3 from 0 to 9; a bin holds its left edge, the last one both.
    filled = {
        round(limit, 6): count
        for limit, count in zip(histogram.bucket_limit, histogram.bucket, strict=True)
        if count
    }
    assert filled == {0.3: 2, 3.3: 1, 9.0: 1}


def test_a_histogram_of_one_value_and_of_values_beyond_counting(tmp_path: Path):
    reporter = StatsReporter("3DBall", [TensorBoardWriter(tmp_path)])
    reporter.add_stat("same", 2.0, HISTOGRAM)
    reporter.add_stats("some", [math.inf, 1.0], HISTOGRAM)
    reporter.add_stat("none", math.nan, HISTOGRAM)
    reporter.write_stats(1000)
    events = read(tmp_path / "3DBall")
    assert set(events.Tags()["histograms"]) == {"same_hist", "some_hist"}
    assert sum(events.Histograms("same_hist")[0].histogram_value.bucket) == 1
    assert sum(events.Histograms("some_hist")[0].histogram_value.bucket) == 1


def test_nan_is_left_out(tmp_path: Path):
    reporter = StatsReporter("3DBall", [TensorBoardWriter(tmp_path)])
    reporter.add_stat("Policy/Discrete Entropy Coeff", math.nan)
    reporter.add_stat("Policy/Entropy", 1.0)
    reporter.write_stats(1000)
    assert read(tmp_path / "3DBall").Tags()["scalars"] == ["Policy/Entropy"]


def test_settings_are_a_text(tmp_path: Path):
    reporter = StatsReporter("3DBall", [TensorBoardWriter(tmp_path)])
    reporter.add_property(StatsPropertyType.SELF_PLAY, True)
    assert not event_files(tmp_path / "3DBall")
    reporter.add_property(
        StatsPropertyType.HYPERPARAMETERS, {"trainer_type": "ppo", "hyperparameters": {"β": 0.01}}
    )
    reporter.add_stat("Policy/Entropy", 1.0)
    reporter.write_stats(1000)
    events = read(tmp_path / "3DBall")
    assert events.PluginTagToContent("text") == {"Hyperparameters/text_summary": b""}
    (event,) = events.Tensors("Hyperparameters/text_summary")
    assert [text.decode() for text in event.tensor_proto.string_val] == [
        "\ttrainer_type:\tppo\n\thyperparameters:\n\t\tβ:\t0.01"
    ]


@pytest.fixture
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every reading of the clock be a second after the one before."""
    seconds = itertools.count(time.time())
    monkeypatch.setattr(stats, "time", SimpleNamespace(time=lambda: next(seconds)))


def write_curve(writer: StatsWriter, steps: range, value: float) -> None:
    reporter = StatsReporter("3DBall", [writer])
    for step in steps:
        reporter.add_stat("loss", value)
        reporter.write_stats(step)


@pytest.mark.usefixtures("_a_second_each")
def test_a_new_run_deletes_the_events_of_the_old_one_and_nothing_else(tmp_path: Path):
    write_curve(TensorBoardWriter(tmp_path), range(1, 4), 1.0)
    (old,) = event_files(tmp_path / "3DBall")
    others = [tmp_path / "3DBall" / "checkpoint.pt", tmp_path / "Other" / old.name]
    for other in others:
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(b"keep")
    write_curve(TensorBoardWriter(tmp_path), range(1, 3), 2.0)
    assert not old.exists()
    assert curve(tmp_path / "3DBall", "loss") == [(1, 2.0), (2, 2.0)]
    assert [other.read_bytes() for other in others] == [b"keep", b"keep"]


@pytest.mark.usefixtures("_a_second_each")
def test_a_resumed_run_goes_on_where_it_resumed_and_replaces_what_came_after(tmp_path: Path):
    # Killed at step 5, resumed from the checkpoint of step 3.
    write_curve(TensorBoardWriter(tmp_path), range(1, 6), 1.0)
    write_curve(TensorBoardWriter(tmp_path, resume=True), range(4, 8), 2.0)
    assert len(event_files(tmp_path / "3DBall")) == 2
    steps = [(step, 1.0 if step < 4 else 2.0) for step in range(1, 8)]
    assert curve(tmp_path / "3DBall", "loss") == steps
    shown = PluginEventAccumulator(str(tmp_path / "3DBall"), {"tensors": 0})
    shown.Reload()
    assert [event.step for event in shown.Tensors("loss")] == list(range(1, 8))


def test_each_summary_is_on_disk_at_once_and_nothing_needs_closing(tmp_path: Path):
    writer = TensorBoardWriter(tmp_path)
    for step in (1, 2, 3):
        write_curve(writer, range(step, step + 1), 1.0)
        assert [at for at, _ in curve(tmp_path / "3DBall", "loss")] == list(range(1, step + 1))
    writer.close()
    writer.close()


def test_a_folder_that_cannot_be_made_is_logged_once_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    in_the_way = tmp_path / "3DBall"
    in_the_way.write_text("a file")
    writer = TensorBoardWriter(tmp_path)
    write_curve(writer, range(1, 4), 1.0)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("[WARNING] Cannot write TensorBoard events of 3DBall")
    in_the_way.unlink()
    write_curve(writer, range(4, 6), 1.0)
    assert curve(tmp_path / "3DBall", "loss") == [(4, 1.0), (5, 1.0)]
    assert capsys.readouterr().out == ""


def test_a_folder_deleted_during_the_run_is_made_again(tmp_path: Path):
    writer = TensorBoardWriter(tmp_path)
    write_curve(writer, range(1, 3), 1.0)
    for path in event_files(tmp_path / "3DBall"):
        path.unlink()
    (tmp_path / "3DBall").rmdir()
    write_curve(writer, range(3, 5), 1.0)
    assert curve(tmp_path / "3DBall", "loss") == [(3, 1.0), (4, 1.0)]


def test_a_full_disk_costs_the_summaries_of_that_time_and_is_logged_each_time_it_fills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    resource = pytest.importorskip("resource", reason="the system cannot limit file sizes")
    writer = TensorBoardWriter(tmp_path)
    write_curve(writer, range(1, 2), 1.0)
    (path,) = event_files(tmp_path / "3DBall")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for full, free in ((2, 4), (5, 7)):
        # Room for ten bytes of the next record: it is cut in two before the disk is full.
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
        try:
            write_curve(writer, range(full, free), 1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert path.stat().st_size == size
        (line,) = capsys.readouterr().out.splitlines()
        assert "File too large" in line
        write_curve(writer, range(free, free + 1), 1.0)
    assert curve(tmp_path / "3DBall", "loss") == [(1, 1.0), (4, 1.0), (7, 1.0)]
    assert event_files(tmp_path / "3DBall") == [path]
