"""What agents sense, encoded as Unity's sensors do: rays and grids.

Source: example environments, sections 1.4 and 1.5.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from mlagents_envs.base_env import (
    FloatArray,
    ObservationSpec,
)
from mlagents_sim.planar import Array, Indices, Mask, X, Z


class RaySensor:
    """Rays on either side of where an agent looks, and what each of them meets first.

    A ray's part of the observation is a 1 for the tag that was hit, of T, then a 1 if there was
    nothing, then the distance as a fraction of the length, 1 for nothing.

    Args:
        per_side: Rays to the left, and as many to the right; there is one more straight ahead.
        max_degrees: Of the outermost from the one ahead.
        length: Of each ray, in m.
        n_tags: T.

    Attributes:
        directions: (2, R) unit vectors to the right of the agent and ahead, in the order of the
            observation: ahead, then right and left by turns, ever farther out.
        size: Numbers in an observation.
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
        self._length = length
        self._n_tags = n_tags

    def spec(self, name: str) -> ObservationSpec:
        """Describe the observation."""
        return ObservationSpec.vector(self.size, name)

    def observe(self, travels: Sequence[Array], tags: Sequence[int]) -> FloatArray:
        """Encode how far it is to things, each (R, N), of these tags: (N, size).

        The rays may be those of several such sensors, one after the other; so is the result.

        Args:
            travels: Along each ray; of things equally far, the first is seen.
            tags: All different.
        """
        nearest = reduce(np.minimum, travels)
        n_rays, n = nearest.shape
        seen = np.zeros((self._n_tags + 2, n_rays, n), np.float32)
        is_met = nearest <= self._length
        seen[-2] = ~is_met
        seen[-1] = np.minimum(nearest / self._length, 1.0)
        for travel, tag in zip(travels, tags, strict=True):
            is_this = is_met & (travel == nearest)
            seen[tag] = is_this
            is_met ^= is_this
        return seen.transpose().reshape(n, -1)


class Marks(NamedTuple):
    """Which cells of which grids something covers; several things may cover the same.

    Attributes:
        cell: (n,) indices into (agents, columns, rows), flat, in the order of the observation.
        tag: (n,) of what is there.
        distance: (n,) from the agent to the nearest point of that, in m.
    """

    cell: Indices
    tag: Indices
    distance: Array


