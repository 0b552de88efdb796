"""Where two boxes that stand upright touch, seen from above.

Arrays are those of `plane`.
"""

import numpy as np

from mlagents_sim.contact import CONTACT_OFFSET_M
from mlagents_sim.plane import Array, Indices, X, Z, in_frame

_CORNERS = np.array([[-1.0, 1.0, 1.0, -1.0], [-1.0, -1.0, 1.0, 1.0]])


def corners_of(heading: Array, half: Array) -> Array:
    """Return (2, 4, ...) corners of boxes from their centers."""
    shape = (4, *[1] * (heading.ndim - 1))
    right, ahead = (
        sign.reshape(shape) * length for sign, length in zip(_CORNERS, half, strict=True)
    )
    x, z = heading[X], heading[Z]
    return np.array([x * ahead + z * right, z * ahead - x * right])


def faces_that_meet(
    apart: Array, heading: Array, half: Array
) -> tuple[Indices, Array, Array, Array]:
    """Return which of n pairs of boxes touch, and their two points of contact.

    A face of one box meets an edge of the other: of the four directions that faces look in, the
    one with the widest gap or the least overlap.

    Args:
        apart: (2, n) ways from the centers of first boxes to those of second boxes.
        heading: (2, 2 boxes, n) unit vectors.
        half: (2, 2 boxes, n) half lengths to the right and ahead.

    Returns:
        (m,) pairs that touch; (2, m) unit vectors from the first to the second box; (2, 2, 2, m)
        places of two points of contact from either center: of both boxes, x and z, both points;
        (2, m) gaps at these points, infinite for no contact.
    """
    seen = in_frame(heading, apart[:, None] * np.array([[1.0], [-1.0]]))
    turned = np.abs(in_frame(heading[:, 0], heading[:, 1]))
    other = half[:, ::-1]
    gaps = np.abs(seen) - half
    gaps[X] -= turned[Z] * other[X] + turned[X] * other[Z]
    gaps[Z] -= turned[X] * other[X] + turned[Z] * other[Z]
    flat = gaps.reshape(4, -1)  # right of a, right of b, ahead of a, ahead of b
    widest = flat.argmax(axis=0)
    at = np.arange(apart.shape[1])
    (touching,) = (flat[widest, at] < CONTACT_OFFSET_M).nonzero()
    widest, at = widest[touching], np.arange(len(touching))
    apart = apart[:, touching]
    heading, half, seen = heading[..., touching], half[..., touching], seen[..., touching]
    axis, of_b = widest // 2, widest % 2
    facing = heading[:, of_b, at]
    right = np.array([facing[Z], -facing[X]])
    side = np.copysign(1.0, seen[axis, of_b, at])
    out = np.where(axis == Z, facing, right) * side  # from the box of the face to the other
    aside = np.array([-out[Z], out[X]])
    depth, width = half[axis, of_b, at], half[1 - axis, of_b, at]
    # The other box's corners, from the middle of the box with the face.
    to_other = apart * np.where(of_b == 0, 1.0, -1.0)
    corners = corners_of(heading[:, 1 - of_b, at], half[:, 1 - of_b, at])  # (2, 4, n)
    inward = corners[X] * out[X] + corners[Z] * out[Z]
    edge = np.argsort(inward, axis=0, kind="stable")[:2]  # the corners nearest to the face
    ends = corners[:, edge, at] + to_other[:, None]
    along = ends[X] * aside[X] + ends[Z] * aside[Z]
    away = ends[X] * out[X] + ends[Z] * out[Z]
    # The part of the edge before the face.
    span = along[1] - along[0]
    span = np.where(np.abs(span) < 1e-9, 1e-9, span)
    cut = np.clip(along, -width, width)
    part = np.clip((cut - along[0]) / span, 0.0, 1.0)
    away = away[0] + part * (away[1] - away[0])
    along = along[0] + part * span
    gap = away - depth
    # Where both ends were cut to the same point there is one contact.
    gap[1] = np.where(np.abs(along[1] - along[0]) < 1e-6, np.inf, gap[1])
    point = out[:, None] * away + aside[:, None] * along  # from the box of the face
    theirs = point - to_other[:, None]
    arms = np.where(of_b == 0, np.array([point, theirs]), np.array([theirs, point]))
    normal = out * np.where(of_b == 0, 1.0, -1.0)
    return touching, normal, arms, gap
