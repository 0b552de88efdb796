"""Boxes and discs on a floor: how they move, touch and are met by rays, in many areas at once.

Seen from above. An array of vectors starts with an axis of two, x to the right and z ahead, and
ends with an axis of N areas, so that one operation serves all of them. A body's heading is the
unit vector it faces, (sin yaw, cos yaw); what is to its right is (cos yaw, -sin yaw).

    bodies = Bodies(n_areas, [Body(half=(0.5, 0.5), mass=10.0)], low=..., high=...)
    bodies.velocity[:, 0] += what the agent wants
    bodies.move()
    rays = Rays.cast(bodies.position[:, 0], heading, angles_rad)
    travel = rays.to_room(low, high, radius)

Letters in shapes: N areas, B bodies of an area, P pairs of them, R rays of an area.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

X, Z = 0, 1
LOW, HIGH = 0, 1

STEP_S = 0.02
FRICTION = 0.6
"""Of all surfaces that nobody says otherwise of."""

CONTACT_OFFSET_M = 0.02
"""Gap between two surfaces at which they begin to touch."""
CORRECTION = 0.8
"""Part of a gap or of an overlap that one step closes."""
MAX_PUSH_OUT_M_S = 10.0
"""Fastest way out of an overlap."""
ITERATIONS = 3
"""Times that all contacts of a step are settled, since settling one may upset another."""

_TINY = 1e-30
"""Keeps a quotient finite where the divisor may be 0."""


def turned(heading: Array, sine: ArrayLike, cosine: ArrayLike) -> Array:
    """Turn (2, ..., N) headings to the right by an angle."""
    x, z = heading
    return np.array([x * cosine + z * sine, z * cosine - x * sine])


def along(heading: Array, forward: ArrayLike, right: ArrayLike) -> Array:
    """Return (2, ..., N) vectors of so much forward and so much to the right of a heading."""
    x, z = heading
    return np.array([x * forward + z * right, z * forward - x * right])


def in_frame(heading: Array, vector: Array) -> Array:
    """Return (2, ..., N) how far vectors go to the right of a heading, and how far forward."""
    (x, z), (v_x, v_z) = heading, vector
    return np.array([v_x * z - v_z * x, v_x * x + v_z * z])


def dot(one: Array, other: Array) -> Array:
    """Return the scalar products of (2, ...) vectors."""
    product: Array = one[X] * other[X] + one[Z] * other[Z]
    return product


class Body(NamedTuple):
    """A box that stands upright and turns only when it is told to.

    Attributes:
        half: Half its length in x and in z, in m.
        mass: In kg; infinite for what never moves.
        drag: Part of its velocity that is lost in a second.
        braking: Speed that the floor's friction takes in a second, in m/s2.
    """

    half: tuple[float, float]
    mass: float = np.inf
    drag: float = 0.0
    braking: float = 0.0


class Bodies:
    """The boxes of N areas, which slide over the floor, push each other and stop at walls.

    Contact is that of Unity's physics engine. Surfaces touch within a small gap; two velocities
    are found for each body. One moves it in this step, and closes most of a gap or overlap
    besides; the other remains, so that being pushed out of an overlap gives no speed. Nothing
    bounces. Friction between two surfaces is at most `friction` of what presses them together.

    Args:
        n_areas: N.
        bodies: What stands in each of them, B.
        low: (x, z) of the walls around an area, or (2, B, 1) where they differ by body.
        high: Likewise.
        pairs: Indices of bodies that may touch, P pairs of them.
        friction: Between bodies, and between bodies and walls.

    Attributes:
        position: (2, B, N) of the centres, in m.
        velocity: (2, B, N) in m/s.
        heading: (2, B, N) unit vectors.
        half: (2, B, N) half lengths to the right and ahead, in m.
        drag: (B, N) part of the velocity lost in a second.
        braking: (B, N) deceleration by the floor's friction, in m/s2.
        is_solid: (P, N) which pairs can touch; not where one stands above the other.
        touching: (P, N) which pairs touched in the last step.
        touching_walls: (2, 2, B, N) which bodies touched the walls at `low` and at `high`, in x
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
    ) -> None:
        shape = (len(bodies), n_areas)
        self.position = np.zeros((2, *shape))
        self.velocity = np.zeros((2, *shape))
        self.heading = np.zeros((2, *shape))
        self.heading[Z] = 1.0
        self.half = np.repeat(np.transpose([body.half for body in bodies])[..., None], n_areas, 2)
        self.drag = np.repeat(np.array([[body.drag] for body in bodies]), n_areas, 1)
        self.braking = np.repeat(np.array([[body.braking] for body in bodies]), n_areas, 1)
        self.is_solid = np.ones((len(pairs), n_areas), np.bool_)
        self.touching = np.zeros((len(pairs), n_areas), np.bool_)
        self.touching_walls = np.zeros((2, 2, *shape), np.bool_)
        self._low, self._high = (
            np.broadcast_to(np.reshape(bound, (2, -1, 1)), (2, len(bodies), 1))
            for bound in (low, high)
        )
        self._has_walls = bool(np.isfinite([self._low, self._high]).any())
        self._friction = friction
        self._first = np.array([first for first, _ in pairs], np.intp)
        self._second = np.array([second for _, second in pairs], np.intp)
        lightness = np.array([1.0 / body.mass for body in bodies])
        shares = lightness[[self._first, self._second]]  # (2, P)
        self._shares = shares / shares.sum(axis=0)

    def extent(self) -> Array:
        """Return (2, B, N) how far the bodies reach from their centres in x and z."""
        heading = np.abs(self.heading)
        extent: Array = heading[::-1] * self.half[0] + heading * self.half[1]
        return extent

    def move(self) -> None:
        """Let a step pass."""
        velocity = self.velocity
        velocity *= np.maximum(1.0 - self.drag * STEP_S, 0.0)
        speed = np.hypot(velocity[X], velocity[Z]) + _TINY
        velocity *= np.maximum(1.0 - self.braking * STEP_S / speed, 0.0)

        extent = self.extent()
        limits = self._limits(extent) if self._has_walls else None
        contacts = self._contacts(extent) if len(self._first) else None
        if limits is None and contacts is None:
            self.position += velocity * STEP_S
            return

        # Of the motion in this step, and what remains: (2, 2, B, N).
        velocities = np.array([velocity, velocity])
        n_touched = self.touching.sum(axis=0)
        rounds = [] if contacts is None else self._rounds(contacts, n_touched)
        for iteration in range(ITERATIONS):
            for contact in rounds:
                self._settle(contact, velocities)
            if limits is not None:
                self._stop(velocities, limits)
            # What touches one thing alone is settled at once.
            if limits is None and len(rounds) < 2:
                break
            if iteration == 0:
                if limits is not None:
                    n_touched += self.touching_walls.any(axis=(0, 1, 2))
                is_crowded = n_touched > 1
                rounds = [r for c in rounds if (r := c.only(is_crowded[c.area])).area.size]
            if not rounds:
                break
        self.position += velocities[0] * STEP_S
        self.velocity = velocities[1]

    def _limits(self, extent: Array) -> Array | None:
        """Find who touches the walls, of bodies that reach (2, B, N) so far in x and z.

        Returns:
            (2, 2 sides, 2, B, N) highest speed towards either wall, for `_stop`, or nothing if
            nobody touches any.
        """
        gaps = np.array([self.position - extent - self._low, self._high - self.position - extent])
        self.touching_walls = gaps < CONTACT_OFFSET_M
        if not np.count_nonzero(self.touching_walls):
            return None
        return np.where(self.touching_walls, -_least_speeds(gaps), np.inf)

    def _contacts(self, extent: Array) -> "_Contacts | None":
        """Find which pairs touch, of bodies that reach (2, B, N) so far in x and z."""
        first, second = self._first, self._second
        apart = self.position.take(second, axis=1) - self.position.take(first, axis=1)
        reach = extent.take(first, axis=1) + extent.take(second, axis=1) + CONTACT_OFFSET_M
        is_near = np.abs(apart) < reach
        self.touching.fill(False)
        (near,) = (is_near[X] & is_near[Z] & self.is_solid).reshape(-1).nonzero()
        if near.size == 0:
            return None
        n_areas = self.touching.shape[1]
        pair, area = np.divmod(near, n_areas)
        first, second = first.take(pair) * n_areas + area, second.take(pair) * n_areas + area
        gap, normal = self._across(first, second, apart.reshape(2, -1).take(near, axis=1))
        is_touching = gap < CONTACT_OFFSET_M
        if not np.count_nonzero(is_touching):
            return None
        self.touching.reshape(-1)[near] = is_touching
        shares = self._shares.take(pair, axis=1)
        return _Contacts(area, first, second, shares, normal, _least_speeds(gap)).only(is_touching)

    def _rounds(self, contacts: "_Contacts", n_touched: Indices) -> list["_Contacts"]:
        """Part contacts so that those of an area, (N,) of them, are settled one after the other."""
        most = n_touched.max()
        if most < 2:
            return [contacts]
        place = self.touching.cumsum(axis=0)[self.touching]
        return [contacts.only(place == k) for k in range(1, most + 1)]

    def _across(self, first: Indices, second: Indices, apart: Array) -> tuple[Array, Array]:
        """Return (n,) gaps, negative in overlaps, and (2, n) unit vectors across them.

        Of the four directions in which the faces of two boxes look, the gap is widest, or the
        overlap least, in one; that is where they touch.

        Args:
            first: Indices of n bodies among those of all areas.
            second: Those next to them.
            apart: (2, n) from the first body's centre to the second's.
        """
        heading, half = self.heading.reshape(2, -1), self.half.reshape(2, -1)
        half_first, half_second = half.take(first, axis=1), half.take(second, axis=1)
        towards_first, towards_second = heading.take(first, axis=1), heading.take(second, axis=1)
        crossed, parallel = np.abs(in_frame(towards_second, towards_first))
        # What a box reaches in the directions of the other's faces.
        reach_second = half_second * parallel + half_second[::-1] * crossed
        reach_first = half_first * parallel + half_first[::-1] * crossed
        gaps = np.concatenate(
            [
                np.abs(in_frame(towards_first, apart)) - half_first - reach_second,
                np.abs(in_frame(towards_second, apart)) - half_second - reach_first,
            ]
        )  # (4, n): right and ahead of the first, then of the second
        widest = gaps.argmax(axis=0)
        ahead = (widest % 2).astype(np.float64)
        normal = along(np.where(widest < 2, towards_first, towards_second), ahead, 1 - ahead)
        normal *= np.where(dot(normal, apart) < 0.0, -1.0, 1.0)
        return gaps.max(axis=0), normal

    def _settle(self, contacts: "_Contacts", velocities: Array) -> None:
        """Push bodies apart, and let them rub; changes (2, 2, B, N) velocities.

        Args:
            contacts: At most one of an area.
            velocities: Changed in place.
        """
        _, first, second, (share_first, share_second), (n_x, n_z), wanted = contacts
        of_bodies = velocities.reshape(4, -1)
        of_first, of_second = of_bodies.take(first, axis=1), of_bodies.take(second, axis=1)
        apart = (of_second - of_first).reshape(2, 2, -1)
        x, z = apart[:, X], apart[:, Z]
        push = np.maximum(wanted - (x * n_x + z * n_z), 0.0)
        limit = self._friction * push
        brake = np.minimum(np.maximum(z * n_x - x * n_z, -limit), limit)
        change = np.empty_like(of_first)
        change[X::2] = push * n_x + brake * n_z
        change[Z::2] = push * n_z - brake * n_x
        of_bodies[:, first] = of_first - change * share_first
        of_bodies[:, second] = of_second + change * share_second

    def _stop(self, velocities: Array, limits: Array) -> None:
        """Stop, in place, (2, 2, B, N) velocities at walls; what that takes presses and rubs.

        Args:
            velocities: Changed in place.
            limits: (2, 2 sides, 2, B, N) highest speed towards either wall.
        """
        low, high = -limits[:, LOW], limits[:, HIGH]
        stopped = np.minimum(np.maximum(velocities, low), high)
        limit = self._friction * np.abs(stopped - velocities)[:, ::-1]
        stopped -= np.minimum(np.maximum(stopped, -limit), limit)
        # In a corner, what rubs at one wall must not keep a body inside the other.
        velocities[:] = np.minimum(np.maximum(stopped, low), high)


