"""Environments by name, their own and those that packages offer."""

import re
import shutil
import subprocess
import sys
from contextlib import closing
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from document_examples import DOCS
from file_server import file_server
from guess_environment import GuessEnvironment
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.registry import (
    LocalRegistryEntry,
    RemoteRegistryEntry,
    build_registry_entry,
    default_registry,
    unity_env_registry,
)
from mlagents_envs.registry.base_registry_entry import BaseRegistryEntry
from mlagents_envs.registry.unity_env_registry import UnityEnvRegistry
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel
from mlagents_sim.catalog import CATALOG
from mlagents_sim.examples.ball_3d import Ball3D


class Entry(BaseRegistryEntry):
    def make(self, **kwargs) -> BaseEnv:
        return GuessEnvironment(**kwargs)


def entries_of_a_plugin():
    return [Entry("Guess", 1.0, "from a plug-in"), Entry("Guess2")]


def no_entries():
    return ["Guess"]


@pytest.fixture
def plugins(monkeypatch, request):
    """Let packages offer the functions of this module that a test names."""
    names = request.param
    monkeypatch.setitem(sys.modules, "a_plugin", sys.modules[__name__])
    offered = [EntryPoint(name, f"a_plugin:{name}", "some.group") for name in names]
    asked = []

    def entry_points(*, group):
        asked.append(group)
        return offered

    monkeypatch.setattr(unity_env_registry, "entry_points", entry_points)
    return asked


def test_entries_are_found_by_name_and_made():
    registry = UnityEnvRegistry()
    registry.register(Entry("Guess", 0.5, "says what it sees"))
    assert list(registry) == ["Guess"]
    assert len(registry) == 1
    entry = registry["Guess"]
    assert (entry.identifier, entry.expected_reward) == ("Guess", 0.5)
    assert entry.description == "says what it sees"
    assert isinstance(entry.make(seed=1, n_agents=3), GuessEnvironment)


def test_a_second_entry_of_a_name_replaces_the_first():
    registry = UnityEnvRegistry()
    registry.register(Entry("Guess", 0.5))
    registry.register(Entry("Guess", 0.6))
    assert registry["Guess"].expected_reward == 0.6
    assert len(registry) == 1


def test_an_unknown_name_lists_the_nearest():
    registry = UnityEnvRegistry()
    for name in ("3DBall", "3DBallHard", "Crawler"):
        registry.register(Entry(name))
    with pytest.raises(KeyError, match=r"'3DBal'; did you mean '3DBall' or '3DBallHard'"):
        registry["3DBal"]
    with pytest.raises(KeyError, match=r"registered: \['3DBall', '3DBallHard', 'Crawler'\]"):
        registry["xyz"]
    assert "xyz" not in registry


@pytest.mark.parametrize("plugins", [["entries_of_a_plugin"]], indirect=True)
def test_packages_are_asked_once_and_late(plugins):
    registry = UnityEnvRegistry("some.group")
    registry.register(Entry("Guess", 2.0, "by hand"))
    assert plugins == []
    assert sorted(registry) == ["Guess", "Guess2"]
    assert registry["Guess"].description == "by hand"
    assert plugins == ["some.group"]


@pytest.mark.parametrize("plugins", [["entries_of_a_plugin"]], indirect=True)
def test_clear_forgets_what_packages_offer_too(plugins):
    registry = UnityEnvRegistry("some.group")
    registry.clear()
    assert len(registry) == 0


@pytest.mark.parametrize(
    "plugins", [["missing", "no_entries", "entries_of_a_plugin"]], indirect=True
)
def test_a_broken_plugin_is_reported_and_the_others_are_kept(plugins, capsys):
    registry = UnityEnvRegistry("some.group")
    assert sorted(registry) == ["Guess", "Guess2"]
    output = capsys.readouterr().out
    assert "entry point missing (a_plugin:missing) are skipped: AttributeError" in output
    assert "'Guess' is not a BaseRegistryEntry" in output


def test_the_default_registry_knows_the_worlds():
    env = default_registry["3DBall"].make(seed=3, num_areas=2, parameters={"gravity": 5.0})
    assert isinstance(env, Ball3D)
    assert env.n_agents == 24
    assert env.parameters["gravity"] == 5.0
    assert default_registry["3DBall"].expected_reward == 100.0


def test_arguments_for_players_mean_nothing_to_a_world():
    env = default_registry["Basic"].make(worker_id=3, base_port=5010, no_graphics=True, seed=1)
    assert list(env.behavior_specs) == ["Basic?team=0"]
    with pytest.raises(TypeError, match="color"):
        default_registry["Basic"].make(color="red")


