"""Balls that fly, slide and roll on cubes, whose rotation is set by the task.

Letters in shapes: N areas, each with one cube and one ball. Vectors are (3, N) in the axes of the
world: x, y (up), z. Quaternions are (4, N): x, y, z, w. A ball's position is relative to its cube's
center, which never moves.

    bodies = BallsOnCubes(n_areas, half_edge_m=2.5, turn_limit=0.25)
    bodies.set_turns(agents, half_angles)
    bodies.turn()
    bodies.move()
"""

from ctypes import CDLL, POINTER, byref, c_double, c_int, c_int64
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mlagents_native.library import Part
from mlagents_sim.contact import CONTACT_OFFSET_M, CORRECTION, FRICTION, MAX_PUSH_OUT_M_S, STEP_S
from mlagents_sim.native_planar import (
    Doubles,
    FixedArrays,
    Integers,
    Shared,
    require_equal,
    require_memory,
)
from mlagents_sim.plane import Array, Indices, Mask, number

X, Y, Z, W = range(4)
POSITION, VELOCITY, SPIN = range(3)
ASIDE = slice(X, Z + 1, 2)

ANGULAR_DRAG = 0.05
"""Fraction of the spin lost per second. With the documented 0.01, positions differ from recordings
by 13 mm instead of 1 mm."""
MAX_SPIN_RAD_S = 7.0

_ZERO, _ONE, _MINUS_ONE, _STEP = number(0.0), number(1.0), number(-1.0), number(STEP_S)
_TOUCH, _PUSH_OUT = number(CONTACT_OFFSET_M), number(MAX_PUSH_OUT_M_S)
_CLOSING_PER_S, _FRICTION = number(-CORRECTION / STEP_S), number(FRICTION)
_SPIN_KEPT, _MAX_SPIN = number(1.0 - ANGULAR_DRAG * STEP_S), number(MAX_SPIN_RAD_S)
_TINY = number(1e-12)
"""Smallest divisor, which keeps quotients finite."""
_SOLID = number(0.4)
"""Moment of inertia of a solid ball of radius 1 and mass 1."""
_NO_TURN = np.reshape([1.0, 0.0], (2, 1, 1, 1))
"""Cosine and sine."""


class _Rolling(Shared):
    """`Rolling` of `source/rolling.cpp`."""

    _fields_: ClassVar = [
        *((name, Doubles) for name in ("cube", "ball", "radius", "inertia", "reach", "fall")),
        *((name, Doubles) for name in ("ways", "turns")),
        ("turned_from", Integers),
        ("n", c_int64),
        *((name, c_double) for name in ("half_edge", "turn_limit", "step", "touch", "push_out")),
        *((name, c_double) for name in ("closing_per_s", "friction", "spin_kept", "max_spin")),
        ("tiny", c_double),
    ]


