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
    ANCHORS,
    FRICTION,
    STEP_S,
    Array,
    Bodies,
    Body,
    Rays,
    X,
    Z,
    kept,
    number,
)
from mlagents_sim.sensors import RaySensor
from mlagents_sim.top_view import TopView
from mlagents_sim.world import Agents, World

AGENT, BLOCK, WALL = range(3)
PLATFORM, GOAL = 0, 3
"""With block and wall, what agents may be over."""
AGENT_ON_BLOCK, AGENT_ON_WALL, BLOCK_ON_WALL = range(3)
"""Pairs that may touch."""

# By action of each branch: ahead (nothing, forward, back), turn (nothing, left, right) and aside
# (nothing, left, right). Pushes are in parts of the fastest.
FORWARD = np.array([0.0, 1.0, -1.0])
TURN_RAD = np.radians([0.0, -6.0, 6.0])
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)
RIGHT = np.array([0.0, -0.6, 0.6])
PUSH_M_S = number(3.0)
PUSH_BY_GROUND = np.array([0.5, 1.0])
"""Part of a push that is left in the air, and on the ground."""

JUMP_STEPS = number(11)
"""A jump lasts 0.2 s, counted down in 32-bit floats by 0.02 s a step: after ten steps 3e-8 s are
left, enough for an eleventh."""
JUMP_HEIGHT_M = 2.75
JUMP_SPEED_PER_M = number(15.54)
"""Speed that a jump aims at, by the distance to where it goes."""
JUMP_CHANGE_M_S = number(10.0)
"""Most that a jump changes the velocity in a step."""
CHANGE_BY_JUMP_M_S = np.array([0.0, JUMP_CHANGE_M_S])
"""That, of who does not jump and of who does."""
FALL_BY_HOLD_M_S = np.array([111.0 * STEP_S, 0.0])
"""Speed by which an agent falls faster with a step, besides gravity: of who is in the air and jumps
no more, and of who stands or jumps."""

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
BELOW_HALVES = np.transpose([[PLATFORM_HALF_M] * 2, BLOCK_HALF, WALL_HALF, GOAL_HALF])[..., None]
"""Of what agents may be over."""
AGENT_HALF_M = 0.5
AGENT_KG, BLOCK_KG = 25.0, 10.0
AGENT_DRAG, BLOCK_DRAG = 2.0, 1.0
BLOCK_GAIN = number(AGENT_KG / BLOCK_KG)
"""Speed that a block gains by what the agent on it loses."""
START_Y_M = 1.0
START_CENTRES = np.array([[[0.0], [0.0]], [[-12.0], [-6.27]]])
"""Of agent and block, in x and in z."""
START_HALVES = np.array([[[9.0], [8.1]], [[0.0], [3.5]]])
START_DRAWN = np.array([[0, 1], [0, 2]])
"""Of three numbers drawn, those for these."""
IS_OVER_AT_START = np.array([[True], [False], [False]])
"""Agents begin over the platform, and never so far ahead that they are over the block."""

# How the ground is felt for: from 0.05 m below the agent's centre, by a line of 1 m downward; and
# by a box 0.05 m below the agent, slightly narrower than it.
HIGHEST_FELT_M, LOWEST_FELT_M = number(0.05 - AGENT_HALF_M), number(1.05 - AGENT_HALF_M)
"""How far feet are above the highest and above the lowest ground that the line meets."""
FEELER_BELOW_M = number(0.05)
NARROWER_M = number(0.025)
STEP_UP_M = number(0.05)
"""An edge so much higher than what goes over it does not stop it."""
SINK_M = number(-STEP_UP_M)
"""So far may who stands on something have sunk into it."""

