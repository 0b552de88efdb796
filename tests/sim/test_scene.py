"""Scenes of all native worlds: what viewers, films and pictures draw from."""

import numpy as np
import pytest

from mlagents_envs.scene import HasScene, Scene, Shape, Solids, turned
from mlagents_sim.catalog import CATALOG
from mlagents_sim.examples.ball_3d import Ball3D
from mlagents_sim.examples.push_block import PushBlock
from mlagents_sim.plane import X, Z

WORLDS = list(CATALOG)


def play(env, n_steps):
    rng = np.random.default_rng(0)
    for _ in range(n_steps):
        for name, spec in env.behavior_specs.items():
            decisions, _ = env.get_steps(name)
            env.set_actions(name, spec.action_spec.random_action(len(decisions), rng))
        env.step()


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_has_a_scene(world):
    env = CATALOG[world].make(seed=1)
    env.reset()
    assert isinstance(env, HasScene)
    first = env.scene()
    copies = [solids.position.copy() for solids in first.solids]
    play(env, 3)
    scene = env.scene()
    assert [s.name for s in scene.solids] == [s.name for s in first.solids]
    assert len({s.name for s in scene.solids}) == len(scene.solids)
    assert all(low < high for low, high in zip(scene.low, scene.high, strict=True))
    assert scene.time_s > 0.0
    for solids, before in zip(first.solids, copies, strict=True):
        np.testing.assert_array_equal(solids.position, before)  # not changed by later steps
    for solids in scene.solids:
        n = len(solids.position)
        assert solids.position.shape == solids.size.shape == solids.color.shape == (n, 3)
        assert solids.color.dtype == np.uint8
        np.testing.assert_allclose(np.linalg.norm(solids.rotation, axis=1), np.ones(n), rtol=1e-6)
        is_hidden = np.isnan(solids.position)
        assert (is_hidden.all(axis=1) == is_hidden.any(axis=1)).all()
        shown = ~is_hidden.any(axis=1)
        assert (solids.size[shown] > 0.0).all()
        if solids.area is not None:
            assert solids.area.shape == (n,)
            assert 0 <= solids.area.min() <= solids.area.max() < scene.n_areas
        if solids.shape is Shape.CAPSULE:
            assert (solids.size == solids.size[0]).all()


@pytest.mark.parametrize("world", WORLDS)
def test_every_agent_is_in_the_scene(world):
    env = CATALOG[world].make(seed=1, num_areas=2)
    env.reset()
    scene = env.scene()
    area, place = scene.agent_places()
    np.testing.assert_array_equal(scene.agent_id, env.agent_id)
    assert area.min() == 0
    assert area.max() == scene.n_areas - 1
    assert np.isfinite(place).all()


@pytest.mark.parametrize("world", CATALOG)
def test_controls_are_actions_of_the_world(world):
    env = CATALOG[world].make(seed=1)
    keys = [control.key for control in env.controls]
    assert len(set(keys)) == len(keys)
    for spec in env.behavior_specs.values():
        actions = spec.action_spec
        for control in env.controls:
            if control.is_continuous:
                assert control.action < actions.continuous_size
                assert 0.0 < abs(control.value) <= 1.0
            else:
                assert 0 <= control.value < actions.discrete_branches[control.action]


def test_the_scene_follows_the_bodies():
    env = PushBlock(seed=3)
    env.reset()
    play(env, 2)
    scene = env.scene()
    agents = next(solids for solids in scene.solids if solids.name == "agent")
    np.testing.assert_allclose(agents.position[:, 0], env.bodies.position[X, 0])
    np.testing.assert_allclose(agents.position[:, 2], env.bodies.position[Z, 0])
    # A box turned to the right by an angle looks along (sin, cos) of it.
    _, y, _, w = agents.rotation.T
    np.testing.assert_allclose(2.0 * y * w, env.bodies.heading[X, 0], atol=1e-12)
    np.testing.assert_allclose(w * w - y * y, env.bodies.heading[Z, 0], atol=1e-12)


def test_sizes_follow_parameters():
    env = Ball3D(seed=0, parameters={"scale": 2.0})
    env.reset()
    balls = next(solids for solids in env.scene().solids if solids.name == "ball")
    np.testing.assert_allclose(balls.size, 2.0)


def test_one_row_counts_for_all_solids():
    areas = np.arange(2, dtype=np.int32)
    solids = Solids.of("a", Shape.BOX, np.zeros((2, 3)), (1.0, 2.0, 3.0), (1, 2, 3), area=areas)
    np.testing.assert_array_equal(solids.size, [[1.0, 2.0, 3.0]] * 2)
    np.testing.assert_array_equal(solids.rotation, [[0.0, 0.0, 0.0, 1.0]] * 2)


def test_agents_are_where_they_are_shown():
    areas = np.array([1, 0], np.int32)
    agents = np.array([0, 2], np.int32)
    position = np.array([[1.0, 2.0, 3.0], [np.nan] * 3])
    one = Solids.of("a", Shape.BOX, position, 1.0, 0, area=areas, agent=agents)
    scene = Scene([one], 2, (0.0,) * 3, (1.0,) * 3, np.arange(3, dtype=np.int32))
    area, place = scene.agent_places()
    np.testing.assert_array_equal(area, [1, -1, 0])
    np.testing.assert_array_equal(place, [[1.0, 2.0, 3.0], [np.nan] * 3, [np.nan] * 3])


def test_a_turn_to_the_right():
    np.testing.assert_allclose(turned(np.pi / 2), [0.0, np.sqrt(0.5), 0.0, np.sqrt(0.5)])
