"""Boxes that move and collide on a floor, in many areas at once.

Vectors and headings are those of `plane`.

    bodies = Bodies(n_areas, [Body(half=(0.5, 0.5), mass=10.0)], low=..., high=...)
    bodies.velocity[:, 0] += pushes
    bodies.move()

Letters in shapes: N areas, B bodies of an area, P pairs of them.

Contacts are solved pair by pair, for all areas of a pair together. This module is the reference:
the native library, if available, computes bit-identical results.
"""

from collections.abc import Callable, Sequence
from ctypes import CDLL
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlagents_native.library import Part
from mlagents_sim import native_planar
from mlagents_sim.contact import (
    CONTACT_OFFSET_M,
    FRICTION,
    STEP_S,
    kept,
    least_speeds,
)
from mlagents_sim.native_planar import FixedArrays, require_equal
from mlagents_sim.plane import Array, Indices, Mask, X, Z, dot

LOW, HIGH = 0, 1

ANCHORS = 2.0
"""Friction anchors of a box that stands on a face; see `Bodies`."""

ITERATIONS = 3
"""Passes over all contacts in a step, because solving one contact may violate another."""

_TINY = 1e-30
"""Smallest divisor, which keeps quotients finite."""
_LANDED_M = 1e-7
"""Gap to the floor, plus the fall in a step, below which a body counts as at rest on the floor."""


class Body(NamedTuple):
    """A box that stands upright and turns only when its heading is set.

    Attributes:
        half: Half lengths in x and in z, in m.
        mass: Mass in kg; infinite for a body that never moves.
        drag: Fraction of the velocity that is lost per second.
        gravity: Acceleration that presses the body to the floor, in m/s2; 0 for no floor friction.
    """

    half: tuple[float, float]
    mass: float = np.inf
    drag: float = 0.0
    gravity: float = 0.0


