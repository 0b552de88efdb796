"""Visual Food Collector: what is seen, by hand."""

import numpy as np
import pytest

from mlagents_envs.testing import check_env
from mlagents_sim.examples.visual_food_collector import (
    AGENT,
    BAD_FOOD,
    FLOOR,
    FROZEN,
    GOOD_FOOD,
    SKY,
    WALL,
    VisualFoodCollector,
)

PIXELS_PER_TANGENT = 42 / np.tan(np.radians(30.0))  # 72.7
GOOD_ONE, BAD_ONE = 0, 25


def alone(**options) -> VisualFoodCollector:
    """Make a world whose first agent is in the middle and looks ahead, and nothing is near it."""
    env = VisualFoodCollector(**options)
    env.reset()
    env.bodies.position[:] = [
        [[0.0], [-40.0], [-42.0], [-44.0]],
        [[0.0], [-40.0], [-42.0], [-44.0]],
    ]
    env.bodies.heading[:] = [[[0.0]] * 4, [[1.0]] * 4]
    env.food[:] = -45.0
    env.bodies.stand()
    return env


def view(env: VisualFoodCollector, agent: int = 0) -> np.ndarray:
    """Return what an agent sees, (84, 84, 3)."""
    return env.observe(slice(None))[0][agent].transpose(1, 2, 0)


def covered(env: VisualFoodCollector, color: np.ndarray) -> np.ndarray:
    """Return the pixels of a color: (n, 2) of rows and columns."""
    return np.argwhere((view(env) == color).all(axis=2))


def test_visual_food_collector_keeps_the_contract():
    check_env(lambda seed: VisualFoodCollector(seed=seed), steps=15)


def test_the_scene_is_as_published():
    env = VisualFoodCollector(num_areas=2)
    assert env.n_agents == 16
    assert env.bodies.position.shape == (2, 4, 4)  # four agents on each of four floors
    assert [spec.shape for spec in env.behavior_spec.observation_specs] == [(3, 84, 84), (1,)]
    action = env.behavior_spec.action_spec
    assert (action.continuous_size, action.discrete_branches) == (3, (2,))


def test_walls_reach_from_the_floor_to_the_sky():
    # The wall is 50 m ahead; the eye is 0.5 m above the floor and 3.5 m below the wall's edge.
    picture = view(alone())
    middle = picture[:, 41]
    top = 41.5 - PIXELS_PER_TANGENT * 3.5 / 50
    bottom = 41.5 + PIXELS_PER_TANGENT * 0.5 / 50
    for row, pixel in enumerate(middle):
        expected = SKY if row < top else WALL if row < bottom else FLOOR
        assert pixel.tolist() == expected.tolist()


@pytest.mark.parametrize("degrees", [0, 45, 90, 180, 200, 300])
def test_there_is_a_wall_all_around(degrees: int):
    env = alone()
    yaw = np.radians(degrees)
    env.bodies.heading[:, 0] = [[np.sin(yaw)], [np.cos(yaw)]]
    env.food[:] = 60.0  # beyond the walls
    picture = view(env)
    is_wall = (picture == WALL).all(axis=2)
    assert is_wall.any(axis=0).all()
    assert (picture[0] == SKY).all() and (picture[-1] == FLOOR).all()


@pytest.mark.parametrize(("one", "color"), [(GOOD_ONE, GOOD_FOOD), (BAD_ONE, BAD_FOOD)])
def test_food_is_a_disc_by_hand(one: int, color: np.ndarray):
    # 5 m ahead, 1 m to the right and, at its center, 0.25 m above the eye.
    env = alone()
    env.food[:, one, 0] = 1.0, 5.0
    seen = covered(env, color)
    row, column = 41.5 - PIXELS_PER_TANGENT * 0.25 / 5, 41.5 + PIXELS_PER_TANGENT / 5
    radius = PIXELS_PER_TANGENT * 0.75 / 5
    np.testing.assert_allclose(seen.mean(axis=0), [row, column], atol=0.8)
    assert len(seen) == pytest.approx(np.pi * radius**2, rel=0.08)
    env.falling[one, 0] = 3
    assert len(covered(env, color)) == 0
    env.falling[one, 0] = 0
    env.food[1, one, 0] = -5.0  # behind
    assert len(covered(env, color)) == 0


