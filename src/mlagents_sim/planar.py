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

A scene of a few dozen areas costs as many microseconds as it takes NumPy calls, whatever they do.
A call is cheapest, by a factor of three, where all arrays are contiguous and of one shape, and by
a factor of two where numbers are arrays of no dimension; what runs at every step is written so.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

X, Z = 0, 1
LOW, HIGH = 0, 1

STEP_S = 0.02
FRICTION = 0.6
"""Friction of a surface, unless a world says otherwise; two surfaces rub by their mean."""
ANCHORS = 2.0
"""Friction anchors of a box that stands on a face; see `Bodies`."""

CONTACT_OFFSET_M = 0.02
"""Gap between two surfaces at which they begin to touch."""
CORRECTION = 0.8
"""Part of a gap or of an overlap that one step closes."""
MAX_PUSH_OUT_M_S = 10.0
"""Fastest way out of an overlap."""
ITERATIONS = 3
"""Times that all contacts of a step are settled, since settling one may upset another."""


def number(value: ArrayLike) -> Array:
    """Return a number as NumPy takes it fastest, as an array of no dimension."""
    return np.array(value, np.float64)


_TINY = number(1e-30)
"""Keeps a quotient finite where the divisor may be 0."""
_ZERO, _ONE, _NEVER = number(0.0), number(1.0), number(np.inf)
_STEP = number(STEP_S)
_TOUCH = number(CONTACT_OFFSET_M)
_PUSH_OUT = number(MAX_PUSH_OUT_M_S)
_CLOSING_PER_S = number(-CORRECTION / STEP_S)
_LANDED = number(1e-7)
"""Gap to the floor, plus the fall in a step, below which a body counts as at rest on the floor."""


def turned(heading: Array, sine: ArrayLike, cosine: ArrayLike) -> Array:
    """Turn (2, ..., N) headings to the right by an angle."""
    x, z = heading[X], heading[Z]
    return np.array([x * cosine + z * sine, z * cosine - x * sine])


def along(heading: Array, forward: ArrayLike, right: ArrayLike) -> Array:
    """Return (2, ..., N) vectors of so much forward and so much to the right of a heading."""
    x, z = heading[X], heading[Z]
    return np.array([x * forward + z * right, z * forward - x * right])


def in_frame(heading: Array, vector: Array) -> Array:
    """Return (2, ..., N) how far vectors go to the right of a heading, and how far forward."""
    x, z, v_x, v_z = heading[X], heading[Z], vector[X], vector[Z]
    return np.array([v_x * z - v_z * x, v_x * x + v_z * z])


def dot(one: Array, other: Array) -> Array:
    """Return the scalar products of (2, ...) vectors."""
    product: Array = one[X] * other[X] + one[Z] * other[Z]
    return product


def kept(drag: ArrayLike) -> Array:
    """Return the part of a velocity that a step leaves of it, where a second loses `drag`."""
    return np.maximum(1.0 - np.multiply(drag, STEP_S), 0.0)


class Body(NamedTuple):
    """A box that stands upright and turns only when it is told to.

    Attributes:
        half: Half its length in x and in z, in m.
        mass: In kg; infinite for what never moves.
        drag: Part of its velocity that is lost in a second.
        gravity: Acceleration that presses the body to the floor, in m/s2; 0 for no floor friction.
    """

    half: tuple[float, float]
    mass: float = np.inf
    drag: float = 0.0
    gravity: float = 0.0


