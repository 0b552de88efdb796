"""Tennis and its early rally, by hand."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.tennis import (
    BALL_RADIUS_M,
    FLOOR_M,
    NEITHER,
    RACKET_HALF_M,
    SERVE,
    A,
    B,
    Tennis,
    TennisRally,
    X,
    Y,
)

LEFT, RIGHT = Tennis.behavior_names
RALLY = TennisRally.behavior_name
BALL = 2


def started(kind: type[Tennis] | type[TennisRally] = Tennis, **options):
    """Make a world without gravity, agents at x = -7 and 7 at rest, and the ball between them."""
    env = kind(parameters={"gravity": 0.0}, **options)
    env.reset()
    env.place[X, :BALL], env.place[Y, :BALL] = [[-7.0], [7.0]], -1.5
    env.place[:, BALL] = [[1.0], [0.0]]
    env.velocity[:] = 0.0
    return env


def decide(env: Tennis, left=(0.0, 0.0, 0.0), right=(0.0, 0.0, 0.0)) -> None:
    """Step until the next report; all agents of a side do the same."""
    for name, action in ((LEFT, left), (RIGHT, right)):
        n = len(env.get_steps(name)[0])
        env.set_actions(name, ActionTuple(np.tile(np.float32(action), (n, 1))))
    env.step()


def won_by(env: Tennis) -> int | None:
    """Return the side that won the first court's point, or None if it goes on."""
    (_, left), (_, right) = env.get_steps(LEFT), env.get_steps(RIGHT)
    if 0 not in left.agent_id.tolist():
        assert 1 not in right.agent_id.tolist()
        return None
    rewards = float(left[0].reward), float(right[1].reward)
    assert sorted(rewards) == [-1.0, 1.0]
    assert not left.interrupted.any() and not right.interrupted.any()
    return A if rewards[0] > 0.0 else B


@pytest.mark.parametrize("kind", [Tennis, TennisRally])
def test_tennis_keeps_the_contract(kind: type[Tennis] | type[TennisRally]):
    check_env(kind, steps=30)


def test_the_scene_is_as_published():
    env = Tennis()
    assert env.n_agents == 36
    env.reset()
    assert len(env.get_steps(LEFT)[0]) == len(env.get_steps(RIGHT)[0]) == 18
    (spec,) = env.behavior_specs[LEFT].observation_specs
    assert spec.shape == (27,) and env.behavior_specs[LEFT].action_spec.continuous_size == 3
    (spec,) = TennisRally().behavior_spec.observation_specs
    assert spec.shape == (24,)
    x, y = env.place
    assert (np.abs(x) >= 6.0).all() and (np.abs(x) <= 8.0).all()
    assert (x[A] < 0.0).all() and (x[B] > 0.0).all()
    assert (y[:BALL] == -1.5).all() and (y[BALL] == 6.0).all()


def test_observations_are_mirrored_for_the_right_side():
    env = started()
    env.velocity[:, BALL] = [[2.0], [0.0]]
    decide(env)
    left = env.get_steps(LEFT)[0].obs[0][0, 18:]
    right = env.get_steps(RIGHT)[0].obs[0][0, 18:]
    np.testing.assert_allclose(left, [-7, -1.5, 0, 0, 1.2, 0, 2, 0, 0], atol=1e-5)
    np.testing.assert_allclose(right, [-7, -1.5, 0, 0, -1.2, 0, -2, 0, 0], atol=1e-5)


def test_agents_run_towards_the_net_and_not_through_it():
    env = started()
    env.place[Y, BALL] = 7.0
    decide(env, left=(0.5, 0, 0), right=(-0.1, 0, 0))
    np.testing.assert_allclose(env.place[X, :BALL, 0], [-7.0 + 1.5, 7.3])
    for _ in range(5):
        decide(env, left=(1.0, 0, 0), right=(1.0, 0, 0))
    np.testing.assert_allclose(env.place[X, :BALL, 0], [-1.0, 1.0])


def test_agents_jump_from_below_their_start_height_only():
    env = started()
    env.place[Y, BALL] = 7.0
    env.place[Y, A] = -3.0
    decide(env, left=(0, 0.6, 0), right=(0, 1.0, 0))
    assert env.velocity[Y, A, 0] == 7.0 and env.velocity[Y, B, 0] == 0.0
    env = Tennis()
    env.reset()
    for _ in range(40):
        env.place[:, BALL] = [[1.0], [6.0]]
        env.velocity[:, BALL] = 0.0
        decide(env)
    # It has fallen to the floor, on which the racket stands upright.
    np.testing.assert_allclose(env.place[Y, A], FLOOR_M + RACKET_HALF_M)


def test_an_upright_racket_returns_the_ball():
    # Masses of 4 and 0.75 kg: the ball leaves at -6 + 12 * 4 / 4.75 = 4.105, the racket stops at 0
    # again with the next step.
    env = started()
    env.place[:, BALL] = [[-6.0], [-1.5]]
    env.velocity[X, BALL] = -6.0
    env.last_floor[:] = NEITHER
    for _ in range(2):
        decide(env)
    np.testing.assert_allclose(env.velocity[X, BALL, 0], -6.0 + 12.0 * 4.0 / 4.75)
    assert (env.last_hit == A).all() and (env.last_floor == NEITHER).all()
    assert env._is_net_live.all()


