"""Visual Food Collector: gather good food, seen by a camera."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_sim.examples.food_collector import (
    ACTIONS,
    FOOD_RADIUS_M,
    GOOD,
    WALLS_M,
    FoodCollector,
)
from mlagents_sim.planar import Array, X, Z, in_frame
from mlagents_sim.raster import Camera, Pixels, Runs, box_faces, paint, polygon, sphere
from mlagents_sim.world import Agents

SIZE = 84
HALF_VIEW_RAD = math.radians(30.0)
PICTURE = ObservationSpec(
    (3, SIZE, SIZE),
    (
        DimensionProperty.NONE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    ),
    ObservationType.DEFAULT,
    "CameraSensor",
    np.dtype(np.uint8),
)
CAMERA = Camera.perspective(
    np.zeros((3, 1)),
    np.eye(3)[:, :, None],
    field_of_view_rad=2.0 * HALF_VIEW_RAD,
    height=SIZE,
    width=SIZE,
)
"""Sees what is given to its right, up and ahead."""
WALL_HEIGHT_M = 4.0

SKY, FLOOR, WALL = (
    np.array(colour, np.uint8) for colour in ([196, 216, 232], [205, 195, 170], [120, 120, 125])
)
GOOD_FOOD, BAD_FOOD, AGENT, FROZEN = (
    np.array(colour, np.uint8)
    for colour in ([102, 189, 107], [191, 59, 38], [33, 150, 243], [225, 235, 245])
)


class VisualFoodCollector(FoodCollector):
    """Two areas of four agents as those of `GridFoodCollector`, who see by a camera.

    Observations: two sensors.
        1. (3, 84, 84), of 8 bit: red, green and blue of what a camera sees that looks ahead from
           the agent's centre and sees 60 degrees. Good food is green and bad food red, agents are
           blue and frozen ones nearly white. Lasers are not seen.
        2. 1 number: 1 if frozen, else 0.
    All else is as there.

    Source: example environments, section 2, task 10. Where the camera is, the colours and the
    height of the walls, 4 m, are not published, and ours.
    """

    behavior_name = "VisualFoodCollector?team=0"
    behavior_spec = BehaviorSpec(
        [PICTURE, ObservationSpec.vector(1, "VectorSensor_size1")],
        ACTIONS,
    )
    agents_per_area = 8
    n_members = 4

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return what the class describes."""
        area, member = self._area[agents], self._member[agents]
        frozen = (self.frozen[member, area] > 0).astype(np.float32)
        return [self._see(area, member), frozen[:, None]]

    def _see(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Pixels:
        """Draw what n agents see, (n, 3, H, W), what is farther before what is nearer."""
        pictures = np.empty((len(area), *PICTURE.shape), np.uint8)
        pictures[:] = SKY[:, None, None]
        pictures[:, :, SIZE // 2 :] = FLOOR[:, None, None]
        paint(pictures, self._walls(area, member), WALL)

        shapes = [self._food(area, member), self._others(area, member)]
        first, end, colour, distance = (
            np.concatenate(parts) for parts in zip(*shapes, strict=True)
        )
        # Shapes that are not seen come first; those that nobody sees are left out.
        is_seen = (end > 0).any(axis=2)
        order = np.where(is_seen, -distance, -np.inf).argsort(axis=0)
        order = order[len(order) - is_seen.sum(axis=0).max(initial=0) :, :, None]
        first, end, colour = (
            np.take_along_axis(array, order, axis=0) for array in (first, end, colour)
        )
        paint(pictures, Runs(first, end), colour)
        return pictures

    def _from_eyes(
        self, area: NDArray[np.intp], member: NDArray[np.intp], places: Array, height: float
    ) -> Array:
        """Return (3, K, n) how far right, up and ahead of agents' eyes (2, K, n) places are."""
        bodies = self.bodies
        apart = places - bodies.position[:, None, member, area]
        right, ahead = in_frame(bodies.heading[:, None, member, area], apart)
        up = np.broadcast_to(height - bodies.half[X, member, area], right.shape)
        return np.stack([right, up, ahead])

    def _walls(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Runs:
        """Find the pixels of the four walls."""
        # Where they meet, clockwise as seen from above, so that each is left of the next.
        corner = np.array([[-1.0, 1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]) * WALLS_M
        bottom, top = (
            self._from_eyes(area, member, corner[:, :, None], height)
            for height in (0.0, WALL_HEIGHT_M)
        )
        right_bottom, right_top = (np.roll(edge, -1, axis=1) for edge in (bottom, top))
        return polygon(CAMERA, np.stack([bottom, top, right_top, right_bottom], axis=1))

    def _food(
        self, area: NDArray[np.intp], member: NDArray[np.intp]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16], Pixels, Array]:
        """Return first and end of `Runs`, colours and distances of the food that may be seen."""
        place = self._from_eyes(area, member, self.food[:, :, area], FOOD_RADIUS_M)
        right, _, ahead = place
        # A sphere is seen if it reaches over the planes at either side of the picture.
        beyond = np.abs(right) * math.cos(HALF_VIEW_RAD) - ahead * math.sin(HALF_VIEW_RAD)
        is_near = (beyond < FOOD_RADIUS_M) & (self.falling[:, area] == 0)
        most = is_near.sum(axis=0).max(initial=0)
        food = (~is_near).argsort(axis=0, kind="stable")[:most]
        place = np.take_along_axis(place, food[None], axis=1)
        is_near = np.take_along_axis(is_near, food, axis=0)
        first, end = sphere(CAMERA, place, np.full(food.shape, FOOD_RADIUS_M))
        first, end = first * is_near[..., None], end * is_near[..., None]
        colour = np.where(GOOD[food][..., None], GOOD_FOOD, BAD_FOOD)
        return first, end, colour, np.sqrt((place * place).sum(axis=0))

    def _others(
        self, area: NDArray[np.intp], member: NDArray[np.intp]
    ) -> tuple[NDArray[np.int16], NDArray[np.int16], Pixels, Array]:
        """Return the same of the faces of the other agents."""
        bodies = self.bodies
        n, k = len(area), self.n_members - 1
        other = (member + np.arange(1, self.n_members)[:, None]) % self.n_members  # (k, n)
        half = bodies.half[X, other, area]
        centre = self._from_eyes(area, member, bodies.position[:, other, area], 0.0)
        centre[1] += half
        ahead = in_frame(bodies.heading[:, None, member, area], bodies.heading[:, other, area])
        zero, one = np.zeros((k, n)), np.ones((k, n))
        axes = np.array(
            [[ahead[Z], zero, ahead[X]], [zero, one, zero], [-ahead[X], zero, ahead[Z]]]
        )
        corners, _ = box_faces(
            centre.reshape(3, k * n), (axes * half).reshape(3, 3, k * n), np.ones(3)
        )
        faces = polygon(CAMERA, corners.reshape(3, 4, 6 * k, n))
        colour = np.where((self.frozen[other, area] > 0)[..., None], FROZEN, AGENT)
        distance = np.sqrt((centre * centre).sum(axis=0))
        return (*faces, np.tile(colour, (6, 1, 1)), np.tile(distance, (6, 1)))
