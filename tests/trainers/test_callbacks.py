"""Callbacks follow a run, steer it, and may fail without losing its work."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mlagents.trainers.callbacks import Callback, Run, Summary, as_callback, find_callbacks
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learn import run_training
from mlagents.trainers.reporting.summaries import is_resumable
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.folder_names import DOWNLOADED

SMALL = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 16, "buffer_size": 64},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "summary_freq": 50,
    "max_steps": 400,
}


def options(tmp_path: Path, run_id: str = "a", **written: Any) -> RunOptions:
    return RunOptions.model_validate(
        {
            "default_settings": SMALL,
            "env_settings": {"env_path": "Basic", "seed": 1},
            "checkpoint_settings": {"results_dir": str(tmp_path / "results"), "run_id": run_id},
            "torch_settings": {"threads": 1},
            **written,
        }
    )


class Diary(Callback):
    """Records the calls of one run."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_begin(self, run: Run) -> None:
        self.calls.append(("begin", dict(run.steps)))

    def on_summary(self, summary: Summary, run: Run) -> None:
        self.calls.append(summary.step)

    def on_end(self, run: Run) -> None:
        self.calls.append(("end", (run.folder / "Basic.onnx").exists()))


def test_a_callback_sees_every_summary_and_may_stop_the_run(tmp_path: Path) -> None:
    rewards: list[float | None] = []

    def stop_at_200(summary: Summary, run: Run) -> None:
        rewards.append(summary.value("Environment/Cumulative Reward"))
        assert summary.value("no such tag") is None
        if summary.step == 200:
            run.stop("it is enough")

    diary = Diary()
    run_training(options(tmp_path), callbacks=[stop_at_200, diary])
    assert diary.calls == [("begin", {"Basic": 0}), 50, 100, 150, 200, ("end", True)]
    assert any(reward is not None for reward in rewards)
    assert (tmp_path / "results/a/Basic/checkpoint.pt").exists()


def test_a_callback_may_save(tmp_path: Path) -> None:
    def save_at_100(summary: Summary, run: Run) -> None:
        if summary.step == 100:
            run.save()

    run_training(options(tmp_path), callbacks=[save_at_100])
    steps = {int(path.stem[6:]) for path in (tmp_path / "results/a/Basic").glob("Basic-*.pt")}
    assert len(steps) == 2 and 100 <= min(steps) < 150


def test_an_error_names_the_callback_and_the_work_is_saved(tmp_path: Path) -> None:
    def wrong(summary: Summary, run: Run) -> None:
        if summary.step == 200:
            raise KeyError("no such tag")

    diary = Diary()
    with pytest.raises(KeyError) as caught:
        run_training(options(tmp_path), callbacks=[wrong, diary])
    assert is_resumable(caught.value)
    (note,) = [note for note in caught.value.__notes__ if "callback" in note]
    assert "wrong" in note and "on_summary of Basic at step 200" in note
    assert diary.calls[-1] == ("end", True)
    assert (tmp_path / "results/a/Basic/checkpoint.pt").exists()


def test_runs_of_one_process_have_callbacks_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_diary.py").write_text(
        "from mlagents.trainers.callbacks import Callback\n"
        "made = []\n"
        "class Counter(Callback):\n"
        "    def on_begin(self, run):\n"
        "        self.n = 0\n"
        "        made.append(self)\n"
        "    def on_summary(self, summary, run):\n"
        "        self.n += 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for run_id in ("a", "b"):
        run_training(options(tmp_path, run_id, callbacks=["my_diary:Counter"]))
    first, second = sys.modules["my_diary"].made
    assert first is not second
    assert first.n == second.n == 8


def nothing() -> None: ...


class Needy(Callback):
    def __init__(self, what: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "expected a function of .summary, run. or a class"),
        (nothing, "too many positional arguments"),
        (dict, "got the class"),
        (Needy, "the constructor must not require arguments: missing a required argument: 'what'"),
    ],
)
def test_what_is_no_callback_is_refused(given: object, says: str) -> None:
    with pytest.raises(TrainerConfigError, match=f"callback mine: .*{says}"):
        as_callback(given, "mine")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing", "expected module:function or module:Class, got 'nothing'"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("mlagents.trainers.callbacks:Calback", "did you mean"),
    ],
)
def test_a_wrong_name_is_explained_before_anything_runs(
    tmp_path: Path, name: str, says: str
) -> None:
    with pytest.raises(TrainerConfigError, match=f"callbacks: .*{says}"):
        find_callbacks([name])
    with pytest.raises(TrainerConfigError):
        run_training(options(tmp_path, callbacks=[name]))
    assert not (tmp_path / "results").exists()


def test_a_downloaded_file_names_no_callbacks(tmp_path: Path) -> None:
    (tmp_path / DOWNLOADED).touch()
    file = tmp_path / "config.yaml"
    file.write_text("default_settings: {}\ncallbacks: [evil:run]\n")
    with pytest.raises(TrainerConfigError, match=r"callbacks: \['evil:run'\] names code to run"):
        load_run_options(parse_command_line([str(file)]))
    file.write_text("default_settings: {}\n")
    typed = parse_command_line([str(file), "--set", "callbacks=[mine:run]"])
    assert load_run_options(typed).callbacks == ("mine:run",)
