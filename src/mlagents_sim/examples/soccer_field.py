"""Fields of Soccer Twos and Strikers Vs Goalie: players, ball, walls, goals and rays.

Arrays and letters are those of `planar`; M is the number of players of a field.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.scene import Control, Scene, Shape
from mlagents_sim import floor_plan
from mlagents_sim.circles import Circles, Disc, Wall
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.planar import STEP_S, Array, Indices, X, Z, along, turn
from mlagents_sim.rays import Rays
from mlagents_sim.world import World

PLAYER_RADIUS_M, BALL_RADIUS_M = 0.5, 0.6242
PLAYER_KG, BALL_KG = 50.0, 3.0
PLAYER_DRAG, BALL_DRAG = 3.0, 1.0
BALL_HEIGHT_M = 0.5
"""The height of the ball's centre is locked, so that it overlaps the floor."""
BOUNCE = 0.8
FLOOR_FRICTION = 0.35
"""Mean of the floor's friction, 0.1, and that of players and ball, 0.6."""
RUN_M_S = 2.0
"""Full push of a player in a step."""
TURN_RAD = np.radians([0.0, -2.0, 2.0])
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)
KICK_M_S = 2000.0 * STEP_S / BALL_KG
"""Speed that a kick, a force of 2000 N in one step, gives to the ball."""

CONTROLS = (
    Control("forward", "W", 0, 1),
    Control("back", "S", 0, 2),
    Control("right", "E", 1, 1),
    Control("left", "Q", 1, 2),
    Control("turn left", "A", 2, 1),
    Control("turn right", "D", 2, 2),
)

SIDE_M, END_M, BACK_M = 7.53, 15.5, 17.5
"""Distance from the middle to the side walls, the end lines, and the back walls of the goals."""
MOUTH_M = 4.15
"""Half the width of a goal."""
GOAL_AT_M, GOAL_HALF_M = 15.1, 4.2
"""A ball beyond this distance in x, and within this distance in z, is in a goal."""
START_X_M, START_Z_M = 8.19, 1.2
SPREAD_M, BALL_SPREAD_M = 5.0, 2.5
SPREAD_RAD = np.radians(10.0)

RAY_M, RAY_RADIUS_M, RAY_HEIGHT_M = 20.0, 0.5, 1.0
_THICK_M = 5.0
_CORNER_HALF_M, _CORNER_ENDS = 0.23, ((13.26, 8.49), (15.66, 4.33))


def corner_walls() -> list[Wall]:
    """Return the walls across the four corners."""
    (x_0, z_0), (x_1, z_1) = _CORNER_ENDS
    half = float(np.hypot(x_1 - x_0, z_1 - z_0) / 2.0)
    return [
        Wall(
            (x * (x_0 + x_1) / 2.0, z * (z_0 + z_1) / 2.0),
            (_CORNER_HALF_M, half),
            float(np.arctan2(x * (x_1 - x_0), z * (z_1 - z_0))),
        )
        for x in (-1, 1)
        for z in (-1, 1)
    ]


def goal_walls() -> list[Wall]:
    """Return the side walls of the goals: two on the left, then two on the right."""
    middle, half = (END_M + BACK_M) / 2.0, (BACK_M - END_M) / 2.0
    return [
        Wall((x * middle, z * (MOUTH_M + half)), (half, half)) for x in (-1, 1) for z in (-1, 1)
    ]


CLOSED_GOAL = Wall((-END_M, 0.0), (0.5, 3.96))
"""A wall in the mouth of the left goal."""

_ROUND = [
    *(Wall((0.0, z * (SIDE_M + _THICK_M)), (4.0 * BACK_M, _THICK_M)) for z in (-1, 1)),
    *(Wall((x * (BACK_M + _THICK_M), 0.0), (_THICK_M, 4.0 * BACK_M)) for x in (-1, 1)),
]


