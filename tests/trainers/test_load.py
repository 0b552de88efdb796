"""From files and command lines to settings, and back; every way in which that can fail."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings import reading
from mlagents.trainers.settings.behavior import BehaviorSettings, CuriositySettings
from mlagents.trainers.settings.hyperparameters import (
    HyperparameterSettings,
    PPOSettings,
    SACSettings,
    with_trainer_types,
)
from mlagents.trainers.settings.load import dump_configuration, load_run_options
from mlagents.trainers.settings.reading import read_configuration
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.base_env import behavior_name_problem
from mlagents_envs.folder_names import DOWNLOADED


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def load(file: Path, text: str, *flags: str) -> RunOptions:
    file.write_text(text, encoding="utf-8")
    return load_run_options(parse_command_line([str(file), *flags]))


def problems(file: Path, text: str, *flags: str) -> list[str]:
    """Return the lines of the error, with the file's name put in short."""
    with pytest.raises(TrainerConfigError) as caught:
        load(file, text, *flags)
    return str(caught.value).replace(str(file), "FILE").splitlines()


# Precedence


def test_a_typed_reward_ends_the_training_of_every_behavior(file: Path) -> None:
    text = "default_settings: {}\nbehaviors: {A: {stop_at_reward: 1}, B: {}}\n"
    assert load(file, text).behaviors["A"].stop_at_reward == 1.0
    options = load(file, text, "--stop-at-reward", "-2.5")
    rewards = [each.stop_at_reward for each in options.behaviors.values()]
    assert [*rewards, options.behavior_settings("C").stop_at_reward] == [-2.5] * 3


def test_a_reward_to_stop_at_is_a_number_that_can_be_reached(file: Path) -> None:
    for written in ("inf", ".nan", "true"):
        (line,) = problems(file, f"behaviors: {{A: {{stop_at_reward: {written}}}}}")
        assert line.startswith("FILE: behaviors.A.stop_at_reward: ")
    cloned = "{trainer_type: bc, behavioral_cloning: {demo_path: a.demo}, stop_at_reward: 1}"
    assert problems(file, f"behaviors: {{A: {cloned}}}") == [
        "FILE: behaviors.A.stop_at_reward: does not apply to trainer_type bc, which learns without "
        "rewards"
    ]


def test_flags_over_file_over_defaults(file: Path) -> None:
    text = "behaviors: {B: {}}\nenv_settings: {seed: 3, num_areas: 4}\n"
    options = load(file, text, "--seed", "7", "--run-id", "x", "--env-args", "-a", "-b")
    assert options.env_settings.seed == 7
    assert options.env_settings.num_areas == 4
    assert options.env_settings.timeout_wait == 60
    assert options.env_settings.env_args == ("-a", "-b")
    assert options.checkpoint_settings.run_id == "x"


def test_a_flag_with_its_default_overrides_the_file(file: Path) -> None:
    options = load(file, "behaviors: {}\nengine_settings: {width: 3}\n", "--width", "84")
    assert options.engine_settings.width == 84


def test_nothing_typed_leaves_true_in_the_file(file: Path) -> None:
    assert load(file, "debug: true\ncheckpoint_settings: {force: yes}\n").debug is True


RESUME, INITIALIZE = "resume: true", "initialize_from: old"


@pytest.mark.parametrize(
    ("written", "flags", "resume", "initialize_from"),
    [
        ([], ["--resume", "--initialize-from", "new"], True, None),
        ([INITIALIZE], ["--resume"], True, None),
        ([RESUME], ["--initialize-from", "new"], False, "new"),
        ([RESUME, INITIALIZE], [], True, None),
        ([RESUME, INITIALIZE], ["--initialize-from", "new"], False, "new"),
        ([RESUME, INITIALIZE], ["--resume"], True, None),
    ],
)
def test_resume_or_initialize(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    written: list[str],
    flags: list[str],
    resume: bool,
    initialize_from: str | None,
) -> None:
    text = f"behaviors: {{}}\ncheckpoint_settings: {{{', '.join(written)}}}\n"
    checkpoints = load(file, text, *flags).checkpoint_settings
    assert (checkpoints.resume, checkpoints.initialize_from) == (resume, initialize_from)
    assert "is ignored" in capsys.readouterr().out


def test_no_file_means_the_defaults_and_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    options = load_run_options(parse_command_line(["--seed", "1"]))
    assert options.behavior_settings("Anything") == BehaviorSettings()
    assert "No configuration file" in capsys.readouterr().out


def test_deterministic_reaches_every_behavior(file: Path) -> None:
    text = "default_settings: {}\nbehaviors: {A: {}, B: {network_settings: {hidden_units: 3}}}\n"
    options = load(file, text, "--deterministic")
    for name in ("A", "B", "found later"):
        assert options.behavior_settings(name).network_settings.deterministic
    assert options.behaviors["B"].network_settings.hidden_units == 3
    without_file = load_run_options(parse_command_line(["--deterministic"]))
    assert without_file.behavior_settings("A").network_settings.deterministic


def test_loading_leaves_the_command_line_as_it_was(file: Path) -> None:
    file.write_text("env_settings: {num_areas: 2}\n")
    command_line = parse_command_line([str(file), "--seed", "1", "--deterministic"])
    before = copy.deepcopy(command_line)
    assert load_run_options(command_line) == load_run_options(command_line)
    assert command_line == before


# default_settings


def test_behaviors_take_what_they_do_not_write(file: Path) -> None:
    options = load(
        file,
        """
        default_settings:
          trainer_type: ppo
          hyperparameters: {batch_size: 8, beta: 1e-4}
          reward_signals: {extrinsic: {gamma: 0.9, strength: 2}}
          max_steps: 10
        behaviors:
          A:
            trainer_type: ppo
            hyperparameters: {beta: 1e-2}
            reward_signals: {extrinsic: {gamma: 0.8}, curiosity: {}}
          B: {}
        """,
    )
    a, b = options.behaviors["A"], options.behaviors["B"]
    assert isinstance(a.hyperparameters, PPOSettings)
    assert (a.hyperparameters.batch_size, a.hyperparameters.beta, a.max_steps) == (8, 1e-2, 10)
    assert list(a.reward_signals) == ["extrinsic", "curiosity"]
    assert a.reward_signals["extrinsic"].gamma == 0.8
    assert a.reward_signals["extrinsic"].strength == 2.0
    assert b == options.default_settings


