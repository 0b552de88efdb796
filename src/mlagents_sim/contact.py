"""Contacts of bodies that slide on a floor, as Unity's physics engine computes them.

`contact.h` in `mlagents_native/source` has the same constants.
"""

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim.plane import Array, Indices

STEP_S = 0.02
"""Simulated seconds of a step."""
FRICTION = 0.6
"""Default friction of a surface. The friction between two surfaces is the mean of both."""
CONTACT_OFFSET_M = 0.02
"""Gap between two surfaces at which they begin to touch."""
CORRECTION = 0.8
"""Fraction of a gap or an overlap that one step closes."""
MAX_PUSH_OUT_M_S = 10.0
"""Largest speed out of an overlap."""


def kept(drag: ArrayLike) -> Array:
    """Return the fraction of a velocity that remains after a step with this drag per second."""
    return np.maximum(1.0 - np.multiply(drag, STEP_S), 0.0)


def least_speeds(gap: Array) -> Array:
    """Return (2, ...) least separation speeds of surfaces: in this step, and after it."""
    in_step = np.minimum(gap * (-CORRECTION / STEP_S), MAX_PUSH_OUT_M_S)
    speeds: Array = np.array([in_step, np.minimum(in_step, 0.0)])
    return speeds


def rounds(area: Indices) -> list[Indices]:
    """Split n contacts into rounds, each with at most one contact of an area.

    Args:
        area: (n,) areas of the contacts; n is at least 1.

    Returns:
        Indices of the contacts of each round. A contact is in a later round than contacts of its
        area before it.
    """
    count = np.bincount(area)
    order = np.argsort(area, kind="stable")
    rank = np.empty(len(area), np.intp)
    rank[order] = np.arange(len(area)) - (np.cumsum(count) - count)[area[order]]
    return [(rank == k).nonzero()[0] for k in range(int(count.max()))]
