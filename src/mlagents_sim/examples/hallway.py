"""Hallway: remember a symbol and walk to the goal with that symbol."""

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
from mlagents_envs.scene import Control, Scene
from mlagents_sim import floor_plan
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.motion import Motion, Watched
from mlagents_sim.planar import Bodies, Body
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.plane import X, Z
from mlagents_sim.ray_view import Box, RayView, Room
from mlagents_sim.rays import radius_at_edge
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import Agents

AGENT, SYMBOL, O_GOAL, X_GOAL = range(4)
_, AT_O, AT_X = range(3)
"""Indices of the pairs of the agent with the symbol and with each goal."""

# By action: nothing, forward, back, turn right, turn left.
FORWARD_M_S = np.array([0.0, 1.5, -1.5, 0.0, 0.0])
TURN_RAD = np.radians([0.0, 0.0, 0.0, 3.0, -3.0])
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)

ROOM_LOW, ROOM_HIGH = (-9.5, -24.75), (9.5, 24.75)
AGENT_HALF_M = 0.5
AGENT_DRAG = 2.0
DROP_M = 0.5
"""Height from which an agent falls when its episode begins."""
SYMBOL_HALF = (2.0, 0.5)
GOAL_HALF = (2.0, 2.0)
GOAL_X_M, GOAL_Z_M = 7.0, 22.29
START_Z_M = -15.0
SPREAD_X_M, SPREAD_Z_M = 3.0, 5.0

RAYS = RaySensor(per_side=2, max_degrees=70.0, length=12.0, n_tags=5)
RAY_RADIUS_M = 0.5
O_GOAL_TAG, X_GOAL_TAG, O_SYMBOL_TAG, X_SYMBOL_TAG, WALL_TAG = range(5)
STEPS = ObservationSpec.vector(1, "VectorSensor_size1")
STACKED = 3


