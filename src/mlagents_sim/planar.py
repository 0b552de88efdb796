"""Boxes on a floor, which move and touch, in many areas at once.

Seen from above. An array of vectors starts with an axis of two, x to the right and z ahead, and
ends with an axis of N areas, so that one operation serves all of them. A body's heading is the
unit vector it faces, (sin yaw, cos yaw); what is to its right is (cos yaw, -sin yaw).

    bodies = Bodies(n_areas, [Body(half=(0.5, 0.5), mass=10.0)], low=..., high=...)
    bodies.velocity[:, 0] += pushes
    bodies.move()

Letters in shapes: N areas, B bodies of an area, P pairs of them.

In a scene of a few dozen areas, the number of NumPy calls decides the cost of a step. Contiguous
arrays of one shape make a call three times cheaper, and 0-d arrays instead of Python numbers make
it twice as cheap. Code that runs at every step uses both.
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
"""Passes over all contacts of a step, since settling one contact may upset another."""


def number(value: ArrayLike) -> Array:
    """Return a number as a 0-d array, which NumPy processes faster than a Python number."""
    return np.array(value, np.float64)


_TINY = number(1e-30)
"""Keeps a quotient finite where the divisor may be 0."""
_ZERO, _ONE = number(0.0), number(1.0)
_STEP = number(STEP_S)
_TOUCH = number(CONTACT_OFFSET_M)
_PUSH_OUT = number(MAX_PUSH_OUT_M_S)
_CLOSING_PER_S = number(-CORRECTION / STEP_S)
_LANDED = number(1e-7)
"""Gap to the floor, plus the fall in a step, below which a body counts as at rest on the floor."""


def turn(heading: Array, sine: Array, cosine: Array) -> None:
    """Turn (2, ..., N) headings, in place, to the right by an angle."""
    x, z = heading[X], heading[Z]
    turned_x = x * cosine + z * sine
    np.subtract(z * cosine, x * sine, out=z)
    x[:] = turned_x


def along(heading: Array, forward: ArrayLike, right: ArrayLike) -> Array:
    """Return (2, ..., N) vectors with these components forward and to the right of a heading."""
    x, z = heading[X], heading[Z]
    return np.array([x * forward + z * right, z * forward - x * right])


def in_frame(heading: Array, vector: Array) -> Array:
    """Return (2, ..., N) components of vectors to the right of a heading, and forward."""
    x, z, v_x, v_z = heading[X], heading[Z], vector[X], vector[Z]
    return np.array([v_x * z - v_z * x, v_x * x + v_z * z])


def dot(one: Array, other: Array) -> Array:
    """Return the scalar products of (2, ...) vectors."""
    product: Array = one[X] * other[X] + one[Z] * other[Z]
    return product


def kept(drag: ArrayLike) -> Array:
    """Return the part of a velocity that remains after a step with this drag per second."""
    return np.maximum(1.0 - np.multiply(drag, STEP_S), 0.0)


class Body(NamedTuple):
    """A box that stands upright and turns only when its heading is set.

    Attributes:
        half: Half lengths in x and in z, in m.
        mass: Mass in kg; infinite for a body that never moves.
        drag: Part of the velocity that is lost in a second.
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
        n_areas: Number of areas, N.
        bodies: Bodies of each area, B of them.
        low: Faces of the walls on the low sides, (x, z), or (2, B, 1) if they differ by body.
        high: Faces of the walls on the high sides, as `low`.
        pairs: Indices of bodies that may touch, P pairs of them.
        friction: Coulomb's coefficient between bodies, and between bodies and walls.

    Attributes:
        position: (2, B, N) of the centres, in m.
        velocity: (2, B, N) in m/s.
        heading: (2, B, N) unit vectors.
        half: (2, B, N) half lengths to the right and ahead, in m.
        reach: (2, B, N) extents from the centres in x and z, in the last step.
        kept: (B, N) part of the velocity that drag leaves in a step.
        above_m: (B, N) heights above the floor, in m; below 0 for a body that overlaps it.
        climb: (B, N) upward speeds, in m/s.
        is_falling: Whether any body may be above the floor; if not, falls are not computed.
        grip: (B, N) twice the friction with the floor.
        pressed: (B, N) downward speed that the floor stopped in the last step, in m/s.
        is_solid: (P, N) which pairs can touch; False if one body is above the other.
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
        """Return (2, B, N) extents of the bodies from their centres in x and z."""
        x, z = np.abs(self.heading[X]), np.abs(self.heading[Z])
        half_right, half_ahead = self.half[X], self.half[Z]
        extent = np.empty_like(self.half)
        np.add(z * half_right, x * half_ahead, out=extent[X])
        np.add(x * half_right, z * half_ahead, out=extent[Z])
        return extent

    def put_down(
        self, where: tuple[Any, Any], *, gravity: ArrayLike, above_m: ArrayLike = 0.0
    ) -> None:
        """Put bodies on the floor, or above it, so that they fall.

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
        """Move all bodies by a step."""
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
        """Find the bodies that touch walls.

        Args:
            extent: (2, B, N) extents of the bodies in x and z.

        Returns:
            (2, 2 sides, 2, B, N) highest speed towards either wall, for `_stop`, or None if no
            body touches a wall.
        """
        gaps = np.empty(self.touching_walls.shape)
        np.subtract(self.position - extent, self._low, out=gaps[LOW])
        np.subtract(self._high - self.position, extent, out=gaps[HIGH])
        self.touching_walls = gaps < _TOUCH
        if not np.count_nonzero(self.touching_walls):
            return None
        return np.where(self.touching_walls, -least_speeds(gaps), np.inf)

    def _contacts(self, extent: Array) -> "_Contacts | None":
        """Find the pairs that touch, of bodies with (2, B, N) extents in x and z."""
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
        """Return the contacts among n pairs.

        Two boxes touch in one of the four directions that their faces look in: the direction with
        the widest gap or the least overlap.

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
        # Extent of a box in the directions of the other's faces.
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
            # A body with a single contact is settled at once.
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
        """Split contacts into rounds with at most one contact of each area, by (N,) counts."""
        most = n_touched.max()
        if most < 2:
            return [contacts]
        place = self.touching.cumsum(axis=0)[self.touching]
        return [contacts.only(place == k) for k in range(1, most + 1)]

    def _settle(self, contacts: "_Contacts", velocities: Array) -> None:
        """Push bodies apart and apply their friction.

        Args:
            contacts: Contacts, at most one of each area.
            velocities: (2, 2, B, N) velocities, changed in place.
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
        """Stop bodies at walls, and apply friction by the speed that the walls stop.

        Args:
            velocities: (2, 2, B, N) velocities, changed in place.
            limits: (2, 2 sides, 2, B, N) highest speed towards either wall.
        """
        low, high = -limits[:, LOW], limits[:, HIGH]
        stopped = np.minimum(np.maximum(velocities, low), high)
        limit = self._wall_friction * np.abs(stopped - velocities)[:, ::-1]
        stopped -= np.minimum(np.maximum(stopped, -limit), limit)
        # In a corner, friction at one wall must not keep a body inside the other.
        velocities[:] = np.minimum(np.maximum(stopped, low), high)


class _Contacts(NamedTuple):
    """Contacts of n pairs.

    Attributes:
        pair: (n,) indices among all pairs, (P, N).
        values: (10, n): the unit vector from the first body to the second, its x twice and its z
            twice; likewise that vector turned to the left, (-z, x); least speed of parting, in this
            step and after it.
    """

    pair: Indices
    values: Array

    def only(self, chosen: Mask) -> "_Contacts":
        """Return the chosen contacts, by an (n,) mask."""
        (which,) = chosen.nonzero()
        if which.size == chosen.size:
            return self
        return _Contacts(self.pair.take(which), self.values.take(which, axis=1))


class _Tables(NamedTuple):
    """Indices into flat arrays by pair, with a column for each of the (P, N) pairs.

    Attributes:
        area: (P N,) areas of the pairs.
        pair: (4, P N) indices of the pairs, for each of four faces.
        first: (2, P, N) among (2, B, N): x and z of the first body.
        second: (2, P, N) among (2, B, N): x and z of the second body.
        faces: (16, P N) among (2, B, N), right and ahead of all bodies: the faces of both bodies
            (right and ahead of the first, then of the second), those again, the same faces of
            the respective other, and the face beside each of these.
        velocities: (8, P N) among (2, 2, B, N): of the first body and then of the second, x twice
            and z twice, in this step and after it.
        shares: (8, P N) parts of a push that these take, of its effect on both bodies together.
        friction: (P N,) largest change of a velocity by friction, per change by a push.
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
        """Make the tables for (2, P) indices of bodies with this friction."""
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
                f"no body of the pairs {fixed} can move. Give one body of each pair a finite mass."
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
    """Return (2, ...) least speeds at which surfaces must part: in this step, and after it."""
    in_step = np.minimum(gap * _CLOSING_PER_S, _PUSH_OUT)
    speeds: Array = np.array([in_step, np.minimum(in_step, _ZERO)])
    return speeds


def gap_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return distances from boxes to points, 0 inside. All arguments are (2, ...), broadcast."""
    beyond = np.maximum(np.abs(in_frame(heading, point - position)) - half, 0.0)
    gap: Array = np.hypot(*beyond)
    return gap


def way_to_point(position: Array, heading: Array, half: Array, point: Array) -> Array:
    """Return vectors from the nearest points of boxes to points. All are (2, ...), broadcast."""
    seen = in_frame(heading, point - position)
    right, ahead = seen - np.minimum(np.maximum(seen, -half), half)
    return along(heading, ahead, right)
