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
from mlagents_sim.planar import (
    CONTACT_OFFSET_M,
    CORRECTION,
    FRICTION,
    MAX_PUSH_OUT_M_S,
    STEP_S,
    Array,
    number,
)
from mlagents_sim.world import Agents, World

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

# The bodies.
HALF_EDGE_M = 2.5
RADIUS_M = 0.5
SCALES = 0.2, 5.0
"""Least and most that a ball's size is multiplied by."""
ANGULAR_DRAG = 0.05
"""Not the 0.01 that is written elsewhere, with which recorded balls are missed by 13 mm, not 1."""
MAX_SPIN_RAD_S = 7.0

NOBODY = np.zeros(0, np.intp)

# Of what is above, what every step needs.
ZERO, ONE, MINUS_ONE, STEP = number(0.0), number(1.0), number(-1.0), number(STEP_S)
LIMIT = number(TURN_LIMIT)
EDGE, OTHER_EDGE = number(HALF_EDGE_M), number(-HALF_EDGE_M)
TOUCH, PUSH_OUT = number(CONTACT_OFFSET_M), number(MAX_PUSH_OUT_M_S)
CLOSING_PER_S, RUB = number(-CORRECTION / STEP_S), number(FRICTION)
SPIN_KEPT, MAX_SPIN = number(1.0 - ANGULAR_DRAG * STEP_S), number(MAX_SPIN_RAD_S)
TINY = number(1e-12)

# And what every start needs.
START_HALF_TILT, START_OFFSET = number(START_TILT_RAD / 2), number(START_OFFSET_M)
START_HEIGHT, RADIUS = number(START_HEIGHT_M), number(RADIUS_M)
SOLID = number(0.4)
"""Inertia of a ball of radius and mass 1."""
NO_TURN = np.reshape([1.0, 0.0], (2, 1, 1, 1))
"""Cosine and sine."""

