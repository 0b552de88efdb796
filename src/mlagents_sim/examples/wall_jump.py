"""Wall Jump: get over a wall, by way of a block where it is too high to jump."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    BoolArray,
    FloatArray,
    ObservationSpec,
)
from mlagents_sim import top_view
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.planar import (
    FRICTION,
    STEP_S,
    Array,
    Bodies,
    Body,
    Rays,
    X,
    Z,
    along,
    turned,
)
from mlagents_sim.sensors import RaySensor
from mlagents_sim.top_view import TopView
from mlagents_sim.world import ALL, Agents, World

AGENT, BLOCK, WALL = range(3)
AGENT_ON_BLOCK, AGENT_ON_WALL, BLOCK_ON_WALL = range(3)
"""Pairs that may touch."""

# By action of each branch: ahead (nothing, forward, back), turn (nothing, left, right) and aside
# (nothing, left, right). Pushes are in parts of the fastest.
FORWARD = np.array([0.0, 1.0, -1.0])
TURN_RAD = np.radians([0.0, -6.0, 6.0])
TURN = np.array([np.sin(TURN_RAD), np.cos(TURN_RAD)])
RIGHT = np.array([0.0, -0.6, 0.6])
PUSH_M_S = 3.0
PUSH_IN_THE_AIR = 0.5

JUMP_STEPS = 10
JUMP_HEIGHT_M = 2.75
JUMP_SPEED_PER_M = 15.54
"""Speed that a jump aims at, by the distance to where it goes."""
JUMP_CHANGE_M_S = 10.0
"""Most that a jump changes the velocity in a step."""
FALLING_M_S2 = 111.0
"""Pulls down who is in the air and jumps no more, besides gravity."""

# The scene. Heights are those of the axis up, of which the platform's centre has 0.
PLATFORM_CENTRE, PLATFORM_HALF_M = (0.0, -4.0), 10.5
PLATFORM_TOP_M = 0.45
WALL_CENTRE, WALL_HALF = (0.0, -1.98), (10.0, 0.75)
GOAL_CENTRE, GOAL_HALF = (6.37, 2.93), (2.0, 2.0)
GOAL_LOW_M, GOAL_HIGH_M = 0.49, 5.49
BLOCK_HALF = (1.5, 1.5)
BLOCK_LOW_M, BLOCK_HIGH_M = 0.5, 2.5
PLATFORM_AT = np.reshape(PLATFORM_CENTRE, (2, 1))
GOAL_AT = np.reshape(GOAL_CENTRE, (2, 1))
HALVES = np.transpose([WALL_HALF, GOAL_HALF, BLOCK_HALF])[..., None]
STAND_HALVES = np.transpose([[PLATFORM_HALF_M] * 2, BLOCK_HALF, WALL_HALF])[..., None]
"""Of platform, block and wall."""
AGENT_HALF_M = 0.5
AGENT_KG, BLOCK_KG = 25.0, 10.0
AGENT_DRAG = 2.0
START_X_M, START_Y_M, START_Z_M = 9.0, 1.0, -12.0
BLOCK_START_CENTRE, BLOCK_START_HALF = (0.0, -6.27), (8.1, 3.5)

# How the ground is felt for: from a little below the agent's centre, in one line downward; and by
# a box a little below the agent, slightly narrower than it.
FEELER_M, FEELER_BELOW_M = 1.0, 0.05
NARROWER_M = 0.025
STEP_UP_M = 0.05
"""An edge so much higher than what goes over it does not stop it."""

RAYS = RaySensor(per_side=3, max_degrees=90.0, length=20.0, n_tags=3)
RAY_RADIUS_M = 0.5
RAISED_START_M, RAISED_SLOPE = 2.5, (5.0 - 2.5) / 20.0
WALL_TAG, GOAL_TAG, BLOCK_TAG = range(3)
PLACE = ObservationSpec.vector(4, "VectorSensor_size4")
PLACE_SCALE_M = 20.0
STACKED = 6
SPEC = BehaviorSpec(
    [
        stacked(RAYS.spec("OffsetRayPerceptionSensor"), STACKED),
        stacked(RAYS.spec("RayPerceptionSensor"), STACKED),
        stacked(PLACE, STACKED),
    ],
    ActionSpec.create_discrete((3, 3, 3, 2)),
)


class _OverWalls(World):
    """What these worlds share: everything but how high the wall is.

    Bodies move in the plane as `Bodies` do; those of which one is above the other do not touch.
    Besides, the agent moves up and down and stands on whatever is below its edges. Who stands on
    the block drags it along as far as friction goes.

    Attributes:
        bodies: Agent, block and wall of every area.
        height: (N,) of the agents' centres.
        climb: (N,) speed at which they rise.
    """

    agents_per_area = 24
    decision_period_steps = 5
    max_steps = 2000

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.bodies = Bodies(
            n,
            [
                Body((AGENT_HALF_M, AGENT_HALF_M), mass=AGENT_KG, drag=AGENT_DRAG),
                Body(BLOCK_HALF, mass=BLOCK_KG, drag=1.0),
                Body(WALL_HALF),
            ],
            low=(-np.inf, -np.inf),
            high=(np.inf, np.inf),
            pairs=[(AGENT, BLOCK), (AGENT, WALL), (BLOCK, WALL)],
        )
        self.bodies.position[:, WALL] = np.reshape(WALL_CENTRE, (2, 1))
        self.height = np.zeros(n)
        self.climb = np.zeros(n)
        # Of platform, block and wall: heights of their tops, and the same where they are below an
        # agent's feet or below its centre, else -infinity.
        self._tops = np.tile([[PLATFORM_TOP_M], [BLOCK_HIGH_M], [0.0]], n)
        self._below_feet = np.zeros((3, n))
        self._below_centre = np.zeros((3, n))
        # Of what rays see, in the order of the tags.
        self._seen_low = np.tile([[0.0], [GOAL_LOW_M], [BLOCK_LOW_M]], n)
        self._seen_high = np.tile([[0.0], [GOAL_HIGH_M], [BLOCK_HIGH_M]], n)
        self._gravity = np.zeros(n)
        self._jump_from = np.zeros(n)
        self._jump_steps = np.zeros(n, np.intp)  # left of a jump
        self._forward = np.zeros(n)
        self._right = np.zeros(n)
        self._turn = np.zeros((2, n))  # sine and cosine of that in a step
        self._wants_to_jump = np.zeros(n, np.bool_)
        self._raised, self._level = (FrameStack(RAYS.spec(""), STACKED, n) for _ in range(2))
        self._places = FrameStack(PLACE, STACKED, n)

    @abstractmethod
    def _choose_walls(self, agents: Agents) -> Array:
        """Return heights of walls for new episodes of n agents, (n,), of which half is above 0.

        Where the wall decides on an agent's behavior, that is set, too.
        """

    # The task.

    def begin(self, agents: Agents) -> None:
        """Put up the wall, the block before it and the agent at the near end."""
        bodies = self.bodies
        n = len(self.agent_id[agents])
        wall_top = self._choose_walls(agents) / 2.0
        self._tops[WALL, agents] = wall_top
        self._seen_high[WALL_TAG, agents] = wall_top
        self._seen_low[WALL_TAG, agents] = -wall_top
        bodies.is_solid[BLOCK_ON_WALL, agents] = wall_top > BLOCK_LOW_M
        self._gravity[agents] = self.parameters.draw("gravity", n)
        self._jump_steps[agents] = 0
        drawn = self.rng.uniform(-1.0, 1.0, (3, n))
        bodies.position[X, AGENT, agents] = drawn[0] * START_X_M
        bodies.position[Z, AGENT, agents] = START_Z_M
        self.height[agents] = START_Y_M
        self.climb[agents] = 0.0
        centre, half = (np.reshape(v, (2, 1)) for v in (BLOCK_START_CENTRE, BLOCK_START_HALF))
        bodies.position[:, BLOCK, agents] = centre + drawn[1:] * half
        bodies.velocity[:, :, agents] = 0.0
        self._look_down(agents)
        for frames in (self._raised, self._level, self._places):
            frames.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return what the class describes."""
        position = self.bodies.position[:, :, agents]
        height = self.height[agents]
        rays = Rays.cast(position[:, AGENT], self.bodies.heading[:, AGENT, agents], RAYS.directions)
        centre = np.empty((2, 3, len(height)))
        centre[:, WALL_TAG] = position[:, WALL]
        centre[:, GOAL_TAG] = GOAL_AT
        centre[:, BLOCK_TAG] = position[:, BLOCK]
        low, high = self._seen_low[:, agents], self._seen_high[:, agents]
        flights = [(height + RAISED_START_M, RAISED_SLOPE), (height, 0.0)]
        travels = rays.to_solids(centre, HALVES, low, high, RAY_RADIUS_M, flights)
        # Both sensors at once: as if one had the rays of both.
        by_tag = [travel.reshape(-1, len(height)) for travel in travels.swapaxes(0, 1)]
        seen = RAYS.observe(by_tag, [WALL_TAG, GOAL_TAG, BLOCK_TAG])
        place = np.empty((len(height), PLACE.shape[0]), np.float32)
        place[:, 0] = (position[X, AGENT] - PLATFORM_CENTRE[X]) / PLACE_SCALE_M
        place[:, 1] = height / PLACE_SCALE_M
        place[:, 2] = (position[Z, AGENT] - PLATFORM_CENTRE[Z]) / PLACE_SCALE_M
        place[:, 3] = self._feels_ground()[agents]
        return [
            self._raised.add(agents, seen[:, : RAYS.size]),
            self._level.add(agents, seen[:, RAYS.size :]),
            self._places.add(agents, place),
        ]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Note what to do in each of the coming steps."""
        ahead, turn, aside, jump = action.discrete.T
        self._forward[agents] = np.where(aside == 0, FORWARD[ahead], 0.0)
        self._right[agents] = RIGHT[aside]
        self._turn[:, agents] = TURN[:, turn]
        self._wants_to_jump[agents] = jump == 1

    def act(self) -> None:
        """Turn, push and jump; time costs; see who or whose block is off the platform."""
        bodies = self.bodies
        velocity, heading = bodies.velocity[:, AGENT], bodies.heading[:, AGENT]
        on_platform, on_block, on_wall = self._carries()
        is_braked = on_platform | on_wall
        is_on_ground = is_braked | on_block
        begins = self._wants_to_jump & (self._jump_steps <= 0)
        if np.count_nonzero(begins):
            begins &= self._feels_ground()
            self._jump_steps[begins] = JUMP_STEPS
            self._jump_from[begins] = self.height[begins]

        part = np.where(is_on_ground, 1.0, PUSH_IN_THE_AIR)
        push = along(heading, self._forward * part, self._right * part)
        heading[:] = turned(heading, *self._turn)
        jumps = self._jump_steps > 0
        if np.count_nonzero(jumps):
            self._jump(jumps.nonzero()[0], push)
        velocity += push * PUSH_M_S
        self.climb -= np.where(jumps | is_on_ground, 0.0, FALLING_M_S2 * STEP_S)
        self._jump_steps -= 1
        bodies.braking[AGENT] = FRICTION * self._gravity * is_braked
        is_carried = on_block & ~is_braked
        if np.count_nonzero(is_carried):
            self._drag_blocks(is_carried.nonzero()[0])

        self.reward -= 0.0005
        is_off = np.abs(bodies.position[:, :WALL] - PLATFORM_AT[:, None]) > PLATFORM_HALF_M
        if np.count_nonzero(is_off):
            fallen = np.flatnonzero(is_off.any(axis=(0, 1)))
            self.reward[fallen] = -1.0
            self.end(fallen)

    def physics(self) -> None:
        """Let agents and blocks move; see who is in the goal."""
        bodies = self.bodies
        bottom = self.height - AGENT_HALF_M
        bodies.is_solid[AGENT_ON_BLOCK] = bottom < BLOCK_HIGH_M - STEP_UP_M
        bodies.is_solid[AGENT_ON_WALL] = bottom < self.wall_top - STEP_UP_M
        bodies.move()
        self._look_down(ALL)
        self.climb = (self.climb - self._gravity * STEP_S) * (1.0 - AGENT_DRAG * STEP_S)
        self.height += self.climb * STEP_S
        tops = self._below_feet
        ground = np.where(tops < bottom + STEP_UP_M, tops, -np.inf).max(axis=0)
        lands = self.height - AGENT_HALF_M < ground
        np.copyto(self.height, ground + AGENT_HALF_M, where=lands)
        np.copyto(self.climb, 0.0, where=lands)

        arrived = self._in_goal()
        if arrived.size:
            arrived = arrived[self._feels_ground()[arrived]]
            self.reward[arrived] = 1.0
            self.end(arrived)

    # The bodies.

    @property
    def wall_top(self) -> Array:
        """(N,) heights of the upper edges of the walls."""
        tops: Array = self._tops[WALL]
        return tops

    def _jump(self, agents: NDArray[np.intp], push: Array) -> None:
        """Move the velocity of these agents towards what a jump aims at."""
        velocity = self.bodies.velocity[:, AGENT]
        now, aim = np.empty((2, 3, len(agents)))
        now[:2], now[2] = velocity.take(agents, axis=1), self.climb.take(agents)
        rise = self._jump_from.take(agents) + JUMP_HEIGHT_M - self.height.take(agents)
        aim[:2], aim[2] = push.take(agents, axis=1), rise
        change = JUMP_SPEED_PER_M * aim - now
        size = np.sqrt((change * change).sum(axis=0))
        now += change * (JUMP_CHANGE_M_S / np.maximum(size, JUMP_CHANGE_M_S))
        velocity[:, agents] = now[:2]
        self.climb[agents] = now[2]

    def _drag_blocks(self, agents: NDArray[np.intp]) -> None:
        """Let the blocks that these agents stand on go along with them."""
        bodies = self.bodies
        # What friction takes off the slip in a step, or all of it.
        slip = bodies.velocity[:, AGENT, agents] - bodies.velocity[:, BLOCK, agents]
        most = FRICTION * self._gravity[agents] * STEP_S * (1.0 + AGENT_KG / BLOCK_KG)
        lost = slip * most / np.maximum(np.hypot(*slip), most)
        bodies.velocity[:, AGENT, agents] -= lost * (BLOCK_KG / (AGENT_KG + BLOCK_KG))
        bodies.velocity[:, BLOCK, agents] += lost * (AGENT_KG / (AGENT_KG + BLOCK_KG))

    def _look_down(self, agents: Agents) -> None:
        """Note what is below these agents' feet and centres."""
        place, heading = (
            array[:, :, agents] for array in (self.bodies.position, self.bodies.heading)
        )
        apart = np.empty((2, 3, place.shape[2]))
        apart[:, 0] = place[:, AGENT] - PLATFORM_AT
        np.subtract(place[:, AGENT, None], place[:, BLOCK:], out=apart[:, 1:])
        beside = np.abs(apart, out=apart)
        beside -= STAND_HALVES
        # How far from its centre an agent can stand on something.
        across, ahead = np.abs(heading[:, AGENT])
        foot = (across + ahead) * AGENT_HALF_M - NARROWER_M
        farthest = np.maximum(beside[X], beside[Z])
        tops = self._tops[:, agents]
        self._below_feet[:, agents] = np.where(farthest < foot, tops, -np.inf)
        self._below_centre[:, agents] = np.where(farthest < 0.0, tops, -np.inf)

    def _carries(self) -> BoolArray:
        """Return (3, N) whether platform, block and wall are right below the agents."""
        bottom = self.height - AGENT_HALF_M
        above = bottom - self._below_feet
        return (above > -STEP_UP_M) & (above < FEELER_BELOW_M)

    def _feels_ground(self) -> BoolArray:
        """Return (N,) whether anything is a short way below the agents' centres."""
        below = self.height - FEELER_BELOW_M - self._below_centre
        is_felt: BoolArray = np.logical_or.reduce((below > 0.0) & (below <= FEELER_M))
        return is_felt

    def _in_goal(self) -> NDArray[np.intp]:
        """Return the indices of the agents that reach into the goal."""
        z = self.bodies.position[Z, AGENT]
        is_near = z > GOAL_CENTRE[Z] - GOAL_HALF[Z] - 2.0 * AGENT_HALF_M
        agents: NDArray[np.intp] = is_near.nonzero()[0]
        if agents.size == 0:
            return agents
        apart = np.abs(self.bodies.position[:, AGENT, agents] - GOAL_AT)
        reach = np.abs(self.bodies.heading[:, AGENT, agents]).sum(axis=0) * AGENT_HALF_M
        is_beside = np.maximum(*(apart - np.reshape(GOAL_HALF, (2, 1)))) < reach
        height = self.height[agents]
        is_level = (height + AGENT_HALF_M > GOAL_LOW_M) & (height - AGENT_HALF_M < GOAL_HIGH_M)
        arrived: NDArray[np.intp] = agents[is_beside & is_level]
        return arrived

    def render(self) -> NDArray[np.uint8]:
        """Draw every platform from above in a tile of its own, together about (720, 960, 3).

        Low walls are light, high ones dark.
        """
        position = self.bodies.position
        low, high = (np.add(PLATFORM_CENTRE, side * PLATFORM_HALF_M) for side in (-1, 1))
        view = TopView(self.n_agents, low.tolist(), high.tolist())
        view.box(GOAL_CENTRE, GOAL_HALF, top_view.GREEN)
        is_high = self.wall_top > BLOCK_HIGH_M
        is_low = (self.wall_top > PLATFORM_TOP_M) & ~is_high
        for is_shown, colour in ((is_low, top_view.GREY), (is_high, top_view.WALL)):
            view.box(np.where(is_shown, position[:, WALL], np.nan), WALL_HALF, colour)
        view.box(position[:, BLOCK], BLOCK_HALF, top_view.BLOCK)
        view.agent(position[:, AGENT], self.bodies.heading[:, AGENT], AGENT_HALF_M)
        return view.picture()


