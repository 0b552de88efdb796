"""Balls on cubes: the native library computes the same bits as NumPy."""

from typing import Any

import numpy as np
import pytest

from mlagents_native.library import INSTRUCTION_SETS, NativeError
from mlagents_sim.catalog import CATALOG
from mlagents_sim.rolling import ROLLING, BallsOnCubes, rotation_matrix
from native_parts import functions_of

needs_library = pytest.mark.skipif(ROLLING.reason is not None, reason=str(ROLLING.reason))


@needs_library
@pytest.mark.parametrize("instructions", INSTRUCTION_SETS)
@pytest.mark.parametrize("n_balls", [1, 7, 64])
def test_library_and_numpy_move_balls_to_the_last_bit(instructions: str, n_balls: int) -> None:
    rng, everywhere = np.random.default_rng(n_balls), slice(None)
    both = [
        BallsOnCubes(n_balls, half_edge_m=2.5, turn_limit=0.25, functions=functions)
        for functions in (functions_of(ROLLING, instructions), None)
    ]
    for step in range(1500):
        if step % 150 == 0:
            radius, tilts = rng.uniform(0.1, 2.5, n_balls), rng.uniform(-0.2, 0.2, (2, n_balls))
            ball = rng.uniform(-3.0, 3.0, (3, n_balls))
            ball[1] = rng.uniform(2.0, 6.0, n_balls)
            gravity = rng.uniform(4.0, 105.0, n_balls)
            for bodies in both:
                bodies.resize(everywhere, radius)
                bodies.put(everywhere, half_tilts=tilts, ball=ball, gravity=gravity)
        if step % 5 == 0:
            half_angles = rng.uniform(-0.02, 0.02, (2, n_balls))
            for bodies in both:
                bodies.set_turns(everywhere, half_angles)
        for bodies in both:
            bodies.turn()
            bodies.move()
        ours, reference = both
        np.testing.assert_array_equal(ours.cube, reference.cube)
        np.testing.assert_array_equal(ours.ball, reference.ball)


@needs_library
def test_a_ball_that_is_nan_stays_nan_and_moves_no_other() -> None:
    both = [
        BallsOnCubes(3, half_edge_m=2.5, turn_limit=0.25, functions=functions)
        for functions in (ROLLING.load(), None)
    ]
    for bodies in both:
        bodies.resize(slice(None), np.full(3, 0.5))
        ball = np.array([[0.0, np.nan, 1.0], [3.0, 3.0, 3.0], [0.0, 0.0, 0.0]])
        bodies.put(slice(None), half_tilts=np.zeros((2, 3)), ball=ball, gravity=9.81)
        for _ in range(50):
            bodies.move()
    np.testing.assert_array_equal(both[0].ball_offset(), both[1].ball_offset())
    assert np.isnan(both[0].ball_offset()[0]).tolist() == [False, True, False]


@needs_library
def test_the_world_plays_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ROLLING, "load", lambda: None)
        reference = CATALOG["3DBall"].make(num_areas=2, seed=3)
        reference.reset()
    native = CATALOG["3DBall"].make(num_areas=2, seed=3)
    native.reset()
    (behavior,) = native.behavior_specs
    spec, rng = native.behavior_specs[behavior].action_spec, np.random.default_rng(0)
    for _ in range(1000):
        for ours, theirs in zip(
            native.get_steps(behavior), reference.get_steps(behavior), strict=True
        ):
            np.testing.assert_array_equal(ours.agent_id, theirs.agent_id)
            np.testing.assert_array_equal(ours.reward, theirs.reward)
            np.testing.assert_array_equal(ours.obs[0], theirs.obs[0])
        n_asking = len(native.get_steps(behavior)[0])
        if n_asking:
            action = spec.random_action(n_asking, rng)
            for env in (native, reference):
                env.set_actions(behavior, action)
        for env in (native, reference):
            env.step()


def test_rotation_matrices_turn_the_axes() -> None:
    half = np.sqrt(0.5)  # a quarter turn about x takes y to z, and z to -y
    matrix = rotation_matrix(np.array([[half], [0.0], [0.0], [half]]))[:, :, 0]
    np.testing.assert_allclose(matrix, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-15)


@needs_library
def test_a_library_with_other_results_steps_aside() -> None:
    functions = ROLLING.load()

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            if name != "rolling_turn":
                return getattr(functions, name)
            return lambda bodies: None

    with pytest.raises(NativeError, match="ball of balls on cubes differently"):
        ROLLING._check(Wrong())  # type: ignore[arg-type]
