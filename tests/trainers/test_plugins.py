"""Plug-ins are found by entry points that really stand on the path, and fail by themselves."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from document_examples import examples_of
from mlagents import plugins
from mlagents.trainers import learn
from mlagents.trainers.settings.hyperparameters import HYPERPARAMETERS
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.stats import StatsReporter
from mlagents.trainers.training.trainer import OnPolicyTrainer

Install = Callable[[str, str, str], None]

TRAINER = """
    from mlagents.trainers.settings.hyperparameters import HyperparameterSettings
    from mlagents.trainers.training.trainer import OnPolicyTrainer

    class MySettings(HyperparameterSettings):
        temperature: float = 1.0

    class MyTrainer(OnPolicyTrainer):
        pass

    def plugin():
        return {RETURNED}
"""
WRITER = """
    from mlagents.trainers.stats import StatsWriter

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
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lay a package with one entry point where Python finds it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    laid: list[str] = []

    def lay(module: str, group: str, code: str) -> None:
        laid.append(module)
        (tmp_path / f"{module}.py").write_text(dedent(code))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\nof_{module} = {module}:plugin\n")

    yield lay
    for module in laid:
        sys.modules.pop(module, None)


@pytest.fixture(autouse=True)
def restored_table() -> Iterator[None]:
    before = dict(HYPERPARAMETERS)
    yield
    HYPERPARAMETERS.clear()
    HYPERPARAMETERS.update(before)


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
    assert "ZeroDivisionError" in log and "Listening fails and is left out from now on" in log
    reporter.write_stats(3)
    reporter.add_stat("Speed", 8.0)
    assert capsys.readouterr().out == ""


def test_trainers_and_their_settings_are_known_from_then_on(install: Install) -> None:
    install(
        "patient",
        plugins.TRAINER_TYPE,
        TRAINER.format(RETURNED="{'p': MyTrainer}, {'p': MySettings}"),
    )
    for _ in range(2):  # as two runs in one process do
        assert issubclass(plugins.trainer_types()["p"], OnPolicyTrainer)
    options = RunOptions.model_validate(
        {"behaviors": {"A": {"trainer_type": "p", "hyperparameters": {"temperature": 3}}}}
    )
    assert options.behaviors["A"].hyperparameters.temperature == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("group", "code", "expected"),
    [
        (plugins.STATS_WRITER, "1 / 0", "ZeroDivisionError"),
        (plugins.STATS_WRITER, "import no_such_module", "ModuleNotFoundError"),
        (plugins.STATS_WRITER, "", "AttributeError"),
        (
            plugins.STATS_WRITER,
            "plugin = lambda options: [print]",
            "must return a list of mlagents",
        ),
        (plugins.STATS_WRITER, "plugin = lambda options: None", "TypeError"),
        (plugins.TRAINER_TYPE, "plugin = dict", "ValueError"),
        (plugins.TRAINER_TYPE, TRAINER.format(RETURNED="{'x': 1}, {}"), "must have the same names"),
        (
            plugins.TRAINER_TYPE,
            TRAINER.format(RETURNED="{'x': 1}, {'x': MySettings}"),
            "must be a class derived from mlagents.trainers.training.trainer.Trainer, got 1",
        ),
        (
            plugins.TRAINER_TYPE,
            TRAINER.format(RETURNED="{'x': MyTrainer}, {'x': dict}"),
            "must be a class derived from mlagents.trainers.settings.hyperparameters",
        ),
        (
            plugins.TRAINER_TYPE,
            TRAINER.format(RETURNED="{'ppo': MyTrainer}, {'ppo': MySettings}"),
            "'ppo' is taken",
        ),
    ],
)
def test_a_plugin_that_fails_is_shown_and_left_out(
    group: str, code: str, expected: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(HYPERPARAMETERS)
    install("broken", group, code)
    install("whole", plugins.STATS_WRITER, WRITER.format(WRITER="Telling"))

    writers, trainers = plugins.stats_writers(RunOptions()), plugins.trainer_types()

    assert len(writers) == 1 and trainers == {}
    assert before == HYPERPARAMETERS
    log = capsys.readouterr().out
    assert f"[ERROR] The plug-in of_broken (broken:plugin) of {group} fails:" in log
    assert "Traceback" in log and expected in log


@pytest.mark.slow
def test_the_plugins_of_the_page_do_as_it_says(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    writer, trainer = examples_of("plugins.md")
    install("best", plugins.STATS_WRITER, writer + "plugin = stats_writers\n")
    install("thrift", plugins.TRAINER_TYPE, trainer + "plugin = trainer_types\n")
    monkeypatch.chdir(tmp_path)
    Path("guess.yaml").write_text(
        """
        behaviors:
          Guess:
            trainer_type: thrifty
            hyperparameters: {batch_size: 64, buffer_size: 512, learning_rate: 3.0e-3, enough: 2}
            network_settings: {hidden_units: 16, num_layers: 1}
            max_steps: 20000
            summary_freq: 500
        """
    )

    environment = "guess_environment:GuessEnvironment"
    assert learn.main(["guess.yaml", "--env", environment, "--seed", "5"]) == 0

    log = capsys.readouterr().out
    rewards = [float(value) for value in re.findall(r"Guess at step \d+: (\S+) ±", log)]
    assert len(rewards) > 1 and rewards == sorted(rewards)
    status = json.loads(Path("results/ppo/run_logs/training_status.json").read_text())
    assert 2 <= status["Guess"]["final_checkpoint"]["reward"] < 2.5
    assert status["Guess"]["final_checkpoint"]["steps"] < 15_000
