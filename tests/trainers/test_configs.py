"""The configurations that come with the project, and the page that describes all settings."""

import runpy
from pathlib import Path

import pytest

from mlagents.trainers.settings.hyperparameters import POCASettings, PPOSettings, SACSettings
from mlagents.trainers.settings.load import dump_configuration, load_run_options
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.typed import CommandLine

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "config").glob("*/*.yaml"))


def load(name: str) -> RunOptions:
    return load_run_options(CommandLine(ROOT / "config" / f"{name}.yaml", {}))


def test_no_task_is_forgotten() -> None:
    names = [path.parent.name for path in CONFIGS]
    assert {name: names.count(name) for name in names} == {
        "imitation": 5,
        "poca": 4,
        "ppo": 32,
        "sac": 12,
    }


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_configuration_says_what_it_is_and_loads(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert path.read_text(encoding="utf-8").startswith("# ")
    options = load_run_options(CommandLine(path, {}))
    assert options.behaviors
    assert capsys.readouterr().out == "", "a shipped file uses nothing deprecated"
    dumped = tmp_path / "configuration.yaml"
    dumped.write_text(dump_configuration(options), encoding="utf-8")
    assert load_run_options(CommandLine(dumped, {})) == options


def test_3dball() -> None:
    settings = load("ppo/3DBall").behaviors["3DBall"]
    assert settings.hyperparameters == PPOSettings(
        batch_size=64, buffer_size=12000, beta=1e-3, lambd=0.99
    )
    assert settings.network_settings.normalize
    assert (settings.max_steps, settings.time_horizon, settings.summary_freq) == (
        500000,
        1000,
        12000,
    )


def test_sac_3dball() -> None:
    settings = load("sac/3DBall").behaviors["3DBall"]
    assert settings.hyperparameters == SACSettings(
        batch_size=64,
        buffer_size=200000,
        steps_per_update=10,
        reward_signal_steps_per_update=10,
        init_entcoef=0.5,
    )


def test_soccer_twos() -> None:
    settings = load("poca/SoccerTwos").behaviors["SoccerTwos"]
    assert isinstance(settings.hyperparameters, POCASettings)
    assert settings.hyperparameters.beta_schedule == "constant"
    assert settings.self_play is not None
    assert (settings.self_play.save_steps, settings.self_play.team_change) == (50000, 200000)


def test_match3_heuristics_take_the_defaults() -> None:
    options = load("ppo/Match3")
    settings = options.behaviors["Match3SmartHeuristic"]
    assert (settings.network_settings.hidden_units, settings.network_settings.num_layers) == (4, 1)
    assert settings.network_settings.vis_encode_type == "match3"
    assert settings.hyperparameters == options.behavior_settings("Match3VectorObs").hyperparameters


def test_the_walls_grow() -> None:
    parameters = load("ppo/WallJump_curriculum").environment_parameters
    assert parameters is not None
    big = parameters["big_wall_height"].curriculum
    assert [lesson.value.sampler_type for lesson in big] == ["uniform"] * 3 + ["constant"]
    assert [
        lesson.completion_criteria.threshold for lesson in big if lesson.completion_criteria
    ] == [0.1, 0.3, 0.5]


def test_the_reference_page_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "build_reference"))
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == script["reference_page"](), "run scripts/build_reference"
