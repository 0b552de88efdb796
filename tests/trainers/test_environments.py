"""What `--env` names is made with what the run has to say to it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.players import environments, launching
from mlagents.trainers.players.env_manager import EnvManager, send_parameters
from mlagents.trainers.players.environments import env_manager_maker
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs import factories
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.registry import UnityEnvRegistry
from mlagents_envs.registry.remote_registry_entry import RemoteRegistryEntry
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import (
    EnvironmentStats,
    StatsAggregationMethod,
    StatsSideChannel,
)


class Started(Exception):
    """Ends a test where a player would be waited for."""


class Noted:
    """Stands for what starts players; notes what it is told for the last one it starts.

    Args:
        last: The player that is not started any more.
    """

    BASE_ENVIRONMENT_PORT, DEFAULT_EDITOR_PORT = 5005, 5004

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.fetched = 0

    def __call__(self, *positional: Any, **named: Any) -> BaseEnv:
        self.positional, self.named = positional, named
        if named["worker_id"] == self.last:
            raise Started
        return GuessPlayer()

    def fetch(self) -> None:
        self.fetched += 1


class GuessPlayer(GuessEnvironment):
    side_channels = ()

    def filenos(self) -> tuple[int, ...]:
        return ()


def make(tmp_path: Path, *arguments: str) -> EnvManager:
    configuration = tmp_path / "guess.yaml"
    configuration.write_text("environment_parameters: {mass: 2.5}\ndefault_settings: {}\n")
    options = load_run_options(parse_command_line([str(configuration), *arguments]))
    return env_manager_maker(options.with_seed(7), log_folder=tmp_path / "logs")()


def start(tmp_path: Path, *arguments: str) -> None:
    manager = make(tmp_path, *arguments)
    with pytest.raises(Started):
        manager.reset()
    manager.close()


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Noted:
    noted = Noted()
    for module in (environments, factories, launching):
        monkeypatch.setattr(module, "UnityEnvironment", noted)
    return noted


@pytest.fixture
def executable(tmp_path: Path) -> str:
    path = tmp_path / "build.x86_64"
    path.touch(mode=0o755)
    return str(path)


def test_a_world_in_this_process_keeps_its_pictures_as_bytes(tmp_path: Path) -> None:
    options = load_run_options(parse_command_line(["--env", "GridWorld", "--seed", "1"]))
    manager = env_manager_maker(options, log_folder=tmp_path)()
    manager.reset()
    (spec,) = manager.behavior_specs.values()
    assert [o.dtype == np.uint8 for o in spec.observation_specs] == [True, False]
    manager.close()


def test_an_executable_is_told_ports_seeds_and_settings(
    player: Noted, executable: str, tmp_path: Path
) -> None:
    player.last = 2
    start(
        tmp_path,
        *("--env", executable, "--base-port", "6000", "--time-scale", "3", "--no-graphics"),
        *("--num-envs", "3", "--num-areas", "4", "--env-args", "--quality", "low"),
    )

    assert player.positional == (executable,)
    told = player.named
    assert (told["base_port"], told["worker_id"], told["seed"]) == (6000, 2, 9)
    assert (told["num_areas"], told["no_graphics"], told["connect"]) == (4, True, False)
    assert told["keep_8_bit_images"] is True
    assert told["additional_args"] == ["--quality", "low"]
    assert told["log_folder"] == str(tmp_path / "logs")
    engine, parameters, statistics = told["side_channels"]
    assert isinstance(engine, EngineConfigurationChannel)
    assert len(engine.message_queue) == 5  # resolution, quality, time scale and two frame rates
    assert isinstance(parameters, EnvironmentParametersChannel)
    assert isinstance(statistics, StatsSideChannel)


def test_ports_that_nobody_chose_are_free_ones(
    player: Noted, executable: str, tmp_path: Path
) -> None:
    start(tmp_path, "--env", executable)
    assert player.named["base_port"] == 0


def test_the_log_of_an_earlier_player_is_kept(
    player: Noted, executable: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for words in ("one", "two", "three"):
        (logs / "Player-0.log").write_text(words)
        start(tmp_path, "--env", executable)
    kept = {path.name: path.read_text() for path in logs.iterdir()}
    assert kept == {"Player-0.1.log": "one", "Player-0.2.log": "two", "Player-0.3.log": "three"}


def test_the_editor_has_a_port_and_a_log_of_its_own(
    player: Noted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path, "--base-port", "6000")

    assert "base_port 6000 is ignored" in caplog.text
    assert "The Editor uses port 5004" in caplog.text
    assert player.positional == ()
    assert player.named["base_port"] is None
    assert player.named["log_folder"] is None


def test_a_registered_build_is_fetched_once_and_told_what_an_executable_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry, noted = UnityEnvRegistry(), Noted(last=1)
    entry = RemoteRegistryEntry("Far", None, None, linux_url="https://example.org/a.zip")
    monkeypatch.setattr(entry, "fetch", noted.fetch)
    monkeypatch.setattr(entry, "make", noted)
    registry.register(entry)
    monkeypatch.setattr(factories, "default_registry", registry)

    start(tmp_path, "--env", "Far", "--num-envs", "2")

    assert noted.named["seed"] == 8
    assert "parameters" not in noted.named
    assert len(noted.named["side_channels"]) == 3
    assert noted.fetched == 1


def test_a_factory_is_told_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {}

    def factory(*, seed: int, parameters: dict[str, float]) -> BaseEnv:
        told.update(seed=seed, parameters=parameters)
        return GuessEnvironment()

    monkeypatch.setattr("guess_environment.factory", factory, raising=False)

    assert isinstance(make(tmp_path, "--env", "guess_environment:factory"), SimpleEnvManager)

    assert told == {"seed": 7, "parameters": {"mass": 2.5}}


def test_several_of_a_factory_are_players_of_their_own(player: Noted, tmp_path: Path) -> None:
    player.last = 1
    start(
        tmp_path,
        *("--env", "guess_environment:GuessEnvironment", "--num-envs", "2"),
        *("--env-args", "--quality", "low"),
    )
    program = [sys.executable, "-m", "mlagents_sim", "guess_environment:GuessEnvironment"]
    assert player.named["command"] == [*program, "--parameter", "mass=2.5"]
    assert player.named["additional_args"] == ["--worker-id", "1"]


def test_a_build_does_not_share_its_process(executable: str, tmp_path: Path) -> None:
    refused = r"players_per_process \(--players-per-process\) is 2, but .*build.* is a build"
    with pytest.raises(TrainerConfigError, match=refused):
        make(tmp_path, "--env", executable, "--num-envs", "2", "--players-per-process", "2")
    make(tmp_path, "--env", executable, "--num-envs", "2", "--players-per-process", "1").close()


def test_a_factory_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(TrainerConfigError, match="did you mean 'GuessEnvironment'"):
        make(tmp_path, "--env", "guess_environment:GuesEnvironment", "--num-envs", "2")


# What is in this process.


SAMPLERS = {
    "size": Sampler.model_validate(
        {"sampler_type": "constant", "sampler_parameters": {"value": 0.5, "seed": 1}}
    ),
    "mass": Sampler.model_validate(
        {
            "sampler_type": "uniform",
            "sampler_parameters": {"min_value": 1, "max_value": 2, "seed": 2},
        }
    ),
    "wind": Sampler.model_validate(
        {"sampler_type": "gaussian", "sampler_parameters": {"mean": 3, "st_dev": 4, "seed": 3}}
    ),
    "grip": Sampler.model_validate(
        {
            "sampler_type": "multirangeuniform",
            "sampler_parameters": {"intervals": [[0, 1], [5, 6]], "seed": 4},
        }
    ),
}


class Obedient(GuessEnvironment):
    """Obeys parameters and records statistics; notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []

    def set_float_parameter(self, key: str, value: float) -> None:
        self.told.append((key, value))

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        self.told.append((key, min_value, max_value, seed))

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        self.told.append((key, mean, st_dev, seed))

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        self.told.append((key, intervals, seed))

    def get_and_reset_stats(self) -> EnvironmentStats:
        return {"steps": [(float(self._time or 0), StatsAggregationMethod.SUM)]}


