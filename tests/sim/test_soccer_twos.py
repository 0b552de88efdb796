"""Soccer Twos: by hand, and against football recorded with Unity's physics."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.circles import ABOUT_X
from mlagents_sim.examples.soccer_field import BALL_RADIUS_M, KICK_M_S, Field
from mlagents_sim.examples.soccer_twos import SoccerTwos
from mlagents_sim.plane import X, Z
from seeds import NIGHTLY
from shared_data import ROOT, require

BLUE, PURPLE = SoccerTwos.behavior_names
BALL = 4
BALL_TAG, OWN_GOAL, OTHER_GOAL, WALL, MATE, OPPONENT, NO_TAG, DISTANCE = range(8)


def started(**options) -> SoccerTwos:
    """Make a world whose players stand apart on the middle line, and whose ball is to the left.

    Blue players are at x = -10 and -8, purple ones at 8 and 10, and all look to the right.
    """
    env = SoccerTwos(**options)
    env.reset()
    env.field.discs.position[:, :BALL] = np.array([[-10.0, -8.0, 8.0, 10.0], [0.0] * 4])[..., None]
    env.field.discs.position[:, BALL] = [[-4.0], [5.0]]
    env.field.heading[:] = [[[1.0]], [[0.0]]]
    return env


def decide(env: SoccerTwos, *actions: tuple[int, int, int]) -> None:
    """Step until the next report; the players of every field do the given actions, or nothing."""
    rows = np.zeros((4, 3), np.int32)
    rows[: len(actions)] = np.reshape(actions, (-1, 3))
    n = env.n_agents // 4
    for name, its in ((BLUE, rows[:2]), (PURPLE, rows[2:])):
        env.set_actions(name, ActionTuple(discrete=np.tile(its, (n, 1))))
    env.step()


def newest(env: SoccerTwos, name: str, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the newest front and rear rays of an agent: (11, 8) and (3, 8)."""
    front, rear = env.get_steps(name)[0].obs
    return front[row].reshape(3, 11, 8)[-1], rear[row].reshape(3, 3, 8)[-1]


@pytest.mark.parametrize("num_areas", [pytest.param(1, marks=NIGHTLY), 2])
def test_soccer_twos_keeps_the_contract(num_areas: int):
    check_env(lambda seed: SoccerTwos(seed=seed, num_areas=num_areas), steps=30)


def test_the_scene_is_as_published():
    env = SoccerTwos()
    assert env.n_agents == 32
    env.reset()
    assert env.get_steps(BLUE)[0].group_id.tolist() == [k for k in range(1, 17, 2) for _ in "ab"]
    assert env.get_steps(PURPLE)[0].group_id.tolist() == [k for k in range(2, 17, 2) for _ in "ab"]
    for spec in env.behavior_specs.values():
        assert [each.shape for each in spec.observation_specs] == [(264,), (72,)]
        assert spec.action_spec.discrete_branches == (3, 3, 3)


def test_players_begin_on_their_sides_and_face_each_other():
    env = SoccerTwos(num_areas=20, seed=2)
    env.reset()
    x, z = env.field.discs.position
    assert (np.abs(x[:2] + 8.19) <= 5.0).all() and (np.abs(x[2:4] - 8.19) <= 5.0).all()
    assert (np.abs(z[:BALL]) == 1.2).all()
    assert (np.abs(env.field.discs.position[:, BALL]) <= 2.5).all()
    assert (env.field.heading[X, :2] > 0.98).all() and (env.field.heading[X, 2:] < -0.98).all()


def test_what_the_rays_see_by_hand():
    env = started()
    env.field.discs.position[:, BALL] = [[-4.0], [0.0]]
    decide(env)
    # Rays are 1 m high, and touch a ball of 0.6242 m at 0.5 m with a sphere of 0.5 m where their
    # centers are sqrt(1.1242^2 - 0.5^2) = 1.00688 m apart; players at sqrt(1 - 0.25) = 0.866 m.
    front, rear = newest(env, BLUE, 0)
    assert front[0, MATE] == 1.0
    np.testing.assert_allclose(front[0, DISTANCE] * 20, 2.0 - 0.8660254, rtol=1e-5)
    # 12 degrees to either side: past the mate by 0.416 m at its place: seen. Straight back: the own
    # goal, whose back wall is at -17.5.
    assert rear[0, OWN_GOAL] == 1.0
    np.testing.assert_allclose(rear[0, DISTANCE] * 20, 7.5 - 0.5, rtol=1e-5)
    front, rear = newest(env, BLUE, 1)
    assert front[0, BALL_TAG] == 1.0
    np.testing.assert_allclose(front[0, DISTANCE] * 20, 4.0 - 1.0068851, rtol=1e-5)
    assert rear[0, MATE] == 1.0
    assert rear[1, WALL] == 1.0  # across the corner
    # Purple players look away from the ball: the other's back, then the goal that is theirs.
    front, rear = newest(env, PURPLE, 0)
    assert front[0, MATE] == 1.0
    assert rear[0, BALL_TAG] == 1.0
    front, rear = newest(env, PURPLE, 1)
    assert front[0, OWN_GOAL] == 1.0
    assert rear[0, MATE] == 1.0
    env.field.heading[:] *= -1.0
    env.field.discs.position[Z, 0] = 3.0
    decide(env)
    front, rear = newest(env, BLUE, 0)
    assert front[0, OWN_GOAL] == 1.0
    assert front[9, WALL] == front[10, WALL] == 1.0


