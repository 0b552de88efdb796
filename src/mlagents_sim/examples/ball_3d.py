"""3DBall: tilt a platform so that the ball on it does not fall."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Control, Scene, Shape, Solids
from mlagents_sim.rolling import (
    ASIDE,
    POSITION,
    ROLLING,
    SPIN,
    VELOCITY,
    BallsOnCubes,
    X,
    Y,
    Z,
    rotation_matrix,
)
from mlagents_sim.world import Agents, World

# Besides the world, names of its bodies for the worlds that derive from it.
__all__ = [
    "ASIDE",
    "POSITION",
    "SPIN",
    "VELOCITY",
    "Ball3D",
    "X",
    "Y",
    "Z",
    "rotation_matrix",
]

TURN_RAD = math.radians(2.0)
"""Turn of the cube in a step by an action of 1."""
TURN_LIMIT = 0.25
"""Component of the cube's quaternion beyond which it turns no farther that way."""
START_TILT_RAD = math.radians(10.0)
START_OFFSET_M = 1.5
START_HEIGHT_M = 4.0
FALLEN_ASIDE_M = 3.0
FALLEN_BELOW_M = 2.0
HALF_EDGE_M = 2.5
RADIUS_M = 0.5
SCALES = 0.2, 5.0
"""Limits of the factor by which a ball's size is multiplied."""
CUBE_COLOR, BALL_COLOR = (64, 128, 217), (250, 158, 51)
NO_AGENT = np.zeros(0, np.intp)


class Ball3D(World):
    """Twelve balls, each on a cube of 5 m that its agent turns.

    Observation: 8 numbers: z and x of the cube's quaternion; position of the ball relative to the
        cube, in meters (x, y, z); its velocity in m/s (x, y, z). Axes are those of the world.
    Actions: 2 continuous, clipped to -1..1: rotation about the cube's own z and x axes; an action
        of 1 rotates by 2 degrees per step. The cube stops at about 29 degrees in each direction.
    Decisions: every 5 steps of 0.02 s.
    Reward: 0.1 per decision while the ball is on the cube; -1 when it has fallen.
    Ends: when the ball is more than 3 m away in x or z, or more than 2 m below the cube's center.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Parameters, drawn for each ball at the start of an episode: `scale` 1, the size of the ball (0.2
        to 5); `gravity` 9.81 m/s2 (4 to 105); `mass` 1 kg (0.1 to 20), which has no effect.
    A good policy reaches 100, the highest possible reward.

    Bodies move as in Unity's physics engine, tuned to recorded steps of it. The task sets a cube's
    rotation, so its surface has no velocity of its own and only pushes the ball out. A ball flies,
    slides, rolls and tips over edges, and keeps its spin when a new episode begins.

    Attributes:
        rolling: Cubes and balls.
        cube: (4, N) quaternions of the cubes: x, y, z, w.
        ball: (3, 3, N) positions relative to the cubes, velocities and spins of the balls, by axis
            of the world.
    """

    behavior_name = "3DBall?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(8, "VectorSensor_size8")], ActionSpec.create_continuous(2)
    )
    controls = (
        Control("tilt left", "A", 0, 1.0, is_continuous=True),
        Control("tilt right", "D", 0, -1.0, is_continuous=True),
        Control("tilt ahead", "W", 1, 1.0, is_continuous=True),
        Control("tilt back", "S", 1, -1.0, is_continuous=True),
    )
    agents_per_area = 12
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"scale": 1.0, "gravity": 9.81, "mass": 1.0}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.rolling = BallsOnCubes(
            n, half_edge_m=HALF_EDGE_M, turn_limit=TURN_LIMIT, functions=ROLLING.load()
        )
        self.cube, self.ball = self.rolling.cube, self.rolling.ball
        self._radius = self.rolling.radius
        self._lowest = np.tile([[-FALLEN_ASIDE_M], [-FALLEN_BELOW_M], [-FALLEN_ASIDE_M]], n)
        self._highest = np.tile([[FALLEN_ASIDE_M], [np.inf], [FALLEN_ASIDE_M]], n)

    def begin(self, agents: Agents) -> None:
        """Tilt the cubes a little and hold the balls above them."""
        n = len(self.agent_id[agents])
        drawn = self.rng.uniform(-1.0, 1.0, (4, n))
        ball = np.empty((3, n))
        ball[ASIDE] = drawn[2:] * START_OFFSET_M
        ball[Y] = START_HEIGHT_M
        half_tilts = drawn[:2] * (START_TILT_RAD / 2)
        self.size_balls(agents)
        gravity = self.parameters.draw("gravity", n)
        self.rolling.put(agents, half_tilts=half_tilts, ball=ball, gravity=gravity)

    def size_balls(self, agents: Agents) -> None:
        """Draw the sizes of these agents' balls."""
        scale = self.parameters.draw("scale", len(self.agent_id[agents]))
        self.rolling.resize(agents, RADIUS_M * np.clip(scale, *SCALES))

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        seen = np.empty((len(self.agent_id[agents]), 8), np.float32)
        seen[:, 0], seen[:, 1] = self.cube[Z][agents], self.cube[X][agents]
        seen[:, 2:] = self.ball[:SPIN].reshape(6, -1).T[agents]
        return [seen]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the turn of each of the coming steps."""
        parts = np.maximum(np.minimum(action.continuous.T, 1.0), -1.0)  # (2, n)
        self.rolling.set_turns(agents, parts * np.float64(TURN_RAD / 2))

    def rest(self, agents: Agents) -> None:
        """Turn no farther until the next command."""
        self.rolling.hold(agents)

    def act(self) -> None:
        """Turn the cubes; end episodes whose ball has fallen."""
        self.rolling.turn()
        self.reward.fill(0.1)
        fallen = self.fallen()
        if fallen.size:
            self.reward[fallen] = -1.0
            self.end(fallen)

    def fallen(self) -> NDArray[np.intp]:
        """Return the indices of the agents whose ball is off the cube."""
        offset = self.rolling.ball_offset()
        outside = (offset < self._lowest) | (offset > self._highest)
        return np.flatnonzero(outside.any(axis=0)) if np.count_nonzero(outside) else NO_AGENT

    def physics(self) -> None:
        """Move the balls."""
        self.rolling.move()

    def scene(self) -> Scene:
        """Return all cubes, blue, and the orange balls on them."""
        agent = np.arange(self.n_agents, dtype=np.int32)
        cubes = Solids.of(
            "cube",
            Shape.BOX,
            np.zeros((self.n_agents, 3)),
            np.full(3, 2.0 * HALF_EDGE_M),
            CUBE_COLOR,
            rotation=self.cube.T.copy(),
            area=agent,
            agent=agent,
        )
        diameter = 2.0 * np.repeat(self.rolling.radius[:, None], 3, axis=1)
        ball = self.rolling.ball_offset().T
        balls = Solids.of("ball", Shape.BALL, ball, diameter, BALL_COLOR, area=agent)
        time_s = self.step_count * self.step_s
        edge = 1.4 * HALF_EDGE_M
        return Scene(
            [cubes, balls],
            self.n_agents,
            (-edge, -edge, -edge),
            (edge, START_HEIGHT_M, edge),
            self.agent_id.copy(),
            time_s,
        )