class Bodies:
    """The boxes of N areas, which slide over the floor, push each other and stop at walls.

    Contact is that of Unity's physics engine. Surfaces touch within a small gap; two velocities
    are found for each body. One moves it in this step, and closes most of a gap or overlap
    besides; the other remains, so that being pushed out of an overlap gives no speed. Nothing
    bounces. Friction between two moving bodies is Coulomb's: it takes at most `friction` times the
    speed that the contact stops.

    Friction with the floor, walls and bodies that never move is twice that. The engine gives a face
    of a box two friction anchors, and limits each by the whole normal force. So the floor takes

        2 * friction * (downward speed that it stops)

    of a body's speed in a step. For a body at rest on the floor that downward speed is gravity's,
    less drag; for a landing body it is the whole fall; in the air it is 0. The speed at which the
    floor pushes an overlapping body out does not count.

    Args:
        n_areas: N.
        bodies: What stands in each of them, B.
        low: (x, z) of the walls around an area, or (2, B, 1) where they differ by body.
        high: Likewise.
        pairs: Indices of bodies that may touch, P pairs of them.
        friction: Coulomb's, between bodies, and between bodies and walls.

    Attributes:
        position: (2, B, N) of the centres, in m.
        velocity: (2, B, N) in m/s.
        heading: (2, B, N) unit vectors.
        half: (2, B, N) half lengths to the right and ahead, in m.
        reach: (2, B, N) how far they reached from their centres in x and z in the last step.
        kept: (B, N) part of the velocity that drag leaves in a step.
        above_m: (B, N) heights above the floor, in m; below 0 for a body that overlaps it.
        climb: (B, N) upward speeds, in m/s.
        is_falling: Whether any body may be above the floor; if not, falls are not computed.
        grip: (B, N) twice the friction with the floor.
        pressed: (B, N) downward speed that the floor stopped in the last step, in m/s.
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
            np.broadcast_to(np.reshape(bound, (2, -1, 1)), (2, *shape)).copy()
            for bound in (low, high)
        )
        self._has_walls = bool(np.isfinite([self._low, self._high]).any())
        self._wall_friction = number(ANCHORS * friction)
        table = np.reshape(pairs, (-1, 2)).T.astype(np.intp)
        self._tables = _Tables.of(table, bodies, n_areas, friction)
        self._faces = np.zeros((3, 2, *shape))  # for `_across`

    def extent(self) -> Array:
        """Return (2, B, N) how far the bodies reach from their centres in x and z."""
        x, z = np.abs(self.heading[X]), np.abs(self.heading[Z])
        half_right, half_ahead = self.half[X], self.half[Z]
        extent = np.empty_like(self.half)
        np.add(z * half_right, x * half_ahead, out=extent[X])
        np.add(x * half_right, z * half_ahead, out=extent[Z])
        return extent

    def put_down(
        self, where: tuple[Any, Any], *, gravity: ArrayLike, above_m: ArrayLike = 0.0
    ) -> None:
        """Put bodies on the floor, or above it, from where they fall.

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

    def _drop(self) -> None:
        """Move bodies up and down in a step; update the speed that the floor stops."""
        above = self.above_m
        if not np.count_nonzero(above):
            self.stand()
            return
        climb = (self.climb - self._fall) * self.kept
        least_now, least_then = np.where(above < _TOUCH, least_speeds(above), -np.inf)
        self.pressed = np.maximum(least_then - climb, _ZERO)
        above += np.maximum(climb, least_now) * _STEP
        self.climb = np.maximum(climb, least_then)
        has_landed = np.abs(above) + np.abs(self.climb) * _STEP < _LANDED
        above[has_landed] = 0.0
        self.climb[has_landed] = 0.0

    def move(self) -> None:
        """Let a step pass."""
        if self.is_falling:
            self._drop()
        velocity = self.velocity
        v_x, v_z = velocity[X], velocity[Z]
        v_x *= self.kept
        v_z *= self.kept
        speed = np.hypot(v_x, v_z) + _TINY
        unbraked = np.maximum(_ONE - self.grip * self.pressed / speed, _ZERO)
        v_x *= unbraked
        v_z *= unbraked

        self.reach = extent = self.extent()
        limits = self._limits(extent) if self._has_walls else None
        contacts = self._contacts(extent) if len(self.touching) else None
        if limits is None and contacts is None:
            self.position += velocity * _STEP
            return

        # Of the motion in this step, and what remains: (2, 2, B, N).
        velocities = np.array([velocity, velocity])
        if contacts is not None:
            self._settle_all(contacts, limits, velocities)
        elif limits is not None:
            self._stop(velocities, limits)
        self.position += velocities[0] * _STEP
        self.velocity = velocities[1]

    def _limits(self, extent: Array) -> Array | None:
        """Find who touches the walls, of bodies that reach (2, B, N) so far in x and z.

        Returns:
            (2, 2 sides, 2, B, N) highest speed towards either wall, for `_stop`, or nothing if
            nobody touches any.
        """
        gaps = np.empty(self.touching_walls.shape)
        np.subtract(self.position - extent, self._low, out=gaps[LOW])
        np.subtract(self._high - self.position, extent, out=gaps[HIGH])
        self.touching_walls = gaps < _TOUCH
        if not np.count_nonzero(self.touching_walls):
            return None
        return np.where(self.touching_walls, -least_speeds(gaps), np.inf)

    def _contacts(self, extent: Array) -> "_Contacts | None":
        """Find which pairs touch, of bodies that reach (2, B, N) so far in x and z."""
        first, second = self._tables.first, self._tables.second
        place, reach = self.position.reshape(-1), extent.reshape(-1)
        apart = place[second] - place[first]  # (2, P, N)
        is_near = np.abs(apart) < reach[first] + reach[second] + _TOUCH
        self.touching.fill(False)
        (near,) = (is_near[X] & is_near[Z] & self.is_solid).reshape(-1).nonzero()
        if near.size == 0:
            return None
        contacts = self._across(near, apart)
        if contacts is not None:
            self.touching.reshape(-1)[contacts.pair] = True
        return contacts

    def _across(self, near: Indices, apart: Array) -> "_Contacts | None":
        """Return how those of n pairs touch that do.

        Of the four directions in which the faces of two boxes look, the gap is widest, or the
        overlap least, in one; that is where they touch.

        Args:
            near: (n,) indices among all pairs, (P, N).
            apart: (2, P, N) from the first body's centre to the second's.
        """
        heading, faces = self.heading, self._faces
        faces[X, 0], faces[X, 1] = heading[Z], heading[X]
        np.negative(heading[X], out=faces[Z, 0])
        faces[Z, 1] = heading[Z]
        faces[2] = self.half
        found = faces.reshape(3, -1).take(self._tables.faces.take(near, axis=1), axis=1)
        x, z, half = found  # each (16, n), as the table says
        # What a box reaches in the directions of the other's faces.
        shadow = np.abs(x[:8] * x[8:] + z[:8] * z[8:]) * half[8:]
        at = self._tables.pair.take(near, axis=1)
        seen = x[:4] * apart[X].reshape(-1)[at] + z[:4] * apart[Z].reshape(-1)[at]
        gaps = np.abs(seen) - half[:4] - (shadow[:4] + shadow[4:])

        n = near.size
        widest = gaps.argmax(axis=0) * n + np.arange(n)  # indices among (4, n)
        gap = gaps.reshape(-1)[widest]
        (touching,) = (gap < _TOUCH).nonzero()
        if touching.size == 0:
            return None
        if touching.size < n:
            near, gap, widest = near[touching], gap[touching], widest[touching]
        widest = np.array([widest, widest])
        side = np.copysign(_ONE, seen.reshape(-1)[widest])
        values = np.empty((10, near.size))
        np.multiply(x[:4].reshape(-1)[widest], side, out=values[:2])
        np.multiply(z[:4].reshape(-1)[widest], side, out=values[2:4])
        np.negative(values[2:4], out=values[4:6])
        values[6:8] = values[:2]
        values[8:] = least_speeds(gap)
        return _Contacts(near, values)

    def _settle_all(self, contacts: "_Contacts", limits: Array | None, velocities: Array) -> None:
        """Settle contacts with each other and with walls; changes (2, 2, B, N) velocities."""
        area = self._tables.area
        n_touched = np.bincount(area[contacts.pair], minlength=self.touching.shape[1])
        rounds = self._rounds(contacts, n_touched)
        for iteration in range(ITERATIONS):
            for contact in rounds:
                self._settle(contact, velocities)
            if limits is not None:
                self._stop(velocities, limits)
            # What touches one thing alone is settled at once.
            elif len(rounds) < 2:
                break
            if iteration == 0:
                if limits is not None:
                    n_touched += self.touching_walls.any(axis=(0, 1, 2))
                is_crowded = n_touched > 1
                rounds = [r for c in rounds if (r := c.only(is_crowded[area[c.pair]])).pair.size]
            if not rounds:
                break

    def _rounds(self, contacts: "_Contacts", n_touched: Indices) -> list["_Contacts"]:
        """Part contacts so that those of an area, (N,) of them, are settled one after the other."""
        most = n_touched.max()
        if most < 2:
            return [contacts]
        place = self.touching.cumsum(axis=0)[self.touching]
        return [contacts.only(place == k) for k in range(1, most + 1)]

    def _settle(self, contacts: "_Contacts", velocities: Array) -> None:
        """Push bodies apart, and let them rub; changes (2, 2, B, N) velocities.

        Args:
            contacts: At most one of an area.
            velocities: Changed in place.
        """
        pair, values = contacts
        normal, aside, wanted = values[:4], values[4:8], values[8:]
        at = self._tables.velocities.take(pair, axis=1)
        velocity = velocities.reshape(-1)[at]  # (8, n)
        apart = velocity[4:] - velocity[:4]
        nearing, slip = apart * normal, apart * aside
        push = np.maximum(wanted - (nearing[:2] + nearing[2:]), _ZERO)
        limit = self._tables.friction.take(pair) * push
        brake = np.minimum(np.maximum(slip[:2] + slip[2:], -limit), limit)
        change = np.concatenate((push, push)) * normal - np.concatenate((brake, brake)) * aside
        velocity += np.concatenate((change, change)) * self._tables.shares.take(pair, axis=1)
        velocities.reshape(-1)[at] = velocity

    def _stop(self, velocities: Array, limits: Array) -> None:
        """Stop, in place, (2, 2, B, N) velocities at walls; what that takes presses and rubs.

        Args:
            velocities: Changed in place.
            limits: (2, 2 sides, 2, B, N) highest speed towards either wall.
        """
        low, high = -limits[:, LOW], limits[:, HIGH]
        stopped = np.minimum(np.maximum(velocities, low), high)
        limit = self._wall_friction * np.abs(stopped - velocities)[:, ::-1]
        stopped -= np.minimum(np.maximum(stopped, -limit), limit)
        # In a corner, what rubs at one wall must not keep a body inside the other.
        velocities[:] = np.minimum(np.maximum(stopped, low), high)


