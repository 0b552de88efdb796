"""Cooperative Push Block: push blocks of three sizes into the goal, as a group."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Scene
from mlagents_sim import floor_plan
from mlagents_sim.box_grid import Band, BoxGrid
from mlagents_sim.examples.push_block import (
    AGENT_DRAG,
    AGENT_HALF_M,
    FORWARD_M_S,
    GOAL_CENTER,
    GOAL_FRONT_M,
    GOAL_HALF,
    RIGHT_M_S,
    ROOM_HIGH,
    ROOM_LOW,
    SEVEN_MOVES,
    START_M,
    TURN_COSINE,
    TURN_SINE,
)
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.plane import Indices, X, Z, gap_between_boxes, in_frame
from mlagents_sim.pushers import Pushers
from mlagents_sim.sensors import GridSensor
from mlagents_sim.turning import Box, TurningBoxes
from mlagents_sim.world import Agents

MEMBERS = 3
SIZES_M = np.array([2.0, 2.0, 1.0, 1.0, 3.0, 3.0])
"""Edges of the blocks: two large, two small, two very large."""
BLOCK_KG = {1.0: 10.0, 2.0: 100.0, 3.0: 150.0}
AGENT_KG = 10.0
BLOCK_DRAG, SPIN_DRAG = 0.5, 0.05
BLOCKS = len(SIZES_M)
AGENTS = slice(BLOCKS, BLOCKS + MEMBERS)
REWARDS = SIZES_M.astype(np.float32)
"""Reward for each block in the goal: 1, 2 or 3, as it is long."""
CLEAR_M = 1.5
"""Half the edge of the square in which nothing else may stand where a body is put."""
TRIES = 100
"""Draws of a place, after which a body is put there even if there is no room."""

WALL_TAG, AGENT_TAG, GOAL_TAG, SMALL_TAG, LARGE_TAG, VERY_LARGE_TAG = range(6)
CELLS = 20
GRID = GridSensor(n_cells=CELLS, cell_m=1.0, n_tags=6)
AHEAD_M = 10.0
"""Distance from an agent to the middle of its grid, which is ahead of it."""
WALL_M = 1.0
"""Thickness of the walls."""

_TAGS = np.array([{1.0: SMALL_TAG, 2.0: LARGE_TAG, 3.0: VERY_LARGE_TAG}[m] for m in SIZES_M])
_TAGS = np.append(_TAGS, [AGENT_TAG] * MEMBERS)
_HALVES = np.append(SIZES_M / 2.0, [AGENT_HALF_M] * MEMBERS)
_HALF_ROOM_M = ROOM_HIGH[X]
# The walls end at the corners, and so does the goal.
_END_M = _HALF_ROOM_M + WALL_M
_BANDS = [
    *(
        Band(way, _HALF_ROOM_M, WALL_M, _END_M, WALL_TAG)
        for way in ((-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0))
    ),
    Band((0.0, -1.0), -GOAL_FRONT_M, 2.0 * GOAL_HALF[Z], _END_M, GOAL_TAG),
]


class PushBlockCollab(PlanarWorld):
    """Three agents in each room, which push six blocks of three sizes into the goal at one wall.

    Observations: two sensors.
        1. A grid of 20 x 20 cells of 1 m in front of the agent, which turns with it, from 10 m to
           the left to 10 m to the right and up to 20 m ahead: (6, 20, 20), 1 for the object in a
           cell that is nearest to the middle of the grid, by channel: wall, agent, goal, small
           block, large block, very large block. Rows run from right to left, columns from back to
           front.
        2. 10 numbers: the agent's velocity in m/s, to its right, up (0) and ahead; three zeros; the
           quaternion 0, 0, 0, 1.
    Action: one branch of 7: nothing, forward, back, turn right, turn left, left, right. A push adds
        3 m/s per step (2.25 m/s sideways), and a turn is 4 degrees per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: for the group, -0.0001 per step, and 1, 2 or 3 for a small, large or very large block
        that reaches the goal.
    Ends: the group, when all six blocks have reached the goal.
    Interrupts: the group, after 5000 steps, that is 1000 decisions.
    Parameters: `gravity` 14.715 m/s2, which presses agents and blocks to the floor.
    Start: agents and blocks at random free places near the middle, with random headings.
    A good policy reaches a group reward of 11 of 12.

    Agents and small blocks have a mass of 10 kg, large blocks 100 kg and very large blocks 150 kg.
    Because of friction with the floor, a large block needs two agents, and a very large one three.
    Blocks turn if they are pushed off-center. A block in the goal vanishes.

    Source: recordings of Unity's physics.

    Attributes:
        boxes: Blocks and agents of every room: two large blocks, two small ones, two very large
            ones, three agents.
    """

    motion: Pushers

    behavior_name = "PushBlockCollab?team=0"
    behavior_spec = BehaviorSpec(
        [GRID.spec("GridSensor"), ObservationSpec.vector(10, "PhysicsBodySensor:Agent")],
        ActionSpec.create_discrete((7,)),
    )
    controls = SEVEN_MOVES
    agents_per_area = 4 * MEMBERS
    n_members: ClassVar[int] = MEMBERS
    """Number of agents in each of the rooms of a scene."""
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": 14.715}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._room, self._member = np.divmod(np.arange(self.n_agents), MEMBERS)
        self.group[:] = self._room + 1
        blocks = [
            Box((m / 2.0, m / 2.0), BLOCK_KG[m], BLOCK_DRAG, SPIN_DRAG) for m in SIZES_M.tolist()
        ]
        agent = Box((AGENT_HALF_M, AGENT_HALF_M), AGENT_KG, AGENT_DRAG, turns=False)
        n = self.n_agents // MEMBERS
        self.boxes = TurningBoxes(n, [*blocks, *[agent] * MEMBERS], low=ROOM_LOW, high=ROOM_HIGH)
        self.motion = Pushers(self.boxes, n_members=MEMBERS, n_watched=BLOCKS, line=GOAL_FRONT_M)
        self._grid = BoxGrid(
            self.boxes, GRID, n_members=MEMBERS, ahead_m=AHEAD_M, tags=_TAGS, bands=_BANDS
        )

    def begin(self, agents: Agents) -> None:
        """Put agents and then blocks where there is room."""
        boxes = self.boxes
        rooms = self._room[agents][::MEMBERS]  # all members of a room begin together
        n = len(rooms)
        boxes.set_gravity(rooms, self.parameters.draw("gravity", n))
        boxes.velocity[..., rooms] = 0.0
        boxes.spin[:, rooms] = 0.0
        boxes.is_solid[:, rooms] = False
        yaw = self.rng.uniform(0.0, 2.0 * np.pi, (BLOCKS + MEMBERS, n))
        boxes.heading[..., rooms] = np.sin(yaw), np.cos(yaw)
        for body in (*range(AGENTS.start, AGENTS.stop), *range(BLOCKS)):
            self._place(body, rooms)

    def _place(self, body: int, rooms: Indices) -> None:
        """Put a body of each room where there is room beside those put before."""
        boxes = self.boxes
        half = boxes.half[:, :, None]
        waiting = rooms
        for _ in range(TRIES):
            place = self.rng.uniform(-START_M, START_M, (2, waiting.size))
            boxes.position[:, body, waiting] = place
            gap = gap_between_boxes(
                place[:, None],
                np.array([[[0.0]], [[1.0]]]),
                np.full((2, 1, 1), CLEAR_M),
                boxes.position[..., waiting],
                boxes.heading[..., waiting],
                half,
            )
            is_free = ((gap > 0.0) | ~boxes.is_solid[:, waiting]).all(axis=0)
            waiting = waiting[~is_free]
            if not waiting.size:
                break
        boxes.is_solid[body, rooms] = True

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        boxes = self.boxes
        room, member = self._room[agents], BLOCKS + self._member[agents]
        heading = boxes.heading[:, member, room]
        body = np.zeros((len(room), 10), np.float32)
        body[:, 0], body[:, 2] = in_frame(heading, boxes.velocity[:, member, room])
        body[:, 9] = 1.0
        return [self._grid.observe(agents), body]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        chosen = action.discrete[:, 0]
        self.motion.command(
            self._member[agents],
            self._room[agents],
            forward=FORWARD_M_S[chosen],
            right=RIGHT_M_S[chosen],
            sine=TURN_SINE[chosen],
            cosine=TURN_COSINE[chosen],
        )

    def pay_step(self) -> None:
        """Make time cost."""
        self.group_reward -= 0.5 / self.max_steps

    def judge(self, n_steps: int) -> None:
        """Reward and remove blocks that reach the goal."""
        boxes, is_in = self.boxes, self.motion.arrived
        rooms = np.flatnonzero(is_in.any(axis=0))
        if rooms.size == 0:
            return
        self.reward_group(1 + rooms, (REWARDS @ is_in)[rooms])
        boxes.is_solid[:BLOCKS] &= ~is_in
        self.end_group(1 + rooms[~boxes.is_solid[:BLOCKS, rooms].any(axis=0)])

    def scene(self) -> Scene:
        """Return all rooms: a green goal, orange blocks and blue agents in each."""
        boxes = self.boxes
        n = boxes.position.shape[2]
        plan = FloorPlan(self, n, ROOM_LOW, ROOM_HIGH, walls_m=1.0, top_m=3.0)
        plan.box("goal", GOAL_CENTER, GOAL_HALF, height_m=0.05, color=floor_plan.GREEN)
        blocks, half = slice(BLOCKS), _HALVES[:BLOCKS, None]
        plan.box(
            "block",
            floor_plan.hidden(boxes.position[:, blocks], boxes.is_solid[blocks]),
            np.array([half, half]),
            height_m=0.75 * SIZES_M[:, None],
            heading=boxes.heading[:, blocks],
            color=floor_plan.ORANGE,
        )
        plan.agents(
            "agent",
            boxes.position[:, AGENTS],
            boxes.heading[:, AGENTS],
            AGENT_HALF_M,
            agents=np.arange(self.n_agents).reshape(n, MEMBERS).T,
        )
        return plan.scene()
