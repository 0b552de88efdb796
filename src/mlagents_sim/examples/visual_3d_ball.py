"""Visual3DBall: 3DBall with images as observations."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    ObservationSpec,
)
from mlagents_sim.examples.ball_3d import (
    ASIDE,
    HALF_EDGE_M,
    POSITION,
    Ball3D,
    X,
    Y,
    Z,
    rotation_matrix,
)
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.raster import (
    Array,
    Camera,
    Pixels,
    Runs,
    box_faces,
    paint,
    pixels,
    polygon,
    sphere,
)
from mlagents_sim.world import Agents

FRAMES = 4
SIZE = 84
PICTURE = ObservationSpec.image((3, SIZE, SIZE), "CameraSensor")
PAINTED_AT_ONCE = 128
"""Pictures painted together. More would spend the time on new memory."""

EYE_M = np.array([[0.0], [7.0], [-8.0]])
_SINE, _COSINE = math.sin(math.radians(30.0)), math.cos(math.radians(30.0))
CAMERA = Camera.perspective(
    EYE_M,
    np.array([[1.0, 0.0, 0.0], [0.0, _COSINE, -_SINE], [0.0, _SINE, _COSINE]])[:, :, None],
    field_of_view_rad=math.radians(60.0),
    height=SIZE,
    width=SIZE,
)
RAYS = CAMERA.rays().reshape(3, -1)  # (3, H * W)

# Light and colors, as a policy trained in Unity has to see them.
LIGHT = np.array([0.542, 0.643, -0.542])
"""Direction to the light: to the right, up, and back to the camera's side."""
AMBIENT, DIFFUSE, GLOW = 0.68, 0.61, 0.12
CUBE_AND_BAND_ALBEDO = np.array([[33.0, 150.0, 243.0], [250.0, 166.0, 41.0]])
BALL_ALBEDO = 200.0
"""Gray, instead of the checkered texture of the ball in Unity."""
RAYS_TO_LIGHT = LIGHT @ RAYS  # (H * W,)

# The cube with a headband around it, by the cube's own axes.
BAND_HALF_EDGES_M = np.array([1.044, 0.193, 1.044]) * HALF_EDGE_M
BAND_CENTER_M = np.array([0.0, 0.341, 0.0]) * 2 * HALF_EDGE_M


def _quads(eye_side: tuple[int, int]) -> Array:
    """Return the corners, (3, 4, 9), of what an eye may see.

    The four pieces of the headband's rim: those on the eye's side along x and along z, and those on
    the other side; a side, the top and a side of the cube; two sides of the headband.

    Args:
        eye_side: Side of the cube on which the eye is along x and along z: 1, or -1.
    """

    def faces(middle: Array, half_edges: Array) -> Array:
        return box_faces(middle[:, None], np.eye(3)[:, :, None], half_edges)[0][..., 0]

    def rim(axis: int, side: int) -> Array:
        middle, half_edges = BAND_CENTER_M.copy(), BAND_HALF_EDGES_M.copy()
        middle[axis] = side * (BAND_HALF_EDGES_M[axis] + HALF_EDGE_M) / 2
        half_edges[axis] = (BAND_HALF_EDGES_M[axis] - HALF_EDGE_M) / 2
        top: Array = faces(middle, half_edges)[..., Y]
        return top

    # The faces of a box point along x, y, z, -x, -y and -z.
    side_x, side_z = (
        axis if side > 0 else axis + 3 for axis, side in zip((X, Z), eye_side, strict=True)
    )
    cube, band = (
        faces(np.zeros(3), np.full(3, HALF_EDGE_M)),
        faces(BAND_CENTER_M, BAND_HALF_EDGES_M),
    )
    rims = [
        rim(axis, way * side)
        for way in (1, -1)
        for axis, side in zip((X, Z), eye_side, strict=True)
    ]
    return np.concatenate(
        [np.stack(rims, axis=-1), cube[..., [side_x, Y, side_z]], band[..., [side_x, side_z]]],
        axis=-1,
    )


QUADS = np.stack([_quads((x, z)) for x in (1, -1) for z in (1, -1)], axis=-1)  # (3, 4, 9, 4)
"""From the farthest to the nearest, except for rims on the eye's side, which may be before the cube
or behind it. They are painted first or last."""
EYE_SIDE_RIMS, CUBE, BAND = slice(0, 2), slice(4, 7), slice(7, 9)
N_PAINTED = 11


def lit(albedo: Array | float, cosine: Array) -> Array:
    """Return the colors, of 255, of surfaces at some cosine of the angle to the light.

        color = albedo * (ambient + diffuse * max(cosine, 0)) + glow

    Colors are those of the picture, so not linear in the light that they stand for.
    """
    brightness = AMBIENT + DIFFUSE * np.maximum(cosine, 0.0)
    colors: Array = np.minimum(albedo * brightness + GLOW * 255.0, 255.0)
    return colors


