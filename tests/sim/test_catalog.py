"""What holds for every world of the catalog."""

import numpy as np
import pytest
from numpy.typing import NDArray

from long_play import act, step
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.catalog import CATALOG
from mlagents_sim.circles import Circles
from mlagents_sim.examples.ball_3d import SPIN, Ball3D
from mlagents_sim.examples.food_collector import FoodCollector
from mlagents_sim.examples.food_floors import Floors
from mlagents_sim.examples.push_block import PushBlock
from mlagents_sim.examples.pyramids_scene import PyramidsScene
from mlagents_sim.examples.soccer_field import Field
from mlagents_sim.examples.sorter import WALL, Sorter
from mlagents_sim.examples.wall_jump import BigWallJump, SmallWallJump, WallJump
from mlagents_sim.examples.wall_jump_scene import BLOCK_ON_WALL, Platforms
from mlagents_sim.frame_stack import FrameStack
from mlagents_sim.motion import Motion
from mlagents_sim.planar import Bodies
from mlagents_sim.pushers import Pushers
from mlagents_sim.rolling import BallsOnCubes
from mlagents_sim.standing import Standing
from mlagents_sim.world import World

FOUND_ANEW = {
    "rolling._ways": "3DBall's way to turn, which is by nothing until the next command",
    "bodies.reach": "half of what bodies cover, found before they move",
    "bodies.touching": "found by moving",
    "bodies.touching_walls": "found by moving",
    "bodies._faces": "found by moving",
    "field.discs.touching": "found by moving",
    "field.discs.normal": "found by moving",
    "platforms.standing._boxes_at": "places of blocks, found by moving",
    "platforms.standing._grounds": "found by moving",
    "platforms.standing.is_over_zone": "found by moving",
    "platforms.standing._on": "found when the step begins",
    "platforms.standing._stood": "found when the step begins",
    "platforms.standing._is_braked": "found when the step begins",
    "platforms.standing._jump_to": "height to jump to, found when a jump begins",
    "chamber._switch_tag": "what rays call the switch, found before they look",
    "chamber._height": "height of the rays, found before they look",
    "chamber._loose_tops": "upper edges of bricks, found before rays look",
    "_symbol_tag": "kind of symbol in the hall, found before rays look",
    "floors._eaten": "found by moving",
    "_tags": "what rays call agents, dragon and tombstone, found before they look",
    "_agent_tags": "what rays call the agents, found before they look",
    "target": "a creature's target, which stays until it is touched, as in Unity",
    "frame_forward": "direction to that target",
    "given_strength": "strengths of a creature's joints, which outlive an episode in Unity",
    "_degrees": "targets of these joints, which outlive an episode too",
    "_strength": "these strengths by joint",
    "creatures.target": "targets as rotations",
    "creatures.max_force": "strengths as forces",
}
"""What may differ when an episode begins, as the next step finds it before it asks for it."""


@pytest.mark.parametrize("name", CATALOG)
def test_worlds_keep_the_contract_when_time_runs_out(name: str):
    def make(seed: int) -> World:
        world = CATALOG[name].make(seed=seed)
        world.max_steps = 5 * world.decision_period_steps - 2  # between two decisions
        if "on demand" in CATALOG[name].tags:
            world.max_steps += 20  # after the first decision
        return world

    check_env(make, steps=15, is_random=name != "Basic")


def begun(name: str, seed: int) -> World:
    """Make a world whose episodes have begun."""
    world = CATALOG[name].make(seed=seed)
    assert isinstance(world, World)
    world.reset()
    return world


IMAGES = [name for name, entry in CATALOG.items() if entry.tags & {"image"}]


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_floats_from_0_to_1_unless_bytes_are_kept(name: str) -> None:
    floats = CATALOG[name].make(seed=1)
    bytes_ = CATALOG[name].make(seed=1, keep_8_bit_images=True)
    for env in (floats, bytes_):
        env.reset()
    for behavior, spec in floats.behavior_specs.items():
        (of_floats, _), (of_bytes, _) = floats.get_steps(behavior), bytes_.get_steps(behavior)
        for index, observation in enumerate(spec.observation_specs):
            batch = of_floats.obs[index]
            assert batch.dtype == observation.dtype == np.float32
            if len(observation.shape) < 3:
                continue
            kept = bytes_.behavior_specs[behavior].observation_specs[index]
            assert of_bytes.obs[index].dtype == kept.dtype == np.uint8
            np.testing.assert_array_equal(batch, of_bytes.obs[index] / np.float32(255))
            assert 0.0 <= batch.min() < batch.max() <= 1.0


