"""Scene of Pyramids: walls, a switch, pyramids of stone, and one of loose bricks.

The pyramids have the shapes to which they settle in Unity's physics engine. A stone pyramid never
moves, so it is one box for collisions, and one box per layer for rays. A brick pyramid has 25
bricks and a cube of gold. The bricks of the lowest layer slide when the agent or other bricks push
them. A brick above them stays while enough of it is supported, and then falls to one side. A hard
bump shakes all of them loose.
"""

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.scene import Scene
from mlagents_sim import floor_plan
from mlagents_sim.contact import STEP_S
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.motion import Motion, Watched
from mlagents_sim.planar import Bodies, Body
from mlagents_sim.plane import Array, Indices, X, dot
from mlagents_sim.ray_view import Box, Flight, RayView
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import World

ARENA_M = 49.5
"""Distance from the middle to the inner faces of the outer walls."""
OUTER_WALL_M = 50.0
WALL_HEIGHT_M, WALL_HALF_M = 5.0, 0.5
CROSS_M, CROSS_HALF_M = 16.55, 7.55
"""Place of the four crosses in x and z, and half the length of their bars."""
SPUR_M, SPUR_CENTER_M, SPUR_HALF_M = 16.5, 42.25, 7.25
"""Position of the eight walls that extend from the outer walls: aside, outward, and half length."""
ROOM_M, SPREAD_M = 30.0, 11.9
"""Distance between the middles of rooms, and from there to the farthest place of an object."""
ROOMS = ROOM_M * np.array([[x, z] for x in (-1, 0, 1) for z in (-1, 0, 1)], np.float64)
N_STONES = 6

AGENT_HALF_M, AGENT_KG, AGENT_DRAG = 0.5, 25.0, 2.0
AGENT_DROP_M = 1.5
"""Height of an agent's feet when its episode begins."""
PYRAMID_DROP_M = 2.0
"""Height of a new pyramid above the floor, to which it falls."""
SWITCH_HALF_M = 2.0
GRAVITY_M_S2 = 9.81

# A settled pyramid, relative to its place. In each layer, the middles of its bricks.
LAYER_M = (0.0, 1.0, 1.97, 2.97, 3.97)
"""Heights of the layers' lower faces. The last one is the gold."""
_OUTER = [(x, z) for x in (-1.34, -0.21, 1.09, 2.2) for z in (-1.06, 0.1, 1.45, 2.62)]
BRICKS = [
    [(x, z) for x, z in _OUTER if x in (-1.34, 2.2) or z in (-1.06, 2.62)],
    [
        *[(x, z) for x in (-0.85, 1.7) for z in (-0.48, 0.75, 2.15)],
        *[(0.36, z) for z in (-0.43, 2.08)],
    ],
    [(x, z) for x in (-0.15, 0.96) for z in (0.13, 1.28)],
    [(0.48, 0.76)],
]
LAYER_OF = np.repeat(range(5), [*map(len, BRICKS), 1])
"""(L,) layer of each brick, and of the gold at the end."""
PLACES = np.array([place for layer in BRICKS for place in layer] + [(0.44, 0.76)]).T  # (2, L)
BRICK_HALF_M, GOLD_HALF_M, BRICK_KG = 0.5, 1.0, 2.0
LOWEST_KG = 3.0
"""Mass of a brick of the lowest layer with those above that it drags along."""
HALVES = np.where(LAYER_OF == 4, GOLD_HALF_M, BRICK_HALF_M)
STONE_LAYERS = [
    ((np.max(layer, axis=0) + np.min(layer, axis=0)) / 2.0, np.ptp(layer, axis=0) / 2.0 + 0.5)
    for layer in BRICKS
]
"""Center and half lengths of each layer of a stone pyramid."""

OVERHANG_M = 0.15
"""Distance of a brick's middle from what supports it beyond which it falls."""
SHAKEN_M_S = 6.0
"""Speed of a brick of the lowest layer that shakes those above loose."""
FALL_ASIDE_M = np.array([0.0, 2.0, 3.0, 3.0, 3.4])
"""Deviation, in x and in z, of the way aside that a brick of each layer falls."""
GOLD_FALLS_S = 2.0, 4.0
"""Shortest and longest time in which the gold comes down over the falling bricks."""
PARKED_M = 1000.0
"""Height of bricks before the switch is touched."""

