"""Environments by name, their own and those that packages offer."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from guess_environment import GuessEnvironment
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.registry import default_registry, unity_env_registry
from mlagents_envs.registry.base_registry_entry import BaseRegistryEntry
from mlagents_envs.registry.unity_env_registry import UnityEnvRegistry
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
    with pytest.raises(KeyError, match=r"'3DBal'; near are \['3DBall', '3DBallHard'"):
        registry["3DBal"]
    with pytest.raises(KeyError, match=r"registered are \['3DBall', '3DBallHard', 'Crawler'\]"):
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
    assert "The environments of missing (a_plugin:missing) are left out: AttributeError" in output
    assert "'Guess' is no BaseRegistryEntry" in output


def test_the_default_registry_knows_the_worlds():
    env = default_registry["3DBall"].make(seed=3, num_areas=2, parameters={"gravity": 5.0})
    assert isinstance(env, Ball3D)
    assert env.n_agents == 24
    assert env.parameters["gravity"] == 5.0
    assert default_registry["3DBall"].expected_reward == 100.0


def test_arguments_for_players_mean_nothing_to_a_world():
    env = default_registry["Basic"].make(worker_id=3, base_port=5010, no_graphics=True, seed=1)
    assert list(env.behavior_specs) == ["Basic?team=0"]
    with pytest.raises(TypeError, match="colour"):
        default_registry["Basic"].make(colour="red")


def test_looking_imports_no_world():
    code = (
        "import sys\n"
        "from mlagents_envs.registry import default_registry\n"
        "assert 'mlagents_sim' not in sys.modules\n"
        "assert '3DBall' in default_registry\n"
        "assert not [name for name in sys.modules if 'examples.' in name]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
