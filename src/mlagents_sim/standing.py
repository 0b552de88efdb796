"""Agents that jump, fall and stand on things, beside the motion of `Bodies` in the plane.

    standing = Standing(bodies, AGENT, supports, gait=Gait(...))
    standing.begin_step(wants_to_jump)    # before the agents are pushed
    standing.push(forward, right)
    standing.rub()
    standing.move()                       # moves the bodies, too

Arrays and letters are those of `planar`; S is the number of supports. A support is known by its
row. Heights are those of the axis up, which the world's source chose.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim.planar import (
    ANCHORS,
    FRICTION,
    STEP_S,
    Array,
    Bodies,
    Indices,
    Mask,
    X,
    Z,
    number,
)

_STEP = number(STEP_S)
_ZERO, _ONE = number(0.0), number(1.0)
_TINY = number(1e-30)
"""Keeps a quotient finite where the divisor may be 0."""
_GRIP = number(ANCHORS * FRICTION)

_PROBE_START_M, _PROBE_END_M = 0.05, 1.05
"""Start and end of the line that probes for ground, below the agent's centre."""
_SUPPORT_GAP_M = number(0.05)
"""Gap between feet and support from which on the support no longer carries the agent."""
_NARROWER_M = number(0.025)
"""Part of a foot's edge, on each side, that does not find support."""
_STEP_UP_M = 0.05
"""Height of an edge that does not stop an agent that goes over it."""
_LOWEST_CLEAR = number(-_STEP_UP_M)
"""Largest penetration, negative, at which a standing agent still counts as supported."""


class Support(NamedTuple):
    """A box on which agents can stand, or a zone that they can be over.

    Attributes:
        half: Half lengths in x and in z, in m.
        centre: Place in x and in z, in m; the body's if there is one.
        top_m: Height of the top, in m.
        body: Index of the body that the support is, or None for one that never moves.
        mass_ratio: Mass of the agent divided by that of the body.
    """

    half: tuple[float, float]
    centre: tuple[float, float] = (0.0, 0.0)
    top_m: float = 0.0
    body: int | None = None
    mass_ratio: float = 0.0


class Gait(NamedTuple):
    """Means by which agents move themselves.

    Attributes:
        push_m_s: Speed that a full push adds in a step.
        air_push: Part of a push that is left in the air.
        jump_height_m: Height of a jump's target above its start.
        jump_steps: Number of steps that a jump lasts.
        jump_speed_per_m: Speed at which a jump aims, per metre to its target. A full push puts the
            target 1 m aside.
        jump_change_m_s: Largest change of the velocity by a jump in a step.
        fall_m_s2: Downward acceleration, besides gravity, of an agent in the air after its jump.
    """

    push_m_s: float
    air_push: float
    jump_height_m: float
    jump_steps: float
    jump_speed_per_m: float
    jump_change_m_s: float
    fall_m_s2: float


