"""Pictures of many areas from above, with one tile for each area."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_sim.planar import Array, X, Z, in_frame

Colour = tuple[int, int, int]

FLOOR: Colour = (236, 240, 245)
WALL: Colour = (120, 132, 148)
AGENT: Colour = (37, 99, 195)
FACE: Colour = (16, 38, 92)
BLOCK: Colour = (230, 140, 40)
GREEN: Colour = (46, 160, 67)
RED: Colour = (205, 60, 55)
GREY: Colour = (196, 206, 218)
INK: Colour = (30, 34, 40)
PURPLE: Colour = (130, 70, 170)
GRASS: Colour = (190, 220, 190)

_SIZE = 720, 960
_LEAST_TILE = 16

_DIGITS = np.array(
    [
        [0b111, 0b101, 0b101, 0b101, 0b111],
        [0b010, 0b110, 0b010, 0b010, 0b111],
        [0b111, 0b001, 0b111, 0b100, 0b111],
        [0b111, 0b001, 0b111, 0b001, 0b111],
        [0b101, 0b101, 0b111, 0b001, 0b001],
        [0b111, 0b100, 0b111, 0b001, 0b111],
        [0b111, 0b100, 0b111, 0b101, 0b111],
        [0b111, 0b001, 0b010, 0b010, 0b010],
        [0b111, 0b101, 0b111, 0b101, 0b111],
        [0b111, 0b101, 0b111, 0b001, 0b111],
    ]
)
"""Rows of three pixels for 0 to 9."""


class TopView:
    """A canvas of N tiles, together about (720, 960, 3). All tiles show the same rectangle.

    Args:
        n_tiles: Number of tiles, N.
        low: (x, z) of the lower left corner, in m.
        high: (x, z) of the upper right corner, in m.
        background: Colour of the empty tiles.
    """

    def __init__(
        self,
        n_tiles: int,
        low: Sequence[float],
        high: Sequence[float],
        *,
        background: Colour = FLOOR,
    ) -> None:
        self._low = low
        width_m, height_m = high[X] - low[X], high[Z] - low[Z]

        def fitting(columns: int) -> float:
            """Return the pixels per metre for this number of columns."""
            rows = math.ceil(n_tiles / columns)
            return min(_SIZE[1] / columns / width_m, _SIZE[0] / rows / height_m)

        self._columns = max(range(1, n_tiles + 1), key=fitting)
        rows = math.ceil(n_tiles / self._columns)
        scale = fitting(self._columns)
        self._scale = max(scale, _LEAST_TILE / min(width_m, height_m))  # pixels per metre
        width, height = round(width_m * self._scale), round(height_m * self._scale)
        self._tiles = np.full((rows * self._columns, height, width, 3), background, np.uint8)
        self._n = n_tiles
        x = low[X] + (np.arange(width) + 0.5) / self._scale
        z = low[Z] + (np.arange(height)[::-1] + 0.5) / self._scale
        self._pixels = np.stack(np.broadcast_arrays(x, z[:, None]))[:, None]  # (2, 1, H, W)

    def box(
        self, centre: ArrayLike, half: ArrayLike, colour: Colour, heading: Array | None = None
    ) -> None:
        """Fill boxes.

        Args:
            centre: (2, N) centres, or (2,) for the same place in all tiles.
            half: (2, N) or (2,) half lengths of the boxes.
            colour: Colour of all boxes.
            heading: (2, N) unit vectors; by default the boxes are not rotated.
        """
        offset = self._pixels - _per_tile(centre)
        if heading is not None:
            offset = in_frame(_per_tile(heading), offset)
        self._fill((np.abs(offset) <= _per_tile(half)).all(axis=0), colour)

    def disc(self, centre: ArrayLike, radius: float, colour: Colour) -> None:
        """Fill discs around (2, N) or (2,) centres; discs at NaN are not drawn."""
        self._fill(np.hypot(*(self._pixels - _per_tile(centre))) <= radius, colour)

    def agent(
        self, centre: Array, heading: Array, half: float | Array, colour: Colour = AGENT
    ) -> None:
        """Draw squares with a dark face in front; `half` is half an edge, in m, or (N,) of them."""
        self.box(centre, np.array([half, half]), colour, heading)
        face = np.multiply(half, 0.3)
        self.box(centre + heading * half * 0.7, np.array([half, face]), FACE, heading)

    def number(self, tile: int, centre: Array, value: int) -> None:
        """Write a number into one tile."""
        bits = np.concatenate(
            [
                np.pad(_DIGITS[int(digit)][:, None] >> np.array([2, 1, 0]) & 1, ((0, 0), (0, 1)))
                for digit in str(value)
            ],
            axis=1,
        )[:, :-1].astype(np.bool_)
        height, width = bits.shape
        canvas = self._tiles[tile]
        left, bottom = ((centre - self._low) * self._scale).astype(int)
        top = canvas.shape[0] - bottom - height // 2
        left -= width // 2
        if 0 <= top <= canvas.shape[0] - height and 0 <= left <= canvas.shape[1] - width:
            canvas[top : top + height, left : left + width][bits] = INK

    def picture(self) -> NDArray[np.uint8]:
        """Return all tiles in rows, separated by lines."""
        self._tiles[:, 0] = self._tiles[:, :, 0] = INK
        _, height, width, _ = self._tiles.shape
        tiles = self._tiles.reshape(-1, self._columns, height, width, 3).swapaxes(1, 2)
        return tiles.reshape(-1, self._columns * width, 3)

    def _fill(self, where: NDArray[np.bool_] | np.bool_, colour: Colour) -> None:
        tiles = self._tiles[: self._n]
        tiles[np.broadcast_to(where, tiles.shape[:3])] = colour


def _per_tile(value: ArrayLike) -> Array:
    """Reshape (2, N) to (2, N, 1, 1), and (2,) to (2, 1, 1, 1)."""
    return np.reshape(np.asarray(value, np.float64), (2, -1, 1, 1))
