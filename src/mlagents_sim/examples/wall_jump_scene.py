"""Scene of Wall Jump: platform, goal, wall, block and agent, and queries for the task."""

import numpy as np
from numpy.typing import ArrayLike

from mlagents_envs.scene import Scene
from mlagents_sim import floor_plan
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.motion import Motion, Watched
from mlagents_sim.planar import Bodies, Body
from mlagents_sim.plane import Array, Indices
from mlagents_sim.ray_view import Box, Flight, RayView
from mlagents_sim.sensors import RaySensor
from mlagents_sim.standing import Gait, Standing, Support
from mlagents_sim.world import World

AGENT, BLOCK, WALL = range(3)
PLATFORM = 0
"""Index of the platform among the supports, which also include block and wall."""
AGENT_ON_BLOCK, AGENT_ON_WALL, BLOCK_ON_WALL = range(3)
"""Pairs that may touch."""

# Heights are those of the axis up; the platform's center has height 0.
PLATFORM_CENTER, PLATFORM_HALF_M, PLATFORM_TOP_M = (0.0, -4.0), 10.5, 0.45
WALL_CENTER, WALL_HALF = (0.0, -1.98), (10.0, 0.75)
GOAL_CENTER, GOAL_HALF, GOAL_LOW_M, GOAL_HIGH_M = (6.37, 2.93), (2.0, 2.0), 0.49, 5.49
BLOCK_HALF, BLOCK_LOW_M, BLOCK_HIGH_M = (1.5, 1.5), 0.5, 2.5
PLATFORM_AT, GOAL_AT = np.reshape(PLATFORM_CENTER, (2, 1)), np.reshape(GOAL_CENTER, (2, 1))
AGENT_HALF_M = 0.5
AGENT_KG, BLOCK_KG = 25.0, 10.0
AGENT_DRAG, BLOCK_DRAG = 2.0, 1.0
# A jump lasts 0.2 s, counted down in 32-bit floats by 0.02 s a step. After ten steps 3e-8 s are
# left, enough for an eleventh.
GAIT = Gait(
    push_m_s=3.0,
    air_push=0.5,
    jump_height_m=2.75,
    jump_steps=11,
    jump_speed_per_m=15.54,
    jump_change_m_s=10.0,
    fall_m_s2=111.0,
)
SUPPORTS = [
    Support((PLATFORM_HALF_M, PLATFORM_HALF_M), PLATFORM_CENTER, PLATFORM_TOP_M),
    Support(
        BLOCK_HALF,
        top_m=BLOCK_HIGH_M,
        body=BLOCK,
        mass_ratio=AGENT_KG / BLOCK_KG,
        pair=AGENT_ON_BLOCK,
    ),
    Support(WALL_HALF, WALL_CENTER, pair=AGENT_ON_WALL),
]
START_Y_M = 1.0
START_CENTERS = np.array([[[0.0], [0.0]], [[-12.0], [-6.27]]])
"""Centers of the ranges in which agent and block start, in x and in z."""
START_HALVES = np.array([[[9.0], [8.1]], [[0.0], [3.5]]])
"""Half lengths of those ranges."""
START_DRAWN = np.array([[0, 1], [0, 2]])
"""Indices, among three random numbers, of those that place them."""

WALL_TAG, GOAL_TAG, BLOCK_TAG = range(3)
RAYS = RaySensor(per_side=3, max_degrees=90.0, length=20.0, n_tags=3)
RAY_RADIUS_M = 0.5
RAISED_START_M, RAISED_SLOPE = 2.5, (5.0 - 2.5) / 20.0