def test_a_world_says_what_its_images_are_before_it_begins() -> None:
    world = begun("GridWorld", seed=1)
    with pytest.raises(UnityEnvironmentException, match="was called after the first reset"):
        world.keep_8_bit_images()


def play(world: World, steps: int) -> None:
    """Let a world be played at random."""
    rng = np.random.default_rng(0)
    drawn = next(iter(world.behavior_specs.values())).action_spec.random_action(
        steps * world.n_agents, rng
    )
    for at in range(steps):
        act(world, drawn, at)
        step(world)


def hand_over(old: World, new: World) -> None:
    """Give a world what outlives the episodes of another."""
    new.step_count, new.agent_id[:] = old.step_count, old.agent_id
    new.is_present[:], new._next_id = old.is_present, old._next_id
    match new:
        case Ball3D():
            new.ball[SPIN] = old.ball[SPIN]
        case PushBlock():
            # A block is put where the agent is not, and the agent keeps its heading. The floor rubs
            # as their speed before each step says.
            new.bodies.position[:], new.bodies.heading[:] = old.bodies.position, old.bodies.heading
            new.bodies.grip = old.bodies.grip
        case Sorter():
            # The agent keeps its heading; every step puts the wall and a tile beside it.
            new.bodies.heading[:] = old.bodies.heading
            new.bodies.position[:, WALL:] = old.bodies.position[:, WALL:]
        case WallJump() | SmallWallJump() | BigWallJump():
            # The agent keeps its heading; every step asks what it is above and stands on.
            new.bodies.heading[:] = old.bodies.heading
            new.bodies.is_solid[:BLOCK_ON_WALL] = old.bodies.is_solid[:BLOCK_ON_WALL]
            new.bodies.pressed[:] = old.bodies.pressed
        case FoodCollector():
            new.food[:], new.falling[:] = old.food, old.falling


def arrays_of(owner: object, prefix: str = "") -> dict[str, NDArray[np.generic]]:
    """Return all arrays of a world, of its frames and of what moves in it, each once."""
    found = {}
    for name, value in vars(owner).items():
        if isinstance(value, np.ndarray):
            found[prefix + name] = value
        elif prefix and name.endswith("bodies"):
            continue  # those of the world
        elif isinstance(
            value,
            Bodies
            | BallsOnCubes
            | Circles
            | Field
            | Floors
            | FrameStack
            | Motion
            | PyramidsScene
            | Platforms
            | Pushers
            | Standing,
        ):
            for key, array in arrays_of(value, f"{prefix}{name}.").items():
                if not any(array is other for other in found.values()):
                    found[key] = array
    return found


@pytest.mark.parametrize("name", CATALOG)
def test_an_episode_begins_as_if_there_had_been_none_before(name: str):
    world, fresh = begun(name, seed=1), begun(name, seed=2)
    play(world, steps=150)
    hand_over(world, fresh)
    for each in (world, fresh):
        each.rng = np.random.default_rng(3)
        each.end(np.arange(each.n_agents))
    expected = arrays_of(fresh)
    for key, value in arrays_of(world).items():
        if key not in FOUND_ANEW:
            np.testing.assert_array_equal(value, expected[key], key)


@pytest.mark.parametrize("name", CATALOG)
def test_pictures_show_that_something_has_moved(name: str):
    world = begun(name, seed=1)
    before = world.render()
    assert before.dtype == np.uint8
    assert before.shape == (480, 640, 3)
    np.testing.assert_array_equal(world.render(), before)
    play(world, steps=10)
    assert (world.render() != before).any()