class _Contacts(NamedTuple):
    """How n pairs touch.

    Attributes:
        pair: (n,) indices among all pairs, (P, N).
        values: (10, n): the unit vector from the first body to the second, its x twice and its z
            twice; likewise that vector turned to the left, (-z, x); least speed of parting, in this
            step and after it.
    """

    pair: Indices
    values: Array

    def only(self, chosen: Mask) -> "_Contacts":
        """Return those that are chosen, (n,)."""
        (which,) = chosen.nonzero()
        if which.size == chosen.size:
            return self
        return _Contacts(self.pair.take(which), self.values.take(which, axis=1))


class _Tables(NamedTuple):
    """Where to find, in flat arrays, what concerns a pair: columns for all (P, N) pairs.

    Attributes:
        area: (P N,) the area it is in.
        pair: (4, P N) itself, for each of four faces.
        first: (2, P, N) among (2, B, N): x and z of the first body.
        second: Likewise, of the second.
        faces: (16, P N) among (2, B, N), right and ahead of all bodies: the faces of both bodies
            (right and ahead of the first, then of the second), those again, the same faces of
            the respective other, and the face beside each of these.
        velocities: (8, P N) among (2, 2, B, N): of the first body and then of the second, x twice
            and z twice, in this step and after it.
        shares: (8, P N) what a push does to these, of what it does to both bodies together.
        friction: (P N,) most that friction changes a velocity, by what a push changes it.
    """

    area: Indices
    pair: Indices
    first: Indices
    second: Indices
    faces: Indices
    velocities: Indices
    shares: Array
    friction: Array

    @classmethod
    def of(cls, pairs: Indices, bodies: Sequence[Body], n_areas: int, friction: float) -> Self:
        """Make them for (2, P) indices of bodies that rub with this friction."""
        n = len(bodies) * n_areas
        at = (pairs[:, :, None] * n_areas + np.arange(n_areas)).reshape(2, -1)  # among (B, N)
        n_pairs = at.shape[1]
        by_axis = np.array([0, n])[:, None]
        faces = (at[:, None] + by_axis).reshape(4, -1)
        kinds = np.array([0, 2 * n])[:, None]
        velocities = at[:, None, None] + by_axis[:, None] + kinds
        lightness = np.array([1.0 / body.mass for body in bodies])
        shares = lightness[pairs]
        if not shares.any(axis=0).all():
            fixed = pairs.T[~shares.any(axis=0)].tolist()
            raise ValueError(
                f"of pairs that may touch one body has to move; neither does of {fixed}"
            )
        anchors = np.where(shares.all(axis=0), 1.0, ANCHORS)
        shares = (shares / shares.sum(axis=0)).repeat(n_areas, axis=1)
        return cls(
            area=np.arange(n_pairs) % n_areas,
            pair=np.tile(np.arange(n_pairs), (4, 1)),
            first=(at[0] + by_axis).reshape(2, -1, n_areas),
            second=(at[1] + by_axis).reshape(2, -1, n_areas),
            faces=faces[[0, 1, 2, 3, 0, 1, 2, 3, 2, 3, 0, 1, 3, 2, 1, 0]],
            velocities=velocities.reshape(8, -1),
            shares=np.repeat([-shares[0], shares[1]], 4, axis=0),
            friction=(friction * anchors).repeat(n_areas),
        )


