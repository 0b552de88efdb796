"""Plays worlds at random for a long time, looks at every step, and compares the end with the start.

Tests play a little, `scripts/play_long` as long as asked. A world runs as one area of its own; at
every decision all numbers must be finite, and at every tenth all bodies in their arena. What bodies
do is averaged over stretches of play: those of the last tenth must be like those of the first.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple
from mlagents_sim.articulated.bodies import STEP_S as CREATURES_STEP_S
from mlagents_sim.catalog import CATALOG
from mlagents_sim.contact import STEP_S
from mlagents_sim.creatures import CreatureWorld
from mlagents_sim.examples import (
    dungeon_escape,
    hallway,
    push_block,
    push_block_collab,
    pyramids,
    pyramids_scene,
    soccer_field,
    soccer_twos,
    sorter,
    strikers_vs_goalie,
    wall_jump,
    wall_jump_scene,
)
from mlagents_sim.examples.ball_3d import FALLEN_ASIDE_M, FALLEN_BELOW_M, START_HEIGHT_M, Ball3D
from mlagents_sim.examples.basic import CELLS, Basic
from mlagents_sim.examples.food_collector import FoodCollector
from mlagents_sim.examples.food_floors import WALLS_M
from mlagents_sim.examples.grid_world import GridWorld
from mlagents_sim.examples.reacher import Reacher
from mlagents_sim.world import World

Array = NDArray[np.float64]

STRETCH_S = 150.0
"""Longer than any episode, so that what happens in one tells little about the next."""
LEAST_STRETCHES = 100
"""Of a play in which drift can be told from chance."""
LOOK_EVERY = 10
"""Decisions from one look at the bodies to the next."""
MOST_BEYOND_M = 2.0
"""How far a body may be outside when an agent decides: what it moves or falls in a step or two."""
MOST_ENERGY = 200.0**2
"""Sum of the squares of speed, in m/s, and of spin, in rad/s, beyond which bodies diverge."""
MOST_DRIFT = 6.0
"""Difference of first and last tenth, in standard errors, that is not chance."""


class Play(NamedTuple):
    """What was seen of a world.

    Attributes:
        hours: Simulated.
        stretches: How many.
        episodes: That ended.
        beyond_m: How far the farthest body was outside the arena, negative if always inside.
        drift: Largest difference of a quantity's mean or mean square between the first and the
            last tenth, in standard errors.
        quantity: Which.
    """

    hours: float
    stretches: int
    episodes: int
    beyond_m: float
    drift: float
    quantity: str

    def faults(self) -> list[str]:
        """Say what is wrong."""
        found = []
        if self.beyond_m > MOST_BEYOND_M:
            found.append(f"a body was {self.beyond_m:.2f} m outside")
        if self.stretches >= LEAST_STRETCHES and self.drift > MOST_DRIFT:
            found.append(f"{self.quantity} drifts by {self.drift:.1f} standard errors")
        return found


def smallest(name: str, seed: int) -> World:
    """Make one area of a world, of one agent or of those who share a floor."""
    world = type(CATALOG[name].make())
    assert issubclass(world, World)
    alone = {"agents_per_area": getattr(world, "n_members", 1)}
    made: World = type(world.__name__, (world,), alone)(seed=seed)
    return made


def play(world: World, hours: float, seed: int) -> Play:
    """Play at random for so long by the world's clock; raise if a number is not finite."""
    rng = np.random.default_rng(seed)
    step_s = CREATURES_STEP_S if isinstance(world, CreatureWorld) else STEP_S
    decision_s = world.decision_period_steps * step_s
    per_stretch = round(min(STRETCH_S, hours * 3600.0 / 20) / decision_s)
    stretches = round(hours * 3600.0 / (per_stretch * decision_s))
    moments: dict[str, list[Array]] = {}
    episodes, beyond_m = 0, -math.inf
    world.reset()
    for _ in range(stretches):
        sums: dict[str, Array] = {}
        drawn = next(iter(world.behavior_specs.values())).action_spec.random_action(
            per_stretch * world.n_agents, rng
        )
        for at in range(per_stretch):
            act(world, drawn, at)
            episodes += step(world)
            if at % LOOK_EVERY:
                continue
            beyond_m = max(beyond_m, beyond(world))
            for quantity, value in quantities(world).items():
                moment = np.array([np.mean(value), np.mean(np.square(value))])
                assert np.isfinite(moment).all(), f"{quantity} is {value}"
                sums[quantity] = sums.get(quantity, 0.0) + moment
        for quantity, total in sums.items():
            moments.setdefault(quantity, []).append(total / math.ceil(per_stretch / LOOK_EVERY))
    drifts = {quantity: drift(np.array(means)) for quantity, means in moments.items()}
    worst = max(drifts, key=drifts.__getitem__)
    return Play(hours, stretches, episodes, beyond_m, drifts[worst], worst)


def act(world: World, drawn: ActionTuple, at: int) -> None:
    """Set the `at`-th of the drawn actions for whoever asks."""
    row = at * world.n_agents
    for name in world.behavior_specs:
        end = row + len(world.get_steps(name)[0])
        world.set_actions(name, ActionTuple(drawn.continuous[row:end], drawn.discrete[row:end]))
        row = end