class Bodies(FixedArrays):
    """The boxes of N areas, which slide over the floor, push each other and stop at walls.

    Contacts are those of Unity's physics engine. Surfaces touch within a small gap, and each body
    has two velocities. The first moves it in this step and also closes most of a gap or overlap.
    The second remains after the step, so that being pushed out of an overlap adds no speed.
    Nothing bounces. Friction between two moving bodies is Coulomb friction: it takes at most
    `friction` times the speed that the contact stops.

    Friction with the floor, walls and bodies that never move is twice as large. The engine gives a
    face of a box two friction anchors, and limits each by the whole normal force. The floor
    therefore takes

        2 * friction * (downward speed that it stops)

    of a body's speed in a step. For a body at rest on the floor, that downward speed is the speed
    that gravity adds, less drag. For a landing body, it is the whole speed of the fall. In the air,
    it is 0. The speed at which the floor pushes an overlapping body out does not count.

    Args:
        n_areas: Number of areas, N.
        bodies: Bodies of each area, B of them.
        low: Faces of the walls on the low sides, (x, z), or (2, B, 1) if they differ by body.
        high: Faces of the walls on the high sides, as `low`.
        pairs: Indices of bodies that may touch, P pairs of them.
        friction: Coulomb coefficient between bodies, and between bodies and walls.
        pair_friction: P coefficients of the pairs, if they differ from `friction`.
        is_native: Whether to use the native library, if it is available.

    Attributes:
        functions: Functions of the native library, or None if NumPy computes. The library knows
            the arrays below, so an assignment to one of these attributes copies into its array.
        position: (2, B, N) positions of the centers, in m.
        velocity: (2, B, N) velocities, in m/s.
        heading: (2, B, N) unit vectors.
        half: (2, B, N) half lengths to the right and ahead, in m.
        reach: (2, B, N) extents from the centers in x and z, in the last step.
        kept: (B, N) fractions of the velocities that drag leaves in a step.
        above_m: (B, N) heights above the floor, in m; below 0 for a body that overlaps it.
        climb: (B, N) upward speeds, in m/s.
        is_falling: Whether any body may be above the floor; if not, falls are not computed.
        grip: (B, N) twice the friction with the floor.
        pressed: (B, N) downward speeds that the floor stopped in the last step, in m/s.
        is_solid: (P, N) whether the bodies of a pair can touch; False if one is above the other.
        touching: (P, N) whether the bodies of a pair touched in the last step.
        touching_walls: (2, 2, B, N) whether a body touched the walls at `low` and at `high`, in x
            and in z.
    """

    def __init__(
        self,
        n_areas: int,
        bodies: Sequence[Body],
        *,
        low: ArrayLike,
        high: ArrayLike,
        pairs: Sequence[tuple[int, int]] = (),
        friction: float = FRICTION,
        pair_friction: Sequence[float] | None = None,
        is_native: bool = True,
    ) -> None:
        self.functions = PLANAR.load() if is_native else None
        shape = (len(bodies), n_areas)
        self.position = np.zeros((2, *shape))
        self.velocity = np.zeros((2, *shape))
        self.heading = np.zeros((2, *shape))
        self.heading[Z] = 1.0
        halves = np.array([body.half for body in bodies], np.float64).T
        self.half = np.repeat(halves[..., None], n_areas, 2)
        self.reach = self.extent()
        self.kept = np.repeat(kept([[body.drag] for body in bodies]), n_areas, 1)
        self.above_m = np.zeros(shape)
        self.climb = np.zeros(shape)
        self.is_falling = False
        self.grip = np.full(shape, ANCHORS * FRICTION)
        gravity = np.array([[body.gravity] for body in bodies])
        self._fall = np.repeat(gravity * STEP_S, n_areas, 1)  # speed that gravity adds in a step
        self.pressed = self._fall * self.kept
        self.is_solid = np.ones((len(pairs), n_areas), np.bool_)
        self.touching = np.zeros((len(pairs), n_areas), np.bool_)
        self.touching_walls = np.zeros((2, 2, *shape), np.bool_)
        self._low, self._high = (
            np.array(
                np.broadcast_to(np.reshape(bound, (2, -1, 1)), (2, *shape)), np.float64, order="C"
            )
            for bound in (low, high)
        )
        self._has_walls = bool(np.isfinite([self._low, self._high]).any())
        self._wall_friction = ANCHORS * friction
        self._pairs = np.reshape(pairs, (-1, 2)).astype(np.int64)
        lightness = np.array([1.0 / body.mass for body in bodies])[self._pairs]  # (P, 2)
        is_fixed = ~lightness.any(axis=1)
        if is_fixed.any():
            raise ValueError(
                f"no body of the pairs {self._pairs[is_fixed].tolist()} can move. Give one body of "
                "each pair a finite mass."
            )
        # Share of a push that each body takes, and friction of each pair.
        self._shares = lightness / lightness.sum(axis=1, keepdims=True)
        anchors = np.where(lightness.all(axis=1), 1.0, ANCHORS)
        self._friction = anchors * (friction if pair_friction is None else np.array(pair_friction))

    @cached_property
    def shared(self) -> native_planar.Bodies:
        """The bodies, as the native library knows them."""
        n_bodies, n_areas = self.grip.shape
        return native_planar.Bodies(
            n_areas=n_areas,
            n_bodies=n_bodies,
            n_pairs=len(self._pairs),
            has_walls=self._has_walls,
            wall_friction=self._wall_friction,
            position=self.position,
            velocity=self.velocity,
            heading=self.heading,
            half=self.half,
            reach=self.reach,
            kept=self.kept,
            above=self.above_m,
            climb=self.climb,
            grip=self.grip,
            fall=self._fall,
            pressed=self.pressed,
            low=self._low,
            high=self._high,
            is_solid=self.is_solid,
            touching=self.touching,
            touching_walls=self.touching_walls,
            busy=np.zeros(n_areas, np.bool_),
            pairs=self._pairs,
            shares=self._shares,
            friction=self._friction,
        )

    def call(self, function: Callable[..., int], *arguments: Any) -> int:
        """Call a function of the native library that moves the bodies.

        Args:
            function: Function of the library.
            arguments: Arguments of the function.
        """
        self.shared.is_falling = self.is_falling
        result = function(*arguments)
        self.is_falling = bool(self.shared.is_falling)
        return result

    def extent(self) -> Array:
        """Return (2, B, N) extents of the bodies from their centers in x and z."""
        x, z = np.abs(self.heading)
        half_right, half_ahead = self.half
        return np.array([z * half_right + x * half_ahead, x * half_right + z * half_ahead])

    def put_down(
        self, where: tuple[Any, Any], *, gravity: ArrayLike, above_m: ArrayLike = 0.0
    ) -> None:
        """Put bodies on the floor, or above it to fall.

        Args:
            where: Index of these bodies into (B, N) arrays.
            gravity: Downward acceleration, in m/s2.
            above_m: Height above the floor, in m; below 0 for a body that overlaps it.
        """
        self._fall[where] = np.multiply(gravity, STEP_S)
        self.pressed[where] = self._fall[where] * self.kept[where]
        self.above_m[where] = above_m
        self.climb[where] = 0.0
        self.is_falling = self.is_falling or bool(np.any(above_m))

    def stand(self) -> None:
        """Put every body on the floor, at rest there."""
        self.is_falling = False
        self.above_m.fill(0.0)
        self.climb.fill(0.0)
        self.pressed = self._fall * self.kept

    def move(self) -> None:
        """Move all bodies by a step."""
        if self.functions is not None:
            self.call(self.functions.planar_move_bodies, self.shared)
            return
        if self.is_falling:
            self._drop()
        self.velocity *= self.kept
        speed = np.sqrt(dot(self.velocity, self.velocity)) + _TINY
        self.velocity *= np.maximum(1.0 - self.grip * self.pressed / speed, 0.0)
        self.reach = self.extent()

        # Of the motion in this step, and what remains: (2, 2, B, N).
        velocities = np.array([self.velocity, self.velocity])
        contacts = self._contacts()
        limits = self._limits() if self._has_walls else None
        n_touched = self.touching.sum(axis=0) + self.touching_walls.any(axis=(0, 1, 2))
        for iteration in range(ITERATIONS):
            # A body with a single contact is solved in one pass.
            is_unsettled = n_touched > min(iteration, 1)
            if not is_unsettled.any():
                break
            for contact in contacts:
                self._settle(contact.only(is_unsettled[contact.areas]), velocities)
            if limits is not None:
                self._stop(velocities, limits)
        self.position += velocities[0] * STEP_S
        self.velocity = velocities[1]

    def _drop(self) -> None:
        """Move bodies up and down in a step; update the speed that the floor stops."""
        above = self.above_m
        if not above.any():
            self.stand()
            return
        climb = (self.climb - self._fall) * self.kept
        least_now, least_then = np.where(above < CONTACT_OFFSET_M, least_speeds(above), -np.inf)
        self.pressed = np.maximum(least_then - climb, 0.0)
        above += np.maximum(climb, least_now) * STEP_S
        self.climb = np.maximum(climb, least_then)
        has_landed = np.abs(above) + np.abs(self.climb) * STEP_S < _LANDED_M
        above[has_landed] = 0.0
        self.climb[has_landed] = 0.0

    def _limits(self) -> Array:
        """Find the bodies that touch walls.

        Returns:
            (2 sides, 2, 2, B, N) highest speed towards either wall, in this step and after it;
            infinite if there is no contact.
        """
        gaps = np.array(
            [self.position - self.reach - self._low, self._high - self.position - self.reach]
        )
        self.touching_walls = gaps < CONTACT_OFFSET_M
        limits = np.where(self.touching_walls, -least_speeds(gaps), np.inf)
        return limits.swapaxes(0, 1)

    def _contacts(self) -> "list[_Contact]":
        """Find the pairs that touch."""
        first, second = self._pairs.T
        apart = self.position[:, second] - self.position[:, first]  # (2, P, N)
        reach = self.reach[:, first] + self.reach[:, second] + CONTACT_OFFSET_M
        is_near = (np.abs(apart) < reach).all(axis=0) & self.is_solid
        self.touching.fill(False)
        contacts = []
        for pair in np.flatnonzero(is_near.any(axis=1)).tolist():
            areas = np.flatnonzero(is_near[pair])
            contact = self._across(pair, areas, apart[:, pair, areas])
            self.touching[pair, contact.areas] = True
            contacts.append(contact)
        return contacts

    def _across(self, pair: int, areas: Indices, apart: Array) -> "_Contact":
        """Find the areas, among n, in which a pair touches.

        Two boxes touch along one of the four normals of their faces: the one with the widest gap or
        the least overlap.

        Args:
            pair: Index of the pair.
            areas: (n,) indices of the areas.
            apart: (2, n) from the first body's center to the second's.
        """
        heading = self.heading[:, self._pairs[pair]][:, :, areas]  # (2, 2 bodies, n)
        half = self.half[:, self._pairs[pair]][:, :, areas]
        # Faces: right and ahead of the first body, then of the second.
        right = np.array([heading[Z], -heading[X]])
        faces = np.stack([right, heading], axis=2).reshape(2, 4, -1)
        halves = half.swapaxes(0, 1).reshape(4, -1)
        # Extent of a box in the direction of each face of the other.
        shadows = np.abs(dot(faces[:, :, None], faces[:, None])) * halves  # (4, 4, n)
        shadow = np.concatenate([shadows[:2, 2:].sum(axis=1), shadows[2:, :2].sum(axis=1)])
        seen = dot(faces, apart[:, None])
        gaps = np.abs(seen) - halves - shadow

        widest = gaps.argmax(axis=0), np.arange(len(areas))
        normal = faces[:, *widest] * np.copysign(1.0, seen[widest])
        contact = _Contact(pair, areas, normal, least_speeds(gaps[widest]))
        return contact.only(gaps[widest] < CONTACT_OFFSET_M)

    def _settle(self, contact: "_Contact", velocities: Array) -> None:
        """Push the bodies of a pair apart and apply their friction.

        Args:
            contact: Contacts of the pair.
            velocities: (2, 2, B, N) velocities, in this step and after it; changed in place.
        """
        pair, areas, normal, least = contact
        first, second = self._pairs[pair]
        apart = velocities[:, :, second, areas] - velocities[:, :, first, areas]
        aside = np.array([-normal[Z], normal[X]])
        nearing, slip = (apart[:, X] * way[X] + apart[:, Z] * way[Z] for way in (normal, aside))
        push = np.maximum(least - nearing, 0.0)
        limit = self._friction[pair] * push
        brake = np.minimum(np.maximum(slip, -limit), limit)
        change = push[:, None] * normal - brake[:, None] * aside
        of_first, of_second = self._shares[pair]
        velocities[:, :, first, areas] -= change * of_first
        velocities[:, :, second, areas] += change * of_second

    def _stop(self, velocities: Array, limits: Array) -> None:
        """Stop bodies at walls, and apply friction by the speed that the walls stop.

        Args:
            velocities: (2, 2, B, N) velocities, changed in place.
            limits: (2 sides, 2, 2, B, N) highest speed towards either wall.
        """
        low, high = -limits[LOW], limits[HIGH]
        stopped = np.minimum(np.maximum(velocities, low), high)
        limit = self._wall_friction * np.abs(stopped - velocities)[:, ::-1]
        stopped -= np.minimum(np.maximum(stopped, -limit), limit)
        # In a corner, friction at one wall must not keep a body inside the other.
        velocities[:] = np.minimum(np.maximum(stopped, low), high)


