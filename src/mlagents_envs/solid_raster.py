"""Pictures of boxes, balls, cylinders and capsules, each pixel by rays through exact shapes.

    solids in the camera's frame ──drawn_solids──► DrawnSolids ──draw──► picture

Two passes over the solids draw a picture. The first one finds the nearest solid of every ray. The
second one finds, for what is seen, whether another solid is between it and the light. In each pass
only those rays are computed that may meet a solid: a rectangle of the picture.

Letters in shapes: S solids, H W rows and columns. The camera's frame: x right, y up, z ahead; the
camera is at its origin. In its own frame a solid reaches from -1 to 1 along each axis. Only a
capsule reaches farther along y: it has radius 1 and a straight part.
"""

from collections.abc import Sequence
from ctypes import CDLL, c_float, c_int64, c_void_p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.scene import Array, Shape
from mlagents_native.library import NativeError, Part

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
Pixels = NDArray[np.uint8]

SAMPLES = 2
"""Rays along each edge of a pixel, whose mean it is."""
AMBIENT, LIT, AWAY = 0.62, 0.42, 0.16
"""Brightness of a face that the light only touches; what is added if it faces the light, and taken
away if it faces away."""

_NUMBER = {Shape.BOX: 0, Shape.BALL: 1, Shape.CYLINDER: 2, Shape.CAPSULE: 3}
_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
_NEAREST_M = 1e-3
_LEAST_HALF_M = 1e-6
_TINY = np.float32(1e-12)
_ONE = np.float32(1.0)


class Lens(NamedTuple):
    """Where rays go: that of column c and row r to (left + c step, top - r step, 1).

    Attributes:
        left: Distance to the right at the first column, per distance ahead.
        top: Distance up at the first row, per distance ahead.
        step: Difference between neighbors.
        height: Number of rows.
        width: Number of columns.
    """

    left: float
    top: float
    step: float
    height: int
    width: int

    @classmethod
    def of(cls, height: int, width: int, tangent: float) -> "Lens":
        """Return the lens of a picture.

        Args:
            height: Height of the picture in pixels.
            width: Width of the picture in pixels.
            tangent: Half the height of what is seen at distance 1.
        """
        rows, columns = height * SAMPLES, width * SAMPLES
        step = 2.0 * tangent / rows
        return cls(-(columns - 1) / 2.0 * step, (rows - 1) / 2.0 * step, step, rows, columns)


class Light(NamedTuple):
    """Light from far away, in the camera's frame.

    Attributes:
        towards: (3,) unit vector to the light.
        up: (3,) unit vector away from the ground.
        ground_m: Height of the ground along `up`; no shadow falls below it.
    """

    towards: Array
    up: Array
    ground_m: float


class DrawnSolids(NamedTuple):
    """Solids as they are drawn.

    Attributes:
        shape: (S,) numbers of their shapes.
        to_solid: (S, 3, 3) matrices from the camera's frame to the solids' own.
        camera: (S, 3) places of the camera in the solids' own frames.
        straight: (S,) half lengths of the straight parts of capsules, in their own frames.
        color: (S, 3) colors.
        seen: (S, 4) first rows, ends, first columns and ends of the rays that may meet them.
        shadow: (S, 4) those of the rays whose ends they may shade.
    """

    shape: Integers
    to_solid: Floats
    camera: Floats
    straight: Floats
    color: Pixels
    seen: Integers
    shadow: Integers


