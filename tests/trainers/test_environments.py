"""What `--env` names is made with what the run has to say to it."""

from pathlib import Path
from typing import Any

import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.rollout import environments
from mlagents.trainers.rollout.environments import environment_maker
from mlagents.trainers.settings.load import load_run_options
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.registry import UnityEnvRegistry
from mlagents_envs.registry.remote_registry_entry import RemoteRegistryEntry
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel


class Noted:
    """Stands for what makes an environment; notes what it was told."""

    def __call__(self, *positional: Any, **named: Any) -> BaseEnv:
        self.positional, self.named = positional, named
        return GuessEnvironment()


def make(tmp_path: Path, *arguments: str, worker: int = 0) -> None:
    configuration = tmp_path / "guess.yaml"
    configuration.write_text("environment_parameters: {mass: 2.5}\ndefault_settings: {}\n")
    options = load_run_options(parse_command_line([str(configuration), *arguments]))
    environment_maker(options.with_seed(7), log_folder=tmp_path / "logs")(worker)


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Noted:
    noted = Noted()
    monkeypatch.setattr(environments, "UnityEnvironment", noted)
    return noted


def test_an_executable_is_told_ports_seeds_and_settings(player: Noted, tmp_path: Path) -> None:
    executable = tmp_path / "build.x86_64"
    executable.touch(mode=0o755)

    make(
        tmp_path,
        *("--env", str(executable), "--base-port", "6000", "--time-scale", "3", "--no-graphics"),
        *("--num-areas", "4", "--env-args", "--quality", "low"),
        worker=2,
    )

    assert player.positional == (str(executable),)
    told = player.named
    assert (told["base_port"], told["worker_id"], told["seed"]) == (6000, 2, 9)
    assert (told["num_areas"], told["no_graphics"]) == (4, True)
    assert told["additional_args"] == ["--quality", "low"]
    assert told["log_folder"] == str(tmp_path / "logs")
    engine, parameters = told["side_channels"]
    assert isinstance(engine, EngineConfigurationChannel)
    assert len(engine.message_queue) == 5  # resolution, quality, time scale and two frame rates
    assert b"mass" in bytes(parameters.message_queue[0])


def test_the_editor_has_a_port_and_a_log_of_its_own(player: Noted, tmp_path: Path) -> None:
    make(tmp_path, "--base-port", "6000")

    assert player.positional == ()
    assert player.named["base_port"] is None
    assert player.named["log_folder"] is None


def test_a_registered_build_is_told_what_an_executable_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry, noted = UnityEnvRegistry(), Noted()
    entry = RemoteRegistryEntry("Far", None, None, linux_url="https://example.org/a.zip")
    monkeypatch.setattr(entry, "make", noted)
    registry.register(entry)
    monkeypatch.setattr(environments, "default_registry", registry)

    make(tmp_path, "--env", "Far")

    assert noted.named["seed"] == 7
    assert "parameters" not in noted.named
    assert len(noted.named["side_channels"]) == 2


def test_a_factory_is_told_what_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {}

    def factory(*, seed: int, parameters: dict[str, float]) -> BaseEnv:
        told.update(seed=seed, parameters=parameters)
        return GuessEnvironment()

    monkeypatch.setattr("guess_environment.factory", factory, raising=False)

    make(tmp_path, "--env", "guess_environment:factory", worker=1)

    assert told == {"seed": 8, "parameters": {"mass": 2.5}}
