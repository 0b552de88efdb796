"""The files of this package: found in any folder, by the name of their world, or listed."""

from pathlib import Path

import pytest

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.configurations import (
    CONFIGURATIONS,
    configuration_of,
    find_configuration,
    typed_name,
)
from mlagents.trainers.settings.load import load_run_options
from mlagents_sim.catalog import CATALOG

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder that is not the checkout."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("typed", ["config/ppo/3DBall.yaml", "ppo/3DBall.yaml"])
def test_a_packaged_file_is_found_in_any_folder(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = load_run_options(parse_command_line([typed]))
    assert options.behaviors["3DBall"].hyperparameters.buffer_size == 12000
    assert f"{typed} of this package, {CONFIGURATIONS}" in capsys.readouterr().out


def test_a_file_of_the_working_folder_comes_first(elsewhere: Path) -> None:
    own = Path("config/ppo/3DBall.yaml")
    own.parent.mkdir(parents=True)
    own.write_text("behaviors: {3DBall: {max_steps: 7}}")
    assert find_configuration(own) == own


def test_the_folder_of_the_checkout_is_that_of_the_package() -> None:
    config = ROOT / "config"
    if not config.is_dir():
        pytest.skip("this checkout has no symbolic links")
    assert config.resolve() == CONFIGURATIONS.resolve()


@pytest.mark.parametrize("world", CATALOG)
def test_every_world_has_a_file_that_trains_it(world: str) -> None:
    path = configuration_of(world)
    assert path is not None
    options = load_run_options(parse_command_line(["--env", world]))
    with CATALOG[world].make(seed=0) as env:
        for behavior in env.behavior_specs:
            options.behavior_settings(behavior.partition("?")[0])


def test_a_world_without_a_file_takes_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    options = load_run_options(parse_command_line(["--env", "SmallWallJump", "--seed", "3"]))
    assert "config/ppo/WallJump.yaml, the default for SmallWallJump" in capsys.readouterr().out
    assert options.behaviors["SmallWallJump"].max_steps == 5_000_000
    assert options.env_settings.seed == 3


@pytest.mark.parametrize("env", ["builds/Mine", "gym:CartPole-v1", "a.b:make", "3dball"])
def test_other_environments_have_none(env: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert configuration_of(env) is None
    assert load_run_options(parse_command_line(["--env", env])).behaviors == {}
    assert "every behavior is trained with PPO's defaults" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("config/ppo/3Dbal.yaml", "config/ppo/3DBall.yaml"), ("min.yaml", "mine.yaml")],
)
def test_a_missing_file_is_answered_with_a_similar_name(
    typed: str, meant: str, elsewhere: Path
) -> None:
    (elsewhere / "mine.yaml").write_text("behaviors: {}")
    with pytest.raises(TrainerConfigError) as caught:
        load_run_options(parse_command_line([typed]))
    text = f"{typed}: this configuration file does not exist; did you mean {meant!r}?"
    assert str(caught.value) == text


def test_without_a_similar_name_all_files_are_listed(elsewhere: Path) -> None:
    (elsewhere / "mine.yaml").write_text("behaviors: {}")
    with pytest.raises(TrainerConfigError) as caught:
        load_run_options(parse_command_line(["quite_different.yaml"]))
    assert f"  In {elsewhere}: mine.yaml" in str(caught.value)
    files = "In this package, config/sac/: 3DBall.yaml, 3DBallHard.yaml, Basic.yaml"
    assert files in str(caught.value)


@pytest.mark.parametrize("typed", ["config/../../__init__.py", "/nowhere/config/ppo/Basic.yaml"])
def test_no_name_leads_out_of_the_folder(typed: str) -> None:
    with pytest.raises(TrainerConfigError, match="this configuration file does not exist"):
        find_configuration(Path(typed))


def test_names_are_as_they_are_typed() -> None:
    assert typed_name(CONFIGURATIONS / "ppo" / "Basic.yaml") == "config/ppo/Basic.yaml"
