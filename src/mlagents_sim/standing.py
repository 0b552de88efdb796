"""Agents that jump, fall and stand on objects, while `Bodies` move in the plane.

    standing = Standing(bodies, supports, gait=Gait(...))
    standing.begin_step()                 # before the agents are pushed
    standing.push(forward, right)
    standing.rub()
    standing.move()                       # moves the bodies, too

The agent is the first body. `Motion` carries out these parts of a step.

Arrays and letters are those of `planar`; S is the number of supports. A support is identified by
its row. Heights are values of the vertical axis, whose origin the world chooses.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim import native_planar
from mlagents_sim.contact import FRICTION, STEP_S
from mlagents_sim.native_planar import FixedArrays
from mlagents_sim.planar import ANCHORS, Bodies
from mlagents_sim.plane import Array, Indices, Mask, X, along, dot

AGENT = 0
"""Index of the body that stands."""
NO_PAIR = -1

_TINY = 1e-30
"""Keeps a quotient finite where the divisor may be 0."""
_GRIP = ANCHORS * FRICTION

_PROBE_START_M, _PROBE_END_M = 0.05, 1.05
"""Start and end of the line that probes for ground, below the agent's center."""
_SUPPORT_GAP_M = 0.05
"""Gap between feet and support above which the support no longer carries the
agent."""
_NARROWER_M = 0.025
"""Width of the rim of the feet that cannot be supported."""
_STEP_UP_M = 0.05
"""Largest penetration at which a standing agent still counts as supported. An
edge of this height does not stop an agent."""


class Support(NamedTuple):
    """A box on which agents can stand, or a zone that they can be over.

    Attributes:
        half: Half lengths in x and in z, in m.
        center: Place in x and in z, in m; the body's if there is one.
        top_m: Height of the top, in m.
        body: Index of the body that the support is, or None for one that never moves.
        mass_ratio: Mass of the agent divided by that of the body.
        pair: Index of the pair of agent and support. They touch only if the agent is not above.
    """

    half: tuple[float, float]
    center: tuple[float, float] = (0.0, 0.0)
    top_m: float = 0.0
    body: int | None = None
    mass_ratio: float = 0.0
    pair: int = NO_PAIR


class Gait(NamedTuple):
    """Speeds and accelerations with which agents move themselves.

    Attributes:
        push_m_s: Speed that a full push adds in a step.
        air_push: Fraction of a push that remains in the air.
        jump_height_m: Height of a jump's target above its start.
        jump_steps: Number of steps that a jump lasts.
        jump_speed_per_m: Speed at which a jump aims, per metre to its target. A full push puts the
            target 1 m aside.
        jump_change_m_s: Largest change of the velocity by a jump in a step.
        fall_m_s2: Downward acceleration, in addition to gravity, of an agent in the air after its
            jump.
    """

    push_m_s: float
    air_push: float
    jump_height_m: float
    jump_steps: float
    jump_speed_per_m: float
    jump_change_m_s: float
    fall_m_s2: float


