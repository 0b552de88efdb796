"""Rows of a joint: its drive, its locked axes, its anchor and its limits, in this order.

The rotation of the parent's frame in the child's is one quaternion, split into a swing, which tilts
the X axis, and a twist about it:

    relative = conjugate(child frame) parent frame = swing twist
"""

import numpy as np

from mlagents_envs.base_env import BoolArray
from mlagents_sim.articulated.creature import (
    LIMIT_PAD_RAD,
    LIMITED,
    LOCKED,
    Model,
    quarter_tangent,
)
from mlagents_sim.articulated.rotations import (
    IDENTITY,
    Array,
    conjugate,
    cross,
    dot,
    multiply,
    normalized,
    rotate,
)
from mlagents_sim.articulated.rows import Bodies, Row

X, Y, Z = np.eye(3)
NEWTON_STEPS = 16
"""Steps of Newton's method to the nearest point of an ellipse, which converges in fewer."""


def joint_rows(
    model: Model,
    joint: int,
    bodies: Bodies,
    *,
    center: Array,
    rotation: Array,
    target: Array,
    max_force: Array,
    step_s: float,
) -> list[Row]:
    """Return the rows of one joint.

    Args:
        model: Creature.
        joint: Index of the joint, in the order of the solver.
        bodies: State of the bodies.
        center: (B + 1, N, 3) centers of mass.
        rotation: (B + 1, N, 4) rotations of the bodies.
        target: (N, 4) rotation that the drive pulls to, in the frame of the joint.
        max_force: (N,) largest force of the drive.
        step_s: Length of a step.
    """
    child, parent = int(model.child[joint]), int(model.parent[joint])
    motions = model.motions[joint]
    child_frame = multiply(rotation[child], model.child_frame[joint])
    parent_frame = multiply(rotation[parent], model.parent_frame[joint])
    parent_frame = _near(child_frame, parent_frame)
    relative = multiply(conjugate(child_frame), parent_frame)

    def angular(direction: Array, error: Array) -> Row:
        return Row(child, parent, np.zeros_like(direction), direction, direction, error)

    drives = []
    if model.is_driven[joint]:
        spring, damper = model.creature.spring, model.creature.damper
        for axis in _drives(motions, child_frame, relative, target):
            row = angular(*axis)
            row.respond(bodies)
            row.drive(step_s, spring=spring, damper=damper, max_force=max_force)
            drives.append(row)

    # Locked axes and the anchor: each row is made independent of the previous rows, so that solving
    # them in order solves all of them.
    locks = [
        angular(*lock) for lock in _locks(model.motions[joint], child_frame, parent_frame, relative)
    ]
    at_parent = rotate(rotation[parent], model.parent_anchor[joint] - model.center_of_mass[parent])
    at_child = rotate(rotation[child], model.child_anchor[joint] - model.center_of_mass[child])
    meeting_point = center[parent] + at_parent
    gap = center[child] + at_child - meeting_point
    for unit in (X, Y, Z):
        direction = np.broadcast_to(unit, gap.shape)
        arm_of_child = cross(meeting_point - center[child], direction)
        arm_of_parent = cross(at_parent, direction)
        row = Row(child, parent, direction, arm_of_child, arm_of_parent, dot(gap, direction))
        locks.append(row)
    for i, row in enumerate(locks):
        row.respond(bodies)
        for earlier in locks[:i]:
            row.make_independent_of(earlier, bodies)
        row.demand(step_s)

    limits = []
    for direction, room, acts in _limits(model, joint, child_frame, parent_frame, relative):
        row = angular(direction, room)
        row.respond(bodies)
        for lock in locks:
            row.make_independent_of(lock, bodies)
        row.demand_at_least_zero(step_s, acts)
        limits.append(row)
    return [*drives, *locks, *limits]


