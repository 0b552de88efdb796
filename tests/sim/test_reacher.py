"""Reacher: what it sees, how it swings, what it is paid for, by hand."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_native.articulated import PART
from mlagents_sim.articulated.bodies import Creatures
from mlagents_sim.articulated.rotations import rotate
from mlagents_sim.examples.reacher import (
    ARM,
    HAND_AT,
    LOWER,
    MAX_SPIN_RAD_S,
    STEP_S,
    UPPER,
    Reacher,
)

NAME = Reacher.behavior_name
ELBOW, SHOULDER = 3.0, 4.02
"""Distances from the middles of links to their joints."""


def act(env: Reacher, *values: float) -> None:
    """Let every agent do the same for one decision."""
    action = np.tile(values or np.zeros(4), (env.n_agents, 1)).astype(np.float32)
    env.set_actions(NAME, ActionTuple(continuous=action))
    env.step()


def test_reacher_keeps_the_contract():
    check_env(lambda seed: Reacher(seed=seed), steps=40)


def test_the_scene_is_as_published():
    env = Reacher()
    assert env.n_agents == 20
    assert env.behavior_spec.observation_specs[0].shape == (33,)
    assert env.behavior_spec.action_spec.continuous_size == 4
    assert (env.decision_period_steps, env.max_steps) == (4, 4000)


def test_the_first_observation_holds_each_number_in_its_place():
    env = Reacher(seed=1)
    env.reset()
    (seen,) = env.get_steps(NAME)[0].obs
    np.testing.assert_allclose(seen[0, :3], [0.0, -4.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(seen[0, 3:7], [1.0, 0.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_array_equal(seen[0, 7:13], 0.0)
    np.testing.assert_allclose(seen[0, 13:16], [0.0, -10.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(seen[0, 16:20], [1.0, 0.0, 0.0, 0.0], atol=1e-6)
    angle = np.radians(env.goal_degrees)
    np.testing.assert_allclose(seen[:, 26], 8.0 * np.sin(angle), atol=1e-5)
    np.testing.assert_array_equal(seen[:, 27], 0.0)
    np.testing.assert_allclose(seen[:, 28], 8.0 * np.cos(angle), atol=1e-5)
    np.testing.assert_array_equal(seen[:, 29:32], [[0.0, 1.0, 0.0]] * 20)
    np.testing.assert_allclose(seen[:, 32], env.goal_speed, rtol=1e-6)
    np.testing.assert_array_equal(env.goal_degrees, np.round(env.goal_degrees))
    assert np.abs(env.goal_speed).max() <= 1.0 < 3 * np.abs(env.goal_speed).max()
    creatures = env.arms
    creatures.spin[3] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    creatures.velocity[3] = [[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]
    (seen,) = env.observe(slice(None))
    np.testing.assert_array_equal(seen[3, 7:13], [1, 2, 3, 7, 8, 9])
    np.testing.assert_array_equal(seen[3, 20:26], [4, 5, 6, 10, 11, 12])


def test_goals_circle_and_deviate():
    env = Reacher(seed=1, parameters={"deviation": 2.0, "deviation_freq": 3.0})
    env.reset()
    env.goal_degrees[:], env.goal_speed[:] = 10.0, 0.5
    act(env)
    # After four steps, 12 degrees.
    angle = np.radians(12.0)
    expected = [8.0 * np.sin(angle), 2.0 * np.cos(3.0 * angle), 8.0 * np.cos(angle)]
    np.testing.assert_allclose(env.goal, np.tile(expected, (20, 1)))


def test_the_hand_shifts_the_middle_of_the_lower_link():
    # A capsule of 4.45 m3 and a sphere of 4.19 m3, 3 m apart.
    assert ARM.bodies[LOWER].shape.center == pytest.approx((0.0, 16.0 / 11.0, 0.0))
    assert ARM.bodies[UPPER].shape.center == (0.0, 0.0, 0.0)


def test_a_torque_turns_the_links_by_their_inertia():
    # The first step from rest, before joints and gravity: a spin of torque dt / inertia, and the
    # engine's drag. The joints then share it, so only the sum of energies tells: without gravity,
    # the work of the torque on the upper link, 150 w dt / 2, is the energy of both.
    env = Reacher(seed=1)
    env.reset()
    arms = env.arms
    arms.gravity[:] = 0.0
    env._torque[:, UPPER, 0] = 150.0
    env.physics()
    spin = arms.spin[0]
    assert spin[UPPER, 0] > 0.0 and abs(spin[:, 1:]).max() < 1e-9
    mass = 1.0 / arms.model.inverse_mass[:2]
    inertia = 1.0 / arms.model.inverse_inertia[:2, 0]
    energy = (mass * (arms.velocity[0] ** 2).sum(axis=1) + inertia * spin[:, 0] ** 2).sum() / 2.0
    assert energy == pytest.approx(150.0 * spin[UPPER, 0] * STEP_S / 2.0, rel=2e-3)


def test_arms_swing_as_a_double_pendulum():
    # Small swings of two links, by their angles to the vertical: M a = -K angle, with distances
    # from shoulder and elbow to the middles of mass. Both links swing together in the slow mode.
    first, second, elbow, gravity = 4.02, 3.0 + 16.0 / 11.0, 7.02, 9.81
    inertia = 1.0 / Reacher(seed=1).arms.model.inverse_inertia[:2, 0]
    mass = np.array(
        [[first**2 + inertia[0] + elbow**2, elbow * second], [elbow * second] * 2], np.float64
    )
    mass[1, 1] = second**2 + inertia[1]
    stiffness = gravity * np.diag([first + elbow, second])
    squares, shapes = np.linalg.eig(np.linalg.solve(mass, stiffness))
    slow = int(squares.argmin())
    for axis in (0, 2):
        env = Reacher(seed=1)
        env.reset()
        arms = env.arms
        spin = 0.02 * shapes[:, slow]
        across = np.zeros((2, 3))
        across[:, axis] = 1.0
        arms.spin[:] = spin[:, None] * across
        # Links hang down, so a turn about x moves them to the rear, and about z to the right.
        speeds = np.array([first * spin[0], elbow * spin[0] + second * spin[1]])
        arms.velocity[:, :, 2 - axis] = speeds if axis == 2 else -speeds
        place = []
        for _ in range(1500):
            arms.step(STEP_S)
            place.append(env.hand()[0, 2 - axis])
        place = np.array(place)
        turns = np.flatnonzero(place[:-1] * place[1:] < 0.0)
        period_s = 2.0 * STEP_S * (turns[-1] - turns[0]) / (len(turns) - 1)
        assert period_s == pytest.approx(2.0 * np.pi / np.sqrt(squares[slow]), rel=0.01)


def test_each_action_is_a_torque_about_its_axis():
    for action, (link, axis) in enumerate([(UPPER, 0), (UPPER, 2), (LOWER, 0), (LOWER, 2)]):
        env = Reacher(seed=1)
        env.reset()
        act(env, *np.eye(4)[action])
        spin = env.arms.spin[0]
        assert spin[link, axis] > 0.05
        assert np.abs(np.delete(spin, axis, axis=1)).max() < 1e-6


def test_links_stay_together_and_do_not_twist():
    env = Reacher(seed=1)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(300):
        action = env.behavior_spec.action_spec.random_action(20, rng)
        env.set_actions(NAME, ActionTuple(continuous=np.sign(action.continuous)))
        env.step()
        place, turn = env.arms.position, env.arms.rotation
        shoulder = place[:, UPPER] + rotate(turn[:, UPPER], np.tile([0.0, -SHOULDER, 0.0], (20, 1)))
        np.testing.assert_allclose(shoulder, [[0.0, 0.02, 0.0]] * 20, atol=0.06)
        above, below = (
            place[:, link] + rotate(turn[:, link], np.tile([0.0, along, 0.0], (20, 1)))
            for link, along in ((UPPER, ELBOW), (LOWER, -ELBOW))
        )
        np.testing.assert_allclose(above, below, atol=0.06)
    assert np.abs(env.arms.spin).max() < MAX_SPIN_RAD_S + 3.0


def test_a_hand_that_touches_the_goal_is_paid_every_step():
    env = Reacher(seed=1)
    env.reset()
    env.goal_speed[:] = 0.0
    env.arms.gravity[:] = 0.0
    place = env.arms.state[:, LOWER, :3]
    hand = place + rotate(env.arms.rotation[:, LOWER], np.tile(HAND_AT, (20, 1)))
    np.testing.assert_allclose(hand, env.hand())
    np.testing.assert_allclose(hand, [[0.0, -13.0, 0.0]] * 20, atol=1e-9)
    # The hand, of 1 m, and the goal, of 2.5 m, touch within 3.5 m.
    env._place_goals = lambda agents: None
    env.goal[:] = hand
    env.goal[:, 2] = 3.51
    env.goal[:10, 2] = 3.49
    act(env)
    reward = env.get_steps(NAME)[0].reward
    np.testing.assert_allclose(reward[:10], 0.04, rtol=1e-6)
    np.testing.assert_array_equal(reward[10:], 0.0)


def test_parameters_are_honored():
    env = Reacher(seed=1, parameters={"goal_size": 10.0, "goal_speed": 4.0, "gravity": 4.0})
    env.reset()
    assert (env.goal_radius == 5.0).all() and (env.arms.gravity == 4.0).all()
    assert 1.0 < np.abs(env.goal_speed).max() <= 4.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("goal_size", 0.5), ("goal_speed", 5.0), ("gravity", 30.0), ("deviation", -1.0)],
)
def test_parameters_beyond_their_ranges_are_refused(name: str, value: float):
    with pytest.raises(UnityEnvironmentException, match=f"{name}.*{value}.*expected"):
        Reacher(parameters={name: value})
    env = Reacher()
    with pytest.raises(UnityEnvironmentException, match=f"{name}.*expected"):
        env.set_float_parameter(name, value)
    with pytest.raises(UnityEnvironmentException, match=f"{name}.*expected"):
        env.set_uniform_sampler_parameters(name, value, value + 1.0, 0)


@pytest.mark.skipif(PART.reason is not None, reason=str(PART.reason))
def test_the_library_and_numpy_compute_the_same():
    native, reference = (Creatures(ARM, 5, use_native=use) for use in (True, False))
    rng = np.random.default_rng(2)
    kick = rng.normal(0.0, 2.0, (60, 5, 2, 3))
    for torque in kick:
        for arms in (native, reference):
            arms.spin[:] += torque
            arms.step(STEP_S)
        np.testing.assert_allclose(native.state, reference.state, rtol=0.0, atol=1e-9)
        reference.state[:] = native.state
