"""Pictures of cubes and balls: one ray per pixel, in metres and by the axes of the world."""

import math

import numpy as np
from numpy.typing import NDArray

from mlagents_sim.planar import Array
from mlagents_sim.rolling import BallsOnCubes, rotation_matrix

EYE = np.array([0.0, 10.0, -8.5])
VIEW = np.array([0.0, -0.7, 0.714])
FIELD_OF_VIEW = 0.42  # tangent of half the angle
LIGHT = np.array([-0.42, 0.84, -0.34])
SKY, HORIZON = np.array([0.36, 0.52, 0.70]), np.array([0.80, 0.87, 0.93])
CUBE_COLOUR, BALL_COLOUR = np.array([0.25, 0.50, 0.85]), np.array([0.98, 0.62, 0.20])


def draw(bodies: BallsOnCubes, half_edge: float) -> NDArray[np.uint8]:
    """Return a picture with a tile for every cube, together about (480, 640, 3).

    Args:
        bodies: Cubes and balls.
        half_edge: Half the edge of a cube, in m.
    """
    n = len(bodies.radius)
    columns = math.ceil(math.sqrt(n * 4 / 3))
    rows = math.ceil(n / columns)
    size = max(640 // columns, 1)
    frames, centres = rotation_matrix(bodies.cube), bodies.ball_offset()
    tiles = np.zeros((rows * columns, size, size, 3), np.uint8)
    for k, radius in enumerate(bodies.radius):
        tiles[k] = _picture(frames[:, :, k], half_edge, centres[:, k], radius, size)
    picture = tiles.reshape(rows, columns, size, size, 3).swapaxes(1, 2)
    return picture.reshape(rows * size, columns * size, 3)


def _picture(
    frame: Array, half_edge: float, centre: Array, radius: float, size: int
) -> NDArray[np.uint8]:
    """Return a (size, size, 3) picture of a cube with axes `frame`, (3, 3), and a ball."""
    across = np.linspace(-FIELD_OF_VIEW, FIELD_OF_VIEW, size)
    right, up = np.meshgrid(across, -across)
    overhead = np.cross(VIEW, (1.0, 0.0, 0.0))
    ray = VIEW + right[..., None] * (1.0, 0.0, 0.0) + up[..., None] * overhead
    ray /= np.linalg.norm(ray, axis=-1, keepdims=True)  # (size, size, 3)

    to_cube, face = _to_cube(EYE @ frame, ray @ frame, half_edge)
    to_ball = _to_ball(EYE - centre, ray, radius)
    height = np.linspace(1.0, 0.0, size)[:, None, None]
    colour = np.broadcast_to(HORIZON + (SKY - HORIZON) * height, ray.shape).copy()

    seen = to_cube < to_ball
    point = EYE + ray[seen] * to_cube[seen, None]
    in_shade = np.isfinite(_to_ball(point - centre, LIGHT, radius))
    # Squares are half a metre. The outermost are cut, so that no face lies between two layers.
    squares = np.floor(point @ frame * 1.98).sum(axis=-1) % 2
    brightness = 0.45 + 0.55 * np.maximum(face[seen] @ frame.T @ LIGHT, 0.0) * ~in_shade
    colour[seen] = CUBE_COLOUR * (brightness * (1.0 + 0.12 * squares))[:, None]

    seen = np.isfinite(to_ball) & ~seen
    normal = (EYE + ray[seen] * to_ball[seen, None] - centre) / radius
    brightness = normal @ LIGHT
    shine = np.maximum(normal @ _unit(LIGHT - VIEW), 0.0) ** 40
    colour[seen] = BALL_COLOUR * (0.55 + 0.45 * brightness)[:, None] + 0.5 * shine[:, None]
    return (colour.clip(0.0, 1.0) * 255).astype(np.uint8)


def _to_cube(eye: Array, ray: Array, half_edge: float) -> tuple[Array, Array]:
    """Return each ray's distance to the cube, infinite for a miss, and the normal there.

    All vectors are by the cube's axes. A ray is inside between the latest entry and the earliest
    exit of the three pairs of faces.
    """
    with np.errstate(divide="ignore"):
        one, other = (-half_edge - eye) / ray, (half_edge - eye) / ray
    entries = np.minimum(one, other)
    axis = entries.argmax(axis=-1)[..., None]
    entry = entries.max(axis=-1)
    distance = np.where(entry < np.maximum(one, other).min(axis=-1), entry, np.inf)
    normal = np.zeros_like(ray)
    np.put_along_axis(normal, axis, -np.sign(np.take_along_axis(ray, axis, -1)), -1)
    return distance, normal


def _to_ball(start: Array, ray: Array, radius: float) -> Array:
    """Return each ray's distance to a ball at the origin, infinite for a miss."""
    nearest = -np.sum(start * ray, axis=-1)
    inside = radius**2 - np.sum(start * start, axis=-1) + nearest**2
    distance = nearest - np.sqrt(np.maximum(inside, 0.0))
    return np.where((inside > 0.0) & (distance > 0.0), distance, np.inf)


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)
