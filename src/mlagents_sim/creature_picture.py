"""Pictures of a creature on a ground of squares, seen from behind and above."""

import numpy as np
from numpy.typing import NDArray

from mlagents_sim.articulated.bodies import Creatures
from mlagents_sim.articulated.creature import Box, Capsule
from mlagents_sim.articulated.rotations import Array, rotate
from mlagents_sim.raster import Camera, Pixels, box_faces, paint, polygon, sphere

HEIGHT, WIDTH = 480, 640
FIELD_OF_VIEW_RAD = 0.7
EYE = np.array([-3.2, 3.4, -5.2])
"""Place of the camera, relative to the first body, for a creature whose size is 1."""
SQUARE_M = 2.0
N_SQUARES = 18
"""Squares of the ground on either side of the creature."""
BALLS = 9
"""Spheres that stand for a capsule."""
SHADES = 5
"""Spheres, one in front of the other, that shade a sphere."""
SKY = np.array([196, 214, 234])
GROUND = np.array([[228, 232, 238], [206, 213, 222]])
TARGET = np.array([46, 160, 67])
COLOURS = np.array([[230, 140, 40], [37, 99, 195], [64, 130, 224]])
"""Colours of the first body and, by turns, of the others."""
LIGHT = np.array([-0.45, 0.8, -0.4])


def draw(creatures: Creatures, target: Array, target_edge_m: float) -> NDArray[np.uint8]:
    """Return a (480, 640, 3) picture of the first creature and its target.

    Args:
        creatures: Creatures.
        target: (3,) centre of the target.
        target_edge_m: Edge of the target, a cube.
    """
    model = creatures.model
    position, rotation = creatures.position[0], creatures.rotation[0]
    ground = model.creature.ground_height
    middle = np.array([position[0, 0], ground, position[0, 2]])
    size = np.ptp(model.start[:, :3], axis=0).max() / 2.0
    camera = camera_on(middle, size)
    image = np.empty((1, 3, HEIGHT, WIDTH), np.uint8)
    image[:] = SKY[:, None, None]
    draw_ground(image, camera, middle)

    # Shadows lie on the ground; spheres follow from the farthest to the nearest.
    centres, radii, colours = [], [], []
    boxes = []
    for body, data in enumerate(model.creature.bodies):
        colour = COLOURS[0] if body == 0 else COLOURS[1 + body % 2]
        place = position[body] + rotate(rotation[body], np.array(data.shape.centre))
        if isinstance(data.shape, Box):
            axes = np.stack([rotate(rotation[body], axis) for axis in np.eye(3)], axis=-1)
            boxes.append((place, axes, np.array(data.shape.half), colour))
            continue
        axis = rotate(rotation[body], model.shape_axes[body])
        along = np.linspace(-1.0, 1.0, BALLS if isinstance(data.shape, Capsule) else 1)
        for part in along if len(along) > 1 else [0.0]:
            centres.append(place + part * axis)
            radii.append(model.radius[body])
            colours.append(colour)
    draw_balls(
        image,
        camera,
        np.array([[c[0], ground, c[2]] for c in centres]),
        np.array(radii),
        np.array(colours),
        is_shadow=True,
    )
    half = np.full(3, target_edge_m / 2.0)
    _draw_box(image, camera, target, np.eye(3), half, TARGET)
    for box in boxes:
        _draw_box(image, camera, *box)
    order = np.argsort(-camera.points(np.array(centres).T[..., None])[2, :, 0], kind="stable")
    draw_balls(
        image,
        camera,
        np.array(centres)[order],
        np.array(radii)[order],
        np.array(colours)[order],
        is_shadow=False,
    )
    return np.ascontiguousarray(image[0].transpose(1, 2, 0))


def camera_on(middle: Array, size: float) -> Camera:
    """Return a camera that looks at a creature of half this size, standing at (3,) `middle`."""
    eye = EYE * size
    forward = -eye + np.array([0.0, 0.5 * size, 0.0])
    forward /= np.linalg.norm(forward)
    right = np.cross([0.0, 1.0, 0.0], forward)
    right /= np.linalg.norm(right)
    axes = np.stack([right, np.cross(forward, right), forward], axis=-1)
    return Camera.perspective(
        (middle + eye)[:, None],
        axes[..., None],
        field_of_view_rad=FIELD_OF_VIEW_RAD,
        height=HEIGHT,
        width=WIDTH,
    )


def draw_ground(image: Pixels, camera: Camera, middle: Array) -> None:
    """Draw a ground of squares around (3,) `middle`."""
    first = np.floor(middle[[0, 2]] / SQUARE_M).astype(int) - N_SQUARES
    i, k = np.meshgrid(*[np.arange(2 * N_SQUARES + 1)] * 2, indexing="ij")
    x, z = (first[0] + i.ravel()) * SQUARE_M, (first[1] + k.ravel()) * SQUARE_M
    x0, x1, z0, z1 = x, x + SQUARE_M, z, z + SQUARE_M
    corners = np.empty((3, 4, len(x), 1))
    corners[1] = middle[1]
    # Clockwise as seen from above.
    for corner, (a, b) in enumerate(((x0, z0), (x0, z1), (x1, z1), (x1, z0))):
        corners[0, corner, :, 0], corners[2, corner, :, 0] = a, b
    shade = (first.sum() + i + k).ravel() % 2
    paint(image, polygon(camera, corners), GROUND[shade][:, None].astype(np.uint8))


def _draw_box(
    image: Pixels, camera: Camera, centre: Array, axes: Array, half: Array, colour: Array
) -> None:
    corners, normals = box_faces(centre[:, None], axes[..., None], half)
    light = 0.65 + 0.35 * np.maximum(np.einsum("kfn,k->fn", normals, LIGHT), 0.0)
    colours = np.clip(colour * light[..., None], 0, 255).astype(np.uint8)
    paint(image, polygon(camera, corners), colours)


def draw_balls(
    image: Pixels, camera: Camera, centres: Array, radii: Array, colours: Array, *, is_shadow: bool
) -> None:
    """Draw spheres, or the shadows of spheres.

    Args:
        image: (1, 3, H, W) picture.
        camera: Camera.
        centres: (n, 3) centres, from the farthest to the nearest; for shadows, on the ground.
        radii: (n,) radii.
        colours: (n, 3) colours.
        is_shadow: Whether to draw shadows.
    """
    if is_shadow:
        flat = np.maximum(radii * 0.8, 1e-3)
        dark = np.broadcast_to(GROUND[1] * 0.8, (len(centres), 1, 3)).astype(np.uint8)
        angles = np.linspace(0.0, -2.0 * np.pi, 12, endpoint=False)
        circle = np.stack([np.cos(angles), np.zeros(12), np.sin(angles)])  # (3, 12)
        corners = centres.T[:, None, :, None] + circle[:, :, None, None] * flat[:, None]
        paint(image, polygon(camera, corners), dark)
        return
    # Each sphere is drawn several times: smaller, brighter and nearer to the light.
    step = np.linspace(0.0, 0.75, SHADES)
    many = centres[:, None] + (radii[:, None] * step * 0.6)[..., None] * LIGHT
    size = radii[:, None] * (1.0 - step)
    bright = colours[:, None] * (0.62 + 0.5 * step)[:, None]
    runs = sphere(camera, many.reshape(-1, 3).T[..., None], size.reshape(-1, 1))
    paint(image, runs, np.clip(bright, 0, 255).reshape(-1, 1, 3).astype(np.uint8))
