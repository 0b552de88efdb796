"""Visual Food Collector: gather good food that is observed by a camera."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.base_env import (
    BehaviorSpec,
    ObservationSpec,
)
from mlagents_sim.examples.food_collector import (
    ACTIONS,
    FoodCollector,
)
from mlagents_sim.examples.food_floors import FOOD_RADIUS_M, GOOD, WALLS_M
from mlagents_sim.native_planar import Pool
from mlagents_sim.plane import Array, X, Z, in_frame
from mlagents_sim.raster import Camera, Pixels, Runs, box_faces, paint, polygon, sphere
from mlagents_sim.world import Agents

SIZE = 84
HALF_VIEW_RAD = math.radians(30.0)
PICTURE = ObservationSpec.image((3, SIZE, SIZE), "CameraSensor")
CAMERA = Camera.perspective(
    np.zeros((3, 1)),
    np.eye(3)[:, :, None],
    field_of_view_rad=2.0 * HALF_VIEW_RAD,
    height=SIZE,
    width=SIZE,
)
"""Sees what is given to its right, up and ahead."""
WALL_HEIGHT_M = 4.0
CORNERS = np.array([[-1.0, 1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]) * WALLS_M
"""(2, 4) where walls meet, clockwise as seen from above, so that each is left of the next."""
# Of each wall, in columns, at the lower left, then clockwise as seen from inside.
WALL_CORNERS = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 0], [1, 2, 3, 0]])

SKY, FLOOR, WALL = (
    np.array(color, np.uint8) for color in ([196, 216, 232], [205, 195, 170], [120, 120, 125])
)
GOOD_FOOD, BAD_FOOD, AGENT, FROZEN = (
    np.array(color, np.uint8)
    for color in ([102, 189, 107], [191, 59, 38], [33, 150, 243], [225, 235, 245])
)


BACKGROUND = np.empty(PICTURE.shape, np.uint8)
BACKGROUND[:, : SIZE // 2] = SKY[:, None, None]
BACKGROUND[:, SIZE // 2 :] = FLOOR[:, None, None]


class Faces(NamedTuple):
    """S flat shapes, each seen by one of n agents.

    Attributes:
        agent: (S,) indices of the agents that see them.
        corners: (3, 4, S) from the agents' eyes to the right, up and ahead; clockwise.
        color: (S, 3) colors.
        distance: (S,) to what they belong to; what is farther is painted first.
    """

    agent: NDArray[np.intp]
    corners: Array
    color: Pixels
    distance: Array


class VisualFoodCollector(FoodCollector):
    """Two areas of four agents as in `GridFoodCollector`, which observe with a camera.

    Observations: two sensors.
        1. (3, 84, 84), 8-bit: the RGB image of a camera at the agent's center that looks ahead,
           with a field of view of 60 degrees. Good food is green and bad food red; agents are blue
           and frozen agents nearly white. Lasers are invisible.
        2. 1 number: 1 if frozen, else 0.
    All else is as in `GridFoodCollector`.

    The position of the camera, the colors and the height of the walls, 4 m, are not published.
    This world chooses its own.
    """

    behavior_name = "VisualFoodCollector?team=0"
    behavior_spec = BehaviorSpec(
        [PICTURE, ObservationSpec.vector(1, "VectorSensor_size1")],
        ACTIONS,
    )
    agents_per_area = 8
    n_members = 4

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._pool = Pool()

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observations that the class describes."""
        area, member = self._area[agents], self._member[agents]
        frozen = (self.frozen[member, area] > 0).astype(np.float32)
        return [self._see(area, member), frozen[:, None]]

    def _see(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Pixels:
        """Draw the views of n agents, (n, 3, H, W), from far to near."""
        pictures = self._pool.empty((len(area), *PICTURE.shape), np.uint8)
        pictures[:] = BACKGROUND

        walls, others = self._walls(area, member), self._others(area, member)
        faces = polygon(CAMERA, np.concatenate([walls.corners, others.corners], axis=2)[:, :, None])
        agent, place, color = self._food(area, member)
        food = sphere(CAMERA, place[:, None], np.full((1, len(agent)), FOOD_RADIUS_M))

        to_food = np.sqrt((place * place).sum(axis=0))
        distance = np.concatenate([walls.distance, others.distance, to_food])
        order = np.argsort(-distance, kind="stable")
        runs = Runs(
            np.concatenate([faces.first, food.first], axis=1),
            np.concatenate([faces.end, food.end], axis=1),
        )
        color = np.concatenate([walls.color, others.color, color])
        paint(pictures, runs, color, np.concatenate([walls.agent, others.agent, agent]), order)
        return pictures

    def _from_eyes(
        self, area: NDArray[np.intp], member: NDArray[np.intp], places: Array, height: ArrayLike
    ) -> Array:
        """Return (3, K, n) how far right, up and ahead of agents' eyes (2, K, n) places are."""
        bodies = self.bodies
        apart = places - bodies.position[:, None, member, area]
        found = np.empty((3, *apart.shape[1:]))
        found[0], found[2] = in_frame(bodies.heading[:, None, member, area], apart)
        found[1] = np.subtract(height, self.floors.heights(area, member))
        return found

    def _walls(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Faces:
        """Return the four walls, which are behind everything else."""
        n = len(area)
        bottom = self._from_eyes(area, member, CORNERS[:, :, None], 0.0)
        corners = bottom.take(WALL_CORNERS, axis=1)  # (3, 4, walls, n)
        corners[1, 1:3] += WALL_HEIGHT_M
        return Faces(
            np.arange(4 * n) % n,
            corners.reshape(3, 4, 4 * n),
            np.repeat(WALL[None], 4 * n, axis=0),
            np.full(4 * n, np.inf),
        )

    def _food(
        self, area: NDArray[np.intp], member: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], Array, Pixels]:
        """Return (S,) who may see food, (3, S) where, from their eyes, and (S, 3) its color."""
        place = self._from_eyes(area, member, self.food[:, :, area], FOOD_RADIUS_M)
        is_near = _may_be_seen(place, FOOD_RADIUS_M) & (self.falling[:, area] == 0)
        food, agent = is_near.nonzero()
        return agent, place[:, food, agent], np.where(GOOD[food, None], GOOD_FOOD, BAD_FOOD)

    def _others(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Faces:
        """Return the faces of the other agents that may be seen."""
        bodies = self.bodies
        other = (member + np.arange(1, self.n_members)[:, None]) % self.n_members  # (k, n)
        half = bodies.half[X, other, area]
        center = self._from_eyes(
            area, member, bodies.position[:, other, area], self.floors.heights(area, other)
        )
        which, agent = _may_be_seen(center, half * math.sqrt(2.0)).nonzero()
        other, half, center = other[which, agent], half[which, agent], center[:, which, agent]
        area, member = area[agent], member[agent]
        ahead = in_frame(bodies.heading[:, member, area], bodies.heading[:, other, area])
        axes = np.zeros((3, 3, len(other)))
        axes[0, 0], axes[2, 0] = ahead[Z], -ahead[X]
        axes[1, 1] = 1.0
        axes[0, 2], axes[2, 2] = ahead
        corners, _ = box_faces(center, axes * half, np.ones(3))  # (3, 4, 6, agents seen)
        color = np.where(self.frozen[other, area, None] > 0, FROZEN, AGENT)
        distance = np.sqrt((center * center).sum(axis=0))
        return Faces(
            np.concatenate([agent] * 6),
            corners.reshape(3, 4, -1),
            np.concatenate([color] * 6),
            np.concatenate([distance] * 6),
        )


def _may_be_seen(place: Array, reach: float | Array) -> NDArray[np.bool_]:
    """Return whether what is so large reaches over the planes at either side of the picture."""
    right, _, ahead = place
    beyond = np.abs(right) * math.cos(HALF_VIEW_RAD) - ahead * math.sin(HALF_VIEW_RAD)
    may_be: NDArray[np.bool_] = beyond < reach
    return may_be
