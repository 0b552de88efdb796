"""Walls around and among discs, in many areas at once. Arrays are those of `circles`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mlagents_sim.contact import CONTACT_OFFSET_M
from mlagents_sim.plane import Array, Indices, X, Z, along, in_frame, length


class Wall(NamedTuple):
    """A box that never moves, seen from above.

    Attributes:
        center: Middle, (x, z), in m.
        half: Half lengths to the right and ahead, in m.
        yaw: Angle by which the box is turned to the right, in rad.
    """

    center: tuple[float, float]
    half: tuple[float, float]
    yaw: float = 0.0


class Walls(NamedTuple):
    """Walls of an area as arrays.

    Attributes:
        center: (2, W, 1) middles, in m.
        half: (2, W, 1) half lengths to the right and ahead, in m.
        heading: (2, W, 1) unit vectors.
        clear: (2, 1, 1) half lengths, in m, of the part around the middle that has no walls.
    """

    center: Array
    half: Array
    heading: Array
    clear: Array

    @classmethod
    def of(cls, walls: Sequence[Wall], clear: tuple[float, float]) -> "Walls":
        """Return the arrays of some walls.

        Args:
            walls: Walls of an area.
            clear: Half lengths of the part without walls; see `Walls`.
        """
        yaw = np.array([wall.yaw for wall in walls])
        return cls(
            np.array([wall.center for wall in walls]).reshape(-1, 2).T[..., None].copy(),
            np.array([wall.half for wall in walls]).reshape(-1, 2).T[..., None].copy(),
            np.array([np.sin(yaw), np.cos(yaw)])[..., None],
            np.reshape(clear, (2, 1, 1)),
        )

    def near(self, position: Array, radius: Array) -> tuple[Indices, Indices, Array, Array] | None:
        """Return the n contacts of discs with walls; None if there are none.

        Args:
            position: (2, discs, N) centers of the discs, in m.
            radius: (discs,) radii, in m.

        Returns:
            (n,) discs, (n,) areas, (2, n) normals into the walls, and (n,) gaps in m.
        """
        reach = radius[:, None] + CONTACT_OFFSET_M
        is_outside = np.abs(position) + reach > self.clear
        disc, area = (is_outside[X] | is_outside[Z]).nonzero()
        if disc.size == 0:
            return None
        seen = in_frame(self.heading, position[:, disc, area][:, None] - self.center)
        beyond = np.abs(seen) - self.half  # (2, W, n)
        wall, at = ((beyond[X] < reach[disc, 0]) & (beyond[Z] < reach[disc, 0])).nonzero()
        seen, beyond = seen[:, wall, at], beyond[:, wall, at]
        disc, area = disc[at], area[at]
        outside = np.maximum(beyond, 0.0)
        distance = length(outside)
        is_inside = distance == 0.0
        # From the nearest point of the wall, or out of the nearest face.
        face = np.where(beyond[X] > beyond[Z], [[1.0], [0.0]], [[0.0], [1.0]])
        out = np.copysign(np.where(is_inside, face, outside), seen)
        gap = np.where(is_inside, beyond.max(axis=0), distance) - radius[disc]
        (touching,) = (gap < CONTACT_OFFSET_M).nonzero()
        if touching.size == 0:
            return None
        out, wall = out[:, touching], wall[touching]
        out /= length(out)
        into = -along(self.heading[:, wall, 0], out[Z], out[X])
        return disc[touching], area[touching], into, gap[touching]
