"""GridWorld: by hand, by its laws, and against pictures recorded in Unity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple, ObservationType
from mlagents_envs.demonstration_file import read_demonstration
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.grid_world import (
    CROSS,
    MOVES,
    NOWHERE,
    PLUS,
    GridWorld,
    stamps_of,
)
from shared_data import ROOT, require

NAME = GridWorld.behavior_name
STAY, UP, DOWN, LEFT, RIGHT = range(5)
WALL, FLOOR = (137, 139, 143), (70, 73, 78)
AGENT, GREEN, RED = (62, 195, 255), (140, 238, 151), (238, 92, 75)


def go(env: GridWorld, *actions: int) -> None:
    """Let the first agents do this, the others stay."""
    discrete = np.zeros((env.n_agents, 1))
    discrete[: len(actions), 0] = actions
    env.set_actions(NAME, ActionTuple(discrete=discrete))
    env.step()


def arranged(**parameters: float) -> GridWorld:
    """Return a world in which all agents are at (1, 1), a plus at (3, 1), a cross at (1, 3)."""
    env = GridWorld(parameters=parameters)
    env.reset()
    env.place[:] = 1, 1
    env.goal[:] = [[3, 1], [1, 3]]
    env.kind[:] = PLUS, CROSS
    env.requested[:] = PLUS
    return env


def test_gridworld_keeps_the_contract():
    check_env(lambda seed: GridWorld(seed=seed), steps=60)


def test_what_is_announced():
    image, goal = GridWorld.behavior_spec.observation_specs
    assert (image.name, image.shape, image.dtype) == ("CameraSensor", (3, 64, 84), np.uint8)
    assert (goal.name, goal.shape) == ("VectorSensor_size2_GoalSignal", (2,))
    assert goal.observation_type is ObservationType.GOAL_SIGNAL
    assert GridWorld.behavior_spec.action_spec.discrete_branches == (5,)


# The task.


def test_every_action_leads_where_it_says():
    env = arranged()
    go(env, STAY, UP, DOWN, LEFT, RIGHT)
    assert env.place[:5].tolist() == [[1, 1], [1, 2], [1, 0], [0, 1], [2, 1]]
    decisions, terminals = env.get_steps(NAME)
    assert len(terminals) == 0
    np.testing.assert_allclose(decisions.reward, -0.01)


def test_walls_stop_and_are_masked():
    env = arranged()
    env.place[:3] = [[0, 0], [4, 4], [4, 2]]
    (mask,) = env.masks(np.arange(4))
    assert mask.tolist() == [
        [False, False, True, True, False],
        [False, True, False, False, True],
        [False, False, False, False, True],
        [False] * 5,
    ]
    go(env, LEFT, UP, RIGHT)
    assert env.place[:3].tolist() == [[0, 0], [4, 4], [4, 2]]
    np.testing.assert_allclose(env.get_steps(NAME)[0].reward, -0.01)


@pytest.mark.parametrize(
    ("requested", "action", "reward"),
    [(PLUS, RIGHT, 1.0), (CROSS, RIGHT, -1.0), (PLUS, UP, -1.0), (CROSS, UP, 1.0)],
)
def test_the_requested_goal_pays_and_the_other_costs(requested: int, action: int, reward: float):
    env = arranged()
    env.requested[:] = requested
    go(env, action)
    go(env, action)
    decisions, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [0]
    assert terminals.reward.tolist() == [reward]  # set, not added to the cost of the step
    assert terminals.interrupted.tolist() == [False]
    assert terminals.obs[1].tolist() == [np.eye(2)[requested].tolist()]
    assert decisions.agent_id.tolist() == list(range(9))
    assert decisions.reward[0] == 0.0


def test_a_hundred_steps_are_all_there_are():
    env = arranged()
    for _ in range(99):
        go(env)
        assert len(env.get_steps(NAME)[1]) == 0
    go(env)
    decisions, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == list(range(9))
    assert terminals.interrupted.all()
    np.testing.assert_allclose(terminals.reward, -0.01)
    assert len(decisions) == 9


@given(
    size=st.integers(1, 6), n_plus=st.integers(0, 6), n_cross=st.integers(0, 6), seed=st.integers()
)
def test_everything_begins_in_a_cell_of_its_own(size: int, n_plus: int, n_cross: int, seed: int):
    parameters = {"gridSize": size, "numPlusGoals": n_plus, "numExGoals": n_cross}
    env = GridWorld(seed=seed, parameters=parameters)
    if n_plus + n_cross >= size**2:
        with pytest.raises(UnityEnvironmentException, match=f"gridSize {size}, .* a cell for"):
            env.reset()
        return
    env.reset()
    places = np.concatenate([env.goal, env.place[:, None]], axis=1)
    assert (places >= 0).all() and (places < size).all()
    for of_agent in places.tolist():
        assert len(set(map(tuple, of_agent))) == n_plus + n_cross + 1
    assert (np.sort(env.kind, axis=1) == [PLUS] * n_plus + [CROSS] * n_cross).all()


def test_places_and_requests_are_drawn_evenly():
    env = GridWorld(num_areas=300)
    env.reset()
    # 2700 draws: 108 expected in each of 25 cells, with a deviation of 10.
    for places in (env.place, env.goal[:, 0], env.goal[:, 1]):
        counts = np.bincount(places @ (1, 5), minlength=25)
        assert counts.min() > 60 and counts.max() < 160
    assert 0.45 < env.requested.mean() < 0.55


@pytest.mark.parametrize(
    "parameters", [{"gridSize": 33}, {"gridSize": 1e30}, {"numExGoals": -1}, {"gridSize": 0.5}]
)
def test_grids_that_cannot_be_are_refused(parameters: dict[str, float]):
    with pytest.raises(UnityEnvironmentException, match="expected a size from 1 to 32"):
        GridWorld(parameters=parameters).reset()


def test_a_parameter_counts_from_the_next_episode_of_each_agent():
    env = arranged()
    env.set_parameter("gridSize", 3)
    env.set_parameter("numExGoals", 2.9)  # its whole part
    go(env, RIGHT)
    go(env, RIGHT)
    assert env.size.tolist() == [3] + [5] * 8
    assert (env.goal[0] != NOWHERE).all()
    assert (env.goal[1:, 2] == NOWHERE).all()
    assert sorted(env.kind[0].tolist()) == [PLUS, CROSS, CROSS]
    go(env)  # grids of two sizes can be drawn at the same time
    assert len(env.get_steps(NAME)[0]) == 9


def test_what_is_drawn_is_prepared_once_for_every_size():
    env = GridWorld(num_areas=40)
    env.set_uniform_sampler_parameters("gridSize", 3.0, 33.0, 1)
    env.reset()
    assert set(env.size.tolist()) == set(range(3, 33))
    before = stamps_of.cache_info().misses
    env.observe(slice(None))
    assert stamps_of.cache_info().misses == before


def test_goals_that_the_next_episode_has_not_are_nowhere():
    env = GridWorld(parameters={"numPlusGoals": 3})  # and a cross
    env.reset()
    env.set_parameter("numPlusGoals", 1)
    env.end(np.arange(4))
    is_somewhere = (env.goal != NOWHERE).all(axis=2)
    assert is_somewhere.sum(axis=1).tolist() == [2] * 4 + [4] * 5


def test_grids_may_be_of_sizes_drawn_each_for_itself():
    env = GridWorld(num_areas=20)
    env.set_uniform_sampler_parameters("gridSize", 3.0, 6.0, 1)
    env.set_uniform_sampler_parameters("numPlusGoals", 0.0, 4.0, 2)
    env.reset()
    assert set(env.size.tolist()) == {3, 4, 5}
    n_plus = ((env.kind == PLUS) & (env.goal[..., 0] != NOWHERE)).sum(axis=1)
    assert set(n_plus.tolist()) == {0, 1, 2, 3}
    assert (((env.kind == CROSS) & (env.goal[..., 0] != NOWHERE)).sum(axis=1) == 1).all()
    for size, place, goals in zip(env.size, env.place, env.goal, strict=True):
        places = [place, *goals[goals[:, 0] != NOWHERE]]
        assert len({tuple(place) for place in places}) == len(places)
        assert (np.array(places) >= 0).all() and (np.array(places) < size).all()
    assert env.get_steps(NAME)[0].obs[0].shape == (180, 3, 64, 84)


def test_walking_to_the_right_goal_pays_and_wandering_does_not():
    rng = np.random.default_rng(0)
    assert mean_return(walk_to_goal) > 0.9
    assert -0.6 < mean_return(lambda env: rng.integers(0, 5, env.n_agents)) < 0.0


def mean_return(policy) -> float:
    env = GridWorld(num_areas=10)
    env.reset()
    returns, finished = np.zeros(env.n_agents), []
    while len(finished) < 400:
        go(env, *policy(env))
        decisions, terminals = env.get_steps(NAME)
        returns[terminals.agent_id] += terminals.reward
        finished += returns[terminals.agent_id].tolist()
        returns[terminals.agent_id] = 0.0
        returns[decisions.agent_id] += decisions.reward
    return float(np.mean(finished))


def walk_to_goal(env: GridWorld) -> list[int]:
    """Go nearer to the requested goal, and around the other."""
    actions = []
    for place, goals, requested in zip(env.place, env.goal, env.requested, strict=True):
        distances = np.abs(place + MOVES - goals[requested]).sum(axis=1).astype(float)
        distances[(place + MOVES == goals[1 - requested]).all(axis=1)] = np.inf
        distances[STAY] += 2  # rather aside
        outside = (place + MOVES < 0) | (place + MOVES > 4)
        distances[outside.any(axis=1)] = np.inf
        actions.append(int(distances.argmin()))
    return actions


# The picture.


def where(
    picture: NDArray[np.uint8], color: tuple[int, int, int], *, within: int = 0
) -> NDArray[np.bool_]:
    away = picture.astype(int) - np.array(color)[:, None, None]
    return np.abs(away).max(axis=0) <= within


def test_a_picture_pixel_by_pixel():
    # With 4 cells for 64 rows, a cell has 16 pixels and a bar 3.2. Ten columns of wall on either
    # side. Things at (1, 2): columns 10 + 16 on, rows 64 - 3 * 16 on.
    env = arranged(gridSize=4)
    env.place[0], env.goal[0] = (1, 2), ((0, 0), (3, 3))
    picture = env.observe(np.array([0]))[0][0]
    wall = where(picture, WALL)
    assert wall[:, :10].all() and wall[:, 74:].all() and not wall[:, 10:74].any()

    # A frame of bars that reach over the centers of three pixels: 0.5, 1.5, 2.5.
    frame = np.zeros((64, 84), bool)
    frame[16:32, 26:42] = True
    frame[19:29, 29:39] = False
    np.testing.assert_array_equal(where(picture, AGENT), frame)

    # Two bars from 6.4 to 9.6 of 16: over the centers 6.5, 7.5, 8.5, 9.5.
    plus = np.zeros((64, 84), bool)
    plus[48:64, 10 + 6 : 10 + 10] = True
    plus[48 + 6 : 48 + 10, 10:26] = True
    np.testing.assert_array_equal(where(picture, GREEN), plus)

    # The same two bars, 16 by 3.2, turned by 45 degrees.
    away = np.arange(16) - 7.5
    one, other = (away + away[:, None]) / np.sqrt(2), (away - away[:, None]) / np.sqrt(2)
    cross = np.zeros((64, 84), bool)
    cross[:16, 58:74] = ((abs(one) < 8) & (abs(other) < 1.6)) | (
        (abs(other) < 8) & (abs(one) < 1.6)
    )
    np.testing.assert_array_equal(where(picture, RED), cross)

    # All else is floor, at most a dozen levels darker where shadows are.
    drawn = wall | frame | plus | cross
    np.testing.assert_array_equal(where(picture, FLOOR, within=12), ~drawn)


def test_recorded_pictures_are_redrawn():
    """Away from edges, colors are within 2 of 255, except where a shadow has a hard line."""
    path = require(ROOT / "demonstrations" / "ExpertGridWorld.demo")
    (recorded,) = read_demonstration(path).records.obs
    recorded = np.rint(recorded * 255).astype(np.uint8)
    places = [
        [cell_of(where(picture, color, within=20)) for color in (AGENT, GREEN, RED)]
        for picture in recorded
    ]
    env = GridWorld(num_areas=6)
    env.keep_8_bit_images()
    env.reset()
    n = len(recorded)
    env.place[:n] = [place for place, _, _ in places]
    env.goal[:n] = [[plus, cross] for _, plus, cross in places]
    env.kind[:n] = PLUS, CROSS
    drawn = env.observe(np.arange(n))[0]

    away = np.abs(recorded.astype(int) - drawn).max(axis=1)
    of_kind = np.array([kind_of(picture) for picture in drawn])
    is_clear = np.array([is_away_from_edges(kinds) for kinds in of_kind])
    of_floor = away[is_clear & (of_kind == 0)]
    others = away[is_clear & (of_kind != 0)]
    assert len(others) > 1000 * n and len(of_floor) > 3000 * n
    assert (others <= 2).mean() > 0.99 and others.max() <= 11  # shadows on objects are not drawn
    assert (of_floor <= 2).mean() > 0.96 and of_floor.max() <= 7


def test_a_shadow_darkens_the_floor_up_and_left_of_its_object():
    # The middle of the agent's shadow is 1.18 cells to the left and 1.42 up, 4.13 levels deep.
    env = GridWorld(num_areas=1, parameters={"numPlusGoals": 0, "numExGoals": 0})
    env.keep_8_bit_images()
    env.reset()
    env.place[0] = 3, 1
    env.place[1] = 0, 4  # whose shadow falls outside
    shaded, bare = env.observe(np.arange(2))[0].astype(int)
    darker = bare[1] - shaded[1]
    row, column = int(64 - (1.5 + 1.42) * 12.8), int(10 + (3.5 - 1.18) * 12.8)
    assert darker[row, column] == 4
    inside = darker[:, 12:72]
    assert inside[row - 3 : row + 4, column - 15 : column - 8].min() >= 3
    assert (shaded[:, :, :10] == np.array(WALL)[:, None, None]).all(), "walls stay as they are"


def test_the_shadows_of_a_full_grid_add_up():
    env = GridWorld(num_areas=1, parameters={"numPlusGoals": 24, "numExGoals": 0})
    env.keep_8_bit_images()
    env.reset()
    pictures = env.get_steps(NAME)[0].obs[0].astype(int)
    of_floor = pictures.transpose(0, 2, 3, 1)[:, :, 12:72]
    of_floor = of_floor[np.abs(of_floor[..., 0] + 3 - of_floor[..., 1]) == 0]  # gray, as the floor
    assert of_floor[:, 1].max() <= 74 and of_floor[:, 1].min() > 40


def kind_of(picture: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return what each pixel shows: 0 the floor, 1 a wall, then agent, plus and cross."""
    kinds = np.zeros(picture.shape[1:], np.intp)
    for number, color in enumerate((WALL, AGENT, GREEN, RED), 1):
        kinds[where(picture, color)] = number
    return kinds