class Visual3DBall(Ball3D):
    """Eight balls, each on a cube of 5 m that its agent turns and observes with a camera.

    Observation: (12, 84, 84), 8-bit: red, green and blue of the last 4 decisions, oldest first;
        zeros for those before the episode. The camera is 7 m above and 8 m in front of the cube's
        center, looks down by 30 degrees and has a field of view of 60 degrees. The cube is blue
        with an orange headband, the ball is gray, and the background is black.

    Actions, decisions, reward, ends, interruptions, parameters and the reward of a good policy are
    those of 3DBall.
    """

    behavior_name = "Visual3DBall?team=0"
    behavior_spec = BehaviorSpec([stacked(PICTURE, FRAMES)], ActionSpec.create_continuous(2))
    agents_per_area = 8

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._pictures = FrameStack(PICTURE, FRAMES, self.n_agents)

    def begin(self, agents: Agents) -> None:
        """Begin as in 3DBall, with cleared frames."""
        super().begin(agents)
        self._pictures.clear(agents)

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observation that the class describes."""
        return [self._pictures.add(agents, self._see(agents))]

    def _see(self, agents: Agents) -> Pixels:
        """Draw the views of n agents, (n, 3, H, W)."""
        frame = rotation_matrix(self.cube[:, agents])
        n = frame.shape[2]
        pictures = np.zeros((n, *PICTURE.shape), np.uint8)  # the background is black
        eye = np.einsum("rcn,r->cn", frame, EYE_M[:, 0])
        ball, radius = self.ball[POSITION][:, agents], self._radius[agents]
        for start in range(0, n, PAINTED_AT_ONCE):
            rows = slice(start, start + PAINTED_AT_ONCE)
            some, its_frame, its_eye = pictures[rows], frame[:, :, rows], eye[:, rows]
            _paint_cubes(some, its_frame, its_eye)
            _paint_balls(some, its_frame, its_eye, ball[:, rows], radius[rows])
        return pictures


def _paint_cubes(pictures: Pixels, frame: Array, eye: Array) -> None:
    """Paint the cubes and their headbands.

    Args:
        pictures: (n, 3, H, W) pictures, changed in place.
        frame: (3, 3, n) the cubes' axes, in columns.
        eye: (3, n) the camera by these axes, above the bottom of the headband.
    """
    aside = eye[ASIDE]
    is_left = aside < 0.0
    corners = np.einsum("rcn,ckfn->rkfn", frame, QUADS[..., is_left.T @ (2, 1)])
    runs = polygon(CAMERA, corners)
    # A rim is before the cube where the eye is beyond the face that bears it.
    is_before = (np.abs(aside) > HALF_EDGE_M)[..., None]
    rims, rims_end = runs.first[EYE_SIDE_RIMS], runs.end[EYE_SIDE_RIMS]
    first = np.concatenate([runs.first, rims])
    end = np.concatenate([runs.end, rims_end * is_before])
    end[EYE_SIDE_RIMS] *= ~is_before

    cosines = LIGHT.dot(frame.reshape(3, -1)).reshape(3, -1)  # of a side, the top and a side
    cosines[ASIDE] *= np.where(is_left, -1.0, 1.0)
    of_cube, of_band = lit(CUBE_AND_BAND_ALBEDO[:, None, None], cosines[..., None])
    colors = np.empty((N_PAINTED, len(pictures), 3), np.uint8)
    colors[:] = of_band[Y]  # the rims
    colors[CUBE], colors[BAND] = of_cube, of_band[ASIDE]
    paint(pictures, Runs(first, end), colors)


def _paint_balls(pictures: Pixels, frame: Array, eye: Array, center: Array, radius: Array) -> None:
    """Paint the balls into pictures of the cubes.

    Args:
        pictures: (n, 3, H, W) pictures, changed in place.
        frame: (3, 3, n) the cubes' axes, in columns.
        eye: (3, n) the camera by these axes.
        center: (3, n) centers of the balls, relative to the cubes' centers.
        radius: (n,) radii of the balls.
    """
    # Between a ball and a cube lies a plane through the point of the cube nearest to the ball.
    # A ball on the eye's side of it is before the cube.
    by_cube = np.einsum("rcn,rn->cn", frame, center)
    nearest = np.minimum(np.maximum(by_cube, -HALF_EDGE_M), HALF_EDGE_M)
    is_before = ((by_cube - nearest) * (eye - nearest)).sum(axis=0) > 0.0

    agent, pixel = pixels(sphere(CAMERA, center[:, None], radius[None]), SIZE)
    flat = pictures.reshape(-1)
    at = agent * (3 * SIZE**2) + pixel
    if not is_before.all():
        is_seen = is_before[agent] | (flat[at] == 0)  # background
        agent, pixel, at = agent[is_seen], pixel[is_seen], at[is_seen]
    # A ray meets a sphere where |distance * ray - to_center| = radius.
    to_center = center - EYE_M
    outside = (to_center * to_center).sum(axis=0) - radius * radius
    ahead = np.einsum("cp,cp->p", RAYS.take(pixel, axis=1), to_center.take(agent, axis=1))
    distance = ahead - np.sqrt(np.maximum(ahead * ahead - outside[agent], 0.0))
    cosine = (RAYS_TO_LIGHT[pixel] * distance - (LIGHT @ to_center)[agent]) / radius[agent]
    gray = lit(BALL_ALBEDO, cosine).astype(np.uint8)
    for channel in range(3):
        flat[channel * SIZE**2 :][at] = gray