# Of what is above, what every step needs, as NumPy takes it fastest.
ZERO, ONE = number(0.0), number(1.0)
HALF, PLATFORM_REACH = number(AGENT_HALF_M), number(PLATFORM_HALF_M)
PLATFORM_X, PLATFORM_Z = number(PLATFORM_CENTRE[X]), number(PLATFORM_CENTRE[Z])
GRIP = number(ANCHORS * FRICTION)
COST = np.array(0.0005, np.float32)
STEP = number(STEP_S)
AGENT_KEPT, BLOCK_KEPT = number(kept(AGENT_DRAG)), number(kept(BLOCK_DRAG))
TINY = number(1e-30)
NOBODY = np.zeros(0, np.intp)

RAYS = RaySensor(per_side=3, max_degrees=90.0, length=20.0, n_tags=3)
RAY_RADIUS_M = number(0.5)
RAISED_START_M, RAISED_SLOPE = number(2.5), (5.0 - 2.5) / 20.0
WALL_TAG, GOAL_TAG, BLOCK_TAG = range(3)
PLACE = ObservationSpec.vector(4, "VectorSensor_size4")
PLACE_SCALE_M = number(20.0)
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
    Besides, the agent moves up and down and stands on whatever is below its edges, where it rubs
    by its weight and, when it lands, by the fall that ends there. Who rubs on the block drags it
    along.

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
                Body(BLOCK_HALF, mass=BLOCK_KG, drag=BLOCK_DRAG),
                Body(WALL_HALF),
            ],
            low=(-np.inf, -np.inf),
            high=(np.inf, np.inf),
            pairs=[(AGENT, BLOCK), (AGENT, WALL), (BLOCK, WALL)],
        )
        self.bodies.position[:, WALL] = np.reshape(WALL_CENTRE, (2, 1))
        self.height = np.zeros(n)
        self.climb = np.zeros(n)
        # Where is what agents may be over, and how large.
        self._below = np.zeros((2, 4, n))
        self._below[:, PLATFORM] = PLATFORM_AT
        self._below[:, WALL] = np.reshape(WALL_CENTRE, (2, 1))
        self._below[:, GOAL] = GOAL_AT
        self._below_halves = BELOW_HALVES.repeat(n, axis=2)
        # Of platform, block and wall: heights of their tops, whether agents have their feet over
        # them, and whether their centres; whether feet were no lower than tops when the step began,
        # so that they can be stood on and do not stop who goes over them.
        self._tops = np.tile([[PLATFORM_TOP_M], [BLOCK_HIGH_M], [0.0]], n)
        self._is_over = np.zeros((2, 3, n), np.bool_)
        self._feet_are_over, self._centre_is_over = self._is_over
        self._is_cleared = np.zeros((3, n), np.bool_)
        self._grounds = np.empty((3, n))  # heights of those that an agent can stand on
        self._is_over_goal = np.zeros(n, np.bool_)
        # Of what rays see, in the order of the tags.
        self._seen_low = np.tile([[0.0], [GOAL_LOW_M], [BLOCK_LOW_M]], n)
        self._seen_high = np.tile([[0.0], [GOAL_HIGH_M], [BLOCK_HIGH_M]], n)
        self._platform_at = np.empty((2, 3, n))  # of the shape of the bodies' positions
        self._platform_at[:] = PLATFORM_AT[:, None]
        self._fall = np.zeros(n)  # speed by which gravity makes agents fall faster with a step
        self._stood = np.zeros(n, np.bool_)  # whether on anything when the step began
        self._jump_to = np.zeros(n)  # heights
        self._jump_steps = np.zeros(n)  # left of a jump
        self._forward = np.zeros(n)
        self._right = np.zeros(n)
        self._sine, self._cosine = np.zeros((2, n))  # of the turn in a step
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
        self._tops[WALL][agents] = wall_top
        self._seen_high[WALL_TAG][agents] = wall_top
        self._seen_low[WALL_TAG][agents] = -wall_top
        bodies.is_solid[BLOCK_ON_WALL][agents] = wall_top > BLOCK_LOW_M
        gravity = self.parameters.draw("gravity", n)
        self._fall[agents] = gravity * STEP
        self._jump_steps[agents] = ZERO
        drawn = self.rng.uniform(-1.0, 1.0, (3, n)).take(START_DRAWN, axis=0)
        bodies.position[:, :WALL, agents] = START_CENTRES + drawn * START_HALVES
        bodies.velocity[:, :, agents] = 0.0
        self.height[agents] = START_Y_M
        self.climb[agents] = 0.0
        self._is_over[:, :, agents] = IS_OVER_AT_START
        self._is_cleared[:, agents] = START_Y_M - AGENT_HALF_M - self._tops[:, agents] > SINK_M
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
        place[:, 0] = (position[X, AGENT] - PLATFORM_X) / PLACE_SCALE_M
        place[:, 1] = height / PLACE_SCALE_M
        place[:, 2] = (position[Z, AGENT] - PLATFORM_Z) / PLACE_SCALE_M
        place[:, 3] = self._feels_ground()[agents]
        return [
            self._raised.add(agents, seen[:, : RAYS.size]),
            self._level.add(agents, seen[:, RAYS.size :]),
            self._places.add(agents, place),
        ]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Note what to do in each of the coming steps."""
        ahead, turn, aside, jump = action.discrete.T
        self._forward[agents] = FORWARD.take(ahead * (aside == 0))
        self._right[agents] = RIGHT.take(aside)
        self._sine[agents], self._cosine[agents] = TURN_SINE.take(turn), TURN_COSINE.take(turn)
        self._wants_to_jump[agents] = jump == 1

    def rest(self, agents: Agents) -> None:
        """Neither go, turn nor jump until told otherwise."""
        self._forward[agents] = self._right[agents] = ZERO
        self._sine[agents], self._cosine[agents] = ZERO, ONE
        self._wants_to_jump[agents] = False

    def act(self) -> None:
        """Turn, push and jump; time costs; see who or whose block is off the platform."""
        on_platform, on_block, on_wall = self._carries()
        is_braked = on_platform | on_wall
        self._stood = is_braked | on_block
        self._begin_jumps()
        self._push_and_turn()
        self._rub(on_block, is_braked)
        self.reward -= COST
        fallen = self._fallen()
        if fallen.size:
            self.reward[fallen] = -1.0
            self.end(fallen)

    def physics(self) -> None:
        """Let agents and blocks move; see who is in the goal."""
        bodies = self.bodies
        meets = bodies.is_solid[AGENT_ON_BLOCK:BLOCK_ON_WALL]  # block and wall
        np.logical_not(self._is_cleared[BLOCK:], out=meets)
        bodies.move()
        self._look_down()
        before = self.climb
        self.climb = (before - self._fall) * AGENT_KEPT
        self.height += self.climb * STEP
        is_below = self._feet_are_over & self._is_cleared
        grounds = self._grounds
        grounds.fill(-np.inf)
        np.copyto(grounds, self._tops, where=is_below)
        ground = np.maximum(np.maximum(grounds[PLATFORM], grounds[BLOCK]), grounds[WALL])
        least = ground + HALF
        lands = self.height < least
        self.height = np.maximum(self.height, least)
        np.copyto(self.climb, ZERO, where=lands)
        (arriving,) = (lands & (before < ZERO)).nonzero()
        if arriving.size:
            # Who stood has rubbed by its weight.
            fall = np.where(self._stood[arriving], ZERO, self._fall[arriving])
            stopped = (fall - before[arriving]) * AGENT_KEPT
            is_on = is_below[:, arriving] & (self._tops[:, arriving] == ground[arriving])
            self._rub_landing(arriving, stopped, is_on)

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

    def _begin_jumps(self) -> None:
        """Let those jump who want to and feel the ground."""
        (agents,) = (self._wants_to_jump & (self._jump_steps <= ZERO)).nonzero()
        if agents.size:
            agents = agents[self._feels_ground()[agents]]
            self._jump_steps[agents] = JUMP_STEPS
            self._jump_to[agents] = self.height[agents] + JUMP_HEIGHT_M

    def _push_and_turn(self) -> None:
        """Change velocities by pushes and jumps, and then headings."""
        bodies = self.bodies
        # Components are taken one by one, as those of one body lie together, but the two do not.
        x, z = bodies.heading[X, AGENT], bodies.heading[Z, AGENT]
        v_x, v_z = bodies.velocity[X, AGENT], bodies.velocity[Z, AGENT]
        part = PUSH_BY_GROUND.take(self._stood)
        push_x = (x * self._forward + z * self._right) * part
        push_z = (z * self._forward - x * self._right) * part
        jumps = self._jump_steps > ZERO
        if np.count_nonzero(jumps):
            # Those who jump get nearer to the velocity that a jump aims at.
            change_x = push_x * JUMP_SPEED_PER_M - v_x
            change_z = push_z * JUMP_SPEED_PER_M - v_z
            change_y = (self._jump_to - self.height) * JUMP_SPEED_PER_M - self.climb
            size = np.sqrt(change_x * change_x + change_z * change_z + change_y * change_y)
            part = CHANGE_BY_JUMP_M_S.take(jumps) / np.maximum(size, JUMP_CHANGE_M_S)
            v_x += change_x * part
            v_z += change_z * part
            self.climb += change_y * part
        v_x += push_x * PUSH_M_S
        v_z += push_z * PUSH_M_S
        self.climb -= FALL_BY_HOLD_M_S.take(jumps | self._stood)
        self._jump_steps -= ONE
        turned_x = x * self._cosine + z * self._sine
        np.subtract(z * self._cosine, x * self._sine, out=z)
        x[:] = turned_x

    def _rub(self, on_block: BoolArray, is_braked: BoolArray) -> None:
        """Let agents rub by their weight.

        Args:
            on_block: (N,) whether they stand on the block.
            is_braked: (N,) whether they stand on what never moves.
        """
        pressed = self.bodies.pressed[AGENT]
        np.multiply(self._fall, AGENT_KEPT, out=pressed)
        pressed *= is_braked
        is_carried = on_block & ~is_braked
        if np.count_nonzero(is_carried):
            self._drag_blocks(is_carried.nonzero()[0])

    def _drag_blocks(self, agents: NDArray[np.intp]) -> None:
        """Let the blocks that these agents stand on go along with them."""
        velocity = self.bodies.velocity
        # Friction comes after drag, which is yet to come.
        slip = velocity[:, AGENT, agents] * AGENT_KEPT - velocity[:, BLOCK, agents] * BLOCK_KEPT
        lost = _rubbed_off(slip, self._fall[agents] * AGENT_KEPT, BLOCK_GAIN)
        velocity[:, AGENT, agents] -= lost / AGENT_KEPT
        velocity[:, BLOCK, agents] += lost * BLOCK_GAIN / BLOCK_KEPT

    def _rub_landing(self, agents: NDArray[np.intp], stopped: Array, is_on: BoolArray) -> None:
        """Let n agents rub on what they land on.

        Args:
            agents: (n,) indices.
            stopped: (n,) speeds at which they would still fall.
            is_on: (3, n) whether they are on platform, block and wall.
        """
        velocity = self.bodies.velocity
        slip = velocity[:, AGENT, agents]
        drags = is_on[BLOCK] & ~(is_on[PLATFORM] | is_on[WALL])
        gain = ZERO
        if np.count_nonzero(drags):
            slip -= velocity[:, BLOCK, agents] * drags
            gain = np.where(drags, BLOCK_GAIN, ZERO)
            velocity[:, BLOCK, agents] += _rubbed_off(slip, stopped, gain) * gain
        velocity[:, AGENT, agents] -= _rubbed_off(slip, stopped, gain)

    def _look_down(self) -> None:
        """Note what is below the agents, after a move."""
        position, reach = self.bodies.position, self.bodies.reach[X, AGENT]
        self._below[:, BLOCK] = position[:, BLOCK]
        beside = position[:, AGENT, None] - self._below
        np.absolute(beside, out=beside)
        beside -= self._below_halves
        farthest = np.maximum(beside[X], beside[Z])
        ground = farthest[:GOAL]
        np.less(ground, reach - NARROWER_M, out=self._feet_are_over)
        np.less(ground, ZERO, out=self._centre_is_over)
        np.less(farthest[GOAL], reach, out=self._is_over_goal)

    def _carries(self) -> BoolArray:
        """Return (3, N) whether agents stand on platform, block and wall, when a step begins."""
        above = self._above()
        self._is_cleared = above > SINK_M
        carries: BoolArray = self._is_cleared & (above < FEELER_BELOW_M)
        return carries & self._feet_are_over

    def _above(self) -> Array:
        """Return (3, N) how far the agents' feet are above platform, block and wall."""
        above: Array = self.height - HALF - self._tops
        return above

    def _feels_ground(self) -> BoolArray:
        """Return (N,) whether anything is a short way below the agents' centres."""
        above = self._above()
        felt = (above > HIGHEST_FELT_M) & (above <= LOWEST_FELT_M) & self._centre_is_over
        is_felt: BoolArray = felt[PLATFORM] | felt[BLOCK] | felt[WALL]
        return is_felt

    def _fallen(self) -> NDArray[np.intp]:
        """Return the indices of the agents that are off the platform, or whose blocks are."""
        # All bodies are looked at, as they lie together; the wall never is off.
        is_off = np.abs(self.bodies.position - self._platform_at) > PLATFORM_REACH
        if not np.count_nonzero(is_off):
            return NOBODY
        is_out: BoolArray = np.logical_or.reduce(is_off)  # (3, N)
        is_out[AGENT] &= ~(self._centre_is_over[BLOCK] & (self.height > BLOCK_HIGH_M))
        return np.flatnonzero(is_out.any(axis=0))

    def _in_goal(self) -> NDArray[np.intp]:
        """Return the indices of the agents that reach into the goal, after a move."""
        (agents,) = self._is_over_goal.nonzero()
        if agents.size:
            height = self.height[agents]
            agents = agents[(height + HALF > GOAL_LOW_M) & (height - HALF < GOAL_HIGH_M)]
        return agents

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


