"""Grids ahead of boxes that push themselves: what these see of other boxes, and of bands around.

    grid = BoxGrid(boxes, sensor, n_members=3, ahead_m=10.0, tags=tags, bands=[Band(...)])
    seen = grid.observe(agents)

Arrays and letters are those of `planar`; M is the number of boxes of an area that see, which are
its last ones. Agent i is box i % M of these, in area i // M.
"""

from collections.abc import Sequence
from ctypes import CDLL, POINTER, c_int64, c_void_p
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import FloatArray
from mlagents_native.library import Part
from mlagents_sim import native_planar
from mlagents_sim.native_planar import Pool, address, require_same
from mlagents_sim.plane import Array, Indices, X, Z, along, gap_to_point, in_frame
from mlagents_sim.sensors import GridSensor, Marks
from mlagents_sim.turning import Box, TurningBoxes


class Band(NamedTuple):
    """A straight thing around an area.

    Attributes:
        way: Direction from the middle towards it, along an axis: (x, z).
        at_m: Distance of its face from the middle.
        thickness_m: Its thickness.
        end_m: Distance to which it extends to either side.
        tag: Its tag.
    """

    way: tuple[float, float]
    at_m: float
    thickness_m: float
    end_m: float
    tag: int


class BoxGrid:
    """Grids that boxes carry ahead of them, and turn.

    Args:
        boxes: Boxes of all areas, all of which are square.
        sensor: Sensor of a grid.
        n_members: Number of boxes of an area that see, M.
        ahead_m: Distance of the middle of a grid from the box.
        tags: Tags of the boxes of an area.
        bands: Straight things around every area. Of equally distant things, the last is seen, and
            bands come after boxes.
        is_native: Whether the native library computes, if it is available.
    """

    def __init__(
        self,
        boxes: TurningBoxes,
        sensor: GridSensor,
        *,
        n_members: int,
        ahead_m: float,
        tags: NDArray[np.integer],
        bands: Sequence[Band],
        is_native: bool = True,
    ) -> None:
        self.functions = BOX_GRID.load() if is_native else None
        self._boxes, self._sensor, self._bands = boxes, sensor, bands
        self._n_members, self._ahead_m, self._tags = n_members, ahead_m, tags.astype(np.int8)
        self._first = len(boxes.spin) - n_members
        self._n_agents = n_members * boxes.spin.shape[1]
        self._pool = Pool()

    @cached_property
    def shared(self) -> native_planar.BoxGrid:
        """The grids, as the native library knows them."""
        bands = [native_planar.Band(*way, *values) for way, *values in self._bands]
        return native_planar.BoxGrid(
            boxes=self._boxes.shared,
            n_members=self._n_members,
            n_cells=self._sensor.shape[1],
            n_tags=self._sensor.shape[0],
            n_bands=len(bands),
            cell_m=self._sensor.cell_m,
            ahead_m=self._ahead_m,
            tags=self._tags,
            bands=native_planar.array_of(native_planar.Band, bands),
        )

    def observe(self, agents: slice | Indices) -> FloatArray:
        """Return the (n, *shape) observations of n agents."""
        if self.functions is not None:
            which = native_planar.indices(agents, self._n_agents)
            n = self._n_agents if which is None else len(which)
            seen = self._pool.empty((n, *self._sensor.shape), np.float32)
            self.functions.box_grid_see(self.shared, address(which), n, address(seen))
            return seen
        area, member = np.divmod(np.arange(self._n_agents)[agents], self._n_members)
        boxes, member = self._boxes, self._first + member
        heading = boxes.heading[:, member, area]
        middle = boxes.position[:, member, area] + self._ahead_m * heading
        marks = [self._see_boxes(area, member, middle, heading)]
        marks += [self._see_band(band, middle, heading) for band in self._bands]
        return self._sensor.observe(len(area), marks)

    def _see_boxes(self, area: Indices, member: Indices, middle: Array, heading: Array) -> Marks:
        """Mark other boxes in grids around (2, n) places with (2, n) headings."""
        boxes, sensor = self._boxes, self._sensor
        seen = in_frame(heading[:, None], boxes.position[:, :, area] - middle[:, None])
        reach = sensor.reach_m + np.sqrt(2.0) * boxes.half[X, :, None]
        is_near = (np.abs(seen) < reach).all(axis=0) & boxes.is_solid[:, area]
        is_near[member, np.arange(len(area))] = False
        body, agent = is_near.nonzero()
        of_area = area[agent]
        turned, half = boxes.heading[:, body, of_area], boxes.half[X, body]
        distance = gap_to_point(boxes.position[:, body, of_area], turned, half, middle[:, agent])
        return sensor.squares(
            agent,
            seen[:, body, agent],
            in_frame(heading[:, agent], turned),
            half,
            self._tags[body],
            distance,
        )

    def _see_band(self, band: Band, middle: Array, heading: Array) -> Marks:
        """Mark a band in grids around (2, n) places with (2, n) headings."""
        sensor, (x, z) = self._sensor, band.way
        n_cells, half = sensor.shape[1], (sensor.shape[1] - 1) / 2
        away = band.at_m - (x * middle[X] + z * middle[Z])  # to the face, below 0 beyond it
        normal = in_frame(heading, np.broadcast_to(np.reshape([x, z], (2, 1)), heading.shape))
        marks = sensor.walls(normal[:, None], away[None], band.thickness_m, band.tag)
        agent, cell = np.divmod(marks.cell, n_cells**2)
        column, row = np.divmod(cell, n_cells)
        right, ahead = (half - column) * sensor.cell_m, (row - half) * sensor.cell_m
        place = middle[:, agent] + along(heading[:, agent], ahead, right)
        inside = (np.abs(place[Z] * x - place[X] * z) < band.end_m).nonzero()[0]
        away = away[agent[inside]]
        distance = np.maximum(np.maximum(away, -away - band.thickness_m), 0.0)
        return Marks(marks.cell[inside], marks.tag[inside], distance)


def _declare(functions: CDLL) -> None:
    functions.box_grid_see.argtypes = [POINTER(native_planar.BoxGrid), c_void_p, c_int64, c_void_p]
    functions.box_grid_see.restype = None


def _check(functions: CDLL) -> None:
    """Compare the grids of some boxes with the reference.

    Raises:
        NativeError: A result differs.
    """
    rng = np.random.default_rng(0)
    square = Box((0.7, 0.7), 1.0)
    boxes = TurningBoxes(10, [square] * 5, low=(-9.0, -9.0), high=(9.0, 9.0), is_native=False)
    boxes.position = rng.uniform(-8.0, 8.0, boxes.position.shape)
    yaw = rng.uniform(0.0, 2.0 * np.pi, boxes.spin.shape)
    boxes.heading = np.array([np.sin(yaw), np.cos(yaw)])
    grid = BoxGrid(
        boxes,
        GridSensor(n_cells=20, cell_m=1.0, n_tags=3),
        n_members=2,
        ahead_m=5.0,
        tags=np.array([0, 0, 0, 1, 1]),
        bands=[Band((-1.0, 0.0), 9.0, 1.0, 10.0, 2), Band((0.0, 1.0), 9.0, 1.0, 10.0, 2)],
        is_native=False,
    )
    expected = grid.observe(slice(None))
    grid.functions = functions
    require_same(grid.observe(slice(None)), expected, what="grids of boxes")


BOX_GRID = Part("box_grid", version=1, declare=_declare, check=_check, otherwise="NumPy")
