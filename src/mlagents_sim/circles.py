"""Discs on a floor, which roll, bounce and rub, in many areas at once.

Discs are balls or upright bodies that are round, seen from above. Arrays and letters are those of
`planar`, besides: C discs of an area, W walls. A spin is an angular velocity in rad/s, (3, C, N):
about x, about z, and about the axis that points up, positive to the right.

    discs = Circles(n_areas, [Disc(radius=0.5, mass=50.0)], walls=[...])
    discs.velocity[:, 0] += pushes
    discs.move()

What is here is the reference: where the native library is available, it computes the same, to the
last bit.
"""

from collections.abc import Sequence
from ctypes import CDLL, POINTER, c_int
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlagents_native.library import Part
from mlagents_sim import native_planar
from mlagents_sim.contact import CONTACT_OFFSET_M, FRICTION, STEP_S, kept, least_speeds, rounds
from mlagents_sim.native_planar import FixedArrays, require_equal, require_memory
from mlagents_sim.plane import Array, Indices, X, Z, dot, length, number
from mlagents_sim.walls import Wall, Walls

ABOUT_X, ABOUT_Z, ABOUT_Y = range(3)
UP = 5

BOUNCE_M_S = 2.0
"""Speed of approach up to which nothing bounces."""
ITERATIONS = 6
"""Passes over all contacts of a step, since settling one contact may upset another."""
RUBBING = 3
"""How many of these passes, the last ones, apply friction too."""
ROLLING = 2.5
"""Mass times squared radius of a solid ball, divided by its moment of inertia."""

ALL = slice(None)
_TOUCH = number(CONTACT_OFFSET_M)
_ZERO = number(0.0)
_TINY = number(1e-30)


class Disc(NamedTuple):
    """A body that is round seen from above.

    Attributes:
        radius: Radius in m.
        mass: Mass in kg.
        drag: Part of the velocity and of the spin that is lost in a second.
        rolls: Whether it is a ball that can spin; if not, it keeps its attitude.
        bounce: Part of the speed of approach that a contact with this disc returns.
        height: Height of the center above the floor, in m; by default the radius.
    """

    radius: float
    mass: float
    drag: float = 0.0
    rolls: bool = False
    bounce: float = 0.0
    height: float | None = None


