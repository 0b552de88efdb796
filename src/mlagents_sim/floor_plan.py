"""`FloorPlan`: scenes of worlds that compute their bodies as seen from above.

plan = FloorPlan(world, n_areas, low=(-12.5, -12.5), high=(12.5, 12.5))
plan.box("block", position[:, BLOCK], half[:, BLOCK], height_m=1.25, color=ORANGE)
return plan.scene()
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.scene import Scene, Shape, Solids, turned
from mlagents_sim.plane import Array, X, Z
from mlagents_sim.world import World

Color = tuple[int, int, int]

FLOOR: Color = (236, 240, 245)
WALL: Color = (120, 132, 148)
AGENT: Color = (37, 99, 195)
FACE: Color = (16, 38, 92)
ORANGE: Color = (230, 140, 40)
GREEN: Color = (46, 160, 67)
RED: Color = (205, 60, 55)
GRAY: Color = (196, 206, 218)
INK: Color = (30, 34, 40)
PURPLE: Color = (130, 70, 170)
GRASS: Color = (190, 220, 190)

FLOOR_M = 0.2
"""Thickness of a floor."""


class FloorPlan:
    """The solids of N areas, which stand on a floor at height 0.

    Args:
        world: World of the areas.
        n_areas: Number of areas, N.
        low: (x, z) of the lower left corner of an area, in m.
        high: (x, z) of the upper right corner of an area, in m.
        floor: Color of the floor; None for no floor.
        walls_m: Height of the walls around an area; 0 for no walls.
        top_m: Height of an area.
    """

    def __init__(
        self,
        world: World,
        n_areas: int,
        low: Sequence[float],
        high: Sequence[float],
        *,
        floor: Color | None = FLOOR,
        walls_m: float = 0.0,
        top_m: float = 2.0,
    ) -> None:
        self._world, self._n = world, n_areas
        self._low, self._high, self._top = low, high, top_m
        self._solids: list[Solids] = []
        middle, half = np.add(low, high) / 2.0, np.subtract(high, low) / 2.0
        if floor is not None:
            self.box("floor", middle, half, height_m=FLOOR_M, low_m=-FLOOR_M, color=floor)
        if walls_m:
            thick = 0.01 * float(max(half))
            x, z = half + thick
            offsets = np.array([[0, 0, -x, x], [-z, z, 0, 0]])
            halves = np.array([[x, x, thick, thick], [thick, thick, z, z]])
            self.box(
                "wall", middle[:, None] + offsets, halves, height_m=walls_m, color=WALL, fixed=True
            )

    def box(
        self,
        name: str,
        center: ArrayLike,
        half: ArrayLike,
        *,
        height_m: ArrayLike,
        color: ArrayLike,
        low_m: ArrayLike = 0.0,
        heading: Array | None = None,
        agents: NDArray[np.integer] | None = None,
        fixed: bool = False,
        shape: Shape = Shape.BOX,
    ) -> None:
        """Add boxes.

        Args:
            name: Name of the kind.
            center: (2, N) centers, one in each area; (2, K, N) for K of them in each area; (2,) for
                the same place in all areas. Boxes at NaN are hidden.
            half: Half lengths in x and z, of shapes that broadcast to `center`.
            height_m: Heights of the boxes.
            color: (3,) color of all boxes, or (..., 3) with an axis for each of `center`.
            low_m: Heights of the lower faces above the floor.
            heading: Unit vectors like `center`; by default the boxes are not rotated.
            agents: Indices, like `center` without its first axis, of the agents that they are.
            fixed: Whether the last axis of `center` counts boxes that every area has.
            shape: Another shape to fill the boxes with.
        """
        x, z = np.asarray(center, np.float64)
        shown = x.shape
        is_fixed = fixed or not shown

        def rows(value: ArrayLike) -> Array:
            return np.broadcast_to(np.asarray(value, np.float64), shown).reshape(-1)

        low, height = rows(low_m), rows(height_m)
        half_x, half_z = np.broadcast_to(_like(half, len(shown)), (2, *shown))
        position = np.stack([rows(x), low + height / 2.0, rows(z)], axis=1)
        position[np.isnan(position).any(axis=1)] = np.nan
        rotation = np.array([0.0, 0.0, 0.0, 1.0])
        if heading is not None:
            right, ahead = np.broadcast_to(_like(heading, len(shown)), (2, *shown))
            rotation = turned(np.arctan2(right, ahead)).reshape(-1, 4)
        colors = np.asarray(color)
        if colors.ndim > 1:
            colors = np.broadcast_to(colors, (*shown, 3)).reshape(-1, 3)
        area = None
        if not is_fixed:
            area = np.broadcast_to(np.arange(self._n, dtype=np.int32), shown).reshape(-1)
        agent = None if agents is None else np.asarray(agents, np.int32).reshape(-1)
        size = np.stack([2.0 * half_x.reshape(-1), height, 2.0 * half_z.reshape(-1)], axis=1)
        self._solids.append(
            Solids.of(
                name, shape, position, size, colors, rotation=rotation, area=area, agent=agent
            )
        )

    def ball(self, name: str, center: ArrayLike, radius: ArrayLike, **more: Any) -> None:
        """Add balls, as `box` adds boxes; `radius` replaces half lengths and height."""
        self.box(
            name,
            center,
            _both(radius),
            height_m=np.multiply(2.0, radius),
            shape=Shape.BALL,
            **more,
        )

    def disc(self, name: str, center: ArrayLike, radius: ArrayLike, **more: Any) -> None:
        """Add cylinders, as `box` adds boxes; `radius` replaces half lengths."""
        self.box(name, center, _both(radius), shape=Shape.CYLINDER, **more)

    def agents(
        self,
        name: str,
        center: Array,
        heading: Array,
        half_m: ArrayLike,
        *,
        agents: NDArray[np.integer],
        color: ArrayLike = AGENT,
        low_m: ArrayLike = 0.0,
        shape: Shape = Shape.BOX,
    ) -> None:
        """Add agents, as high as wide, with dark faces ahead.

        Args:
            name: Name of the kind.
            center: (2, N) or (2, K, N) centers; agents at NaN are hidden.
            heading: Unit vectors like `center`.
            half_m: Half an edge of each agent.
            agents: (N,) or (K, N) indices of the agents.
            color: (3,) or (..., 3) colors.
            low_m: Heights of the lower faces above the floor.
            shape: Another shape to fill the boxes with.
        """
        half = np.asarray(half_m, np.float64)
        self.box(
            name,
            center,
            _both(half),
            height_m=2.0 * half,
            color=color,
            low_m=low_m,
            heading=heading,
            agents=agents,
            shape=shape,
        )
        self.box(
            f"face of {name}",
            center + heading * half * 0.85,
            np.array([0.7 * half, 0.2 * half]),
            height_m=0.5 * half,
            color=FACE,
            low_m=np.add(low_m, 1.2 * half),
            heading=heading,
        )

    def scene(self) -> Scene:
        """Return the scene of all solids added."""
        world = self._world
        return Scene(
            self._solids,
            self._n,
            (float(self._low[X]), 0.0, float(self._low[Z])),
            (float(self._high[X]), self._top, float(self._high[Z])),
            world.agent_id.copy(),
            world.step_count * world.step_s,
        )


def hidden(places: Array, is_shown: ArrayLike) -> Array:
    """Return places, with NaN where something is not shown."""
    return np.where(is_shown, places, np.nan)


def _both(half: ArrayLike) -> Array:
    return np.array([half, half], np.float64)


def _like(value: ArrayLike, n_axes: int) -> Array:
    """Return (2, ...) values with as many axes behind the first as the centers have.

    A missing axis is the one before the last: the same value for all solids of an area.
    """
    values = np.asarray(value, np.float64)
    if values.ndim == 1:
        return values.reshape(2, *[1] * n_axes)
    while values.ndim - 1 < n_axes:
        values = values[:, None]
    return values
