"""The JSON schema that editors read: it accepts what the loader accepts, and finds mistakes."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.settings.load import dump_configuration, load_run_options
from mlagents.trainers.settings.reading import read_configuration
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.schema import configuration_schema
from mlagents.trainers.settings.typed import CommandLine

CONFIGS = sorted((Path(__file__).parents[2] / "config").glob("*/*.yaml"))


@functools.cache
def validator() -> Any:
    return pytest.importorskip("jsonschema").Draft202012Validator(configuration_schema())


def problems(written: Any) -> list[str]:
    """Return the paths at which `written` breaks the schema."""
    return sorted({".".join(map(str, error.path)) for error in validator().iter_errors(written)})


def test_it_is_a_schema() -> None:
    validator().check_schema(configuration_schema())


def test_every_key_says_what_it_means() -> None:
    schema = configuration_schema()
    for model in (schema, *schema["$defs"].values()):
        assert model["additionalProperties"] is False
        assert all("description" in rules for rules in model["properties"].values())
    assert list(schema["properties"]) == list(RunOptions.model_fields)


def test_every_reference_leads_somewhere() -> None:
    schema = configuration_schema()
    text = json.dumps(schema)
    names = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert names and names <= schema["$defs"].keys()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_configuration_follows_it_as_written_and_as_dumped(path: Path) -> None:
    assert problems(read_configuration(path)) == []
    dumped = dump_configuration(load_run_options(CommandLine(path, {})))
    assert problems(yaml.safe_load(dumped)) == []


@pytest.mark.parametrize(
    "text",
    [
        "behaviors: {A: {max_steps: 5.0e5, trainer_type: ppo, hyperparameters: {beta: 1e-4}}}",
        "behaviors: {A: {max_steps: 1e6, keep_checkpoints: ' 7 ', summary_freq: '1_000'}}",
        "behaviors: {A: {threaded: 'false', even_checkpoints: off, self_play: {}}}",
        "behaviors: {A: {self_play: null, network_settings: {memory: {}}}}",
        "checkpoint_settings: {run_id: 7, resume: 0}",
        "env_settings: {env_args: [-x, 1]}",
        "environment_parameters: {a: 1, b: 2e-1, c: .5}",
        "environment_parameters: {a: {sampler_type: uniform, sampler_parameters: {min_value: 0}}}",
        "environment_parameters: {a: {curriculum: [{name: 1, value: 2e-3}]}}",
        "environment_parameters: null\ndefault_settings: null",
        "default_settings: {trainer_type: sac}\nbehaviors: {A: {hyperparameters: {tau: 1e-2}}}",
        "default_settings: {reward_signals: {gail: {demo_path: a}}}\n"
        "behaviors: {A: {reward_signals: {gail: {gamma: 0.5}}}}",
    ],
)
def test_what_loads_follows_it(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    load_run_options(CommandLine(file, {}))
    assert problems(read_configuration(file)) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("behaviours: {}", ""),
        ("behaviors: {A: {max_step: 1}}", "behaviors.A"),
        ("behaviors: {A: {max_steps: many}}", "behaviors.A.max_steps"),
        ("behaviors: {A: {max_steps: 0}}", "behaviors.A.max_steps"),
        ("behaviors: {A: {trainer_type: dqn}}", "behaviors.A.trainer_type"),
        (
            "behaviors: {A: {trainer_type: sac, hyperparameters: {lambd: 0.9}}}",
            "behaviors.A.hyperparameters",
        ),
        ("behaviors: {A: {reward_signals: {extrinsik: {}}}}", "behaviors.A.reward_signals"),
        (
            "behaviors: {A: {reward_signals: {rnd: {demo_path: a}}}}",
            "behaviors.A.reward_signals.rnd",
        ),
        ("behaviors: {A: {threaded: perhaps}}", "behaviors.A.threaded"),
        ("environment_parameters: {p: fast}", "environment_parameters"),
        (
            "environment_parameters: {p: {sampler_type: uniform, sampler_parameters: {mean: 1}}}",
            "environment_parameters",
        ),
        ("environment_parameters: {p: {curriculum: [{value: 1}]}}", "environment_parameters"),
        ("env_settings: null", "env_settings"),
        ("checkpoint_settings: {load_model: true}", "checkpoint_settings"),
    ],
)
def test_mistakes_and_old_spellings_are_found(text: str, path: str) -> None:
    assert problems(yaml.safe_load(text)) == [path]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "batch_size": st.integers(1, 10**9) | st.integers(1, 10**9).map(str),
            "learning_rate": st.floats(1e-300, 1.0) | st.floats(1e-300, 1.0).map(repr),
            "shared_critic": st.booleans() | st.sampled_from(["yes", "OFF", "True", 1]),
        },
    )
)
def test_numbers_and_truth_values_in_every_notation_follow_it(numbers: dict[str, Any]) -> None:
    behavior = {"trainer_type": "ppo", "hyperparameters": numbers}
    written = {"behaviors": {"A": behavior}}
    RunOptions.model_validate(written)
    assert problems(written) == []


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line(["--print-schema"])
    assert caught.value.code == 0
    assert json.loads(capsys.readouterr().out) == configuration_schema()
