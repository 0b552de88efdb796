"""Fields of Soccer Twos and Strikers Vs Goalie: players, ball, walls, goals and rays.

Arrays and letters are those of `planar`; M is the number of players of a field.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.scene import Control, Scene, Shape
from mlagents_sim import floor_plan, native_planar
from mlagents_sim.circles import Circles, Disc
from mlagents_sim.contact import STEP_S
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.native_planar import FixedArrays, require_memory
from mlagents_sim.plane import Array, Indices, X, Z, along, turn
from mlagents_sim.walls import Wall
from mlagents_sim.world import World

PLAYER_RADIUS_M, BALL_RADIUS_M = 0.5, 0.6242
PLAYER_KG, BALL_KG = 50.0, 3.0
PLAYER_DRAG, BALL_DRAG = 3.0, 1.0
BALL_HEIGHT_M = 0.5
"""The height of the ball's center is locked, so that it overlaps the floor."""
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

_DIGITS = np.array([9, 3, 1])
"""Number of an action: its three choices, of three each, as the digits of a number."""
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


class Field(FixedArrays):
    """Players that run, turn and kick, and a ball, on all fields.

    Args:
        n_fields: Number of fields, N.
        sides: Side of each player: -1 for the team that starts on the left, 1 for the other.
        forward: (M,) parts of a full push that players run ahead and back with.
        aside: (M,) parts of a full push that players run to a side with.
        kicks_always: (M,) whether players kick at every contact, even if they do not run ahead.
        has_left_goal: Whether the left goal is open.
        is_native: Whether the native library computes, if it is available.

    Attributes:
        extra_walls: Walls besides those of the field itself.
        discs: Players and ball, which is the last disc.
        heading: (2, M, N) unit vectors of the players.
        kick: (2, N) velocity that the next step gives to the ball.
        age: (N,) steps since the last kick-off.
        touches: (M, N) how often players began to touch the ball, in the last step or run of steps.
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
        is_native: bool = True,
    ) -> None:
        n_players = len(sides)
        player = Disc(PLAYER_RADIUS_M, PLAYER_KG, PLAYER_DRAG)
        ball = Disc(BALL_RADIUS_M, BALL_KG, BALL_DRAG, rolls=True, bounce=BOUNCE)
        self.ball = n_players
        self.extra_walls = [] if has_left_goal else [CLOSED_GOAL]
        self.discs = Circles(
            n_fields,
            [*[player] * n_players, ball._replace(height=BALL_HEIGHT_M)],
            walls=[*_ROUND, *corner_walls(), *goal_walls(), *self.extra_walls],
            clear=(12.8, SIDE_M),
            floor_friction=FLOOR_FRICTION,
            is_native=is_native,
        )
        self.heading = np.zeros((2, n_players, n_fields))
        self.heading[Z] = 1.0
        self.kick = np.zeros((2, n_fields))
        self.age = np.zeros(n_fields, np.int64)
        self._sides = np.array(sides, np.float64)[:, None]
        self._moves, self._kicks_by = _moves(forward, aside, kicks_always)
        self._move_now = np.zeros((4, n_players, n_fields))
        self._forward, self._right, self._sine, self._cosine = self._move_now
        self._cosine.fill(1.0)
        self._kicks = np.repeat(self._kicks_by[:, :1], n_fields, axis=1)
        self._at_ball = (self.discs.pairs[1] == self.ball).nonzero()[0]
        self._touched = np.zeros((n_players, n_fields), np.bool_)
        self.touches = np.zeros((n_players, n_fields), np.int64)

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

    @cached_property
    def shared(self) -> native_planar.Field:
        """The fields, as the native library knows them."""
        return native_planar.Field(
            discs=self.discs.shared,
            n_players=self.ball,
            kick_m_s=KICK_M_S,
            goal_at_m=GOAL_AT_M,
            goal_half_m=GOAL_HALF_M,
            heading=self.heading,
            forward=self._forward,
            right=self._right,
            sine=self._sine,
            cosine=self._cosine,
            kicks=self._kicks,
            at_ball=self._at_ball,
            kick=self.kick,
            age=self.age,
            touched=self._touched,
            touches=self.touches,
        )

    def command(self, member: Indices, field: Indices, action: NDArray[np.integer]) -> None:
        """Set the (n, 3) actions of players: ahead, aside and turn."""
        chosen = action @ _DIGITS
        self._move_now[:, member, field] = self._moves[:, member, chosen]
        self._kicks[member, field] = self._kicks_by[member, chosen]

    def steer(self) -> None:
        """Let players run, then turn: the first part of a step."""
        if (functions := self.discs.functions) is not None:
            functions.field_steer(self.shared)
            return
        self.discs.velocity[:, : self.ball] += along(self.heading, self._forward, self._right)
        turn(self.heading, self._sine, self._cosine)

    def move(self) -> None:
        """Move all: the second part of a step."""
        self.touches.fill(0)
        self._move()

    def run(self, most_steps: int) -> int:
        """Run steps up to one in which a ball is in a goal.

        Args:
            most_steps: Largest number of steps.

        Returns:
            The number of steps.
        """
        self.touches.fill(0)
        if (functions := self.discs.functions) is not None:
            return require_memory(functions.field_run(self.shared, most_steps))
        for step in range(most_steps):
            self.steer()
            self._move()
            if self.goals().any():
                return step + 1
        return most_steps

    def _move(self) -> None:
        """Move all by a step; count touches of the ball, and prepare the kicks."""
        discs = self.discs
        if discs.functions is not None:
            require_memory(discs.functions.field_move(self.shared))
            return
        discs.velocity[:, self.ball] += self.kick
        discs.move()
        self.age += 1
        touched = discs.touching[self._at_ball]
        begins = touched & ~self._touched
        self._touched = touched
        self.touches += begins
        kicks = begins & self._kicks
        self.kick = KICK_M_S * (discs.normal[:, self._at_ball] * kicks).sum(axis=1)

    def goals(self) -> NDArray[np.intp]:
        """Return (N,) side of the goal that the ball is in, -1 for left, and 0 for neither."""
        x, z = self.discs.position[:, self.ball]
        is_in = (np.abs(x) > GOAL_AT_M) & (np.abs(z) < GOAL_HALF_M)
        side: NDArray[np.intp] = np.where(is_in, np.copysign(1.0, x), 0.0).astype(np.intp)
        return side

    def shown(self, world: World) -> Scene:
        """Return what all fields show; the left team is blue, the right one purple."""
        discs = self.discs
        n = discs.position.shape[2]
        low, high = (-BACK_M, -SIDE_M), (BACK_M, SIDE_M)
        plan = FloorPlan(world, n, low, high, floor=floor_plan.GRASS, walls_m=1.0)
        teams = floor_plan.AGENT, floor_plan.PURPLE
        for name, side, color in zip(("left goal", "right goal"), (-1, 1), teams, strict=True):
            plan.box(
                name,
                (side * (END_M + BACK_M) / 2.0, 0.0),
                (1.0, MOUTH_M),
                height_m=0.05,
                color=color,
            )
        walls = [*corner_walls(), *goal_walls(), *self.extra_walls]
        center, half = (np.array([getattr(w, k) for w in walls]).T for k in ("center", "half"))
        yaw = np.array([wall.yaw for wall in walls])
        plan.box(
            "inner wall",
            center,
            half,
            height_m=1.0,
            heading=np.array([np.sin(yaw), np.cos(yaw)]),
            color=floor_plan.WALL,
            fixed=True,
        )
        plan.ball(
            "ball",
            discs.position[:, self.ball],
            BALL_RADIUS_M,
            color=floor_plan.FLOOR,
        )
        plan.agents(
            "player",
            discs.position[:, : self.ball],
            self.heading,
            PLAYER_RADIUS_M,
            agents=np.arange(n * self.ball).reshape(n, self.ball).T,
            color=np.where(self._sides[..., None] < 0, *teams),
            shape=Shape.CYLINDER,
        )
        return plan.scene()


def _moves(
    forward: Sequence[float], aside: Sequence[float], kicks_always: Sequence[bool]
) -> tuple[Array, NDArray[np.bool_]]:
    """Return what every action does.

    Args:
        forward: (M,) parts of a full push, as for `Field`.
        aside: (M,) parts of a full push.
        kicks_always: (M,) whether players kick at every contact.

    Returns:
        (4, M, 27) pushes ahead and to the right, sines and cosines of turns; (M, 27) whether a
        player that does this kicks.
    """
    ahead, sideways, turned = np.indices((3, 3, 3)).reshape(3, -1)
    ways = np.array([0.0, RUN_M_S, -RUN_M_S])
    runs = np.where(sideways == 0, np.multiply.outer(forward, ways[ahead]), 0.0)
    steps = np.multiply.outer(aside, ways[sideways])
    sine, cosine = (np.tile(values[turned], (len(runs), 1)) for values in (TURN_SINE, TURN_COSINE))
    return np.array([runs, steps, sine, cosine]), np.array(kicks_always)[:, None] | (ahead == 1)