X, Y, Z, W = range(4)
POSITION, VELOCITY, SPIN = range(3)
ASIDE = slice(X, Z + 1, 2)


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
    Parameters, each ball's own from one start to the next: `scale` 1 of its size, at least 0.2 and
        at most 5; `gravity` 9.81 m/s2 (4 to 105); `mass` 1 kg (0.1 to 20), which changes no motion.
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
    default_parameters: ClassVar[Mapping[str, float]] = {"scale": 1.0, "gravity": 9.81, "mass": 1.0}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.cube = np.zeros((4, n))
        self.ball = np.zeros((3, 3, n))
        self._radius = np.zeros(n)
        self._inertia = np.zeros(n)
        self._reach = np.zeros(n)  # from the cube's centre to a ball's that lies on it
        self._gain_of_fall = np.zeros(n)  # downward, of a ball in the air, in a step, in m/s
        self._lowest = np.tile([[-FALLEN_ASIDE_M], [-FALLEN_BELOW_M], [-FALLEN_ASIDE_M]], n)
        self._highest = np.tile([[FALLEN_ASIDE_M], [np.inf], [FALLEN_ASIDE_M]], n)
        # About z, then about x: which way to turn; of half the angle, for each component of the
        # quaternion, the cosine, and the sine with the signs of `TURNED_SIGNS`.
        self._ways = np.zeros((2, n))
        self._turns = np.zeros((2, 2, 4, n))

    # The task.

    def begin(self, agents: Agents) -> None:
        """Tilt the cubes a little and hold the balls above them."""
        n = len(self.agent_id[agents])
        drawn = self.rng.uniform(-1.0, 1.0, (4, n))
        half_tilts = drawn[:2] * START_HALF_TILT
        (sin_x, sin_z), (cos_x, cos_z) = np.sin(half_tilts), np.cos(half_tilts)
        # About the cube's x axis, then about its z axis.
        x, y, z, w = self.cube
        x[agents] = sin_x * cos_z
        y[agents] = -sin_x * sin_z
        z[agents] = cos_x * sin_z
        w[agents] = cos_x * cos_z

        (x, y, z), velocity, _ = self.ball
        x[agents], z[agents] = drawn[2:] * START_OFFSET
        y[agents] = START_HEIGHT
        for component in velocity:
            component[agents] = ZERO
        self.size_balls(agents)
        self._gain_of_fall[agents] = self.parameters.draw("gravity", n) * STEP

    def size_balls(self, agents: Agents) -> None:
        """Make the balls of these agents as large as `scale` says."""
        scale = self.parameters.draw("scale", len(self.agent_id[agents]))
        radius = RADIUS * np.clip(scale, *SCALES)
        self._radius[agents] = radius
        self._inertia[agents] = SOLID * (radius * radius)
        self._reach[agents] = EDGE + radius

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return what the class describes."""
        seen = np.empty((len(self.agent_id[agents]), 8), np.float32)
        seen[:, 0], seen[:, 1] = self.cube[Z][agents], self.cube[X][agents]
        seen[:, 2:] = self.ball[:SPIN].reshape(6, -1).T[agents]
        return [seen]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Note how to turn in each of the coming steps."""
        ways = np.maximum(np.minimum(action.continuous.T, 1.0), -1.0)  # (2, n)
        half_angles = ways * np.float64(TURN_RAD / 2)
        self._ways[:, agents] = np.sign(ways)
        self._turns[0][:, :, agents] = np.cos(half_angles)[:, None]
        self._turns[1][:, :, agents] = TURNED_SIGNS * np.sin(half_angles)[:, None]

    def rest(self, agents: Agents) -> None:
        """Turn no farther until told otherwise."""
        self._turns[..., agents] = NO_TURN

    def act(self) -> None:
        """Turn the cubes; see whose ball has fallen."""
        self._turn_cubes()
        self.reward.fill(0.1)
        fallen = self.fallen()
        if fallen.size:
            self.reward[fallen] = -1.0
            self.end(fallen)

    def fallen(self) -> NDArray[np.intp]:
        """Return the indices of the agents whose ball is off the cube."""
        position = self.ball[POSITION]
        outside = (position < self._lowest) | (position > self._highest)
        return outside.any(axis=0).nonzero()[0] if np.count_nonzero(outside) else NOBODY

    # The bodies.

    def physics(self) -> None:
        """Let the balls fly, or press, rub and roll on their cubes."""
        position, velocity, spin = self.ball
        velocity[Y] -= self._gain_of_fall
        spin *= SPIN_KEPT

        frame = rotation_matrix(self.cube)
        local = np.einsum("krn,rcn->kcn", self.ball, frame)
        gap = local[POSITION, Y] - self._reach
        aside = np.maximum(np.abs(local[POSITION, X]), np.abs(local[POSITION, Z]))
        beyond = aside > EDGE
        if np.count_nonzero(beyond):
            self._turn_to_edges(beyond.nonzero()[0], frame, local, gap)

        touching = gap < TOUCH
        if not np.count_nonzero(touching):
            position += velocity * STEP
            return
        self._touch(local, gap, touching)
        moved = np.einsum("kcn,rcn->krn", local, frame)
        moved[POSITION] *= STEP
        moved[POSITION] += position
        self.ball, spin = moved, moved[SPIN]
        if np.vdot(spin, spin) > MAX_SPIN_RAD_S**2:  # all together; then perhaps one of them
            speed = np.sqrt(np.einsum("cn,cn->n", spin, spin))
            spin *= MAX_SPIN / np.maximum(speed, MAX_SPIN)

    def _turn_cubes(self) -> None:
        for axis, way, turned_from, cosine, sine in zip(
            (Z, X), self._ways, TURNED_FROM, *self._turns, strict=True
        ):
            cube = self.cube
            turned = cube.take(turned_from, axis=0)
            turned *= sine
            turned += cube * cosine
            np.copyto(turned, cube, where=cube[axis] * way >= LIMIT)
            self.cube = turned

    def _turn_to_edges(
        self, over: NDArray[np.intp], frame: Array, local: Array, gap: Array
    ) -> None:
        """Correct, in place, what was computed as if the top face had no edges.

        Args:
            over: Indices of the agents whose ball is not above the face.
            frame: (3, 3, N) axes of each contact, in columns; the second is its normal.
            local: (3, 3, N) the balls by these axes.
            gap: (N,) between the surfaces.
        """
        centre = local[POSITION].take(over, axis=1)
        nearest = np.minimum(np.maximum(centre, OTHER_EDGE), EDGE)
        arm = centre - nearest
        distance = np.sqrt(np.einsum("rn,rn->n", arm, arm))
        gap_there = distance - self._radius[over]
        gap[over] = gap_there
        (near,) = (gap_there < TOUCH).nonzero()
        if near.size:
            over = over[near]
            edge = frame_along(arm.take(near, axis=1) / distance[near])
            frame[:, :, over] = np.einsum("rkn,kcn->rcn", frame.take(over, axis=2), edge)
            local[:, :, over] = np.einsum("krn,rcn->kcn", local.take(over, axis=2), edge)

    def _touch(self, local: Array, gap: Array, touching: NDArray[np.bool_]) -> None:
        """Let the cubes push and brake the balls that touch them.

        Two impulses are found for each contact. One moves the ball in this step, and closes most
        of a gap or an overlap besides; the other remains in the velocity, so that being pushed out
        of an overlap gives no speed. Friction is limited by either, and by what makes the ball
        roll: a ball of mass m and inertia I touched at distance L from its centre resists a
        sideways impulse with 1 / (1/m + L^2/I). All is per unit of mass.

        Args:
            local: (3, 3, N) position, velocity and spin by the axes of the contact, the second
                its normal. Changed in place: velocity and spin to those after the contact,
                position to the velocity of the motion in this step.
            gap: (N,) between the surfaces.
            touching: (N,) which of them touch.
        """
        (motion_x, motion_y, motion_z), (v_x, v_y, v_z), (spin_x, _, spin_z) = local
        closing = np.minimum(gap * CLOSING_PER_S, PUSH_OUT)
        push = np.maximum(closing, v_y) - v_y
        push *= touching
        lasting_push = np.minimum(push, np.maximum(-v_y, ZERO))

        lever = gap + self._radius
        slip_x = v_x + lever * spin_z
        slip_z = v_z - lever * spin_x
        friction = RUB / (np.sqrt(slip_x * slip_x + slip_z * slip_z) + TINY)
        rolling = self._inertia / (self._inertia + lever * lever)

        brake = np.minimum(rolling, friction * push)
        np.subtract(v_x, brake * slip_x, out=motion_x)
        np.add(v_y, push, out=motion_y)
        np.subtract(v_z, brake * slip_z, out=motion_z)

        brake = np.minimum(rolling, friction * lasting_push)
        slip_x *= brake
        slip_z *= brake
        v_x -= slip_x
        v_y += lasting_push
        v_z -= slip_z
        lever /= self._inertia
        spin_x += lever * slip_z
        spin_z -= lever * slip_x

    def render(self) -> NDArray[np.uint8]:
        """Draw every platform in a tile of its own, together about (480, 640, 3)."""
        columns = math.ceil(math.sqrt(self.n_agents * 4 / 3))
        rows = math.ceil(self.n_agents / columns)
        size = max(640 // columns, 1)
        tiles = np.zeros((rows * columns, size, size, 3), np.uint8)
        for agent in range(self.n_agents):
            frame = rotation_matrix(self.cube[:, agent : agent + 1])[:, :, 0]
            tiles[agent] = _picture(frame, self.ball[POSITION, :, agent], self._radius[agent], size)
        picture = tiles.reshape(rows, columns, size, size, 3).swapaxes(1, 2)
        return picture.reshape(rows * size, columns * size, 3)


# Quaternions are (4, n): x, y, z, w.

TIMES_UNIT = np.array(
    [
        [[0, 0, 0, 1], [0, 0, 1, 0], [0, -1, 0, 0], [-1, 0, 0, 0]],
        [[0, 0, -1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, -1, 0, 0]],
        [[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]],
    ],
    np.float64,
)
"""`TIMES_UNIT[axis] @ q` is q times the unit quaternion of an axis; a turn about that axis of a
body by an angle a makes q to q cos(a/2) + (q times unit) sin(a/2)."""

TURNED_FROM = np.array([np.abs(TIMES_UNIT[axis]).argmax(axis=1) for axis in (Z, X)])
TURNED_SIGNS = np.array([TIMES_UNIT[axis].sum(axis=1) for axis in (Z, X)])[..., None]
"""With less work than the above, `q.take(TURNED_FROM[k], axis=0) * TURNED_SIGNS[k]` is q times the
unit quaternion of z (k = 0) or of x (k = 1)."""

UNIT_TIMES = TIMES_UNIT * np.array([[-1, -1, -1, 1]] * 3 + [[1, 1, 1, 1]])
"""`UNIT_TIMES[axis] @ q` is the unit quaternion of an axis times q."""

# The matrix R of q turns the axis c into q c q*, whose component along the axis r is the scalar
# product of r q and q c: a sum over the products of two components of q.
_ROTATION = np.einsum("rki,ckj->rcij", UNIT_TIMES, TIMES_UNIT).reshape(9, 16)


def rotation_matrix(quaternion: Array) -> Array:
    """Return the (3, 3, n) matrices of (4, n) unit quaternions; columns are the body's axes."""
    products = (quaternion[:, None] * quaternion).reshape(16, -1)
    matrices: Array = _ROTATION.dot(products).reshape(3, 3, -1)
    return matrices


def frame_along(normal: Array) -> Array:
    """Return (3, 3, n) rotation matrices whose second column is `normal`, (3, n).

    They turn the y axis to the normal the shortest way, which exists unless that is -y.
    """
    x, y, z = normal
    bend = MINUS_ONE / (ONE + y)
    bend_x = bend * x
    frame = np.empty((3, *normal.shape))
    frame[:, Y] = normal
    frame[Y, ASIDE] = -normal[ASIDE]
    frame[X, X], frame[Z, Z] = ONE + bend_x * x, ONE + bend * z * z
    frame[X, Z] = frame[Z, X] = bend_x * z
    return frame


# The picture: one ray per pixel, in metres and the axes of the world.

EYE = np.array([0.0, 10.0, -8.5])
VIEW = np.array([0.0, -0.7, 0.714])
FIELD_OF_VIEW = 0.42  # tangent of half the angle
LIGHT = np.array([-0.42, 0.84, -0.34])
SKY, HORIZON = np.array([0.36, 0.52, 0.70]), np.array([0.80, 0.87, 0.93])
CUBE_COLOUR, BALL_COLOUR = np.array([0.25, 0.50, 0.85]), np.array([0.98, 0.62, 0.20])


def _picture(frame: Array, centre: Array, radius: float, size: int) -> NDArray[np.uint8]:
    """Draw a cube with axes `frame` and a ball: (size, size, 3)."""
    across = np.linspace(-FIELD_OF_VIEW, FIELD_OF_VIEW, size)
    right, up = np.meshgrid(across, -across)
    overhead = np.cross(VIEW, (1.0, 0.0, 0.0))
    ray = VIEW + right[..., None] * (1.0, 0.0, 0.0) + up[..., None] * overhead
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)  # (size, size, 3)

    to_cube, face = _to_cube(EYE @ frame, ray @ frame)
    to_ball = _to_ball(EYE - centre, ray, radius)
    height = np.linspace(1.0, 0.0, size)[:, None, None]
    colour = np.broadcast_to(HORIZON + (SKY - HORIZON) * height, ray.shape).copy()

    seen = to_cube < to_ball
    point = EYE + ray[seen] * to_cube[seen, None]
    in_shade = np.isfinite(_to_ball(point - centre, LIGHT, radius))
    # Squares of half a metre, the outermost cut so that no face lies on the limit of two layers.
    squares = np.floor(point @ frame * 1.98).sum(axis=-1) % 2
    brightness = 0.45 + 0.55 * np.maximum(face[seen] @ frame.T @ LIGHT, 0.0) * ~in_shade
    colour[seen] = CUBE_COLOUR * (brightness * (1.0 + 0.12 * squares))[:, None]

    seen = np.isfinite(to_ball) & ~seen
    normal = (EYE + ray[seen] * to_ball[seen, None] - centre) / radius
    brightness = normal @ LIGHT
    shine = np.maximum(normal @ _unit(LIGHT - VIEW), 0.0) ** 40
    colour[seen] = BALL_COLOUR * (0.55 + 0.45 * brightness)[:, None] + 0.5 * shine[:, None]
    return (colour.clip(0.0, 1.0) * 255).astype(np.uint8)


def _to_cube(eye: Array, ray: Array) -> tuple[Array, Array]:
    """Return how far the cube is along each ray, infinity for a miss, and the normal there.

    All by the cube's axes: a ray is inside between the latest entry and the earliest exit of the
    three pairs of faces.
    """
    with np.errstate(divide="ignore"):
        one, other = (-HALF_EDGE_M - eye) / ray, (HALF_EDGE_M - eye) / ray
    entries = np.minimum(one, other)
    axis = entries.argmax(axis=-1)[..., None]
    entry = entries.max(axis=-1)
    distance = np.where(entry < np.maximum(one, other).min(axis=-1), entry, np.inf)
    normal = np.zeros_like(ray)
    np.put_along_axis(normal, axis, -np.sign(np.take_along_axis(ray, axis, -1)), -1)
    return distance, normal


def _to_ball(start: Array, ray: Array, radius: float) -> Array:
    """Return how far a ball at the origin is along each ray, infinity for a miss."""
    nearest = -np.sum(start * ray, axis=-1)
    inside = radius**2 - np.sum(start * start, axis=-1) + nearest**2
    distance = nearest - np.sqrt(np.maximum(inside, 0.0))
    return np.where((inside > 0.0) & (distance > 0.0), distance, np.inf)


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)
