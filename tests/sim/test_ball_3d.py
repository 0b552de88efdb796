"""3DBall, by hand, by the laws of rolling, and against recorded steps of the original."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.codec import decode_input
from mlagents_envs.testing import check_env
from mlagents_sim.examples.ball_3d import (
    POSITION,
    SPIN,
    VELOCITY,
    Ball3D,
    X,
    Y,
    Z,
    rotation_matrix,
)
from mlagents_sim.rolling import frame_along
from shared_data import ROOT, load_recording, require
from tilted_cubes import tilted_cubes

NAME = Ball3D.behavior_name
GRAVITY, STEP_S = 9.81, 0.02


def turn(env: Ball3D, actions: NDArray[np.float64]) -> None:
    env.set_actions(NAME, ActionTuple(continuous=np.broadcast_to(actions, (env.n_agents, 2))))
    env.step()


def level(env: Ball3D) -> None:
    """Lay all cubes level and all balls on them, at rest."""
    env.cube[:] = [[0.0], [0.0], [0.0], [1.0]]
    env.ball[:] = 0.0
    env.ball[POSITION, Y] = 3.0


def tilt_against(observation: NDArray[np.float32]) -> NDArray[np.float64]:
    """Tilt the cubes against where the balls are and go."""
    tilt_z, tilt_x, x, _, z, v_x, _, v_z = observation.T
    wanted_z, wanted_x = 0.06 * x + 0.12 * v_x, -(0.06 * z + 0.12 * v_z)
    return 12.0 * np.stack([wanted_z - tilt_z, wanted_x - tilt_x], axis=1)


def returns_of(env: Ball3D, policy, *, episodes: int) -> NDArray[np.float64]:
    """Play until every agent has ended an episode and all together `episodes`."""
    env.reset()
    running = np.zeros(env.n_agents)
    finished: list[float] = []
    has_ended = np.zeros(env.n_agents, bool)
    while len(finished) < episodes or not has_ended.all():
        decisions, terminals = env.get_steps(NAME)
        running[terminals.agent_id] += terminals.reward
        finished += running[terminals.agent_id].tolist()
        running[terminals.agent_id] = 0.0
        has_ended[terminals.agent_id] = True
        running[decisions.agent_id] += decisions.reward
        if len(decisions):
            env.set_actions(NAME, ActionTuple(continuous=policy(decisions.obs[0])))
        env.step()
    return np.array(finished)


# The task.


@pytest.mark.parametrize("num_areas", [1, 2])
def test_3dball_keeps_the_contract(num_areas: int):
    check_env(lambda seed: Ball3D(seed=seed, num_areas=num_areas))


def test_the_start_is_drawn_from_the_published_ranges():
    env = Ball3D(num_areas=50)
    env.reset()
    observation = env.get_steps(NAME)[0].obs[0]
    degrees = np.degrees(2 * np.arcsin(observation[:, :2]))
    x, y, z = observation[:, 2:5].T
    assert (np.abs(degrees) < 10.0).all() and degrees.std() > 5.0
    assert (np.abs([x, z]) < 1.5).all() and np.std([x, z]) > 0.8
    assert (y == 4.0).all()
    assert (observation[:, 5:] == 0.0).all()


def test_a_ball_falls_by_hand():
    # Five steps of v += g dt, y += v dt: v = -5 * 0.1962, y = 4 - (1+2+3+4+5) * 0.003924.
    env = Ball3D()
    env.reset()
    turn(env, [0.0, 0.0])
    decisions, _ = env.get_steps(NAME)
    np.testing.assert_allclose(decisions.obs[0][:, 6], -0.981, rtol=1e-6)
    np.testing.assert_allclose(decisions.obs[0][:, 3], 3.94114, rtol=1e-6)
    np.testing.assert_array_equal(decisions.reward, np.float32(0.1))


def test_actions_turn_the_cube_by_two_degrees_a_step():
    env = Ball3D()
    env.reset()
    level(env)
    turn(env, [0.5, 0.0])
    np.testing.assert_allclose(env.cube[Z], np.sin(np.radians(5.0) / 2))
    turn(env, [-0.5, 0.0])
    np.testing.assert_allclose(env.cube[Z], 0.0, atol=1e-12)
    turn(env, [0.0, 7.0])  # clipped to 1
    np.testing.assert_allclose(env.cube[X], np.sin(np.radians(10.0) / 2))


def test_the_cube_stops_at_its_limit_and_comes_back():
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 100.0  # far up, out of the way
    for _ in range(6):
        turn(env, [1.0, 0.0])
    # Fifteen turns of 2 degrees: sin 15 > 0.25 stops the next, sin 14 = 0.242 does not.
    np.testing.assert_allclose(env.cube[Z], np.sin(np.radians(30.0) / 2))
    turn(env, [-1.0, 0.0])
    np.testing.assert_allclose(env.cube[Z], np.sin(np.radians(20.0) / 2))


def test_a_cube_rests_from_the_start_of_an_episode_to_the_next_decision():
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 100.0  # far up, out of the way
    env.ball[POSITION, X, 4] = 3.01  # but this one has fallen
    actions = np.ones((12, 2), np.float32)
    env.set_actions(env.behavior_name, ActionTuple(actions))
    env.step()
    assert env.get_steps(env.behavior_name)[1].agent_id.tolist() == [4]
    begun = env.cube.copy()
    env.step()
    assert len(env.get_steps(env.behavior_name)[0]) == 12
    has_turned = (env.cube != begun).any(axis=0)
    assert has_turned.tolist() == [agent != 4 for agent in range(12)]
    env.set_actions(env.behavior_name, ActionTuple(actions))
    env.step()
    assert (env.cube[:, 4] != begun[:, 4]).any()


@pytest.mark.parametrize(
    "position", [(3.01, 0.0, 0.0), (-3.01, 0, 0), (0.0, 0.0, 3.01), (0.0, -2.01, 0.0)]
)
def test_a_fallen_ball_ends_the_episode_at_once(position: tuple[float, float, float]):
    env = Ball3D()
    env.reset()
    env.ball[POSITION, :, 4] = position
    turn(env, [0.0, 0.0])
    decisions, terminals = env.get_steps(NAME)
    assert len(decisions) == 0
    assert terminals.agent_id.tolist() == [4]
    assert terminals.reward.tolist() == [-1.0]
    assert terminals.interrupted.tolist() == [False]
    np.testing.assert_allclose(terminals.obs[0][0, 2:5], position, rtol=1e-6)
    env.step()
    decisions, _ = env.get_steps(NAME)
    # It has fallen for all five steps, and holds its cube still: its action died with the episode.
    assert decisions.obs[0][4, 6] == pytest.approx(-0.981)
    assert decisions.reward[4] == np.float32(0.1)


def test_balls_on_their_cubes_earn_100_and_are_interrupted():
    env = Ball3D(seed=3, num_areas=10)
    returns = returns_of(env, tilt_against, episodes=240)
    np.testing.assert_allclose(returns, 100.0, atol=1e-3)
    assert env.get_steps(NAME)[1].interrupted.all()


def test_bad_policies_earn_what_they_do_in_unity():
    rng = np.random.default_rng(0)
    random = returns_of(Ball3D(), lambda seen: rng.uniform(-1, 1, (len(seen), 2)), episodes=300)
    idle = returns_of(Ball3D(), lambda seen: np.zeros((len(seen), 2)), episodes=100)
    assert 0.8 < random.mean() < 1.6
    assert 1.0 < idle.mean() < 5.0


@pytest.mark.parametrize("output", ["continuous_actions", "deterministic_continuous_actions"])
def test_the_policy_trained_in_unity_scores_as_there(output: str):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_seed(1)
    session = onnxruntime.InferenceSession(require(ROOT / "models" / "3DBall.onnx"))

    def policy(seen: NDArray[np.float32]) -> NDArray[np.float32]:
        (actions,) = session.run([output], {"obs_0": seen})
        return actions

    assert returns_of(Ball3D(seed=5, num_areas=10), policy, episodes=120).mean() >= 95.0


# The bodies.


def test_a_ball_rolls_down_a_slope_with_five_sevenths_of_gravity():
    # A solid ball that does not slip: a = 5/7 g sin(slope), spin = v / radius.
    env = Ball3D()
    env.reset()
    level(env)
    slope = np.radians(5.0)
    env.cube[Z], env.cube[3] = np.sin(slope / 2), np.cos(slope / 2)
    env.ball[POSITION, X], env.ball[POSITION, Y] = -3.0 * np.sin(slope), 3.0 * np.cos(slope)
    for _ in range(6):
        turn(env, [0.0, 0.0])
    speed = np.hypot(env.ball[VELOCITY, X], env.ball[VELOCITY, Y])
    np.testing.assert_allclose(speed, 5 / 7 * GRAVITY * np.sin(slope) * 30 * STEP_S, rtol=0.01)
    np.testing.assert_allclose(
        env.ball[SPIN, Z], speed / 0.5, rtol=0.01
    )  # to the left, so about +z


def test_a_ball_dropped_on_a_level_cube_lies_still():
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 4.0
    for _ in range(20):
        turn(env, [0.0, 0.0])
    np.testing.assert_allclose(env.ball[POSITION, Y], 3.0, atol=0.02)
    np.testing.assert_allclose(env.ball[VELOCITY], 0.0, atol=1e-6)


def test_a_spinning_ball_that_lands_keeps_two_sevenths_of_its_surface_speed():
    # An impulse that makes the slip w R vanish leaves v = 2/7 w R; on the way down the spin
    # loses 0.1 % a step.
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 3.5
    env.ball[SPIN, Z] = -2.0
    for _ in range(4):
        turn(env, [0.0, 0.0])
    np.testing.assert_allclose(env.ball[VELOCITY, X], 2 / 7 * 2.0 * 0.5, rtol=0.05)


def test_spin_is_limited_and_outlives_the_episode():
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[SPIN, X] = 50.0
    env.physics()
    np.testing.assert_allclose(np.linalg.norm(env.ball[SPIN], axis=0), 7.0)
    env.reset()
    np.testing.assert_allclose(np.linalg.norm(env.ball[SPIN], axis=0), 7.0)


def test_a_larger_ball_lies_higher():
    env = Ball3D(parameters={"scale": 2.0})
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 4.0
    for _ in range(20):
        turn(env, [0.0, 0.0])
    np.testing.assert_allclose(env.ball[POSITION, Y], 3.5, atol=0.02)


@pytest.mark.parametrize(("scale", "radius"), [(0.0, 0.1), (-3.0, 0.1), (100.0, 2.5)])
def test_balls_have_a_size_that_can_be(scale: float, radius: float):
    env = Ball3D(parameters={"scale": scale})
    env.reset()
    np.testing.assert_allclose(env.rolling.radius, radius)


def test_balls_of_random_size_lie_a_radius_above_their_cubes():
    env = Ball3D()
    env.set_multirangeuniform_sampler_parameters("scale", [(0.2, 0.4), (2.0, 5.0)], 2)
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 6.0
    for _ in range(30):
        turn(env, [0.0, 0.0])
    scale = (env.ball[POSITION, Y] - 2.5) / 0.5
    is_small = scale < 1.0
    assert 0 < is_small.sum() < env.n_agents
    assert ((0.15 < scale[is_small]) & (scale[is_small] < 0.45)).all()
    assert ((1.95 < scale[~is_small]) & (scale[~is_small] < 5.05)).all()
    assert len(set(scale.round(3))) > env.n_agents // 2


def test_gravity_is_obeyed():
    env = Ball3D(parameters={"gravity": 40.0})
    env.reset()
    turn(env, [0.0, 0.0])
    np.testing.assert_allclose(env.ball[VELOCITY, Y], -4.0)  # five steps of 0.02 s


def test_mass_changes_no_motion():
    light, heavy = Ball3D(), Ball3D(parameters={"mass": 20.0})
    for env in (light, heavy):
        env.reset()
        for _ in range(10):
            turn(env, [0.5, -1.0])
    np.testing.assert_array_equal(heavy.ball, light.ball)


def test_every_ball_has_a_gravity_of_its_own_until_its_next_episode():
    env = Ball3D()
    env.set_uniform_sampler_parameters("gravity", 10.0, 20.0, 1)
    env.reset()
    turn(env, [0.0, 0.0])  # five steps of 0.02 s
    fall = -env.ball[VELOCITY, Y].copy()
    assert ((1.0 < fall) & (fall < 2.0)).all() and len(set(fall.round(6))) == env.n_agents
    env.set_float_parameter("gravity", 1.0)
    turn(env, [0.0, 0.0])
    np.testing.assert_allclose(-env.ball[VELOCITY, Y], 2 * fall)

    env.reset()
    turn(env, [0.0, 0.0])
    np.testing.assert_allclose(env.ball[VELOCITY, Y], -0.1)


def test_an_overlap_is_pushed_apart_without_gain_of_speed():
    # A step closes four fifths of it: 0.1 m, then 0.02, 0.004, ...
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[POSITION, Y] = 2.9
    env.physics()
    np.testing.assert_allclose(env.ball[POSITION, Y], 2.98)
    np.testing.assert_allclose(env.ball[VELOCITY], 0.0, atol=1e-12)
    env.physics()
    np.testing.assert_allclose(env.ball[POSITION, Y], 2.996)


def test_a_ball_beyond_the_edge_touches_only_the_edge():
    # Its center is 0.3 m aside of the edge and 0.4 m above it: 0.5 m away, so it just touches.
    env = Ball3D()
    env.reset()
    level(env)
    env.ball[POSITION, X], env.ball[POSITION, Y] = 2.8, 2.9
    env.ball[VELOCITY, Y] = -1.0
    env.physics()
    outward = env.ball[VELOCITY, X] * 0.6 + env.ball[VELOCITY, Y] * 0.8
    np.testing.assert_allclose(outward, 0.0, atol=1e-9)
    assert (env.ball[VELOCITY, X] > 0.0).all()
    assert (env.ball[SPIN, Z] < 0.0).all()  # it begins to roll off to the right


def test_rotation_matrices_turn_as_their_quaternions():
    # 90 degrees about y: x becomes -z, z becomes x.
    half = np.sqrt(0.5)
    matrix = rotation_matrix(np.array([[0.0], [half], [0.0], [half]]))[:, :, 0]
    np.testing.assert_allclose(matrix, [[0, 0, 1], [0, 1, 0], [-1, 0, 0]], atol=1e-12)


def test_frames_are_rotations_with_the_normal_as_second_axis():
    normals = np.random.default_rng(1).normal(size=(3, 50))
    normals /= np.linalg.norm(normals, axis=0)
    for frame, normal in zip(np.moveaxis(frame_along(normals), 2, 0), normals.T, strict=True):
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(frame) == pytest.approx(1.0)
        np.testing.assert_allclose(frame[:, 1], normal)


# The truth.


LONG, SHORT = "4.0.0-3dball-long", "4.0.0-3dball"
"""The physics was tuned to the long recording; the short one was kept to check."""


class Comparison:
    """Plays the recorded actions and notes how far our balls are from the recorded ones.

    At the first decision of a recorded episode our ball is put where the recorded one is; its
    spin, which no observation shows, is what our own last episode left.

    Args:
        recording: Its name.
        at_every_decision: Whether to put it there at every decision.

    Attributes:
        errors: (n, 3) difference of turn, of position (m) and of velocity (m/s) of every decision
            until either ball falls.
        ends_together: For every fall, whether it came before the same decision in both.
    """

    def __init__(self, recording: str, *, at_every_decision: bool) -> None:
        _, exchanges, recorded = load_recording(recording)
        self.env = Ball3D()
        self.env.reset()
        errors, self.ends_together = [], []
        has_begun = np.zeros(12, bool)
        has_fallen = np.zeros(12, bool)
        for number, (_, reply) in enumerate(exchanges[2:-1]):
            ended, truth = (
                recorded[f"{number}|{NAME}|{field}"]
                for field in ("terminal|agent_id", "decision|obs_0")
            )
            has_fallen[ended] = True
            if len(truth) == 0:
                continue
            if number > 0:
                ours, fell = self._next_decision()
                falls = (fell | has_fallen) & has_begun
                self.ends_together += (fell & has_fallen)[falls].tolist()
                has_begun &= ~(fell | has_fallen)
                difference = (ours - truth)[has_begun]
                parts = np.split(difference, [2, 5], axis=1)
                errors.append(np.stack([np.linalg.norm(part, axis=1) for part in parts], 1))
            begins = has_fallen | (number == 0)
            self._put(np.flatnonzero(has_begun if at_every_decision else begins), truth)
            self._put(np.flatnonzero(begins), truth)
            self._turn_cubes_to(np.flatnonzero(begins), truth)
            has_begun |= begins
            has_fallen[:] = False
            self.env.set_actions(NAME, decode_input(reply, self.env.behavior_specs).actions[NAME])
        self.errors = np.concatenate(errors)

    def _next_decision(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        fell = np.zeros(12, bool)
        while True:
            self.env.step()
            decisions, terminals = self.env.get_steps(NAME)
            fell[terminals.agent_id] = True
            if len(decisions):
                return decisions.obs[0], fell

    def _put(self, agents: NDArray[np.intp], truth: NDArray[np.float32]) -> None:
        self.env.ball[POSITION][:, agents] = truth[agents, 2:5].T
        self.env.ball[VELOCITY][:, agents] = truth[agents, 5:8].T

    def _turn_cubes_to(self, agents: NDArray[np.intp], truth: NDArray[np.float32]) -> None:
        z, x = truth[agents, :2].T
        self.env.cube[:, agents] = tilted_cubes(z, x)


def test_a_decision_ahead_we_are_where_unity_is():
    comparison = Comparison(LONG, at_every_decision=True)
    turn_error, position_error, velocity_error = comparison.errors.T
    assert len(comparison.errors) > 2000
    assert turn_error.max() < 3e-5
    assert np.median(position_error) < 0.0001
    assert np.percentile(position_error, 99) < 0.003
    assert np.median(velocity_error) < 0.0005
    assert np.percentile(velocity_error, 99) < 0.05


def test_from_start_to_fall_we_stay_close_to_unity():
    comparison = Comparison(LONG, at_every_decision=False)
    _, position_error, velocity_error = comparison.errors.T
    assert len(comparison.errors) > 2000
    assert np.median(position_error) < 0.003
    assert np.percentile(position_error, 90) < 0.03
    assert np.median(velocity_error) < 0.01
    assert np.percentile(velocity_error, 90) < 0.06
    assert len(comparison.ends_together) > 100
    assert np.mean(comparison.ends_together) > 0.95


def test_a_recording_that_nothing_was_tuned_to_is_matched_from_start_to_fall():
    comparison = Comparison(SHORT, at_every_decision=False)
    _, position_error, velocity_error = comparison.errors.T
    assert len(comparison.errors) > 200
    assert position_error.max() < 0.01
    assert velocity_error.max() < 0.05
    assert all(comparison.ends_together)
    assert len(comparison.ends_together) == 4


# The picture.


def test_the_picture_shows_every_ball():
    env = Ball3D()
    env.reset()
    for agent in range(env.n_agents):
        before = env.render()
        env.ball[POSITION, X, agent] += 1.0
        assert (env.render() != before).any()
