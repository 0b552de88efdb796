"""Trackers get all statistics, and never hold up or end a run."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learn import run_training
from mlagents.trainers.reporting import tracking
from mlagents.trainers.reporting.stats import (
    STEP,
    StatsPropertyType,
    StatsSummary,
    StatsWriter,
    TensorBoardWriter,
)
from mlagents.trainers.reporting.tracking import JsonLinesWriter, Tracker, TrackingWriter
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import RunOptions


class Notes(Tracker):
    """Notes its calls; fails or waits where told to."""

    def __init__(self, fails_in: str = "", waits: threading.Event | None = None) -> None:
        self.calls: list[Any] = []
        self._fails_in = fails_in
        self._waits = waits

    def _note(self, name: str, *what: Any) -> None:
        if self._waits is not None:
            self._waits.wait()
        if name == self._fails_in:
            raise SystemExit("no network")
        self.calls.append((name, *what))

    def open(self) -> None:
        self._note("open")

    def configure(self, settings: Mapping[str, Any]) -> None:
        self._note("configure", settings)

    def log(self, behavior: str, numbers: Mapping[str, float], step: int) -> None:
        self._note("log", behavior, numbers, step)

    def close(self) -> None:
        self._note("close")


def summary(**numbers: float) -> dict[str, StatsSummary]:
    return {tag: StatsSummary(np.array([number])) for tag, number in numbers.items()}


def use(writer: StatsWriter) -> None:
    settings = {"a": {"b": 1, "c": None, "d": [1, 2]}}
    writer.add_property("Ball", StatsPropertyType.HYPERPARAMETERS, settings)
    writer.write_stats("Ball", summary(Reward=1.5, Bad=float("nan"), **{STEP: 7.0}), 7)
    writer.close()
    writer.close()


def test_a_tracker_gets_settings_and_finite_numbers() -> None:
    notes = Notes()
    use(TrackingWriter("mine", notes))
    assert notes.calls == [
        ("open",),
        ("configure", {"Ball.a.b": 1, "Ball.a.d": "[1, 2]"}),
        ("log", "Ball", {"Reward": 1.5}, 7),
        ("close",),
    ]


@pytest.mark.parametrize("fails_in", ["open", "configure", "log", "close"])
def test_a_tracker_that_fails_is_a_warning(
    fails_in: str, capsys: pytest.CaptureFixture[str]
) -> None:
    use(TrackingWriter("mine", Notes(fails_in)))
    log = capsys.readouterr().out
    assert log.count("track: mine failed: SystemExit: no network. The run continues") == 1
    assert "did not answer" not in log


def test_a_tracker_that_hangs_does_not_hold_up_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "_MOST_WAITING", 2)
    answers = threading.Event()
    writer = TrackingWriter("mine", Notes(waits=answers), end_s=0.01)
    for step in range(5):
        writer.write_stats("Ball", summary(Reward=1.0), step)
    writer.close()
    log = capsys.readouterr().out
    assert "it does not keep up with the run" in log
    assert "mine did not answer for 0.01 s" in log
    answers.set()


def test_lines_of_a_killed_run_are_replaced_when_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "stats.jsonl"
    first = JsonLinesWriter(path, resume=False)
    for step in (1, 2, 3):
        first.write_stats("A", summary(Reward=step, Bad=float("inf")), step)
    first.write_stats("B", summary(Reward=9.0), 3)
    path.write_text(path.read_text() + '{"behavior": "A", "st')
    second = JsonLinesWriter(path, resume=True)
    second.write_stats("A", summary(Reward=20.0), 2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(x["behavior"], x["step"], x["stats"]["Reward"]) for x in lines] == [
        ("A", 1, 1.0),
        ("B", 3, 9.0),
        ("A", 2, 20.0),
    ]
    assert lines[0]["stats"]["Bad"] is None
    JsonLinesWriter(path, resume=False).write_stats("A", summary(Reward=0.0), 1)
    assert len(path.read_text().splitlines()) == 1


def test_a_full_disk_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stats.jsonl").mkdir()
    writer = JsonLinesWriter(tmp_path / "stats.jsonl", resume=True)
    for step in (1, 2):
        writer.write_stats("A", summary(Reward=1.0), step)
    assert capsys.readouterr().out.count("Cannot write") == 1


def test_settings_are_hyperparameters_of_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    writer = TensorBoardWriter(tmp_path)
    settings = {"hyperparameters": {"learning_rate": 1e-4, "name": "x"}, "threaded": True}
    writer.add_property("Ball", StatsPropertyType.HYPERPARAMETERS, settings)
    events = EventAccumulator(str(tmp_path / "Ball"))
    events.Reload()
    content = events.PluginTagToContent(metadata.PLUGIN_NAME)[metadata.SESSION_START_INFO_TAG]
    found = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert found["hyperparameters.learning_rate"].number_value == 1e-4
    assert found["hyperparameters.name"].string_value == "x"
    assert found["threaded"].bool_value is True


def test_names_are_typed_with_commas_or_as_a_list(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("default_settings: {}\ntrack: [jsonl]\n")

    def track(*flags: str) -> tuple[str, ...]:
        return load_run_options(parse_command_line([str(file), *flags])).track

    assert track() == ("jsonl",)
    assert track("--track", "tensorboard, wandb,wandb") == ("tensorboard", "wandb")
    assert track("--track", "none") == ()
    with pytest.raises(TrainerConfigError, match=r"track\[0\].*did you mean 'wandb'"):
        track("--track", "wandbb")
    with pytest.raises(ValidationError, match="must be a list of names"):
        RunOptions.model_validate({"track": 3})


def small(tmp_path: Path, *track: str) -> RunOptions:
    return RunOptions.model_validate(
        {
            "track": track,
            "default_settings": {"max_steps": 100, "summary_freq": 50},
            "env_settings": {"env_path": "Basic", "seed": 1},
            "checkpoint_settings": {"results_dir": str(tmp_path / "results"), "run_id": "a"},
        }
    )


def test_a_missing_tracker_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(
        TrainerConfigError, match=r"mlflow is not installed.* install mlflow-skinny"
    ):
        run_training(small(tmp_path, "mlflow"))
    assert not (tmp_path / "results").exists()


def test_a_run_writes_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    mine = ("json", "json", lambda options, folder: notes)
    monkeypatch.setitem(tracking.TRACKERS, "wandb", mine)
    run_training(small(tmp_path, "wandb", "jsonl"))
    steps = [call[3] for call in notes.calls if call[0] == "log"]
    assert steps == [50, 100] and notes.calls[-1] == ("close",)
    assert len((tmp_path / "results/a/stats.jsonl").read_text().splitlines()) == 2
    assert not list((tmp_path / "results").rglob("events.out.tfevents.*"))


@pytest.mark.slow
def test_mlflow_keeps_the_run_in_files(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    import mlflow

    options = small(tmp_path, "mlflow")
    folder = RunFolder(tmp_path / "results/a")
    folder.logs.mkdir(parents=True)
    for _ in range(2):  # a resumed run continues the same one
        (writer,) = tracking.make_trackers(options, folder, resume=True)
        use(writer)
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "results/mlruns").as_uri())
    (experiment,) = [x for x in client.search_experiments() if x.name == tracking.PROJECT]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics == {"Ball/Reward": 1.5}
    assert run.data.params == {"Ball.a.b": "1", "Ball.a.d": "[1, 2]"}
    assert run.info.status == "FINISHED"