@pytest.mark.parametrize(
    ("defaults", "signals"),
    [
        ("", ["curiosity"]),
        ("default_settings: null\n", ["curiosity"]),
        ("default_settings: {}\n", ["extrinsic", "curiosity"]),
        ("default_settings: {max_steps: 5}\n", ["extrinsic", "curiosity"]),
        ("default_settings: {reward_signals: {rnd: {}}}\n", ["curiosity", "rnd"]),
    ],
)
def test_reward_signals_of_the_defaults_stay(file: Path, defaults: str, signals: list[str]) -> None:
    text = f"{defaults}behaviors: {{A: {{reward_signals: {{curiosity: {{}}}}}}}}\n"
    assert list(load(file, text).behaviors["A"].reward_signals) == signals


def test_another_trainer_does_not_take_foreign_hyperparameters(file: Path) -> None:
    options = load(
        file,
        """
        default_settings: {trainer_type: ppo, hyperparameters: {batch_size: 32, lambd: 0.9}}
        behaviors: {A: {trainer_type: sac, hyperparameters: {tau: 0.1}}}
        """,
    )
    sac = options.behaviors["A"].hyperparameters
    assert isinstance(sac, SACSettings)
    assert (sac.batch_size, sac.tau, sac.buffer_size) == (32, 0.1, 50000)


def test_schedules_follow_what_was_written_in_either_place(file: Path) -> None:
    options = load(
        file,
        """
        default_settings:
          trainer_type: ppo
          hyperparameters: {learning_rate_schedule: constant}
        behaviors:
          A: {trainer_type: ppo, hyperparameters: {epsilon_schedule: linear}}
          B: {trainer_type: ppo, hyperparameters: {learning_rate_schedule: linear}}
        """,
    )
    a, b = options.behaviors["A"].hyperparameters, options.behaviors["B"].hyperparameters
    assert isinstance(a, PPOSettings) and isinstance(b, PPOSettings)
    assert (a.beta_schedule, a.epsilon_schedule) == ("constant", "linear")
    assert (b.beta_schedule, b.epsilon_schedule) == ("linear", "linear")


def test_null_switches_off_what_the_default_switched_on(file: Path) -> None:
    text = "default_settings: {self_play: {}}\nbehaviors: {A: {self_play: null}, B: {}}\n"
    options = load(file, text)
    assert options.behaviors["A"].self_play is None
    assert options.behaviors["B"].self_play is not None


# Old spellings


def test_old_spellings_are_understood_with_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = load(
        file,
        """
        behaviors:
          A:
            framework: tensorflow
            network_settings: {conditioning_type: none}
            reward_signals:
              curiosity: {encoding_size: 33}
              rnd:
                encoding_size: 33
                network_settings: {hidden_units: 44, memory: {}, conditioning_type: hyper}
        checkpoint_settings: {train_model: true}
        """,
        "--torch",
    )
    signals = options.behaviors["A"].reward_signals
    assert isinstance(signals["curiosity"], CuriositySettings)
    assert signals["curiosity"].network_settings.hidden_units == 33
    assert signals["rnd"].network_settings.hidden_units == 44
    assert signals["rnd"].network_settings.memory is None
    assert options.behaviors["A"].network_settings.goal_conditioning_type == "none"
    warned = capsys.readouterr().out
    for spelling in (
        "behaviors.A.framework",
        "behaviors.A.reward_signals.curiosity.encoding_size",
        "behaviors.A.reward_signals.rnd.network_settings.memory",
        "behaviors.A.network_settings.conditioning_type",
        "behaviors.A.reward_signals.rnd.network_settings.conditioning_type",
        "checkpoint_settings.train_model",
        "--torch",
    ):
        assert spelling in warned


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("behaviors: {}", ["--load"]),
        ("{behaviors: {}, checkpoint_settings: {load_model: true}}", []),
        ("behaviors: {}", ["--load", "--initialize-from", "other"]),
    ],
)
def test_load_resumes_a_run_or_starts_it(
    file: Path, capsys: pytest.CaptureFixture[str], text: str, flags: list[str]
) -> None:
    results = file.parent / "results"
    flags = [*flags, "--run-id", "mine", "--results-dir", str(results)]
    (results / "mine" / "run_logs").mkdir(parents=True)  # all that a run that failed early leaves
    started = load(file, text, *flags).checkpoint_settings
    assert not started.resume
    assert started.initialize_from == ("other" if "other" in flags else None)
    said = capsys.readouterr().out
    assert "deprecated" in said and f"There is no run to load in {results / 'mine'}" in said

    (results / "mine" / "run_logs" / "training_status.json").write_text("{}")
    resumed = load(file, text, *flags).checkpoint_settings
    assert resumed.resume and resumed.initialize_from is None