class _Contacts(NamedTuple):
    """How the bodies of n pairs touch.

    Attributes:
        area: (n,) indices of the areas they are in.
        first: (n,) indices of the first bodies among those of all areas, which are (B, N).
        second: (n,) of the second.
        shares: (2, n) what a push does to either, of what it does to both together.
        normal: (2, n) unit vectors from the first body to the second.
        wanted: (2, n) least speed of parting, in this step and after it.
    """

    area: Indices
    first: Indices
    second: Indices
    shares: Array
    normal: Array
    wanted: Array

    def only(self, chosen: Mask) -> "_Contacts":
        """Return those that are chosen, (n,)."""
        (which,) = chosen.nonzero()
        if which.size == chosen.size:
            return self
        area, first, second, shares, normal, wanted = self
        return _Contacts(
            area.take(which),
            first.take(which),
            second.take(which),
            shares.take(which, axis=1),
            normal.take(which, axis=1),
            wanted.take(which, axis=1),
        )


def _least_speeds(gap: Array) -> Array:
    """Return (2, ...) speeds at which surfaces must part at least: in this step, and after it."""
    in_step = np.minimum(gap * (-CORRECTION / STEP_S), MAX_PUSH_OUT_M_S)
    speeds: Array = np.array([in_step, np.minimum(in_step, 0.0)])
    return speeds


