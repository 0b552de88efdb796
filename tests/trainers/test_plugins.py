"""Plug-ins are found by entry points that really stand on the path, and fail by themselves."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import ValidationError

from document_examples import examples_of
from mlagents import plugins
from mlagents.trainers import learn
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learning.trainer_types import TrainerType, find_trainer_type
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.settings.hyperparameters import with_trainer_types
from mlagents.trainers.settings.load import check_run_options
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine

Install = Callable[[str, str, str], None]

TRAINER = """
    from mlagents.trainers.algorithms.ppo import PPO
    from mlagents.trainers.learning.on_policy import OnPolicyLearner
    from mlagents.trainers.learning.trainer_types import TrainerType
    from mlagents.trainers.settings.hyperparameters import HyperparameterSettings

    class MySettings(HyperparameterSettings):
        temperature: float = 1.0

    MINE = TrainerType(OnPolicyLearner, PPO, MySettings)

    def plugin():
        return {RETURNED}
"""
WRITER = """
    from mlagents.trainers.reporting.stats import StatsWriter

    class Telling(StatsWriter):
        def __init__(self, run_id):
            self.run_id = run_id

        def write_stats(self, category, values, step):
            print(self.run_id, category, step)
            1 / (step - 2)

    class Listening(Telling):
        def on_add_stat(self, category, key, value, aggregation=None):
            print(key, value)

    def plugin(options):
        return [{WRITER}(options.checkpoint_settings.run_id)]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Lay a package with one entry point where Python finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def lay(module: str, group: str, code: str) -> None:
        (tmp_path / f"{module}.py").write_text(dedent(code))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\nof_{module} = {module}:plugin\n")

    return lay


def test_without_plugins_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugins.stats_writers(RunOptions()) == []
    assert plugins.trainer_types() == {}
    assert capsys.readouterr().out == ""


