"""Images of many scenes at once: convex shapes, painted from the farthest to the nearest.

A convex shape covers one run of pixels in each row of an image. Only the starts and ends of the
runs are computed, by row instead of by pixel:

    places ──Camera──► outline ──► Runs ──paint──► images

Letters in shapes: N scenes, F shapes in each, K corners, H W rows and columns of a picture, row 0
at the top. A pixel belongs to a shape if its center does. Points of an image are homogeneous:
(column, row, 1) times a depth, so shapes that reach behind the eye need no clipping.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_sim.native_planar import address
from mlagents_sim.planar import PLANAR

Array = NDArray[np.float64]
Pixels = NDArray[np.uint8]

PIXELS_AT_ONCE = 2**15
"""Number of pixels painted together, whose indices fit the processor's cache."""


class Camera(NamedTuple):
    """Projection of places in a scene to points of a picture.

    Attributes:
        matrix: (3, 4, N) matrix from (x, y, z, 1) to a point; N is 1 if all scenes share it.
        height: Height of the picture in pixels, H.
        width: Width of the picture in pixels, W.
    """

    matrix: Array
    height: int
    width: int

    @staticmethod
    def perspective(
        position: Array, axes: Array, *, field_of_view_rad: float, height: int, width: int
    ) -> "Camera":
        """Return a perspective camera.

        Args:
            position: (3, N) position of the eye.
            axes: (3, 3, N) axes in columns: right, up and forward.
            field_of_view_rad: Angle between top and bottom of the picture.
            height: Height of the picture in pixels, H.
            width: Width of the picture in pixels, W.
        """
        scale = height / 2 / math.tan(field_of_view_rad / 2)
        lens = [[scale, 0.0, (width - 1) / 2], [0.0, -scale, (height - 1) / 2], [0.0, 0.0, 1.0]]
        return Camera(np.einsum("rk,kcn->rcn", lens, _view(position, axes)), height, width)

    @staticmethod
    def orthographic(
        position: Array, axes: Array, *, extent_m: float, height: int, width: int
    ) -> "Camera":
        """Return an orthographic camera.

        Args:
            position: (3, N) place in the middle of the picture.
            axes: (3, 3, N) axes in columns: right, up and forward.
            extent_m: Distance between top and bottom of the picture.
            height: Height of the picture in pixels, H.
            width: Width of the picture in pixels, W.
        """
        scale = height / extent_m
        lens = np.diag([scale, -scale, 0.0])
        matrix = np.einsum("rk,kcn->rcn", lens, _view(position, axes))
        matrix[:, 3] += [[(width - 1) / 2], [(height - 1) / 2], [1.0]]
        return Camera(matrix, height, width)

    def points(self, places: Array) -> Array:
        """Return the points of the picture, (3, ..., N), for places (3, ..., N)."""
        linear, shift = self.matrix[:, :3], self.matrix[:, 3]
        turned: Array = np.einsum("rcn,c...n->r...n", linear, places)
        return turned + shift.reshape(3, *[1] * (places.ndim - 2), -1)

    def rays(self) -> Array:
        """Return the unit vectors, (3, H, W), from the eye of a perspective camera to its pixels.

        If there are several scenes, the camera of the first is used.
        """
        column, row = np.arange(self.width), np.arange(self.height)[:, None]
        point = np.stack(np.broadcast_arrays(column, row, 1.0))
        ray = np.einsum("cr,rhw->chw", np.linalg.inv(self.matrix[:, :3, 0]), point)
        rays: Array = ray / np.linalg.norm(ray, axis=0)
        return rays


def _view(position: Array, axes: Array) -> Array:
    """Return (3, 4, N) that takes (x, y, z, 1) to the distance right, up and ahead of a camera."""
    turn = axes.swapaxes(0, 1)
    shift = -np.einsum("rcn,cn->rn", turn, position)
    return np.concatenate([turn, shift[:, None]], axis=1)