class Field:
    """Players that run, turn and kick, and a ball, on all fields.

    Args:
        n_fields: Number of fields, N.
        sides: Side of each player: -1 for the team that starts on the left, 1 for the other.
        forward: (M,) parts of a full push that players run ahead and back with.
        aside: (M,) parts of a full push that players run to a side with.
        kicks_always: (M,) whether players kick at every contact, even if they do not run ahead.
        has_left_goal: Whether the left goal is open.

    Attributes:
        discs: Players and ball, which is the last disc.
        heading: (2, M, N) unit vectors of the players.
        kick: (2, N) velocity that the next step gives to the ball.
        age: (N,) steps since the last kick-off.
    """

    def __init__(
        self,
        n_fields: int,
        sides: Sequence[int],
        *,
        forward: Sequence[float],
        aside: Sequence[float],
        kicks_always: Sequence[bool],
        has_left_goal: bool = True,
    ) -> None:
        n_players = len(sides)
        player = Disc(PLAYER_RADIUS_M, PLAYER_KG, PLAYER_DRAG)
        ball = Disc(BALL_RADIUS_M, BALL_KG, BALL_DRAG, rolls=True, bounce=BOUNCE)
        self.ball = n_players
        self._extra = [] if has_left_goal else [CLOSED_GOAL]
        self.discs = Circles(
            n_fields,
            [*[player] * n_players, ball._replace(height=BALL_HEIGHT_M)],
            walls=[*_ROUND, *corner_walls(), *goal_walls(), *self._extra],
            clear=(12.8, SIDE_M),
            floor_friction=FLOOR_FRICTION,
        )
        self.heading = np.zeros((2, n_players, n_fields))
        self.heading[Z] = 1.0
        self.kick = np.zeros((2, n_fields))
        self.age = np.zeros(n_fields, np.intp)
        self._sides = np.array(sides, np.float64)[:, None]
        ways = np.array([0.0, RUN_M_S, -RUN_M_S])
        self._ahead_m_s = np.multiply.outer(forward, ways)
        self._aside_m_s = np.multiply.outer(aside, ways)
        self._kicks_always = np.array(kicks_always)[:, None]
        self._action = np.zeros((3, n_players, n_fields), np.intp)
        self._players = np.arange(n_players)[:, None]
        self._at_ball = (self.discs.pairs[1] == self.ball).nonzero()[0]
        self._touched = np.zeros((n_players, n_fields), np.bool_)
        self._boxes = [
            np.array([getattr(wall, name) for wall in [*corner_walls(), *goal_walls()]]).T
            for name in ("centre", "half")
        ]
        yaw = np.array([wall.yaw for wall in [*corner_walls(), *goal_walls()]])
        self._boxes.append(np.array([np.sin(yaw), np.cos(yaw)]))

    def kick_off(
        self, fields: Indices, rng: np.random.Generator, *, gravity: ArrayLike, z: Array, x: float
    ) -> None:
        """Put players and ball of these fields at their starts.

        Args:
            fields: Indices of the fields.
            rng: Source of randomness.
            gravity: Downward acceleration, in m/s2, or one value for each of these fields.
            z: (M,) distances of the players from the middle line, in m.
            x: Distance of the right team from the middle, in m.
        """
        n = len(fields)
        discs, ball, players = self.discs, self.ball, slice(self.ball)
        start = np.where(self._sides < 0, -START_X_M, x)
        discs.position[X, players, fields] = (
            start + rng.uniform(-SPREAD_M, SPREAD_M, (self.ball, n))
        ).T
        discs.position[Z, players, fields] = z
        discs.position[:, ball, fields] = rng.uniform(-BALL_SPREAD_M, BALL_SPREAD_M, (2, n))
        discs.velocity[..., fields] = 0.0
        discs.spin[..., fields] = 0.0
        discs.set_gravity(fields, gravity)
        yaw = -self._sides * (np.pi / 2 + rng.uniform(-SPREAD_RAD, SPREAD_RAD, (self.ball, n)))
        self.heading[..., fields] = np.sin(yaw), np.cos(yaw)
        self.kick[:, fields] = 0.0
        self.age[fields] = 0
        self._touched[:, fields] = False

    def command(self, member: Indices, field: Indices, action: NDArray[np.integer]) -> None:
        """Set the (n, 3) actions of players: ahead, aside and turn."""
        self._action[:, member, field] = action.T

    def push_and_turn(self) -> None:
        """Let players run, then turn."""
        ahead, aside, turned = self._action
        runs = np.where(aside == 0, self._ahead_m_s[self._players, ahead], 0.0)
        steps = self._aside_m_s[self._players, aside]
        self.discs.velocity[:, : self.ball] += along(self.heading, runs, steps)
        turn(self.heading, TURN_SINE[turned], TURN_COSINE[turned])

    def move(self) -> NDArray[np.bool_]:
        """Move all by a step; return (M, N) which players began to touch the ball."""
        discs = self.discs
        discs.velocity[:, self.ball] += self.kick
        self.kick.fill(0.0)
        discs.move()
        self.age += 1
        touched = discs.touching[self._at_ball]
        begins: NDArray[np.bool_] = touched & ~self._touched
        self._touched = touched
        kicks = begins & (self._kicks_always | (self._action[0] == 1))
        if kicks.any():
            self.kick += KICK_M_S * (discs.normal[:, self._at_ball] * kicks).sum(axis=1)
        return begins

    def goals(self) -> NDArray[np.intp]:
        """Return (N,) side of the goal that the ball is in, -1 for left, and 0 for neither."""
        x, z = self.discs.position[:, self.ball]
        is_in = (np.abs(x) > GOAL_AT_M) & (np.abs(z) < GOAL_HALF_M)
        side: NDArray[np.intp] = np.where(is_in, np.copysign(1.0, x), 0.0).astype(np.intp)
        return side

    def seen(self, member: Indices, field: Indices, local: Array) -> tuple[Array, Array, Array]:
        """Return what the rays of n players meet.

        Args:
            member: (n,) players.
            field: (n,) their fields.
            local: (2, R) directions of the rays, right and ahead.

        Returns:
            Three arrays of distances: to discs, (M + 1, R, n), infinite for oneself; to walls,
            (R, n); to the goals on the left and on the right, (2, R, n).
        """
        discs = self.discs
        position = discs.position[:, :, field]
        place = discs.position[:, member, field]
        rays = Rays.cast(place, self.heading[:, member, field], local)
        to_discs = np.concatenate(
            [
                rays.to_discs(position[:, : self.ball], _reach_m(PLAYER_RADIUS_M)),
                rays.to_discs(position[:, self.ball :], _reach_m(BALL_RADIUS_M)),
            ]
        )
        to_discs[member, :, np.arange(len(member))] = np.inf
        faces = np.reshape([BACK_M, SIDE_M], (2, 1, 1)) - RAY_RADIUS_M
        straight = (np.copysign(faces, rays.direction) - rays.origin) * rays.inverse
        straight[straight < 0.0] = np.inf
        to_end, to_side = straight
        centre, half, heading = (
            np.broadcast_to(value[..., None], (*value.shape, len(member))) for value in self._boxes
        )
        boxes = rays.to_turned_boxes(centre, heading, half, RAY_RADIUS_M)
        to_wall = np.minimum(to_side, boxes[:4].min(axis=0))
        to_goals = np.empty((2, *to_end.shape))
        for side in range(2):
            faces_it = (rays.direction[X] > 0.0) == (side == 1)
            to_goals[side] = np.minimum(
                np.where(faces_it, to_end, np.inf), boxes[4 + 2 * side : 6 + 2 * side].min(axis=0)
            )
        for wall in self._extra:
            centre, half = (np.reshape(value, (2, 1, 1)) for value in (wall.centre, wall.half))
            (to_extra,) = rays.to_boxes(centre, half, RAY_RADIUS_M)
            np.minimum(to_wall, to_extra, out=to_wall)
        return to_discs, to_wall, to_goals

    def shown(self, world: World) -> Scene:
        """Return what all fields show; the left team is blue, the right one purple."""
        discs = self.discs
        n = discs.position.shape[2]
        low, high = (-BACK_M, -SIDE_M), (BACK_M, SIDE_M)
        plan = FloorPlan(world, n, low, high, floor=floor_plan.GRASS, walls_m=1.0)
        teams = floor_plan.AGENT, floor_plan.PURPLE
        for name, side, colour in zip(("left goal", "right goal"), (-1, 1), teams, strict=True):
            plan.box(
                name,
                (side * (END_M + BACK_M) / 2.0, 0.0),
                (1.0, MOUTH_M),
                height_m=0.05,
                colour=colour,
            )
        walls = [*corner_walls(), *goal_walls(), *self._extra]
        centre, half = (np.array([getattr(w, k) for w in walls]).T for k in ("centre", "half"))
        yaw = np.array([wall.yaw for wall in walls])
        plan.box(
            "inner wall",
            centre,
            half,
            height_m=1.0,
            heading=np.array([np.sin(yaw), np.cos(yaw)]),
            colour=floor_plan.WALL,
            fixed=True,
        )
        plan.ball(
            "ball",
            discs.position[:, self.ball],
            BALL_RADIUS_M,
            colour=floor_plan.FLOOR,
        )
        plan.agents(
            "player",
            discs.position[:, : self.ball],
            self.heading,
            PLAYER_RADIUS_M,
            agents=np.arange(n * self.ball).reshape(n, self.ball).T,
            colour=np.where(self._sides[..., None] < 0, *teams),
            shape=Shape.CYLINDER,
        )
        return plan.scene()


def _reach_m(radius: float) -> float:
    """Return how near to a ray the centre of a ball at the players' height must be to be met."""
    return float(np.sqrt((RAY_RADIUS_M + radius) ** 2 - (RAY_HEIGHT_M - BALL_HEIGHT_M) ** 2))
