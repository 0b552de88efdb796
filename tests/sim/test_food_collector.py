"""Food Collector, by hand, and with one who goes where the food is."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_envs.demonstration_file import ActionPlacement, read_demonstration
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.food_collector import (
    AGENT_TAG,
    BAD_TAG,
    FROZEN_TAG,
    GOOD_TAG,
    WALL_TAG,
    GridFoodCollector,
)
from mlagents_sim.examples.food_floors import FALL_STEPS
from mlagents_sim.examples.ray_food_collector import RayFoodCollector
from mlagents_sim.plane import X, Z
from shared_data import ROOT, require
from worlds import Policy, at_random, play, set_discrete

NAME = GridFoodCollector.behavior_name
GOOD, BAD = 3, 30
"""A piece of either kind."""


def started(world=GridFoodCollector, **options):
    """Make a world in which nothing is near: agents in the corners and one in the middle."""
    env = world(**options)
    env.reset()
    env.bodies.stand()
    env.floors.find_touch()
    env.bodies.velocity[:] = 0.0
    env.bodies.heading[:] = [[[0.0]], [[1.0]]]
    corners = np.array([[0, -40, -40, 40, 40], [0, -40, 40, -40, 40]], np.float64)
    env.bodies.position[:] = corners[:, :, None]
    env.food[:] = np.reshape([-45.0, 0.0], (2, 1, 1))
    return env


def do(env: GridFoodCollector, ahead=0.0, right=0.0, left_turn=0.0, shoot=0) -> None:
    """Let the first agent of the first area do this for one decision; the others rest."""
    continuous, discrete = np.zeros((env.n_agents, 3)), np.zeros((env.n_agents, 1))
    continuous[0], discrete[0] = (ahead, right, left_turn), shoot
    env.set_actions(NAME, ActionTuple(continuous, discrete))
    env.step()


def command(env: GridFoodCollector, members: list[int], *, ahead, shoots) -> None:
    """Command agents of the first area to push ahead and to shoot."""
    rest = np.zeros(len(members))
    env.floors.command(
        np.zeros(len(members), np.intp),
        np.array(members),
        ahead=np.array(ahead),
        right=rest,
        left_turn=rest,
        shoots=np.array(shoots),
    )


def grid_of(env: GridFoodCollector) -> list[tuple[int, int, int]]:
    """Return what the first agent sees: tag, cells to the right and ahead of the middle."""
    seen = env.get_steps(NAME)[0].obs[0][0]
    return [(tag, 19 - row, column - 20) for tag, row, column in np.argwhere(seen).tolist()]


@pytest.mark.parametrize("num_areas", [1, 2])
def test_food_collector_keeps_the_contract(num_areas: int):
    check_env(lambda seed: GridFoodCollector(seed=seed, num_areas=num_areas), steps=25)


def test_the_scene_is_as_published():
    env = GridFoodCollector()
    assert env.n_agents == 20
    assert env.food.shape == (2, 50, 4)
    (grid,) = env.behavior_spec.observation_specs
    assert (grid.shape, grid.name) == ((5, 40, 40), "GridSensor")
    assert env.behavior_spec.action_spec.continuous_size == 3
    assert env.behavior_spec.action_spec.discrete_branches == (2,)


def test_food_is_seen_as_a_disc():
    # In the middle of a cell. At the grid, 0.24 m below its middle at least, it has a radius of
    # 0.711 m, so it reaches just beyond the corners of that cell, 0.707 m away.
    env = started()
    env.food[:, BAD] = [[5.5], [10.5]]
    env.food[:, GOOD] = [[-9.6], [-9.6]]
    do(env)
    bad = {cell for cell in grid_of(env) if cell[0] == BAD_TAG}
    around = {(BAD_TAG, right, ahead) for right in (4, 5, 6) for ahead in (9, 10, 11)}
    assert around <= bad
    good = {cell for cell in grid_of(env) if cell[0] == GOOD_TAG}
    assert (GOOD_TAG, -10, -10) in good and (GOOD_TAG, -8, -10) not in good


def test_the_grid_turns_with_the_agent():
    env = started()
    env.food[:, GOOD] = [[10.5], [0.0]]
    for _ in range(3):
        do(env, left_turn=-1.0)
    np.testing.assert_allclose(env.bodies.heading[:, 0, 0], [1.0, 0.0], atol=1e-9)
    assert (GOOD_TAG, 0, 10) in grid_of(env)


def test_others_are_seen_frozen_or_not():
    env = started()
    env.bodies.position[:, 1, 0] = 3.5, -6.5
    env.frozen[2, 0] = 50
    env.bodies.position[:, 2, 0] = -3.5, -6.5
    do(env)
    # Squares of 1 m, which fill one cell and just touch the next.
    assert {(AGENT_TAG, 3, -7), (FROZEN_TAG, -4, -7)} <= set(grid_of(env))


def test_the_grid_sees_others_as_large_as_they_are():
    # A square of 2.8 m, from 2.1 to 4.9 m to the right, from 5.1 to 7.9 m behind.
    env = started()
    env.bodies.half[:, 1, 0] = 1.4
    env.bodies.position[:, 1, 0] = 3.5, -6.5
    do(env)
    seen = {cell for cell in grid_of(env) if cell[0] == AGENT_TAG}
    assert seen == {(AGENT_TAG, right, ahead) for right in (2, 3, 4) for ahead in (-8, -7, -6)}


def test_walls_are_seen_as_bands():
    env = started()
    env.bodies.position[X, 0] = 40.0
    do(env)
    seen = {cell for cell in grid_of(env) if cell[0] == WALL_TAG}
    assert {(WALL_TAG, 10, ahead) for ahead in range(-20, 20)} <= seen
    assert all(right in (9, 10, 11) for _, right, _ in seen)


@pytest.mark.parametrize(("piece", "reward"), [(GOOD, 1.0), (BAD, -1.0)])
def test_food_pays_when_touched_and_comes_back_elsewhere(piece: int, reward: float):
    env = started()
    env.food[:, piece, 0] = 0.0, 1.2  # the agent's front is 0.7 m away
    do(env)
    decisions, terminals = env.get_steps(NAME)
    assert len(terminals) == 0
    assert decisions.reward.tolist() == [reward] + [0.0] * 19
    assert env.falling[piece, 0] == FALL_STEPS - 4
    assert not any(tag in (GOOD_TAG, BAD_TAG) for tag, _, _ in grid_of(env))
    env.food[:, piece, 0] = 0.0, 1.2
    do(env)
    assert env.get_steps(NAME)[0].reward[0] == 0.0  # it is still in the air


def test_pushes_by_hand():
    # v = (v + 2 - 2 * 0.6 * 9.81 * 0.02) (1 - 0.5 * 0.02), at an angle: forward 0.6, right 0.8.
    # Faster than 5 m/s, it loses 5 % before the push.
    env = started()
    do(env, ahead=0.6, right=0.8)
    speed = place = 0.0
    for _ in range(5):
        speed *= 0.95 if speed > 5.0 else 1.0
        speed = (speed + 2.0 - 0.23544) * 0.99
        place += speed * 0.02
    np.testing.assert_allclose(env.bodies.position[:, 0, 0], [0.8 * place, 0.6 * place], rtol=1e-6)


def test_who_shoots_is_slower():
    # v = (0.75 v + 1 - 2 * 0.6 * 9.81 * 0.02) (1 - 0.5 * 0.02).
    env = started()
    do(env, ahead=1.0, shoot=1)
    speed = 0.0
    for _ in range(5):
        speed = (0.75 * speed + 1.0 - 0.23544) * 0.99
    np.testing.assert_allclose(env.bodies.velocity[Z, 0, 0], speed)


@pytest.mark.parametrize(
    ("other", "food", "is_hit"),
    [
        ((0.0, 20.0), (-9.0, 9.0), True),
        ((2.4, 20.0), (-9.0, 9.0), True),  # the laser is 2 m thick, the agent 0.5
        ((2.6, 20.0), (-9.0, 9.0), False),
        ((0.0, 28.0), (-9.0, 9.0), False),  # too far
        ((0.0, -9.0), (-9.0, 9.0), False),  # behind
        ((0.0, 20.0), (0.0, 10.0), False),  # food is in the way
        ((0.0, 10.0), (0.0, 20.0), True),  # food is behind
    ],
)
def test_the_laser_freezes_what_it_hits_first(other, food, is_hit: bool):
    env = started()
    env.bodies.position[:, 3, 0] = other
    env.food[:, GOOD, 0] = food
    do(env, shoot=1)
    assert (env.frozen[3, 0] > 0) == is_hit
    assert np.count_nonzero(env.frozen) == is_hit


@pytest.mark.parametrize(("ahead_m", "is_hit"), [(27.4, True), (27.6, False)])
@pytest.mark.parametrize("laser_length", [0.2, 7.0])
def test_the_laser_reaches_as_far_however_long_it_is_drawn(
    laser_length: float, ahead_m: float, is_hit: bool
):
    # 25 m from sphere to sphere of 2 m, and 0.5 m from the agent's face to its middle.
    env = started(parameters={"laser_length": laser_length})
    env.bodies.position[:, 3, 0] = 0.0, ahead_m
    env.food[:, :, 0] = -9.0
    do(env, shoot=1)
    assert (env.frozen[3, 0] > 0) == is_hit


@pytest.mark.parametrize("laser_length", [1.0, 1.6])
def test_the_scene_shows_the_laser_as_long_as_it_is_drawn(laser_length: float):
    env = started(parameters={"laser_length": laser_length})
    env.is_shooting[0, 0] = True
    laser = next(solids for solids in env.scene().solids if solids.name == "laser")
    is_shown = np.isfinite(laser.position).all(axis=1)
    assert np.flatnonzero(is_shown).tolist() == [0]
    assert laser.size[0, 2] == pytest.approx(25.0 * laser_length)


@pytest.mark.parametrize(("beside_wall_m", "is_hit"), [(3.0, True), (1.0, False)])
def test_a_wall_in_its_way_stops_the_laser(beside_wall_m: float, is_hit: bool):
    env = started()
    slope = np.arctan2(1.0, 10.0)  # 1 m nearer to the wall at the other's
    env.bodies.heading[:, 0, 0] = np.sin(slope), np.cos(slope)
    env.bodies.position[:, 0, 0] = 50.0 - beside_wall_m - 1.0, 0.0
    env.bodies.position[:, 3, 0] = 50.0 - beside_wall_m, 10.0
    do(env, shoot=1)
    assert (env.frozen[3, 0] > 0) == is_hit


def test_who_is_hit_rests_for_four_seconds():
    env = started()
    victim = env.bodies.position[:, 3, 0]
    victim[:] = 0.0, 20.0
    place = victim.copy()
    continuous, shoot = np.zeros((env.n_agents, 3)), np.zeros((env.n_agents, 1))
    continuous[3, 0], shoot[0] = 1.0, 1.0
    env.act()  # a step without a command
    command(env, [0], ahead=[0.0], shoots=[True])
    env.act()
    command(env, [0, 3], ahead=[0.0, 1.0], shoots=[False, False])
    for _ in range(200):
        env.act()
        env.physics()
        np.testing.assert_array_equal(env.bodies.position[:, 3, 0], place)
    env.act()
    env.physics()
    assert env.bodies.position[Z, 3, 0] > place[Z]


def test_who_is_frozen_neither_pushes_nor_turns_nor_shoots():
    env = started()
    env.frozen[0, 0] = 100
    place = env.bodies.position[:, 0, 0].copy()
    for _ in range(19):
        do(env, ahead=1.0, left_turn=1.0, shoot=1)
        assert not env.is_shooting[0, 0]
    np.testing.assert_array_equal(env.bodies.position[:, 0, 0], place)
    np.testing.assert_array_equal(env.bodies.heading[:, 0, 0], [0.0, 1.0])


def test_food_slows_who_runs_into_it():
    # It is 5 kg, the agent 10: who meets it head on keeps two thirds. An edge that passes it at
    # 45 degrees loses half of that third in its way, and as much aside.
    for place, kept, aside in (((0.0, 1.2), 2 / 3, 0.0), ((0.99, 0.99), 5 / 6, -1 / 6)):
        env = started()
        env.food[:, GOOD, 0] = place
        env.bodies.velocity[Z, 0, 0] = 3.0
        speed = (3.0 - 0.23544) * 0.99
        env.act()
        env.physics()
        assert env.reward[0] == 1.0
        np.testing.assert_allclose(env.bodies.velocity[Z, 0, 0], kept * speed, rtol=0.03)
        np.testing.assert_allclose(env.bodies.velocity[X, 0, 0], aside * speed, rtol=0.06)


def test_who_leaves_food_behind_is_not_held():
    env = started()
    env.food[:, GOOD, 0] = 0.0, 1.2
    env.bodies.velocity[Z, 0, 0] = -1.0
    env.act()
    env.physics()
    assert env.reward[0] == 1.0
    np.testing.assert_allclose(env.bodies.velocity[Z, 0, 0], -(1.0 - 0.23544) * 0.99, rtol=1e-6)


@pytest.mark.parametrize(("scale", "reach"), [(1.0, 0.75), (0.5, np.sqrt(0.75**2 - 0.25**2))])
def test_food_bulges_over_small_agents(scale: float, reach: float):
    env = started(parameters={"agent_scale": scale})
    for beyond, reward in ((0.05, 0.0), (0.01, 1.0)):
        env.food[:, GOOD, 0] = 0.0, 0.5 * scale + reach + beyond
        env.physics()
        assert env.reward[0] == reward


def test_starts_are_spread_and_food_outlives_episodes():
    env = GridFoodCollector(num_areas=10, seed=1)
    env.reset()
    assert (np.abs(env.bodies.position) <= 45).all() and env.bodies.position.std() > 20
    assert (np.abs(env.food) <= 45).all() and env.food.std() > 20
    degrees = np.degrees(np.arctan2(*env.bodies.heading)).ravel()
    np.testing.assert_allclose(degrees, degrees.round(), atol=1e-9)
    assert np.bincount((degrees.round().astype(int) + 180) // 90 % 4).min() > 30  # of 200
    food = env.food.copy()
    env.end(np.arange(env.n_agents), interrupted=True)
    np.testing.assert_array_equal(env.food, food)
    env.reset()
    assert (env.food != food).all()


@pytest.mark.parametrize(("scale", "half"), [(3.0, 1.5), (0.0, 0.25), (-1.0, 0.25), (1e4, 2.5)])
def test_agents_have_the_size_of_the_parameter_where_that_can_be(scale: float, half: float):
    env = GridFoodCollector(parameters={"agent_scale": scale})
    env.reset()
    assert (env.bodies.half == half).all()


def test_a_closed_world_keeps_its_food():
    env = GridFoodCollector()
    env.reset()
    food = env.food.copy()
    env.close()
    with pytest.raises(UnityEnvironmentException, match="closed"):
        env.reset()
    np.testing.assert_array_equal(env.food, food)


def test_agents_are_drawn_as_large_as_they_are():
    env = started()
    env.bodies.half[:, 0] = [2.0, 4.0, 4.0, 4.0]
    agents = next(solids for solids in env.scene().solids if solids.name == "agent")
    first = [int(np.flatnonzero(agents.area == area)[0]) for area in range(4)]
    assert agents.size[first, 0].tolist() == [4.0, 8.0, 8.0, 8.0]


def test_every_agent_has_a_size_of_its_own_where_that_is_drawn():
    env = GridFoodCollector()
    env.set_uniform_sampler_parameters("agent_scale", 1.0, 3.0, 1)
    env.reset()
    half_x, half_z = env.bodies.half
    np.testing.assert_array_equal(half_x, half_z)
    assert len(set(half_x.ravel())) == env.n_agents
    assert (half_x >= 0.5).all() and (half_x <= 1.5).all()


def test_time_runs_out_after_a_thousand_decisions():
    env = started()
    env.step_count = 4990
    do(env)
    assert len(env.get_steps(NAME)[1]) == 0
    do(env)
    _, terminals = env.get_steps(NAME)
    assert len(terminals) == 20 and terminals.interrupted.all()


def to_the_nearest(env: GridFoodCollector) -> Policy:
    """Make a policy that turns to the nearest good food it sees, and goes on."""

    def policy(decisions: DecisionSteps) -> ActionTuple:
        seen = decisions.obs[0][:, GOOD_TAG]
        right, ahead = 19.5 - np.arange(40)[:, None], np.arange(40) - 19.5
        distance = np.where(seen > 0, np.hypot(right, ahead), np.inf).reshape(len(seen), -1)
        cell = distance.argmin(axis=1)
        aside = np.arctan2(right[cell // 40, 0], ahead[cell % 40])
        aside = np.where(np.isfinite(distance.min(axis=1)), aside, 0.5)
        continuous = np.stack([0.3 + 0 * aside, 0 * aside, -aside / np.radians(30)], axis=1)
        return ActionTuple(continuous, np.zeros((len(seen), 1)))

    return policy


def test_one_who_goes_for_food_gets_it_and_chance_does_not():
    env = GridFoodCollector(seed=2)
    env.max_steps = 1000  # a fifth of an episode
    gathered = play(env, to_the_nearest(env), episodes=20).returns
    assert gathered.mean() > 5.0
    env = GridFoodCollector(seed=2)
    env.max_steps = 1000
    chance = play(env, at_random(env), episodes=20).returns
    assert np.abs(chance.mean()) < 2.0


def test_nobody_leaves_the_area_whatever_they_do():
    env = GridFoodCollector(seed=3)
    policy = at_random(env)
    env.reset()
    for _ in range(100):
        env.set_actions(NAME, policy(env.get_steps(NAME)[0]))
        env.step()
        assert (np.abs(env.bodies.position) < 50.0).all()
        assert np.isfinite(env.bodies.velocity).all()


# The variant with rays.


def test_rays_keep_the_contract():
    check_env(lambda seed: RayFoodCollector(seed=seed), steps=25)


def test_rays_by_hand():
    env = started(RayFoodCollector)
    env.bodies.position[:, 2, 0] = 0.0, 30.0
    env.frozen[2, 0] = 50
    set_discrete(env, 0, 0, 0, 0)
    rays, own = (batch[0] for batch in env.get_steps(env.behavior_name)[0].obs)
    rays = rays.reshape(7, 7)
    # The frozen agent's face is at 29.5, touched by a sphere of 0.5 at 29.
    np.testing.assert_allclose(rays[0], [0, 0, 0, 0, 1, 0, 29 / 50], rtol=1e-6)
    np.testing.assert_allclose(own, [0, 0, 0, 0])
    # Food: spheres of 0.5 and 0.75 whose middles differ by 0.25 in height touch at sqrt(1.5).
    env.food[:, BAD] = [[0.0], [12.0]]
    env.frozen[2, 0] = 0
    set_discrete(env, 0, 0, 0, 1)
    rays, own = (batch[0] for batch in env.get_steps(env.behavior_name)[0].obs)
    np.testing.assert_allclose(
        rays.reshape(7, 7)[0], [0, 0, 0, 1, 0, 0, (12 - np.sqrt(1.5)) / 50], rtol=1e-6
    )
    np.testing.assert_allclose(own, [0, 0, 0, 1])


def test_rays_see_others_as_large_as_they_are():
    # Of an agent of 3 m, 30 m ahead, the face is at 28.5, touched by a sphere of 0.5 at 28.
    env = started(RayFoodCollector)
    env.bodies.half[:, 2, 0] = 1.5
    env.bodies.position[:, 2, 0] = 0.0, 30.0
    set_discrete(env, 0, 0, 0, 0)
    ahead = env.get_steps(env.behavior_name)[0].obs[0][0, :7]
    np.testing.assert_allclose(ahead, [0, 1, 0, 0, 0, 0, 28 / 50], rtol=1e-6)


def test_rays_are_as_large_as_the_agent():
    # Those of an agent of 2 m are 100 m long and 1 m thick: they see a wall 95 m away.
    def ahead() -> np.ndarray:
        set_discrete(env, 0, 0, 0, 0)
        return env.get_steps(env.behavior_name)[0].obs[0][0][:7]

    env = started(RayFoodCollector, parameters={"agent_scale": 2.0})
    env.bodies.position[:, 0, 0] = 0.0, -45.0
    np.testing.assert_allclose(ahead(), [0, 0, 1, 0, 0, 0, 0.94], rtol=1e-6)
    env.bodies.position[:, 2, 0] = 0.0
    np.testing.assert_allclose(ahead(), [0, 1, 0, 0, 0, 0, 0.43], rtol=1e-6)
    env.food[:, BAD] = [[0.0], [-25.0]]  # spheres of 1 and 0.75 touch at sqrt(1.75^2 - 0.25^2)
    np.testing.assert_allclose(ahead(), [0, 0, 0, 1, 0, 0, (20 - np.sqrt(3)) / 100], rtol=1e-6)


@pytest.mark.parametrize(
    ("action", "way"),
    [
        ((1, 0, 0, 0), (0, 1)),
        ((2, 0, 0, 0), (0, -1)),
        ((1, 1, 0, 0), (1, 0)),
        ((0, 2, 0, 0), (-1, 0)),
    ],
)
def test_choices_push_ahead_or_aside(action: tuple[int, ...], way: tuple[int, int]):
    env = started(RayFoodCollector)
    set_discrete(env, *action)
    place = env.bodies.position[:, 0, 0]
    np.testing.assert_allclose(place / np.hypot(*place), way, atol=1e-12)
    own = env.get_steps(env.behavior_name)[0].obs[1][0]
    np.testing.assert_allclose(own[:2], env.bodies.velocity[:, 0, 0], rtol=1e-6)


@pytest.mark.parametrize(("turn", "degrees"), [(1, -30.0), (2, 30.0)])
def test_choices_turn_left_and_right(turn: int, degrees: float):
    env = started(RayFoodCollector)
    set_discrete(env, 0, 0, turn, 0)
    assert np.degrees(np.arctan2(*env.bodies.heading[:, 0, 0])) == pytest.approx(degrees)


def apart(n_agents: int) -> RayFoodCollector:
    """Make a world of so many agents at least, at rest, none of which meets anything."""
    env = RayFoodCollector(num_areas=-(-n_agents // RayFoodCollector.agents_per_area))
    env.reset()
    env.food[:] = 1e6
    env.bodies.position[:] = np.linspace(-30.0, 30.0, env.n_members)[:, None]
    env.bodies.heading[:] = [[[0.0]], [[1.0]]]
    return env


def go(env: RayFoodCollector, actions: np.ndarray) -> np.ndarray:
    """Let the first n agents do (n, 4) for one decision; return their velocities as observed."""
    discrete = np.zeros((env.n_agents, 4), np.int32)
    discrete[: len(actions)] = actions
    env.set_actions(env.behavior_name, ActionTuple(discrete=discrete))
    env.step()
    return env.get_steps(env.behavior_name)[0].obs[1][: len(actions), :2]


def test_velocities_follow_as_recorded_in_unity():
    # One decision from each recorded one, of those on the floor and not frozen. A fourth of them
    # at most meets food, a wall or another agent. The action of a decision is in the record after.
    file = require(ROOT / "demonstrations" / "ExpertFood.demo")
    recorded = read_demonstration(file, action_placement=ActionPlacement.SAME_RECORD).records
    own, actions = recorded.obs[1], recorded.action.discrete
    firsts = np.concatenate([[0], np.flatnonzero(recorded.done)])
    is_used = ~recorded.done[1:] & (own[:-1, 2] + own[1:, 2] == 0.0)
    for first in firsts:
        is_used[first : first + 7] = False
    (at,) = is_used.nonzero()
    env = apart(len(at))
    env.bodies.stand()
    area, member = env._area[: len(at)], env._member[: len(at)]
    env.bodies.velocity[:, member, area] = own[at, :2].T
    residual = np.hypot(*(go(env, actions[at + 1]) - own[at + 1, :2]).T)
    assert len(at) > 3500
    assert np.quantile(residual, 0.75) < 0.005
    assert np.median(residual) < 1e-4


def test_agents_fall_at_the_start_as_recorded_in_unity():
    # They fall by a meter, in 26 to 28 steps, as what limits their speed slows the fall, too.
    # Then landing takes more than 3 m/s. Three recorded episodes begin without meeting anything.
    file = require(ROOT / "demonstrations" / "ExpertFood.demo")
    recorded = read_demonstration(file, action_placement=ActionPlacement.SAME_RECORD).records
    own, actions = recorded.obs[1], recorded.action.discrete
    firsts = np.array([0, 1001, 2002])
    env = apart(len(firsts))
    for decision in range(1, 9):
        seen = go(env, actions[firsts + decision])
        np.testing.assert_allclose(seen, own[firsts + decision, :2], atol=0.005)
        assert env.bodies.is_falling == (decision < 8)


def test_food_is_seen_and_touched_from_above_by_those_who_fall():
    # The agent's middle is 1.5 m above the floor, and food's 0.75 m: spheres of 0.5 and 0.75 meet
    # at sqrt(1.25^2 - 0.75^2) = 1 m. Its lower face is 0.25 m above the middle of the food.
    env = apart(1)
    env.food[:, BAD, 0] = env.bodies.position[:, 0, 0] + [0.0, 12.0]
    rays, _ = env.observe(slice(None))
    np.testing.assert_allclose(rays[0][:7], [0, 0, 0, 1, 0, 0, 11 / 50], rtol=1e-6)
    np.testing.assert_allclose(env.floors.touch_m, 0.02 + np.sqrt(0.75**2 - 0.25**2))
    for _ in range(8):
        go(env, np.zeros((1, 4), np.int32))
    np.testing.assert_allclose(env.floors.touch_m, 0.02 + 0.75)


def test_the_grid_sees_little_of_food_below_it():
    # At the start the grid, 0.01 m to either side of 1.5 m, grazes food of 1.5 m; on the floor it
    # sees a disc of 0.711 m, in the middle of nine cells.
    env = GridFoodCollector()
    env.reset()
    env.bodies.position[:, 0, 0], env.bodies.heading[:, 0, 0] = 0.0, (0.0, 1.0)
    env.food[:] = -45.0
    env.food[:, BAD, 0] = 5.5, 10.5
    assert env.observe(slice(None))[0][0, BAD_TAG].sum() == 1
    env.bodies.stand()
    assert env.observe(slice(None))[0][0, BAD_TAG].sum() == 9
