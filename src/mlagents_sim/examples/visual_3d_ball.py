"""Visual3DBall: 3DBall for agents that see pictures."""

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
from mlagents_sim.examples.ball_3d import HALF_EDGE_M, POSITION, Ball3D, Y, rotation_matrix
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.raster import Array, Camera, Pixels, box_faces, paint, pixels, polygon, sphere
from mlagents_sim.world import Agents

FRAMES = 4
SIZE = 84
PICTURE = ObservationSpec.image((3, SIZE, SIZE), "CameraSensor")

EYE_M = np.array([[0.0], [7.0], [-8.0]])
_SINE, _COSINE = math.sin(math.radians(30.0)), math.cos(math.radians(30.0))
CAMERA = Camera.perspective(
    EYE_M,
    np.array([[1.0, 0.0, 0.0], [0.0, _COSINE, -_SINE], [0.0, _SINE, _COSINE]])[:, :, None],
    field_of_view_rad=math.radians(60.0),
    height=SIZE,
    width=SIZE,
)
RAYS = CAMERA.rays()  # (3, H, W)

# Light and colours, as a policy trained in Unity has to see them.
LIGHT = np.array([0.542, 0.643, -0.542])
"""Direction to the light, which is behind the camera, above and to the right."""
AMBIENT, DIFFUSE, GLOW = 0.68, 0.61, 0.12
BACKGROUND = 0
CUBE_ALBEDO, BAND_ALBEDO = np.array([33.0, 150.0, 243.0]), np.array([250.0, 166.0, 41.0])
BALL_ALBEDO = np.array([200.0, 200.0, 200.0])
"""Mean of the chequers that the ball bears in Unity."""

# The cube with a headband around it, by the cube's own axes: three boxes on top of each other.
BAND_HALF_EDGES_M = np.array([1.044, 0.193, 1.044]) * HALF_EDGE_M
BAND_CENTRE_M = 0.341 * 2 * HALF_EDGE_M
BAND_BOTTOM_M, BAND_TOP_M = BAND_CENTRE_M + BAND_HALF_EDGES_M[1] * np.array([-1.0, 1.0])


def _box(half_width_m: float, bottom_m: float, top_m: float) -> Array:
    """Return the corners, (3, 4, 6), of the faces of a box around the y axis."""
    centre = np.array([[0.0], [(bottom_m + top_m) / 2], [0.0]])
    half_edges = np.array([half_width_m, (top_m - bottom_m) / 2, half_width_m])
    return box_faces(centre, np.eye(3)[:, :, None], half_edges)[0][..., 0]


BELOW, BAND, ABOVE = range(3)
BOXES = np.stack(
    [
        _box(HALF_EDGE_M, -HALF_EDGE_M, BAND_BOTTOM_M),
        _box(BAND_HALF_EDGES_M[0], BAND_BOTTOM_M, BAND_TOP_M),
        _box(HALF_EDGE_M, BAND_TOP_M, HALF_EDGE_M),
    ],
    axis=2,
)  # (3, 4, boxes, faces)


def lit(albedo: Array, normals: Array) -> Array:
    """Return the colours, (n, 3) of 255, of surfaces with these normals, (3, n).

        colour = albedo * (ambient + diffuse * max(normal * light, 0)) + glow

    Colours are those of the picture, so not linear in the light that they stand for.
    """
    brightness = AMBIENT + DIFFUSE * np.maximum(LIGHT @ normals, 0.0)
    colours: Array = np.minimum(albedo * brightness[:, None] + GLOW * 255.0, 255.0)
    return colours


class Visual3DBall(Ball3D):
    """Eight balls, each on a cube of 5 m that its agent turns and sees from a camera.

    Observation: (12, 84, 84), of 8 bit: red, green and blue of the last 4 decisions, the oldest
        first, zeros for those before the episode. The camera is 7 m above and 8 m before the
        cube's centre, looks down by 30 degrees and sees 60 degrees.

    Actions, decisions, reward, ends, interruptions, parameters and the reward of a good policy are
    those of 3DBall. Source: example environments, section 2, task 2.
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
        """Begin as in 3DBall, with nothing seen."""
        super().begin(agents)
        self._pictures.clear(agents)

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return what the class describes."""
        return [self._pictures.add(agents, self._see(agents))]

    def _see(self, agents: Agents) -> Pixels:
        """Draw what n agents see, (n, 3, H, W)."""
        frame = rotation_matrix(self.cube[:, agents])
        ball, radius = self.ball[POSITION][:, agents], self._radius[agents]
        n = ball.shape[1]
        pictures = np.full((n, *PICTURE.shape), BACKGROUND, np.uint8)
        eye_by_cube = np.einsum("rcn,r->cn", frame, EYE_M[:, 0])
        ball_by_cube = np.einsum("rcn,rn->cn", frame, ball)
        # Between a ball and a cube lies a plane through the point of the cube nearest to the ball.
        # A ball on the eye's side of it is before the cube.
        nearest = np.clip(ball_by_cube, -HALF_EDGE_M, HALF_EDGE_M)
        eye_side = np.einsum("cn,cn->n", ball_by_cube - nearest, eye_by_cube - nearest)
        is_before = eye_side > 0.0
        _paint_balls(pictures, ball, radius, np.flatnonzero(~is_before))
        self._paint_cubes(pictures, frame, eye_by_cube)
        _paint_balls(pictures, ball, radius, np.flatnonzero(is_before))
        return pictures

    @staticmethod
    def _paint_cubes(pictures: Pixels, frame: Array, eye_by_cube: Array) -> None:
        """Paint cubes and headbands with these axes, (3, 3, n), seen from (3, n) of them."""
        n = len(pictures)
        normals = np.concatenate([frame, -frame], axis=1).reshape(3, -1)
        cube, band = (
            lit(albedo, normals).reshape(6, n, 3) for albedo in (CUBE_ALBEDO, BAND_ALBEDO)
        )
        colours = np.stack([cube, band, cube]).astype(np.uint8)  # (boxes, faces, n, 3)
        corners = np.einsum("rcn,ckbf->rkbfn", frame, BOXES)
        # From the farthest box to the nearest: upward, except that an eye below the top of the
        # headband sees it before what is above. No eye is below the headband.
        is_low = eye_by_cube[Y] < BAND_TOP_M
        if is_low.any():
            corners[:, :, BAND:, :, is_low] = corners[:, :, :BELOW:-1][..., is_low]
            colours[BAND:, :, is_low] = colours[:BELOW:-1][:, :, is_low]
        runs = polygon(CAMERA, corners.reshape(3, 4, -1, n))
        paint(pictures, runs, colours.reshape(-1, n, 3))


def _paint_balls(pictures: Pixels, centre: Array, radius: Array, agents: NDArray[np.intp]) -> None:
    """Paint the balls, (3, n) from the cube's centre, of some of n agents."""
    if agents.size == 0:
        return
    centre, radius = centre[:, agents], radius[agents]
    seen = pixels(sphere(CAMERA, centre[:, None], radius[None]))
    # A ray meets the sphere where |distance * ray - (centre - eye)| = radius.
    ray, to_centre = RAYS[:, seen.row, seen.column], (centre - EYE_M)[:, seen.shape]
    ahead = np.einsum("cp,cp->p", ray, to_centre)
    miss = np.einsum("cp,cp->p", to_centre, to_centre) - ahead**2
    radius = radius[seen.shape]
    distance = ahead - np.sqrt(np.maximum(radius**2 - miss, 0.0))
    normals = (ray * distance - to_centre) / radius
    pictures[agents[seen.shape], :, seen.row, seen.column] = lit(BALL_ALBEDO, normals)