def test_the_opposing_goal_is_the_other_teams():
    env = started()
    env.field.discs.position[:, :BALL] = np.array([[4.0, 0.0, 8.0, 4.0], [0.0, 3, -5, -4]])[
        ..., None
    ]
    decide(env)
    front, _ = newest(env, BLUE, 0)
    assert front[0, OTHER_GOAL] == 1.0
    np.testing.assert_allclose(front[0, DISTANCE] * 20, 13.0, rtol=1e-5)
    front, _ = newest(env, BLUE, 1)  # a ray of 24 degrees to the right meets the purple one
    assert front[:, OPPONENT].sum() >= 1


@pytest.mark.parametrize(
    ("action", "way", "speed"),
    [
        ((1, 0, 0), (1, 0), 2.0),
        ((2, 0, 0), (-1, 0), 2.0),
        ((1, 1, 0), (0, -1), 0.6),
        ((2, 2, 0), (0, 1), 0.6),
    ],
)
def test_players_run_by_their_action(action: tuple[int, ...], way: tuple[int, int], speed: float):
    env = started()
    decide(env, action)
    # Five steps: v <- (v + push) * 0.94 - 0.35 * 9.81 * 0.02 * 0.94
    expected = 0.0
    for _ in range(5):
        expected = (expected + speed) * 0.94 - 0.35 * 9.81 * 0.02 * 0.94
    velocity = env.field.discs.velocity[:, 0, 0]
    np.testing.assert_allclose(velocity, np.multiply(way, expected), atol=1e-9)


def test_players_turn_by_two_degrees_in_a_step():
    env = started()
    decide(env, (0, 0, 1), (0, 0, 2))
    yaw = np.degrees(np.arctan2(*env.field.heading[:, :, 0]))
    np.testing.assert_allclose(yaw, [80.0, 100.0, 90.0, 90.0])


def before_the_ball(env: SoccerTwos, player: int, gap_m: float) -> None:
    """Put the ball right before a player."""
    ahead = 0.5 + BALL_RADIUS_M + gap_m
    env.field.discs.position[:, BALL] = env.field.discs.position[:, player] + [[ahead], [0.0]]


@pytest.mark.parametrize(("action", "speed"), [((1, 0, 0), KICK_M_S), ((0, 0, 0), 0.0)])
def test_a_player_that_runs_ahead_kicks_the_ball(action: tuple[int, ...], speed: float):
    # The contact begins at once; the kick comes with the next step, once.
    env = started(parameters={"gravity": 0.0})
    env.field.discs.velocity[X, 0] = 1.0
    before_the_ball(env, 1, 0.01)
    decide(env, (0, 0, 0), action)
    kicked = env.field.discs.velocity[X, BALL, 0]
    assert kicked == pytest.approx(speed * 0.98**4, abs=4.0 if speed else 0.1)
    assert (kicked > 10.0) == (speed > 0.0)


def test_touches_are_paid_if_asked_for():
    env = started(parameters={"ball_touch": 0.5})
    before_the_ball(env, 1, 0.01)
    decide(env, (0, 0, 0), (1, 0, 0))
    assert env.get_steps(BLUE)[0].reward.tolist() == pytest.approx([0.0, 0.1] * 8)
    assert not env.get_steps(PURPLE)[0].reward.any()


@pytest.mark.parametrize(("x", "scorer", "loser"), [(15.05, BLUE, PURPLE), (-15.05, PURPLE, BLUE)])
def test_goals_pay_one_team_and_cost_the_other(x: float, scorer: str, loser: str):
    env = started()
    for _ in range(20):
        decide(env)
    env.field.discs.position[:, BALL, 3] = x, 2.0
    env.field.discs.velocity[X, BALL, 3] = np.copysign(20.0, x)
    decide(env)
    (_, won), (_, lost) = env.get_steps(scorer), env.get_steps(loser)
    assert len(won) == len(lost) == 2
    assert not won.interrupted.any() and not lost.interrupted.any()
    np.testing.assert_allclose(won.group_reward, 1.0 - 101 / 5000)
    np.testing.assert_allclose(lost.group_reward, -1.0)
    assert set(won.group_id.tolist()) == {7 if scorer == BLUE else 8}
    assert env.field.age[3] == 0 and env.field.age[0] == 101


def test_time_interrupts_both_groups_without_a_reward():
    env = SoccerTwos()
    env.max_steps = 20
    env.reset()
    env.field.discs.position[:, BALL] = 0.0
    for _ in range(4):
        decide(env)
    for name in (BLUE, PURPLE):
        _, terminals = env.get_steps(name)
        assert len(terminals) == 16 and terminals.interrupted.all()
        assert not terminals.group_reward.any()