class Runs(NamedTuple):
    """The pixels that shapes cover: one run in each row of a picture.

    Attributes:
        first: (F, N, H) column of the first pixel; 0 for an empty run.
        end: (F, N, H) column after the last pixel; 0 for an empty run.
    """

    first: NDArray[np.int16]
    end: NDArray[np.int16]

    def mask(self, width: int) -> NDArray[np.bool_]:
        """Return whether each pixel of images of this width is covered, (F, N, H, W)."""
        column = np.arange(width)
        return (column >= self.first[..., None]) & (column < self.end[..., None])


def polygon(camera: Camera, corners: Array) -> Runs:
    """Find the pixels of flat convex polygons, visible from the side with clockwise corners.

    Args:
        camera: Camera that sees the shapes.
        corners: (3, K, F, N) corners in order.
    """
    point = camera.points(corners)
    if (functions := PLANAR.load()) is not None and corners.shape[1] == 4:
        runs = Runs(*np.zeros((2, *corners.shape[2:], camera.height), np.int16))
        n, size = math.prod(corners.shape[2:]), (camera.height, camera.width)
        point = np.ascontiguousarray(point)
        functions.raster_polygons(address(point), n, *size, *map(address, runs))
        return runs
    # A pixel is inside if it is on the inner side of every edge: a column + b row + c >= 0.
    (u, v, w), (next_u, next_v, next_w) = point, point[:, [*range(1, point.shape[1]), 0]]
    edge = np.array([v * next_w - w * next_v, w * next_u - u * next_w, u * next_v - v * next_u])
    is_seen = (edge[:, 0] * point[:, 2]).sum(axis=0) > 0.0
    # Skip shapes whose corners are all more than a pixel beyond the same side of the image.
    within = np.array([u + w, camera.width * w - u, v + w, camera.height * w - v])
    is_seen &= ~(within.max(axis=1) < 0.0).any(axis=0)
    v, w = v[:, is_seen], w[:, is_seen]
    with np.errstate(divide="ignore", invalid="ignore"):
        height = v / w
        top, bottom = height.min(axis=0), height.max(axis=0)
        # Shapes that reach behind the eye may be in all rows.
        is_before = (w > 0.0).all(axis=0)
        shape, row = _rows(
            camera, np.where(is_before, top, -np.inf), np.where(is_before, bottom, np.inf)
        )
        a, b, c = edge[:, :, is_seen]  # each (K, S)
        is_left = (a >= 0.0).take(shape, axis=1)  # (K, L)
        # column = (b row + c) / -a, computed in place; + 0.0 as -0.0 has the wrong sign
        crossing = b.take(shape, axis=1)
        crossing *= row
        crossing += c.take(shape, axis=1)
        crossing /= (-(a + 0.0)).take(shape, axis=1)
    first = np.fmax.reduce(np.where(is_left, crossing, -np.inf))
    last = np.fmin.reduce(np.where(is_left, np.inf, crossing))
    return _runs(camera, is_seen, shape, row, first, last)