def gap_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return how far boxes are from points, 0 inside; all but the result (2, ...), broadcast."""
    beyond = np.maximum(np.abs(in_frame(heading, point - position)) - half, 0.0)
    gap: Array = np.hypot(*beyond)
    return gap


class Rays(NamedTuple):
    """Spheres sent off from where agents are, seen from above.

    Each is asked how far it travels until it touches something. A sphere of radius r at a height
    where it passes over an edge is, seen from above, a smaller disc: see `radius_at_edge`. What a
    sphere overlaps where it starts, it does not meet.

    Attributes:
        origin: (2, 1, N) where they start.
        direction: (2, R, N) unit vectors.
        inverse: (2, R, N) one by the direction.
    """

    origin: Array
    direction: Array
    inverse: Array

    @classmethod
    def cast(cls, origin: Array, heading: Array, local: Array) -> Self:
        """Make rays from (2, N) places in directions (2, R), right and ahead of (2, N) headings."""
        return cls.of(
            origin[:, None], along(heading[:, None], local[Z, :, None], local[X, :, None])
        )

    @classmethod
    def of(cls, origin: Array, direction: Array) -> Self:
        """Make rays from where they start and where they go."""
        return cls(origin, direction, 1.0 / (direction + np.copysign(_TINY, direction)))

    def seen_from(self, centre: Array, heading: Array) -> Self:
        """Return the rays in the frames of K boxes, as K N rays of each direction.

        Args:
            centre: (2, K, N).
            heading: (2, K, N).
        """
        n_rays = self.direction.shape[1]
        origin = in_frame(heading, self.origin - centre)
        direction = in_frame(heading[:, None], self.direction[:, :, None])
        return self.of(origin.reshape(2, 1, -1), direction.reshape(2, n_rays, -1))

    def to_room(self, low: ArrayLike, high: ArrayLike, radius: ArrayLike) -> Array:
        """Return (R, N) how far it is to the walls around, whose faces are at low and high (x, z).

        Args:
            low: Two numbers, or (2, 1, N).
            high: Likewise.
            radius: Of the spheres.
        """
        low, high = (np.reshape(bound, (2, 1, -1)) for bound in (low, high))
        face = np.where(self.direction > 0.0, high - radius, low + radius)
        travel = (face - self.origin) * self.inverse
        travel[travel < 0.0] = np.inf
        nearest: Array = np.minimum(travel[X], travel[Z])
        return nearest

    def to_boxes(self, centre: Array, half: Array, radius: ArrayLike) -> Array:
        """Return (K, R, N) how far it is to K boxes along the axes; infinite where it misses.

        Args:
            centre: (2, K, N), or (2, K, 1) where they are alike in all areas.
            half: Half their lengths, likewise.
            radius: Of the spheres, or (K, 1, 1) where that differs by box.
        """
        near, solid, (offset, direction, half) = self._near(centre, half, radius)
        travel = np.full((centre.shape[1], *self.direction.shape[1:]), np.inf)
        by_box = np.broadcast_to(radius, (len(travel), 1, 1)).reshape(-1)
        radii: Array = by_box.take(solid // travel.shape[2])
        travel.reshape(-1)[near] = enter_boxes(offset, direction, half, radii)
        return travel

    def to_solids(
        self,
        centre: Array,
        half: Array,
        low: Array,
        high: Array,
        radius: float,
        flights: Sequence[tuple[Array, float]],
    ) -> Array:
        """Return (F, K, R, N) how far it is to K boxes that have a lower and an upper edge.

        Args:
            centre: As for `to_boxes`.
            half: As for `to_boxes`.
            low: (K, N) heights of the lower edges.
            high: (K, N) heights of the upper edges.
            radius: Of the spheres.
            flights: F heights, (N,), at which the spheres start, and by how much they rise in a
                metre. Those that start below a box miss it.
        """
        near, solid, course = self._near(centre, half, radius)
        n = low.shape[1]
        low, high = low.reshape(-1).take(solid), high.reshape(-1).take(solid)
        travel = np.full((len(flights), centre.shape[1], *self.direction.shape[1:]), np.inf)
        for flight, (height, slope) in enumerate(flights):
            start = height.take(solid % n)
            beside = np.maximum(low - start, start - high)
            (level,) = (beside < radius).nonzero()
            if level.size == 0:
                continue
            offset, direction, half = course.take(level, axis=2)
            start, its_low, its_high = (value.take(level) for value in (start, low, high))
            at_edge = radius_at_edge(radius, beside.take(level))
            found = enter_boxes(offset, direction, half, at_edge)
            # Farther on, a sphere is higher, and what it meets is narrower. As slopes are small,
            # two more looks find where.
            for _ in range(2 if slope else 0):
                at = start + slope * found
                beside = np.maximum(its_low - at, at - its_high)
                at_edge = radius_at_edge(radius, beside)
                found = enter_boxes(offset, direction, half, at_edge)
                found[beside >= radius] = np.inf
            travel[flight].reshape(-1)[near.take(level)] = found
        return travel

    def _near(
        self, centre: Array, half: Array, radius: ArrayLike
    ) -> tuple[Indices, Indices, Array]:
        """Find which rays meet boxes that are larger by the radius, with sharp corners.

        Returns:
            Indices into (K, R, N) and into (K, N), n of each; and, (3, 2, n), what `enter_boxes`
            takes but the radius.
        """
        offset = self.origin - centre  # (2, K, N)
        half = half + np.zeros_like(offset)
        inverse = self.inverse[:, None]
        middle = -offset[:, :, None] * inverse
        span = (half[:, :, None] + np.asarray(radius, np.float64)) * np.abs(inverse)
        enter, leave = middle - span, middle + span
        leave = np.minimum(leave[X], leave[Z])
        is_near = (np.maximum(enter[X], enter[Z]) <= leave) & (leave >= 0.0)
        near = np.flatnonzero(is_near)
        n_rays, n = is_near.shape[1:]
        box, ray = np.divmod(near, n_rays * n)
        solid = box * n + ray % n
        course = np.empty((3, 2, len(near)))
        course[0] = offset.reshape(2, -1).take(solid, axis=1)
        course[1] = self.direction.reshape(2, -1).take(ray, axis=1)
        course[2] = half.reshape(2, -1).take(solid, axis=1)
        return near, solid, course

    def to_discs(self, centre: Array, radius: ArrayLike) -> Array:
        """Return (K, R, N) how far it is to K discs; infinite where it misses.

        Args:
            centre: (2, K, N).
            radius: Of a sphere and a disc together, or (N,).
        """
        apart = centre[:, :, None] - self.origin[:, None]  # (2, K, 1, N)
        closest = dot(apart, self.direction[:, None])
        square = closest**2 - dot(apart, apart) + np.square(radius)
        with np.errstate(invalid="ignore"):
            travel: Array = closest - np.sqrt(square)
        travel[~(travel >= 0.0)] = np.inf
        return travel


def enter_boxes(offset: Array, direction: Array, half: Array, radius: float | Array) -> Array:
    """Return (n,) how far spheres travel until they meet boxes, infinite where they never do.

    A sphere's centre meets a box where a point meets the box made larger by the sphere's radius,
    with round corners.

    Args:
        offset: (2, n) where the spheres start, seen from the centres of the boxes.
        direction: (2, n) unit vectors of where they go.
        half: (2, n) half the lengths of the boxes.
        radius: Of the spheres, or (n,).
    """
    inverse = 1.0 / (direction + np.copysign(_TINY, direction))
    middle, span = -offset * inverse, (half + radius) * np.abs(inverse)
    enter, leave = middle - span, middle + span
    enter, leave = np.maximum(enter[X], enter[Z]), np.minimum(leave[X], leave[Z])
    start = np.maximum(enter, 0.0)
    point = offset + direction * start
    beyond = np.abs(point) - half
    approach = -dot(beyond * np.sign(point), direction)
    square = approach**2 - dot(beyond, beyond) + np.square(radius)
    to_arc = approach - np.sqrt(np.maximum(square, 0.0))
    at_corner = (beyond[X] > 0.0) & (beyond[Z] > 0.0)
    is_met = np.where(at_corner, (square >= 0.0) & (to_arc >= 0.0), enter >= 0.0)
    is_met &= enter <= leave
    return np.where(is_met, np.where(at_corner, start + to_arc, enter), np.inf)


def radius_at_edge(radius: float, height: ArrayLike) -> Array:
    """Return the radius that a sphere has where its centre is so far above an edge.

    Above by more than its radius, or exactly that, it is as thin as a line: it passes over, or
    just grazes; who asks must know which.
    """
    above = np.minimum(np.maximum(height, 0.0), radius)
    result: Array = np.sqrt(radius**2 - above**2)
    return result