class BallsOnCubes(FixedArrays):
    """Cubes and balls of N areas. NumPy and the native library give bit-identical results.

    Bodies move as in Unity's physics engine, tuned to recorded steps of it. The task sets a cube's
    rotation, so its surface has no velocity of its own and only pushes the ball out.

    Args:
        n_areas: Number of areas, N.
        half_edge_m: Half the edge of a cube, in m.
        turn_limit: Component of a cube's quaternion beyond which it turns no farther that way.
        functions: The native library with the part `ROLLING`; None to compute with NumPy.

    Attributes:
        cube: (4, N) quaternions of the cubes.
        ball: (3, 3, N) position, velocity and spin of the balls, each by axis.
        radius: (N,) radii of the balls, in m.
    """

    def __init__(
        self, n_areas: int, *, half_edge_m: float, turn_limit: float, functions: CDLL | None = None
    ) -> None:
        self.cube = np.zeros((4, n_areas))
        self.ball = np.zeros((3, 3, n_areas))
        self.radius = np.zeros(n_areas)
        self._half_edge, self._other_half = number(half_edge_m), number(-half_edge_m)
        self._turn_limit = number(turn_limit)
        self._inertia = np.zeros(n_areas)
        self._reach = np.zeros(n_areas)  # from a cube's center to that of a ball that lies on it
        self._fall = np.zeros(n_areas)  # speed that gravity adds in a step
        # About z, then about x: direction of the turn; then, of half the angle and for each
        # component of the quaternion, the cosine, and the sine with the signs of `_TURNED_SIGNS`.
        self._ways = np.zeros((2, n_areas))
        self._turns = np.zeros((2, 2, 4, n_areas))
        self._functions = functions
        self._shared = _Rolling(
            cube=self.cube,
            ball=self.ball,
            radius=self.radius,
            inertia=self._inertia,
            reach=self._reach,
            fall=self._fall,
            ways=self._ways,
            turns=self._turns,
            turned_from=_TURNED_FROM,
            n=n_areas,
            half_edge=half_edge_m,
            turn_limit=turn_limit,
            step=STEP_S,
            touch=CONTACT_OFFSET_M,
            push_out=MAX_PUSH_OUT_M_S,
            closing_per_s=-CORRECTION / STEP_S,
            friction=FRICTION,
            spin_kept=1.0 - ANGULAR_DRAG * STEP_S,
            max_spin=MAX_SPIN_RAD_S,
            tiny=float(_TINY),
        )

    def ball_offset(self) -> Array:
        """Return (3, N) positions of the balls relative to their cubes, in m."""
        position: Array = self.ball[POSITION]
        return position

    def put(
        self, areas: slice | Indices, *, half_tilts: Array, ball: Array, gravity: ArrayLike
    ) -> None:
        """Tilt n cubes and hold n balls still, with the spin that they had.

        Args:
            areas: Indices of the areas, n of them.
            half_tilts: (2, n) half angles, in rad, of turns about the cube's x and then z axis.
            ball: (3, n) positions of the balls.
            gravity: Downward acceleration, in m/s2.
        """
        (sin_x, sin_z), (cos_x, cos_z) = np.sin(half_tilts), np.cos(half_tilts)
        x, y, z, w = self.cube
        x[areas] = sin_x * cos_z
        y[areas] = -sin_x * sin_z
        z[areas] = cos_x * sin_z
        w[areas] = cos_x * cos_z
        position, velocity, _ = self.ball
        for component, value in zip(position, ball, strict=True):
            component[areas] = value
        for component in velocity:
            component[areas] = _ZERO
        self._fall[areas] = np.multiply(gravity, _STEP)

    def resize(self, areas: slice | Indices, radius: Array) -> None:
        """Give n balls (n,) radii, in m."""
        self.radius[areas] = radius
        self._inertia[areas] = _SOLID * (radius * radius)
        self._reach[areas] = self._half_edge + radius

    def set_turns(self, areas: slice | Indices, half_angles: Array) -> None:
        """Set the turns of n cubes in each of the coming steps.

        Args:
            areas: Indices of the areas, n of them.
            half_angles: (2, n) half angles, in rad, of turns about the cube's z and then x axis.
        """
        self._ways[:, areas] = np.sign(half_angles)
        self._turns[0][:, :, areas] = np.cos(half_angles)[:, None]
        self._turns[1][:, :, areas] = _TURNED_SIGNS * np.sin(half_angles)[:, None]

    def hold(self, areas: slice | Indices) -> None:
        """Keep these cubes still in each of the coming steps."""
        self._turns[..., areas] = _NO_TURN

    def turn(self) -> None:
        """Turn the cubes by a step."""
        if self._functions is not None:
            self._functions.rolling_turn(byref(self._shared))
            return
        cube = self.cube
        for axis, way, turned_from, cosine, sine in zip(
            (Z, X), self._ways, _TURNED_FROM, *self._turns, strict=True
        ):
            turned = cube.take(turned_from, axis=0)
            turned *= sine
            turned += cube * cosine
            np.copyto(cube, turned, where=cube[axis] * way < self._turn_limit)

    def move(self) -> None:
        """Move the balls by a step: they fly, or press, rub and roll on their cubes."""
        if self._functions is not None:
            require_memory(self._functions.rolling_move(byref(self._shared)))
            return
        position, velocity, spin = self.ball
        velocity[Y] -= self._fall
        spin *= _SPIN_KEPT

        frame = rotation_matrix(self.cube)
        local = _product(self.ball, frame)
        gap = local[POSITION, Y] - self._reach
        aside = np.maximum(np.abs(local[POSITION, X]), np.abs(local[POSITION, Z]))
        beyond = aside > self._half_edge
        if np.count_nonzero(beyond):
            self._turn_to_edges(beyond.nonzero()[0], frame, local, gap)

        touching = gap < _TOUCH
        if not np.count_nonzero(touching):
            position += velocity * _STEP
            return
        self._touch(local, gap, touching)
        moved = _product(local, frame.swapaxes(0, 1))
        position += moved[POSITION] * _STEP
        self.ball[VELOCITY:] = moved[VELOCITY:]
        if np.vdot(spin, spin) > MAX_SPIN_RAD_S**2:  # all together; then perhaps one of them
            speed = _length(spin)
            spin *= _MAX_SPIN / np.maximum(speed, _MAX_SPIN)

    def _turn_to_edges(self, over: Indices, frame: Array, local: Array, gap: Array) -> None:
        """Correct, in place, contacts that were computed as if the top face had no edges.

        Args:
            over: Indices of the balls that are not above the face.
            frame: (3, 3, N) axes of each contact, in columns; the second is its normal.
            local: (3, 3, N) position, velocity and spin of the balls by these axes.
            gap: (N,) gaps between the surfaces, in m.
        """
        center = local[POSITION].take(over, axis=1)
        nearest = np.minimum(np.maximum(center, self._other_half), self._half_edge)
        arm = center - nearest
        distance = _length(arm)
        gap_there = distance - self.radius[over]
        gap[over] = gap_there
        (near,) = (gap_there < _TOUCH).nonzero()
        if near.size:
            over = over[near]
            edge = frame_along(arm.take(near, axis=1) / distance[near])
            frame[:, :, over] = _product(frame.take(over, axis=2), edge)
            local[:, :, over] = _product(local.take(over, axis=2), edge)

    def _touch(self, local: Array, gap: Array, touching: Mask) -> None:
        """Push and brake the balls that touch their cubes.

        Each contact has two impulses. The first moves the ball in this step and also closes most of
        a gap or an overlap. The second remains in the velocity, so that a push out of an overlap
        adds no speed. Friction is limited by each impulse, and by the impulse that makes the ball
        roll: a ball of mass m and inertia I touched at distance L from its center resists a
        sideways impulse with 1 / (1/m + L^2/I). All values are per unit of mass.

        Args:
            local: (3, 3, N) position, velocity and spin by the axes of the contact, the second
                its normal. Changed in place: velocity and spin to those after the contact,
                position to the velocity of the motion in this step.
            gap: (N,) gaps between the surfaces, in m.
            touching: (N,) whether the surfaces touch.
        """
        (motion_x, motion_y, motion_z), (v_x, v_y, v_z), (spin_x, _, spin_z) = local
        closing = np.minimum(gap * _CLOSING_PER_S, _PUSH_OUT)
        push = np.maximum(closing, v_y) - v_y
        push *= touching
        lasting_push = np.minimum(push, np.maximum(-v_y, _ZERO))

        lever = gap + self.radius
        slip_x = v_x + lever * spin_z
        slip_z = v_z - lever * spin_x
        friction = _FRICTION / (np.sqrt(slip_x * slip_x + slip_z * slip_z) + _TINY)
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