def test_old_keys_that_ask_for_nothing_pass_in_silence(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = load(
        file,
        """
        default_settings: null
        behaviors: {A: {reward_signals: {curiosity: {encoding_size: null}}}}
        environment_parameters: null
        checkpoint_settings: {load_model: false, train_model: 'false'}
        """,
    )
    assert not options.checkpoint_settings.resume
    assert capsys.readouterr().out == ""


def test_criteria_of_the_last_lesson_are_warned_of(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(
        file,
        """
        behaviors: {A: {}}
        environment_parameters:
          p: {curriculum: [{name: a, value: 1, completion_criteria: {behavior: A}}]}
        """,
    )
    assert "environment_parameters.p" in capsys.readouterr().out


# What cannot be loaded


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "FILE: is empty; it needs at least `behaviors:`"),
        (b"# nothing\n", "FILE: is empty; it needs at least `behaviors:`"),
        (b"\xff\xfe\xfa", "FILE: is not UTF-8 text (byte 0)"),
        (b"behaviors:\n\tA: {}\n", "FILE: line 2, column 1: found character"),
        (b"behaviors: [\n", "FILE: line 2, column 1: "),
        (b"a: 1\n---\nb: 2\n", "FILE: line 2, column 1: "),
        (b"a: &x 1\nb: *y\n", "FILE: line 2, column 4: found undefined alias"),
        (b"a: !!python/object:os.system {}\n", "FILE: line 1, column 4: contains a Python object"),
        (b"a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "FILE: line 5, column 3: the key 'c' appears"),
        (
            b"{true: 1, 'True': 2}\n",
            "FILE: line 1, column 11: the key 'True' appears a second time",
        ),
        (b"b: {16: 1, 0x10: 2}\n", "FILE: line 1, column 12: the key '16' appears a second time"),
        (b"{~: 1, None: 2}\n", "FILE: line 1, column 8: the key 'None' appears a second time"),
        (b"a: {{ b }}\n", "FILE: line 1, column 5: a key must be text, got a mapping. Quote it"),
        (b"? [a, b]\n: 1\n", "FILE: line 1, column 3: a key must be text, got a list. Quote it"),
        (b"a: &k [1]\n*k : 1\n", "FILE: line 1, column 4: a key must be text, got a list"),
        (b"{!!int x: 1}\n", "FILE: is not YAML: "),
        (b"a: \x00\n", "FILE: is not YAML: "),
        (b"a: !!int x\n", "FILE: is not YAML: "),
        (
            b"behaviors:\n  A:\n    trainer_type: !!python/object/apply:mlagents.trainers.settings."
            b"TrainerType\n    - ppo\n",
            "FILE: line 3, column 19: contains a Python object (!!python/...), as old releases of ",
        ),
        (
            b"!!python/object:mlagents.trainers.settings.RunOptions\nbehaviors: {}\n",
            "FILE: line 1, column 1: contains a Python object (!!python/...), as old releases of ",
        ),
        (b"[1, 2]\n", "FILE: must be a mapping with some of the keys default_settings, "),
        (b"words\n", "FILE: must be a mapping with some of the keys default_settings, "),
        (b"[" * 5000, "FILE: line 1, column 101: is nested too deeply"),
        (
            b"behaviors: {A: &a {self_play: *a}}\n",
            "FILE: line 1, column 31: the alias *a refers to itself",
        ),
    ],
)
def test_a_file_that_is_no_configuration(file: Path, content: bytes, says: str) -> None:
    file.write_bytes(content)
    with pytest.raises(TrainerConfigError) as caught:
        load_run_options(CommandLine(file, {}))
    assert str(caught.value).replace(str(file), "FILE").startswith(says)


class LoaderWithoutLibyaml(reading._Strict, yaml.SafeLoader):
    """What there is where libyaml is missing."""