def drawn_solids(
    shapes: Sequence[tuple[Shape, int]],
    position: Array,
    axes: Array,
    size: Array,
    color: Pixels,
    lens: Lens,
    light: Light,
) -> DrawnSolids:
    """Return solids as they are drawn.

    Args:
        shapes: Shapes, each with the number of solids that have it, in order.
        position: (S, 3) centers in the camera's frame.
        axes: (S, 3, 3) the solids' axes in columns, in the camera's frame.
        size: (S, 3) extents along these axes.
        color: (S, 3) colors.
        lens: Rays of the picture.
        light: Light.
    """
    shape = np.repeat([_NUMBER[kind] for kind, _ in shapes], [n for _, n in shapes])
    half = np.maximum(size / 2.0, _LEAST_HALF_M)
    is_capsule = shape == _NUMBER[Shape.CAPSULE]
    scale = np.where(is_capsule[:, None], half[:, :1], half)
    straight = np.maximum(half[:, 1] / scale[:, 0] - 1.0, 0.0)
    to_solid = axes.swapaxes(1, 2) / scale[:, :, None]
    camera = -np.einsum("sij,sj->si", to_solid, position)
    reach = axes * half[:, None]
    corners = position[:, None] + np.einsum("sij,kj->ski", reach, _CORNERS)
    height = corners @ light.up - light.ground_m
    # Where the light through a corner meets the ground.
    slant = light.towards / (light.towards @ light.up)
    ground = corners - np.maximum(height, 0.0)[..., None] * slant
    flat = 0.01 + 0.004 * np.abs(size).max(axis=1)
    shadow = _bounds(np.concatenate([corners, ground], axis=1), lens)
    shadow[height.max(axis=1) < flat] = 0  # such as a floor
    return DrawnSolids(
        shape.astype(np.int32),
        np.ascontiguousarray(to_solid, np.float32),
        camera.astype(np.float32),
        straight.astype(np.float32),
        np.ascontiguousarray(color, np.uint8),
        _bounds(corners, lens),
        shadow,
    )


def _bounds(corners: Array, lens: Lens) -> Integers:
    """Return the rays, (S, 4), between corners (S, K, 3); all rays if some are behind."""
    ahead = np.maximum(corners[..., 2], _NEAREST_M)
    column = (corners[..., 0] / ahead - lens.left) / lens.step
    row = (lens.top - corners[..., 1] / ahead) / lens.step
    bounds = np.stack(
        [
            np.clip(np.floor(row.min(axis=1)), 0, lens.height),
            np.clip(np.ceil(row.max(axis=1)) + 1, 0, lens.height),
            np.clip(np.floor(column.min(axis=1)), 0, lens.width),
            np.clip(np.ceil(column.max(axis=1)) + 1, 0, lens.width),
        ],
        axis=1,
    ).astype(np.int32)
    is_behind = corners[..., 2] < _NEAREST_M
    bounds[is_behind.any(axis=1)] = 0, lens.height, 0, lens.width
    # Beyond one side of the picture are solids of which all corners are.
    right, up = lens.left + lens.step * lens.width, lens.top - lens.step * lens.height
    x, y, z = np.moveaxis(corners, 2, 0)
    sides = (x < lens.left * z, x > right * z, y > lens.top * z, y < up * z, is_behind)
    for side in sides:
        bounds[side.all(axis=1)] = 0
    return bounds


def draw(image: Pixels, solids: DrawnSolids, lens: Lens, light: Light) -> None:
    """Draw solids into a picture, (H, W, 3), that holds its background."""
    if not len(solids.shape):
        return
    height, width, _ = image.shape
    towards = light.towards.astype(np.float32)
    functions = PART.load()
    if functions is None:
        _draw(image, solids, lens, towards)
        return
    functions.picture_draw(
        image.ctypes.data,
        height,
        width,
        SAMPLES,
        lens.left,
        lens.top,
        lens.step,
        towards.ctypes.data,
        np.array([AMBIENT, LIT, AWAY], np.float32).ctypes.data,
        len(solids.shape),
        *(array.ctypes.data for array in solids),
    )