def rate_directions(child_frame: Array, relative: Array) -> Array:
    """Return (3, N, 3) directions in which spin changes the quaternion's x, y and z.

    With the spins of child and parent, d/dt (x, y, z) = directions · (w_parent - w_child).
    """
    columns = []  # of each axis of the world, the change of (x, y, z)
    for axis in (X, Y, Z):
        own = rotate(conjugate(child_frame), np.broadcast_to(axis, (len(relative), 3)))
        columns.append(0.5 * (relative[:, 3:] * own + cross(own, relative[:, :3])))
    return np.stack(columns, axis=-1).transpose(1, 0, 2)


def _near(reference: Array, rotation: Array) -> Array:
    """Return each rotation as the one of its two quaternions that is nearer to a reference."""
    is_far = dot(reference, rotation) < 0.0
    return np.where(is_far[:, None], -rotation, rotation)


def _drives(
    motions: Array, child_frame: Array, relative: Array, target: Array
) -> list[tuple[Array, Array]]:
    """Return the direction and the error of the drive of each axis that is not locked."""
    target = _near(relative, target)
    remaining = multiply(conjugate(target), relative)
    directions = rate_directions(multiply(child_frame, target), remaining)
    return [(directions[axis], -remaining[:, axis]) for axis in range(3) if motions[axis] != LOCKED]


def _locks(
    motions: Array, child_frame: Array, parent_frame: Array, relative: Array
) -> list[tuple[Array, Array]]:
    """Return the direction and the error of each locked axis."""
    locked = [axis for axis in range(3) if motions[axis] == LOCKED]
    if locked in ([1], [2]):
        # The parent's X axis must stay in the plane in which the free swing tilts it.
        across = rotate(child_frame, np.broadcast_to(Z if locked == [1] else Y, (len(relative), 3)))
        along = rotate(parent_frame, np.broadcast_to(X, (len(relative), 3)))
        return [(cross(across, along), dot(across, along))]
    directions = rate_directions(child_frame, relative)
    return [(directions[axis], -relative[:, axis]) for axis in locked]


def _limits(
    model: Model, joint: int, child_frame: Array, parent_frame: Array, relative: Array
) -> list[tuple[Array, Array, BoolArray]]:
    """Return the direction, the remaining room and the activity mask of each limit."""
    _, about_y, about_z = model.motions[joint]
    low, high, largest_y, largest_z = model.limits[joint]
    swing, twist = split(relative)
    limits = []
    if about_y == LIMITED and about_z == LIMITED:
        direction, room, acts = cone_limit(swing, largest_y, largest_z)
        limits.append((rotate(child_frame, direction), room, acts))
    elif about_y == LIMITED:
        direction = rotate(child_frame, np.broadcast_to(Y, (len(swing), 3)))
        limits += _angle_limits(swing[:, 1], swing[:, 3], -largest_y, largest_y, direction)
    elif about_z == LIMITED:
        direction = rotate(child_frame, np.broadcast_to(Z, (len(swing), 3)))
        limits += _angle_limits(swing[:, 2], swing[:, 3], -largest_z, largest_z, direction)
    if model.motions[joint, 0] == LIMITED:
        direction = rotate(parent_frame, np.broadcast_to(X, (len(swing), 3)))
        limits += _angle_limits(twist[:, 0], twist[:, 3], low, high, direction)
    return limits


def split(relative: Array) -> tuple[Array, Array]:
    """Split rotations into a swing, which tilts the X axis, and a twist about it."""
    length = np.sqrt(relative[:, 0] ** 2 + relative[:, 3] ** 2)
    is_defined = length > 0.0
    scale = np.where(is_defined, 1.0 / np.where(is_defined, length, 1.0), 0.0)
    twist = np.zeros_like(relative)
    twist[:, 0] = relative[:, 0] * scale
    twist[:, 3] = np.where(is_defined, relative[:, 3] * scale, 1.0)
    return multiply(relative, conjugate(twist)), twist


