"""Pictures of scenes: which areas they show, and from where.

picture = draw_scene(env.scene(), View(width=640, height=480))
picture = picture_of(env)    # also of an environment that has only a method `render`
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.checked_env import unwrapped
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.scene import Array, HasScene, Scene, Solids, Vector
from mlagents_envs.solid_raster import Lens, Light, draw, drawn_solids

SKY = 214, 225, 238
TANGENT = math.tan(0.5 * 0.6)
"""Half the height of what a picture shows, at distance 1."""
GAP = 0.06
"""Distance between areas, in extents of an area."""
HIDDEN = 0.4
"""Distance behind an area that it may hide, in its heights."""
LEAST_AGENT_PX = 12.0
"""Width of an agent below which fewer areas are shown."""
MARGIN = 0.02
"""Part of the picture left free on each side."""
LOW_RAD, HIGH_RAD = math.radians(20.0), math.radians(58.0)
"""Angles from which areas are seen that are only high, and that are only flat."""
CLOSE_UP_YAW_RAD = math.radians(28.0)
CLOSE_UP_PITCH_RAD = math.radians(26.0)
LIGHT = np.array([-0.42, 0.82, -0.39])


class View(NamedTuple):
    """What a picture of a scene shows.

    Attributes:
        width: Width in pixels.
        height: Height in pixels.
        agents: Number of agents whose areas are shown, the first ones; None for as many areas as
            still let agents be seen.
        zoom: Magnification. Beyond 1, the picture follows the first agent.
    """

    width: int = 640
    height: int = 480
    agents: int | None = None
    zoom: float = 1.0


class Camera(NamedTuple):
    """Where a picture is taken from.

    Attributes:
        place: (3,) place of the camera, in the scene's frame.
        axes: (3, 3) its axes in rows: right, up and ahead.
    """

    place: Array
    axes: Array

    def seen(self, position: Array) -> Array:
        """Return places, (..., 3), in the camera's frame."""
        return (position - self.place) @ self.axes.T


def draw_scene(scene: Scene, view: View | None = None) -> NDArray[np.uint8]:
    """Return a picture of a scene, (height, width, 3): red, green, blue.

    Args:
        scene: Scene.
        view: What it shows. By default, all areas; or the surroundings of the first agent, if the
            scene has them.
    """
    view = view or View()
    area, place = scene.agent_places()
    shown: NDArray[np.integer]
    close_up_m = scene.close_up_m
    if close_up_m is None and view.zoom > 1.0:
        close_up_m = float(max(np.subtract(scene.high, scene.low)))
    follows = close_up_m is not None and (view.agents in (None, 1) or view.zoom > 1.0)
    if close_up_m is not None and follows and len(area) and area[0] >= 0:
        shown = area[:1]
        low, high = _around(scene, np.nan_to_num(place[0]), close_up_m / view.zoom)
        camera = _camera(low, high, view.width / view.height, is_close_up=True)
        offset = np.zeros((1, 3))
    else:
        shown = np.unique(area[: view.agents]) if view.agents is not None else np.arange(0)
        shown = shown[shown >= 0]
        if not len(shown):
            shown = np.arange(_number_of_areas(scene, view))
        offset, camera, _ = _side_by_side(
            len(shown), tuple(scene.low), tuple(scene.high), view.width / view.height
        )
    return _draw(scene, shown, offset, camera, view)


def picture_of(env: BaseEnv, view: View | None = None) -> NDArray[np.uint8]:
    """Return a picture of what an environment shows now, (height, width, 3).

    Args:
        env: Environment with a method `scene` or a method `render`.
        view: What the picture of a scene shows; a method `render` decides that itself.

    Raises:
        UnityEnvironmentException: The environment draws no pictures, or draws something else.
    """
    own = unwrapped(env)
    scene = own.scene() if isinstance(own, HasScene) else None
    if scene is not None:
        return draw_scene(scene, view)
    render = getattr(own, "render", None)
    name = type(own).__name__
    if render is None:
        raise UnityEnvironmentException(
            f"{name} draws no pictures of itself. Give it a method scene() that returns a "
            "mlagents_envs.scene.Scene, or a method render() that returns an array (height, width, "
            "3) of uint8."
        )
    picture = render()
    if isinstance(picture, np.ndarray):
        found = f"an array {picture.shape} of {picture.dtype}"
        if picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3:
            if picture.size:
                return picture
    else:
        found = f"a {type(picture).__name__}"
    raise UnityEnvironmentException(
        f"{name}.render() returned {found}; expected one picture of everything it shows, an array "
        "(height, width, 3) of uint8: red, green, blue."
    )


def _around(scene: Scene, place: Array, extent_m: float) -> tuple[Vector, Vector]:
    """Return the corners of a cube around a place, or of as much of its height as there is."""
    low, high = place - extent_m / 2.0, place + extent_m / 2.0
    bottom, top = scene.low[1], scene.high[1]
    low[1] = max(bottom, min(low[1], top - extent_m))
    high[1] = min(top, low[1] + extent_m)
    return (low[0], low[1], low[2]), (high[0], high[1], high[2])


