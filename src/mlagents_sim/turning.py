"""Boxes on a floor that turn when they are pushed beside their middle, in many areas at once.

Arrays and letters are those of `planar`. A spin is an angular velocity to the right, in rad/s.

    boxes = TurningBoxes(n_areas, [Box(half=(0.5, 0.5), mass=10.0)], low=..., high=...)
    boxes.velocity[:, 0] += pushes
    boxes.move()

What is here is the reference: where the native library is available, it computes the same, to the
last bit.
"""

from collections.abc import Sequence
from ctypes import CDLL, POINTER, c_int, c_int64
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlagents_native.library import Part
from mlagents_sim import native_planar
from mlagents_sim.box_faces import corners_of, faces_that_meet
from mlagents_sim.contact import CONTACT_OFFSET_M, FRICTION, STEP_S, kept, least_speeds, rounds
from mlagents_sim.native_planar import FixedArrays, require_equal, require_memory
from mlagents_sim.plane import Array, Indices, X, Z, dot, number, turn

SPIN = 2

ITERATIONS = 6
"""Passes over all contacts of a step, since settling one contact may upset another."""
RUBBING = 3
"""How many of these passes, the last ones, apply friction too."""

_TOUCH = number(CONTACT_OFFSET_M)
_ZERO = number(0.0)
_TINY = number(1e-30)
_LARGEST_TURN = number(0.5)


class Box(NamedTuple):
    """A box that stands upright.

    Attributes:
        half: Half lengths in x and in z, in m.
        mass: Mass in kg.
        drag: Part of the velocity that is lost in a second.
        spin_drag: Part of the spin that is lost in a second.
        turns: Whether pushes turn it; if not, it turns only when its heading is set.
    """

    half: tuple[float, float]
    mass: float
    drag: float = 0.0
    spin_drag: float = 0.0
    turns: bool = True