def bomb(levels: int, *, as_merge: bool = False) -> str:
    """Ten to the power of `levels` values in a few lines."""
    lines = ["a0: &a0 {x: 1}" if as_merge else "a0: &a0 [x]"]
    for level in range(1, levels + 1):
        many = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{many}]}}" if as_merge else f"[{many}]"))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (bomb(9), "more than 50000 keys and values, aliases counted in full"),
        (bomb(9, as_merge=True), "more than 50000 keys and values, aliases counted in full"),
        (f"- {bomb(3)[4:]}\n", "FILE: line"),
        ("behaviors:\n" + "".join(f"  b{i}: {{}}\n" for i in range(60_000)), "more than 50000"),
        ("behaviors:\n" + "".join(f"  b{i}: {{}}\n" for i in range(1001)), "at most 1000 are"),
        ("a: " + "x" * 2**20, "is larger than 1048576 bytes"),
        ("a: " + "[" * 200_000, "nested too deeply"),
        ("a: " + "{b: " * 200_000, "nested too deeply"),
        (
            "default_settings: {x: ["
            + "1, " * 600
            + "]}\nbehaviors:\n"
            + "".join(f"  b{i}: {{}}\n" for i in range(900)),
            "default_settings.x: unknown key",
        ),
    ],
    ids=[
        "aliases",
        "merges",
        "broken",
        "values",
        "behaviors",
        "bytes",
        "lists",
        "maps",
        "defaults",
    ],
)
@pytest.mark.parametrize("loader", [reading._Loader, LoaderWithoutLibyaml])
def test_what_would_fill_the_memory_is_refused(
    file: Path,
    text: str,
    says: str,
    loader: type[yaml.SafeLoader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_Loader", loader)
    file.write_text(text)
    with pytest.raises(TrainerConfigError) as caught:
        load_run_options(CommandLine(file, {}))
    error = str(caught.value).replace(str(file), "FILE")
    assert error.startswith("FILE:") and says in error
    assert len(error) < 500


def test_a_missing_file_names_the_nearest_one(file: Path) -> None:
    file.write_text("behaviors: {}\n")
    with pytest.raises(TrainerConfigError, match=r"cannot be read.*did you mean 'config.yaml'\?"):
        read_configuration(file.with_name("confg.yaml"))
    with pytest.raises(TrainerConfigError, match="cannot be read"):
        read_configuration(file.parent)


def test_merge_keys_byte_order_marks_and_dates_as_names_are_fine(file: Path) -> None:
    options = load(
        file,
        "\ufeffbehaviors:\n"
        "  A: {self_play: &s {window: 3, save_steps: 2}}\n"
        "  B: {self_play: {<<: *s, window: 4}}\n"
        "checkpoint_settings: {run_id: 2030-01-31}\n",
    )
    assert options.behaviors["B"].self_play is not None
    assert options.behaviors["B"].self_play.window == 4
    assert options.behaviors["B"].self_play.save_steps == 2
    assert options.checkpoint_settings.run_id == "2030-01-31"


MISTAKES: dict[str, list[tuple[str, str]]] = {
    "unknown key at the top": [
        ("behaviours: {}", "behaviours: unknown key; did you mean 'behaviors'? Allowed: default"),
    ],
    "behavior at the top": [
        (
            "3DBall: {trainer_type: ppo}",
            "3DBall: unknown key; if it is a behavior, put it below `behaviors:`",
        ),
    ],
    "file of before 0.18": [
        (
            "default: {trainer: ppo, batch_size: 10}\nA: {beta: 1}",
            "has the form used before ML-Agents 0.18 (default). Convert it with: ",
        ),
        ("A: {trainer: ppo}", "has the form used before ML-Agents 0.18 (A). "),
        (
            "behaviors: {A: {trainer: sac}}",
            "has the form used before ML-Agents 0.18 (behaviors.A). ",
        ),
        ("parameter_randomization: {}", "has the form used before ML-Agents 0.18 (parameter_rando"),
        (
            "default: {trainer_type: ppo}",
            "default: unknown key; did you mean 'default_settings'?",
        ),
        (
            "behaviors: {A: {trainer: ppo, network_settings: {}}}",
            "behaviors.A.trainer: unknown key; did you mean 'trainer_type'?",
        ),
    ],
    "unknown key in a section": [
        ("env_settings: {sed: 1}", "env_settings.sed: unknown key; did you mean 'seed'? Allowed: "),
        ("engine_settings: {widht: 1}", "engine_settings.widht: unknown key; did you mean 'width'"),
        ("checkpoint_settings: {runid: x}", "checkpoint_settings.runid: unknown key; did you mean"),
        ("torch_settings: {devise: cpu}", "torch_settings.devise: unknown key; did you mean 'dev"),
    ],
    "unknown key of a behavior": [
        (
            "behaviors: {A: {max_step: 1}}",
            "behaviors.A.max_step: unknown key; did you mean 'max_steps'?",
        ),
        (
            "default_settings: {sumary_freq: 1}",
            "default_settings.sumary_freq: unknown key; did you mean 'summary_freq'?",
        ),
        (
            "behaviors: {A: {trainer_type: sac, hyperparameters: {lambd: 1}}}",
            "behaviors.A.hyperparameters.lambd: unknown key",
        ),
        (
            "behaviors: {A: {network_settings: {hidden_unit: 1}}}",
            "behaviors.A.network_settings.hidden_unit: unknown key; did you mean 'hidden_units'?",
        ),
        (
            "behaviors: {A: {network_settings: {memory: {size: 2}}}}",
            "behaviors.A.network_settings.memory.size: unknown key",
        ),
        ("behaviors: {A: {self_play: {windows: 2}}}", "behaviors.A.self_play.windows: unknown key"),
        (
            "behaviors: {A: {self_play: {opponent: chase}}}",
            "behaviors.A.self_play.opponent: must be module:function, such as my_bots:chase_ball",
        ),
        (
            "behaviors: {A: {trainer_type: bc, behavioral_cloning: {demo_path: a}, self_play: {}}}",
            "behaviors.A.self_play: does not apply to trainer_type bc",
        ),
        (
            "behaviors: {A: {behavioral_cloning: {demo_path: a, step: 2}}}",
            "behaviors.A.behavioral_cloning.step: unknown key; did you mean 'steps'?",
        ),
        (
            "behaviors: {A: {reward_signals: {extrinsic: {gama: 2}}}}",
            "behaviors.A.reward_signals.extrinsic.gama: unknown key; did you mean 'gamma'?",
        ),
        (
            "behaviors: {A: {reward_signals: {rnd: {network_settings: {layers: 2}}}}}",
            "behaviors.A.reward_signals.rnd.network_settings.layers: unknown key",
        ),
    ],
    "unknown key of an environment parameter": [
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1, criteria: {}}]}}",
            "environment_parameters.p.curriculum[0].criteria: unknown key",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1}], seed: 1}}",
            "environment_parameters.p.seed: unknown key. Allowed: curriculum",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1, completion_criteria: "
            "{behavior: B, treshold: 1}}]}}",
            "environment_parameters.p.curriculum[0].completion_criteria.treshold: unknown key; did "
            "you mean 'threshold'?",
        ),
        (
            "environment_parameters: {p: {sampler_type: uniform, sampler_parameters: {min: 1}}}",
            "environment_parameters.p.sampler_parameters.min: unknown key",
        ),
    ],
    "section that is no mapping": [
        (
            "behaviors: null",
            "behaviors: must be a mapping of keys to values, got null; write {}",
        ),
        ("behaviors: [A]", "behaviors: must be a mapping of keys to values, got ['A']"),
        (
            "behaviors: {A: null}",
            "behaviors.A: must be a mapping of keys to values, got null; write {}",
        ),
        ("behaviors: {A: 3}", "behaviors.A: must be a mapping of keys to values, got 3"),
        (
            "env_settings: null",
            "env_settings: must be a mapping of keys to values, got null; write {}",
        ),
        ("engine_settings: 3", "engine_settings: must be a mapping of keys to values, got 3"),
        ("environment_parameters: [1]", "environment_parameters: must be a mapping"),
        (
            "behaviors: {A: {network_settings: null}}",
            "behaviors.A.network_settings: must be a mapping of keys to values, got null; write {}",
        ),
        (
            "behaviors: {A: {trainer_type: ppo, hyperparameters: null}}",
            "behaviors.A.hyperparameters: must be a mapping of keys to values, got null; write {}",
        ),
        (
            "behaviors: {A: {reward_signals: {extrinsic: 1}}}",
            "behaviors.A.reward_signals.extrinsic: must be a mapping of keys to values, got 1",
        ),
    ],
    "hyperparameters without trainer_type": [
        (
            "behaviors: {A: {hyperparameters: {batch_size: 2}}}",
            "behaviors.A.hyperparameters: needs trainer_type ('ppo', 'sac', 'poca' or 'bc') in ",
        ),
    ],
    "unknown trainer_type": [
        (
            "behaviors: {A: {trainer_type: dqn, hyperparameters: {x: 1}}}",
            "behaviors.A.trainer_type: must be 'ppo', 'sac', 'poca' or 'bc', got 'dqn'; no "
            "installed plug-in provides it",
        ),
        (
            "behaviors: {A: {trainer_type: PPO}}",
            "behaviors.A.trainer_type: must be 'ppo', 'sac', 'poca' or 'bc', got 'PPO'; did you "
            "mean 'ppo'?",
        ),
        ("behaviors: {A: {trainer_type: [ppo]}}", "behaviors.A.trainer_type: must be text, got ["),
    ],
    "unknown signal, encoder, schedule, conditioning, sampler or measure": [
        (
            "behaviors: {A: {reward_signals: {extrinsik: {}}}}",
            "behaviors.A.reward_signals.extrinsik: unknown reward signal; did you mean 'extrinsic'",
        ),
        (
            "behaviors: {A: {network_settings: {vis_encode_type: resnett}}}",
            "behaviors.A.network_settings.vis_encode_type: must be 'simple', 'nature_cnn', "
            "'resnet', 'match3' or 'fully_connected', got 'resnett'; did you mean 'resnet'?",
        ),
        (
            "behaviors: {A: {trainer_type: ppo, hyperparameters: {beta_schedule: cosine}}}",
            "behaviors.A.hyperparameters.beta_schedule: must be 'linear' or 'constant', got 'cos",
        ),
        (
            "behaviors: {A: {network_settings: {goal_conditioning_type: Hyper}}}",
            "behaviors.A.network_settings.goal_conditioning_type: must be 'hyper' or 'none', got "
            "'Hyper'; did you mean 'hyper'?",
        ),
        (
            "environment_parameters: {p: {sampler_type: normal, sampler_parameters: {}}}",
            "environment_parameters.p.sampler_type: must be 'constant', 'uniform',",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1, completion_criteria: "
            "{behavior: B, measure: speed}}]}}",
            "environment_parameters.p.curriculum[0].completion_criteria.measure: must be 'reward'",
        ),
    ],
    "reward_signals that are no mapping, or none": [
        (
            "behaviors: {A: {reward_signals: [extrinsic]}}",
            "behaviors.A.reward_signals: must be a mapping",
        ),
    ],
    "required key that is missing": [
        (
            "behaviors: {A: {reward_signals: {gail: {}}}}",
            "behaviors.A.reward_signals.gail.demo_path: is required",
        ),
        (
            "behaviors: {A: {behavioral_cloning: {}}}",
            "behaviors.A.behavioral_cloning.demo_path: is required",
        ),
        (
            "environment_parameters: {p: {curriculum: [{value: 1}]}}",
            "environment_parameters.p.curriculum[0].name: is required",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a}]}}",
            "environment_parameters.p.curriculum[0].value: is required",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1, completion_criteria: "
            "{}}]}}",
            "environment_parameters.p.curriculum[0].completion_criteria.behavior: is required",
        ),
    ],
    "memory_size not positive or odd": [
        (
            "behaviors: {A: {network_settings: {memory: {memory_size: 0}}}}",
            "behaviors.A.network_settings.memory.memory_size: must be greater than or equal to 2, ",
        ),
        (
            "behaviors: {A: {network_settings: {memory: {memory_size: 3}}}}",
            "behaviors.A.network_settings.memory.memory_size: must be a multiple of 2, got 3",
        ),
    ],
    "sequence_length above batch_size": [
        (
            "behaviors: {A: {trainer_type: ppo, hyperparameters: {batch_size: 8}, "
            "network_settings: {memory: {}}}}",
            "behaviors.A.network_settings.memory.sequence_length: must be at most hyperparameters."
            "batch_size (8), got 64",
        ),
    ],
    "number of environments or areas": [
        ("env_settings: {num_envs: 2}", "env_settings.num_envs: needs env_path (--env)"),
        ("env_settings: {num_envs: 0}", "env_settings.num_envs: must be greater than or equal to"),
        ("env_settings: {num_envs: -2}", "env_settings.num_envs: must be greater than or equal to"),
        ("env_settings: {num_areas: 0}", "env_settings.num_areas: must be greater than or equal"),
    ],
    "replay buffer that no batch can be drawn from": [
        (
            "behaviors: {A: {trainer_type: sac, hyperparameters: {batch_size: 64, buffer_size: "
            "64}}}",
            "behaviors.A.hyperparameters.buffer_size: must be above batch_size (64), so that "
            "experience is reused, got 64",
        ),
        (
            "default_settings: {trainer_type: sac, hyperparameters: {batch_size: 60000}}",
            "default_settings.hyperparameters.buffer_size: must be above batch_size (60000), so "
            "that experience is reused, got 50000",
        ),
    ],
    "even_checkpoints of no checkpoints": [
        (
            "behaviors: {A: {even_checkpoints: true, keep_checkpoints: 0}}",
            "behaviors.A.keep_checkpoints: must be 1 to max_steps (500000) with even_checkpoints, "
            "got 0",
        ),
    ],
    "environment parameter that makes no sense": [
        (
            "environment_parameters: {p: {sampler_type: uniform, sampler_parameters: "
            "{min_value: 2, max_value: 1}}}",
            "environment_parameters.p.sampler_parameters.min_value: must be at most max_value "
            "(1.0), got 2.0",
        ),
        (
            "environment_parameters: {p: {sampler_type: multirangeuniform, sampler_parameters: "
            "{intervals: [[0, 1], [3, 2]]}}}",
            "environment_parameters.p.sampler_parameters.intervals[1]: must ascend, got [3.0, 2.0]",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1, completion_criteria: "
            "{behavior: B, measure: progress, threshold: 1.5}}]}}",
            "environment_parameters.p.curriculum[0].completion_criteria.threshold: must be from 0 "
            "to 1 when measure is 'progress', got 1.5",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: 1}, {name: b, value: 2}]}}",
            "environment_parameters.p.curriculum[0].completion_criteria: is required, except for",
        ),
        (
            "environment_parameters: {p: {curriculum: []}}",
            "environment_parameters.p.curriculum: needs at least one lesson",
        ),
        (
            "environment_parameters: {p: {sampler_parameters: {}}}",
            "environment_parameters.p.sampler_type: is required",
        ),
        (
            "environment_parameters: {p: {sampler_type: gaussian}}",
            "environment_parameters.p.sampler_parameters: is required",
        ),
        (
            "environment_parameters: {p: many}",
            "environment_parameters.p: must be a number, a sampler (sampler_type, sampler_p",
        ),
        (
            "behaviors: {Jump: {}}\nenvironment_parameters: {p: {curriculum: [{name: a, value: 1, "
            "completion_criteria: {behavior: Jmp}}, {name: b, value: 2}]}}",
            "environment_parameters.p.curriculum[0].completion_criteria.behavior: no behavior of "
            "this name is configured, got 'Jmp'; did you mean 'Jump'?",
        ),
    ],
    "list that is none": [
        (
            "env_settings: {env_args: --foo}",
            "env_settings.env_args: must be a list of texts, as in [--level, '3'], got '--foo'",
        ),
        (
            "environment_parameters: {p: {curriculum: }}",
            "environment_parameters.p.curriculum: must be a list of lessons, got null",
        ),
        (
            "environment_parameters: {p: {curriculum: {name: a, value: 1}}}",
            "environment_parameters.p.curriculum: must be a list of lessons, got {",
        ),
        (
            "environment_parameters: {p: {sampler_type: multirangeuniform, sampler_parameters: "
            "{intervals: 2}}}",
            "environment_parameters.p.sampler_parameters.intervals: must be a list of pairs "
            "[lower, upper], got 2",
        ),
        (
            "environment_parameters: {p: {sampler_type: multirangeuniform, sampler_parameters: "
            "{intervals: [[0, 1], 2]}}}",
            "environment_parameters.p.sampler_parameters.intervals[1]: must be a pair [lower, "
            "upper], got 2",
        ),
        (
            "environment_parameters: {p: {curriculum: [L0: {value: 1}]}}",
            "environment_parameters.p.curriculum[0]: write `name: L0` next to `value`, instead "
            "of using the name as a key",
        ),
    ],
    "text that is none": [
        ("checkpoint_settings: {run_id: ''}", "checkpoint_settings.run_id: must not be empty, got"),
        (
            "checkpoint_settings: {run_id: yes}",
            "checkpoint_settings.run_id: must be text, got true, which YAML also reads from yes, "
            "no, on and off; put it in quotes",
        ),
        ("env_settings: {env_args: [true]}", "env_settings.env_args[0]: must be text, got true, "),
        ("checkpoint_settings: {run_id: }", "checkpoint_settings.run_id: must be text, got null"),
    ],
    "value of another kind": [
        (
            "environment_parameters: {p: }",
            "environment_parameters.p: must be a number, a sampler (sampler_type, "
            "sampler_parameters) or a curriculum, got null",
        ),
        (
            "environment_parameters: {p: {curriculum: [{name: a, value: many}]}}",
            "environment_parameters.p.curriculum[0].value: must be a number or a sampler "
            "(sampler_type, sampler_parameters), got 'many'",
        ),
        ("behaviors: {A: {max_steps: }}", "behaviors.A.max_steps: must be a whole number, got nu"),
        (
            "behaviors: {A: {max_steps: many}}",
            "behaviors.A.max_steps: must be a whole number, got 'many'",
        ),
        (
            "behaviors: {A: {trainer_type: ppo, hyperparameters: {learning_rate: fast}}}",
            "behaviors.A.hyperparameters.learning_rate: must be a number, got 'fast'",
        ),
        ("debug: perhaps", "debug: must be true or false, got 'perhaps'"),
        ("checkpoint_settings: {run_id: [1]}", "checkpoint_settings.run_id: must be text, got ["),
    ],
}
"""Every mistake that loading finds. Each has pairs of a configuration and the text with which its
error line begins, after the name of the file."""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(text, line, id=f"{mistake}-{number}")
        for mistake, cases in MISTAKES.items()
        for number, (text, line) in enumerate(cases)
    ],
)
def test_every_mistake_is_one_line_with_its_path(file: Path, text: str, line: str) -> None:
    (found,) = problems(file, text)
    assert found.startswith(f"FILE: {line}")