def test_every_sampler_is_told_in_its_own_way() -> None:
    env = Obedient()
    SimpleEnvManager(env).set_parameters(SAMPLERS)
    assert env.told == [
        ("size", 0.5),
        ("mass", 1.0, 2.0, 2),
        ("wind", 3.0, 4.0, 3),
        ("grip", ((0.0, 1.0), (5.0, 6.0)), 4),
    ]
    channel = EnvironmentParametersChannel()
    send_parameters(channel, SAMPLERS)
    assert len(channel.message_queue) == 4


def test_an_environment_that_obeys_no_parameters_is_told_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manager = SimpleEnvManager(GuessEnvironment())
    manager.set_parameters({})
    assert capsys.readouterr().out == ""
    manager.set_parameters(SAMPLERS)
    manager.set_parameters(SAMPLERS)
    log = capsys.readouterr().out
    assert log.count("GuessEnvironment does not support environment parameters") == 1
    assert "size, mass, wind, grip" in log


def test_a_report_says_whether_it_comes_from_a_reset_and_brings_statistics() -> None:
    manager = SimpleEnvManager(Obedient())
    manager.reset()
    (first,) = manager.receive()
    manager.send(0, {})
    (second,) = manager.receive()
    assert (first.is_new, second.is_new) == (True, False)
    assert second.statistics == {"steps": [(1.0, StatsAggregationMethod.SUM)]}
    manager.reset()
    assert manager.receive()[0].is_new
