"""The files that describe clusters: they can be read, and their commands exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlagents.trainers.cli_args import parse_command_line

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker" / "compose.yaml"
RAY = ROOT / "docker" / "ray-cluster.yaml"


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def starts() -> list[str]:
    """Return all commands that start a node."""
    services, cluster = read(COMPOSE)["services"], read(RAY)
    commands = [service["command"] for service in services.values()]
    commands += [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    commands = [command.removeprefix("RAY_AUTH_MODE=token ") for command in commands]
    return commands + re.findall(r"^    (ray start [^#\n]*)", page, re.MULTILINE)


def test_containers_are_a_head_that_does_not_act_and_two_workers() -> None:
    services = read(COMPOSE)["services"]
    assert services.keys() == {"head", "worker"}
    for service in services.values():
        known = {"image", "environment", "command", "shm_size", "volumes", "deploy", "depends_on"}
        assert service.keys() <= known, "keys of the Compose specification"
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
        assert "--block" in service["command"], "a container ends with its command"
    assert "--num-cpus 0" in services["head"]["command"]
    assert services["worker"]["deploy"] == {"replicas": 2}
    assert services["worker"]["depends_on"] == ["head"]
    (address,) = re.findall(r"--address (\S+)", services["worker"]["command"])
    (port,) = re.findall(r"--port (\S+)", services["head"]["command"])
    assert address == f"head:{port}"


def test_no_file_ends_ray_processes() -> None:
    for path in (COMPOSE, RAY):
        assert "ray stop" not in path.read_text(encoding="utf-8")


def test_runs_of_the_comments_have_valid_flags() -> None:
    for path in (COMPOSE, RAY):
        lines = path.read_text(encoding="utf-8").splitlines()
        comments = " ".join(line.lstrip("# ").rstrip("\\") for line in lines if line[:1] == "#")
        (run,) = re.findall(r"mlagents-learn (--env .*? wide)", comments)
        command = parse_command_line(shlex.split(run))
        assert command is not None


def test_ray_reads_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(read(RAY))
    validate_config(config)
    assert config["provider"]["worker_ips"] == ["10.0.0.2", "10.0.0.3"]


def test_nodes_are_started_with_options_of_ray() -> None:
    pytest.importorskip("ray")
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    commands = starts()
    assert len(commands) >= 8
    for command in commands:
        used = {word.partition("=")[0] for word in shlex.split(command) if word[:2] == "--"}
        assert used <= known, command
