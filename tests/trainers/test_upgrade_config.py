"""Configurations of old become configurations of today."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlagents.tools.upgrade_config import main, upgrade
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.behavior import ExtrinsicSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings, SACSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine

ROOT = Path(__file__).parents[2]

FLAT = """
default:
  trainer: ppo
  batch_size: 1024
  beta: 5.0e-3
  buffer_size: 10240
  hidden_units: 128
  learning_rate: 3.0e-4
  max_steps: 5.0e5
  memory_size: 256
  normalize: false
  num_epoch: 3
  sequence_length: 32
  summary_path: somewhere
  use_recurrent: false
  vis_encode_type: simple
  reward_signals:
    extrinsic: {strength: 1.0, gamma: 0.99}

Hallway:
  use_recurrent: true
  batch_size: 128
  summary_freq: 1000
  pretraining: {demo_path: demos/Hallway.demo, strength: 0.5, steps: 10000}
  reward_signals:
    extrinsic: {strength: 1.0, gamma: 0.9}
    gail: {strength: 0.01, gamma: 0.9, encoding_size: 64, demo_path: demos/Hallway.demo}

Walker:
  trainer: sac
  tau: 0.01
  train_interval: 3
  num_update: 2
  reward_signals:
    reward_signal_num_update: 6
    extrinsic: {strength: 1.0, gamma: 0.995}
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def upgraded(text: str, *arguments: str) -> RunOptions:
    """Write a file, upgrade it, and load what comes out, as a run would."""
    Path("old.yaml").write_text(dedent(text))
    assert main(["old.yaml", "new.yaml", "--force", *arguments]) == 0
    return load_run_options(CommandLine(Path("new.yaml"), {}))


def test_a_flat_file(capsys: pytest.CaptureFixture[str]) -> None:
    options = upgraded(FLAT)

    unlisted = options.behavior_settings("Unlisted")
    assert unlisted.hyperparameters == PPOSettings(batch_size=1024, beta=5e-3, num_epoch=3)
    assert unlisted.network_settings.memory is None
    assert unlisted.max_steps == 500_000

    hallway = options.behaviors["Hallway"]
    assert hallway.hyperparameters == PPOSettings(batch_size=128, beta=5e-3)
    assert hallway.network_settings.memory is not None
    assert hallway.network_settings.memory.memory_size == 256
    assert hallway.network_settings.memory.sequence_length == 32
    assert hallway.summary_freq == 1000
    assert hallway.behavioral_cloning is not None and hallway.behavioral_cloning.steps == 10000
    assert hallway.reward_signals["gail"].network_settings.hidden_units == 64
    assert hallway.reward_signals["extrinsic"].gamma == 0.9

    # Three steps between updates of two minibatches are 1.5 steps each; six of the signals, 0.5.
    walker = options.behaviors["Walker"]
    assert walker.hyperparameters == SACSettings(
        batch_size=1024,
        buffer_size=10240,
        tau=0.01,
        steps_per_update=1.5,
        reward_signal_steps_per_update=0.5,
    )
    log = capsys.readouterr().out
    assert "[WARNING] default_settings.summary_path: dropped, results are stored" in log
    assert (
        "behaviors.Walker.hyperparameters.steps_per_update: was set to train_interval / num_up"
        in log
    )


def test_flat_behaviors_below_behaviors_and_sections_of_today_stay() -> None:
    options = upgraded(
        """
        behaviors:
          3DBall: {trainer: ppo, batch_size: 64, normalize: true, lambd: 0.99}
        parameter_randomization:
          resampling-interval: 500
          mass: {sampler-type: uniform, min_value: 0.5, max_value: 10}
          gravity: {sampler-type: multirange_uniform, intervals: [[7, 10], [15, 20]]}
        engine_settings: {time_scale: 7}
        """
    )
    ball = options.behaviors["3DBall"]
    assert ball.hyperparameters == PPOSettings(batch_size=64, lambd=0.99)
    assert ball.network_settings.normalize
    assert options.engine_settings.time_scale == 7
    assert options.environment_parameters is not None
    mass, gravity = (
        options.environment_parameters[name].curriculum[0].value for name in ("mass", "gravity")
    )
    assert mass.sampler_type == "uniform"
    assert mass.sampler_parameters.model_dump() == {"seed": -1, "min_value": 0.5, "max_value": 10}
    assert gravity.sampler_parameters.model_dump()["intervals"] == ((7, 10), (15, 20))


CURRICULUM = {
    "measure": "progress",
    "thresholds": [0.1, 0.3],
    "min_lesson_length": 100,
    "signal_smoothing": True,
    "parameters": {"low": [0.0, 4.0, 6.0], "high": [4.0, 7.0, 8.0]},
}