class Platforms:
    """Platforms of N areas.

    Args:
        n_areas: Number of platforms, N.

    Attributes:
        bodies: Agent, block and wall of every area.
        standing: Vertical motion of the agents.
        motion: Motion of all bodies.
        wall_top: (N,) heights of the walls' upper edges, in m.
        raised_rays: View of rays that start above the agents and rise.
        level_rays: View of level rays from the agents' centers.
    """

    def __init__(self, n_areas: int) -> None:
        self.bodies = Bodies(
            n_areas,
            [
                Body((AGENT_HALF_M, AGENT_HALF_M), mass=AGENT_KG, drag=AGENT_DRAG),
                Body(BLOCK_HALF, mass=BLOCK_KG, drag=BLOCK_DRAG),
                Body(WALL_HALF),
            ],
            low=(-np.inf, -np.inf),
            high=(np.inf, np.inf),
            pairs=[(AGENT, BLOCK), (AGENT, WALL), (BLOCK, WALL)],
        )
        self.bodies.position[:, WALL] = np.reshape(WALL_CENTER, (2, 1))
        goal = Support(GOAL_HALF, GOAL_CENTER)
        self.standing = Standing(self.bodies, SUPPORTS, gait=GAIT, zones=[goal])
        on_platform = Watched(
            bodies=[AGENT, BLOCK],
            center=PLATFORM_CENTER,
            half=(PLATFORM_HALF_M, PLATFORM_HALF_M),
        )
        self.motion = Motion(self.bodies, standing=self.standing, watched=on_platform)
        self.wall_top: Array = self.standing.tops[WALL]
        self._wall_low = np.zeros(n_areas)
        goal_edges, block_edges = (
            (np.full(n_areas, low), np.full(n_areas, high))
            for low, high in ((GOAL_LOW_M, GOAL_HIGH_M), (BLOCK_LOW_M, BLOCK_HIGH_M))
        )
        self.raised_rays, self.level_rays = (
            RayView(
                RAYS,
                self.bodies,
                radius_m=RAY_RADIUS_M,
                boxes=[
                    Box(WALL_TAG, body=WALL, edges_m=(self._wall_low, self.wall_top)),
                    Box(GOAL_TAG, center=GOAL_CENTER, half=GOAL_HALF, edges_m=goal_edges),
                    Box(BLOCK_TAG, body=BLOCK, edges_m=block_edges),
                ],
                flight=Flight(self.standing.height_m, start_m, slope),
            )
            for start_m, slope in ((RAISED_START_M, RAISED_SLOPE), (0.0, 0.0))
        )

    def begin(
        self,
        areas: slice | Indices,
        *,
        wall_top: Array,
        gravity: ArrayLike,
        rng: np.random.Generator,
    ) -> None:
        """Put up n walls, blocks before them and agents at the near end, at rest.

        Args:
            areas: Indices of the areas, n of them.
            wall_top: (n,) heights of the walls' upper edges, in m.
            gravity: Downward acceleration, in m/s2.
            rng: Source of the places.
        """
        bodies = self.bodies
        self.wall_top[areas] = wall_top
        self._wall_low[areas] = -wall_top
        bodies.is_solid[BLOCK_ON_WALL][areas] = wall_top > BLOCK_LOW_M
        drawn = rng.uniform(-1.0, 1.0, (3, len(wall_top))).take(START_DRAWN, axis=0)
        bodies.position[:, :WALL, areas] = START_CENTERS + drawn * START_HALVES
        bodies.velocity[:, :, areas] = 0.0
        self.standing.put_down(areas, height_m=START_Y_M, gravity=gravity)

    def off_platform(self) -> Indices:
        """Return the areas whose block is off the platform, or the agent but not above it."""
        beside = self.bodies.position[:, :WALL] - PLATFORM_AT[:, None]
        agent_is_off, block_is_off = (np.abs(beside) > PLATFORM_HALF_M).any(axis=0)
        return np.flatnonzero((agent_is_off & ~self.standing.is_above(BLOCK)) | block_is_off)

    def in_goal(self) -> Indices:
        """Return the areas whose agent reaches into the goal and is on the ground."""
        areas: Indices = self.standing.is_over_zone[0].nonzero()[0]
        if areas.size:
            height = self.standing.height_m[areas]
            reaches = (height + AGENT_HALF_M > GOAL_LOW_M) & (height - AGENT_HALF_M < GOAL_HIGH_M)
            areas = areas[reaches & self.standing.is_on_ground()[areas]]
        return areas

    def shown(self, world: World) -> Scene:
        """Return what all platforms show: a green goal, a wall, a block and an agent on each."""
        bodies = self.bodies
        low, high = (np.add(PLATFORM_CENTER, side * PLATFORM_HALF_M) for side in (-1, 1))
        plan = FloorPlan(world, len(self.wall_top), low.tolist(), high.tolist(), top_m=5.0)
        plan.box("goal", GOAL_CENTER, GOAL_HALF, height_m=0.05, color=floor_plan.GREEN)
        height = self.wall_top - PLATFORM_TOP_M
        plan.box(
            "wall",
            floor_plan.hidden(bodies.position[:, WALL], height > 0.0),
            WALL_HALF,
            height_m=np.maximum(height, 0.0),
            color=floor_plan.WALL,
        )
        plan.box(
            "block",
            bodies.position[:, BLOCK],
            BLOCK_HALF,
            height_m=BLOCK_HIGH_M - BLOCK_LOW_M,
            color=floor_plan.ORANGE,
        )
        plan.agents(
            "agent",
            bodies.position[:, AGENT],
            bodies.heading[:, AGENT],
            AGENT_HALF_M,
            agents=np.arange(len(self.wall_top)),
            low_m=self.standing.height_m - AGENT_HALF_M - PLATFORM_TOP_M,
        )
        return plan.scene()
