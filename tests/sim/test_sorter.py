"""Sorter, by hand, and with one who walks from tile to tile."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps, DimensionProperty
from mlagents_envs.testing import check_env
from mlagents_sim.examples.sorter import AGENT, TILE_AT_M, TILES_AT, Sorter
from mlagents_sim.plane import in_frame
from worlds import Policy, at_random, play, set_discrete

NAME = Sorter.behavior_name


def with_tiles(tiles: dict[int, int], **options) -> Sorter:
    """Make a world whose areas all have these tiles: slots by number, in ascending order."""
    env = Sorter(**options)
    env.reset()
    env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    env.number[:] = 0
    env.ring.items[:] = -1
    for row, (number, slot) in enumerate(tiles.items()):
        env.number[row] = number
        env.slot[row] = slot
        env.ring.items[slot] = row
    env.n_tiles[:] = len(tiles)
    return env


def put_before(env: Sorter, agent: int, slot: int) -> None:
    """Put an agent 1 cm before the face of a tile."""
    env.bodies.heading[:, AGENT, agent] = TILES_AT[:, slot]
    env.bodies.position[:, AGENT, agent] = TILES_AT[:, slot] * (19.74 - 0.51)


@pytest.mark.parametrize("num_areas", [1, 3])
def test_sorter_keeps_the_contract(num_areas: int):
    check_env(lambda seed: Sorter(seed=seed, num_areas=num_areas), steps=40)


def test_the_scene_is_as_published():
    env = Sorter()
    assert env.n_agents == 8
    tiles, body, pose = env.behavior_spec.observation_specs
    assert (tiles.shape, tiles.name) == ((20, 23), "BufferSensor")
    assert tiles.dimension_property[0] is DimensionProperty.VARIABLE_SIZE
    assert body.shape == (10,)
    assert (pose.shape, pose.name) == ((8,), "StackingSensor_size2_VectorSensor_size4")


def test_observations_by_hand():
    # Slot 0 is ahead, slot 5 to the right of the middle.
    env = with_tiles({3: 5, 20: 0})
    env.n_visited[:] = 1
    env.bodies.position[:, AGENT] = [[2.0], [-4.0]]
    env.bodies.velocity[:, AGENT] = 0.0
    set_discrete(env, 0, 0, 2)  # turns by 20 degrees
    tiles, body, pose = (batch[0] for batch in env.get_steps(NAME)[0].obs)
    expected = np.zeros((20, 23))
    expected[0, [3, 22]] = 1.0  # visited
    expected[0, 20:22] = 18.5 / 20, 4 / 20
    expected[1, 20:22] = -2 / 20, 24.5 / 20  # number 20 has no index
    np.testing.assert_allclose(tiles, expected, atol=1e-6)
    np.testing.assert_allclose(body, [0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
    facing = np.sin(np.radians(20)), np.cos(np.radians(20))
    np.testing.assert_allclose(pose[4:], [0.1, -0.2, *facing], rtol=1e-6)
    assert (pose[:4] != pose[4:]).any()


def test_velocity_is_seen_from_the_agent():
    env = with_tiles({1: 0})
    env.bodies.heading[:, AGENT] = [[1.0], [0.0]]  # to the right: +z is to its left
    env.bodies.velocity[:, AGENT] = [[0.0], [10.0]]
    body = env.observe(slice(None))[1][0]
    np.testing.assert_allclose(body[7:], [-10.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("action", "way"),
    [((1, 0, 0), (0, 1)), ((2, 0, 0), (0, -1)), ((1, 1, 0), (1, 0)), ((2, 2, 0), (-1, 0))],
)
def test_pushes_go_ahead_or_aside(action: tuple[int, int, int], way: tuple[int, int]):
    # v = (v + 2 - 2 * 0.6 * 24.525 * 0.02) (1 - 4 * 0.02): friction is by what presses, less drag.
    env = with_tiles({1: 0})
    set_discrete(env, *action)
    speed = place = 0.0
    for _ in range(5):
        speed = (speed + 2.0 - 0.5886) * 0.92
        place += speed * 0.02
    np.testing.assert_allclose(
        env.bodies.position[:, AGENT, 0], np.multiply(way, place), atol=1e-12
    )


@pytest.mark.parametrize(("turn", "degrees"), [(1, -20.0), (2, 20.0)])
def test_turns_go_left_and_right(turn: int, degrees: float):
    env = with_tiles({1: 0})
    set_discrete(env, 0, 0, turn)
    yaw = np.degrees(np.arctan2(*env.bodies.heading[:, AGENT, 0]))
    assert yaw == pytest.approx(degrees)


def test_the_next_tile_pays_and_the_last_ends():
    env = with_tiles({4: 7, 9: 13})
    put_before(env, 2, 7)
    set_discrete(env, 0, 0, 0)
    decisions, terminals = env.get_steps(NAME)
    assert len(terminals) == 0
    assert decisions.reward[2] == pytest.approx(1.0 - 0.001)
    assert env.n_visited[2] == 1
    set_discrete(env, 0, 0, 0)
    assert env.get_steps(NAME)[0].reward[2] == pytest.approx(-0.001)  # still there, nothing new
    put_before(env, 2, 13)
    set_discrete(env, 0, 0, 0)
    decisions, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [2]
    assert terminals.reward[0] == pytest.approx(1.0 - 0.0002)
    assert terminals.obs[0][0, :2, 22].tolist() == [1.0, 1.0]


def test_a_wrong_tile_costs_and_ends():
    env = with_tiles({4: 7, 9: 13})
    put_before(env, 2, 13)
    set_discrete(env, 0, 0, 0)
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [2]
    assert terminals.reward[0] == pytest.approx(-1.0 - 0.0002)
    assert not terminals.interrupted[0]


def test_the_wall_stops_at_its_radius_beside_tiles():
    env = with_tiles({1: 0})
    env.bodies.position[:, AGENT] = TILES_AT[:, [9]] * 15
    env.bodies.heading[:, AGENT] = TILES_AT[:, [9]]
    for _ in range(20):
        set_discrete(env, 1, 0, 0)
    # The agent goes on pushing, so it overlaps the wall by a part of what one step moves it.
    assert 19.7 < np.hypot(*env.bodies.position[:, AGENT, 0]) < 19.9
    assert env.n_visited[0] == 0


def test_tiles_are_different_numbers_at_different_slots():
    env = Sorter(num_areas=100, seed=2)
    env.reset()
    assert np.bincount(env.n_tiles, minlength=21)[1:].min() > 10  # 800 areas, 20 counts
    for agent in range(200):
        n = env.n_tiles[agent]
        numbers, slots = env.number[:, agent], env.slot[:n, agent]
        assert (np.diff(numbers[:n]) > 0).all()
        assert 1 <= numbers[0] and numbers[n - 1] <= 20
        assert (numbers[n:] == 0).all()
        assert len(set(slots.tolist())) == n
        assert (env.ring.items[slots, agent] == np.arange(n)).all()
        assert (env.ring.items[:, agent] >= 0).sum() == n


@pytest.mark.parametrize(("asked", "most"), [(2, 2), (0, 1), (-3, 1), (1000, 20)])
def test_num_tiles_limits_the_tiles(asked: int, most: int):
    env = Sorter(num_areas=20, parameters={"num_tiles": asked})  # 160 arenas
    env.reset()
    assert set(env.n_tiles.tolist()) == set(range(1, most + 1))


def test_arenas_differ_in_what_is_drawn_for_them():
    env = Sorter(num_areas=50)
    env.set_multirangeuniform_sampler_parameters("num_tiles", [(1.0, 2.0), (9.0, 10.0)], 1)
    env.set_uniform_sampler_parameters("gravity", 10.0, 20.0, 2)
    env.reset()
    # Half of the arenas have one tile, the others from 1 to 9.
    assert set(env.n_tiles.tolist()) == set(range(1, 10))
    assert (env.n_tiles == 1).mean() == pytest.approx(1 / 2 + 1 / 18, abs=0.06)
    pressed = env.bodies.pressed[AGENT]
    assert len(set(pressed.tolist())) == env.n_agents
    # A step of gravity, of which drag leaves 0.92.
    assert (pressed >= 10.0 * 0.02 * 0.92).all() and (pressed <= 20.0 * 0.02 * 0.92).all()


def from_tile_to_tile(env: Sorter) -> Policy:
    """Make a policy that goes to the next tile by way of the middle."""
    is_leaving = np.zeros(env.n_agents, bool)
    was_visited = np.zeros(env.n_agents, int)

    def policy(decisions: DecisionSteps) -> ActionTuple:
        agents = decisions.agent_id
        place = env.bodies.position[:, AGENT, agents]
        visited = env.n_visited[agents]
        is_leaving[agents] |= visited > was_visited[agents]
        is_leaving[agents] &= np.hypot(*place) > 4.0
        was_visited[agents] = visited
        tile = np.where(is_leaving[agents], 0.0, TILE_AT_M) * TILES_AT[:, env.slot[visited, agents]]
        right, ahead = in_frame(env.bodies.heading[:, AGENT, agents], tile - place)
        aside = np.degrees(np.arctan2(right, ahead))
        turn = np.where(np.abs(aside) > 12, np.where(aside > 0, 2, 1), 0)
        return ActionTuple(discrete=np.stack([turn == 0, 0 * turn, turn], axis=1))

    return policy


def test_one_who_walks_in_order_scores_nearly_the_number_of_tiles():
    env = Sorter(seed=3, parameters={"num_tiles": 3})
    episodes = play(env, from_tile_to_tile(env), episodes=40, max_steps=3000)
    assert episodes.returns.mean() > 1.7  # of 2


def test_nobody_leaves_the_arena_whatever_they_do():
    env = Sorter(num_areas=8, seed=3)
    policy = at_random(env)
    env.reset()
    for _ in range(300):
        decisions, _ = env.get_steps(NAME)
        if len(decisions):
            env.set_actions(NAME, policy(decisions))
        env.step()
        assert (np.hypot(*env.bodies.position[:, AGENT]) < 20.3).all()