def sphere(camera: Camera, center: Array, radius: Array) -> Runs:
    """Find the pixels of spheres. A sphere that reaches behind the eye has none.

    Args:
        camera: Camera that sees the shapes.
        center: (3, F, N) centers.
        radius: (F, N) radii.
    """
    # The planes p that touch a sphere: p' D p = 0, D = center center' - radius^2 (1, 1, 1, 0). The
    # lines that touch its outline: the same with M D M'; its points: with the inverse of that.
    point = camera.points(center)
    linear = camera.matrix[:, :3]
    spread = radius**2 * np.einsum("rkn,ckn->rcn", linear, linear)[:, :, None]
    if (functions := PLANAR.load()) is not None:
        runs = Runs(*np.zeros((2, *radius.shape, camera.height), np.int16))
        point, spread = map(np.ascontiguousarray, (point, spread))
        functions.raster_spheres(
            address(point),
            address(spread),
            radius.size,
            camera.height,
            camera.width,
            *map(address, runs),
        )
        return runs
    is_seen = (point[2] > 0.0) & (point[2] ** 2 > spread[2, 2])  # before the eye
    dual = (point[:, None] * point - spread)[:, :, is_seen]
    (p, q, r), (_, s, t), (_, _, u) = dual  # each (S,)
    # The horizontal lines among them.
    middle, reach = t / u, np.sqrt(np.maximum(t * t - s * u, 0.0)) / u
    shape, row = _rows(camera, middle - reach, middle + reach)
    # The adjugate of the symmetric matrix, which is its inverse but for a factor.
    a, b, d = s * u - t * t, r * t - q * u, q * t - r * s
    c, e, f = p * u - r * r, q * r - p * t, p * s - q * q
    # In a row, A column^2 + 2 B column + C >= 0, where A < 0.
    a, b, c, d, e, f = np.array([a, b, c, d, e, f]).take(shape, axis=1)
    half = b * row + d
    square = half**2 - a * (c * row**2 + 2.0 * e * row + f)
    root = np.sqrt(np.maximum(square, 0.0))
    first, last = (root - half) / a, np.where(square >= 0.0, (-root - half) / a, -1.0)
    return _runs(camera, is_seen, shape, row, first, last)


