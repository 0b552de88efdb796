"""The command line: what is typed comes back, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from mlagents.trainers.cli_args import (
    EPILOG,
    FLAGS,
    CommandLine,
    field_of,
    parse_command_line,
)


def test_nothing_typed_is_nothing_set() -> None:
    assert parse_command_line([]) == CommandLine(None, {}, False, ())


@pytest.mark.parametrize(
    ("flag", "typed", "section", "key", "value"),
    [
        ("--env", ["3DBall"], "env_settings", "env_path", "3DBall"),
        ("--num-envs", ["3"], "env_settings", "num_envs", 3),
        ("--players-per-process", ["4"], "env_settings", "players_per_process", 4),
        ("--num-areas", ["8"], "env_settings", "num_areas", 8),
        ("--base-port", ["0"], "env_settings", "base_port", 0),
        ("--timeout-wait", ["5"], "env_settings", "timeout_wait", 5),
        ("--seed", ["-1"], "env_settings", "seed", -1),
        ("--max-lifetime-restarts", ["-1"], "env_settings", "max_lifetime_restarts", -1),
        ("--restarts-rate-limit-n", ["2"], "env_settings", "restarts_rate_limit_n", 2),
        (
            "--restarts-rate-limit-period-s",
            ["9"],
            "env_settings",
            "restarts_rate_limit_period_s",
            9,
        ),
        ("--run-id", ["first"], "checkpoint_settings", "run_id", "first"),
        ("--results-dir", ["out"], "checkpoint_settings", "results_dir", "out"),
        ("--initialize-from", ["old"], "checkpoint_settings", "initialize_from", "old"),
        ("--resume", [], "checkpoint_settings", "resume", True),
        ("--force", [], "checkpoint_settings", "force", True),
        ("--inference", [], "checkpoint_settings", "inference", True),
        ("--width", ["10"], "engine_settings", "width", 10),
        ("--height", ["11"], "engine_settings", "height", 11),
        ("--quality-level", ["1"], "engine_settings", "quality_level", 1),
        ("--time-scale", ["1.5"], "engine_settings", "time_scale", 1.5),
        ("--target-frame-rate", ["60"], "engine_settings", "target_frame_rate", 60),
        ("--capture-frame-rate", ["30"], "engine_settings", "capture_frame_rate", 30),
        ("--no-graphics", [], "engine_settings", "no_graphics", True),
        ("--no-graphics-monitor", [], "engine_settings", "no_graphics_monitor", True),
        ("--torch-device", ["cpu"], "torch_settings", "device", "cpu"),
        ("--workers", ["2"], "cluster", "workers", 2),
    ],
)
def test_a_flag_sets_its_key(
    flag: str, typed: list[str], section: str, key: str, value: Any
) -> None:
    assert parse_command_line([flag, *typed]).settings == {section: {key: value}}


def test_debug_stands_at_the_top() -> None:
    assert parse_command_line(["--debug"]).settings == {"debug": True}


def test_a_flag_typed_with_its_default_still_counts() -> None:
    assert parse_command_line(["--num-envs", "1"]).settings == {"env_settings": {"num_envs": 1}}


def test_all_after_env_args_goes_to_the_player() -> None:
    command_line = parse_command_line(["a.yaml", "--seed", "1", "--env-args", "-x", "--seed", "2"])
    assert command_line.settings == {"env_settings": {"seed": 1, "env_args": ["-x", "--seed", "2"]}}


def test_the_file_may_stand_anywhere() -> None:
    for argv in (["a.yaml", "--run-id", "x"], ["--run-id", "x", "a.yaml"]):
        assert parse_command_line(argv).config_path == Path("a.yaml")


def test_flags_may_be_shortened() -> None:
    assert parse_command_line(["--run", "x"]) == parse_command_line(["--run-id", "x"])


def test_parsing_twice_leaks_nothing() -> None:
    parse_command_line(["--resume", "--seed", "3"])
    assert parse_command_line([]).settings == {}


def test_deterministic_belongs_to_no_single_key() -> None:
    assert parse_command_line(["--deterministic"]) == CommandLine(None, {}, deterministic=True)


def test_old_flags_are_accepted_and_set_nothing() -> None:
    command_line = parse_command_line(["--load", "--train", "--torch", "--tensorflow"])
    assert command_line.deprecated == ("--load", "--train", "--torch", "--tensorflow")
    assert command_line.settings == {}


@pytest.mark.parametrize(
    "argv",
    [["--seed", "x"], ["--time-scale", "x"], ["--num-envs", "2.5"], ["--nonsense"], ["a", "b"]],
)
def test_usage_errors_exit_with_2_and_say_why(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line(argv)
    assert caught.value.code == 2
    assert "usage: mlagents-learn" in capsys.readouterr().err


def test_version_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_command_line(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("mlagents-next ")


def test_help_names_every_flag_and_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        parse_command_line(["--help"])
    text = capsys.readouterr().out
    for flags in FLAGS.values():
        for flag, key in flags.items():
            assert f"  {flag}" in text
            default = field_of(key).default
            default = ",".join(default) if isinstance(default, tuple) else default
            assert default is None or default is False or f"(default: {default})" in text
    assert "Unity Editor on port 5004" in " ".join(text.split())
    assert "--tensorflow" not in text


def test_help_fits_80_columns_and_groups_the_flags(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parse_command_line(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "usage: mlagents-learn [CONFIG] [flags]"
    assert [line for line in lines if line.rstrip(":") in FLAGS] == [f"{group}:" for group in FLAGS]


def test_the_examples_of_the_help_are_understood() -> None:
    examples = [line.split()[1:] for line in EPILOG.splitlines() if line.startswith("  ")]
    assert len(examples) == 4
    for argv in examples:
        typed = parse_command_line(argv)
        assert typed.config_path is not None or typed.settings["env_settings"]["env_path"]


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("max_steps", "expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("a..b=3", "expected KEY=VALUE"),
        ("a.b=", "a.b has no value; write null or ''"),
        ("a.b={c: 1, c: 2}", "the key 'c' appears a second time"),
        ("a.b=[1", "a.b: "),
        ("a.b=!!python/object:os.system {}", "could not determine a constructor"),
    ],
)
def test_a_setting_by_path_needs_a_key_and_a_value(
    typed: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_command_line(["--set", typed])
    error = capsys.readouterr().err
    assert "argument --set: " in error
    assert says in error


def test_a_setting_by_path_counts_as_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    line = parse_command_line(["--set", "env_settings.env_path=3DBall", "--set", "debug=true"])
    assert line.settings == {"env_settings": {"env_path": "3DBall"}, "debug": True}
    with pytest.raises(SystemExit, match="2"):
        parse_command_line(["--seed", "3", "--set", "env_settings.seed=4"])
    assert "--set env_settings.seed=4 and --seed set the same" in capsys.readouterr().err