@pytest.mark.parametrize("trainer_type", ["ppo", "poca"])
def test_a_batch_above_the_buffer_is_warned_of(
    file: Path, capsys: pytest.CaptureFixture[str], trainer_type: str
) -> None:
    sizes = "hyperparameters: {batch_size: 64, buffer_size: 63}"
    options = load(file, f"behaviors: {{A: {{trainer_type: {trainer_type}, {sizes}}}}}")
    assert options.behaviors["A"].hyperparameters.batch_size == 64
    assert "behaviors.A.hyperparameters: batch_size (64) is above buffer_size (63)" in (
        capsys.readouterr().out
    )


def test_samplers_have_their_seeds_as_soon_as_the_run_has_one(file: Path) -> None:
    text = "environment_parameters: {a: 1, b: {sampler_type: gaussian, sampler_parameters: {}}}"
    for flags, seeds in (([], [-1, -1]), (["--seed", "7"], [7, 8])):
        parameters = load(file, text, *flags).environment_parameters or {}
        assert [p.curriculum[0].value.sampler_parameters.seed for p in parameters.values()] == seeds


class PluginSettings(HyperparameterSettings):
    """Of an algorithm that a plug-in brings."""

    temperature: float = 1.0
    """How evenly it acts."""


def test_a_registered_trainer_type_has_its_own_hyperparameters(file: Path) -> None:
    text = "behaviors: {A: {trainer_type: mine, hyperparameters: {temperature: 2}}}"
    (line,) = problems(file, text)
    assert "must be 'ppo', 'sac', 'poca' or 'bc', got 'mine'" in line

    with with_trainer_types({"mine": PluginSettings}):
        options = load(file, text)
    found = options.behaviors["A"].hyperparameters
    assert isinstance(found, PluginSettings) and found.temperature == 2
    (line,) = problems(file, text)
    assert "got 'mine'" in line, "another run in this process does not know it"

    with (
        pytest.raises(ValueError, match="'ppo' is built in"),
        with_trainer_types({"ppo": PluginSettings}),
    ):
        pass
    with (
        pytest.raises(TypeError, match="derived from"),
        with_trainer_types(
            {"other": dict}  # type: ignore[dict-item]
        ),
    ):
        pass


