"""Balls that fly, slide and roll on cubes, and cubes that are turned by hand.

Letters in shapes: N areas, each of one cube and one ball. Vectors are (3, N) by the axes of the
world: x, y (up), z. Quaternions are (4, N): x, y, z, w. A ball's place is relative to its cube's
centre, which never moves.

    bodies = BallsOnCubes(n_areas, half_edge_m=2.5, turn_limit=0.25)
    bodies.set_turns(agents, half_angles)
    bodies.turn()
    bodies.move()
"""

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim.planar import (
    CONTACT_OFFSET_M,
    CORRECTION,
    FRICTION,
    MAX_PUSH_OUT_M_S,
    STEP_S,
    Array,
    Indices,
    Mask,
    number,
)

X, Y, Z, W = range(4)
POSITION, VELOCITY, SPIN = range(3)
ASIDE = slice(X, Z + 1, 2)

ANGULAR_DRAG = 0.05
"""Part of the spin lost in a second. With the documented 0.01, balls miss recordings by 13 mm
instead of 1 mm."""
MAX_SPIN_RAD_S = 7.0

_ZERO, _ONE, _MINUS_ONE, _STEP = number(0.0), number(1.0), number(-1.0), number(STEP_S)
_TOUCH, _PUSH_OUT = number(CONTACT_OFFSET_M), number(MAX_PUSH_OUT_M_S)
_CLOSING_PER_S, _FRICTION = number(-CORRECTION / STEP_S), number(FRICTION)
_SPIN_KEPT, _MAX_SPIN = number(1.0 - ANGULAR_DRAG * STEP_S), number(MAX_SPIN_RAD_S)
_TINY = number(1e-12)
"""Keeps a quotient finite where the divisor may be 0."""
_SOLID = number(0.4)
"""Moment of inertia of a solid ball of radius 1 and mass 1."""
_NO_TURN = np.reshape([1.0, 0.0], (2, 1, 1, 1))
"""Cosine and sine."""


class BallsOnCubes:
    """Cubes and balls of N areas.

    Bodies move as in Unity's physics engine, tuned to recorded steps of it. A cube is moved by
    hand, so its surface has no velocity of its own and only pushes the ball out.

    Args:
        n_areas: Number of areas, N.
        half_edge_m: Half the edge of a cube, in m.
        turn_limit: Component of a cube's quaternion beyond which it turns no farther that way.

    Attributes:
        cube: (4, N) quaternions of the cubes.
        ball: (3, 3, N) position, velocity and spin of the balls, each by axis.
        radius: (N,) radii of the balls, in m.
    """

    def __init__(self, n_areas: int, *, half_edge_m: float, turn_limit: float) -> None:
        self.cube = np.zeros((4, n_areas))
        self.ball = np.zeros((3, 3, n_areas))
        self.radius = np.zeros(n_areas)
        self._half_edge, self._other_half = number(half_edge_m), number(-half_edge_m)
        self._turn_limit = number(turn_limit)
        self._inertia = np.zeros(n_areas)
        self._reach = np.zeros(n_areas)  # from a cube's centre to that of a ball that lies on it
        self._fall = np.zeros(n_areas)  # speed that gravity adds in a step
        # About z, then about x: direction of the turn; then, of half the angle and for each
        # component of the quaternion, the cosine, and the sine with the signs of `_TURNED_SIGNS`.
        self._ways = np.zeros((2, n_areas))
        self._turns = np.zeros((2, 2, 4, n_areas))

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
        position, velocity, spin = self.ball
        velocity[Y] -= self._fall
        spin *= _SPIN_KEPT

        frame = rotation_matrix(self.cube)
        local = np.einsum("krn,rcn->kcn", self.ball, frame)
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
        moved = np.einsum("kcn,rcn->krn", local, frame)
        position += moved[POSITION] * _STEP
        self.ball[VELOCITY:] = moved[VELOCITY:]
        if np.vdot(spin, spin) > MAX_SPIN_RAD_S**2:  # all together; then perhaps one of them
            speed = np.sqrt(np.einsum("cn,cn->n", spin, spin))
            spin *= _MAX_SPIN / np.maximum(speed, _MAX_SPIN)

    def _turn_to_edges(self, over: Indices, frame: Array, local: Array, gap: Array) -> None:
        """Correct, in place, contacts that were computed as if the top face had no edges.

        Args:
            over: Indices of the balls that are not above the face.
            frame: (3, 3, N) axes of each contact, in columns; the second is its normal.
            local: (3, 3, N) position, velocity and spin of the balls by these axes.
            gap: (N,) gaps between the surfaces, in m.
        """
        centre = local[POSITION].take(over, axis=1)
        nearest = np.minimum(np.maximum(centre, self._other_half), self._half_edge)
        arm = centre - nearest
        distance = np.sqrt(np.einsum("rn,rn->n", arm, arm))
        gap_there = distance - self.radius[over]
        gap[over] = gap_there
        (near,) = (gap_there < _TOUCH).nonzero()
        if near.size:
            over = over[near]
            edge = frame_along(arm.take(near, axis=1) / distance[near])
            frame[:, :, over] = np.einsum("rkn,kcn->rcn", frame.take(over, axis=2), edge)
            local[:, :, over] = np.einsum("krn,rcn->kcn", local.take(over, axis=2), edge)

    def _touch(self, local: Array, gap: Array, touching: Mask) -> None:
        """Push and brake the balls that touch their cubes.

        Two impulses are found for each contact. One moves the ball in this step, and closes most
        of a gap or an overlap besides. The other remains in the velocity, so that a push out of an
        overlap gives no speed. Friction is limited by either, and by what makes the ball
        roll: a ball of mass m and inertia I touched at distance L from its centre resists a
        sideways impulse with 1 / (1/m + L^2/I). All is per unit of mass.

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
"""Cheaper form of that product: `q.take(_TURNED_FROM[k], axis=0) * _TURNED_SIGNS[k]` is q times
the unit quaternion of z (k = 0) or of x (k = 1)."""

_UNIT_TIMES = _TIMES_UNIT * np.array([[-1, -1, -1, 1]] * 3 + [[1, 1, 1, 1]])
"""`_UNIT_TIMES[axis] @ q` is the unit quaternion of an axis times q."""

# The matrix R of q turns the axis c into q c q*, whose component along the axis r is the scalar
# product of r q and q c: a sum over the products of two components of q.
_ROTATION = np.einsum("rki,ckj->rcij", _UNIT_TIMES, _TIMES_UNIT).reshape(9, 16)


def rotation_matrix(quaternion: Array) -> Array:
    """Return the (3, 3, n) matrices of (4, n) unit quaternions; columns are the body's axes."""
    products = (quaternion[:, None] * quaternion).reshape(16, -1)
    matrices: Array = _ROTATION.dot(products).reshape(3, 3, -1)
    return matrices


def frame_along(normal: Array) -> Array:
    """Return (3, 3, n) rotation matrices whose second column is `normal`, (3, n).

    The matrices turn the y axis to the normal the shortest way. The normal must not be -y.
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
