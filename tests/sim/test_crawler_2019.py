"""Crawlers of 2019: what they see and what they are paid for, by hand."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.testing import check_env
from mlagents_sim.examples.crawler_2019 import CrawlerDynamicTarget, CrawlerStaticTarget

NAME = CrawlerDynamicTarget.behavior_name


def test_crawlers_of_2019_keep_the_contract():
    check_env(lambda seed: CrawlerDynamicTarget(seed=seed), steps=40)


def test_the_scene_is_as_published():
    env = CrawlerDynamicTarget()
    assert env.behavior_spec.observation_specs[0].shape == (126,)
    assert env.behavior_spec.action_spec.continuous_size == 20
    assert sum(body.mass for body in env.creature.bodies) == 36.0
    drive = env.creature.spring, env.creature.damper, env.creature.max_force
    assert drive == (40000.0, 3000.0, 10000.0)


def test_the_observation_holds_each_number_in_its_place():
    env = CrawlerDynamicTarget(seed=1)
    env.reset()
    creatures = env.creatures
    creatures.put(np.array([0]), [90.0])
    env.target[0] = creatures.position[0, 0] + [6.0, 0.0, 0.0]  # ahead, to the east
    creatures.velocity[0] = 0.0
    creatures.velocity[0, 0] = [1.0, 2.0, 3.0]
    creatures.spin[0, 1] = [4.0, 5.0, 6.0]
    creatures.touching[0, 2] = True
    action = np.zeros((10, 20), np.float32)
    action[0, :12] = [0.5, -1.0] * 4 + [1.0] * 4  # legs up and aside, forelegs down
    action[0, 12:] = np.linspace(-1.0, 1.0, 8)
    env.command(slice(None), ActionTuple(continuous=action))
    now = env.observe(slice(None))[0][0]
    np.testing.assert_allclose(now[:7], [2.156, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0], atol=1e-6)
    body, limbs = now[7:14], now[14:].reshape(8, 14)
    # Right of the east is the south: -z.
    np.testing.assert_allclose(body, [0.0, -3.0, 2.0, 1.0, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(limbs[0, :7], [0, 0, 0, 0, -6.0, 5.0, 4.0], atol=1e-6)
    assert limbs[:, 0].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    aside = 0.9 * np.sqrt(0.5)
    np.testing.assert_allclose(limbs[0, 7:10], [aside, -0.15, -aside], atol=1e-6)
    np.testing.assert_allclose(limbs[0::2, 10:13], [[0.75, 0.0, 0.0]] * 4, atol=1e-6)
    np.testing.assert_allclose(limbs[1::2, 10:13], [[1.0, 0.0, 0.0]] * 4, atol=1e-6)
    np.testing.assert_allclose(limbs[0::2, 13], np.arange(4) / 7.0, atol=1e-6)
    np.testing.assert_allclose(limbs[1::2, 13], np.arange(4, 8) / 7.0, atol=1e-6)


def test_the_reward_is_for_speed_and_facing():
    env = CrawlerDynamicTarget(seed=1)
    env.reset()
    env.creatures.put(np.arange(10), np.zeros(10))
    env.target[:] = env.creatures.position[:, 0] + [0.0, 0.0, 20.0]
    env.creatures.velocity[:, 0] = [1.0, 0.0, 5.0]
    np.testing.assert_allclose(env.judge(), 0.03 * 5.0 + 0.01)
    env.target[:] = env.creatures.position[:, 0] - [0.0, 0.0, 20.0]
    np.testing.assert_allclose(env.judge(), -0.03 * 5.0 - 0.01)


@pytest.mark.parametrize("world", [CrawlerDynamicTarget, CrawlerStaticTarget])
def test_touching_the_target_pays_one(world: type[CrawlerDynamicTarget]):
    env = world(seed=1)
    env.reset()
    before = env.target.copy()
    env.creatures.state[3, :, :3] += env.target[3] - env.creatures.position[3, 0] + [0.0, 0.8, 0.0]
    env.creatures.gravity[:] = 0.0
    env.physics()
    np.testing.assert_allclose(env.reward[3], 1.0)
    assert (env.target[3] == before[3]).all() == (world is CrawlerStaticTarget)