def test_all_mistakes_are_reported_at_once(file: Path) -> None:
    text = """
    behaviors:
      3DBall:
        hyperparameters: {batch_size: 1}
        max_steps: 1.5
      Walker:
        trainer_type: sac
        hyperparameters: {tau: 7, lambda: 0.9}
        reward_signals: {gail: {}, extrinsic: {gamma: 2}}
    engine_settings: {width: wide}
    environment_parameters: {p: {}, q: {curriculum: []}}
    """
    assert [line.split(":")[1].strip() for line in problems(file, text)] == [
        "behaviors.3DBall.hyperparameters",
        "behaviors.3DBall.max_steps",
        "behaviors.Walker.hyperparameters.tau",
        "behaviors.Walker.hyperparameters.lambda",
        "behaviors.Walker.reward_signals.gail.demo_path",
        "behaviors.Walker.reward_signals.extrinsic.gamma",
        "engine_settings.width",
        "environment_parameters.p",
        "environment_parameters.q.curriculum",
    ]


def test_a_mistake_in_the_defaults_is_reported_there_alone(file: Path) -> None:
    text = "default_settings: {max_steps: -1}\nbehaviors: {A: {}, B: {time_horizon: 0}}\n"
    assert [line.split(":")[1].strip() for line in problems(file, text)] == [
        "default_settings.max_steps",
        "behaviors.B.time_horizon",
    ]