# Quaternions are (4, n): x, y, z, w.

_TIMES_UNIT = np.array(
    [
        [[0, 0, 0, 1], [0, 0, 1, 0], [0, -1, 0, 0], [-1, 0, 0, 0]],
        [[0, 0, -1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, -1, 0, 0]],
        [[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]],
    ],
    np.float64,
)
"""`_TIMES_UNIT[axis] @ q` is q times the unit quaternion of an axis; a turn about that axis of a
body by an angle a makes q to q cos(a/2) + (q times unit) sin(a/2)."""

_TURNED_FROM = np.array([np.abs(_TIMES_UNIT[axis]).argmax(axis=1) for axis in (Z, X)])
_TURNED_SIGNS = np.array([_TIMES_UNIT[axis].sum(axis=1) for axis in (Z, X)])[..., None]
"""Cheaper form of that product: `q.take(_TURNED_FROM[k], axis=0) * _TURNED_SIGNS[k]` is q times the
unit quaternion of z (k = 0) or x (k = 1)."""


def _product(a: Array, b: Array) -> Array:
    """Return the n products of (3, 3, n) matrices, summed in one order for any n."""
    product: Array = a[:, 0, None] * b[0] + a[:, 1, None] * b[1] + a[:, 2, None] * b[2]
    return product