def _rows(camera: Camera, top: Array, bottom: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return (L,) indices of shapes and (L,) rows in which these shapes may have pixels.

    Args:
        camera: Camera that sees the shapes.
        top: (S,) uppermost rows of the shapes, not rounded; one more row is included.
        bottom: (S,) lowest rows of the shapes, not rounded; one more row is included.
    """
    first = np.minimum(np.maximum(np.ceil(top) - 1.0, 0.0), camera.height)
    end = np.maximum(np.minimum(np.floor(bottom) + 2.0, camera.height), first)
    length = (end - first).astype(np.intp)
    return np.arange(len(length)).repeat(length), _ranges(first.astype(np.intp), length)


def _ranges(start: NDArray[np.intp], length: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the concatenation of ranges with these starts and lengths."""
    end = length.cumsum()
    numbers: NDArray[np.intp] = (start - end + length).repeat(length)
    numbers += np.arange(len(numbers))
    return numbers


def _runs(
    camera: Camera,
    is_seen: NDArray[np.bool_],
    shape: NDArray[np.intp],
    row: NDArray[np.intp],
    first: Array,
    last: Array,
) -> Runs:
    """Return the runs between two columns, rounded and clipped to the image.

    Args:
        camera: Camera that sees the shapes.
        is_seen: (F, N) mask of the S visible shapes.
        shape: (L,) indices of visible shapes.
        row: (L,) rows.
        first: (L,) columns, not rounded.
        last: (L,) columns, not rounded.
    """
    begin = np.minimum(np.maximum(np.ceil(first), 0.0), camera.width)
    end = np.minimum(np.floor(last) + 1.0, camera.width)
    is_filled = begin < end
    (seen,) = is_seen.reshape(-1).nonzero()
    at = seen[shape] * camera.height + row
    runs = Runs(*np.zeros((2, *is_seen.shape, camera.height), np.int16))
    for column, value in zip(runs, (begin, end), strict=True):
        column.reshape(-1)[at] = (value * is_filled).astype(np.int16)
    return runs


def box_faces(center: Array, axes: Array, half_edges: Array) -> tuple[Array, Array]:
    """Return the corners, (3, 4, 6, N), and the outward normals, (3, 6, N), of a box's faces.

    The corners are clockwise as seen from outside.

    Args:
        center: (3, N) center of the box.
        axes: (3, 3, N) axes of the box, in columns.
        half_edges: (3,) half lengths of the box along its axes.
    """
    arm = axes * half_edges[:, None]  # (3, 3, N), from the center to the middles of three faces
    offsets = np.einsum("kfa,ran->rkfn", _FACE_CORNERS, arm)
    normals = np.concatenate([axes, -axes], axis=1)
    return center[:, None, None] + offsets, normals


def _face_corners() -> Array:
    """Return the side of the center, 1 or -1 along each axis, of each corner: (4, 6, 3)."""
    corners = np.zeros((4, 6, 3))
    for face in range(6):
        axis, side = face % 3, 1 - face // 3 * 2
        # The axes are left-handed: seen against one of them, the next two turn clockwise, and
        # counterclockwise seen along it.
        across, up = (axis + 1) % 3, (axis + 2) % 3
        corners[:, face, axis] = side
        corners[:, face, across] = np.array([-1, 1, 1, -1]) * side
        corners[:, face, up] = [-1, -1, 1, 1]
    return corners


_FACE_CORNERS = _face_corners()


class Covered(NamedTuple):
    """The pixels that shapes cover, in order.

    Attributes:
        shape: (P,) index of the shape, of F by N, flat.
        pixel: (P,) index of the pixel, of H by W, flat.
    """

    shape: NDArray[np.intp]
    pixel: NDArray[np.intp]


def pixels(runs: Runs, width: int) -> Covered:
    """Return the pixels that shapes cover in images of this width."""
    length = (runs.end - runs.first).reshape(-1)
    (run,) = length.nonzero()
    n_rows = runs.first.shape[2]
    start = run % n_rows * width + runs.first.reshape(-1)[run]
    length = length[run].astype(np.intp)
    return Covered((run // n_rows).repeat(length), _ranges(start, length))


def paint(
    images: Pixels,
    runs: Runs,
    colors: Pixels,
    scene: NDArray[np.intp] | None = None,
    order: NDArray[np.intp] | None = None,
) -> None:
    """Paint shapes over each other, in the given order.

    Args:
        images: (N, 3, H, W) pictures, contiguous; changed in place.
        runs: Pixels of each shape.
        colors: Colors, which can be broadcast to (F, N, 3).
        scene: (S,) indices of the shapes' images, for runs of shape (1, S, H). By default, the
            second axis of the runs is the image.
        order: (S,) indices of the shapes of such runs, in painting order.
    """
    n_rows, width = images.shape[2:]
    if (functions := PLANAR.load()) is not None:
        colors = np.ascontiguousarray(np.broadcast_to(colors, (*runs.first.shape[:2], 3)))
        first, end = map(np.ascontiguousarray, runs)
        scene, order = (
            None if which is None else np.ascontiguousarray(which) for which in (scene, order)
        )
        functions.raster_paint(
            address(images),
            len(images),
            n_rows,
            width,
            address(first),
            address(end),
            address(colors),
            address(scene),
            address(order),
            first.size // n_rows,
        )
        return
    if order is not None and scene is not None:
        runs, colors, scene = Runs(*(run[:, order] for run in runs)), colors[order], scene[order]
    first, end = runs.first.reshape(-1), runs.end.reshape(-1)
    (run,) = (first < end).nonzero()
    if run.size == 0:
        return
    shape = run // n_rows
    image = shape % len(images) if scene is None else scene[shape]
    row = run - shape * n_rows
    start = (image * (3 * n_rows) + row) * width + first[run]
    length = (end[run] - first[run]).astype(np.intp)
    colors = np.broadcast_to(colors, (*runs.first.shape[:2], 3)).reshape(-1, 3)
    # The concatenated pixels of many runs. If a pixel gets several colors, the last one remains.
    n_pixels = length.cumsum()
    pieces = n_pixels.searchsorted(np.arange(0, n_pixels[-1], PIXELS_AT_ONCE)).tolist()
    for begin, stop in zip(pieces, [*pieces[1:], len(run)], strict=True):
        some = slice(begin, stop)
        pixel = _ranges(start[some], length[some])
        for channel in range(3):
            plane = images.reshape(-1)[channel * n_rows * width :]
            plane[pixel] = colors[:, channel].take(shape[some]).repeat(length[some])