def test_looking_imports_no_world():
    code = (
        "import sys\n"
        "from mlagents_envs.registry import default_registry\n"
        "assert 'mlagents_sim' not in sys.modules\n"
        "assert '3DBall' in default_registry\n"
        "assert not [name for name in sys.modules if 'examples.' in name]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Manifests.

MANIFEST = f"""
environments:
  - Maze:
      expected_reward: 10
      description: Find the way out.
      linux_url: https://127.0.0.1:1/maze-linux.zip
      linux_sha256: {"0a" * 32}
      win_url:
      additional_args: ["--walls", "20"]
  - Guess:
      description: from a manifest
"""


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "manifest.yaml"
    path.write_text(MANIFEST)
    return path


def test_a_manifest_is_read_when_the_registry_is_looked_into(manifest):
    pytest.importorskip("yaml")
    registry = UnityEnvRegistry()
    manifest.unlink()
    registry.register_from_yaml(str(manifest))
    manifest.write_text(MANIFEST)
    assert sorted(registry) == ["Guess", "Maze"]
    manifest.unlink()
    entry = registry["Maze"]
    assert isinstance(entry, RemoteRegistryEntry)
    assert entry.expected_reward == 10.0
    assert entry.description == "Find the way out."
    with pytest.raises(FileNotFoundError):
        registry["Guess"].make()


def test_a_manifest_is_read_from_the_network(monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    registry = UnityEnvRegistry()
    with file_server() as server:
        registry.register_from_yaml(server.serve("manifest.yaml", MANIFEST.encode()))
        assert server.asked == []
        assert sorted(registry) == ["Guess", "Maze"]
        assert len(registry) == 2
        assert server.asked == ["/manifest.yaml"]


def test_what_is_registered_later_goes_first(manifest):
    pytest.importorskip("yaml")
    registry = UnityEnvRegistry()
    registry.register(Entry("Guess", 0.5, "by hand, before"))
    registry.register_from_yaml(str(manifest))
    assert registry["Guess"].description == "from a manifest"
    registry.register_from_yaml(str(manifest))
    registry.register(Entry("Guess", 0.5, "by hand, after"))
    assert registry["Guess"].description == "by hand, after"


def test_checksums_are_asked_for_unless_the_caller_says_otherwise(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "manifest.yaml"
    urls = "".join(f"{name}_url: http://127.0.0.1:1/, " for name in ("linux", "darwin", "win"))
    path.write_text(f"environments: [Maze: {{{urls} tmp_dir: '{tmp_path}'}}]")
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(path))
    with pytest.raises(UnityEnvironmentException, match="was not downloaded: it has no"):
        registry["Maze"].make()
    registry.register_from_yaml(str(path), allow_unverified=True)
    with pytest.raises(UnityEnvironmentException, match="cannot be downloaded"):
        registry["Maze"].make()


def test_a_manifest_that_cannot_be_read_is_tried_again_and_can_be_forgotten(manifest):
    pytest.importorskip("yaml")
    manifest.unlink()
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(manifest))
    for _ in range(2):
        with pytest.raises(UnityEnvironmentException, match=r"manifest\.yaml cannot be read"):
            list(registry)
    manifest.write_text(MANIFEST)
    assert "Maze" in registry
    registry.register_from_yaml(str(manifest) + ".missing")
    registry.clear()
    assert list(registry) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a list under the key 'environments'"),
        ("environments: 3", "expected a list"),
        ("- a", "expected a list"),
        ("environments: [a]", r"environments\[0\]: expected one name"),
        ("environments: [{a: {}, b: {}}]", r"environments\[0\]: expected one name"),
        ("environments: [a: {}, 3: {}]", r"environments\[1\]: expected one name"),
        ("environments: [a: 3]", r"environments\[0\]: expected one name"),
        ("environments: [a: {linux_sha265: x}]", r"\(a\): unknown field 'linux_sha265'; expected"),
        ("environments: [a: {allow_unverified: true}]", "unknown field 'allow_unverified'"),
        ("environments: [a: {3: x}]", "unknown field 3"),
        ("environments: [a: {expected_reward: high}]", "must be int or float, not str"),
        ("environments: [a: {win_sha256: 12}]", "win_sha256 must be str, not int"),
        ("environments: [a: {win_sha256: '12'}]", "is not 64 hexadecimal digits"),
        ("environments: [a: {win_url: 'file:///x'}]", "is not an HTTP address"),
        ("environments: [a: {additional_args: --x}]", "must be list, not str"),
        ("environments: [a: {additional_args: [--x, 3]}]", "list of str; put numbers in quotes"),
        ("environments: [", "manifest"),
        ("!!python/object/apply:os.getcwd []", "manifest"),
        ("environments: &x [a: *x]", "expected one name"),
        ("\0", "manifest"),
        ("[" * 5000, "manifest"),
    ],
)
def test_a_bad_manifest_is_named_with_what_is_wrong(tmp_path, text, message):
    pytest.importorskip("yaml")
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(path))
    with pytest.raises(UnityEnvironmentException, match=message):
        len(registry)