class Circles(FixedArrays):
    """The discs of N areas, which slide or roll over the floor, and meet each other and walls.

    Contact is that of Unity's physics engine, as in `planar.Bodies`. In addition, a contact bounces
    where the surfaces approach faster than 2 m/s, and would meet within the step: they part at
    `bounce` times that speed, the larger of the two bodies' values. A contact has one point, so
    friction is Coulomb's, along the floor and upwards each: it takes at most `friction` times the
    speed that the contact stops. The spin of a ball counts, and what friction lifts or presses
    changes how firmly a disc stands on the floor. Heights themselves do not change.

    Args:
        n_areas: Number of areas, N.
        discs: Discs of each area, C of them.
        walls: Walls of each area, W of them.
        clear: Half lengths in x and z of the middle of an area, which no wall reaches into.
        floor_friction: Coulomb's coefficient between discs and the floor.
        gravity: Acceleration that presses discs to the floor, in m/s2.
        friction: Coulomb's coefficient between discs, and between discs and walls.
        is_native: Whether the native library computes, if it is available.

    Attributes:
        functions: Functions of the native library, or None if NumPy computes. The library knows
            the arrays below, so an assignment to one of these attributes copies into its array.
        position: (2, C, N) of the centers, in m.
        velocity: (2, C, N) in m/s.
        spin: (3, C, N) angular velocities in rad/s, 0 for discs that do not roll.
        pairs: (2, P) discs that may meet: all pairs, in order.
        touching: (P, N) which pairs touched in the last step.
        normal: (2, P, N) unit vectors from the first to the second disc of pairs that touched.
    """

    def __init__(
        self,
        n_areas: int,
        discs: Sequence[Disc],
        *,
        walls: Sequence[Wall] = (),
        clear: tuple[float, float] = (0.0, 0.0),
        floor_friction: float = 0.0,
        gravity: float = 0.0,
        friction: float = FRICTION,
        is_native: bool = True,
    ) -> None:
        self.functions = CIRCLES.load() if is_native else None
        n_discs = len(discs)
        shape = (n_discs, n_areas)
        self.position = np.zeros((2, *shape))
        self.velocity = np.zeros((2, *shape))
        self.spin = np.zeros((3, *shape))
        self.pairs = (
            np.array(list(combinations(range(n_discs), 2)), np.intp).reshape(-1, 2).T.copy()
        )
        n_pairs = self.pairs.shape[1]
        self.touching = np.zeros((n_pairs, n_areas), np.bool_)
        self.normal = np.zeros((2, n_pairs, n_areas))

        # One more disc stands for what never moves.
        def by_disc(values: Sequence[float]) -> Array:
            return np.array([*values, 0.0])

        self._radius = by_disc([disc.radius for disc in discs])
        self._lightness = by_disc([1.0 / disc.mass for disc in discs])
        self._rolls = by_disc([ROLLING * disc.rolls for disc in discs])
        self._bounce = by_disc([disc.bounce for disc in discs])
        self._kept = np.array([kept(disc.drag) for disc in discs])[:, None]
        rolls, radius = self._rolls[:-1, None], self._radius[:-1, None]
        self._arm = np.array([[disc.height or disc.radius] for disc in discs])
        self._floor_part = 1.0 / (1.0 + rolls * np.square(self._arm / radius))
        self._floor_spin = rolls * self._arm / np.square(radius)
        # A disc that overlaps the floor is pushed up in the step itself, which its height undoes.
        self._rise = least_speeds(np.minimum(self._arm - radius, 0.0))[0]
        self._fall = np.zeros(shape)
        self.set_gravity(ALL, gravity)
        self._floor_friction = number(floor_friction)
        self._friction = number(friction)
        self._walls = Walls.of(walls, clear)
        self._reach = (self._radius[self.pairs].sum(axis=0) + CONTACT_OFFSET_M)[:, None]
        self._column = np.arange(n_areas)

    def set_gravity(self, areas: slice | Indices, gravity: ArrayLike) -> None:
        """Set the downward acceleration in areas, in m/s2, which presses discs to the floor."""
        self._fall[:, areas] = -self._kept * (np.asarray(gravity) * STEP_S)

    @cached_property
    def shared(self) -> native_planar.Circles:
        """The discs, as the native library knows them."""
        n_discs, n_areas = self._fall.shape
        walls = self._walls
        return native_planar.Circles(
            n_areas=n_areas,
            n_discs=n_discs,
            n_pairs=self.pairs.shape[1],
            n_walls=walls.center.shape[1],
            floor_friction=float(self._floor_friction),
            friction=float(self._friction),
            position=self.position,
            velocity=self.velocity,
            spin=self.spin,
            fall=self._fall,
            radius=self._radius,
            lightness=self._lightness,
            rolls=self._rolls,
            bounce=self._bounce,
            kept=self._kept,
            arm=self._arm,
            floor_part=self._floor_part,
            floor_spin=self._floor_spin,
            rise=self._rise,
            pairs=self.pairs,
            reach=self._reach,
            touching=self.touching,
            normal=self.normal,
            wall_center=walls.center,
            wall_half=walls.half,
            wall_heading=walls.heading,
            clear=tuple(walls.clear.ravel()),
        )

    def move(self) -> None:
        """Move all discs by a step."""
        if self.functions is not None:
            require_memory(self.functions.circles_move(self.shared))
            return
        self.velocity *= self._kept
        self.spin *= self._kept
        moving = np.empty((6, *self.velocity.shape[1:]))
        moving[:2], moving[2:UP], moving[UP] = self.velocity, self.spin, self._fall
        contacts = self._contacts()
        if contacts is None:
            self._slide(moving)
            return
        areas, rounds = contacts
        n_discs = moving.shape[1]
        met = np.zeros((6, n_discs + 1, len(areas)))
        met[:, :-1] = moving[..., areas]
        place = self.position[..., areas]
        self._slide(moving)
        among = met[:, :-1]
        ways = among[:2] / (length(among) + _TINY)
        taken = np.zeros_like(among[:3])
        for iteration in range(ITERATIONS):
            rubs = iteration >= ITERATIONS - RUBBING
            for contact in rounds:
                self._settle(contact, met, contact.wanted[0], rubs)
            self._press(among, ways, taken, self._rise, rubs)
        self.position[..., areas] = place + among[:2] * STEP_S
        for contact in rounds:
            self._settle(contact, met, contact.wanted[1], rubs=True)
        self._press(among, ways, taken, _ZERO, rubs=True)
        self.velocity[..., areas], self.spin[..., areas] = among[:2], among[2:UP]

    def _slide(self, moving: Array) -> None:
        """Move discs that meet nothing but the floor; (6, C, N) velocities are changed in place."""
        ways = moving[:2] / (length(moving) + _TINY)
        taken = np.zeros_like(moving[:3])
        self._press(moving, ways, taken, self._rise, rubs=True)
        self.position += moving[:2] * STEP_S
        self._press(moving, ways, taken, _ZERO, rubs=True)
        self.velocity, self.spin = moving[:2], moving[2:UP]

    def _press(self, moving: Array, ways: Array, taken: Array, wanted: Array, rubs: bool) -> None:
        """Keep discs on the floor, and brake those that slide; balls roll once they do not slide.

        Friction along the motion and friction across it have limits of their own.

        Args:
            moving: (6, C, N) velocities and spins, changed in place.
            ways: (2, C, N) unit vectors of the motion when the step began.
            taken: (3, C, N) what friction along and across and the floor have taken so far; changed
                in place.
            wanted: Least upward speed.
            rubs: Whether to apply friction too.
        """
        pressed = np.maximum(taken[2] + wanted - moving[UP], _ZERO)
        moving[UP] += pressed - taken[2]
        taken[2] = pressed
        if not rubs:
            return
        along_x, along_z = ways
        # Velocity of the lowest point.
        x = moving[X] + moving[2 + ABOUT_Z] * self._arm
        z = moving[Z] - moving[2 + ABOUT_X] * self._arm
        total = np.array([x * along_x + z * along_z, z * along_x - x * along_z])
        total *= self._floor_part
        total += taken[:2]
        limit = self._floor_friction * pressed
        np.minimum(np.maximum(total, -limit, out=total), limit, out=total)
        ahead, aside = total - taken[:2]
        taken[:2] = total
        x, z = ahead * along_x - aside * along_z, ahead * along_z + aside * along_x
        moving[X] -= x
        moving[Z] -= z
        moving[2 + ABOUT_X] += self._floor_spin * z
        moving[2 + ABOUT_Z] -= self._floor_spin * x

    def _contacts(self) -> "tuple[Indices, list[_Contacts]] | None":
        """Find what touches: areas, and rounds of at most one contact of each of these areas."""
        first, second = self.pairs
        position = self.position
        apart = position[:, second] - position[:, first]
        distance = length(apart)
        self.touching = distance < self._reach
        pair, area = self.touching.nonzero()
        found = []
        if pair.size:
            distance = distance[pair, area]
            normal = apart[:, pair, area] / np.maximum(distance, 1e-9)
            self.normal[:, pair, area] = normal
            gap = distance - self._reach[pair, 0] + CONTACT_OFFSET_M
            found.append((area, first[pair], second[pair], normal, gap))
        at_walls = self._walls.near(position, self._radius[:-1])
        if at_walls is not None:
            disc, area, normal, gap = at_walls
            found.append((area, disc, np.full(len(disc), len(self._radius) - 1), normal, gap))
        if not found:
            return None
        area, a, b, gap = (np.concatenate([each[k] for each in found]) for k in (0, 1, 2, 4))
        normal = np.concatenate([each[3] for each in found], axis=1)
        wanted = least_speeds(gap)
        # What approaches fast and meets in this step bounces.
        velocity = np.zeros((2, len(self._radius), len(self._column)))
        velocity[:, :-1] = self.velocity
        nearing = -dot(velocity[:, b, area] - velocity[:, a, area], normal)
        bounce = np.maximum(self._bounce[a], self._bounce[b])
        bounces = (bounce > 0.0) & (nearing > BOUNCE_M_S) & (nearing * STEP_S > gap)
        wanted = np.where(bounces, bounce * nearing, wanted)
        areas, area = np.unique(area, return_inverse=True)
        return areas, self._rounds(area, a, b, normal, wanted, gap)

    def _rounds(
        self, area: Indices, a: Indices, b: Indices, normal: Array, wanted: Array, gap: Array
    ) -> "list[_Contacts]":
        """Split contacts of (n,) places among areas into rounds."""
        contacts = []
        for chosen in rounds(area):
            bodies = np.array([a[chosen], b[chosen]])
            lightness, radius = self._lightness[bodies], self._radius[bodies]
            # The point where surfaces that overlap touch is inside a ball.
            arm = radius + gap[chosen]
            both = lightness.sum(axis=0)
            spins = self._rolls[bodies] * lightness * arm / np.maximum(radius, 1e-9) ** 2 / both
            turning = (spins * arm).sum(axis=0)
            contacts.append(
                _Contacts(
                    area[chosen],
                    bodies[0],
                    bodies[1],
                    normal[:, chosen],
                    wanted[:, chosen],
                    lightness / both,
                    arm,
                    spins,
                    1.0 / (1.0 + turning),
                    np.zeros((3, len(chosen))),
                )
            )
        return contacts

    def _settle(self, contact: "_Contacts", moving: Array, wanted: Array, rubs: bool) -> None:
        """Push discs apart and apply their friction.

        Args:
            contact: Contacts, at most one of each area.
            moving: (6, C + 1, A) velocities and spins of the areas, changed in place.
            wanted: (n,) least speeds of parting.
            rubs: Whether to apply friction too.
        """
        area, a, b, (n_x, n_z), _, share, arm, spins, part, taken = contact
        one, other = moving[:, a, area], moving[:, b, area]  # (6, n)
        apart_x, apart_z = other[:2] - one[:2]
        pushed = np.maximum(taken[0] + wanted - (apart_x * n_x + apart_z * n_z), _ZERO)
        push = pushed - taken[0]
        taken[0] = pushed
        x, z = push * n_x, push * n_z
        if rubs:
            limit = self._friction * pushed
            # Slip of the surfaces to the left of the normal, and up, by motion and spin.
            slip = apart_z * n_x - apart_x * n_z
            slip += one[2 + ABOUT_Y] * arm[0] + other[2 + ABOUT_Y] * arm[1]
            about = one[2 : 2 + ABOUT_Y] * arm[0] + other[2 : 2 + ABOUT_Y] * arm[1]
            rise = other[UP] - one[UP] + about[ABOUT_X] * n_z - about[ABOUT_Z] * n_x
            total = taken[1:] + np.array([slip, rise]) * part
            np.minimum(np.maximum(total, -limit, out=total), limit, out=total)
            brake, lift = total - taken[1:]
            taken[1:] = total
            x += brake * n_z
            z -= brake * n_x
            for body, spin in ((one, spins[0]), (other, spins[1])):
                body[2 + ABOUT_Y] -= spin * brake
                body[2 + ABOUT_X] -= spin * lift * n_z
                body[2 + ABOUT_Z] += spin * lift * n_x
            one[UP] += share[0] * lift
            other[UP] -= share[1] * lift
        one[X] -= share[0] * x
        one[Z] -= share[0] * z
        other[X] += share[1] * x
        other[Z] += share[1] * z
        moving[:, a, area] = one
        moving[:, b, area] = other