def _draw(
    scene: Scene, shown: NDArray[np.integer], offset: Array, camera: Camera, view: View
) -> NDArray[np.uint8]:
    """Draw some areas at their offsets."""
    row = np.full(scene.n_areas, -1)
    row[shown] = np.arange(len(shown))
    shapes, positions, rotations, sizes, colors = [], [], [], [], []
    for kind in scene.solids:
        at, position = _placed(kind, row, offset)
        shapes.append((kind.shape, len(at)))
        positions.append(position)
        rotations.append(kind.rotation[at])
        sizes.append(kind.size[at])
        colors.append(kind.color[at])
    image = np.empty((view.height, view.width, 3), np.uint8)
    image[:] = SKY
    if not shapes:
        return image
    up = camera.axes[:, 1]
    towards = camera.axes @ (LIGHT / np.linalg.norm(LIGHT))
    light = Light(towards, up, float(scene.low[1] - camera.place[1]))
    lens = Lens.of(view.height, view.width, TANGENT)
    solids = drawn_solids(
        shapes,
        camera.seen(np.concatenate(positions)),
        camera.axes @ _matrices(np.concatenate(rotations)),
        np.concatenate(sizes),
        np.concatenate(colors),
        lens,
        light,
    )
    draw(image, solids, lens, light)
    return image


def _placed(
    kind: Solids, row: NDArray[np.integer], offset: Array
) -> tuple[NDArray[np.intp], Array]:
    """Return which solids of a kind are shown, (n,), and their centers, (n, 3)."""
    is_there = np.isfinite(kind.position).all(axis=1)
    if kind.area is None:
        at = np.tile(np.flatnonzero(is_there), len(offset))
        return at, kind.position[at] + offset.repeat(is_there.sum(), axis=0)
    at = np.flatnonzero(is_there & (row[kind.area] >= 0))
    return at, kind.position[at] + offset[row[kind.area[at]]]


def _matrices(rotation: Array) -> Array:
    """Return matrices, (n, 3, 3), of quaternions x, y, z, w."""
    x, y, z, w = rotation.T
    return np.stack(
        [
            np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)], axis=1),
            np.stack([2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)], axis=1),
            np.stack([2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], axis=1),
        ],
        axis=1,
    )


def _number_of_areas(scene: Scene, view: View) -> int:
    """Return the number of areas, in full rows, that still let agents be seen."""
    widths = [
        float(np.median(kind.size, axis=1).max())
        for kind in scene.solids
        if kind.agent is not None and len(kind.size)
    ]
    aspect = view.width / view.height
    for n in range(scene.n_areas, 1, -1):
        _, camera, is_full = _side_by_side(n, tuple(scene.low), tuple(scene.high), aspect)
        distance = abs(float(camera.place @ camera.axes[2]))
        width_px = max(widths, default=math.inf) * view.height / (2.0 * TANGENT * distance)
        if is_full and width_px >= LEAST_AGENT_PX:
            return n
    return 1


@lru_cache(maxsize=512)
def _side_by_side(n: int, low: Vector, high: Vector, aspect: float) -> tuple[Array, Camera, bool]:
    """Return a way to place n areas side by side.

    Returns:
        The offsets of the areas, (n, 3), in as many columns as makes them largest; the camera that
        sees them; and whether all rows are full.
    """
    extent = np.subtract(high, low)
    cell = extent + GAP * extent[[0, 2]].max()
    cell[2] += HIDDEN * extent[1]
    best: tuple[float, Array, Camera, bool] | None = None
    for columns in range(1, n + 1):
        n_rows = -(-n // columns)
        row, column = np.divmod(np.arange(n), columns)
        in_row = np.minimum(columns, n - row * columns)
        x = (column - (in_row - 1) / 2.0) * cell[0]
        z = -(row - (n_rows - 1) / 2.0) * cell[2]
        offset = np.stack([x, np.zeros(n), z], axis=1)
        camera = _camera(
            tuple(np.add(low, offset.min(axis=0))), tuple(np.add(high, offset.max(axis=0))), aspect
        )
        is_full = n % columns == 0
        distance = abs(float(camera.place @ camera.axes[2])) * (1.0 if is_full else 1.2)
        if best is None or distance < best[0]:
            best = distance, offset, camera, is_full
    assert best is not None
    return best[1:]


def _camera(low: Vector, high: Vector, aspect: float, *, is_close_up: bool = False) -> Camera:
    """Return the camera nearest to a box, of which it sees all.

    Args:
        low: Lowest corner of the box.
        high: Highest corner of the box.
        aspect: Width of the picture divided by its height.
        is_close_up: Whether to look from the side rather than from ahead.
    """
    _, height, depth = np.subtract(high, low)
    pitch = LOW_RAD + (HIGH_RAD - LOW_RAD) * depth / (depth + 2.0 * height)
    yaw = 0.0
    if is_close_up:
        yaw, pitch = CLOSE_UP_YAW_RAD, CLOSE_UP_PITCH_RAD
    ahead = np.array(
        [math.sin(yaw) * math.cos(pitch), -math.sin(pitch), math.cos(yaw) * math.cos(pitch)]
    )
    right = np.array([math.cos(yaw), 0.0, -math.sin(yaw)])
    axes = np.stack([right, np.cross(ahead, right), ahead])
    corners = np.array(
        [[x, y, z] for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])]
    )
    x, y, z = axes @ corners.T
    # A place is in the picture if |x - eye x| <= tangent (z - eye z), and so with y.
    eye = []
    distances = []
    for at, tangent in ((x, TANGENT * aspect), (y, TANGENT)):
        tangent *= 1.0 - 2.0 * MARGIN
        most, least = (at - tangent * z).max(), (-at - tangent * z).max()
        eye.append((most - least) / 2.0)
        distances.append((most + least) / (2.0 * tangent))
    return Camera(axes.T @ np.array([*eye, -max(distances)]), axes)
