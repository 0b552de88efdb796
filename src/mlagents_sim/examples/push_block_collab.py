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
from mlagents_sim.examples.push_block import (
    AGENT_DRAG,
    AGENT_HALF_M,
    FORWARD_M_S,
    GOAL_CENTRE,
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
from mlagents_sim.planar import (
    Array,
    Indices,
    X,
    Z,
    along,
    gap_between_boxes,
    gap_to_point,
    in_frame,
    turn,
)
from mlagents_sim.sensors import GridSensor, Marks
from mlagents_sim.turning import Box, TurningBoxes
from mlagents_sim.world import Agents, World

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
# The straight things around: normals, distances from the middle of the room, thickness and tags.
_BANDS = (
    *(((x, z), _HALF_ROOM_M, WALL_M, WALL_TAG) for x, z in ((-1, 0), (1, 0), (0, -1), (0, 1))),
    ((0, -1), -GOAL_FRONT_M, 2.0 * GOAL_HALF[Z], GOAL_TAG),
)


class PushBlockCollab(World):
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
    Blocks turn if they are pushed off-centre. A block in the goal vanishes.

    Source: recordings of Unity's physics.

    Attributes:
        boxes: Blocks and agents of every room: two large blocks, two small ones, two very large
            ones, three agents.
    """

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
        self._action = np.zeros((MEMBERS, n), np.intp)

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
        place, heading = boxes.position[:, member, room], boxes.heading[:, member, room]
        middle = place + AHEAD_M * heading
        marks = [self._boxes_seen(room, member, middle, heading), *_bands_seen(middle, heading)]
        body = np.zeros((len(room), 10), np.float32)
        body[:, 0], body[:, 2] = in_frame(heading, boxes.velocity[:, member, room])
        body[:, 9] = 1.0
        return [GRID.observe(len(room), marks), body]

    def _boxes_seen(self, room: Indices, member: Indices, middle: Array, heading: Array) -> Marks:
        """Mark blocks and other agents in the grids around (2, n) places with (2, n) headings."""
        boxes = self.boxes
        seen = in_frame(heading[:, None], boxes.position[:, :, room] - middle[:, None])
        reach = GRID.reach_m + np.sqrt(2.0) * _HALVES[:, None]
        is_near = (np.abs(seen) < reach).all(axis=0) & boxes.is_solid[:, room]
        is_near[member, np.arange(len(room))] = False
        body, agent = is_near.nonzero()
        of_room = room[agent]
        turned, half = boxes.heading[:, body, of_room], _HALVES[body]
        distance = gap_to_point(boxes.position[:, body, of_room], turned, half, middle[:, agent])
        return GRID.squares(
            agent,
            seen[:, body, agent],
            in_frame(heading[:, agent], turned),
            half,
            _TAGS[body],
            distance,
        )

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        self._action[self._member[agents], self._room[agents]] = action.discrete[:, 0]

    def act(self) -> None:
        """Push and turn; time costs."""
        self.group_reward -= 0.5 / self.max_steps
        action, boxes = self._action, self.boxes
        heading = boxes.heading[:, AGENTS]
        boxes.velocity[:, AGENTS] += along(heading, FORWARD_M_S[action], RIGHT_M_S[action])
        turn(heading, TURN_SINE[action], TURN_COSINE[action])

    def physics(self) -> None:
        """Move all; reward and remove blocks that reach the goal."""
        boxes = self.boxes
        boxes.move()
        heading = np.abs(boxes.heading[:, :BLOCKS])
        reach = (heading[X] + heading[Z]) * _HALVES[:BLOCKS, None]
        is_in = boxes.position[Z, :BLOCKS] - reach < GOAL_FRONT_M
        is_in &= boxes.is_solid[:BLOCKS]
        (rooms,) = is_in.any(axis=0).nonzero()
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
        plan.box("goal", GOAL_CENTRE, GOAL_HALF, height_m=0.05, colour=floor_plan.GREEN)
        blocks, half = slice(BLOCKS), _HALVES[:BLOCKS, None]
        plan.box(
            "block",
            floor_plan.hidden(boxes.position[:, blocks], boxes.is_solid[blocks]),
            np.array([half, half]),
            height_m=0.75 * SIZES_M[:, None],
            heading=boxes.heading[:, blocks],
            colour=floor_plan.ORANGE,
        )
        plan.agents(
            "agent",
            boxes.position[:, AGENTS],
            boxes.heading[:, AGENTS],
            AGENT_HALF_M,
            agents=np.arange(self.n_agents).reshape(n, MEMBERS).T,
        )
        return plan.scene()


def _bands_seen(middle: Array, heading: Array) -> list[Marks]:
    """Mark walls and goal in grids around (2, n) places with (2, n) headings."""
    found = []
    for (x, z), at, thickness, tag in _BANDS:
        away = at - (x * middle[X] + z * middle[Z])  # to the face, below 0 beyond it
        normal = in_frame(heading, np.broadcast_to(np.reshape([x, z], (2, 1)), heading.shape))
        marks = GRID.walls(normal[:, None], away[None], thickness, tag)
        agent, cell = np.divmod(marks.cell, CELLS * CELLS)
        column, row = np.divmod(cell, CELLS)
        right, ahead = (CELLS - 1) / 2 - column, row - (CELLS - 1) / 2
        place = middle[:, agent] + along(heading[:, agent], ahead, right)
        aside = np.abs(place[Z] if x else place[X])
        inside = (aside < _HALF_ROOM_M + WALL_M).nonzero()[0]  # bands end at the corners
        away = away[agent[inside]]
        distance = np.maximum(np.maximum(away, -away - thickness), 0.0)
        found.append(Marks(marks.cell[inside], marks.tag[inside], distance))
    return found