class _Contacts(NamedTuple):
    """Contacts of n pairs, at most one of each area.

    Attributes:
        area: (n,) areas.
        a: (n,) first discs.
        b: (n,) second discs, or what never moves.
        normal: (2, n) unit vectors from the first to the second.
        wanted: (2, n) least speeds of parting, in this step and after it.
        share: (2, n) parts of a push that these take.
        arm: (2, n) distances from their centers to where they touch.
        spins: (2, n) spins that friction gives to these.
        part: (n,) part of a slip that friction takes at once, by motion and not by spin.
        taken: (3, n) what the contacts have pushed, and rubbed aside and upward, so far.
    """

    area: Indices
    a: Indices
    b: Indices
    normal: Array
    wanted: Array
    share: Array
    arm: Array
    spins: Array
    part: Array
    taken: Array


def _declare(functions: CDLL) -> None:
    functions.circles_move.argtypes = [POINTER(native_planar.Circles)]
    functions.circles_move.restype = c_int
    native_planar.declare_field(functions)


def _check(functions: CDLL) -> None:
    """Compare some steps of discs that meet in a corner with the reference.

    Raises:
        NativeError: A result differs.
    """
    rng = np.random.default_rng(0)
    place, speed = rng.uniform(-2.0, 2.0, (2, 3, 20)), rng.uniform(-8.0, 8.0, (2, 3, 20))
    native, reference = (
        Circles(
            20,
            [Disc(0.5, 50.0, 3.0)] * 2 + [Disc(0.6, 3.0, 1.0, rolls=True, bounce=0.8, height=0.5)],
            walls=[Wall((3.0, 0.0), (0.5, 5.0), 0.3), Wall((0.0, 3.0), (5.0, 0.5))],
            floor_friction=0.35,
            gravity=9.81,
            is_native=False,
        )
        for _ in range(2)
    )
    for discs in (native, reference):
        discs.position, discs.velocity = place, speed
    native.functions = functions
    for _ in range(5):
        native.move()
        reference.move()
    names = ("position", "velocity", "spin", "touching", "normal")
    require_equal(native, reference, names, of="discs")


CIRCLES = Part("circles", version=1, declare=_declare, check=_check, otherwise="NumPy")