class Hallway(PlanarWorld):
    """Agents that observe a symbol, O or X, and must walk to the goal with this symbol.

    From the symbol, the rays do not reach the goals, so an agent must remember what it observed.

    Observations: two sensors, three frames each, oldest first.
        1. 105 numbers: a frame has 5 rays 0.5 m above the floor: ahead, then 35 and 70 degrees to
           the right and left, alternating. A ray is 12 m long and has 7 numbers: O goal, X goal,
           O symbol, X symbol, wall, nothing, distance divided by length.
        2. 3 numbers: a frame is the number of the step, from 1, divided by 3000.
    Actions: one branch of 5: nothing, forward, back, turn right, turn left. A push adds 1.5 m/s per
        step, and a turn is 3 degrees per step.
    Decisions: every 6 steps of 0.02 s.
    Reward: -1/3000 per step. For touching a goal: +1 if it has the symbol, else -0.1; this replaces
        the reward since the last decision.
    Ends: when the agent touches either goal.
    Interrupts: after 3000 steps, that is 500 decisions.
    Parameters: `gravity` 19.62 m/s2, which presses the agent to the floor, where friction slows it.
    Start: the agent in the rear of the hall, half a meter above the floor, with a random heading;
        the symbol in the middle; the goals on the two sides of the far end.
    A good policy with a memory reaches 0.7 or more.

    Source: `ExpertHallway.demo`, recorded in Unity.

    Attributes:
        bodies: Agent, symbol and the goals of O and X of every area.
        is_x: (N,) whether the symbol is X.
    """

    motion: Motion

    behavior_name = "Hallway?team=0"
    behavior_spec = BehaviorSpec(
        [stacked(RAYS.spec("RayPerceptionSensor"), STACKED), stacked(STEPS, STACKED)],
        ActionSpec.create_discrete((5,)),
    )
    controls = (
        Control("forward", "W", 0, 1),
        Control("back", "S", 0, 2),
        Control("turn right", "D", 0, 3),
        Control("turn left", "A", 0, 4),
    )
    agents_per_area = 16
    decision_period_steps = 6
    max_steps = 3000
    step_reward = -1.0 / max_steps
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": 19.62}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.bodies = Bodies(
            n,
            [
                Body((AGENT_HALF_M, AGENT_HALF_M), mass=25.0, drag=AGENT_DRAG),
                Body(SYMBOL_HALF),
                Body(GOAL_HALF),
                Body(GOAL_HALF),
            ],
            low=ROOM_LOW,
            high=ROOM_HIGH,
            pairs=[(AGENT, SYMBOL), (AGENT, O_GOAL), (AGENT, X_GOAL)],
        )
        self.is_x = np.zeros(n, np.bool_)
        self._age = np.zeros(n)
        self.motion = Motion(self.bodies, watched=Watched(pairs=[AT_O, AT_X]))
        self._symbol_tag = np.zeros(n, np.int8)
        # The rays are 0.5 m above the floor; a goal is 0.1 m high.
        above_goal = float(radius_at_edge(RAY_RADIUS_M, 0.4))
        self._rays = RayView(
            RAYS,
            self.bodies,
            radius_m=RAY_RADIUS_M,
            room=Room(WALL_TAG, ROOM_LOW, ROOM_HIGH),
            boxes=[
                Box(O_GOAL_TAG, body=O_GOAL, radius_m=above_goal),
                Box(X_GOAL_TAG, body=X_GOAL, radius_m=above_goal),
                Box(self._symbol_tag, body=SYMBOL),
            ],
        )
        self._seen = FrameStack(RAYS.spec(""), STACKED, n)
        self._steps = FrameStack(STEPS, STACKED, n)

    def begin(self, agents: Agents) -> None:
        """Show a symbol, put the goals on either side and the agent far from them."""
        bodies = self.bodies
        n = len(self.agent_id[agents])
        is_x, is_left = self.rng.random((2, n)) < 0.5
        drawn = self.rng.uniform(-1.0, 1.0, (2, 2, n))
        drawn *= np.reshape([SPREAD_X_M, SPREAD_Z_M], (2, 1, 1))
        yaw = self.rng.uniform(0.0, 2.0 * np.pi, n)

        position = np.zeros((2, 4, n))
        position[:, AGENT] = drawn[:, 0]
        position[Z, AGENT] += START_Z_M
        position[:, SYMBOL] = drawn[:, 1]
        position[X, SYMBOL, is_x] = 0.0
        position[X, O_GOAL] = np.where(is_left, -GOAL_X_M, GOAL_X_M)
        position[X, X_GOAL] = -position[X, O_GOAL]
        position[Z, O_GOAL:] = GOAL_Z_M
        bodies.position[:, :, agents] = position
        bodies.velocity[:, AGENT, agents] = 0.0
        bodies.heading[:, AGENT, agents] = np.sin(yaw), np.cos(yaw)
        gravity = self.parameters.draw("gravity", n)
        bodies.put_down((AGENT, agents), gravity=gravity, above_m=DROP_M)
        self.is_x[agents] = is_x
        # The first step is number 1. Agents that begin within a step reach it at the end of the
        # step.
        self._age[agents] = float(self.step_count == 0)
        self._seen.clear(agents)
        self._steps.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        self._symbol_tag[:] = np.where(self.is_x, X_SYMBOL_TAG, O_SYMBOL_TAG)
        seen = self._rays.observe(agents)
        steps = (self._age[agents, None] / self.max_steps).astype(np.float32)
        return [self._seen.add(agents, seen), self._steps.add(agents, steps)]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        choice = action.discrete[:, 0]
        self.motion.command(
            agents,
            forward=FORWARD_M_S[choice],
            right=0.0,
            sine=TURN_SINE[choice],
            cosine=TURN_COSINE[choice],
        )

    def judge(self, n_steps: int) -> None:
        """Reward agents that touch a goal and end their episodes."""
        self._age += n_steps - 1
        _, at_o, at_x = self.bodies.touching
        arrived = np.flatnonzero(at_o | at_x)
        self.reward[arrived] = np.where((at_x == self.is_x)[arrived], 1.0, -0.1)
        self.end(arrived)
        self._age += 1.0

    def scene(self) -> Scene:
        """Return all halls. O is red and X is green; so are their goals."""
        bodies = self.bodies
        plan = FloorPlan(self, self.n_agents, ROOM_LOW, ROOM_HIGH, walls_m=1.0)
        for name, body, color in (
            ("O goal", O_GOAL, floor_plan.RED),
            ("X goal", X_GOAL, floor_plan.GREEN),
        ):
            plan.box(name, bodies.position[:, body], GOAL_HALF, height_m=0.1, color=color)
        plan.box(
            "symbol",
            bodies.position[:, SYMBOL],
            SYMBOL_HALF,
            height_m=2.0,
            color=np.where(self.is_x[:, None], floor_plan.GREEN, floor_plan.RED),
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
