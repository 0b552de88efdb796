"""Vectors and boxes on a plane that is seen from above.

An array of vectors starts with an axis of two, x to the right and z ahead, and ends with an axis of
N areas, so that one operation serves all of them. A heading is the unit vector that a body faces,
(sin yaw, cos yaw). Its right is (cos yaw, -sin yaw).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

X, Z = 0, 1


def number(value: ArrayLike) -> Array:
    """Return a number as a 0-d array, which NumPy processes faster than a Python number."""
    return np.array(value, np.float64)


def turn(heading: Array, sine: Array, cosine: Array) -> None:
    """Turn (2, ..., N) headings, in place, to the right by an angle."""
    x, z = heading[X], heading[Z]
    turned_x = x * cosine + z * sine
    np.subtract(z * cosine, x * sine, out=z)
    x[:] = turned_x


def along(heading: Array, forward: ArrayLike, right: ArrayLike) -> Array:
    """Return (2, ..., N) vectors with these components forward and to the right of a heading."""
    x, z = heading[X], heading[Z]
    return np.array([x * forward + z * right, z * forward - x * right])


def in_frame(heading: Array, vector: Array) -> Array:
    """Return (2, ..., N) components of vectors to the right of a heading, and forward."""
    x, z, v_x, v_z = heading[X], heading[Z], vector[X], vector[Z]
    return np.array([v_x * z - v_z * x, v_x * x + v_z * z])


def dot(one: Array, other: Array) -> Array:
    """Return the scalar products of (2, ...) vectors."""
    product: Array = one[X] * other[X] + one[Z] * other[Z]
    return product


def length(vector: Array) -> Array:
    """Return the lengths of vectors; `vector` is (2, ...), or more rows that do not count."""
    root: Array = np.sqrt(dot(vector, vector))
    return root


def gap_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return distances from boxes to points, 0 inside. All arguments are (2, ...), broadcast."""
    beyond = np.maximum(np.abs(in_frame(heading, point - position)) - half, 0.0)
    gap: Array = np.sqrt(dot(beyond, beyond))
    return gap


def way_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return vectors from the nearest points of boxes to points. All are (2, ...), broadcast."""
    seen = in_frame(heading, point - position)
    right, ahead = seen - np.minimum(np.maximum(seen, -half), half)
    return along(heading, ahead, right)


def gap_between_boxes(
    position: Array,
    heading: Array,
    half: Array,
    other: Array,
    other_heading: Array,
    other_half: Array,
) -> Array:
    """Return the widest gaps between pairs of boxes along their faces; below 0 if they overlap.

    All arguments are (2, ...) and broadcast: centers, unit vectors and half lengths of one box,
    then those of the other.
    """
    apart = other - position
    turned = np.abs(in_frame(heading, other_heading))
    gaps = []
    for seen, mine, theirs in (
        (in_frame(heading, apart), half, other_half),
        (in_frame(other_heading, apart), other_half, half),
    ):
        gaps.append(np.abs(seen[X]) - mine[X] - turned[Z] * theirs[X] - turned[X] * theirs[Z])
        gaps.append(np.abs(seen[Z]) - mine[Z] - turned[X] * theirs[X] - turned[Z] * theirs[Z])
    widest: Array = np.maximum.reduce(np.broadcast_arrays(*gaps))
    return widest