def step(world: World) -> int:
    """Step until somebody asks; return how many episodes ended; raise unless all is finite."""
    ended = 0
    while True:
        world.step()
        is_asked = False
        for name in world.behavior_specs:
            decisions, terminals = world.get_steps(name)
            for steps in (decisions, terminals):
                assert all(np.isfinite(obs).all() for obs in steps.obs), f"{name} sees {steps.obs}"
                assert np.isfinite(steps.reward).all(), f"{name} is rewarded {steps.reward}"
            ended += len(terminals)
            is_asked |= len(decisions) > 0
        if is_asked:
            return ended


def beyond(world: World) -> float:
    """Return how far the farthest body is outside the arena, in m or cells; negative if inside."""
    match world:
        case Ball3D():
            x, y, z = world.ball[0]
            aside = np.abs([x, z]) - FALLEN_ASIDE_M
            outside = [aside, y - START_HEIGHT_M, -y - FALLEN_BELOW_M]
        case push_block.PushBlock() | hallway.Hallway():
            module = push_block if isinstance(world, push_block.PushBlock) else hallway
            low, high = (np.reshape(v, (2, 1, 1)) for v in (module.ROOM_LOW, module.ROOM_HIGH))
            place, extent = world.bodies.position, world.bodies.extent()
            outside = [low - place + extent, place + extent - high]
        case pyramids.Pyramids():
            loose = [
                pyramids_scene.AGENT,
                *range(pyramids_scene.LOOSE.start, pyramids_scene.N_BODIES),
            ]
            place, extent = world.bodies.position[:, loose], world.bodies.extent()[:, loose]
            outside = [np.abs(place) + extent - pyramids_scene.ARENA_M]
        case sorter.Sorter():
            outside = [np.hypot(*world.bodies.position[:, sorter.AGENT]) - sorter.RADIUS_M]
        case dungeon_escape.DungeonEscape():
            members = slice(dungeon_escape.MEMBERS)
            place, extent = world.bodies.position[:, members], world.bodies.extent()[:, members]
            outside = [np.abs(place) + extent - push_block.ROOM_HIGH[0]]
        case push_block_collab.PushBlockCollab():
            outside = [np.abs(world.boxes.position) - push_block.ROOM_HIGH[0]]
        case soccer_twos.SoccerTwos() | strikers_vs_goalie.StrikersVsGoalie():
            x, z = np.abs(world.field.discs.position)
            outside = [x - soccer_field.BACK_M, z - soccer_field.SIDE_M]
        case wall_jump._OverWalls():
            scene, height_m = wall_jump_scene, world.platforms.standing.height_m
            loose = world.bodies.position[:, : scene.WALL]
            aside = np.abs(loose - scene.PLATFORM_AT[:, None]) - scene.PLATFORM_HALF_M
            outside = [aside, scene.PLATFORM_TOP_M - height_m, height_m - 10.0]
        case FoodCollector():
            outside = [np.abs(world.bodies.position) + world.bodies.extent() - WALLS_M]
        case GridWorld():
            outside = [-world.place, world.place - world.size[:, None] + 1]
        case Basic():
            outside = [-world.cell, world.cell - CELLS + 1]
        case _:
            return -math.inf
    return float(max(np.max(value) for value in outside))


def quantities(world: World) -> dict[str, NDArray[np.generic]]:
    """Return what should go on as it began: arrays by name."""
    steps = [world.get_steps(name)[0] for name in world.behavior_specs]
    found: dict[str, NDArray[np.generic]] = {
        "reward": np.concatenate([batch.reward for batch in steps])
    }
    match world:
        case Ball3D():
            (x, y, z), velocity, spin = world.ball
            found |= {"x": x, "y": y, "z": z, "speed": velocity, "spin": spin}
        case GridWorld():
            found |= {"place": world.place}
        case Basic():
            found |= {"cell": world.cell}
        case CreatureWorld() | Reacher():
            bodies = world.arms if isinstance(world, Reacher) else world.creatures
            found |= {
                "height": bodies.position[..., 1],
                "speed": bodies.velocity,
                "spin": bodies.spin,
            }
            energy = np.square(bodies.velocity).sum(axis=-1) + np.square(bodies.spin).sum(axis=-1)
            assert energy.max() < MOST_ENERGY, f"bodies move with {energy.max()}"
        case _ if hasattr(world, "bodies"):
            (x, z), velocity = world.bodies.position, world.bodies.velocity
            found |= {"x": x, "z": z, "speed": velocity, "heading": world.bodies.heading[0, 0]}
            length = np.hypot(*world.bodies.heading)
            assert np.abs(length - 1.0).max() < 1e-6, f"headings are {length} long"
        case _:
            found |= {"observation": steps[0].obs[0]}
    return found


def drift(means: Array) -> float:
    """Return how far (stretches, 2) means of first and last tenth differ, in standard errors."""
    tenth = len(means) // 10
    first, last = means[:tenth], means[-tenth:]
    error = np.sqrt((first.var(axis=0, ddof=1) + last.var(axis=0, ddof=1)) / tenth)
    return float((np.abs(last.mean(axis=0) - first.mean(axis=0)) / (error + 1e-12)).max())