@pytest.mark.parametrize("form", ["file of all", "file of one", "folder", "section"])
def test_every_form_of_curricula_becomes_lessons(form: str) -> None:
    flat: dict[str, Any] = {"Wall": {"trainer": "ppo"}}
    arguments = ["--curriculum", "Wall.json"]
    if form == "file of all":
        Path("Wall.json").write_text(json.dumps({"Wall": CURRICULUM}))
    elif form == "section":
        flat["curriculum"] = {"Wall": CURRICULUM}
        arguments = []
    else:
        Path("Wall.json").write_text(json.dumps(CURRICULUM, indent="\t"))
    if form == "folder":
        Path("curricula").mkdir()
        Path("Wall.json").rename("curricula/Wall.json")
        arguments = ["--curriculum", "curricula"]

    parameters = upgraded(yaml.safe_dump(flat), *arguments).environment_parameters

    assert parameters is not None
    assert parameters.keys() == {"low", "high"}
    lessons = parameters["high"].curriculum
    values = [lesson.value.sampler_parameters.model_dump()["value"] for lesson in lessons]
    assert values == [4.0, 7.0, 8.0]
    first, second, last = (lesson.completion_criteria for lesson in lessons)
    assert last is None and first is not None and second is not None
    assert (first.threshold, second.threshold) == (0.1, 0.3)
    assert (first.behavior, first.measure, first.min_lesson_length) == ("Wall", "progress", 100)
    assert first.require_reset, "a new lesson used to reset the environment"


