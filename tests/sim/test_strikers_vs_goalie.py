"""Strikers Vs Goalie, by hand; what it shares with Soccer Twos is tested there."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.testing import check_env
from mlagents_sim.examples.soccer_field import BALL_RADIUS_M
from mlagents_sim.examples.strikers_vs_goalie import StrikersVsGoalie
from mlagents_sim.plane import X
from seeds import NIGHTLY

STRIKER, GOALIE = StrikersVsGoalie.specs_by_name
KEEPER, BALL = 2, 3
BALL_TAG, GOAL, WALL, MATE, GOALIE_TAG, NO_TAG, DISTANCE = range(7)


def started(**options) -> StrikersVsGoalie:
    """Make a world: strikers at x = -10 and 0, goalie at 10, looking to the right; a far ball."""
    env = StrikersVsGoalie(**options)
    env.reset()
    env.field.discs.position[:, :BALL] = np.array([[-10.0, 0.0, 10.0], [0.0] * 3])[..., None]
    env.field.discs.position[:, BALL] = [[-4.0], [5.0]]
    env.field.heading[:] = [[[1.0]], [[0.0]]]
    return env


def decide(env: StrikersVsGoalie, *actions: tuple[int, int, int]) -> None:
    """Step until the next report; the players of every field do the given actions, or nothing."""
    rows = np.zeros((3, 3), np.int32)
    rows[: len(actions)] = np.reshape(actions, (-1, 3))
    n = env.n_agents // 3
    for name, its in ((STRIKER, rows[:2]), (GOALIE, rows[2:])):
        env.set_actions(name, ActionTuple(discrete=np.tile(its, (n, 1))))
    env.step()


@pytest.mark.parametrize("num_areas", [pytest.param(1, marks=NIGHTLY), 2])
def test_strikers_vs_goalie_keeps_the_contract(num_areas: int):
    check_env(lambda seed: StrikersVsGoalie(seed=seed, num_areas=num_areas), steps=30)


def test_the_scene_is_as_published():
    env = StrikersVsGoalie()
    assert env.n_agents == 24
    shapes = {
        name: [each.shape for each in spec.observation_specs]
        for name, spec in env.behavior_specs.items()
    }
    assert shapes == {"Striker?team=0": [(231,), (63,)], "Goalie?team=1": [(738,)]}
    env.reset()
    assert len(env.get_steps(STRIKER)[0]) == 16 and len(env.get_steps(GOALIE)[0]) == 8
    assert env.get_steps(GOALIE)[0].group_id.tolist() == [2, 4, 6, 8, 10, 12, 14, 16]
    x, z = env.field.discs.position[:, KEEPER]
    assert (np.abs(x - 9.0) <= 5.0).all() and not z.any()


def test_what_the_rays_see_by_hand():
    env = started()
    decide(env)
    front, rear = (batch[0].reshape(3, -1, 7)[-1] for batch in env.get_steps(STRIKER)[0].obs)
    assert front[0, MATE] == 1.0
    np.testing.assert_allclose(front[0, DISTANCE] * 20, 10.0 - 0.8660254, rtol=1e-5)
    # To the rear, a wall closes the goal, with its face at -15.
    assert rear[0, WALL] == 1.0
    np.testing.assert_allclose(rear[0, DISTANCE] * 20, 5.0 - 0.5, rtol=1e-5)
    front, rear = (batch[1].reshape(3, -1, 7)[-1] for batch in env.get_steps(STRIKER)[0].obs)
    assert front[0, GOALIE_TAG] == 1.0 and rear[0, MATE] == 1.0
    around = env.get_steps(GOALIE)[0].obs[0][0].reshape(3, 41, 6)[-1]
    # Ahead: the goal, with its back wall at 17.5; the last two rays: the strikers behind.
    assert around[0, GOAL] == 1.0
    np.testing.assert_allclose(around[0, 5] * 20, 7.5 - 0.5, rtol=1e-5)
    assert around[39, 3] == around[40, 3] == 1.0
    assert around[19, WALL] == around[20, WALL] == 1.0  # 90 degrees to either side


def test_the_ball_does_not_get_into_the_closed_goal():
    env = started()
    env.field.discs.position[:, 0] = [[-6.0], [-3.0]]
    env.field.discs.position[:, BALL] = [[-13.0], [0.0]]
    env.field.discs.velocity[:, BALL] = [[-15.0], [0.0]]
    for _ in range(6):
        decide(env)
        assert (env.field.discs.position[X, BALL] > -15.0).all()
    assert (env.field.discs.velocity[X, BALL] > 5.0).all()


def test_strikers_run_faster_and_goalies_are_as_fast_to_the_side():
    env = started(parameters={"gravity": 0.0})
    decide(env, (1, 0, 0), (0, 1, 0), (0, 1, 0))
    # Five steps of v <- (v + push) * 0.94 add up to 4.17 pushes.
    pushes = sum(0.94**k for k in range(1, 6))
    speed = np.hypot(*env.field.discs.velocity[:, :BALL, 0])
    np.testing.assert_allclose(speed, np.array([2.6, 0.6, 2.0]) * pushes, rtol=1e-9)


def test_the_goalie_kicks_whatever_it_does():
    for player, kicks in ((KEEPER, True), (1, False)):
        env = started(parameters={"gravity": 0.0})
        ahead = [[0.5 + BALL_RADIUS_M + 0.01], [0.0]]
        env.field.discs.position[:, BALL] = env.field.discs.position[:, player] + ahead
        decide(env)
        assert (env.field.discs.velocity[X, BALL] > 10.0).all() == kicks


def test_time_costs_strikers_and_pays_the_goalie():
    env = started()
    decide(env)
    np.testing.assert_allclose(env.get_steps(STRIKER)[0].reward, -0.001)
    np.testing.assert_allclose(env.get_steps(GOALIE)[0].reward, 0.001)


def test_goals_pay_the_strikers_and_cost_the_goalie():
    env = started()
    env.field.discs.position[:, BALL, 3] = 15.05, 2.0
    env.field.discs.velocity[X, BALL, 3] = 20.0
    decide(env)
    (_, won), (_, lost) = env.get_steps(STRIKER), env.get_steps(GOALIE)
    np.testing.assert_allclose(won.group_reward, [1.0 - 1 / 5000] * 2)
    np.testing.assert_allclose(lost.group_reward, [-1.0])
    np.testing.assert_allclose(won.reward, -1 / 5000)
    assert won.group_id.tolist() == [7, 7] and lost.group_id.tolist() == [8]