def cell_of(is_covered: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the cell, of 5 by 5, in the middle of some pixels."""
    rows, columns = is_covered.nonzero()
    x, y = (columns.min() + columns.max() + 1) / 2 - 10, 64 - (rows.min() + rows.max() + 1) / 2
    return int(x / 12.8), int(y / 12.8)


def is_away_from_edges(kinds: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return which pixels show the same as all eight around them."""
    around = np.pad(kinds, 1, constant_values=-1)
    neighbors = np.lib.stride_tricks.sliding_window_view(around, (3, 3))
    return (neighbors == kinds[..., None, None]).all(axis=(2, 3))


def test_everything_is_drawn_in_its_cell():
    env = GridWorld(num_areas=4, parameters={"numPlusGoals": 3, "numExGoals": 2})
    env.keep_8_bit_images()
    env.reset()
    pictures = env.get_steps(NAME)[0].obs[0]
    for agent, picture in enumerate(pictures):
        seen = {
            color: {
                (int((column - 9.5) / 12.8), 4 - int((row + 0.5) / 12.8))
                for row, column in np.argwhere(where(picture, color))
            }
            for color in (AGENT, GREEN, RED)
        }
        places = list(map(tuple, env.goal[agent].tolist()))
        assert seen == {AGENT: {tuple(env.place[agent])}, GREEN: {*places[:3]}, RED: {*places[3:]}}


@pytest.mark.parametrize("size", [1, 2, 3, 10, 13, 31, 32])
def test_everything_is_seen_in_grids_of_any_size(size: int):
    lightest = stamps_of(size).lightest
    assert lightest.shape == (3, 64 * 84)
    scale = 64 / size
    for pixels in (stamps_of(size).agent, *stamps_of(size).goals):
        assert len(pixels) == size**2
        for cell, of_cell in enumerate(pixels):
            rows, columns = np.divmod(of_cell, 84)
            # The middle of a cell, and how far from it the pixels' centers may be: half of it, or
            # a bit more where the bars of a cross are thick.
            x, z = (cell % size + 0.5) * scale + 10, 64 - (cell // size + 0.5) * scale
            assert np.abs(columns + 0.5 - x).max() <= 0.54 * scale
            assert np.abs(rows + 0.5 - z).max() <= 0.54 * scale


def test_the_last_picture_of_an_episode_shows_the_agent_at_the_goal():
    env = arranged()
    go(env, RIGHT)
    go(env, RIGHT)
    picture = 255 * env.get_steps(NAME)[1].obs[0][0]
    rows, columns = where(picture, AGENT).nonzero()
    assert {(rows.min(), rows.max()), (columns.min() - 10, columns.max() - 10)} == {(38, 50)}


def test_the_scene_shows_every_agent():
    env = arranged()
    before = env.scene().solids[-1].position
    go(env, STAY, STAY, STAY, STAY, STAY, UP)
    moved = env.scene().solids[-1].position - before
    assert np.argwhere(moved).tolist() == [[5, 2]]
    assert moved[5, 2] == 1.0