def test_what_was_typed_is_told_from_what_was_written(file: Path) -> None:
    text = "env_settings: {seed: -7, num_areas: 3}\n"
    assert problems(file, text, "--num-areas", "0") == [
        "command line: env_settings.num_areas: must be greater than or equal to 1, got 0",
        "FILE: env_settings.seed: must be greater than or equal to -1, got -7",
    ]
    with pytest.raises(TrainerConfigError, match=r"^command line: env_settings.num_envs: needs"):
        load_run_options(parse_command_line(["--num-envs", "2"]))


def test_a_flag_does_not_hide_a_section_that_is_none(file: Path) -> None:
    (line,) = problems(file, "env_settings:\n", "--seed", "1")
    assert line == (
        "FILE: env_settings: must be a mapping of keys to values, got null; write {} for the "
        "defaults, or remove the key"
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("default_settings", "behaviors", "env_settings", "environment_parameters"),
                    *("checkpoint_settings", "trainer_type", "hyperparameters", "network_settings"),
                    *("reward_signals", "curiosity", "gail", "memory", "curriculum", "framework"),
                    *("encoding_size", "sampler_type", "sampler_parameters", "intervals", "ppo"),
                ]
            )
            | st.text(max_size=3)
            | st.integers(),
            children,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_written_it_loads_or_says_why(file: Path, written: Any) -> None:
    file.write_text(yaml.safe_dump(written), encoding="utf-8")
    try:
        options = load_run_options(CommandLine(file, {"env_settings": {"seed": 1}}, True))
    except TrainerConfigError as error:
        assert str(error)
    else:
        assert options.env_settings.seed == 1


# Writing


def test_the_order_of_keys_in_the_dump() -> None:
    options = RunOptions(behaviors={"A": BehaviorSettings()})
    written = yaml.safe_load(dump_configuration(options))
    assert list(written) == [
        "default_settings",
        "behaviors",
        "env_settings",
        "engine_settings",
        "environment_parameters",
        "checkpoint_settings",
        "torch_settings",
        "callbacks",
        "track",
        "evaluation",
        "cluster",
        "debug",
        "verbose",
    ]
    assert list(written["behaviors"]["A"]) == [
        "trainer_type",
        "legacy_defaults",
        "hyperparameters",
        "checkpoint_interval",
        "network_settings",
        "reward_signals",
        "init_path",
        "keep_checkpoints",
        "even_checkpoints",
        "max_steps",
        "stop_at_reward",
        "time_horizon",
        "summary_freq",
        "threaded",
        "self_play",
        "behavioral_cloning",
    ]


def test_a_run_on_free_ports_is_repeated_on_free_ports(file: Path) -> None:
    text = "behaviors: {A: {}}\nenv_settings: {env_path: x}\n"
    for flags, port in (([], 0), (["--base-port", "5005"], 5005)):
        options = load(file, text, *flags).with_seed(3)
        dump = dump_configuration(options)
        assert yaml.safe_load(dump)["env_settings"]["base_port"] == port
        assert load(file, dump) == options


