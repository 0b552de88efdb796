"""`SceneMeshes`: a scene in the page, as one batched mesh for each kind of solids."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.scene import Array, Scene, Shape, Solids

if TYPE_CHECKING:
    import viser

Floats = NDArray[np.float32]

_ROUND = 24
"""Corners of a circle."""
_GAP = 1.15
"""Distance of areas, in extents of an area."""
_LEAST_CAPS = 1e-3


class Mesh(NamedTuple):
    """Triangles of a solid of size 1.

    Attributes:
        vertices: (V, 3) places, by the page's axes.
        faces: (F, 3) indices of vertices, counterclockwise from outside.
    """

    vertices: Floats
    faces: NDArray[np.uint32]


def to_page(position: Array) -> Floats:
    """Return places, (..., 3), by the page's axes: right-handed, x right, y up, z backward."""
    return (position * (1.0, 1.0, -1.0)).astype(np.float32)


def turn_to_page(rotation: Array) -> Floats:
    """Return quaternions x, y, z, w, (..., 4), by the page's axes and in its order: w, x, y, z."""
    return (rotation[..., [3, 0, 1, 2]] * (1.0, -1.0, -1.0, 1.0)).astype(np.float32)


def mesh_of(shape: Shape, size: Array) -> Mesh:
    """Return the mesh of solids of a shape.

    Args:
        shape: Shape of the solids.
        size: (3,) extents of a capsule, whose mesh has these; other meshes are of size 1.
    """
    if shape is Shape.BOX:
        return _box()
    if shape is Shape.CYLINDER:
        return _lathe(np.array([0.0, 0.5, 0.5, 0.0]), np.array([-0.5, -0.5, 0.5, 0.5]))
    angle = np.linspace(-np.pi / 2, np.pi / 2, 13)
    if shape is Shape.BALL:
        return _lathe(0.5 * np.cos(angle), 0.5 * np.sin(angle))
    radius = size[0] / 2.0
    straight = max(float(size[1]) / 2.0 - radius, _LEAST_CAPS)
    cap = np.linspace(0.0, np.pi / 2, 7)
    angle = np.concatenate([-cap[::-1], cap])
    middle = np.repeat([-straight, straight], len(cap))
    return _lathe(radius * np.cos(angle), radius * np.sin(angle) + middle)


def _box() -> Mesh:
    vertices: list[Array] = []
    faces: list[list[int]] = []
    for axis in range(3):
        for side in (-0.5, 0.5):
            corners = np.full((4, 3), side)
            corners[:, (axis + 1) % 3] = [-0.5, 0.5, 0.5, -0.5]
            corners[:, (axis + 2) % 3] = [-0.5, -0.5, 0.5, 0.5]
            first = 4 * len(vertices)
            order = [[0, 1, 2], [0, 2, 3]] if side > 0 else [[2, 1, 0], [3, 2, 0]]
            vertices.append(corners)
            faces += (np.array(order) + first).tolist()
    return Mesh(np.concatenate(vertices).astype(np.float32), np.array(faces, np.uint32))


def _lathe(radius: Array, height: Array) -> Mesh:
    """Return the body that a line turns around the axis up, from its lowest point upward."""
    angle = np.linspace(0.0, 2.0 * np.pi, _ROUND, endpoint=False)
    circle = np.stack([np.cos(angle), np.zeros(_ROUND), np.sin(angle)], axis=1)
    rings = radius[:, None, None] * circle
    rings[..., 1] = height[:, None]
    ring, corner = np.mgrid[: len(radius) - 1, :_ROUND].reshape(2, -1)
    after = (corner + 1) % _ROUND
    low, high = ring * _ROUND, (ring + 1) * _ROUND
    faces = np.concatenate(
        [
            np.stack([low + corner, high + corner, high + after], axis=1),
            np.stack([low + corner, high + after, low + after], axis=1),
        ]
    )
    return Mesh(rings.reshape(-1, 3).astype(np.float32), faces.astype(np.uint32))


