"""Walker: what it sees, what ends its episodes, by hand."""

import numpy as np

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.testing import check_env
from mlagents_sim.articulated.rotations import from_euler, multiply
from mlagents_sim.examples.walker import NAMES, Walker

NAME = Walker.behavior_name
STEP = np.zeros((10, 39), np.float32)


def seen(env: Walker) -> np.ndarray:
    """Return the observation of the first agent."""
    (batch,) = env.observe(slice(None))
    return batch[0]


def test_walker_keeps_the_contract():
    check_env(lambda seed: Walker(seed=seed), steps=30)


def test_the_scene_is_as_published():
    env = Walker()
    assert env.n_agents == 10
    assert env.behavior_spec.observation_specs[0].shape == (243,)
    assert env.behavior_spec.action_spec.continuous_size == 39
    assert sum(body.mass for body in env.creature.bodies) == 109.0
    driven = [joint for joint in env.creature.joints if joint.is_driven]
    assert sum(sum(motion != 0 for motion in joint.motions) for joint in driven) == 26


def test_the_observation_holds_each_number_in_its_place():
    env = Walker(seed=1)
    env.reset()
    creatures = env.creatures
    env.target[0], env.goal_speed[0] = creatures.position[0, 0] + [0.0, -0.5, 5.0], 3.0
    env._turn_frames(slice(None))  # looks along z
    creatures.put(np.array([0]), [0.0])
    creatures.velocity[0] = 0.0
    creatures.velocity[0, NAMES.index("handR")] = [0.0, 16.0, 0.0]
    creatures.spin[0, NAMES.index("head")] = [1.0, 2.0, 3.0]
    creatures.touching[0, NAMES.index("footL")] = True
    turned = from_euler([0.0, 30.0, 0.0])
    creatures.rotation[0, NAMES.index("head")] = turned
    env.given_strength[0] = np.arange(13) / 13.0
    now = seen(env)
    np.testing.assert_allclose(now[0], np.hypot(1.0, 3.0), rtol=1e-6)  # mean velocity (0, 1, 0)
    np.testing.assert_allclose(now[1:7], [0, 1, 0, 0, 0, 3], atol=1e-6)
    np.testing.assert_allclose(now[7:11], [0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(now[11:15], from_euler([0.0, -30.0, 0.0]), atol=1e-6)
    np.testing.assert_allclose(now[15:18], [0.0, -0.5, 5.0], atol=1e-6)
    # hips: 10 numbers; chest, spine, head: 15 each; thigh, shin, foot twice: 90; then arms.
    head, foot, hand = now[58:73], now[103:118], now[223 + 10 :]
    np.testing.assert_allclose(head[4:7], [1, 2, 3], atol=1e-6)
    np.testing.assert_allclose(head[7:10], [0.0, 0.9405, 0.0], atol=1e-6)
    np.testing.assert_allclose(head[10:14], turned, atol=1e-6)
    np.testing.assert_allclose(head[14], 2 / 13, rtol=1e-6)
    assert foot[0] == 1.0
    np.testing.assert_allclose(foot[14], 5 / 13, rtol=1e-6)
    np.testing.assert_allclose(hand[1:4], [0.0, 16.0, 0.0], atol=1e-6)
    assert len(hand) == 10


def test_reward_looks_at_the_head():
    env = Walker(seed=1)
    env.reset()
    env.goal_speed[:] = 2.0
    env.creatures.velocity[:] = 2.0 * env.frame_forward[:, None]
    head = env.creatures.rotation[:, NAMES.index("head")]
    head[:] = multiply(env.frame(), np.tile(from_euler([0.0, 90.0, 0.0]), (10, 1)))
    np.testing.assert_allclose(env.judge(), 0.5, atol=1e-9)


def test_a_hand_on_the_ground_ends_the_episode_and_a_foot_does_not():
    env = Walker(seed=1)
    env.reset()
    env.creatures.state[4, NAMES.index("handL"), 1] = 0.15
    env.creatures.state[6, NAMES.index("footR"), 1] = 0.1
    env.set_actions(NAME, ActionTuple(continuous=STEP))
    env.step()
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [4]
    assert terminals.reward.tolist() == [-1.0]