class SmallWallJump(_OverWalls):
    """Agents on platforms, each before a low wall or none, who must get to a goal behind it.

    Observations: three sensors, six frames each, oldest first.
        1. 210 numbers: a frame has 7 rays, straight ahead and up to 90 degrees to the right and
           left, by turns. They start 2.5 m above the agent's centre and rise by 2.5 m on their
           20 m. A ray has 5 numbers: wall, goal, block, nothing, distance by length.
        2. 210 numbers: such rays from the agent's centre, which stay level.
        3. 24 numbers: a frame is the agent's place relative to the platform's centre, right, up
           and ahead, by 20 m; and 1 where ground is right below, else 0.
    Actions: four branches: nothing, forward, back; nothing, turn left, turn right; nothing, left,
        right, which takes the place of forward and back; nothing, jump. A push is 3 m/s each step,
        1.8 m/s sideways, and half of that in the air; a turn is 6 degrees a step. A jump lasts 0.2
        s and rises nearly 2.75 m; it begins only on the ground.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0005 per step; in place of what has accrued since the last decision, +1 in the goal
        with ground right below, -1 when the agent or the block is off the platform.
    Ends: with either of these.
    Interrupts: after 2000 steps, that is 400 decisions.
    Parameters: `no_wall_height` 0 m and `small_wall_height` 4 m, of which half is above the ground;
        `gravity` 26.98 m/s2.
    Start: a wall of either height; the agent at the near end, with the heading it had; the block
        anywhere before the wall.
    A good policy reaches 0.8 and more.

    Source: example environments, section 2, task 6.
    """

    behavior_name = "SmallWallJump?team=0"
    behavior_spec = SPEC
    default_parameters: ClassVar[Mapping[str, float]] = {
        "no_wall_height": 0.0,
        "small_wall_height": 4.0,
        "gravity": 26.98,
    }

    def _choose_walls(self, agents: Agents) -> Array:
        n = len(self.agent_id[agents])
        none, small = (self.parameters.draw(f"{kind}_wall_height", n) for kind in ("no", "small"))
        return np.where(self.rng.random(n) < 0.5, none, small)