def test_without_yaml_a_manifest_says_what_to_install(manifest, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(manifest))
    with pytest.raises(UnityEnvironmentException, match="pip install PyYAML"):
        registry["Maze"]


def test_looking_into_the_default_registry_opens_no_connection():
    code = (
        "import socket\n"
        "def refuse(*arguments, **keywords): raise AssertionError('a socket')\n"
        "socket.socket.__init__ = socket.getaddrinfo = refuse\n"
        "from mlagents_envs.registry import default_registry\n"
        "assert '3DBall' in default_registry\n"
        "assert 'missing' not in default_registry\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_build_on_this_machine_is_made_by_name(tmp_path):
    player = shutil.which("mlagents-sim", path=str(Path(sys.executable).parent))
    if player is None:
        pytest.skip("needs the installed command mlagents-sim")
    (tmp_path / "Maze.x86_64").symlink_to(player)
    entry = LocalRegistryEntry("Maze", str(tmp_path / "Maze"), 0.9, "a maze", ["Basic"])
    assert (entry.identifier, entry.expected_reward, entry.description) == ("Maze", 0.9, "a maze")
    assert entry.fetch() == tmp_path / "Maze.x86_64"
    with entry.make(seed=1) as env, entry.make(additional_args=["--timeout", "20"]) as other:
        env.reset()
        other.reset()
        assert list(env.behavior_specs) == list(other.behavior_specs) == ["Basic?team=0"]


def test_a_world_with_side_channels_is_played_in_another_process():
    with closing(CATALOG["Basic"].make(side_channels=[])) as here:
        assert not isinstance(here, UnityEnvironment)
    engine, parameters = EngineConfigurationChannel(), EnvironmentParametersChannel()
    stats = StatsSideChannel()
    engine.set_configuration_parameters(time_scale=20.0)
    parameters.set_float_parameter("gravity", 5.0)
    with CATALOG["3DBall"].make(
        side_channels=[engine, parameters, stats],
        seed=3,
        num_areas=2,
        parameters={"scale": 1.5},
        no_graphics=True,
        file_name="ignored",
        additional_args=["--of-a-build"],
    ) as env:
        assert isinstance(env, UnityEnvironment)
        assert env.side_channels == (engine, parameters, stats)
        env.reset()
        here = Ball3D(seed=3, num_areas=2, parameters={"scale": 1.5, "gravity": 5.0})
        here.reset()
        (name,) = env.behavior_specs
        assert env.get_steps(name)[0] == here.get_steps(name)[0]
        for _ in range(3):
            env.step()
            here.step()
        assert env.get_steps(name)[0] == here.get_steps(name)[0]
    with pytest.raises(UnityEnvironmentException, match="has no environment parameter 'scales'"):
        CATALOG["3DBall"].make(side_channels=[stats], parameters={"scales": 1.0})


def test_a_build_takes_a_free_port_unless_it_is_told(tmp_path, monkeypatch):
    made = []
    (tmp_path / "Maze").touch(mode=0o755)
    monkeypatch.setattr(
        build_registry_entry, "UnityEnvironment", lambda name, **arguments: made.append(arguments)
    )
    entry = LocalRegistryEntry("Maze", str(tmp_path / "Maze"))
    entry.make()
    entry.make(base_port=6000, file_name="ignored")
    assert made == [
        {"base_port": 0, "additional_args": []},
        {"base_port": 6000, "additional_args": []},
    ]


def test_a_build_that_is_not_there_is_named_when_it_is_made(tmp_path):
    entry = LocalRegistryEntry("Maze", str(tmp_path / "Maze"))
    with pytest.raises(UnityEnvironmentException, match="cannot find the executable"):
        entry.make()


def test_the_programs_of_the_page_run(capsys, monkeypatch):
    monkeypatch.setattr(default_registry, "_entries", dict(default_registry))
    monkeypatch.setattr(default_registry, "_to_register", [])
    names: dict[str, object] = {}
    page = DOCS / "registry.md"
    programs = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 6
    for program in programs:
        exec(compile(program, page.name, "exec"), names)
    assert "3DBall" in capsys.readouterr().out


def test_the_manifest_of_the_page_can_be_read(tmp_path):
    pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "registry.md").read_text(), re.DOTALL)
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(path))
    assert list(registry) == ["Maze"]