def _draw(image: Pixels, solids: DrawnSolids, lens: Lens, towards: Floats) -> None:
    rows, columns = lens.height, lens.width
    aside = np.float32(lens.left) + np.arange(columns, dtype=np.float32) * np.float32(lens.step)
    up = np.float32(lens.top) - np.arange(rows, dtype=np.float32) * np.float32(lens.step)
    depth = np.full((rows, columns), np.inf, np.float32)
    light = np.zeros((rows, columns), np.float32)
    number = np.full((rows, columns), -1, np.int32)
    is_dark = np.zeros((rows, columns), np.bool_)

    def rays(bounds: Integers, matrix: Floats) -> tuple[tuple[slice, slice], Floats]:
        """Return some rays in the frame of a solid, (3, rows, columns)."""
        r, c = slice(*bounds[:2].tolist()), slice(*bounds[2:].tolist())
        base = matrix[:, 1:2] * up[r] + matrix[:, 2:]
        return (r, c), matrix[:, 0, None, None] * aside[c] + base[:, :, None]

    with np.errstate(all="ignore"):
        for k in range(len(solids.shape)):
            if (solids.seen[k, ::2] >= solids.seen[k, 1::2]).any():
                continue
            matrix, shape, straight = solids.to_solid[k], solids.shape[k], solids.straight[k]
            where, ray = rays(solids.seen[k], matrix)
            origin = solids.camera[k][:, None, None]
            near, far = _span(shape, origin, ray, straight)
            is_seen = (near <= far) & (near > 0.0) & (near < depth[where])
            place = origin + near * ray
            lit = _facing(shape, place, straight, matrix, matrix @ towards)
            depth[where] = np.where(is_seen, near, depth[where])
            light[where] = np.where(is_seen, lit, light[where])
            number[where] = np.where(is_seen, k, number[where])
        for k in range(len(solids.shape)):
            if (solids.shadow[k, ::2] >= solids.shadow[k, 1::2]).any():
                continue
            matrix, shape, straight = solids.to_solid[k], solids.shape[k], solids.straight[k]
            where, ray = rays(solids.shadow[k], matrix)
            place = solids.camera[k][:, None, None] + depth[where] * ray
            near, far = _span(shape, place, (matrix @ towards)[:, None, None], straight)
            is_dark[where] |= (near <= far) & (far > 1e-3) & (number[where] != k)
    bright = np.where(light > 0.0, np.where(is_dark, 0.0, LIT * light), AWAY * light)
    shade = np.where(number >= 0, AMBIENT + bright, 1.0).astype(np.float32)
    background = image.repeat(SAMPLES, axis=0).repeat(SAMPLES, axis=1)
    paint = np.where(number[..., None] >= 0, solids.color[number], background)
    height, width, _ = image.shape
    blocks = (paint * shade[..., None]).reshape(height, SAMPLES, width, SAMPLES, 3)
    image[:] = np.minimum(blocks.mean(axis=(1, 3)) + 0.5, 255.0).astype(np.uint8)


def _span(shape: int, origin: Floats, ray: Floats, straight: np.float32) -> tuple[Floats, Floats]:
    """Return between which multiples of rays lines are inside a solid.

    If a line never is, the first multiple is larger or both are NaN.

    Args:
        shape: Number of the shape.
        origin: (3, ...) beginnings of the lines in the solid's frame.
        ray: (3, ...) their directions.
        straight: Half length of the straight part of a capsule.
    """
    if shape == _NUMBER[Shape.BOX]:
        ends = np.stack([(-_ONE - origin) / ray, (_ONE - origin) / ray])
        return ends.min(axis=0).max(axis=0), ends.max(axis=0).min(axis=0)
    (x, y, z), (dx, dy, dz) = origin, ray
    if shape == _NUMBER[Shape.BALL]:
        return _round(x * dx + y * dy + z * dz, dx * dx + dy * dy + dz * dz, origin, ray)
    across = np.maximum(dx * dx + dz * dz, _TINY)
    near, far = _round(x * dx + z * dz, across, origin[::2], ray[::2])
    if shape == _NUMBER[Shape.CYLINDER]:
        ends = np.stack(np.broadcast_arrays((-_ONE - y) / dy, (_ONE - y) / dy))
        return np.maximum(near, ends.min(axis=0)), np.minimum(far, ends.max(axis=0))
    # Each end of the part within the endless cylinder is on the cylinder or on a cap.
    found = []
    for end, reached in enumerate((near, far)):
        height = y + reached * dy
        middle = np.clip(height, -straight, straight)
        centered = np.stack(np.broadcast_arrays(x, y - middle, z))
        along = centered[0] * dx + centered[1] * dy + centered[2] * dz
        cap = _round(along, across + dy * dy, centered, ray)
        found.append(np.where(height != middle, cap[end], reached))
    return found[0], found[1]


