"""Pyramids: press a switch, knock over the pyramid that appears, touch the gold from its top."""

from collections.abc import Mapping

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Scene
from mlagents_sim.examples.pyramids_scene import AGENT, AT_GOLD, AT_SWITCH, SENSORS, PyramidsScene
from mlagents_sim.motion import Motion
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.plane import X, Z, in_frame
from mlagents_sim.world import Agents

# By action: nothing, forward, back, turn right, turn left.
FORWARD_M_S = np.array([0.0, 2.0, -2.0, 0.0, 0.0])
TURN_RAD = np.radians([0.0, 0.0, 0.0, 4.0, -4.0])
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)


class Pyramids(PlanarWorld):
    """Agents that press a switch to build a pyramid of bricks, and then get the gold from its top.

    Each agent has its own arena of nine rooms. One room contains the switch, and six contain stone
    pyramids. Touching the switch builds the brick pyramid in another room. The agent must knock it
    over, so that the gold cube on its top falls to the floor.

    Observations: four sensors.
        1. 56 numbers: 7 rays from the center of the agent, 35 m long: ahead, then up to 70 degrees
           to the right and left, alternating. A ray has 8 numbers: block, wall, goal, switch off,
           switch on, stone, nothing, distance divided by length.
        2. 56 numbers: as 1, up to 65 degrees to each side; the rays rise by 5 m.
        3. 56 numbers: as 1, up to 75 degrees to each side; the rays rise by 10 m.
        4. 4 numbers: 1 if the switch is on; the agent's velocity to its right, up and ahead.
    Actions: one branch of 5: nothing, forward, back, turn right, turn left. A push adds 2 m/s per
        step, and a turn is 4 degrees per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0002 per step; +2 for touching the gold, which replaces the reward since the last
        decision.
    Ends: when the agent touches the gold.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Start: agent, switch, stone pyramids and the place of the brick pyramid in different random
        rooms, the agent with a random heading. Agent and pyramids fall from 2 m.
    A good policy reaches 1.75.

    Source: `ExpertPyramid.demo` and other recordings in Unity. The floor plan and the heights of
        the
    walls fit the recorded rays. Bricks do not tilt or turn, and inner walls do not stop them. The
    fall of the bricks above the lowest layer, and the time that the gold takes to come down, are
    drawn from distributions fitted to recordings.

    Attributes:
        chamber: Scene of all arenas.
        bodies: Bodies of the scene.
    """

    motion: Motion

    behavior_name = "Pyramids?team=0"
    behavior_spec = BehaviorSpec(
        [
            *[
                sensor.spec(name)
                for sensor, name in zip(
                    SENSORS,
                    ("RayPerceptionSensor", "RayPerceptionSensor1", "RayPerceptionSensor2"),
                    strict=True,
                )
            ],
            ObservationSpec.vector(4, "VectorSensor_size4"),
        ],
        ActionSpec.create_discrete((5,)),
    )
    agents_per_area = 16
    decision_period_steps = 5
    max_steps = 5000
    step_reward = -1.0 / max_steps

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self.chamber = PyramidsScene(self.n_agents)
        self.bodies, self.motion = self.chamber.bodies, self.chamber.motion

    def begin(self, agents: Agents) -> None:
        """Put agent, switch and pyramids into different rooms."""
        self.chamber.begin(agents, self.rng)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        bodies = self.bodies
        velocity = in_frame(bodies.heading[:, AGENT], bodies.velocity[:, AGENT])
        parts = [self.chamber.is_on, velocity[X], bodies.climb[AGENT], velocity[Z]]
        vector = np.stack(parts, axis=1, dtype=np.float32)
        return [*self.chamber.observe(agents), vector[agents]]

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
        """Turn switches on; reward agents that touch the gold and end their episodes."""
        chamber = self.chamber
        chamber.pass_time(n_steps, self.rng)
        at_switch, at_gold = self.bodies.touching[[AT_SWITCH, AT_GOLD]]
        pressed = np.flatnonzero(at_switch & ~chamber.is_on)
        if pressed.size:
            chamber.switch_on(pressed)
        arrived = np.flatnonzero(at_gold)
        self.reward[arrived] = 2.0
        self.end(arrived)

    def scene(self) -> Scene:
        """Return all arenas: stones, the switch, and bricks with the gold once they stand."""
        return self.chamber.shown(self)
