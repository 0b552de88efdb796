"""Creatures of 2020, and the parameters of all creatures."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_native.articulated import PART
from mlagents_sim.articulated.bodies import Creatures
from mlagents_sim.catalog import CATALOG
from mlagents_sim.creatures import CreatureWorld
from mlagents_sim.examples.crawler import Crawler
from mlagents_sim.examples.walker import NAMES, WALKER, Walker
from mlagents_sim.examples.worm import Worm
from mlagents_sim.world import World

VARIANTS = {
    "CrawlerStatic": (Crawler, (15.0, 15.0), True),
    "CrawlerStaticVariableSpeed": (Crawler, (0.1, 15.0), True),
    "CrawlerDynamic": (Crawler, (15.0, 15.0), False),
    "CrawlerDynamicVariableSpeed": (Crawler, (0.1, 15.0), False),
    "WalkerStatic": (Walker, (10.0, 10.0), True),
    "WalkerStaticVariableSpeed": (Walker, (0.1, 10.0), True),
    "WalkerDynamic": (Walker, (10.0, 10.0), False),
    "WalkerDynamicVariableSpeed": (Walker, (0.1, 10.0), False),
    "WormStatic": (Worm, (10.0, 10.0), True),
    "WormDynamic": (Worm, (10.0, 10.0), False),
}


def made(name: str, **options) -> CreatureWorld:
    world = CATALOG[name].make(**options)
    assert isinstance(world, CreatureWorld)
    return world


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_differ_from_today_by_speed_and_target(name: str):
    today, (low, high), is_static = VARIANTS[name]
    env = made(name, seed=1, num_areas=3)
    assert isinstance(env, today)
    assert env.behavior_name == f"{name}?team=0"
    assert env.behavior_spec == today.behavior_spec
    env.reset()
    assert (env.goal_speed >= low).all() and (env.goal_speed <= high).all()
    assert (env.goal_speed.std() > 0) == (low < high)
    assert (env.target == [0.0, env.target[0, 1], 1000.0]).all() == is_static


def test_a_static_target_stays_when_it_is_touched():
    env = made("CrawlerStatic", seed=1)
    env.reset()
    env.creatures.state[3, :, 1:3] += [-1.0, 1000.0]
    assert env._reached()[3]
    env.physics()
    np.testing.assert_array_equal(env.target, [[0.0, env.target[0, 1], 1000.0]] * 10)


@pytest.mark.parametrize("name", ["Crawler", "Worm", "Walker"])
def test_gravity_is_honored(name: str):
    falls = []
    for gravity in (0.0, 9.81):
        env = made(name, seed=1, parameters={"gravity": gravity})
        env.reset()
        env.creatures.step()
        falls.append(-env.creatures.velocity[:, 0, 1])
    assert np.abs(falls[0]).max() < 0.05
    np.testing.assert_allclose(falls[1] - falls[0], 9.81 * 0.01333, atol=0.02)


def test_masses_of_a_walker_are_honored():
    masses = {"hip_mass": 28.0, "chest_mass": 3.0, "spine_mass": 20.0}
    env = made("Walker", seed=1, parameters=masses)
    env.reset()
    expected = np.ones(len(NAMES))
    for name, factor in (("hips", 28 / 15), ("chest", 3 / 8), ("spine", 20 / 10)):
        expected[NAMES.index(name)] = factor
    np.testing.assert_allclose(env.creatures.heaviness, [expected] * 10)
    usual = made("Walker", seed=1)
    usual.reset()
    np.testing.assert_array_equal(usual.creatures.heaviness, 1.0)
    for _ in range(5):
        for world in (env, usual):
            action = np.ones((10, 39), np.float32)
            world.set_actions(world.behavior_name, ActionTuple(continuous=action))
            world.step()
    assert np.abs(env.creatures.position - usual.creatures.position).max() > 1e-3


def test_a_heavy_body_yields_less():
    # Two bodies that a joint pulls together take speeds in inverse proportion to their masses.
    bodies = Creatures(WALKER, 2, use_native=False)
    bodies.gravity[:] = 0.0
    hand, forearm = NAMES.index("handL"), NAMES.index("forearmL")
    bodies.heaviness[1, hand] = 100.0
    bodies.velocity[:, hand] = [0.0, 0.0, 1.0]
    bodies.step()
    assert (bodies.velocity[1, hand, 2] > bodies.velocity[0, hand, 2] + 0.1).all()
    assert bodies.velocity[1, forearm, 2] > bodies.velocity[0, forearm, 2]


@pytest.mark.skipif(PART.reason is not None, reason=str(PART.reason))
def test_the_library_and_numpy_agree_about_masses():
    rng = np.random.default_rng(0)
    native, reference = (Creatures(WALKER, 3, use_native=use) for use in (True, False))
    for bodies in (native, reference):
        bodies.heaviness[:] = np.random.default_rng(1).uniform(0.5, 2.0, bodies.heaviness.shape)
        bodies.gravity[:] = 14.715
        bodies.strengthen(np.ones((3, len(WALKER.joints))))
    for _ in range(4):
        kick = rng.normal(0.0, 1.0, native.spin.shape)
        for bodies in (native, reference):
            bodies.spin[:] += kick
            bodies.step()
        np.testing.assert_allclose(native.state, reference.state, rtol=0.0, atol=1e-9)
        reference.state[:] = native.state


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("Crawler", "gravity", -1.0),
        ("Worm", "gravity", -0.1),
        ("Walker", "hip_mass", 6.0),
        ("Walker", "chest_mass", 21.0),
        ("WalkerStatic", "spine_mass", 2.0),
    ],
)
def test_parameters_beyond_their_ranges_are_refused(name: str, parameter: str, value: float):
    with pytest.raises(UnityEnvironmentException, match=f"{parameter}.*expected at least"):
        made(name, parameters={parameter: value})


def test_values_drawn_beyond_a_range_are_moved_to_its_bounds():
    env = made("Walker", seed=1, num_areas=5)
    env.set_gaussian_sampler_parameters("hip_mass", 7.0, 10.0, 1)
    env.reset()
    mass = 15.0 * env.creatures.heaviness[:, NAMES.index("hips")]
    assert mass.min() == pytest.approx(7.0) and 7.0 < mass.max() <= 28.0
    assert isinstance(env, World)