@pytest.mark.parametrize(("good_m", "nearer"), [(4.0, GOOD_FOOD), (12.0, BAD_FOOD)])
def test_what_is_nearer_hides_what_is_behind(good_m: float, nearer: np.ndarray):
    env = alone()
    env.food[:, GOOD_ONE, 0] = 0.0, good_m
    env.food[:, BAD_ONE, 0] = 0.0, 8.0
    assert view(env)[38, 41].tolist() == nearer.tolist()
    env.bodies.position[:, 2, 0] = 0.0, 2.5
    assert view(env)[38, 41].tolist() == AGENT.tolist()


def test_pictures_show_the_food_that_each_ray_hits_first():
    env = VisualFoodCollector(num_areas=2, seed=4)
    env.reset()
    env.bodies.stand()
    row, column = np.mgrid[:84, :84] - 41.5
    ray = np.array([column, -row, np.full((84, 84), PIXELS_PER_TANGENT)])
    ray /= np.linalg.norm(ray, axis=0)
    n_hit = 0
    for agent in range(env.n_agents):
        floor, member = divmod(agent, 4)
        (s, c), apart = (
            env.bodies.heading[:, member, floor],
            env.food[:, :, floor] - env.bodies.position[:, member, floor, None],
        )
        place = np.array([apart[0] * c - apart[1] * s, np.full(50, 0.25), apart.T @ [s, c]])
        place[:, place[2] < 0.75] = -1e6  # not drawn if it reaches behind the eye
        ahead = np.einsum("kf,krc->frc", place, ray)
        square = 0.75**2 + ahead**2 - (place**2).sum(axis=0)[:, None, None]
        travel = np.where(
            (square > 0) & (ahead > 0), ahead - np.sqrt(np.maximum(square, 0)), np.inf
        )
        food = travel.argmin(axis=0)
        color = np.where((food < 25)[..., None], GOOD_FOOD, BAD_FOOD)
        is_hit = np.isfinite(travel.min(axis=0))
        seen = view(env, agent)
        is_food = (seen == GOOD_FOOD).all(axis=2) | (seen == BAD_FOOD).all(axis=2)
        is_agent = (seen == AGENT).all(axis=2)
        differs = np.where(is_hit, (seen != color).any(axis=2), is_food) & ~is_agent
        assert np.count_nonzero(differs) <= 2
        n_hit += np.count_nonzero(is_hit)
    assert n_hit > 2000


def test_agents_are_boxes_that_show_whether_they_are_frozen():
    # Its face is 3.5 m ahead and 1 m wide; its upper edge is 0.5 m above the eye.
    env = alone()
    env.bodies.position[:, 1, 0] = 0.0, 4.0
    seen = covered(env, AGENT)
    half = PIXELS_PER_TANGENT * 0.5 / 3.5
    np.testing.assert_allclose(seen.min(axis=0), 41.5 - half, atol=1.0)
    np.testing.assert_allclose(seen.max(axis=0), 41.5 + half, atol=1.0)
    # Turned by an eighth, it shows two faces: its edges at either side are 4 m ahead.
    env.bodies.heading[:, 1, 0] = np.sqrt(0.5)
    wide = PIXELS_PER_TANGENT * np.sqrt(0.5) / 4
    seen = covered(env, AGENT)
    assert seen[:, 1].min() == pytest.approx(41.5 - wide, abs=1.0)
    assert seen[:, 1].max() == pytest.approx(41.5 + wide, abs=1.0)
    env.frozen[1, 0] = 7
    assert len(covered(env, AGENT)) == 0 and len(covered(env, FROZEN)) == len(seen)
    assert env.observe(slice(None))[1][:, 0].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]


def test_others_are_seen_as_large_as_they_are():
    # Of an agent of 2 m, 4 m ahead, the face is at 3 m: 1 m to either side, and from 0.5 m below
    # the eye to 1.5 m above it.
    env = alone()
    env.bodies.half[:, 1, 0] = 1.0
    env.bodies.position[:, 1, 0] = 0.0, 4.0
    seen = covered(env, AGENT)
    low, high = 41.5 + PIXELS_PER_TANGENT * np.array([[-1.5, -1.0], [0.5, 1.0]]) / 3
    np.testing.assert_allclose(seen.min(axis=0), low, atol=1.0)
    np.testing.assert_allclose(seen.max(axis=0), high, atol=1.0)
