"""Registered environments under their Gymnasium ids."""

import functools
import importlib
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from mlagents_envs.registry import BaseRegistryEntry, default_registry
from scripted_environment import Asks, ScriptedEnvironment

gymnasium = pytest.importorskip("gymnasium")

from mlagents_envs.envs import register_environments  # noqa: E402
from mlagents_envs.envs.extras import needs  # noqa: E402
from mlagents_envs.envs.spaces import UnityGymException  # noqa: E402
from mlagents_envs.programs import install_command  # noqa: E402

SEVERAL_BEHAVIORS = {"SoccerTwos", "StrikersVsGoalie", "Tennis", "WallJump"}
NAMES = sorted(set(default_registry) - SEVERAL_BEHAVIORS)


@pytest.mark.parametrize("name", NAMES)
def test_every_registered_name_makes_one_agent_and_many(name):
    env = gymnasium.make(f"mlagents/{name}-v0")
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    observation, *_ = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    env.close()

    envs = gymnasium.make_vec(f"mlagents/{name}-v0", num_envs=30)
    assert envs.num_envs == 30
    observations, infos = envs.reset(seed=1)
    assert envs.observation_space.contains(observations)
    assert infos["acting"].all()
    observations, *_ = envs.step(envs.action_space.sample())
    assert envs.observation_space.contains(observations)
    envs.close()


@pytest.mark.parametrize("name", sorted(SEVERAL_BEHAVIORS))
def test_a_world_of_several_behaviors_needs_to_know_which(name):
    with closing(default_registry[name].make()) as world:
        behaviors = list(world.behavior_specs)
    for make in (gymnasium.make, functools.partial(gymnasium.make_vec, num_envs=4)):
        with pytest.raises(UnityGymException, match="hoose one") as refusal:
            make(f"mlagents/{name}-v0")
        for behavior in behaviors:
            assert behavior in str(refusal.value)
            env = make(f"mlagents/{name}-v0", behavior_name=behavior)
            env.reset(seed=1)
            for _ in range(20):
                observation, _, terminated, *_ = env.step(env.action_space.sample())
                assert env.observation_space.contains(observation)
                if np.all(terminated):
                    env.reset()
            env.close()


def test_a_single_agent_may_be_drawn_from_a_crowd():
    envs = gymnasium.make_vec("mlagents/3DBall-v0", num_envs=1)
    single = gymnasium.make("mlagents/3DBall-v0")
    np.testing.assert_array_equal(envs.reset(seed=4)[0][0], single.reset(seed=4)[0])


def test_gymnasiums_own_vectorization_takes_them_too():
    envs = gymnasium.make_vec("mlagents/Basic-v0", num_envs=2, vectorization_mode="sync")
    observations, _ = envs.reset(seed=1)
    assert observations.shape == (2, 20)
    envs.close()


def test_arguments_reach_the_world_and_the_wrapper():
    env = gymnasium.make("mlagents/3DBall-v0", parameters={"scale": 2.0}, render_mode="rgb_array")
    env.reset()
    assert env.render().dtype == np.uint8
    with pytest.raises(Exception, match="scales"):
        gymnasium.make("mlagents/3DBall-v0", parameters={"scales": 2.0})
    assert gymnasium.spec("mlagents/3DBall-v0").reward_threshold == 100.0


def test_an_id_that_names_the_package_needs_no_import():
    code = (
        "import gymnasium; "
        "env = gymnasium.make('mlagents_envs.envs:mlagents/Basic-v0'); "
        "env.reset(); print(env.spec.id)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "mlagents/Basic-v0"


def test_names_registered_later_and_names_that_make_no_id(caplog, monkeypatch):
    class Entry(BaseRegistryEntry):
        def make(self, **kwargs):
            return ScriptedEnvironment([[Asks(0, 0.5)]])

    monkeypatch.setattr(default_registry, "_entries", dict(default_registry))
    monkeypatch.setattr(gymnasium.envs.registration, "registry", {**gymnasium.registry})
    default_registry.register(Entry("Mine"))
    default_registry.register(Entry("not an id!"))
    register_environments()
    observation, _ = gymnasium.make("mlagents/Mine-v0").reset()
    np.testing.assert_allclose(observation, [0.5])
    assert "'not an id!' was not registered" in caplog.text
    gymnasium.registry.pop("mlagents/Mine-v0", None)


@pytest.mark.parametrize(
    ("package", "extra", "imported"),
    [
        ("gymnasium", "gym", "import mlagents_envs.envs"),
        ("gymnasium", "gym", "import mlagents_envs.envs.unity_parallel_env"),
        ("pettingzoo", "pettingzoo", "import mlagents_envs.envs.unity_parallel_env"),
        ("pettingzoo", "pettingzoo", "import mlagents_envs.envs.unity_aec_env"),
        ("pettingzoo", "pettingzoo", "import mlagents_envs.envs.from_pettingzoo"),
        ("pettingzoo", "pettingzoo", "from mlagents_envs.envs import ThreeDBall"),
        ("stable_baselines3", "sb3", "import mlagents_envs.envs.sb3"),
    ],
)
def test_without_its_package_a_wrapper_says_what_to_install(package, extra, imported):
    code = f"""
import sys
class NotFound:
    @staticmethod
    def find_spec(name, *_):
        if name == {package!r}:
            raise ModuleNotFoundError("not installed", name=name)
sys.meta_path.insert(0, NotFound)
try:
    {imported}
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"requires the package {package}. Install it: {install_command(extra)}\n" in done.stdout


def test_other_missing_modules_are_not_explained_away():
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module'"):
        with needs("gymnasium", extra="gym"):
            importlib.import_module("no_such_module")