def test_writers_are_made_for_the_run(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("telling_one", plugins.STATS_WRITER, WRITER.format(WRITER="Telling"))
    options = RunOptions.model_validate({"checkpoint_settings": {"run_id": "seventh"}})
    reporter = StatsReporter("Walker", plugins.stats_writers(options))
    log = capsys.readouterr().out
    assert "Plug-in of mlagents.stats_writer: of_telling_one (telling_one:plugin)." in log
    reporter.write_stats(1)
    assert capsys.readouterr().out == "seventh Walker 1\n"


def test_a_writer_that_fails_in_a_run_is_left_out(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("failing_one", plugins.STATS_WRITER, WRITER.format(WRITER="Listening"))
    reporter = StatsReporter("Walker", plugins.stats_writers(RunOptions()))
    reporter.add_stat("Speed", 7.0)
    assert "Speed 7.0" in capsys.readouterr().out, "it listens"
    reporter.write_stats(2)
    log = capsys.readouterr().out
    assert "ZeroDivisionError" in log and "Listening failed. The run continues without it" in log
    reporter.write_stats(3)
    reporter.add_stat("Speed", 8.0)
    assert capsys.readouterr().out == ""


def test_trainers_and_their_settings_are_known_from_then_on(install: Install) -> None:
    install(
        "patient",
        plugins.TRAINER_TYPE,
        TRAINER.format(RETURNED="{'p': MINE}"),
    )
    found = plugins.trainer_types()
    assert isinstance(found["p"], TrainerType)
    written = {"behaviors": {"A": {"trainer_type": "p", "hyperparameters": {"temperature": 3}}}}
    with with_trainer_types({name: each.settings for name, each in found.items()}):
        options = RunOptions.model_validate(written)
    assert options.behaviors["A"].hyperparameters.temperature == 3  # type: ignore[attr-defined]
    with pytest.raises(ValidationError, match="trainer_type"):  # of another run in this process
        RunOptions.model_validate(written)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a module with the trainer type `MINE`, in the working folder alone."""
    (tmp_path / "file_with_a_trainer.py").write_text(dedent(TRAINER.format(RETURNED="{}")))
    monkeypatch.chdir(tmp_path)
    return "file_with_a_trainer"


def test_a_trainer_type_is_found_in_a_file(module: str) -> None:
    name = f"{module}:MINE"
    behavior = {"trainer_type": name, "hyperparameters": {"temperature": 3}}
    options = RunOptions.model_validate({"behaviors": {"A": behavior}})
    assert options.behaviors["A"].hyperparameters.temperature == 3  # type: ignore[attr-defined]
    assert find_trainer_type(name, {}) is sys.modules[module].MINE
    with pytest.raises(ValidationError, match="unknown key; did you mean 'temperature'"):
        behavior["hyperparameters"] = {"temperatur": 3}
        RunOptions.model_validate({"behaviors": {"A": behavior}})


def test_a_trainer_type_in_a_file_inherits_what_it_knows(module: str) -> None:
    defaults = {"trainer_type": "ppo", "hyperparameters": {"batch_size": 77, "epsilon": 0.1}}
    written = {
        "default_settings": defaults,
        "behaviors": {"A": {"trainer_type": f"{module}:MINE"}},
    }
    options = check_run_options(written, CommandLine(Path("run.yaml"), {}))
    numbers = options.behaviors["A"].hyperparameters
    assert numbers.batch_size == 77 and not hasattr(numbers, "epsilon")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("{}:MIN", "has no MIN; did you mean 'MINE'"),
        ("{}:MySettings", "its settings must be a class derived from"),
        ("no_such_file:MINE", "No module named 'no_such_file'"),
    ],
)
def test_a_file_without_that_trainer_type(module: str, name: str, says: str) -> None:
    written = {"behaviors": {"A": {"trainer_type": name.format(module)}}}
    with pytest.raises(TrainerConfigError, match=f"behaviors.A.trainer_type: .*{says}"):
        check_run_options(written, CommandLine(Path("run.yaml"), {}))


def test_what_only_has_settings_is_not_a_trainer_type(module: str, tmp_path: Path) -> None:
    file = tmp_path / f"{module}.py"
    file.write_text(file.read_text() + "\nclass LOOKS:\n    settings = MySettings\n")
    with pytest.raises(ValueError, match=r"expected a .*TrainerType\(learner, algorithm"):
        find_trainer_type(f"{module}:LOOKS", {})
    with pytest.raises(ValueError, match=r"unknown trainer type 'p'\. Choose one of q"):
        find_trainer_type("p", {"q": sys.modules[module].MINE})


@pytest.mark.parametrize(
    ("group", "code", "expected"),
    [
        (plugins.STATS_WRITER, "1 / 0", "ZeroDivisionError"),
        (plugins.STATS_WRITER, "import no_such_module", "ModuleNotFoundError"),
        (plugins.STATS_WRITER, "", "AttributeError"),
        (
            plugins.STATS_WRITER,
            "plugin = lambda options: [print]",
            "expected a list of mlagents",
        ),
        (plugins.STATS_WRITER, "plugin = lambda options: None", "TypeError"),
        (plugins.TRAINER_TYPE, "plugin = list", "expected a dictionary"),
        (
            plugins.TRAINER_TYPE,
            TRAINER.format(RETURNED="{'x': 1}"),
            "TrainerType(learner, algorithm, settings), got 1",
        ),
        (
            plugins.TRAINER_TYPE,
            TRAINER.format(RETURNED="{'x': MINE._replace(settings=dict)}"),
            "must be a class derived from mlagents.trainers.settings.hyperparameters",
        ),
        (
            plugins.TRAINER_TYPE,
            TRAINER.format(RETURNED="{'ppo': MINE}"),
            "'ppo' is built in",
        ),
    ],
)
def test_a_plugin_that_fails_is_shown_and_left_out(
    group: str, code: str, expected: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("broken", group, code)
    install("whole", plugins.STATS_WRITER, WRITER.format(WRITER="Telling"))

    writers, trainers = plugins.stats_writers(RunOptions()), plugins.trainer_types()

    assert len(writers) == 1 and trainers == {}
    log = capsys.readouterr().out
    assert f"[ERROR] The plug-in of_broken (broken:plugin) of {group} failed:" in log
    assert "Traceback" in log and expected in log


@pytest.mark.slow
def test_the_plugins_of_the_page_do_as_it_says(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    writer, callback, trainer = examples_of("plugins.md")
    install("best", plugins.STATS_WRITER, writer + "plugin = stats_writers\n")
    both = "plugin = lambda options: [stop_when_solved, SaveTheBest]\n"
    install("following", plugins.CALLBACK, callback + both)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/reinforce.py").write_text(examples_of("tutorials/own_algorithm.md")[0])
    monkeypatch.syspath_prepend(tmp_path)
    install("oldest", plugins.TRAINER_TYPE, trainer + "plugin = trainer_types\n")
    monkeypatch.chdir(tmp_path)
    Path("guess.yaml").write_text(
        """
        behaviors:
          Guess:
            trainer_type: reinforce
            hyperparameters: {batch_size: 64, buffer_size: 256, learning_rate: 1.0e-2, gamma: 0}
            network_settings: {hidden_units: 16, num_layers: 1}
            max_steps: 12000
            summary_freq: 500
        """
    )

    environment = "guess_environment:GuessEnvironment"
    assert learn.main(["guess.yaml", "--env", environment, "--seed", "5"]) == 0

    log = capsys.readouterr().out
    rewards = [float(value) for value in re.findall(r"Guess at step \d+: (\S+) ±", log)]
    assert len(rewards) > 1 and rewards == sorted(rewards)
    status = json.loads(Path("results/ppo/run_logs/training_status.json").read_text())
    assert status["Guess"]["final_checkpoint"]["reward"] > 2.5
    assert log.count("Saved Guess at step") == len(rewards) + 1, "by the callback and at the end"


def test_a_package_adds_callbacks_to_every_run(install: Install) -> None:
    code = """
        def follow(summary, run):
            pass

        def plugin(options):
            return [follow]
    """
    install("follower", plugins.CALLBACK, code)
    ((name, _),) = plugins.callbacks(RunOptions())
    assert name == "follower:plugin"


def test_a_package_whose_callbacks_are_wrong_is_left_out(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("wrongly", plugins.CALLBACK, "plugin = lambda options: [3]")
    assert plugins.callbacks(RunOptions()) == []
    assert "expected a function of (summary, run)" in capsys.readouterr().out
