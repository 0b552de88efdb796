"""Ray and grid sensors, which encode observations as Unity's sensors do."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    FloatArray,
    ObservationSpec,
)
from mlagents_sim.plane import Array, Indices, Mask, X, Z


class RaySensor:
    """A fan of rays around an agent's heading. Each ray reports the first object that it hits.

    A ray has T + 2 numbers: a one-hot tag of the object that it hit, a 1 if it hit nothing, and the
    distance as a fraction of the length, which is 1 if it hit nothing.

    Args:
        per_side: Number of rays on each side; there is one more straight ahead.
        max_degrees: Angle between the outermost ray and the one ahead.
        length: Length of each ray, in m.
        n_tags: Number of tags, T.

    Attributes:
        directions: (2, R) unit vectors to the right of the agent and ahead, in the order of the
            observation: ahead, then right and left by turns, ever farther out.
        size: Size of an observation.
        length: Length of each ray, in m.
        n_tags: Number of tags, T.
    """

    def __init__(self, *, per_side: int, max_degrees: float, length: float, n_tags: int) -> None:
        aside = np.arange(1, per_side + 1) * (max_degrees / per_side)
        angles = np.concatenate([[0.0], np.stack([aside, -aside], axis=1).ravel()])
        self.directions = np.empty((2, len(angles)))
        self.directions[X], self.directions[Z] = (
            np.sin(np.radians(angles)),
            np.cos(np.radians(angles)),
        )
        self.size = len(angles) * (n_tags + 2)
        self.length = length
        self.n_tags = n_tags

    def spec(self, name: str) -> ObservationSpec:
        """Describe the observation."""
        return ObservationSpec.vector(self.size, name)

    def observe(
        self, travels: Sequence[Array], tags: Sequence[int | NDArray[np.int8]]
    ) -> FloatArray:
        """Return the (N, size) observation of objects with these tags.

        The rays may be those of several such sensors, concatenated. So are their observations in
        the result.

        Args:
            travels: (R, N) distances along each ray, one array for each kind of object. If
                distances are equal, the first kind is observed.
            tags: Tags of these kinds: one for all agents, or (N,) tags by agent.
        """
        nearest = reduce(np.minimum, travels)
        n_rays, n = nearest.shape
        seen = np.zeros((self.n_tags + 2, n_rays, n), np.float32)
        is_met = nearest <= self.length
        seen[-2] = ~is_met
        seen[-1] = np.minimum(nearest / self.length, 1.0)
        for travel, tag in zip(travels, tags, strict=True):
            is_this = is_met & (travel == nearest)
            ray, agent = is_this.nonzero()
            seen[np.broadcast_to(tag, n)[agent], ray, agent] = 1.0
            is_met ^= is_this
        return seen.transpose().reshape(n, -1)


class Marks(NamedTuple):
    """Grid cells that objects cover. Several objects may cover the same cell.

    Attributes:
        cell: (n,) flat indices into (agents, columns, rows), in the order of the observation.
        tag: (n,) tags of the objects.
        distance: (n,) distances from the agent to the nearest points of the objects, in m.
    """

    cell: Indices
    tag: Indices
    distance: Array


class GridSensor:
    """A square grid that moves with an agent and shows the tag of the nearest object in each cell.

    Positions are relative to the agent: `place` is the distance to its right and ahead.

    Args:
        n_cells: Number of cells along each side.
        cell_m: Length of a cell, in m.
        n_tags: Number of tags, with one channel each.

    Attributes:
        reach_m: Extent of the grid to the right and ahead, in m.
        cell_m: Length of a cell, in m.
        shape: Shape of an observation: tags, columns and rows.
    """

    def __init__(self, *, n_cells: int, cell_m: float, n_tags: int) -> None:
        self.reach_m = n_cells * cell_m / 2
        self._n_cells, self.cell_m, self._n_tags = n_cells, cell_m, n_tags
        self.shape = (n_tags, n_cells, n_cells)

    def spec(self, name: str) -> ObservationSpec:
        """Describe the observation."""
        return ObservationSpec.image(self.shape, name, np.float32)

    def discs(
        self, agent: Indices, place: Array, radius: Array, tag: Indices, distance: Array
    ) -> Marks:
        """Mark the cells that n discs cover; `place` is (2, n), the other arguments are (n,)."""
        cells, offset = self._around(place, radius)
        aside = np.maximum(np.abs(offset) - self.cell_m / 2, 0.0)
        across, ahead = aside * aside
        is_covered = across[:, :, None] + ahead[:, None] < np.square(radius)[:, None, None]
        return self._marks(agent, cells, is_covered, tag, distance)

    def squares(
        self,
        agent: Indices,
        place: Array,
        heading: Array,
        half: Array,
        tag: Indices,
        distance: Array,
    ) -> Marks:
        """Mark the cells that n squares cover; headings are (2, n), relative to the agent."""
        # Extent of a turned square, divided by half its edge.
        spread = np.abs(heading[X]) + np.abs(heading[Z])
        cells, offset = self._around(place, half * spread)
        by_cell = np.abs(offset) < (half * spread + self.cell_m / 2)[:, None]
        is_covered = by_cell[X, :, :, None] & by_cell[Z, :, None]
        limit = (half + self.cell_m / 2 * spread)[:, None, None]
        sine, cosine = heading[..., None]
        right, ahead = offset
        is_covered &= np.abs((right * cosine)[:, :, None] - (ahead * sine)[:, None]) < limit
        is_covered &= np.abs((right * sine)[:, :, None] + (ahead * cosine)[:, None]) < limit
        return self._marks(agent, cells, is_covered, tag, distance)

    def walls(self, normal: Array, distance: Array, thickness: float, tag: int) -> Marks:
        """Mark the cells that infinitely long walls cover.

        Args:
            normal: (2, walls, agents) unit vectors.
            distance: (walls, agents) distances in the direction of the normals, in m.
            thickness: Thickness of the walls, in m.
            tag: Tag of the walls.
        """
        spread = np.abs(normal[X]) + np.abs(normal[Z])
        wall, agent = (distance < self.reach_m * spread).nonzero()
        normal, distance, spread = (value[..., wall, agent] for value in (normal, distance, spread))
        ahead = (np.arange(self._n_cells) - (self._n_cells - 1) / 2) * self.cell_m
        right = -ahead  # as columns run from right to left
        to_middle = (distance + thickness / 2)[:, None]
        across = normal[X, :, None] * right - to_middle  # (n, columns)
        depth = across[:, :, None] + (normal[Z, :, None] * ahead)[:, None]
        reach = (thickness + spread * self.cell_m) / 2
        is_covered = np.abs(depth, out=depth) < reach[:, None, None]
        wall, at = np.divmod(np.flatnonzero(is_covered), self._n_cells**2)
        cell = agent[wall] * self._n_cells**2 + at
        return Marks(cell, np.full(len(cell), tag), distance[wall])

    def observe(self, n_agents: int, marks: Sequence[Marks]) -> FloatArray:
        """Return the (n_agents, n_tags, n_cells, n_cells) observation of all marks.

        Rows run from right to left, columns from back to ahead.
        """
        cell = np.concatenate([m.cell for m in marks])
        tag = np.concatenate([m.tag for m in marks])
        # The nearest object is written last.
        order = np.argsort(-np.concatenate([m.distance for m in marks]), kind="stable")
        n_cells = self._n_cells**2
        nearest = np.empty(n_agents * n_cells, np.int8)  # only read where it is written
        nearest[cell[order]] = tag[order]
        agent, at = np.divmod(cell, n_cells)
        seen = np.zeros((n_agents, *self.shape), np.float32)
        seen.reshape(-1)[(agent * self._n_tags + nearest[cell]) * n_cells + at] = 1.0
        return seen

    def _around(self, place: Array, reach: Array) -> tuple[Indices, Array]:
        """Return (2, n, W) columns and rows that n objects could cover, and their offsets.

        The offsets are (2, n, W) vectors from the objects to the middles of the cells.
        """
        lowest = np.floor((place - reach + self.reach_m) / self.cell_m)
        width = int(np.ceil(2 * reach.max(initial=0.0) / self.cell_m)) + 1
        cells = lowest[:, :, None] + np.arange(width)
        middles = (cells - (self._n_cells - 1) / 2) * self.cell_m
        return cells.astype(np.intp), middles - place[:, :, None]

    def _marks(
        self, agent: Indices, cells: Indices, is_covered: Mask, tag: Indices, distance: Array
    ) -> Marks:
        """Mark the cells, of (n, W, W) candidates, that n objects cover inside the grid."""
        column_is_inside, row_is_inside = (cells >= 0) & (cells < self._n_cells)
        is_covered = is_covered & column_is_inside[:, :, None] & row_is_inside[:, None]
        thing = is_covered.nonzero()[0]
        column, row = cells
        first = (agent[:, None] * self._n_cells + self._n_cells - 1 - column) * self._n_cells
        cell = (first[:, :, None] + row[:, None])[is_covered]
        return Marks(cell, tag[thing], distance[thing])
