"""Worm: what it sees, what ends its episodes, by hand."""

import numpy as np

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.testing import check_env
from mlagents_sim.articulated.rotations import from_euler, multiply
from mlagents_sim.examples.worm import Worm

NAME = Worm.behavior_name


def test_worm_keeps_the_contract():
    check_env(lambda seed: Worm(seed=seed), steps=40)


def test_the_scene_is_as_published():
    env = Worm()
    assert env.n_agents == 10
    assert env.behavior_spec.observation_specs[0].shape == (64,)
    assert env.behavior_spec.action_spec.continuous_size == 9
    assert sum(body.mass for body in env.creature.bodies) == 43.0


def test_the_observation_holds_each_number_in_its_place():
    env = Worm(seed=1)
    env.reset()
    creatures = env.creatures
    env.target[0] = creatures.position[0, 0] + [0.0, -0.65, 5.0]
    env._turn_frames(slice(None))  # looks along z
    creatures.put(np.array([0]), [20.0])
    creatures.velocity[0] = 0.0
    creatures.velocity[0, 1] = [1.0, 2.0, 3.0]
    creatures.spin[0, 3] = [4.0, 5.0, 6.0]
    creatures.touching[0, 2] = True
    env.given_strength[0] = 0.2, 0.4, 0.6
    (batch,) = env.observe(slice(None))
    now = batch[0]
    np.testing.assert_allclose(now[:4], [0.115, 0.0, 0.0, 10.0], atol=1e-6)
    np.testing.assert_allclose(now[4], 20.0 / 180.0, rtol=1e-5)
    np.testing.assert_allclose(now[5:9], from_euler([0.0, -20.0, 0.0]), atol=1e-6)
    np.testing.assert_allclose(now[9:12], [0.0, -0.65, 5.0], atol=1e-6)
    head, first, second, last = now[12:20], now[20:35], now[35:50], now[50:64]
    assert head[7] == np.float32(0.2)
    np.testing.assert_allclose(first[1:4], [1.0, 2.0, 3.0], atol=1e-6)
    behind = 1.3163 * np.array([np.sin(np.radians(20.0)), 0.0, np.cos(np.radians(20.0))])
    np.testing.assert_allclose(first[7:10], -behind, atol=2e-4)
    np.testing.assert_allclose(first[10:14], from_euler([90.0, 0.0, 0.0]), atol=2e-4)
    assert first[14] == np.float32(0.4)
    assert second[0] == 1.0
    np.testing.assert_allclose(second[10:14], [0.0, 0.0, 0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(last[4:7], [4.0, 5.0, 6.0], atol=1e-6)


def test_reward_needs_the_head_to_look_at_the_target():
    env = Worm(seed=1)
    env.reset()
    env.creatures.velocity[:, 0] = 10.0 * env.frame_forward
    for degrees, facing in ((0.0, 1.0), (18.0, 0.9), (31.0, 0.0)):
        turn = np.tile(from_euler([degrees, 0.0, 0.0]), (10, 1))
        env.creatures.rotation[:, 0] = multiply(env.frame(), turn)
        np.testing.assert_allclose(env.judge(), facing, atol=1e-6)


def test_a_fall_off_the_ground_ends_the_episode_without_a_penalty():
    env = Worm(seed=1)
    env.reset()
    env.creatures.state[7, :, 1] -= 2.5
    env.set_actions(NAME, ActionTuple(continuous=np.zeros((10, 9), np.float32)))
    env.step()
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [7]
    assert not terminals.interrupted.any()
    assert terminals.reward[0] >= 0.0


def test_only_the_mouth_touches_the_target():
    env = Worm(seed=1)
    env.reset()
    env.target[2] = env.creatures.position[2, 3]  # at the tail
    env.target[3] = env.creatures.position[3, 6]  # at the mouth
    before = env.target.copy()
    env.physics()
    moved = np.flatnonzero((env.target != before).any(axis=1))
    assert moved.tolist() == [3]