def _rubbed_off(slip: Array, pressed: Array, gain: Array) -> Array:
    """Return (2, n) what friction takes of the velocities of n agents.

    It is `GRIP` of what presses them to what is below, or what ends the slip.

    Args:
        slip: (2, n) velocities relative to what is below.
        pressed: (n,) speeds downward that what is below has stopped.
        gain: Speeds that what is below gains by what agents lose, by the masses; 0 if it is fixed.
    """
    most = GRIP * pressed
    lost: Array = slip * (most / np.maximum(np.hypot(*slip), most * (ONE + gain) + TINY))
    return lost


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
        1.8 m/s sideways, and half of that in the air; a turn is 6 degrees a step. A jump lasts 11
        steps and rises 2.62 m; it begins only on the ground.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0005 per step; in place of what has accrued since the last decision, +1 in the goal
        with ground right below, -1 when the block is off the platform, or the agent but not over
        the block.
    Ends: with either of these.
    Interrupts: after 2000 steps, that is 400 decisions.
    Parameters: `no_wall_height` 0 m and `small_wall_height` 4 m, of which half, less 0.45 m, is
        above the ground; `gravity` 26.98 m/s2.
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
    Parameters: `big_wall_height` 8 m, of which half, less 0.45 m, is above the ground; `gravity`
        26.98 m/s2.
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

    All else is as in these two; the parameters are those of both.

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
        none, small, big = (
            self.parameters.draw(f"{name}_wall_height", n) for name in ("no", "small", "big")
        )
        is_big = kind > 1
        self.behavior[agents] = is_big
        return np.where(is_big, big, np.where(kind == 1, small, none))