class Standing:
    """Vertical motion of one body in each area: ground, jumps, landings and friction below it.

    An agent stands on any support below its edges. Its weight rubs while it stands, and the whole
    fall rubs when it lands. Friction on the support that moves drags that body along.

    Args:
        bodies: Bodies of all areas.
        agent: Index of the body that stands, a cube.
        supports: Supports of each area, S of them, of which one has a body.
        gait: Means by which the agents move themselves.
        zones: Boxes that carry no agent, for `is_over_zone`.

    Attributes:
        height_m: (N,) heights of the agents' centres.
        climb: (N,) upward speeds, in m/s.
        tops: (S, N) heights of the supports' tops, in m, for a task to set.
        is_cleared: (S, N) whether feet were no lower than tops when the step began. Such a support
            can be stood on, and does not stop an agent that goes over it.
        is_over_zone: (zones, N) whether the agents reach over zones, found by the last move.
    """

    def __init__(
        self,
        bodies: Bodies,
        agent: int,
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
        self._is_fixed = np.tile([[support.body is None] for support in supports], n)
        self._bodies, self._agent = bodies, agent
        self._kept, self._carrier_kept = bodies.kept[agent], bodies.kept[self._carrier]
        self._gain = number(supports[self._loose].mass_ratio)
        half_m = bodies.half[X, agent, 0]
        self._half = number(half_m)
        self._highest_felt = number(_PROBE_START_M - half_m)
        self._lowest_felt = number(_PROBE_END_M - half_m)
        self._push_m_s = number(gait.push_m_s)
        self._jump_height_m, self._jump_length = number(gait.jump_height_m), number(gait.jump_steps)
        self._jump_speed_per_m = number(gait.jump_speed_per_m)
        self._jump_change_m_s = number(gait.jump_change_m_s)
        self._push_by_ground = np.array([gait.air_push, 1.0])
        self._change_by_jump = np.array([0.0, gait.jump_change_m_s])
        self._fall_by_hold = np.array([gait.fall_m_s2 * STEP_S, 0.0])

        self.height_m = np.zeros(n)
        self.climb = np.zeros(n)
        self.tops = np.tile([[support.top_m] for support in supports], n)
        self.is_cleared = np.zeros((n_supports, n), np.bool_)
        self.is_over_zone = np.zeros((len(zones), n), np.bool_)
        self._boxes_at = np.array([box.centre for box in boxes]).T[..., None].repeat(n, axis=2)
        self._box_halves = np.array([box.half for box in boxes]).T[..., None].repeat(n, axis=2)
        # Whether the feet are over supports, and whether the centres.
        self._is_over = np.zeros((2, n_supports, n), np.bool_)
        self._feet_are_over, self._centre_is_over = self._is_over
        self._on = np.zeros((n_supports, n), np.bool_)  # support when the step began
        self._stood = np.zeros(n, np.bool_)  # on any
        self._is_braked = np.zeros(n, np.bool_)  # on one that never moves
        self._grounds = np.empty((n_supports, n))  # tops of those that an agent can stand on
        self._fall = np.zeros(n)  # speed that gravity adds in a step
        self._jump_to = np.zeros(n)  # heights
        self._jump_steps = np.zeros(n)  # left of a jump

    # Queries of a task.

    def is_on_ground(self) -> Mask:
        """Return (N,) whether a short line down from the agents' centres meets a support."""
        above = self._above()
        felt = (above > self._highest_felt) & (above <= self._lowest_felt) & self._centre_is_over
        is_felt: Mask = np.logical_or.reduce(felt)
        return is_felt

    def is_above(self, support: int) -> Mask:
        """Return (N,) whether the agents' centres are above a support."""
        is_above: Mask = self._centre_is_over[support] & (self.height_m > self.tops[support])
        return is_above

    # Parts of a step, in this order.

    def put_down(self, agents: slice | Indices, *, height_m: float, gravity: ArrayLike) -> None:
        """Put agents above the first support and no other, at rest and not jumping.

        Args:
            agents: Indices of the agents.
            height_m: Height of their centres.
            gravity: Downward acceleration, in m/s2.
        """
        self.height_m[agents] = height_m
        self.climb[agents] = _ZERO
        self._fall[agents] = np.multiply(gravity, _STEP)
        self._jump_steps[agents] = _ZERO
        self._is_over[:, :, agents] = False
        self._is_over[:, 0, agents] = True
        self.is_cleared[:, agents] = height_m - self._half - self.tops[:, agents] > _LOWEST_CLEAR

    def begin_step(self, wants_to_jump: Mask) -> None:
        """Find what agents stand on, and begin their jumps.

        Args:
            wants_to_jump: (N,) which agents jump as soon as there is ground.
        """
        above = self._above()
        self.is_cleared = above > _LOWEST_CLEAR
        self._on = self.is_cleared & (above < _SUPPORT_GAP_M) & self._feet_are_over
        self._is_braked = np.logical_or.reduce(self._on & self._is_fixed)
        self._stood = self._is_braked | self._on[self._loose]
        (agents,) = (wants_to_jump & (self._jump_steps <= _ZERO)).nonzero()
        if agents.size:
            agents = agents[self.is_on_ground()[agents]]
            self._jump_steps[agents] = self._jump_length
            self._jump_to[agents] = self.height_m[agents] + self._jump_height_m

    def push(self, forward: Array, right: Array) -> None:
        """Change the agents' velocities by pushes and jumps.

        Args:
            forward: (N,) pushes ahead, as parts of a full one.
            right: (N,) pushes to the right, as parts of a full one.
        """
        bodies, agent = self._bodies, self._agent
        # Components are taken one by one, as those of one body lie together, but the two do not.
        x, z = bodies.heading[X, agent], bodies.heading[Z, agent]
        v_x, v_z = bodies.velocity[X, agent], bodies.velocity[Z, agent]
        part = self._push_by_ground.take(self._stood)
        push_x = (x * forward + z * right) * part
        push_z = (z * forward - x * right) * part
        jumps = self._jump_steps > _ZERO
        if np.count_nonzero(jumps):
            change_x = push_x * self._jump_speed_per_m - v_x
            change_z = push_z * self._jump_speed_per_m - v_z
            change_y = (self._jump_to - self.height_m) * self._jump_speed_per_m - self.climb
            size = np.sqrt(change_x * change_x + change_z * change_z + change_y * change_y)
            part = self._change_by_jump.take(jumps) / np.maximum(size, self._jump_change_m_s)
            v_x += change_x * part
            v_z += change_z * part
            self.climb += change_y * part
        v_x += push_x * self._push_m_s
        v_z += push_z * self._push_m_s
        self.climb -= self._fall_by_hold.take(jumps | self._stood)
        self._jump_steps -= _ONE

    def rub(self) -> None:
        """Press standing agents to what never moves, and drag along what moves below them."""
        bodies, agent, carrier = self._bodies, self._agent, self._carrier
        pressed = bodies.pressed[agent]
        np.multiply(self._fall, self._kept, out=pressed)
        pressed *= self._is_braked
        (agents,) = (self._on[self._loose] > self._is_braked).nonzero()
        if agents.size == 0:
            return
        velocity = bodies.velocity
        kept, carrier_kept = self._kept[agents], self._carrier_kept[agents]
        # Friction comes after drag, which is yet to come.
        slip = velocity[:, agent, agents] * kept - velocity[:, carrier, agents] * carrier_kept
        lost = _rubbed_off(slip, self._fall[agents] * kept, self._gain)
        velocity[:, agent, agents] -= lost / kept
        velocity[:, carrier, agents] += lost * self._gain / carrier_kept

    def move(self) -> None:
        """Move the bodies, then the agents up or down; land those that reach a support."""
        self._bodies.move()
        self.look_down()
        before = self.climb
        self.climb = (before - self._fall) * self._kept
        self.height_m += self.climb * _STEP
        is_below = self._feet_are_over & self.is_cleared
        grounds = self._grounds
        grounds.fill(-np.inf)
        np.copyto(grounds, self.tops, where=is_below)
        ground = np.maximum.reduce(grounds)
        least = ground + self._half
        lands = self.height_m < least
        self.height_m = np.maximum(self.height_m, least)
        np.copyto(self.climb, _ZERO, where=lands)
        (arriving,) = (lands & (before < _ZERO)).nonzero()
        if arriving.size:
            # The weight of an agent that stood has rubbed already.
            fall = np.where(self._stood[arriving], _ZERO, self._fall[arriving])
            stopped = (fall - before[arriving]) * self._kept[arriving]
            is_on = is_below[:, arriving] & (self.tops[:, arriving] == ground[arriving])
            self._rub_landing(arriving, stopped, is_on)

    def look_down(self) -> None:
        """Find what is below the agents, after they were moved in the plane."""
        bodies, n_supports = self._bodies, len(self.tops)
        reach = bodies.reach[X, self._agent]
        self._boxes_at[:, self._loose] = bodies.position[:, self._carrier]
        beside = bodies.position[:, self._agent, None] - self._boxes_at
        np.absolute(beside, out=beside)
        beside -= self._box_halves
        farthest = np.maximum(beside[X], beside[Z])
        supports = farthest[:n_supports]
        np.less(supports, reach - _NARROWER_M, out=self._feet_are_over)
        np.less(supports, _ZERO, out=self._centre_is_over)
        np.less(farthest[n_supports:], reach, out=self.is_over_zone)

    def _above(self) -> Array:
        """Return (S, N) heights of the agents' feet above the supports' tops."""
        above: Array = self.height_m - self._half - self.tops
        return above

    def _rub_landing(self, agents: Indices, stopped: Array, is_on: Mask) -> None:
        """Rub n agents on what they land on.

        Args:
            agents: (n,) indices of the agents.
            stopped: (n,) downward speeds that the supports stop, in m/s.
            is_on: (S, n) whether the agents land on a support.
        """
        velocity, agent, carrier = self._bodies.velocity, self._agent, self._carrier
        slip = velocity[:, agent, agents]
        drags = is_on[self._loose] & ~np.logical_or.reduce(is_on & self._is_fixed[:, agents])
        gain = _ZERO
        if np.count_nonzero(drags):
            slip -= velocity[:, carrier, agents] * drags
            gain = np.where(drags, self._gain, _ZERO)
            velocity[:, carrier, agents] += _rubbed_off(slip, stopped, gain) * gain
        velocity[:, agent, agents] -= _rubbed_off(slip, stopped, gain)


def _rubbed_off(slip: Array, pressed: Array, gain: Array) -> Array:
    """Return (2, n) velocities that friction takes from n agents.

    Friction takes `_GRIP` times the speed that the support stops, or just enough to end the slip.

    Args:
        slip: (2, n) velocities relative to the supports.
        pressed: (n,) downward speeds that the supports stopped.
        gain: Speed that a support gains per speed that its agent loses; 0 for a fixed support.
    """
    most = _GRIP * pressed
    lost: Array = slip * (most / np.maximum(np.hypot(*slip), most * (_ONE + gain) + _TINY))
    return lost