def least_speeds(gap: Array) -> Array:
    """Return (2, ...) speeds at which surfaces must part at least: in this step, and after it."""
    in_step = np.minimum(gap * _CLOSING_PER_S, _PUSH_OUT)
    speeds: Array = np.array([in_step, np.minimum(in_step, _ZERO)])
    return speeds


def gap_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return how far boxes are from points, 0 inside; all but the result (2, ...), broadcast."""
    beyond = np.maximum(np.abs(in_frame(heading, point - position)) - half, 0.0)
    gap: Array = np.hypot(*beyond)
    return gap


def way_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return the ways from where boxes are nearest to points; all (2, ...), broadcast."""
    seen = in_frame(heading, point - position)
    right, ahead = seen - np.minimum(np.maximum(seen, -half), half)
    return along(heading, ahead, right)


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
        return cls(origin, direction, _inverse(direction))

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
        near, solid, approaches = self._near(centre, half, radius)
        travel = np.full((centre.shape[1], *self.direction.shape[1:]), np.inf)
        by_box = np.broadcast_to(radius, (len(travel), 1, 1)).reshape(-1)
        radii: Array = by_box.take(solid // travel.shape[2])
        travel.reshape(-1)[near] = approaches.enter(radii)
        return travel

    def to_solids(
        self,
        centre: Array,
        half: Array,
        low: Array,
        high: Array,
        radius: float | Array,
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
                metre.
        """
        near, solid, approaches = self._near(centre, half, radius)
        low, high = low.reshape(-1)[solid], high.reshape(-1)[solid]
        area = solid % centre.shape[2]
        starts = np.array([height[area] for height, _ in flights])  # (F, n)
        slopes = np.array([slope for _, slope in flights])
        above, below = starts - high, low - starts
        passes_over = (above >= radius) & (slopes >= _ZERO)[:, None]
        passes_under = (below >= radius) & (slopes <= _ZERO)[:, None]
        flight, which = (~(passes_over | passes_under)).nonzero()
        slope = slopes[flight]
        (level,), (rising,) = (slope == _ZERO).nonzero(), slope.nonzero()

        found = np.empty(len(which))
        beside = np.maximum(below, above)[flight[level], which[level]]
        found[level] = approaches.only(which[level]).enter(radius_at_edge(radius, beside))
        if rising.size:
            rise, low, high = which[rising], low[which[rising]], high[which[rising]]
            offset, direction, half = np.empty((3, 3, rising.size))
            offset[:2] = approaches.offset.take(rise, axis=1)
            offset[2] = starts[flight[rising], rise] - (low + high) / 2.0
            direction[:2] = approaches.direction.take(rise, axis=1)
            direction[2] = slope[rising]
            half[:2] = approaches.half.take(rise, axis=1)
            half[2] = (high - low) / 2.0
            found[rising] = _enter_solids(offset, direction, half, radius)

        travels = np.empty((len(flights), centre.shape[1], *self.direction.shape[1:]))
        travels.fill(np.inf)
        travels.reshape(len(flights), -1)[flight, near[which]] = found
        return travels

    def _near(
        self, centre: Array, half: Array, radius: ArrayLike
    ) -> tuple[Indices, Indices, "_Approaches"]:
        """Find which rays meet boxes that are larger by the radius, with sharp corners.

        Returns:
            Indices into (K, R, N) and into (K, N), n of each; and how those rays approach boxes.
        """
        offset = self.origin - centre  # (2, K, N)
        inverse = self.inverse[:, None]
        steepness: Array = np.abs(self.inverse)
        middle = -offset[:, :, None] * inverse
        span = (half[:, :, None] + np.asarray(radius, np.float64)) * steepness[:, None]
        enter, leave = middle - span, middle + span
        leave = np.minimum(leave[X], leave[Z])
        is_near = (np.maximum(enter[X], enter[Z]) <= leave) & (leave >= _ZERO)
        (near,) = is_near.reshape(-1).nonzero()
        n_rays, n = is_near.shape[1:]
        ray: Indices = near % (n_rays * n)
        box: Indices = near // (n_rays * n)
        solid: Indices = box * n + near % n
        return (
            near,
            solid,
            _Approaches(
                offset.reshape(2, -1).take(solid, axis=1),
                half.reshape(2, -1).take(box if half.shape[2] == 1 else solid, axis=1),
                self.direction.reshape(2, -1).take(ray, axis=1),
                middle.reshape(2, -1).take(near, axis=1),
                steepness.reshape(2, -1).take(ray, axis=1),
            ),
        )

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


class _Approaches(NamedTuple):
    """How n spheres approach a box each.

    Attributes:
        offset: (2, n) where they start, seen from the centres of the boxes.
        half: (2, n) half the lengths of the boxes.
        direction: (2, n) unit vectors of where they go.
        middle: (2, n) how far they travel to where they are beside the centre, in x and in z.
        steepness: (2, n) how far they travel in a metre of x and of z.
    """

    offset: Array
    half: Array
    direction: Array
    middle: Array
    steepness: Array

    def only(self, chosen: Indices) -> "_Approaches":
        """Return some of them."""
        return _Approaches(*(values.take(chosen, axis=1) for values in self))

    def enter(self, radius: Array) -> Array:
        """Return (n,) how far spheres of these radii, (n,), travel until they meet their boxes.

        Infinite where they never do. A sphere's centre meets a box where a point meets the box
        made larger by the sphere's radius, with round corners.
        """
        offset, half, direction, middle, steepness = self
        span = (half + np.array([radius, radius])) * steepness
        enter, leave = middle - span, middle + span
        travel: Array = np.maximum(enter[X], enter[Z])
        end = np.minimum(leave[X], leave[Z])
        is_met = travel >= _ZERO
        is_not_passed = travel <= end
        start = np.maximum(travel, _ZERO)
        point = offset + direction * np.array([start, start])
        beyond = np.abs(point) - half
        (corner,) = ((beyond[X] > _ZERO) & (beyond[Z] > _ZERO)).nonzero()
        if corner.size:
            corner_to_point = np.copysign(beyond, point).take(corner, axis=1)
            approach = -dot(corner_to_point, direction.take(corner, axis=1))
            square = np.square(approach) - dot(corner_to_point, corner_to_point)
            square += np.square(radius[corner])
            to_arc = approach - np.sqrt(np.maximum(square, _ZERO))
            travel[corner] = start[corner] + to_arc
            is_met[corner] = (square >= _ZERO) & (to_arc >= _ZERO)
        np.copyto(travel, _NEVER, where=~(is_met & is_not_passed))
        return travel


def enter_boxes(offset: Array, direction: Array, half: Array, radius: float) -> Array:
    """Return (n,) how far spheres travel until they meet boxes, infinite where they never do.

    Args:
        offset: (2, n) where the spheres start, seen from the centres of the boxes.
        direction: (2, n) unit vectors of where they go.
        half: (2, n) half the lengths of the boxes.
        radius: Of the spheres.
    """
    inverse = _inverse(direction)
    approaches = _Approaches(offset, half, direction, -offset * inverse, np.abs(inverse))
    return approaches.enter(np.full(offset.shape[1], radius))


def _enter_solids(offset: Array, direction: Array, half: Array, radius: float | Array) -> Array:
    """Return (n,) how far spheres on slopes travel until they meet boxes that have a height.

    With p(t) for a sphere's centre, seen from the box's, and D for its distance from the box,

        D^2 = sum over x, z and y of max(|p| - half, 0)^2

    bends where p comes beside the box in one of these, or leaves it, six times at most; between
    those it is a quadratic. As the box is convex, so is D^2: where p is outside and comes nearer,
    it has yet to meet the box, if ever. So the last bend at which that is so begins the quadratic
    that says where D = radius.

    Args:
        offset: (3, n) where the spheres start in x, z and y, seen from the centres of the boxes.
        direction: (3, n) how far they go in a metre of the floor; up or down, too.
        half: (3, n) half the lengths of the boxes.
        radius: Of the spheres; more than 0.

    Returns:
        In metres along the floor, infinite where they never meet.
    """
    n = offset.shape[1]
    inverse = _inverse(direction)
    middle, span = -offset * inverse, half * np.abs(inverse)
    bends = np.zeros((7, n))  # the start counts as one
    comes, leaves = bends[1:4], bends[4:]
    np.maximum(middle - span, _ZERO, out=comes)
    np.maximum(middle + span, _ZERO, out=leaves)
    point = offset[:, None] + direction[:, None] * bends  # (3, 7, n)
    beyond = np.maximum(np.abs(point) - half[:, None], _ZERO)
    away = np.copysign(beyond, point) * direction[:, None]
    x, z, y = beyond * beyond
    outside = x + z + y - np.square(radius)  # D^2 - radius^2
    x, z, y = away
    nearing = -(x + z + y)  # -dD^2/2dt
    is_before = (outside >= _ZERO) & (nearing > _ZERO)

    last = (bends * is_before).argmax(axis=0)
    bend = last * n + np.arange(n)
    start, outside, nearing, is_before = (
        values.reshape(-1)[bend] for values in (bends, outside, nearing, is_before)
    )
    is_beyond = (start < comes) | (start >= leaves)
    x, z, y = direction * direction * is_beyond
    square = nearing * nearing - (x + z + y) * outside
    travel: Array = np.full(n, np.inf)
    nearing += np.sqrt(np.maximum(square, _ZERO))
    np.divide(outside, nearing, out=travel, where=is_before & (square >= _ZERO))
    travel += start
    return travel


def _inverse(direction: Array) -> Array:
    """Return one by each component, or nearly so where that is 0."""
    inverse: Array = _ONE / (direction + np.copysign(_TINY, direction))
    return inverse


def radius_at_edge(radius: float | Array, height: ArrayLike) -> Array:
    """Return the radius that a sphere has where its centre is so far above an edge.

    Above by more than its radius, or exactly that, it is as thin as a line: it passes over, or
    just grazes; who asks must know which.
    """
    above = np.minimum(np.maximum(height, _ZERO), radius)
    result: Array = np.sqrt(radius**2 - above * above)
    return result