def _length(vector: Array) -> Array:
    """Return the (n,) lengths of (3, n) vectors, summed in one order for any n."""
    x, y, z = vector
    length: Array = np.sqrt(x * x + y * y + z * z)
    return length


def rotation_matrix(quaternion: Array) -> Array:
    """Return the (3, 3, n) matrices of (4, n) unit quaternions; columns are the body's axes."""
    x, y, z, w = quaternion
    xx, yy, zz, ww = quaternion * quaternion
    xy, xz, xw = x * quaternion[1:]
    yz, yw = y * quaternion[2:]
    zw = z * w
    matrices = np.empty((3, 3, quaternion.shape[1]))
    matrices[X, X] = (ww + xx) - (yy + zz)
    matrices[Y, Y] = (ww + yy) - (xx + zz)
    matrices[Z, Z] = (ww + zz) - (xx + yy)
    for row, column, product, turn in ((X, Y, xy, zw), (Y, Z, yz, xw), (Z, X, xz, yw)):
        matrices[row, column] = 2 * (product - turn)
        matrices[column, row] = 2 * (product + turn)
    return matrices


def frame_along(normal: Array) -> Array:
    """Return (3, 3, n) rotation matrices whose second column is `normal`, (3, n).

    The matrices rotate the y axis to the normal along the shortest path. The normal must not be -y.
    """
    x, y, z = normal
    bend = _MINUS_ONE / (_ONE + y)
    bend_x = bend * x
    frame = np.empty((3, *normal.shape))
    frame[:, Y] = normal
    frame[Y, ASIDE] = -normal[ASIDE]
    frame[X, X], frame[Z, Z] = _ONE + bend_x * x, _ONE + bend * z * z
    frame[X, Z] = frame[Z, X] = bend_x * z
    return frame


def _declare(functions: CDLL) -> None:
    functions.rolling_turn.argtypes = functions.rolling_move.argtypes = [POINTER(_Rolling)]
    functions.rolling_turn.restype = None
    functions.rolling_move.restype = c_int


def _check(functions: CDLL) -> None:
    """Compare steps of balls that fall, roll, and tip over edges with NumPy.

    Raises:
        NativeError: A result differs.
    """
    rng = np.random.default_rng(0)
    tilts, turns = rng.uniform(-0.2, 0.2, (2, 40)), rng.uniform(-0.02, 0.02, (2, 40))
    places = rng.uniform(-3.0, 3.0, (3, 40))
    places[Y] = rng.uniform(2.6, 4.0, 40)
    both = []
    for each in (functions, None):
        bodies = BallsOnCubes(40, half_edge_m=2.5, turn_limit=0.25, functions=each)
        bodies.resize(slice(None), np.full(40, 0.5))
        bodies.put(slice(None), half_tilts=tilts, ball=places, gravity=9.81)
        bodies.set_turns(slice(None), turns)
        for _ in range(40):
            bodies.turn()
            bodies.move()
        both.append(bodies)
    ours, reference = both
    require_equal(ours, reference, ("ball", "cube"), of="balls on cubes")


ROLLING = Part("rolling", version=1, declare=_declare, check=_check, otherwise="NumPy")
