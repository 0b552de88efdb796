"""Tennis in a vertical plane: win the point, or keep up a rally."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Control, Scene, Shape, Solids
from mlagents_sim import floor_plan
from mlagents_sim.contact import STEP_S
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.plane import Array, Indices
from mlagents_sim.world import Agents, World

X, Y = 0, 1
A, B, NEITHER = 0, 1, 2
SERVE = 3
"""Value of `last_floor` before the first contact; the others are A, B and NEITHER."""

FLOOR_M, BACK_M = -6.9, 11.88
"""Height of the floor, and distance from the net to the face of a back wall."""
NET_HALF_M, NET_TOP_M = 0.06, -6.43
BALL_RADIUS_M, RACKET_HALF_M, RACKET_THICK_M = 0.25, 0.495, 0.065
BALL_KG, RACKET_KG = 0.75, 4.0
BALL_MAX_M_S = 9.0
BOUNCE_M_S = 2.0
"""Largest approach speed without a bounce."""
TOUCH_M = 0.02
"""Gap at which surfaces begin to touch."""
RUN_M_S, JUMP_M_S, JUMP_BELOW_M = 30.0, 7.0, -1.5
TILT_RAD = np.radians(55.0)
NET_GAP_M = 1.0
"""Least distance between an agent and the net."""
START_X_M, START_Y_M, BALL_Y_M = (6.0, 8.0), -1.5, 6.0
STACKED = 3

_SIDES = np.array([1.0, -1.0])[:, None]
"""Direction of the net in x, as each agent sees it."""


class _Courts(World):
    """Courts of two agents with rackets and a ball.

    Attributes:
        place: (2, 3, courts) places of A, B and the ball, in m.
        velocity: (2, 3, courts) in m/s.
        tilt: (2, courts) angles, in rad, by which the upper edges of rackets lean toward the net.
        last_hit: (courts,) agent that hit the ball last, or NEITHER.
        last_floor: (courts,) side of the last floor contact since the last hit; NEITHER or SERVE.
    """

    controls = (
        Control("to the net", "D", 0, 1.0, is_continuous=True),
        Control("back", "A", 0, -1.0, is_continuous=True),
        Control("jump", "Space", 1, 1.0, is_continuous=True),
    )
    agents_per_area = 36
    n_members: ClassVar[int] = 2
    """Number of agents on each of the courts of a scene."""
    decision_period_steps = 5
    _frame: ClassVar[ObservationSpec]

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents // 2
        self._court, self._side = np.divmod(np.arange(self.n_agents), 2)
        self.place = np.zeros((2, 3, n))
        self.velocity = np.zeros((2, 3, n))
        self.tilt = np.zeros((2, n))
        self.last_hit = np.zeros(n, np.intp)
        self.last_floor = np.zeros(n, np.intp)
        self._fall = np.zeros(n)  # speed that gravity adds in a step
        self._run = np.zeros((2, n))
        self._jumps = np.zeros((2, n), np.bool_)
        # Both rackets, both floors, both back walls and the net, which touched in the last step.
        self._touched = np.zeros((7, n), np.bool_)
        self._frames = FrameStack(self._frame, STACKED, self.n_agents)

    def begin(self, agents: Agents) -> None:
        """Put agents on their sides, and the ball above one of them."""
        courts = self._court[agents][::2]  # both agents of a court begin together
        n = len(courts)
        start = self.rng.uniform(*START_X_M, (3, n))
        side = np.where(self.rng.random(n) < 0.5, -1.0, 1.0)
        self.place[X][:, courts] = start * np.array([-np.ones(n), np.ones(n), side])
        self.place[Y][:, courts] = np.reshape([START_Y_M, START_Y_M, BALL_Y_M], (3, 1))
        self.velocity[..., courts] = 0.0
        self.last_hit[courts], self.last_floor[courts] = NEITHER, SERVE
        self._fall[courts] = self.parameters.draw("gravity", n) * STEP_S
        self._touched[:, courts] = False
        self._frames.clear(agents)

    def _seen(self, agents: Agents) -> Array:
        """Return the (n, 8) places and velocities of agents and ball, mirrored for B."""
        court, side = self._court[agents], self._side[agents]
        mirror = _SIDES[side, 0]
        own, ball = (
            np.array([*self.place[:, body, court], *self.velocity[:, body, court]])
            for body in (side, 2)
        )
        seen = np.concatenate([own, ball])
        seen[::2] *= mirror
        return seen.T

    def act(self) -> None:
        """Run and jump."""
        racket = self.velocity[:, :2]
        racket[X] = self._run * RUN_M_S * _SIDES
        can_jump = self._jumps & (self.place[Y, :2] < JUMP_BELOW_M)
        racket[Y, can_jump] = JUMP_M_S

    def physics(self) -> None:
        """Move rackets and ball, and handle what the ball begins to touch."""
        self.velocity[Y] -= self._fall
        ball = self.velocity[:, 2]
        np.clip(ball, -BALL_MAX_M_S, BALL_MAX_M_S, out=ball)
        touched = self._bounce()
        before = self.place[X, 2].copy()
        self.place += self.velocity * STEP_S
        # Rackets stay on their sides and above the floor.
        x, y = self.place[:, :2]
        high = RACKET_HALF_M * np.cos(self.tilt) + RACKET_THICK_M * np.abs(np.sin(self.tilt))
        is_low = y < FLOOR_M + high
        y[is_low] = (FLOOR_M + high)[is_low]
        self.velocity[Y, :2][is_low & (self.velocity[Y, :2] < 0.0)] = 0.0
        np.clip(-x * _SIDES, NET_GAP_M, BACK_M - RACKET_THICK_M, out=x)
        x *= -_SIDES
        begins = touched & ~self._touched
        self._touched = touched
        self._judge(begins, before)

    def _bounce(self) -> NDArray[np.bool_]:
        """Reflect the ball; return (7, courts) whether it touches each racket, floor, wall, net."""
        place, velocity = self.place[:, 2], self.velocity[:, 2]
        x, y = place
        touched = np.zeros_like(self._touched)
        share = RACKET_KG / (RACKET_KG + BALL_KG)
        for side in (A, B):
            # The plate's long edge, and the way from its nearest point to the ball.
            lean = self.tilt[side] * _SIDES[side]
            edge = np.array([np.sin(lean), np.cos(lean)])
            apart = place - self.place[:, side]
            along = apart[X] * edge[X] + apart[Y] * edge[Y]
            across = apart[X] * edge[Y] - apart[Y] * edge[X]
            beyond = along - np.clip(along, -RACKET_HALF_M, RACKET_HALF_M)
            off = across - np.clip(across, -RACKET_THICK_M, RACKET_THICK_M)
            distance = np.hypot(beyond, off)
            is_in = distance < 1e-9
            away = np.where(is_in, np.copysign(1.0, across), off)
            length = np.where(is_in, 1.0, np.maximum(distance, 1e-9))
            normal = (edge * beyond + np.array([edge[Y], -edge[X]]) * away) / length
            gap = np.where(is_in, np.abs(across) - RACKET_THICK_M, distance) - BALL_RADIUS_M
            touched[side] = gap < TOUCH_M
            if not touched[side].any():
                continue
            push = self._push(normal, gap, velocity - self.velocity[:, side]) * touched[side]
            velocity += share * push * normal
            self.velocity[:, side] -= (1.0 - share) * push * normal
        net = np.array([x - np.clip(x, -NET_HALF_M, NET_HALF_M), y - np.minimum(y, NET_TOP_M)])
        to_net = np.maximum(np.hypot(*net), 1e-9)
        for thing, way, gap in (
            (2, np.array([0.0 * x, 0.0 * x + 1.0]), y - FLOOR_M - BALL_RADIUS_M),
            (4, np.array([0.0 * x + 1.0, 0.0 * x]), x + BACK_M - BALL_RADIUS_M),
            (5, np.array([0.0 * x - 1.0, 0.0 * x]), BACK_M - x - BALL_RADIUS_M),
            (6, net / to_net, to_net - BALL_RADIUS_M),
        ):
            touched[thing] = gap < TOUCH_M
            if touched[thing].any():
                velocity += self._push(way, gap, velocity) * touched[thing] * way
        touched[2], touched[3] = touched[2] & (x < 0.0), touched[2] & (x >= 0.0)
        return touched

    def _push(self, normal: Array, gap: Array, velocity: Array) -> Array:
        """Return the change of speed along a normal that a contact gives to a ball."""
        nearing = -(velocity[X] * normal[X] + velocity[Y] * normal[Y])
        bounces = (nearing > BOUNCE_M_S) & (nearing * STEP_S > gap)
        stops = nearing - np.maximum(gap, 0.0) / STEP_S
        change: Array = np.where(bounces, 2.0 * nearing, np.maximum(stops, 0.0))
        return change

    def _judge(self, begins: NDArray[np.bool_], before: Array) -> None:
        """Reward agents and end episodes, given new contacts and positions before the step."""
        raise NotImplementedError

    def _both(self, courts: Indices) -> Indices:
        """Return the agents of these courts."""
        agents: Indices = np.repeat(2 * courts, 2)
        agents[1::2] += 1
        return agents

    def scene(self) -> Scene:
        """Return all courts: a blue and a purple racket, and a red ball."""
        n = self.place.shape[2]
        court = np.arange(n, dtype=np.int32)
        depth = 4.0
        edge = BACK_M + 0.6
        solids = [
            Solids.of(
                "floor",
                Shape.BOX,
                (0.0, FLOOR_M - 0.1, 0.0),
                (2 * edge, 0.2, depth),
                floor_plan.WALL,
            ),
            Solids.of(
                "net",
                Shape.BOX,
                (0.0, (FLOOR_M + NET_TOP_M) / 2, 0.0),
                (2 * NET_HALF_M, NET_TOP_M - FLOOR_M, depth),
                floor_plan.INK,
            ),
        ]
        for name, side, color in (("A", A, floor_plan.AGENT), ("B", B, floor_plan.PURPLE)):
            half_lean = -self.tilt[side] * _SIDES[side] / 2.0
            zero = np.zeros(n)
            solids.append(
                Solids.of(
                    name,
                    Shape.BOX,
                    np.stack([*self.place[:, side], zero], axis=1),
                    (2 * RACKET_THICK_M, 2 * RACKET_HALF_M, 2 * RACKET_HALF_M),
                    color,
                    rotation=np.stack([zero, zero, np.sin(half_lean), np.cos(half_lean)], axis=1),
                    area=court,
                    agent=2 * court + side,
                )
            )
        ball = np.stack([*self.place[:, 2], np.zeros(n)], axis=1)
        diameter = np.full(3, 2 * BALL_RADIUS_M)
        solids.append(Solids.of("ball", Shape.BALL, ball, diameter, floor_plan.RED, area=court))
        return Scene(
            solids,
            n,
            (-edge, FLOOR_M, -depth / 2),
            (edge, BALL_Y_M, depth / 2),
            self.agent_id.copy(),
            self.step_count * self.step_s,
        )


class Tennis(_Courts):
    """Two agents on each court, A on the left and B on the right, which play against each other.

    Observation: 9 numbers in three frames, oldest first, relative to the court, with x mirrored for
        B: the agent's position (x, y) and velocity (x, y), the ball's position and velocity, and
        the z of the agent's quaternion, which is always 0.
    Actions: 3 continuous, clipped to -1..1: run toward the net, with up to 30 m/s; jump with 7
        m/s, if the action is above 0.5 and the agent below its start height; tilt the racket
        toward the net, by up to 55 degrees.
    Decisions: every 5 steps of 0.02 s.
    Reward: 1 for the winner of a point, -1 for the loser.
    Ends: both agents, at every point.
    Interrupts: never.
    Parameters: `gravity` 9.81 m/s2 (6 to 20).
    Start: agents 6 to 8 m from the net, the ball at rest 6 to 8 m from it on either side.
    A good policy beats others. Its rating, not its reward, shows its strength.

    An agent loses the point if it hits the ball twice in a row, or if its ball touches the net, its
    own side, or a back wall before the opponent's floor. It also loses if the ball touches its side
    twice, or touches it before any hit. It wins if its ball touches the opponent's floor and then
    the wall behind it.

    Attributes:
        place: (2, 3, courts) places of A, B and the ball, in m.
        velocity: (2, 3, courts) in m/s.
    """

    _frame = ObservationSpec.vector(9, "VectorSensor_size9")
    behavior_names = ("Tennis?team=0", "Tennis?team=1")
    behavior_spec = BehaviorSpec([stacked(_frame, STACKED)], ActionSpec.create_continuous(3))
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": 9.81}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self.behavior[:] = self._side
        self._is_net_live = np.zeros(self.place.shape[2], np.bool_)

    def begin(self, agents: Agents) -> None:
        """Serve."""
        super().begin(agents)
        self._is_net_live[self._court[agents]] = False

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        seen = self._seen(agents)
        frame = np.concatenate([seen, np.zeros((len(seen), 1))], axis=1)
        return [self._frames.add(agents, frame.astype(np.float32))]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        at = self._side[agents], self._court[agents]
        run, jump, tilt = np.clip(action.continuous.T.astype(np.float64), -1.0, 1.0)
        self._run[at], self._jumps[at], self.tilt[at] = run, jump > 0.5, TILT_RAD * tilt

    def _judge(self, begins: NDArray[np.bool_], before: Array) -> None:
        if not begins.any():
            return
        n = begins.shape[1]
        winner = np.full(n, NEITHER)
        hit, floor = self.last_hit, self.last_floor

        def decide(where: NDArray[np.bool_], who: int) -> None:
            winner[where & (winner == NEITHER)] = who

        for side, other in ((A, B), (B, A)):
            racket, ground, wall = begins[side], begins[2 + side], begins[4 + side]
            loses = (hit == side) | (floor == side)
            decide(wall & loses, other)
            decide(wall & ~loses, side)
            loses |= floor == SERVE
            decide(ground & loses, other)
            is_good = ground & ~loses
            floor[is_good] = side
            self._is_net_live |= is_good
            at_net = begins[6] & ~self._is_net_live & (hit == side)
            decide(at_net, other)
            decide(racket & (hit == side), other)
            is_hit = racket & (hit != side)
            self._is_net_live |= is_hit & (floor != SERVE)
            hit[is_hit], floor[is_hit] = side, NEITHER
        (courts,) = (winner != NEITHER).nonzero()
        if courts.size:
            self.reward[2 * courts + winner[courts]] = 1.0
            self.reward[2 * courts + 1 - winner[courts]] = -1.0
            self.end(self._both(courts))


class TennisRally(_Courts):
    """Two agents on each court, which keep the ball in play: the early version of Tennis.

    Observation: 8 numbers in three frames, oldest first, relative to the court, with x mirrored for
        the right agent: the agent's position (x, y) and velocity (x, y), the ball's position and
        velocity.
    Actions: 2 continuous, clipped to -1..1: run toward the net, with up to 30 m/s; jump with 7
        m/s, if the action is above 0.5 and the agent below its start height.
    Decisions: every 5 steps of 0.02 s.
    Reward: 0.1 for the agent that hit the ball last, when the ball crosses the net; -0.01 for the
        agent on whose side the ball is when the rally ends.
    Ends: both agents, when the ball touches a floor, a back wall or the net.
    Interrupts: never.
    Parameters: `gravity` 9.81 m/s2 (6 to 20); `angle` 55 (35 to 65), the tilt of the rackets, in
        degrees above the floor.
    Start: agents 6 to 8 m from the net, the ball at rest 6 to 8 m from it on either side.
    A good policy reaches 2.5.

    Attributes:
        place: (2, 3, courts) places of both agents and the ball, in m.
        velocity: (2, 3, courts) in m/s.
    """

    _frame = ObservationSpec.vector(8, "VectorSensor_size8")
    behavior_name = "TennisRally?team=0"
    behavior_spec = BehaviorSpec([stacked(_frame, STACKED)], ActionSpec.create_continuous(2))
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": 9.81, "angle": 55.0}

    def begin(self, agents: Agents) -> None:
        """Serve, with rackets as the parameter says."""
        super().begin(agents)
        courts = self._court[agents][::2]
        angle = np.clip(self.parameters.draw("angle", len(courts)), 35.0, 65.0)
        self.tilt[:, courts] = np.radians(angle - 90.0)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        return [self._frames.add(agents, self._seen(agents).astype(np.float32))]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        at = self._side[agents], self._court[agents]
        run, jump = np.clip(action.continuous.T.astype(np.float64), -1.0, 1.0)
        self._run[at], self._jumps[at] = run, jump > 0.5

    def _judge(self, begins: NDArray[np.bool_], before: Array) -> None:
        now = self.place[X, 2]
        for side in (A, B):
            self.last_hit[begins[side]] = side
            way = _SIDES[side, 0]
            crosses = (way * before <= 0.0) & (way * now > 0.0)
            courts = np.flatnonzero(crosses & (self.last_hit == side))
            self.reward[2 * courts + side] += 0.1
        courts = np.flatnonzero(begins[2:].any(axis=0))
        if courts.size:
            self.reward[2 * courts + (now[courts] >= 0.0)] -= 0.01
            self.end(self._both(courts))