class TurningBoxes(FixedArrays):
    """The boxes of N areas, which slide and turn on the floor, push each other and stop at walls.

    Contact is that of Unity's physics engine. Two faces that meet have two points of contact, which
    part at the speeds of `contact.least_speeds` at least. All contacts of a step are settled one
    after the other, several times, and each remembers what it has pushed so far. Nothing bounces.

    Friction acts at two anchors of each contact. Those of the floor are at opposite corners of a
    box. Each may take `friction` times the whole push of the contact, along the motion of the
    middle and across it. So a box that slides straight is braked by twice Coulomb's friction, and
    one that turns is braked at its corners.

    Args:
        n_areas: Number of areas, N.
        boxes: Boxes of each area, B of them.
        low: Faces of the walls on the low sides, in x and z.
        high: Faces of the walls on the high sides, as `low`.
        gravity: Acceleration that presses boxes to the floor, in m/s2.
        friction: Coulomb's coefficient of all surfaces.
        is_native: Whether the native library computes, if it is available.

    Attributes:
        functions: Functions of the native library, or None if NumPy computes. The library knows
            the arrays below, so an assignment to one of these attributes copies into its array.
        position: (2, B, N) of the centers, in m.
        velocity: (2, B, N) in m/s.
        heading: (2, B, N) unit vectors.
        spin: (B, N) angular velocities in rad/s.
        half: (2, B) half lengths to the right and ahead, in m.
        is_solid: (B, N) which boxes take part; the others neither move nor touch anything.
    """

    def __init__(
        self,
        n_areas: int,
        boxes: Sequence[Box],
        *,
        low: tuple[float, float],
        high: tuple[float, float],
        gravity: float = 0.0,
        friction: float = FRICTION,
        is_native: bool = True,
    ) -> None:
        self.functions = TURNING.load() if is_native else None
        n_boxes = len(boxes)
        shape = (n_boxes, n_areas)
        self.position = np.zeros((2, *shape))
        self.velocity = np.zeros((2, *shape))
        self.heading = np.zeros((2, *shape))
        self.heading[Z] = 1.0
        self.spin = np.zeros(shape)
        self.half = np.array([box.half for box in boxes]).T.copy()
        self.is_solid = np.ones(shape, np.bool_)
        mass = np.array([box.mass for box in boxes])
        # Mass divided by the moment of inertia of a box about its middle.
        turning = 3.0 / (self.half**2).sum(axis=0) * [box.turns for box in boxes]
        # One more box stands for what never moves.
        self._lightness = np.append(1.0 / mass, 0.0)
        self._turning = np.append(turning / mass, 0.0)
        self._kept = np.array([kept(box.drag) for box in boxes])[:, None]
        self._spin_kept = np.array([kept(box.spin_drag) for box in boxes])[:, None]
        self._turns = turning[:, None]
        self._floor = np.zeros(shape)
        self._friction = friction
        self._walls = np.array([[-low[X], high[X], -low[Z], high[Z]]]).T
        self._pairs = np.array(np.triu_indices(n_boxes, 1))
        radius = np.hypot(*self.half)
        self._radius = radius
        self._reach = (radius[self._pairs].sum(axis=0) + CONTACT_OFFSET_M)[:, None]
        self.set_gravity(slice(None), gravity)

    def set_gravity(self, areas: slice | Indices, gravity: ArrayLike) -> None:
        """Set the downward acceleration in areas, in m/s2, which presses boxes to the floor."""
        fall = np.asarray(gravity) * STEP_S * self._kept
        self._floor[:, areas] = self._friction * fall

    @cached_property
    def shared(self) -> native_planar.TurningBoxes:
        """The boxes, as the native library knows them."""
        n_boxes, n_areas = self.spin.shape
        return native_planar.TurningBoxes(
            n_areas=n_areas,
            n_boxes=n_boxes,
            n_pairs=self._pairs.shape[1],
            friction=self._friction,
            position=self.position,
            velocity=self.velocity,
            heading=self.heading,
            spin=self.spin,
            is_solid=self.is_solid,
            floor=self._floor,
            half=self.half,
            radius=self._radius,
            kept=self._kept,
            spin_kept=self._spin_kept,
            turns=self._turns,
            lightness=self._lightness,
            turning=self._turning,
            walls=self._walls,
            pairs=self._pairs,
            reach=self._reach,
        )

    def move(self) -> None:
        """Move all boxes by a step."""
        if self.functions is not None:
            require_memory(self.functions.turning_move(self.shared))
            return
        n_boxes, n = self.spin.shape
        moving = np.zeros((3, n_boxes + 1, n))
        among = moving[:, :-1]
        among[:2] = self.velocity * self._kept
        among[SPIN] = self.spin * self._spin_kept
        among *= self.is_solid
        contacts = self._contacts()
        floor = _Floor.under(self, among)
        for iteration in range(ITERATIONS):
            rubs = iteration >= ITERATIONS - RUBBING
            for contact in contacts:
                contact.settle(moving, 0, rubs=rubs)
            if rubs:
                floor.rub(among)
        self.position += among[:2] * STEP_S
        turn(self.heading, *_sine_and_cosine(among[SPIN] * STEP_S))
        for contact in contacts:
            contact.settle(moving, 1, rubs=True)
        floor.rub(among)
        self.velocity, self.spin = among[:2], among[SPIN]

    def _contacts(self) -> "list[_Contacts]":
        """Find what touches: rounds of contacts, at most one of each area in a round."""
        a, b = self._pairs
        apart = self.position[:, b] - self.position[:, a]
        is_near = np.abs(apart).max(axis=0) < self._reach
        is_near &= self.is_solid[a] & self.is_solid[b]
        pair, area = is_near.nonzero()
        parts = [self._at_walls()]
        if pair.size:
            parts.append(self._between(a[pair], b[pair], area))
        area, a, b, normal, arms, gaps = (
            np.concatenate([part[k] for part in parts], axis=-1) for k in range(6)
        )
        if area.size == 0:
            return []
        contacts = []
        for chosen in reversed(rounds(area)):
            contacts.append(
                _Contacts(
                    self,
                    area[chosen],
                    a[chosen],
                    b[chosen],
                    normal[:, chosen],
                    arms[..., chosen],
                    gaps[:, chosen],
                )
            )
        return contacts

    def _at_walls(self) -> "tuple[Indices, Indices, Indices, Array, Array, Array]":
        """Return the contacts with walls, as `_between`."""
        corners = corners_of(self.heading, self.half[..., None])  # (2, 4, B, N) from the centers
        outward = np.array([-corners[X], corners[X], -corners[Z], corners[Z]])  # (4 walls, 4, B, N)
        x, z = self.position
        place = np.array([-x, x, -z, z])
        gaps = self._walls[:, :, None] - place - outward.max(axis=1)
        wall, a, area = ((gaps < _TOUCH) & self.is_solid).nonzero()
        seen = outward[wall, :, a, area].T  # (4, n)
        outermost = np.argsort(-seen, axis=0, kind="stable")[:2]
        gap = self._walls[wall, 0] - place[wall, a, area] - np.take_along_axis(seen, outermost, 0)
        mine = corners[:, outermost, a, area]  # (2, 2 points, n)
        normal = _OUTWARD[:, wall]
        b = np.full(len(a), self.spin.shape[0])
        return area, a, b, normal, np.array([mine, np.zeros_like(mine)]), gap

    def _between(
        self, a: Indices, b: Indices, area: Indices
    ) -> "tuple[Indices, Indices, Indices, Array, Array, Array]":
        """Return the contacts among n pairs of boxes.

        Returns:
            (n,) areas, first boxes and second boxes; (2, n) unit vectors from the first to the
            second; (2, 2, 2, n) places of two points of contact from either center: of both boxes,
            x and z, both points; (2, n) gaps at these points, infinite for no contact.
        """
        apart = self.position[:, b, area] - self.position[:, a, area]
        heading = self.heading[:, [a, b], area]  # (2, 2 boxes, n)
        touching, normal, arms, gap = faces_that_meet(apart, heading, self.half[:, [a, b]])
        return area[touching], a[touching], b[touching], normal, arms, gap


