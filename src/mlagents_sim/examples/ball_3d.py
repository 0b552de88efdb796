"""3DBall: tilt a platform so that the ball on it does not fall."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_sim.world import Agents, World

Array = NDArray[np.float64]

STEP_S = 0.02

# The task.
TURN_RAD = math.radians(2.0)
"""How far an action of 1 turns the cube in a step."""
TURN_LIMIT = 0.25
"""Component of the cube's quaternion beyond which it turns no farther that way."""
START_TILT_RAD = math.radians(10.0)
START_OFFSET_M = 1.5
START_HEIGHT_M = 4.0
FALLEN_ASIDE_M = 3.0
FALLEN_BELOW_M = 2.0

# The bodies. All from ANGULAR_DRAG on are Unity's defaults.
HALF_EDGE_M = 2.5
RADIUS_M = 0.5
ANGULAR_DRAG = 0.05
MAX_SPIN_RAD_S = 7.0
FRICTION = 0.6
CONTACT_OFFSET_M = 0.02
"""Gap between two surfaces at which they begin to touch."""
CORRECTION = 0.8
"""Part of a gap or of an overlap that one step closes."""
MAX_PUSH_OUT_M_S = 10.0
"""Fastest way out of an overlap."""

X, Y, Z, W = range(4)
POSITION, VELOCITY, SPIN = range(3)


class Ball3D(World):
    """Twelve balls, each on a cube of 5 m that its agent turns.

    Observation: 8 numbers: z and x of the cube's quaternion; position of the ball relative to the
        cube, in metres (x, y, z); its velocity in m/s (x, y, z). All by the axes of the world.
    Actions: 2 continuous, clipped to -1..1: turn about the cube's own z and x axis; an action of 1
        turns by 2 degrees per step. The cube stops at about 29 degrees either way.
    Decisions: every 5 steps of 0.02 s.
    Reward: 0.1 per decision while the ball is on the cube; -1 when it has fallen.
    Ends: when the ball is more than 3 m aside in x or z or more than 2 m below the cube's centre.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Parameters: `scale` of the ball 1 (0.2 to 5), `gravity` 9.81 m/s2 (4 to 105); `mass` of the
        ball 1 kg (0.1 to 20), which changes no motion.
    A good policy reaches 100, all there is.

    Source: example environments, section 2, task 2. Bodies move as in Unity's physics engine,
    tuned to recorded steps of it: the cube is moved by hand, so its surface has no velocity of its
    own and only pushes the ball out; the ball flies, slides, rolls and tips over edges, and keeps
    its spin when a new episode begins.

    Attributes:
        cube: (4, N) quaternion x, y, z, w of every cube.
        ball: (3, 3, N) position relative to the cube, velocity and spin of every ball, each by
            axis of the world.
    """

    behavior_name = "3DBall?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(8, "VectorSensor_size8")], ActionSpec.create_continuous(2)
    )
    agents_per_area = 12
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: Mapping[str, float] = {"scale": 1.0, "gravity": 9.81, "mass": 1.0}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.cube = np.zeros((4, n))
        self.ball = np.zeros((3, 3, n))
        self._radius = np.full(n, RADIUS_M)
        # About z, then about x: which way to turn; cosine and sine of half the angle, each
        # repeated for the four components of a quaternion.
        self._ways = np.zeros((2, n))
        self._turns = np.zeros((2, 2, 4, n))

    # The task.

    def begin(self, agents: Agents) -> None:
        """Tilt the cubes a little and hold the balls above them."""
        n = len(self.agent_id[agents])
        half_tilts = self.rng.uniform(-START_TILT_RAD, START_TILT_RAD, (2, n)) / 2
        (sin_x, sin_z), (cos_x, cos_z) = np.sin(half_tilts), np.cos(half_tilts)
        # About the cube's x axis, then about its z axis.
        self.cube[X, agents] = sin_x * cos_z
        self.cube[Y, agents] = -sin_x * sin_z
        self.cube[Z, agents] = cos_x * sin_z
        self.cube[W, agents] = cos_x * cos_z

        position, velocity, _ = self.ball
        position[X, agents], position[Z, agents] = self.rng.uniform(
            -START_OFFSET_M, START_OFFSET_M, (2, n)
        )
        position[Y, agents] = START_HEIGHT_M
        velocity[:, agents] = 0.0
        self._radius[agents] = RADIUS_M * self.parameters["scale"]

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return what the class describes."""
        seen = np.empty((len(self.agent_id[agents]), 8), np.float32)
        seen[:, 0], seen[:, 1] = self.cube[Z, agents], self.cube[X, agents]
        seen[:, 2:5] = self.ball[POSITION][:, agents].T
        seen[:, 5:8] = self.ball[VELOCITY][:, agents].T
        return [seen]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Note how to turn in each of the coming steps."""
        turns = np.maximum(np.minimum(action.continuous.T, 1.0), -1.0)  # (2, n)
        half_angles = turns * (TURN_RAD / 2)
        self._ways[:, agents] = np.sign(turns)
        self._turns[:, 0, :, agents] = ...

    def act(self) -> None:
        """Turn the cubes; see whose ball has fallen."""
        self._turn_cubes()
        self.reward.fill(0.1)
        fallen = self.fallen()
        if fallen.size:
            self.reward[fallen] = -1.0
            self.end(fallen)
