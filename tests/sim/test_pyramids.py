"""Pyramids, by hand, and beside what Unity recorded."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.demonstration_file import ActionPlacement, read_demonstration
from mlagents_envs.testing import check_env
from mlagents_sim.examples.pyramids import Pyramids
from mlagents_sim.examples.pyramids_scene import (
    AGENT,
    GOLD,
    LAYER_OF,
    LAYERS,
    LOOSE,
    PLACES,
    STONE_LAYERS,
    STONES,
    SWITCH,
    WALLS,
)
from mlagents_sim.planar import PLANAR
from mlagents_sim.plane import X, Z
from shared_data import ROOT, require
from worlds import set_discrete

NAME = Pyramids.behavior_name
NOTHING, FORWARD, BACK, TURN_RIGHT, TURN_LEFT = range(5)
BLOCK, WALL, GOAL, OFF, ON, STONE, CLEAR, DISTANCE = range(8)
LEVEL, RISING, STEEP = range(3)
PYRAMID = STONE_LAYERS[0][0]
"""Middle of a pyramid, relative to its place."""


def started(**options) -> Pyramids:
    """Make a world whose agents stand in the middle and look ahead, with all else in a corner."""
    env = Pyramids(**options)
    env.reset()
    bodies = env.bodies
    bodies.above_m[AGENT] = 0.0
    bodies.position[:, AGENT] = 0.0
    bodies.heading[:, AGENT] = [[0.0], [1.0]]
    bodies.position[:, SWITCH] = bodies.position[:, STONES] = bodies.position[:, LAYERS] = -46.0
    env.chamber._steps[:] = 1000.0  # pyramids have come down
    return env


def rays_of(env: Pyramids) -> np.ndarray:
    """Return the rays of the first agent: (3 sensors, 7, 8)."""
    return np.array(env.get_steps(NAME)[0].obs[:3])[:, 0].reshape(3, 7, 8)


@pytest.mark.parametrize("num_areas", [1, 2])
def test_pyramids_keeps_the_contract(num_areas: int):
    check_env(lambda seed: Pyramids(seed=seed, num_areas=num_areas), steps=60)


def test_the_scene_is_as_published():
    env = Pyramids()
    assert env.n_agents == 16
    assert [spec.shape for spec in env.behavior_spec.observation_specs] == [(56,)] * 3 + [(4,)]
    assert env.behavior_spec.action_spec.discrete_branches == (5,)


def test_rays_that_rise_pass_over_walls_that_are_far():
    # Walls are 5 m high. The sphere of the steepest ray, from 0.5 m up, touches an edge so high
    # that 0.5 + d 10/35 - 0.5 cos = 5, with the angle of the slope, at d = 17.4 m.
    env = started()
    env.bodies.position[:, AGENT] = [[0.0], [49.5 - 0.5 - 15.0]]
    set_discrete(env, NOTHING)
    rays = rays_of(env)[:, 0]
    np.testing.assert_array_equal(rays[:, WALL], 1.0)
    np.testing.assert_allclose(rays[:, DISTANCE], 15.0 / 35.0, rtol=1e-6)
    env.bodies.position[Z, AGENT] -= 2.6
    set_discrete(env, NOTHING)
    np.testing.assert_array_equal(rays_of(env)[:, 0, WALL], [1, 1, 0])
    np.testing.assert_array_equal(rays_of(env)[:, 0, CLEAR], [0, 0, 1])


def test_the_gold_is_seen_over_the_bricks():
    # The lower edge of the gold is at 3.97 m, its face 1 m before its middle. The steepest ray's
    # upper side reaches that at 10.4 m; from farther away the ray meets the gold, from nearer by
    # the bricks below it.
    env = started()
    env.chamber._site[:] = [[0.0], [16.0]]
    env.chamber.switch_on(np.arange(16))
    for _ in range(8):
        set_discrete(env, NOTHING)
    np.testing.assert_array_equal(rays_of(env)[:, 0, [BLOCK, GOAL]], [[1, 0], [1, 0], [0, 1]])


def test_the_switch_turns_on_once_and_a_pyramid_falls_from_the_sky():
    env = started()
    env.bodies.position[:, SWITCH] = [[0.0], [2.0 + 0.5 + 0.01]]
    env.chamber._site[:] = 10.0
    vector = env.get_steps(NAME)[0].obs[3]
    assert (vector[:, 0] == 0.0).all()
    set_discrete(env, NOTHING)
    decisions, _ = env.get_steps(NAME)
    assert (decisions.obs[3][:, 0] == 1.0).all()
    assert rays_of(env)[LEVEL, 0, ON] == 1.0
    heights = env.bodies.above_m[LOOSE]
    assert 1.5 < heights[0, 0] < 2.0 and heights[-1, 0] > 5.5
    before = env.bodies.position[:, LOOSE].copy()
    for _ in range(10):
        set_discrete(env, NOTHING)
    np.testing.assert_allclose(
        env.bodies.above_m[LOOSE, 0], np.array([0, 1, 1.97, 2.97, 3.97])[LAYER_OF]
    )
    np.testing.assert_array_equal(env.bodies.position[:, LOOSE], before)


def test_the_gold_pays_and_ends():
    env = started()
    env.chamber.switch_on(np.arange(16))
    env.bodies.position[:, GOLD, 3] = [0.0, 1.51]
    env.bodies.above_m[GOLD, 3] = 0.0
    env.chamber._steps_on[:] = 1000.0
    env.chamber._choose_solid(np.arange(16))
    set_discrete(env, NOTHING)
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [3]
    assert terminals.reward.tolist() == [2.0]
    assert not terminals.interrupted[0]


def test_time_costs_one_in_an_episode():
    env = Pyramids()
    env.reset()
    total = np.zeros(16)
    while not len(env.get_steps(NAME)[1]):
        set_discrete(env, NOTHING)
        decisions, terminals = env.get_steps(NAME)
        for steps in (decisions, terminals):
            total[steps.agent_id] += steps.reward
    np.testing.assert_allclose(total, -1.0, rtol=1e-4)
    assert terminals.interrupted.all()


def test_each_object_has_a_room_of_its_own():
    env = Pyramids(num_areas=4, seed=2)
    env.reset()
    bodies = env.bodies
    places = [bodies.position[:, AGENT], bodies.position[:, SWITCH], env.chamber._site]
    places += [
        bodies.position[:, body] - PYRAMID[:, None] for body in range(STONES.start, STONES.stop)
    ]
    rooms = np.round(np.array(places) / 30.0)  # (9, 2, N)
    aside = np.abs(np.array(places) - 30.0 * rooms)
    assert (np.abs(rooms) <= 1).all() and aside.max() <= 11.9 and aside.max() > 11.0
    number = rooms[:, X] * 3 + rooms[:, Z]
    np.testing.assert_array_equal(np.sort(number, axis=0), np.tile(np.arange(-4, 5), (64, 1)).T)


def test_an_agent_falls_and_runs_between_the_walls_as_recorded_in_unity():
    # Where it was was solved for from what the rays meet; so was its speed. The rays that met
    # walls must meet them at the same distances while it runs, turns and falls.
    file = require(ROOT / "demonstrations" / "ExpertPyramid.demo")
    recorded = read_demonstration(file, action_placement=ActionPlacement.SAME_RECORD).records
    actions = recorded.action.discrete[:, 0]
    rays = np.array(recorded.obs[:3]).reshape(3, -1, 7, 8)
    first, x, z, yaw = 9, 16.624, -2.968, 4.155
    env = started()
    env.bodies.position[:, AGENT, 0] = x, z
    env.bodies.heading[:, AGENT, 0] = ahead = np.array([np.sin(yaw), np.cos(yaw)])
    right, _, forward = recorded.obs[3][first, 1:]
    env.bodies.velocity[:, AGENT, 0] = right * np.array([ahead[Z], -ahead[X]]) + forward * ahead
    for decision in range(first + 1, first + 26):
        set_discrete(env, actions[decision])
        found, expected = rays_of(env), rays[:, decision]
        at_wall = (found[..., WALL] == 1) & (expected[..., WALL] == 1)
        assert at_wall.sum() > 4
        error_m = 35 * np.abs(found - expected)[at_wall][:, DISTANCE]
        assert np.median(error_m) < 0.12, decision
        own = env.get_steps(NAME)[0].obs[3][0, 1:]
        np.testing.assert_allclose(own, recorded.obs[3][decision, 1:], atol=0.35)


def test_an_agent_falls_as_recorded_in_unity():
    file = require(ROOT / "demonstrations" / "ExpertPyramid.demo")
    recorded = read_demonstration(file, action_placement=ActionPlacement.SAME_RECORD).records
    env = Pyramids(seed=1)
    env.reset()
    for decision in range(8):
        set_discrete(env, recorded.action.discrete[decision, 0])
        found = env.get_steps(NAME)[0].obs[3][0, 1:]
        np.testing.assert_allclose(found, recorded.obs[3][decision, 1:], atol=0.02)


def rammed(
    chance: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray, Pyramids]:
    """Ram brick pyramids from 9 m, from all sides, for 6 s, as the recording does.

    Returns:
        Of every decision and agent, the speed and the height of the gold; and the world.
    """
    env = started(num_areas=3, seed=3)
    monkeypatch.setattr(env, "end", lambda agents, **_: None)
    n, rng, bodies = env.n_agents, np.random.default_rng(0), env.bodies
    bodies.is_solid[:23] = False  # nothing but the pyramid
    env.chamber._site[:] = 0.0
    bodies.position[:, AGENT] = -40.0
    env.chamber.switch_on(np.arange(n))
    for _ in range(10):
        set_discrete(env, NOTHING)
    bearing = rng.uniform(0.0, 2 * np.pi, n)
    ahead = np.array([np.sin(bearing), np.cos(bearing)])
    aside = rng.uniform(-1.5, 1.5, n) * np.array([ahead[1], -ahead[0]])
    bodies.position[:, AGENT] = PYRAMID[:, None] - 9.0 * ahead + aside
    bodies.heading[:, AGENT] = ahead
    speeds, heights = [], []
    for _ in range(60):
        actions = np.where(rng.random(n) < chance, FORWARD, NOTHING)
        env.set_actions(NAME, ActionTuple(discrete=actions[:, None]))
        env.step()
        speeds.append(np.hypot(*bodies.velocity[:, AGENT]))
        heights.append(bodies.above_m[GOLD] + 1.0)
    return np.array(speeds), np.array(heights), env


def test_a_pyramid_of_bricks_collapses_as_recorded_in_unity(monkeypatch: pytest.MonkeyPatch):
    recorded = np.load(require(ROOT / "physics" / "pyramids.npz"))
    trace = recorded["BrickPyramid_trace"]
    for chance in (0.1, 0.35, 1.0):
        of_chance = recorded["BrickPyramid_cases"][:, 2] == np.float32(chance)
        speeds, heights, env = rammed(chance, monkeypatch)
        gold = trace[of_chance][:, :, 11]
        # The share that fell, and when half of these had.
        fell, has_fallen = (heights < 4.5).T, gold < 4.5
        assert abs(fell[:, -1].mean() - has_fallen[:, -1].mean()) < 0.2
        if chance > 0.1:
            first, when = fell.argmax(axis=1), has_fallen.argmax(axis=1)
            assert abs(np.median(first) - np.median(when)) < 6
            settled = recorded["BrickPyramid_settled"][of_chance][:, 6, [0, 2]]
            final = recorded["BrickPyramid_final"][of_chance][:, 6, [0, 2]]
            expected = np.median(np.linalg.norm(final - settled, axis=1))
            aside = np.linalg.norm(env.bodies.position[:, GOLD] - PLACES[:, -1:], axis=0)
            assert abs(np.median(aside) - expected) < 1.5
        if chance == 1.0:
            speed = np.linalg.norm(trace[of_chance][:, :10, 7:10], axis=2)
            error = np.median(speeds[:10], axis=1) - np.median(speed, axis=0)
            assert np.abs(error).max() < 4.5
            np.testing.assert_allclose(error[:4], 0.0, atol=0.02)


def test_gold_that_falls_into_stone_is_pushed_out():
    env = started()
    bodies = env.bodies
    env.chamber._site[:] = -20.0
    env.chamber.switch_on(np.arange(16))
    env.chamber._steps_on[:] = 1000.0
    env.chamber._is_held[-1] = False
    bodies.position[:, STONES.start] = 20.0
    bodies.position[:, GOLD], bodies.above_m[GOLD] = 20.5, 0.0
    for _ in range(20):
        set_discrete(env, NOTHING)
    apart = np.abs(bodies.position[:, GOLD] - 20.0)
    assert (apart[X] > 2.27 + 0.9).all() or (apart[Z] > 2.34 + 0.9).all()


def test_a_pyramid_of_stone_does_not_yield():
    # 2.4 to 2.8 m from the middle, Unity's agents stop.
    env = started()
    bodies = env.bodies
    bodies.position[:, STONES] = np.array([0.0, 15.0])[:, None, None]
    for _ in range(30):
        set_discrete(env, FORWARD)
    np.testing.assert_allclose(15.0 - bodies.position[Z, AGENT], 2.34 + 0.5, atol=0.02)


def seek(env: Pyramids) -> np.ndarray:
    """Return the actions of agents that know where switch, pyramid and gold are."""
    bodies, scene = env.bodies, env.chamber
    at = bodies.position[:, AGENT]
    aim = np.where(scene.is_on, bodies.position[:, GOLD], bodies.position[:, SWITCH])
    ahead = bodies.heading[:, AGENT]
    right = np.array([ahead[Z], -ahead[X]])
    to_right, to_front = (((aim - at) * way).sum(axis=0) for way in (right, ahead))
    aside = np.degrees(np.arctan2(to_right, to_front))
    return np.where(np.abs(aside) > 12, np.where(aside > 0, TURN_RIGHT, TURN_LEFT), FORWARD)


@pytest.mark.skipif(PLANAR.reason is not None, reason=str(PLANAR.reason))
def test_the_library_and_numpy_ram_the_same_pyramids(monkeypatch: pytest.MonkeyPatch):
    # They are the same to the last bit. A slow test of all worlds plays longer.
    worlds = [Pyramids(seed=5)]
    with monkeypatch.context() as patch:
        patch.setattr(PLANAR, "load", lambda: None)
        worlds.append(Pyramids(seed=5))
        worlds[1].reset()
    worlds[0].reset()
    assert [env.bodies.functions is None for env in worlds] == [False, True]
    for env in worlds:
        env.chamber.switch_on(np.arange(16))
        env.bodies.above_m[AGENT] = 0.0
        env.bodies.position[:, AGENT] = env.chamber._site + np.array([[0.4], [-8.0]])
        env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    for _ in range(25):
        for env in worlds:
            n = len(env.get_steps(NAME)[0])
            env.set_actions(NAME, ActionTuple(discrete=np.full((n, 1), FORWARD)))
            env.step()
        native, reference = worlds
        np.testing.assert_array_equal(native.bodies.position, reference.bodies.position)
        for ours, theirs in zip(native.get_steps(NAME), reference.get_steps(NAME), strict=True):
            np.testing.assert_array_equal(ours.reward, theirs.reward)
            for seen, expected in zip(ours.obs, theirs.obs, strict=True):
                np.testing.assert_array_equal(seen, expected)


def test_one_that_knows_the_way_gets_the_gold():
    # Without stones and inner walls in its way.
    env = Pyramids(seed=1)
    env.reset()
    env.bodies.is_solid[1:23] = False
    returns, running = [], np.zeros(16)
    for _ in range(600):
        decisions, terminals = env.get_steps(NAME)
        for steps in (terminals, decisions):
            running[steps.agent_id] += steps.reward
        returns += running[terminals.agent_id].tolist()
        running[terminals.agent_id] = 0.0
        if len(decisions):
            actions = seek(env)[decisions.agent_id]
            env.set_actions(NAME, ActionTuple(discrete=actions[:, None]))
        env.step()
    assert len(returns) > 32
    assert np.mean(returns) > 1.7


def test_inner_walls_do_not_count_as_touching_the_outer_ones():
    # They stand at the outer walls. Contacts that never change would cost time in every step.
    bodies = started().bodies
    bodies.position[X, AGENT] = 49.0
    bodies.move()
    assert bodies.touching_walls[:, :, AGENT].any()
    assert not bodies.touching_walls[:, :, WALLS].any()


def test_agents_stay_between_the_outer_walls():
    env = Pyramids(num_areas=2, seed=3)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(150):
        decisions, _ = env.get_steps(NAME)
        actions = rng.choice(5, (len(decisions), 1), p=[0.1, 0.6, 0.1, 0.1, 0.1])
        env.set_actions(NAME, ActionTuple(discrete=actions))
        env.step()
        assert (np.abs(env.bodies.position[:, AGENT]) < 49.5).all()