def _round(along: Floats, square: Floats, origin: Floats, ray: Floats) -> tuple[Floats, Floats]:
    """Return where lines enter and leave a ball or circle of radius 1; NaN if they do not."""
    middle = -along / square
    nearest = origin + middle * ray
    half = np.sqrt((_ONE - (nearest**2).sum(axis=0)) / square)
    return middle - half, middle + half


def _facing(
    shape: int, place: Floats, straight: np.float32, matrix: Floats, light: Floats
) -> Floats:
    """Return how much faces are turned to the light, at places, (3, ...): from -1 to 1.

    Args:
        shape: Number of the shape.
        place: Places of the surface in the solid's frame.
        straight: Half length of the straight part of a capsule.
        matrix: (3, 3) matrix from the camera's frame to the solid's.
        light: (3,) direction to the light in the solid's frame.
    """
    x, y, z = place
    if shape == _NUMBER[Shape.CAPSULE]:
        y = y - np.clip(y, -straight, straight)
    weight = (matrix**2).sum(axis=1)
    across = x * light[0] + z * light[2]
    square = x * x * weight[0] + z * z * weight[2]
    on_x, on_y, on_z = (
        np.where(at > 0.0, light[k], -light[k]) / np.sqrt(weight[k])
        for k, at in enumerate((x, y, z))
    )
    cosine: Floats
    if shape == _NUMBER[Shape.CYLINDER]:
        cosine = np.where(y * y > x * x + z * z, on_y, across / np.sqrt(square + _TINY))
    elif shape == _NUMBER[Shape.BOX]:
        x, y, z = np.abs(place)
        cosine = np.where(x > np.maximum(y, z), on_x, np.where(y > z, on_y, on_z))
    else:
        cosine = (across + y * light[1]) / np.sqrt(square + y * y * weight[1] + _TINY)
    return cosine


def _declare(functions: CDLL) -> None:
    functions.picture_draw.argtypes = [
        c_void_p,
        *[c_int64] * 3,
        *[c_float] * 3,
        *[c_void_p] * 2,
        c_int64,
        *[c_void_p] * 7,
    ]
    functions.picture_draw.restype = None


def _check(functions: CDLL) -> None:
    """Draw a black ball in the middle of a white picture of 3 x 3 pixels."""
    image = np.full((3, 3, 3), 255, np.uint8)
    matrix, camera = np.eye(3, dtype=np.float32), np.array([0.0, 0.0, -3.0], np.float32)
    numbers = np.zeros(4, np.int32), np.array([0, 3, 0, 3], np.int32)
    light, black = np.array([0.0, 1.0, 0.0], np.float32), np.zeros(3, np.float32)
    ball = np.ones(1, np.int32)
    functions.picture_draw(
        *(image.ctypes.data, 3, 3, 1, -1.0, 1.0, 1.0, light.ctypes.data, black.ctypes.data, 1),
        *(array.ctypes.data for array in (ball, matrix, camera, black, np.zeros(3, np.uint8))),
        *(numbers[1].ctypes.data, numbers[0].ctypes.data),
    )
    expected = [255] * 4 + [0] + [255] * 4
    if image[..., 0].ravel().tolist() != expected:
        raise NativeError(
            f"a picture of a ball has the pixels {image[..., 0].ravel().tolist()}, expected "
            f"{expected}. Install the package again."
        )


PART = Part("picture", version=1, declare=_declare, check=_check, otherwise="NumPy")
