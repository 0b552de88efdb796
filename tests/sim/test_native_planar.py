"""The native library and NumPy compute the same worlds, to the last bit."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from mlagents_envs.base_env import BaseEnv
from mlagents_native.library import NativeError, Part
from mlagents_sim import box_grid, circles, planar, turning
from mlagents_sim.catalog import CATALOG
from mlagents_sim.examples import field_view
from mlagents_sim.native_planar import FixedArrays, Pool, Shared, indices
from mlagents_sim.planar import PLANAR, Bodies, Body
from seeds import NIGHTLY

needs_library = pytest.mark.skipif(PLANAR.reason is not None, reason=str(PLANAR.reason))
slow = pytest.mark.slow
WORLDS = [
    "PushBlock",
    "Hallway",
    pytest.param("Pyramids", marks=slow),
    "Sorter",
    "WallJump",
    "SmallWallJump",
    "BigWallJump",
    "FoodCollector",
    pytest.param("GridFoodCollector", marks=slow),
    pytest.param("VisualFoodCollector", marks=slow),
    pytest.param("GridWorld", marks=slow),
    pytest.param("Visual3DBall", marks=slow),
    "PushBlockCollab",
    "SoccerTwos",
    "StrikersVsGoalie",
    "DungeonEscape",
]


def without_library(monkeypatch: pytest.MonkeyPatch, name: str, **options) -> BaseEnv:
    """Make a world that NumPy computes, and begin its episodes."""
    with monkeypatch.context() as patch:
        patch.setattr(Part, "load", lambda part: None)
        env = CATALOG[name].make(**options)
        env.reset()
    return env


def play_side_by_side(
    native: BaseEnv, reference: BaseEnv, n_decisions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Play both at random; compare all that they report."""
    rng = np.random.default_rng(1)
    for _ in range(n_decisions):
        for behavior, spec in native.behavior_specs.items():
            for ours, theirs in zip(
                native.get_steps(behavior), reference.get_steps(behavior), strict=True
            ):
                np.testing.assert_array_equal(ours.agent_id, theirs.agent_id)
                np.testing.assert_array_equal(ours.reward, theirs.reward)
                np.testing.assert_array_equal(ours.group_reward, theirs.group_reward)
                for seen, expected in zip(ours.obs, theirs.obs, strict=True):
                    np.testing.assert_array_equal(seen, expected)
            n_asking = len(native.get_steps(behavior)[0])
            if n_asking:
                action = spec.action_spec.random_action(n_asking, rng)
                native.set_actions(behavior, action)
                reference.set_actions(behavior, action)
        native.step()
        with monkeypatch.context() as patch:
            patch.setattr(Part, "load", lambda part: None)  # pictures ask for it each time
            reference.step()


@needs_library
@pytest.mark.parametrize("n_decisions", [200, pytest.param(1000, marks=NIGHTLY)])
@pytest.mark.parametrize("name", WORLDS)
def test_worlds_are_the_same_with_and_without_the_library(
    name: str, n_decisions: int, monkeypatch: pytest.MonkeyPatch
):
    native = CATALOG[name].make(seed=11, keep_8_bit_images=True)
    native.reset()
    reference = without_library(monkeypatch, name, seed=11, keep_8_bit_images=True)
    play_side_by_side(native, reference, n_decisions, monkeypatch)


@needs_library
@pytest.mark.parametrize(
    "name",
    ["PushBlock", "WallJump", "GridFoodCollector", "GridWorld", "SoccerTwos", "PushBlockCollab"],
)
def test_two_areas_are_the_same_with_and_without_the_library(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    native = CATALOG[name].make(num_areas=2, seed=3)
    native.reset()
    reference = without_library(monkeypatch, name, num_areas=2, seed=3)
    play_side_by_side(native, reference, 60, monkeypatch)


@needs_library
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("PushBlock", {"dynamic_friction": 0.4, "static_friction": 0.8, "block_scale": 1.5}),
        ("FoodCollector", {"agent_scale": 3.0}),
    ],
)
def test_parameters_count_in_both_forms(
    name: str, parameters: dict[str, float], monkeypatch: pytest.MonkeyPatch
):
    native = CATALOG[name].make(seed=5, parameters=parameters)
    native.reset()
    reference = without_library(monkeypatch, name, seed=5, parameters=parameters)
    play_side_by_side(native, reference, 100, monkeypatch)