class GridSensor:
    """A square grid that an agent carries around, and the tag of the nearest thing in each cell.

    Things are seen from the agent: `place` is how far to its right and how far ahead they are.

    Args:
        n_cells: Along either side.
        cell_m: Length of a cell.
        n_tags: Number of tags, of one channel each.

    Attributes:
        reach_m: How far to the right and ahead the grid goes.
    """

    def __init__(self, *, n_cells: int, cell_m: float, n_tags: int) -> None:
        self.reach_m = n_cells * cell_m / 2
        self._n_cells, self._cell_m, self._n_tags = n_cells, cell_m, n_tags
        self._shape = (n_tags, n_cells, n_cells)

    def spec(self, name: str) -> ObservationSpec:
        """Describe the observation."""
        return ObservationSpec.image(self._shape, name, np.float32)

    def discs(
        self, agent: Indices, place: Array, radius: Array, tag: Indices, distance: Array
    ) -> Marks:
        """Mark what n discs cover: agent, radius, tag and distance are (n,), place is (2, n)."""
        cells, offset = self._around(place, radius)
        aside = np.maximum(np.abs(offset) - self._cell_m / 2, 0.0)
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
        """Mark what n squares cover: half their edges are (n,), headings as seen are (2, n)."""
        # How far a turned square reaches, by half its edge.
        spread = np.abs(heading[X]) + np.abs(heading[Z])
        cells, offset = self._around(place, half * spread)
        by_cell = np.abs(offset) < (half * spread + self._cell_m / 2)[:, None]
        is_covered = by_cell[X, :, :, None] & by_cell[Z, :, None]
        limit = (half + self._cell_m / 2 * spread)[:, None, None]
        sine, cosine = heading[..., None]
        right, ahead = offset
        is_covered &= np.abs((right * cosine)[:, :, None] - (ahead * sine)[:, None]) < limit
        is_covered &= np.abs((right * sine)[:, :, None] + (ahead * cosine)[:, None]) < limit
        return self._marks(agent, cells, is_covered, tag, distance)

    def walls(self, normal: Array, distance: Array, thickness: float, tag: int) -> Marks:
        """Mark what endless walls cover that are so far away in the direction of their normals.

        Only the walls that reach into a grid are looked at.

        Args:
            normal: (2, walls, agents) unit vectors.
            distance: (walls, agents) in m.
            thickness: Of them, in m.
            tag: Of them.
        """
        spread = np.abs(normal[X]) + np.abs(normal[Z])
        wall, agent = (distance < self.reach_m * spread).nonzero()
        normal, distance, spread = (value[..., wall, agent] for value in (normal, distance, spread))
        ahead = (np.arange(self._n_cells) - (self._n_cells - 1) / 2) * self._cell_m
        right = -ahead  # as columns run from right to left
        to_middle = (distance + thickness / 2)[:, None]
        across = normal[X, :, None] * right - to_middle  # (n, columns)
        depth = across[:, :, None] + (normal[Z, :, None] * ahead)[:, None]
        reach = (thickness + spread * self._cell_m) / 2
        is_covered = np.abs(depth, out=depth) < reach[:, None, None]
        wall, at = np.divmod(np.flatnonzero(is_covered), self._n_cells**2)
        cell = agent[wall] * self._n_cells**2 + at
        return Marks(cell, np.full(len(cell), tag), distance[wall])

    def observe(self, n_agents: int, marks: Sequence[Marks]) -> FloatArray:
        """Encode all that was marked: (n_agents, n_tags, n_cells, n_cells).

        Rows run from what is on the right to what is on the left, columns from back to ahead.
        """
        cell = np.concatenate([m.cell for m in marks])
        tag = np.concatenate([m.tag for m in marks])
        # The nearest is written last, and stays.
        order = np.argsort(-np.concatenate([m.distance for m in marks]), kind="stable")
        n_cells = self._n_cells**2
        nearest = np.empty(n_agents * n_cells, np.int8)  # only read where it is written
        nearest[cell[order]] = tag[order]
        agent, at = np.divmod(cell, n_cells)
        seen = np.zeros((n_agents, *self._shape), np.float32)
        seen.reshape(-1)[(agent * self._n_tags + nearest[cell]) * n_cells + at] = 1.0
        return seen

    def _around(self, place: Array, reach: Array) -> tuple[Indices, Array]:
        """Return (2, n, W) which columns and rows n things could cover, and where those are.

        The second is (2, n, W): how far the middles of the cells are from the things.
        """
        lowest = np.floor((place - reach + self.reach_m) / self._cell_m)
        width = int(np.ceil(2 * reach.max(initial=0.0) / self._cell_m)) + 1
        cells = lowest[:, :, None] + np.arange(width)
        middles = (cells - (self._n_cells - 1) / 2) * self._cell_m
        return cells.astype(np.intp), middles - place[:, :, None]

    def _marks(
        self, agent: Indices, cells: Indices, is_covered: Mask, tag: Indices, distance: Array
    ) -> Marks:
        """Mark which of W by W cells, (n, W, W), n things cover, if they are in the grid."""
        column_is_inside, row_is_inside = (cells >= 0) & (cells < self._n_cells)
        is_covered = is_covered & column_is_inside[:, :, None] & row_is_inside[:, None]
        thing = is_covered.nonzero()[0]
        column, row = cells
        first = (agent[:, None] * self._n_cells + self._n_cells - 1 - column) * self._n_cells
        cell = (first[:, :, None] + row[:, None])[is_covered]
        return Marks(cell, tag[thing], distance[thing])