AGENT, SWITCH = 0, 1
STONES = slice(2, 2 + N_STONES)
LAYERS = slice(STONES.stop, STONES.stop + 3 * N_STONES)
"""Upper layers of the stone pyramids."""
WALLS = slice(LAYERS.stop, LAYERS.stop + 16)
LOOSE = slice(WALLS.stop, WALLS.stop + len(LAYER_OF))
"""Bricks and gold."""
GOLD = LOOSE.stop - 1
N_BODIES = LOOSE.stop


def _all(bodies: slice) -> range:
    return range(*bodies.indices(N_BODIES))


PAIRS = [
    *[(AGENT, body) for body in (SWITCH, *_all(STONES), *_all(WALLS))],
    *[(AGENT, body) for body in _all(LOOSE)],
    *[(a, b) for a in _all(LOOSE) for b in range(a + 1, N_BODIES)],
    *[(body, GOLD) for body in (SWITCH, *_all(STONES))],  # where no agent could reach it
]
AT_SWITCH, AT_GOLD = PAIRS.index((AGENT, SWITCH)), PAIRS.index((AGENT, GOLD))
FIRST_LOOSE_PAIR = PAIRS.index((AGENT, LOOSE.start))

BLOCK_TAG, WALL_TAG, GOAL_TAG, OFF_TAG, ON_TAG, STONE_TAG = range(6)
RAY_RADIUS_M, RAY_LENGTH_M = 0.5, 35.0
SENSORS = [
    RaySensor(per_side=3, max_degrees=degrees, length=RAY_LENGTH_M, n_tags=6)
    for degrees in (70.0, 65.0, 75.0)
]
RISES_M = 0.0, 5.0, 10.0
"""Heights that the rays of each sensor gain along their length."""