@pytest.mark.parametrize("is_native", [False, pytest.param(True, marks=needs_library)])
def test_areas_do_not_affect_each_other(is_native: bool):
    # Boxes that meet in a corner move the same whether they are alone or among 37 areas.
    boxes = [Body((0.5, 0.7), mass=10.0, drag=0.5), Body((1.0, 1.0), mass=5.0), Body((1.0, 0.5))]
    pairs = [(0, 1), (0, 2), (1, 2)]
    rng = np.random.default_rng(2)
    place, speed = rng.uniform(-2.0, 2.0, (2, 3, 37)), rng.uniform(-5.0, 5.0, (2, 3, 37))
    speed[:, 2] = 0.0
    together, *alone = (
        Bodies(n, boxes, low=(-2.5, -2.5), high=(2.5, 2.5), pairs=pairs, is_native=is_native)
        for n in (37, *[1] * 37)
    )
    together.position[:], together.velocity[:] = place, speed
    for area, bodies in enumerate(alone):
        bodies.position[:, :, 0], bodies.velocity[:, :, 0] = place[:, :, area], speed[:, :, area]
    for _ in range(20):
        together.move()
        for bodies in alone:
            bodies.move()
    for area, bodies in enumerate(alone):
        np.testing.assert_array_equal(bodies.position[..., 0], together.position[..., area])
        np.testing.assert_array_equal(bodies.velocity[..., 0], together.velocity[..., area])


@needs_library
def test_a_library_that_computes_something_else_steps_aside():
    class Wrong:
        """Functions that move nothing."""

        def planar_move_bodies(self, bodies: Shared) -> None:
            pass

    with pytest.raises(NativeError, match="position of boxes"):
        planar._check(Wrong())  # type: ignore[arg-type]


@needs_library
@pytest.mark.parametrize(
    ("module", "what"),
    [
        (turning, "position of boxes that turn"),
        (circles, "position of discs"),
        (box_grid, "grids of boxes differently"),
        (field_view, "rays of players differently"),
    ],
)
def test_a_library_that_moves_or_shows_otherwise_steps_aside(module: ModuleType, what: str):
    class Wrong:
        """Functions that do nothing."""

        def __getattr__(self, name: str) -> Callable[..., int]:
            return lambda *arguments: 0

    with pytest.raises(NativeError, match=what):
        module._check(Wrong())


def test_assigning_to_an_array_copies_into_it():
    class Thing(FixedArrays):
        def __init__(self) -> None:
            self.values = np.zeros(3)
            self.name = "a"

    thing = Thing()
    before = thing.values
    thing.values = np.arange(3.0)
    thing.name = "b"
    assert thing.values is before and thing.name == "b"
    np.testing.assert_array_equal(before, [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="broadcast"):
        thing.values = np.zeros(4)


def test_arrays_of_another_type_are_not_handed_over():
    bodies = Bodies(1, [Body((0.5, 0.5), mass=1.0)], low=(0, 0), high=(1, 1), is_native=False)
    bodies.__dict__["position"] = np.zeros((2, 1, 1), np.float32)
    with pytest.raises(ValueError, match="position must be contiguous and of float64"):
        _ = bodies.shared


def test_a_pool_never_gives_out_an_array_in_use():
    pool = Pool()
    first = pool.empty((2, 3), np.float32)
    view = first[1]
    where = first.__array_interface__["data"][0]
    second = pool.empty((2, 3), np.float32)
    assert second is not first
    del first
    assert pool.empty((2, 3), np.float32).__array_interface__["data"][0] != where  # still seen
    del view
    assert pool.empty((2, 3), np.float32).__array_interface__["data"][0] == where
    assert pool.empty((2, 3), np.uint8).dtype == np.uint8
    assert pool.empty((4,), np.float32).shape == (4,)


def test_indices_of_agents():
    assert indices(slice(None), 4) is None
    np.testing.assert_array_equal(indices(slice(1, 3), 4), [1, 2])
    columns = np.array([[0, 1], [2, 3]])[:, 1]  # not contiguous
    found = indices(columns, 4)
    assert found is not None and found.flags.c_contiguous
    np.testing.assert_array_equal(found, [1, 3])
