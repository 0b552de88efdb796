"""Algebra of quaternions and vectors, for arrays of any shape whose last axis is the value.

Quaternions are x, y, z, w. Formulas use the raw numbers of Unity's left-handed frame, like Unity's
own formulas, so no conversion mirrors axes.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

IDENTITY = np.array([0.0, 0.0, 0.0, 1.0])


def dot(a: Array, b: Array) -> Array:
    """Return the products of vectors (or quaternions), without their last axis."""
    products: Array = np.einsum("...k,...k->...", a, b)
    return products


def cross(a: Array, b: Array) -> Array:
    """Return the cross products of vectors."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    x = ay * bz - az * by
    product = np.empty((*x.shape, 3))
    product[..., 0] = x
    product[..., 1] = az * bx - ax * bz
    product[..., 2] = ax * by - ay * bx
    return product


def multiply(a: Array, b: Array) -> Array:
    """Return the quaternions that rotate by `b` and then by `a`."""
    ax, ay, az, aw = a[..., 0], a[..., 1], a[..., 2], a[..., 3]
    bx, by, bz, bw = b[..., 0], b[..., 1], b[..., 2], b[..., 3]
    x = aw * bx + bw * ax + (ay * bz - az * by)
    product = np.empty((*x.shape, 4))
    product[..., 0] = x
    product[..., 1] = aw * by + bw * ay + (az * bx - ax * bz)
    product[..., 2] = aw * bz + bw * az + (ax * by - ay * bx)
    product[..., 3] = aw * bw - (ax * bx + ay * by + az * bz)
    return product


def conjugate(q: Array) -> Array:
    """Return the inverse rotations."""
    opposite: Array = q * np.array([-1.0, -1.0, -1.0, 1.0])
    return opposite


def rotate(q: Array, v: Array) -> Array:
    """Return vectors rotated by quaternions."""
    across = 2.0 * cross(q[..., :3], v)
    turned: Array = v + q[..., 3:] * across + cross(q[..., :3], across)
    return turned


def normalized(values: Array) -> Array:
    """Return vectors or quaternions of length 1."""
    unit: Array = values / np.sqrt(dot(values, values))[..., None]
    return unit


def from_euler(degrees: ArrayLike) -> Array:
    """Return the quaternions of Unity's Euler angles x, y, z: about z, then x, then y."""
    half = np.asarray(degrees, np.float64) * (np.pi / 360.0)
    sine, cosine = np.sin(half), np.cos(half)
    (sx, sy, sz), (cx, cy, cz) = np.moveaxis(sine, -1, 0), np.moveaxis(cosine, -1, 0)
    turn = np.empty((*half.shape[:-1], 4))
    turn[..., 0] = cy * sx * cz + sy * cx * sz
    turn[..., 1] = sy * cx * cz - cy * sx * sz
    turn[..., 2] = cy * cx * sz - sy * sx * cz
    turn[..., 3] = cy * cx * cz + sy * sx * sz
    return turn


def from_axes(x: ArrayLike, y: ArrayLike) -> Array:
    """Return the quaternion that takes the x axis to `x` and the y axis as near to `y` as possible.

    Args:
        x: (3,) direction.
        y: (3,) direction that is not parallel to it.
    """
    first = normalized(np.asarray(x, np.float64))
    third = normalized(cross(first, np.asarray(y, np.float64)))
    m = np.stack([first, cross(third, first), third], axis=1)  # axes in columns
    # The products of one component of the quaternion with all four, times 4, in each row.
    a, b, c = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = m + m.T - np.diag(np.diag(m))
    products = np.array(
        [
            [1 + xx - yy - zz, xy, xz, a],
            [xy, 1 - xx + yy - zz, yz, b],
            [xz, yz, 1 - xx - yy + zz, c],
            [a, b, c, 1 + xx + yy + zz],
        ]
    )
    return normalized(products[np.argmax(np.diag(products))])
