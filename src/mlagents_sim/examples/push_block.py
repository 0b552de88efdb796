"""Push Block: push a block into the goal."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
)
from mlagents_envs.scene import Control, Scene
from mlagents_sim import floor_plan
from mlagents_sim.contact import FRICTION, kept
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.motion import Motion, Watched
from mlagents_sim.planar import ANCHORS, LOW, Bodies, Body
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.plane import X, Z
from mlagents_sim.ray_view import Box, RayView, Room
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import ALL, Agents

AGENT, BLOCK = range(2)
BLOCK_AT_GOAL = LOW, Z, BLOCK
"""Index of the wall that stands for the goal."""

# By action: nothing, forward, back, turn right, turn left, left, right.
FORWARD_M_S = np.array([0.0, 3.0, -3.0, 0.0, 0.0, 0.0, 0.0])
RIGHT_M_S = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -2.25, 2.25])
TURN_RAD = np.radians([0.0, 0.0, 0.0, 4.0, -4.0, 0.0, 0.0])
SEVEN_MOVES = (
    Control("forward", "W", 0, 1),
    Control("back", "S", 0, 2),
    Control("turn right", "D", 0, 3),
    Control("turn left", "A", 0, 4),
    Control("left", "Q", 0, 5),
    Control("right", "E", 0, 6),
)
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)

ROOM_LOW, ROOM_HIGH = (-12.5, -12.5), (12.5, 12.5)
GOAL_FRONT_M = -8.35
"""The goal fills the room from here to the wall."""
GOAL_CENTER, GOAL_HALF = (0.0, GOAL_FRONT_M - 2.15), (12.5, 2.15)
AGENT_HALF_M = 0.5
BLOCK_HEIGHT_M = 1.25
START_M = 6.25
CLEAR_M = 2.5
"""Half the edge of the square around a new body that must be free of other bodies."""
BLOCK_SCALES = 0.5, 4.0
"""Smallest and largest scale. Beside larger blocks, there would be no room
for the agent."""
DROP_M = np.array([[0.5], [0.625]])
"""Heights above the floor at which agent and block are put down."""
AGENT_DRAG = 4.0

RAY_RADIUS_M = 0.5
"""Radius of the rays. When the agent stands, the lowest points of raised rays are as high as the
upper edges of the walls, and touch them."""
BLOCK_TAG, GOAL_TAG, WALL_TAG = range(3)
RAYS = RaySensor(per_side=3, max_degrees=90.0, length=12.0, n_tags=3)
STACKED = 3


class PushBlock(PlanarWorld):
    """Agents that push a block to the goal along one wall, each in its own room.

    Observations: two ray sensors, three frames each, oldest first: 105 numbers each. A frame has
        7 rays: ahead, then up to 90 degrees to the right and left, alternating. A ray is 12 m long
        and has 5 numbers: block, goal, wall, nothing, distance divided by length.
        1. Rays 2 m above the floor: they graze the walls and pass over everything else. At the
           beginning of an episode, while the agent drops to the floor, they pass over the walls
           as well.
        2. Rays 0.5 m above the floor.
    Actions: one branch of 7: nothing, forward, back, turn right, turn left, left, right. A push
        adds 3 m/s per step, 2.25 m/s sideways; a turn is 4 degrees per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0002 per step; +5 when the block touches the goal.
    Ends: when the block touches the goal.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Parameters: `block_scale` 2 m, the length and width of the block (0.5 to 4); `dynamic_friction`
        and `static_friction` of the floor 0 (0 to 1); `block_drag` 0.5 (0 to 2000); `gravity`
        24.525 m/s2.
    Start: block and agent, half a meter above the floor, at random places in the middle half of the
        room that are free within 2.5 m. The agent keeps its heading; at first, it faces the goal.
    A good policy reaches 4.5 or more; the highest possible reward is 5.

    Source: `ExpertPushBlock.demo`, recorded in Unity.
    In Unity, each episode begins with a rotation of the whole room, which the agent cannot observe.
    Here, the room does not rotate.
    """

    motion: Motion

    behavior_name = "PushBlock?team=0"
    behavior_spec = BehaviorSpec(
        [
            stacked(RAYS.spec(name), STACKED)
            for name in ("OffsetRayPerceptionSensor", "RayPerceptionSensor")
        ],
        ActionSpec.create_discrete((7,)),
    )
    controls = SEVEN_MOVES
    agents_per_area = 32
    decision_period_steps = 5
    max_steps = 5000
    step_reward = -1.0 / max_steps
    default_parameters: ClassVar[Mapping[str, float]] = {
        "block_scale": 2.0,
        "dynamic_friction": 0.0,
        "static_friction": 0.0,
        "block_drag": 0.5,
        "gravity": 24.525,
    }

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.bodies = Bodies(
            n,
            [
                Body((AGENT_HALF_M, AGENT_HALF_M), mass=10.0, drag=AGENT_DRAG),
                Body((1.0, 1.0), mass=10.0),
            ],
            low=(ROOM_LOW[X], GOAL_FRONT_M),
            high=ROOM_HIGH,
            pairs=[(AGENT, BLOCK)],
        )
        self.bodies.heading[Z, AGENT] = -1.0
        self._raised_rays = RayView(
            RAYS,
            self.bodies,
            radius_m=RAY_RADIUS_M,
            room=Room(WALL_TAG, ROOM_LOW, ROOM_HIGH, edge_m=RAY_RADIUS_M),
        )
        self._level_rays = RayView(
            RAYS,
            self.bodies,
            radius_m=RAY_RADIUS_M,
            room=Room(WALL_TAG, ROOM_LOW, ROOM_HIGH),
            boxes=[
                Box(GOAL_TAG, center=GOAL_CENTER, half=GOAL_HALF),
                Box(BLOCK_TAG, body=BLOCK),
            ],
        )
        self._raised, self._level = (FrameStack(RAYS.spec(""), STACKED, n) for _ in range(2))
        self._grips = np.zeros((2, 2, n))  # of bodies at rest and of moving ones
        self.motion = Motion(self.bodies, grips=self._grips, watched=Watched(walls=[BLOCK_AT_GOAL]))

    # The task.

    def begin(self, agents: Agents) -> None:
        """Put block, then agent, where there is room."""
        bodies, draw = self.bodies, self.parameters.draw
        n = len(self.agent_id[agents])
        bodies.velocity[:, :, agents] = 0.0
        bodies.half[:, BLOCK, agents] = np.clip(draw("block_scale", n), *BLOCK_SCALES) / 2.0
        bodies.kept[BLOCK, agents] = kept(draw("block_drag", n))
        # The friction between two surfaces is the mean of both.
        for grip, kind in zip(self._grips, ("static", "dynamic"), strict=True):
            grip[:, agents] = ANCHORS * (FRICTION + draw(f"{kind}_friction", n)) / 2.0
        bodies.put_down((ALL, agents), gravity=draw("gravity", n), above_m=DROP_M)
        for body in (BLOCK, AGENT):
            self._place(body, agents)
        self._raised.clear(agents)
        self._level.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        raised, level = self._raised_rays.observe(agents), self._level_rays.observe(agents)
        return [self._raised.add(agents, raised), self._level.add(agents, level)]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        choice = action.discrete[:, 0]
        self.motion.command(
            agents,
            forward=FORWARD_M_S[choice],
            right=RIGHT_M_S[choice],
            sine=TURN_SINE[choice],
            cosine=TURN_COSINE[choice],
        )

    def judge(self, n_steps: int) -> None:
        """Reward blocks in the goal and end their episodes."""
        scored = self.bodies.touching_walls[BLOCK_AT_GOAL].nonzero()[0]
        self.reward[scored] += 5.0
        self.end(scored)

    def _place(self, body: int, agents: Agents) -> None:
        """Put the agent or the block of these areas at a random place free of the other one."""
        bodies, other = self.bodies, AGENT if body == BLOCK else BLOCK
        waiting = np.arange(self.n_agents)[agents]
        while waiting.size:
            place = self.rng.uniform(-START_M, START_M, (2, waiting.size))
            is_free = place[Z] - CLEAR_M > GOAL_FRONT_M
            apart = np.abs(bodies.position[:, other, waiting] - place)
            is_free &= (apart > CLEAR_M + bodies.extent()[:, other, waiting]).any(axis=0)
            bodies.position[:, body, waiting[is_free]] = place[:, is_free]
            waiting = waiting[~is_free]

    def scene(self) -> Scene:
        """Return all rooms: a green goal, an orange block and a blue agent in each."""
        bodies = self.bodies
        plan = FloorPlan(self, self.n_agents, ROOM_LOW, ROOM_HIGH, walls_m=1.0)
        plan.box("goal", GOAL_CENTER, GOAL_HALF, height_m=0.05, color=floor_plan.GREEN)
        plan.box(
            "block",
            bodies.position[:, BLOCK],
            bodies.half[:, BLOCK],
            height_m=BLOCK_HEIGHT_M,
            low_m=bodies.above_m[BLOCK],
            color=floor_plan.ORANGE,
        )
        plan.agents(
            "agent",
            bodies.position[:, AGENT],
            bodies.heading[:, AGENT],
            AGENT_HALF_M,
            agents=np.arange(self.n_agents),
            low_m=bodies.above_m[AGENT],
        )
        return plan.scene()