def _walls() -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the centers and half lengths of the walls inside the arena."""
    walls = []
    for x in (-1, 1):
        for z in (-1, 1):
            center = (x * CROSS_M, z * CROSS_M)
            walls += [(center, (CROSS_HALF_M, WALL_HALF_M)), (center, (WALL_HALF_M, CROSS_HALF_M))]
            aside, out = x * SPUR_M, z * SPUR_CENTER_M
            walls += [((aside, out), (WALL_HALF_M, SPUR_HALF_M))]
            walls += [((out, aside), (SPUR_HALF_M, WALL_HALF_M))]
    return walls


INNER_WALLS = _walls()
OUTER_WALLS = [
    (center, half)
    for side in (-OUTER_WALL_M, OUTER_WALL_M)
    for center, half in (
        ((side, 0.0), (WALL_HALF_M, OUTER_WALL_M)),
        ((0.0, side), (OUTER_WALL_M, WALL_HALF_M)),
    )
]


class PyramidsScene:
    """Arenas of N areas.

    Args:
        n_areas: Number of arenas, N.

    Attributes:
        bodies: Agent, switch, stone pyramids, walls, bricks and gold of every area.
        motion: Motion of everything.
        is_on: (N,) whether the switch is on.
    """

    def __init__(self, n_areas: int) -> None:
        stone = [Body((half[0], half[1])) for _, half in STONE_LAYERS]
        loose = [
            Body((half, half), mass=BRICK_KG if layer else LOWEST_KG)
            for half, layer in zip(HALVES.tolist(), LAYER_OF.tolist(), strict=True)
        ]
        bodies = [
            Body((AGENT_HALF_M, AGENT_HALF_M), mass=AGENT_KG, drag=AGENT_DRAG),
            Body((SWITCH_HALF_M, SWITCH_HALF_M)),
            *[stone[0]] * N_STONES,
            *stone[1:] * N_STONES,
            *[Body(half) for _, half in INNER_WALLS],
            *loose,
        ]
        # The outer walls stop what moves. The inner ones would touch them all the time.
        bound = np.where(np.isinf([body.mass for body in bodies]), np.inf, ARENA_M)
        self.bodies = Bodies(
            n_areas, bodies, low=np.array([-bound] * 2), high=np.array([bound] * 2), pairs=PAIRS
        )
        for body, (center, _) in enumerate(INNER_WALLS, WALLS.start):
            self.bodies.position[:, body] = np.reshape(center, (2, 1))
        self.motion = Motion(self.bodies, watched=Watched(pairs=[AT_SWITCH, AT_GOLD]))
        self.is_on = np.zeros(n_areas, np.bool_)
        self._site = np.zeros((2, n_areas))  # of the brick pyramid
        self._steps = np.zeros(n_areas)  # since the episode began
        self._steps_on = np.zeros(n_areas)  # since the switch is on
        self._is_held = np.zeros((len(LAYER_OF), n_areas), np.bool_)  # by bricks below
        self._switch_tag = np.zeros(n_areas, np.int8)
        # Heights of edges that rays meet.
        self._height = np.zeros(n_areas)
        self._wall_edges = np.zeros(n_areas), np.full(n_areas, WALL_HEIGHT_M)
        self._switch_edges = np.zeros(n_areas), np.full(n_areas, 2.0 * SWITCH_HALF_M)
        self._stone_edges = [(np.zeros(n_areas), np.zeros(n_areas)) for _ in STONE_LAYERS]
        self._loose_tops = np.zeros((len(LAYER_OF), n_areas))
        self._views = [
            RayView(
                sensor,
                self.bodies,
                radius_m=RAY_RADIUS_M,
                boxes=self._boxes(),
                flight=Flight(self._height, 0.0, rise / RAY_LENGTH_M),
            )
            for sensor, rise in zip(SENSORS, RISES_M, strict=True)
        ]

    def _boxes(self) -> list[Box]:
        """Return all that rays meet."""
        walls = [
            Box(WALL_TAG, center=center, half=half, edges_m=self._wall_edges)
            for center, half in (*OUTER_WALLS, *INNER_WALLS)
        ]
        switch = Box(self._switch_tag, body=SWITCH, edges_m=self._switch_edges)
        stones = [
            Box(STONE_TAG, body=stone, edges_m=self._stone_edges[0]) for stone in _all(STONES)
        ]
        for upper in range(3 * N_STONES):
            edges = self._stone_edges[1 + upper % 3]
            stones.append(Box(STONE_TAG, body=LAYERS.start + upper, edges_m=edges))
        loose = [
            Box(
                GOAL_TAG if body == GOLD else BLOCK_TAG,
                body=body,
                edges_m=(self.bodies.above_m[body], self._loose_tops[body - LOOSE.start]),
            )
            for body in _all(LOOSE)
        ]
        return [*walls, switch, *stones, *loose]

    def begin(self, areas: slice | Indices, rng: np.random.Generator) -> None:
        """Put agent, switch and stone pyramids into different rooms of n areas.

        Args:
            areas: Indices of the areas, n of them.
            rng: Source of the places and of the agents' headings.
        """
        bodies = self.bodies
        n = len(self.is_on[areas])
        rooms = rng.permuted(np.tile(np.arange(9), (n, 1)), axis=1)
        places = ROOMS[rooms] + rng.uniform(-SPREAD_M, SPREAD_M, (n, 9, 2))
        place = places.transpose(2, 1, 0)  # (2, 9, n)
        yaw = np.radians(rng.integers(0, 360, n))
        bodies.velocity[:, :, areas] = 0.0
        bodies.position[:, AGENT, areas] = place[:, 0]
        bodies.heading[:, AGENT, areas] = np.sin(yaw), np.cos(yaw)
        bodies.position[:, SWITCH, areas] = place[:, 1]
        self._site[:, areas] = place[:, 2]
        for stone in range(N_STONES):
            for layer, (center, _) in enumerate(STONE_LAYERS):
                body = STONES.start + stone
                if layer > 0:
                    body = LAYERS.start + 3 * stone + layer - 1
                bodies.position[:, body, areas] = place[:, 3 + stone] + center[:, None]
        bodies.put_down((AGENT, areas), gravity=GRAVITY_M_S2, above_m=AGENT_DROP_M)
        bodies.put_down((LOOSE, areas), gravity=0.0, above_m=PARKED_M)
        bodies.position[:, LOOSE, areas] = 0.0
        bodies.is_solid[FIRST_LOOSE_PAIR:, areas] = False
        self.is_on[areas] = False
        self._is_held[:, areas] = False
        self._steps[areas] = self._steps_on[areas] = 0.0

    def pass_time(self, n_steps: int, rng: np.random.Generator) -> None:
        """Let new pyramids fall to the floor, and bricks that nothing supports."""
        self._steps += n_steps
        areas = np.flatnonzero(self.is_on)
        if areas.size == 0:
            return
        before = _drop_m(self._steps_on[areas])
        self._steps_on[areas] += n_steps
        self._let_down(areas[before > 0.0])
        self._release(areas[before == 0.0], rng)
        self._choose_solid(areas)

    def switch_on(self, areas: Indices) -> None:
        """Turn switches on, so that the brick pyramids appear."""
        self.is_on[areas] = True
        self._steps_on[areas] = 0.0
        self._is_held[:, areas] = (LAYER_OF > 0)[:, None]
        self.bodies.position[:, LOOSE, areas] = self._site[:, None, areas] + PLACES[:, :, None]
        self._let_down(areas)
        self._choose_solid(areas)

    def _let_down(self, areas: Indices) -> None:
        """Put pyramids that have just appeared to the height to which they have fallen."""
        height = np.array(LAYER_M)[LAYER_OF, None] + _drop_m(self._steps_on[areas])
        self.bodies.above_m[LOOSE, areas] = height
        landed = areas[_drop_m(self._steps_on[areas]) == 0.0]
        lowest = np.arange(LOOSE.start, LOOSE.stop)[LAYER_OF == 0, None]
        self.bodies.put_down((lowest, landed), gravity=GRAVITY_M_S2)

    def _release(self, areas: Indices, rng: np.random.Generator) -> None:
        """Let bricks of n areas fall that are no longer supported."""
        bodies = self.bodies
        place = bodies.position[:, LOOSE, areas]
        half = HALVES[:, None]
        velocity = bodies.velocity[:, LOOSE, areas][:, LAYER_OF == 0]
        is_shaken = (dot(velocity, velocity) > SHAKEN_M_S**2).any(axis=0)
        for layer in range(1, 5):
            upper = np.flatnonzero(LAYER_OF == layer)
            held = self._is_held[upper[:, None], areas]
            if not held.any():
                continue
            below = np.flatnonzero(LAYER_OF == layer - 1)
            is_there = np.tile(~is_shaken, (len(below), 1))
            if layer > 1:
                is_there = self._is_held[below[:, None], areas]
            mine, theirs = place[:, upper, None], place[:, None, below]  # (2, U, V, n)
            low = np.maximum(mine - half[upper, None], theirs - half[below])
            high = np.minimum(mine + half[upper, None], theirs + half[below])
            carries = (low < high).all(axis=0) & is_there
            least = np.where(carries, low, np.inf).min(axis=2) - OVERHANG_M
            most = np.where(carries, high, -np.inf).max(axis=2) + OVERHANG_M
            is_carried = ((place[:, upper] >= least) & (place[:, upper] <= most)).all(axis=0)
            brick, area = (held & ~is_carried).nonzero()
            if brick.size:
                self._let_fall(upper[brick], areas[area], layer, rng)

    def _let_fall(
        self, bricks: Indices, areas: Indices, layer: int, rng: np.random.Generator
    ) -> None:
        """Let one brick of a layer in each of n areas fall some way aside."""
        n = len(bricks)
        time_s = np.full(n, np.sqrt(2.0 * LAYER_M[layer] / GRAVITY_M_S2))
        if layer == 4:
            time_s = rng.uniform(*GOLD_FALLS_S, n)
        which = LOOSE.start + bricks, areas
        aside = rng.normal(0.0, FALL_ASIDE_M[layer], (2, n))
        self.bodies.velocity[:, *which] = aside / time_s
        gravity = 2.0 * LAYER_M[layer] / time_s**2
        self.bodies.put_down(which, gravity=gravity, above_m=LAYER_M[layer])
        self._is_held[bricks, areas] = False

    def _choose_solid(self, areas: Indices) -> None:
        """Let bodies touch bricks and gold where they are at the same height."""
        bodies = self.bodies
        low = bodies.above_m[:, areas]
        high = low + 2.0 * AGENT_HALF_M
        high[LOOSE] = low[LOOSE] + 2.0 * HALVES[:, None]
        first, second = np.array(PAIRS[FIRST_LOOSE_PAIR:]).T
        meets = (low[first] < high[second] - 0.05) & (low[second] < high[first] - 0.05)
        bodies.is_solid[FIRST_LOOSE_PAIR:, areas] = meets

    def observe(self, agents: slice | Indices) -> list[NDArray[np.float32]]:
        """Return what the three sensors of n agents see: (n, 56) each."""
        above = self.bodies.above_m
        self._height[:] = above[AGENT] + AGENT_HALF_M
        self._switch_tag[:] = np.where(self.is_on, ON_TAG, OFF_TAG)
        drop = _drop_m(self._steps)
        for (low, high), height in zip(self._stone_edges, LAYER_M[:4], strict=True):
            low[:] = height + drop
            high[:] = low + 1.0
        self._loose_tops[:] = above[LOOSE] + 2.0 * HALVES[:, None]
        return [view.observe(agents) for view in self._views]

    def shown(self, world: World) -> Scene:
        """Return what the arenas of a world show; the bricks and the gold once they stand."""
        bodies, areas = self.bodies, np.arange(len(self.is_on))
        plan = FloorPlan(
            world, len(areas), (-OUTER_WALL_M,) * 2, (OUTER_WALL_M,) * 2, top_m=2.0 * WALL_HEIGHT_M
        )
        centers, halves = (
            np.array(part).T for part in zip(*OUTER_WALLS, *INNER_WALLS, strict=True)
        )
        plan.box(
            "wall",
            centers,
            halves,
            height_m=WALL_HEIGHT_M,
            color=floor_plan.WALL,
            fixed=True,
        )
        for layer, (low, high) in enumerate(self._stone_edges):
            of_layer = LAYERS.start + layer - 1
            stones = slice(of_layer, LAYERS.stop, len(self._stone_edges) - 1) if layer else STONES
            plan.box(
                f"stone {layer}",
                bodies.position[:, stones],
                bodies.half[:, stones],
                height_m=np.maximum(high - low, 0.01),
                low_m=low,
                color=floor_plan.GRAY,
            )
        plan.box(
            "switch",
            bodies.position[:, SWITCH],
            (SWITCH_HALF_M, SWITCH_HALF_M),
            height_m=2.0 * SWITCH_HALF_M,
            color=np.where(self.is_on[:, None], floor_plan.GREEN, floor_plan.RED),
        )
        for name, loose, color in (
            ("brick", slice(LOOSE.start, GOLD), floor_plan.ORANGE),
            ("gold", slice(GOLD, LOOSE.stop), GOLD_COLOR),
        ):
            plan.box(
                name,
                np.where(self.is_on, bodies.position[:, loose], np.nan),
                bodies.half[:, loose],
                height_m=2.0 * bodies.half[X, loose],
                low_m=bodies.above_m[loose],
                color=color,
            )
        plan.agents(
            "agent",
            bodies.position[:, AGENT],
            bodies.heading[:, AGENT],
            AGENT_HALF_M,
            agents=areas,
            low_m=bodies.above_m[AGENT],
        )
        return plan.scene()


GOLD_COLOR = (250, 210, 40)


def _drop_m(steps: Array) -> Array:
    """Return the heights above the floor of pyramids that fell for these numbers of steps."""
    seconds = steps * STEP_S
    height: Array = np.maximum(PYRAMID_DROP_M - GRAVITY_M_S2 / 2.0 * seconds**2, 0.0)
    return height