_OUTWARD = np.array([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
"""(2, 4) directions of the walls."""


def _sine_and_cosine(angle: Array) -> tuple[Array, Array]:
    """Return sine and cosine by their series, the same in every form of the code.

    Angles beyond half a radian, which no spin up to 25 rad/s turns by in a step, are cut to that.
    """
    angle = np.minimum(np.maximum(angle, -_LARGEST_TURN), _LARGEST_TURN)
    s = angle * angle
    sine: Array = angle * (1.0 - s / 6.0 * (1.0 - s / 20.0 * (1.0 - s / 42.0 * (1.0 - s / 72.0))))
    inner = 1.0 - s / 30.0 * (1.0 - s / 56.0 * (1.0 - s / 90.0))
    cosine: Array = 1.0 - s / 2.0 * (1.0 - s / 12.0 * inner)
    return sine, cosine


class _Floor:
    """Friction of boxes with the floor in a step: what it has taken so far, and its limits."""

    def __init__(self, arms: Array, ways: Array, limit: Array, turns: Array) -> None:
        self._turns, self._limit = turns, limit
        # For each anchor and direction: spin per push, and part of a slip that is taken at once.
        self._rows = []
        for arm in (arms, -arms):
            for way in (ways, np.array([-ways[Z], ways[X]])):
                lever = arm[Z] * way[X] - arm[X] * way[Z]
                part = 1.0 / (1.0 + turns * lever * lever)
                self._rows.append((way, lever, part, np.zeros_like(limit)))

    @classmethod
    def under(cls, boxes: TurningBoxes, moving: Array) -> "_Floor":
        """Make the friction of boxes that move with (3, B, N) velocities and spins."""
        speed = np.sqrt(dot(moving, moving))
        ways = np.where(speed > 1e-9, moving[:2] / (speed + _TINY), boxes.heading)
        corners = corners_of(boxes.heading, boxes.half[..., None])
        return cls(corners[:, 2], ways, boxes._floor, boxes._turns)

    def rub(self, moving: Array) -> None:
        """Brake boxes that move with (3, B, N) velocities and spins, changed in place."""
        limit = self._limit
        for way, lever, part, taken in self._rows:
            slip = moving[X] * way[X] + moving[Z] * way[Z] + moving[SPIN] * lever
            total = np.minimum(np.maximum(taken + slip * part, -limit), limit)
            change = total - taken
            taken[:] = total
            moving[X] -= change * way[X]
            moving[Z] -= change * way[Z]
            moving[SPIN] -= change * lever * self._turns


class _Contacts:
    """Contacts of n pairs of boxes, at most one of each area, with two points each."""

    def __init__(
        self,
        boxes: TurningBoxes,
        area: Indices,
        a: Indices,
        b: Indices,
        normal: Array,
        arms: Array,
        gaps: Array,
    ) -> None:
        self._at = np.array([a, b]), area
        self._lightness = boxes._lightness[self._at[0]]  # (2 boxes, n)
        turning = boxes._turning[self._at[0]]
        aside = np.array([-normal[Z], normal[X]])
        both = self._lightness.sum(axis=0)
        # For each direction, point and box: what a push turns, and a speed per spin.
        self._normal, self._aside = normal, aside
        self._levers = np.array(
            [arms[:, Z] * way[X] - arms[:, X] * way[Z] for way in (normal, aside)]
        )  # (2 ways, 2 boxes, 2 points, n)
        self._turns = self._levers * turning[:, None]
        self._parts = 1.0 / (both + (self._turns * self._levers).sum(axis=1))  # (2 ways, 2, n)
        in_step, after = least_speeds(np.minimum(gaps, 1.0))
        self._wanted = np.where(np.isfinite(gaps) & (gaps < _TOUCH), [in_step, after], -np.inf)
        self._pushed = np.zeros_like(gaps)
        self._rubbed = np.zeros_like(gaps)
        self._friction = boxes._friction

    def settle(self, moving: Array, phase: int, *, rubs: bool) -> None:
        """Push boxes apart and apply their friction; (3, B + 1, N) velocities are changed."""
        boxes, area = self._at
        velocity = moving[:, boxes, area]  # (3, 2 boxes, n)
        for point in range(2):
            speed = self._speed(velocity, self._normal, self._levers[0, :, point])
            push = (self._wanted[phase, point] - speed) * self._parts[0, point]
            total = np.maximum(self._pushed[point] + push, _ZERO)
            self._change(
                velocity, self._normal, self._turns[0, :, point], total - self._pushed[point]
            )
            self._pushed[point] = total
        if rubs:
            limit = self._friction * self._pushed.sum(axis=0)
            for point in range(2):
                speed = self._speed(velocity, self._aside, self._levers[1, :, point])
                taken = self._rubbed[point]
                total = np.clip(taken - speed * self._parts[1, point], -limit, limit)
                self._change(velocity, self._aside, self._turns[1, :, point], total - taken)
                self._rubbed[point] = total
        moving[:, boxes, area] = velocity

    def _speed(self, velocity: Array, way: Array, levers: Array) -> Array:
        """Return (n,) speeds at which boxes part in a direction, at points with these levers."""
        speeds = velocity[X] * way[X] + velocity[Z] * way[Z] + velocity[SPIN] * levers
        parting: Array = speeds[1] - speeds[0]
        return parting

    def _change(self, velocity: Array, way: Array, turns: Array, push: Array) -> None:
        signed = push * _SIGNS
        change = signed * self._lightness
        velocity[X] += change * way[X]
        velocity[Z] += change * way[Z]
        velocity[SPIN] += signed * turns


_SIGNS = np.array([[-1.0], [1.0]])
"""Which way a push goes for the first and the second box."""


def _declare(functions: CDLL) -> None:
    functions.turning_move.argtypes = [POINTER(native_planar.TurningBoxes)]
    functions.turning_move.restype = c_int
    functions.turning_steer.argtypes = [POINTER(native_planar.Pushers)]
    functions.turning_steer.restype = None
    functions.turning_run.argtypes = [POINTER(native_planar.Pushers), c_int64]
    functions.turning_run.restype = c_int64


def _check(functions: CDLL) -> None:
    """Compare some steps of boxes that push each other in a corner with the reference.

    Raises:
        NativeError: A result differs.
    """
    square = Box((0.5, 0.5), 10.0, drag=0.5)
    rng = np.random.default_rng(0)
    place, speed = rng.uniform(-1.5, 1.5, (2, 3, 20)), rng.uniform(-5.0, 5.0, (2, 3, 20))
    yaw = rng.uniform(0.0, 2.0 * np.pi, (3, 20))
    native, reference = (
        TurningBoxes(
            20,
            [square, square._replace(half=(1.0, 0.5)), square._replace(turns=False)],
            low=(-2.0, -2.0),
            high=(2.0, 2.0),
            gravity=9.81,
            is_native=False,
        )
        for _ in range(2)
    )
    for boxes in (native, reference):
        boxes.position, boxes.velocity = place, speed
        boxes.heading = np.array([np.sin(yaw), np.cos(yaw)])
    native.functions = functions
    for _ in range(5):
        native.move()
        reference.move()
    names = ("position", "velocity", "heading", "spin")
    require_equal(native, reference, names, of="boxes that turn")


TURNING = Part("turning", version=1, declare=_declare, check=_check, otherwise="NumPy")