class _Contact(NamedTuple):
    """Contacts of a pair of bodies in n areas.

    Attributes:
        pair: Index of the pair.
        areas: (n,) indices of the areas.
        normal: (2, n) unit vectors from the first body to the second.
        least: (2, n) least separation speeds, in this step and after it.
    """

    pair: int
    areas: Indices
    normal: Array
    least: Array

    def only(self, chosen: Mask) -> "_Contact":
        """Return the chosen contacts, by an (n,) mask."""
        pair, areas, normal, least = self
        return _Contact(pair, areas[chosen], normal[:, chosen], least[:, chosen])


def _check(functions: CDLL) -> None:
    """Compare some steps of boxes that push each other in a corner with the reference.

    Raises:
        NativeError: A result differs.
    """
    boxes = [Body((0.5, 0.7), mass=10.0, drag=0.5), Body((1.0, 1.0), mass=5.0)]
    native, reference = (
        Bodies(3, boxes, low=(-2.0, -2.0), high=(9.0, 9.0), pairs=[(0, 1)], is_native=False)
        for _ in range(2)
    )
    for bodies in (native, reference):
        bodies.position[:, 0] = [[-1.4, -1.2, 0.4], [-1.2, 0.0, 0.3]]
        bodies.position[:, 1] = [[0.1, 0.2, 2.0], [0.0, 1.1, 1.5]]
        bodies.velocity[:] = [[[-3.0, 1.0, 4.0], [-1.0, 0.0, -6.0]]] * 2
        bodies.heading[:, 0] = [[0.0, 0.6, 0.8], [1.0, 0.8, -0.6]]
        bodies.put_down((0, slice(None)), gravity=9.81, above_m=0.1)
    for _ in range(5):
        reference.move()
        native.shared.is_falling = native.is_falling
        functions.planar_move_bodies(native.shared)
    names = ("position", "velocity", "pressed", "touching", "touching_walls")
    require_equal(native, reference, names, of="boxes")


PLANAR = Part("planar", version=2, declare=native_planar.declare, check=_check, otherwise="NumPy")