class BigWallJump(_OverWalls):
    """Agents before walls too high to jump over, except from the block.

    Observations, actions, decisions, rewards, ends and start are those of `SmallWallJump`.
    Parameters: `big_wall_height` 8 m, of which half is above the ground; `gravity` 26.98 m/s2.
    A good policy reaches 0.8 and more.

    Source: example environments, section 2, task 6.
    """

    behavior_name = "BigWallJump?team=0"
    behavior_spec = SPEC
    default_parameters: ClassVar[Mapping[str, float]] = {"big_wall_height": 8.0, "gravity": 26.98}

    def _choose_walls(self, agents: Agents) -> Array:
        return self.parameters.draw("big_wall_height", len(self.agent_id[agents]))


class WallJump(_OverWalls):
    """Agents of `SmallWallJump` and of `BigWallJump` in one scene, drawn anew with every episode.

    Of five episodes, one has no wall and one a low wall, both of behavior `SmallWallJump`, and
    three have a high wall, of behavior `BigWallJump`. An agent ends under the behavior it had, and
    asks next under that of its new episode.

    All else is as there; the parameters are those of both.

    Source: example environments, section 2, task 6.
    """

    behavior_names = (SmallWallJump.behavior_name, BigWallJump.behavior_name)
    behavior_spec = SPEC
    default_parameters: ClassVar[Mapping[str, float]] = {
        **SmallWallJump.default_parameters,
        **BigWallJump.default_parameters,
    }

    def _choose_walls(self, agents: Agents) -> Array:
        n = len(self.agent_id[agents])
        kind = self.rng.integers(0, 5, n)
        self.behavior[agents] = kind > 1
        none, small, big = (
            self.parameters.draw(f"{name}_wall_height", n) for name in ("no", "small", "big")
        )
        return np.where(kind > 1, big, np.where(kind == 1, small, none))