def test_a_racket_that_leans_to_the_net_returns_the_ball_downwards():
    env = started()
    env.place[:, BALL] = [[-6.0], [-1.5]]
    env.velocity[X, BALL] = -6.0
    for _ in range(2):
        decide(env, left=(0, 0, 0.5))
    assert env.velocity[Y, BALL, 0] < -2.0
    env = started()
    env.place[:, BALL] = [[6.0], [-1.5]]
    env.velocity[X, BALL] = 6.0
    for _ in range(2):
        decide(env, right=(0, 0, -0.5))
    assert env.velocity[Y, BALL, 0] > 2.0


def test_the_ball_is_never_faster_than_nine_either_way():
    env = started()
    env.velocity[:, BALL] = [[-30.0], [4.0]]
    env.step_count = 0
    env.physics()
    np.testing.assert_allclose(env.velocity[:, BALL, 0], [-9.0, 4.0])


def fly_to(env: Tennis, x: float, y: float, way: tuple[float, float]) -> None:
    """Let the balls reach a place from 0.3 m before it, at 5 m/s."""
    env.place[:, BALL] = [[x - 0.3 * way[0]], [y - 0.3 * way[1]]]
    env.velocity[:, BALL] = [[5.0 * way[0]], [5.0 * way[1]]]
    decide(env)


@pytest.mark.parametrize(
    ("hit", "floor", "x", "winner"),
    [
        (NEITHER, SERVE, -4.0, B),  # dropped at the serve
        (NEITHER, SERVE, 4.0, A),
        (A, NEITHER, -4.0, B),  # into the own side
        (A, NEITHER, 4.0, None),  # good
        (A, B, 4.0, A),  # the second time on the other side
        (B, A, -4.0, B),
    ],
)
def test_the_floor_decides_by_who_hit_and_what_it_touched(hit: int, floor: int, x: float, winner):
    env = started()
    env.last_hit[:], env.last_floor[:] = hit, floor
    fly_to(env, x, FLOOR_M + BALL_RADIUS_M, (0.0, -1.0))
    assert won_by(env) == winner
    if winner is None:
        assert (env.last_floor == B).all()
        assert (env.velocity[Y, BALL] == 5.0).all()


@pytest.mark.parametrize(
    ("hit", "floor", "x", "winner"),
    [
        (A, NEITHER, 11.88, B),  # out: it did not touch the floor before
        (A, B, 11.88, A),
        (B, NEITHER, 11.88, A),
        (B, A, -11.88, B),
    ],
)
def test_back_walls_decide(hit: int, floor: int, x: float, winner: int):
    env = started()
    env.last_hit[:], env.last_floor[:] = hit, floor
    way = np.copysign(1.0, x)
    fly_to(env, x - way * BALL_RADIUS_M, 3.0, (way, 0.0))
    assert won_by(env) == winner


@pytest.mark.parametrize(("hit", "winner"), [(A, B), (B, A), (NEITHER, None)])
def test_the_net_costs_the_point_while_it_counts(hit: int, winner):
    for is_live in (False, True):
        env = started()
        env.last_hit[:], env.last_floor[:], env._is_net_live[:] = hit, NEITHER, is_live
        fly_to(env, -0.06 - BALL_RADIUS_M, -6.5, (1.0, 0.0))
        assert won_by(env) == (None if is_live else winner)
        if winner is None or is_live:
            assert (env.velocity[X, BALL] == -5.0).all()


def test_hitting_twice_loses():
    env = started()
    env.last_hit[:] = B
    env.place[:, BALL] = [[6.3], [-1.5]]
    env.velocity[X, BALL] = 6.0
    decide(env)
    assert won_by(env) == A


def test_rallies_pay_for_crossing_the_net_and_cost_where_they_end():
    env = started(TennisRally)
    env.last_hit[:] = A
    env.place[:, BALL] = [[-0.1], [0.0]]
    env.velocity[X, BALL] = 5.0
    env.step()
    rewards = env.get_steps(RALLY)[0].reward
    np.testing.assert_allclose(rewards[:2], [0.1, 0.0])
    fly_to_floor = [[3.0], [FLOOR_M + 0.5]], [[0.0], [-5.0]]
    env.place[:, BALL], env.velocity[:, BALL] = fly_to_floor
    env.step()
    _, terminals = env.get_steps(RALLY)
    assert len(terminals) == 36 and not terminals.interrupted.any()
    np.testing.assert_allclose(terminals.reward[:2], [0.0, -0.01])


def test_rackets_of_a_rally_are_tilted_as_the_parameter_says():
    env = TennisRally(parameters={"angle": 40.0})
    env.reset()
    np.testing.assert_allclose(np.degrees(env.tilt), -50.0)
    env.set_parameter("angle", 90.0)
    env.reset()
    np.testing.assert_allclose(np.degrees(env.tilt), -25.0)  # 65 at most


def test_parameters_that_do_not_exist_are_refused():
    with pytest.raises(UnityEnvironmentException, match="angle"):
        Tennis(parameters={"angle": 50.0})


def test_the_picture_shows_the_ball():
    env = started()
    before = env.render()
    env.place[Y, BALL, 0] = 5.0
    assert (env.render() != before).any()
