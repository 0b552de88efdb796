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
from mlagents_sim.examples.ball_3d import HALF_EDGE_M, LIGHT, POSITION, Ball3D, rotation_matrix
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.raster import Camera, Pixels, Runs, box_faces, paint, polygon, sphere
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
SKY_COLOUR = np.array([196, 216, 232], np.uint8)
CUBE_COLOUR, BALL_COLOUR = np.array([64.0, 128.0, 217.0]), np.array([250, 158, 51], np.uint8)
SHADE = 0.5
"""Brightness of a face that is turned away from the light."""


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
        ball = self.ball[POSITION][:, agents]
        n = ball.shape[1]
        corners, normals = box_faces(np.zeros((3, n)), frame, np.full(3, HALF_EDGE_M))
        brightness = SHADE + (1.0 - SHADE) * np.maximum(np.einsum("c,cfn->fn", LIGHT, normals), 0.0)
        # What is beyond a face that the eye is beyond, too, is before the cube.
        is_beyond = np.einsum("cfn,cn->fn", normals, ball) > HALF_EDGE_M
        is_before = (is_beyond & (np.einsum("cfn,cn->fn", normals, EYE_M) > HALF_EDGE_M)).any(
            axis=0
        )

        ball_first, ball_end = sphere(CAMERA, ball[:, None], self._radius[None, agents])
        face_first, face_end = polygon(CAMERA, corners)
        before = is_before[:, None]
        runs = Runs(
            np.concatenate([ball_first * ~before, face_first, ball_first * before]),
            np.concatenate([ball_end * ~before, face_end, ball_end * before]),
        )
        colours = np.empty((8, n, 3), np.uint8)
        colours[[0, 7]] = BALL_COLOUR
        colours[1:7] = brightness[..., None] * CUBE_COLOUR

        pictures = np.empty((n, *PICTURE.shape), np.uint8)
        pictures[:] = SKY_COLOUR[:, None, None]
        paint(pictures, runs, colours)
        return pictures