class Layout:
    """Places of areas side by side.

    Args:
        scene: Scene with the areas.
        only: Area that alone is shown, at the origin; None for all areas.
    """

    def __init__(self, scene: Scene, only: int | None) -> None:
        self._only, n = only, scene.n_areas
        width, _, depth = np.subtract(scene.high, scene.low) * _GAP
        columns = max(1, min(n, round(np.sqrt(n * depth / width))))
        row, column = np.divmod(np.arange(n), columns)
        n_rows = -(-n // columns)
        center = np.add(scene.low, scene.high) / 2.0
        x = (column - (columns - 1) / 2.0) * width - center[0]
        z = ((n_rows - 1) / 2.0 - row) * depth - center[2]
        self.offset = np.stack([x, np.zeros(n), z], axis=1)
        """(areas, 3) offsets of all areas."""
        self.extent_m = float(max(columns * width, n_rows * depth))
        """Extent of everything shown, in m."""
        if only is not None:
            self.offset = np.repeat(-center[None] * (1.0, 0.0, 1.0), n, axis=0)
            self.extent_m = float(max(width, depth))

    def is_shown(self, area: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which areas are shown."""
        return np.ones(len(area), np.bool_) if self._only is None else area == self._only

    def shown_areas(self) -> NDArray[np.intp]:
        """Return the indices of the areas that are shown."""
        return np.arange(len(self.offset)) if self._only is None else np.array([self._only])


class Instances(NamedTuple):
    """Solids of a kind as the page gets them, of n solids.

    Attributes:
        positions: (n, 3) places.
        wxyzs: (n, 4) quaternions.
        scales: (n, 3) factors of the mesh; 0 for hidden solids.
        colors: (n, 3) colors.
    """

    positions: Floats
    wxyzs: Floats
    scales: Floats
    colors: NDArray[np.uint8]


def instances_of(solids: Solids, layout: Layout) -> Instances:
    """Return the instances of a kind, of all areas that are shown."""
    _, shape, position, rotation, size, color, area, _ = solids
    if shape is Shape.CAPSULE:
        size = np.ones_like(size)
    if area is None:
        shown, n = layout.shown_areas(), len(position)
        place = (layout.offset[shown, None] + position).reshape(-1, 3)
        repeats = (len(shown), 1)
        rotation, size = np.tile(rotation, repeats), np.tile(size, repeats)
        color = np.tile(color, repeats)
        is_hidden = np.zeros(n * len(shown), np.bool_)
    else:
        place = layout.offset[area] + position
        is_hidden = ~layout.is_shown(area)
    is_hidden |= np.isnan(place).any(axis=1)
    place = np.where(is_hidden[:, None], 0.0, place)
    scales = np.where(is_hidden[:, None], 0.0, size).astype(np.float32)
    return Instances(to_page(place), turn_to_page(rotation), scales, color)


class SceneMeshes:
    """The solids of an environment in the page.

    The page is sent what has changed.

    Args:
        api: Scene of the page.
    """

    def __init__(self, api: "viser.SceneApi") -> None:
        self._api = api
        self._root = api.add_frame("/areas", show_axes=False)
        self._handles: dict[str, viser.BatchedMeshHandle] = {}
        self._sent: dict[str, Instances] = {}

    def draw(self, solids: Sequence[Solids], layout: Layout, origin: Array) -> None:
        """Show solids as they are now.

        Args:
            solids: Solids by kind.
            layout: Places of the areas.
            origin: (3,) place to have in the middle.
        """
        self._root.position = tuple(-to_page(origin))
        for kind in solids:
            self._draw_kind(kind, instances_of(kind, layout))

    def _draw_kind(self, kind: Solids, now: Instances) -> None:
        handle, before = self._handles.get(kind.name), self._sent.get(kind.name)
        self._sent[kind.name] = now
        if handle is None or before is None or before.positions.shape != now.positions.shape:
            if handle is not None:
                handle.remove()
            if len(now.positions):
                self._handles[kind.name] = self._add(kind, now)
            else:
                self._handles.pop(kind.name, None)
            return
        if not np.array_equal(before.positions, now.positions):
            handle.batched_positions = now.positions
        if not np.array_equal(before.wxyzs, now.wxyzs):
            handle.batched_wxyzs = now.wxyzs
        if not np.array_equal(before.scales, now.scales):
            handle.batched_scales = now.scales
        if not np.array_equal(before.colors, now.colors):
            handle.batched_colors = now.colors

    def _add(self, kind: Solids, now: Instances) -> "viser.BatchedMeshHandle":
        mesh = mesh_of(kind.shape, kind.size[0])
        return self._api.add_batched_meshes_simple(
            f"/areas/{kind.name}",
            mesh.vertices,
            mesh.faces,
            batched_wxyzs=now.wxyzs,
            batched_positions=now.positions,
            batched_scales=now.scales,
            batched_colors=now.colors,
            flat_shading=kind.shape is Shape.BOX,
            lod="off",
            cast_shadow=False,
            receive_shadow=False,
        )