# Any script, but no control characters and no line separators.
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=5).filter(
    lambda name: not behavior_name_problem(name)
)
BEHAVIORS = st.fixed_dictionaries(
    {},
    optional={
        "trainer_type": st.sampled_from(["ppo", "sac", "poca"]),
        "max_steps": st.integers(5, 10**9),
        "even_checkpoints": st.booleans(),
        "self_play": st.none() | st.builds(dict, save_steps=st.integers(1, 10**6)),
        "network_settings": st.fixed_dictionaries(
            {"memory": st.none() | st.just({})}, optional={"normalize": st.booleans()}
        ),
        "reward_signals": st.fixed_dictionaries(
            {"rnd": st.fixed_dictionaries({}, optional={"learning_rate": st.floats(1e-9, 1.0)})},
            optional={"extrinsic": st.just({"gamma": 0.5}), "gail": st.just({"demo_path": "ä b"})},
        ),
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "default_settings": BEHAVIORS,
            "behaviors": st.dictionaries(NAMES, BEHAVIORS, max_size=3),
            "environment_parameters": st.dictionaries(
                st.text("abc", min_size=1),
                st.floats(width=32, allow_nan=False, allow_infinity=False),
            ),
        },
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_dump_loads_as_what_was_dumped(file: Path, written: dict[str, Any]) -> None:
    file.write_text(yaml.safe_dump({"debug": True, **written}), encoding="utf-8")
    options = load_run_options(CommandLine(file, {}))
    file.write_text(dump_configuration(options.with_seed(3)), encoding="utf-8")
    assert load_run_options(CommandLine(file, {})) == options.with_seed(3)


def test_rewards_of_groups_end_lessons_only_where_they_are_counted(file: Path) -> None:
    criteria = "{behavior: A, measure: group_reward}"
    curriculum = f"[{{name: a, value: 1, completion_criteria: {criteria}}}, {{name: b, value: 2}}]"
    text = (
        "behaviors: {{A: {{trainer_type: {}}}}}\n"
        "environment_parameters: {{p: {{curriculum: {}}}}}\n"
    )
    assert load(file, text.format("poca", curriculum)).environment_parameters
    with pytest.raises(TrainerConfigError) as caught:
        load(file, text.format("ppo", curriculum))
    assert (
        "environment_parameters.p.curriculum[0].completion_criteria.measure: group_reward needs "
        "trainer_type: poca of behavior 'A', got ppo" in str(caught.value)
    )


CODE = ["my_env:make", "gym:my_env:Env-v0", "./player", "builds/player", "/bin/sh", "C:\\player"]


@pytest.mark.parametrize("env", CODE)
def test_a_downloaded_file_names_no_code(file: Path, env: str) -> None:
    (file.parent / DOWNLOADED).touch()
    inner = file.parent / "walker" / "configuration.yaml"
    inner.parent.mkdir()
    text = f"env_settings: {{env_path: '{env}'}}"
    (found,) = problems(inner, text)
    assert "env_settings.env_path" in found and "command line: --env" in found
    assert load(inner, text, "--env", env).env_settings.env_path == env


@pytest.mark.parametrize(
    ("key", "behavior"),
    [
        ("trainer_type", "trainer_type: shutil:rmtree"),
        ("self_play.opponent", "self_play: {opponent: 'my_bots:act'}"),
    ],
)
@pytest.mark.parametrize("where", ["default_settings: {%s}", "behaviors: {A: {%s}}"])
def test_a_downloaded_file_names_no_code_of_behaviors(
    file: Path, where: str, key: str, behavior: str
) -> None:
    (file.parent / DOWNLOADED).touch()
    (found,) = problems(file, where % behavior)
    assert f".{key}: " in found and "names code to run" in found
    assert "copy the file to another folder" in found


@pytest.mark.parametrize("env", ["3DBall", "gym:CartPole-v1", "gym:ALE/Pong-v5", "null"])
def test_a_downloaded_file_may_name_what_is_registered(file: Path, env: str) -> None:
    (file.parent / DOWNLOADED).touch()
    load(file, f"env_settings: {{env_path: {env}}}")


@pytest.mark.parametrize("env", CODE)
def test_a_file_of_ones_own_may_name_code(file: Path, env: str) -> None:
    assert load(file, f"env_settings: {{env_path: '{env}'}}").env_settings.env_path == env


def test_a_downloaded_file_does_not_say_where_to_write(file: Path) -> None:
    text = "checkpoint_settings: {results_dir: /etc}"
    assert load(file, text).checkpoint_settings.results_dir == "/etc"
    (file.parent / DOWNLOADED).touch()
    assert "command line: --results-dir /etc" in problems(file, text)[0]


# --set


BALL = """
behaviors:
  Ball:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, learning_rate: 3.0e-4}
"""


def test_a_setting_is_typed_by_its_path(file: Path) -> None:
    options = load(
        file,
        BALL,
        *("--set", "behaviors.Ball.hyperparameters.learning_rate=1e-4"),
        *("--set", "behaviors.Ball.network_settings.memory={memory_size: 16}"),
        *("--set", "behaviors.Ball.threaded=true"),
        *("--set", "environment_parameters.gravity=-9.8"),
        *("--set", "behaviors.Ball.hyperparameters.batch_size=8"),
        *("--set", "behaviors.Ball.hyperparameters.batch_size=128"),
    )
    ball = options.behaviors["Ball"]
    assert ball.hyperparameters.learning_rate == 1e-4
    assert ball.hyperparameters.batch_size == 128  # the last one counts
    assert ball.network_settings.memory is not None
    assert ball.network_settings.memory.memory_size == 16
    assert ball.threaded is True
    written = yaml.safe_load(dump_configuration(options))
    assert written["behaviors"]["Ball"]["hyperparameters"]["learning_rate"] == 1e-4
    assert "gravity" in written["environment_parameters"]


def test_a_path_may_hold_a_name_with_dots_and_a_place_in_a_list(file: Path) -> None:
    text = """
default_settings: {}
behaviors: {My.Ball: {}, 7: {}}
environment_parameters:
  size:
    curriculum:
      - name: small
        value: 1
        completion_criteria: {behavior: My.Ball, measure: reward, threshold: 1}
      - {name: large, value: 2}
"""
    options = load(
        file,
        text,
        *("--set", "behaviors.My.Ball.max_steps=9"),
        *("--set", "behaviors.7.max_steps=8"),
        *("--set", "environment_parameters.size.curriculum.1.value=5"),
    )
    assert [options.behaviors[name].max_steps for name in ("My.Ball", "7")] == [9, 8]
    assert "5.0" in str((options.environment_parameters or {})["size"].curriculum[1].value)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (
            "behaviors.Ball.hyperparameters.learnig_rate=1",
            "behaviors.Ball.hyperparameters.learnig_rate: unknown key; did you mean "
            "'learning_rate'?",
        ),
        (
            "behaviors.Ball.hyperparameters.batch_size=many",
            "behaviors.Ball.hyperparameters.batch_size: must be a whole number, got 'many'",
        ),
        (
            "behaviors.Ball.max_steps.most=1",
            "behaviors.Ball.max_steps: must be a whole number, got {'most': 1}",
        ),
        (
            "behaviors.Ball.trainer_type.name=1",
            "behaviors.Ball.trainer_type is 'ppo', not a section",
        ),
        ("behaviors.Bal.max_steps=1", "there is no behavior 'Bal' in FILE; did you mean 'Ball'?"),
        ("behaviors.Cube.max_steps=1", "there is no behavior 'Cube' in FILE. It has 'Ball'."),
        ("behaviours.Ball.max_steps=1", "behaviours: unknown key; did you mean 'behaviors'?"),
    ],
)
def test_an_error_names_the_setting_that_was_typed(file: Path, typed: str, says: str) -> None:
    (line,) = problems(file, BALL, "--set", typed)
    assert line.startswith(f"--set {typed}: {says}")


def test_an_error_elsewhere_still_names_the_file(file: Path) -> None:
    (line,) = problems(file, BALL + "    max_steps: 0\n", "--set", "behaviors.Ball.threaded=true")
    assert line.startswith("FILE: behaviors.Ball.max_steps")