def test_parameters_that_do_not_exist_are_refused():
    with pytest.raises(UnityEnvironmentException, match="ball_touch"):
        SoccerTwos(parameters={"ball_touches": 1.0})


def test_the_ball_rolls():
    env = started()
    env.field.discs.velocity[Z, BALL] = -3.0
    for _ in range(6):
        decide(env)
    discs = env.field.discs
    slip = discs.velocity[Z, BALL] - discs.spin[ABOUT_X, BALL] * 0.5
    np.testing.assert_allclose(slip, 0.0, atol=1e-6)


def test_the_picture_shows_the_ball():
    env = started()
    before = env.render()
    env.field.discs.position[:, BALL, 0] = 0.0
    assert (env.render() != before).any()


# Recorded football.

ORDER = [1, 4, 0, 3, 2]
"""Bodies of the recordings: two of the blue team, two of the purple one, the ball."""


def put(field: Field, state: NDArray[np.float64]) -> None:
    """Put players and ball of all fields as recorded: (N, 5, 13)."""
    discs = field.discs
    discs.position[:] = state[..., [0, 2]].T
    discs.velocity[:] = state[..., [7, 9]].T
    discs.spin[:] = state[..., [10, 12, 11]].T
    discs.spin[:, :BALL] = 0.0
    yaw = 2.0 * np.arctan2(state[:, :BALL, 4], state[:, :BALL, 6]).T
    field.heading[:] = np.sin(yaw), np.cos(yaw)


def play(field: Field, actions: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Play a decision of (N, 4, 3) actions; return (5, N) which bodies touched anything."""
    n = actions.shape[0]
    players, fields = np.divmod(np.arange(4 * n), n)
    field.command(players, fields, actions.transpose(1, 0, 2).reshape(-1, 3).astype(np.intp))
    discs = field.discs
    touched = np.zeros((5, n), np.bool_)
    for _ in range(5):
        at_walls = discs._walls.near(discs.position, discs._radius[:-1])
        if at_walls is not None:
            touched[at_walls[0], at_walls[1]] = True
        field.steer()
        field.move()
        for pair, bodies in enumerate(discs.pairs.T):
            touched[bodies] |= discs.touching[pair]
    return touched


@pytest.mark.usefixtures("form")
def test_a_run_of_steps_stops_at_a_goal_and_counts_touches():
    field = started().field
    discs = field.discs
    # On one field, the ball is 0.3 m before the line of the goal. It makes 0.2 m in a step at most.
    discs.position[:, BALL, 1], discs.velocity[:, BALL, 1] = (14.8, 0.0), (10.0, 0.0)
    assert field.run(5) == 2
    np.testing.assert_array_equal(field.goals(), [0, 1, *[0] * 6])
    np.testing.assert_array_equal(field.age, 2)
    np.testing.assert_array_equal(field.touches, 0)
    # On another one, two players stand at the ball.
    discs.position[:, BALL, 1] = 0.0, 5.0
    discs.position[:, BALL, 2] = -11.13, 0.0
    discs.position[:, 1, 2] = -12.26, 0.0
    assert field.run(5) == 5
    touches = np.zeros((4, 8))
    touches[:2, 2] = 1.0
    np.testing.assert_array_equal(field.touches, touches)
    field.run(1)
    np.testing.assert_array_equal(field.touches, 0)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("kind", ["steps", "decisions"])
def test_recorded_football_goes_as_in_unity(kind: str):
    # Every decision is played from the recorded state before it. The one before is played first,
    # to know which kick is about to take effect. A ball in a goal ends an episode, so states with
    # one are left out.
    recorded = np.load(require(ROOT / "physics" / f"soccertwos_random_{kind}.npz"))
    states = np.concatenate([recorded["state0"][:, None], recorded["state"]], axis=1)[:, :, ORDER]
    states = states[:, ::5] if kind == "steps" else states
    before, now, then = (
        states[:, k : states.shape[1] - 2 + k].reshape(-1, 5, 13).astype(np.float64)
        for k in range(3)
    )
    acted, acts = (recorded["actions"][:, k : -1 + k or None].reshape(-1, 4, 3) for k in range(2))
    field = Field(
        len(now), (-1, -1, 1, 1), forward=[1.0] * 4, aside=[0.3] * 4, kicks_always=[False] * 4
    )
    field.discs.set_gravity(slice(None), 9.81)
    put(field, before)
    play(field, acted)
    put(field, now)
    touched = play(field, acts)
    error = np.hypot(*(field.discs.position - then[..., [0, 2]].T))
    is_on_field = (np.abs(now[:, BALL, 0]) < 15.0) & (np.abs(then[:, BALL, 0]) < 15.0)
    error, touched = error[:, is_on_field], touched[:, is_on_field]
    for which in (slice(0, BALL), slice(BALL, None)):
        free, met = error[which][~touched[which]], error[which][touched[which]]
        assert len(free) > 400 and len(met) > 100
        assert np.median(free) <= 0.001 and np.quantile(free, 0.9) <= 0.01
        assert np.median(met) <= 0.05 and np.quantile(met, 0.75) <= 0.25
