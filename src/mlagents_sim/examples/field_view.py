"""What the rays of football players meet: ball, goals, walls and players.

Arrays and letters are those of `soccer_field`; R is the number of rays of a player.
"""

from ctypes import CDLL, POINTER, c_int, c_int64, c_void_p
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import FloatArray
from mlagents_native.library import Part
from mlagents_sim import native_planar
from mlagents_sim.examples.soccer_field import (
    BACK_M,
    BALL_HEIGHT_M,
    BALL_RADIUS_M,
    PLAYER_RADIUS_M,
    SIDE_M,
    Field,
    corner_walls,
    goal_walls,
)
from mlagents_sim.native_planar import address, require_memory, require_same
from mlagents_sim.plane import Array, Indices, X
from mlagents_sim.rays import Rays
from mlagents_sim.sensors import RaySensor

RAY_M, RAY_RADIUS_M, RAY_HEIGHT_M = 20.0, 0.5, 1.0

UNSEEN = -1
"""Tag of what a player does not see."""
BALL, LEFT_GOAL, RIGHT_GOAL, WALL, PLAYERS = range(5)
"""Columns of a table of tags; a column for each player follows from `PLAYERS` on."""


class FieldView:
    """The rays of players on all fields.

    Args:
        field: Players and ball of every field.
        sensor: Sensor that encodes what a ray meets.
        directions: (2, R) directions of the rays, right and ahead.
        tags: (M, 4 + M) tags by player: of the ball, the goals on the left and on the right, the
            walls, and every player; `UNSEEN` for what rays pass through. Of equally distant things,
            the first is seen.
        is_native: Whether the native library computes, if it is available.
    """

    def __init__(
        self,
        field: Field,
        sensor: RaySensor,
        directions: Array,
        tags: NDArray[np.integer],
        *,
        is_native: bool = True,
    ) -> None:
        self.functions = FIELD_VIEW.load() if is_native else None
        self._field, self._sensor = field, sensor
        self._directions = np.ascontiguousarray(directions)
        self._tags = tags.astype(np.int8)
        self._n_agents = field.heading[X].size
        walls = [*goal_walls(), *corner_walls(), *field.extra_walls]
        self._n_goal_boxes = len(goal_walls())
        self._center = np.array([wall.center for wall in walls]).T.copy()  # (2, K)
        self._half = np.array([wall.half for wall in walls]).T.copy()
        yaw = np.array([wall.yaw for wall in walls])
        self._heading = np.array([np.sin(yaw), np.cos(yaw)])
        self._targets = np.full(len(walls), WALL, np.int64)
        self._targets[: self._n_goal_boxes] = np.where(
            self._center[X, : self._n_goal_boxes] < 0.0, LEFT_GOAL, RIGHT_GOAL
        )

    @cached_property
    def shared(self) -> native_planar.FieldView:
        """The rays, as the native library knows them."""
        return native_planar.FieldView(
            field=self._field.shared,
            n_rays=self._directions.shape[1],
            n_tags=self._sensor.n_tags,
            n_boxes=len(self._targets),
            n_goal_boxes=self._n_goal_boxes,
            length=self._sensor.length,
            radius=RAY_RADIUS_M,
            player_m=_reach_m(PLAYER_RADIUS_M),
            ball_m=_reach_m(BALL_RADIUS_M),
            end_m=BACK_M - RAY_RADIUS_M,
            side_m=SIDE_M - RAY_RADIUS_M,
            directions=self._directions,
            tags=self._tags,
            center=self._center,
            half=self._half,
            heading=self._heading,
            targets=self._targets,
        )

    def observe(self, agents: slice | Indices) -> FloatArray:
        """Return the (n, R (tags + 2)) observations of n agents.

        Agent i is player i % M of field i // M.
        """
        if self.functions is not None:
            which = native_planar.indices(agents, self._n_agents)
            n = self._n_agents if which is None else len(which)
            size = self._directions.shape[1] * (self._sensor.n_tags + 2)
            seen = np.empty((n, size), np.float32)
            require_memory(self.functions.field_see(self.shared, address(which), n, address(seen)))
            return seen
        n_players = self._field.ball
        field, member = np.divmod(np.arange(self._n_agents)[agents], n_players)
        tags = self._tags[member].T  # (4 + M, n)
        travels = [
            np.where(tag == UNSEEN, np.inf, travel)
            for tag, travel in zip(tags, self._travels(field, member), strict=True)
        ]
        return self._sensor.observe(travels, list(tags))

    def _travels(self, field: Indices, member: Indices) -> list[Array]:
        """Return (R, n) distances to what n players see, infinite to themselves."""
        discs, n_players = self._field.discs, self._field.ball
        position = discs.position[:, :, field]
        place, heading = discs.position[:, member, field], self._field.heading[:, member, field]
        rays = Rays.cast(place, heading, self._directions)
        (to_ball,) = rays.to_discs(position[:, n_players:], _reach_m(BALL_RADIUS_M))
        to_players = rays.to_discs(position[:, :n_players], _reach_m(PLAYER_RADIUS_M))
        to_players[member, :, np.arange(len(member))] = np.inf
        faces = np.reshape([BACK_M, SIDE_M], (2, 1, 1)) - RAY_RADIUS_M
        straight = (np.copysign(faces, rays.direction) - rays.origin) * rays.inverse
        straight[straight < 0.0] = np.inf
        to_end, to_side = straight
        center, heading, half = (
            np.repeat(value[..., None], len(member), axis=2)
            for value in (self._center, self._heading, self._half)
        )
        boxes = rays.to_turned_boxes(center, heading, half, RAY_RADIUS_M)
        is_right = rays.direction[X] > 0.0
        to_goals = [
            np.minimum(
                np.where(is_right == (goal == RIGHT_GOAL), to_end, np.inf),
                boxes[self._targets == goal].min(axis=0),
            )
            for goal in (LEFT_GOAL, RIGHT_GOAL)
        ]
        to_wall = np.minimum(to_side, boxes[self._targets == WALL].min(axis=0))
        return [to_ball, *to_goals, to_wall, *to_players]


def _reach_m(radius: float) -> float:
    """Return how near to a ray the center of a ball at the players' height must be to be met."""
    return float(np.sqrt((RAY_RADIUS_M + radius) ** 2 - (RAY_HEIGHT_M - BALL_HEIGHT_M) ** 2))


def _declare(functions: CDLL) -> None:
    functions.field_see.argtypes = [POINTER(native_planar.FieldView), c_void_p, c_int64, c_void_p]
    functions.field_see.restype = c_int


def _check(functions: CDLL) -> None:
    """Compare the rays of some players with the reference.

    Raises:
        NativeError: A result differs.
    """
    rng = np.random.default_rng(0)
    field = Field(
        10, (-1, 1), forward=[1.0] * 2, aside=[1.0] * 2, kicks_always=[False] * 2, is_native=False
    )
    field.kick_off(np.arange(10), rng, gravity=9.81, z=np.array([-4.0, 4.0]), x=8.0)
    sensor = RaySensor(per_side=5, max_degrees=90.0, length=RAY_M, n_tags=6)
    tags = np.array([[0, 1, 2, 3, 4, 5], [0, 2, 1, 3, 5, 4]])
    view = FieldView(field, sensor, sensor.directions, tags, is_native=False)
    expected = view.observe(slice(None))
    view.functions = functions
    require_same(view.observe(slice(None)), expected, what="the rays of players")


FIELD_VIEW = Part("field_view", version=1, declare=_declare, check=_check, otherwise="NumPy")