def _angle_limits(
    sine: Array, cosine: Array, low: float, high: float, direction: Array
) -> list[tuple[Array, Array, BoolArray]]:
    """Return both limits of an angle, given the sine and cosine of its half.

    Angles are measured by the tangent of their quarter, times 4.
    """
    tangent = sine / (1.0 + cosine)
    pad = quarter_tangent(min(LIMIT_PAD_RAD, 0.49 * (high - low)))
    lowest, highest = quarter_tangent(low), quarter_tangent(high)
    return [
        (-direction, 4.0 * (tangent - lowest), tangent < lowest + pad),
        (direction, 4.0 * (highest - tangent), tangent > highest - pad),
    ]


def cone_limit(swing: Array, largest_y: float, largest_z: float) -> tuple[Array, Array, BoolArray]:
    """Return the limit of a cone: direction in the child's frame, room, and whether it acts.

    A swing is represented by a point: the tangent of a quarter of its angle, in the direction in
    which it tilts the X axis. The base of the cone is an ellipse of such points. The limit acts
    along the outward normal of the cone at the nearest point of the ellipse.
    """
    # A turn about Z tilts the X axis to Y; a turn about Y tilts it against Z.
    radius_y, radius_z = quarter_tangent(largest_z), quarter_tangent(largest_y)
    tilt_y = swing[:, 2] / (1.0 + swing[:, 3])
    tilt_z = -swing[:, 1] / (1.0 + swing[:, 3])
    pad = quarter_tangent(LIMIT_PAD_RAD)
    far_y, far_z = np.abs(tilt_y), np.abs(tilt_z)
    padded_y, padded_z = ((far + pad) / (1.0 - far * pad) for far in (far_y, far_z))
    acts = (padded_y / radius_y) ** 2 + (padded_z / radius_z) ** 2 > 1.0
    # If the limit does not act, any point outside will do.
    tilt_y, tilt_z = np.where(acts, tilt_y, radius_y), np.where(acts, tilt_z, 0.0)
    far_y, far_z = np.abs(tilt_y), np.abs(tilt_z)

    # Nearest point of the ellipse, p = r² tilt / (r² + t) in each direction, with t so that p lies
    # on the ellipse.
    square_y, square_z = radius_y**2, radius_z**2
    t = np.maximum(radius_y * far_y - square_y, radius_z * far_z - square_z)
    t = np.maximum(t, 1e-9 - min(square_y, square_z))
    for _ in range(NEWTON_STEPS):
        from_y, from_z = radius_y * far_y / (t + square_y), radius_z * far_z / (t + square_z)
        value = from_y**2 + from_z**2 - 1.0
        slope = -2.0 * (from_y**2 / (t + square_y) + from_z**2 / (t + square_z))
        t = t - np.where(slope < 0.0, value / np.where(slope < 0.0, slope, -1.0), 0.0)
    y = np.copysign(square_y * far_y / (t + square_y), tilt_y)
    z = np.copysign(square_z * far_z / (t + square_z), tilt_z)

    # Normal of the ellipse there, and two directions of the X axis: to this point of the cone, and
    # out of the cone.
    normal = normalized(np.stack([y / square_y, z / square_z], axis=1))
    square = y * y + z * z
    scale = 1.0 / (1.0 + square)
    tilt = 4.0 * (1.0 - square) * scale**2
    along = np.stack([1.0 - 8.0 * square * scale**2, tilt * y, tilt * z], axis=1)
    growth = 2.0 * (y * normal[:, 0] + z * normal[:, 1])
    change = -4.0 * growth * scale**3 * (3.0 - square)
    outward = normalized(
        np.stack(
            [
                -8.0 * growth * scale**3 * (1.0 - square),
                tilt * normal[:, 0] + change * y,
                tilt * normal[:, 1] + change * z,
            ],
            axis=1,
        )
    )
    tilted = rotate(swing, np.broadcast_to(X, along.shape))
    return cross(along, outward), -dot(outward, tilted), acts


def no_target(n: int) -> Array:
    """Return (n, 4) targets of drives that hold the start pose."""
    return np.tile(IDENTITY, (n, 1))