def test_a_file_of_samplers() -> None:
    Path("samplers.yaml").write_text("size: {sampler-type: gaussian, mean: 2, st_dev: 0.3}")
    parameters = upgraded("A: {trainer: ppo}", "--sampler", "samplers.yaml").environment_parameters
    assert parameters is not None
    (lesson,) = parameters["size"].curriculum
    assert lesson.value.sampler_parameters.model_dump() == {"seed": -1, "mean": 2, "st_dev": 0.3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "A: {trainer: ppo, use_memory: true}",
            "behaviors.A.use_memory: dropped, nothing is known of it",
        ),
        (
            "A: {trainer: ppo, gamma: 0.9, reward_signals: {extrinsic: {gamma: 0.8}}}",
            "behaviors.A.gamma: dropped, reward_signals counts where both are written",
        ),
        (
            "default: {trainer: ppo, use_curiosity: true}\nA: {use_curiosity: false}",
            "behaviors.A.reward_signals: default_settings now adds 'curiosity'",
        ),
        (
            "A: {trainer: ppo, batch_size: 7, batch_size: 9}",
            "Line 1: the key 'batch_size' appears again; the last one counts.",
        ),
        ("A: {trainer: ppo, buffer_sise: 9}", "it; did you mean 'buffer_size'?"),
        ("A: {trainer: ppo, tau: 0.1}", "behaviors.A.tau: dropped, ppo does not have it"),
        ("A: {batch_size: 7}", "behaviors.A: has no trainer; ppo is used"),
        (
            "A: {trainer: ppo, reward_signals: {gail: {demo_path: x, samples_per_update: 3}}}",
            "behaviors.A.reward_signals.gail.samples_per_update: dropped",
        ),
        (
            "default: {trainer: ppo, reward_signals: {extrinsic: {}, curiosity: {}}}\n"
            "A: {reward_signals: {extrinsic: {}}}",
            "behaviors.A.reward_signals: default_settings now adds 'curiosity'",
        ),
        (
            "default: {trainer: ppo}\nA: {reward_signals: {curiosity: {}}}",
            "behaviors.A.reward_signals: default_settings now adds 'extrinsic'",
        ),
    ],
)
def test_what_is_not_carried_over_is_named(
    text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    upgraded(text)
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "A: {trainer: offline_bc}",
            "behaviors.A.trainer: must be 'ppo', 'sac', 'poca' or 'bc', got",
        ),
        ("A: 3", "behaviors.A: must be a mapping"),
        ("A: {trainer: sac, num_update: 0}", "must be numbers above 0, got 1 and 0"),
        ("A: {trainer: ppo, batch_size: many}", "old.yaml: behaviors.A.hyperparameters.batch_size"),
        (
            "A: {trainer: ppo}\ncurriculum: {A: {thresholds: [1], parameters: {p: [1, 2, 3]}}}",
            "curriculum.A.parameters.p: expected one value more than there are thresholds (1)",
        ),
        (
            "A: {trainer: ppo}\nparameter_randomization: {p: {sampler-type: uniform}}\n"
            "curriculum: {A: {thresholds: [], parameters: {p: [1]}}}",
            "environment_parameters.p: is set twice",
        ),
        (
            "A: {trainer: ppo}\ncurriculum: {B: {thresholds: [1], parameters: {p: [1, 2]}}}",
            "no behavior of this name is configured, got 'B'",
        ),
    ],
)
def test_what_cannot_be_upgraded_is_refused_and_nothing_is_written(
    text: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("old.yaml").write_text(text)
    assert main(["old.yaml", "new.yaml"]) == 1
    log = capsys.readouterr().out
    assert "[ERROR]" in log and expected in log
    assert not Path("new.yaml").exists()


def test_a_file_is_replaced_by_force_only(capsys: pytest.CaptureFixture[str]) -> None:
    Path("old.yaml").write_text("A: {trainer: ppo}")
    Path("new.yaml").write_text("mine")
    assert main(["old.yaml", "new.yaml"]) == 1
    assert "--force" in capsys.readouterr().out
    assert Path("new.yaml").read_text() == "mine"
    assert main(["old.yaml", "new.yaml", "--force"]) == 0
    assert yaml.safe_load(Path("new.yaml").read_text()) == {
        "behaviors": {"A": {"trainer_type": "ppo"}}
    }


def test_keys_from_before_reward_signals_are_carried_over() -> None:
    options = upgraded(
        """
        default:
          trainer: ppo
          gamma: 0.99
          use_curiosity: false
          curiosity_strength: 0.02
          curiosity_enc_size: 64
          vis_encode_type: default
        Plain: {gamma: 0.9}
        Curious: {use_curiosity: true, curiosity_enc_size: 256}
        Unwritten: {}
        """
    )
    assert options.default_settings is not None
    for behavior in (options.default_settings, options.behaviors["Unwritten"]):
        assert behavior.reward_signals == {"extrinsic": ExtrinsicSettings(gamma=0.99)}
        assert behavior.network_settings.vis_encode_type == "simple"
    assert options.behaviors["Plain"].reward_signals == {"extrinsic": ExtrinsicSettings(gamma=0.9)}
    curious = options.behaviors["Curious"].reward_signals
    assert curious["extrinsic"].gamma == curious["curiosity"].gamma == 0.99
    assert curious["curiosity"].strength == 0.02
    assert curious["curiosity"].network_settings.hidden_units == 256


def test_curiosity_was_weak_unless_written() -> None:
    signals = upgraded("A: {trainer: ppo, use_curiosity: true}").behaviors["A"].reward_signals
    assert signals["curiosity"].strength == 0.01


@pytest.mark.parametrize("name", ["old.yaml", "old.json"])
def test_the_last_of_repeated_keys_counts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text('{"A": {"trainer": "ppo", "num_epoch": 5, "num_epoch": 7}}')
    assert main([name, "new.yaml"]) == 0
    hyperparameters = load_run_options(CommandLine(Path("new.yaml"), {})).behaviors["A"]
    assert hyperparameters.hyperparameters == PPOSettings(num_epoch=7)
    assert "'num_epoch' appears again; the last one counts." in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ppo/Match3", "sac/Pyramids", "ppo/Sorter_curriculum"])
def test_a_file_of_today_keeps_its_meaning(name: str) -> None:
    path = ROOT / "config" / f"{name}.yaml"
    assert upgraded(path.read_text()) == load_run_options(CommandLine(path, {}))


names = st.sampled_from(
    "default behaviors A trainer trainer_type gamma use_curiosity curiosity_enc_size "
    "vis_encode_type reward_signals extrinsic gail encoding_size "
    "num_update train_interval use_recurrent memory_size self_play curriculum thresholds "
    "parameters parameter_randomization sampler-type environment_parameters".split()
)
scalars = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["ppo", "sac", "true"])
anything = st.recursive(
    scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=5)
)


@given(st.dictionaries(names, anything, max_size=6))
@settings(max_examples=200, deadline=None)
def test_whatever_is_written_is_upgraded_or_refused(written: dict[str, Any]) -> None:
    try:
        assert "behaviors" in upgrade(written, curricula={}, samplers={})
    except TrainerConfigError as error:
        assert str(error)


@pytest.mark.slow
def test_it_runs_as_a_module() -> None:
    Path("old.yaml").write_text("A: {trainer: ppo}")
    command = [sys.executable, "-m", "mlagents.trainers.upgrade_config", "old.yaml", "new.yaml"]
    assert "Wrote new.yaml" in subprocess.run(command, capture_output=True, text=True).stdout