class Standing(FixedArrays):
    """Vertical motion of one body in each area: ground, jumps, landings and friction below it.

    An agent stands on any support below its edges. While it stands, its weight causes friction.
    When it lands, the speed of its fall does. Friction drags a movable support along.

    Args:
        bodies: Bodies of all areas. The first of an area stands, and is a cube.
        supports: Supports of each area, S of them, of which one has a body.
        gait: Speeds and accelerations of the agents' own motion.
        zones: Boxes that do not carry agents, for `is_over_zone`.

    Attributes:
        wants_to_jump: (N,) whether agents jump as soon as they are on ground, for a task to set.
        height_m: (N,) heights of the agents' centers.
        climb: (N,) upward speeds, in m/s.
        tops: (S, N) heights of the supports' tops, in m, for a task to set.
        is_cleared: (S, N) whether feet were no lower than tops at the beginning of the step. An
            agent can stand on such a support, which does not stop it horizontally.
        is_over_zone: (zones, N) whether the agents reached over zones in the last move.
    """

    def __init__(
        self,
        bodies: Bodies,
        supports: Sequence[Support],
        *,
        gait: Gait,
        zones: Sequence[Support] = (),
    ) -> None:
        n, n_supports = bodies.position.shape[2], len(supports)
        boxes = [*supports, *zones]
        ((self._loose, self._carrier),) = [
            (row, support.body) for row, support in enumerate(supports) if support.body is not None
        ]
        self._is_fixed = np.array([support.body is None for support in supports])
        self._pairs = np.array([support.pair for support in supports], np.int64)
        self._bodies, self._gait = bodies, gait
        self._kept, self._carrier_kept = bodies.kept[AGENT], bodies.kept[self._carrier]
        self._gain = supports[self._loose].mass_ratio
        self._half = float(bodies.half[X, AGENT, 0])

        self.wants_to_jump = np.zeros(n, np.bool_)
        self.height_m = np.zeros(n)
        self.climb = np.zeros(n)
        self.tops = np.tile([[support.top_m] for support in supports], n)
        self.is_cleared = np.zeros((n_supports, n), np.bool_)
        self.is_over_zone = np.zeros((len(zones), n), np.bool_)
        self._boxes_at = np.array([box.center for box in boxes]).T[..., None].repeat(n, axis=2)
        self._box_halves = np.array([box.half for box in boxes]).T[..., None].repeat(n, axis=2)
        self._feet_are_over = np.zeros((n_supports, n), np.bool_)
        self._center_is_over = np.zeros((n_supports, n), np.bool_)
        self._on = np.zeros((n_supports, n), np.bool_)  # support when the step began
        self._stood = np.zeros(n, np.bool_)  # on any
        self._is_braked = np.zeros(n, np.bool_)  # on one that never moves
        self._fall = np.zeros(n)  # speed that gravity adds in a step
        self._jump_to = np.zeros(n)  # heights
        self._jump_steps = np.zeros(n)  # left of a jump

    @cached_property
    def shared(self) -> native_planar.Standing:
        """The vertical motion, as the native library knows it."""
        gait = self._gait
        return native_planar.Standing(
            n_supports=len(self.tops),
            n_zones=len(self.is_over_zone),
            loose=self._loose,
            carrier=self._carrier,
            half=self._half,
            gain=self._gain,
            push_m_s=gait.push_m_s,
            air_push=gait.air_push,
            jump_height_m=gait.jump_height_m,
            jump_steps=gait.jump_steps,
            jump_speed_per_m=gait.jump_speed_per_m,
            jump_change_m_s=gait.jump_change_m_s,
            hold=gait.fall_m_s2 * STEP_S,
            height=self.height_m,
            climb=self.climb,
            fall=self._fall,
            jump_to=self._jump_to,
            jump_left=self._jump_steps,
            tops=self.tops,
            boxes_at=self._boxes_at,
            box_halves=self._box_halves,
            is_cleared=self.is_cleared,
            feet_over=self._feet_are_over,
            center_over=self._center_is_over,
            on=self._on,
            is_over_zone=self.is_over_zone,
            stood=self._stood,
            is_braked=self._is_braked,
            wants_to_jump=self.wants_to_jump,
            solid_pairs=self._pairs,
        )

    # Queries of a task.

    def is_on_ground(self) -> Mask:
        """Return (N,) whether a short line down from the agents' centers meets a support."""
        depth = self._above() + self._half  # of the supports below the centers
        felt = (depth > _PROBE_START_M) & (depth <= _PROBE_END_M) & self._center_is_over
        is_felt: Mask = np.any(felt, axis=0)
        return is_felt

    def is_above(self, support: int) -> Mask:
        """Return (N,) whether the agents' centers are above a support."""
        is_above: Mask = self._center_is_over[support] & (self.height_m > self.tops[support])
        return is_above

    # Parts of a step, in this order.

    def put_down(self, agents: slice | Indices, *, height_m: float, gravity: ArrayLike) -> None:
        """Put agents above the first support and no other, at rest and not jumping.

        Args:
            agents: Indices of the agents.
            height_m: Height of their centers.
            gravity: Downward acceleration, in m/s2.
        """
        self.height_m[agents] = height_m
        self.climb[agents] = 0.0
        self._fall[agents] = np.multiply(gravity, STEP_S)
        self._jump_steps[agents] = 0.0
        for is_over in (self._feet_are_over, self._center_is_over):
            is_over[:, agents] = False
            is_over[0, agents] = True
        self.is_cleared[:, agents] = height_m - self._half - self.tops[:, agents] > -_STEP_UP_M

    def begin_step(self) -> None:
        """Find the supports of all agents, and begin requested jumps."""
        above = self._above()
        self.is_cleared = above > -_STEP_UP_M
        self._on = self.is_cleared & (above < _SUPPORT_GAP_M) & self._feet_are_over
        self._is_braked[:] = self._on[self._is_fixed].any(axis=0)
        self._stood[:] = self._is_braked | self._on[self._loose]
        begins = self.wants_to_jump & (self._jump_steps <= 0.0) & self.is_on_ground()
        self._jump_steps[begins] = self._gait.jump_steps
        self._jump_to[begins] = self.height_m[begins] + self._gait.jump_height_m

    def push(self, forward: Array, right: Array) -> None:
        """Change the agents' velocities by pushes and jumps.

        Args:
            forward: (N,) pushes ahead, as fractions of a full push.
            right: (N,) pushes to the right, as fractions of a full push.
        """
        gait, velocity = self._gait, self._bodies.velocity[:, AGENT]
        push = along(self._bodies.heading[:, AGENT], forward, right)
        push *= np.where(self._stood, 1.0, gait.air_push)
        jumps = self._jump_steps > 0.0
        change = push * gait.jump_speed_per_m - velocity
        change_up = (self._jump_to - self.height_m) * gait.jump_speed_per_m - self.climb
        size = np.sqrt(dot(change, change) + change_up * change_up)
        part = np.where(jumps, gait.jump_change_m_s / np.maximum(size, gait.jump_change_m_s), 0.0)
        velocity += change * part
        velocity += push * gait.push_m_s
        self.climb += change_up * part
        self.climb -= np.where(jumps | self._stood, 0.0, gait.fall_m_s2 * STEP_S)
        self._jump_steps -= 1.0

    def rub(self) -> None:
        """Apply the friction of standing agents, which drags movable supports along."""
        bodies, carrier = self._bodies, self._carrier
        bodies.pressed[AGENT] = self._fall * self._kept * self._is_braked
        agents = np.flatnonzero(self._on[self._loose] & ~self._is_braked)
        if agents.size == 0:
            return
        velocity = bodies.velocity
        kept, carrier_kept = self._kept[agents], self._carrier_kept[agents]
        # Friction acts on velocities after drag, which is applied later.
        slip = velocity[:, AGENT, agents] * kept - velocity[:, carrier, agents] * carrier_kept
        lost = _rubbed_off(slip, self._fall[agents] * kept, self._gain)
        velocity[:, AGENT, agents] -= lost / kept
        velocity[:, carrier, agents] += lost * self._gain / carrier_kept

    def move(self) -> None:
        """Move the bodies, then the agents up or down; land those that reach a support."""
        for support, pair in enumerate(self._pairs):
            if pair != NO_PAIR:
                self._bodies.is_solid[pair] = ~self.is_cleared[support]
        self._bodies.move()
        self.look_down()
        before = self.climb.copy()
        self.climb = (before - self._fall) * self._kept
        self.height_m += self.climb * STEP_S
        is_below = self._feet_are_over & self.is_cleared
        ground = np.where(is_below, self.tops, -np.inf).max(axis=0)
        least = ground + self._half
        lands = self.height_m < least
        self.height_m = np.maximum(self.height_m, least)
        self.climb[lands] = 0.0
        arriving = np.flatnonzero(lands & (before < 0.0))
        if arriving.size == 0:
            return
        # The friction of an agent that stood is already applied.
        fall = np.where(self._stood[arriving], 0.0, self._fall[arriving])
        stopped = (fall - before[arriving]) * self._kept[arriving]
        is_on = is_below[:, arriving] & (self.tops[:, arriving] == ground[arriving])
        self._rub_landing(arriving, stopped, is_on)

    def look_down(self) -> None:
        """Find the supports below the agents, after they have moved in the plane."""
        bodies, n_supports = self._bodies, len(self.tops)
        reach = bodies.reach[X, AGENT]
        self._boxes_at[:, self._loose] = bodies.position[:, self._carrier]
        beside = np.abs(bodies.position[:, AGENT, None] - self._boxes_at) - self._box_halves
        farthest = beside.max(axis=0)
        self._feet_are_over = farthest[:n_supports] < reach - _NARROWER_M
        self._center_is_over = farthest[:n_supports] < 0.0
        self.is_over_zone = farthest[n_supports:] < reach

    def _above(self) -> Array:
        """Return (S, N) heights of the agents' feet above the supports' tops."""
        above: Array = self.height_m - self._half - self.tops
        return above

    def _rub_landing(self, agents: Indices, stopped: Array, is_on: Mask) -> None:
        """Apply the friction of n agents that land.

        Args:
            agents: (n,) indices of the agents.
            stopped: (n,) downward speeds that the supports stop, in m/s.
            is_on: (S, n) whether the agents land on a support.
        """
        velocity, carrier = self._bodies.velocity, self._carrier
        drags = is_on[self._loose] & ~is_on[self._is_fixed].any(axis=0)
        gain = np.where(drags, self._gain, 0.0)
        slip = velocity[:, AGENT, agents] - velocity[:, carrier, agents] * drags
        lost = _rubbed_off(slip, stopped, gain)
        velocity[:, carrier, agents] += lost * gain
        velocity[:, AGENT, agents] -= lost


def _rubbed_off(slip: Array, pressed: Array, gain: ArrayLike) -> Array:
    """Return (2, n) velocities that friction takes from n agents.

    Friction takes `_GRIP` times the speed that the support stops, or just enough to end the slip.

    Args:
        slip: (2, n) velocities relative to the supports.
        pressed: (n,) downward speeds that the supports stopped.
        gain: Speed that a support gains per speed that its agent loses; 0 for a fixed support.
    """
    most = _GRIP * pressed
    size = np.sqrt(dot(slip, slip))
    lost: Array = slip * (most / np.maximum(size, most * (1.0 + np.asarray(gain)) + _TINY))
    return lost
