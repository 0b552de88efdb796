"""Rays on a floor: how far spheres that agents send out travel until they touch something.

Arrays and letters are those of `planar`; R is the number of rays of an area.

    rays = Rays.cast(bodies.position[:, 0], heading, RAYS.directions)
    travel = rays.to_room(low, high, radius)
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim.plane import Array, Indices, X, Z, along, dot, in_frame

_TINY = 1e-30
"""Keeps a quotient finite where the divisor may be 0."""


class Rays(NamedTuple):
    """Spheres that travel along rays, seen from above.

    A query returns how far each sphere travels until it touches something. A sphere that passes
    over an edge is, seen from above, a smaller disc at that height: see `radius_at_edge`. A sphere
    does not meet what it overlaps at its start.

    Attributes:
        origin: (2, 1, N) starts.
        direction: (2, R, N) unit vectors.
        inverse: (2, R, N) reciprocals of the directions' components.
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
        """Make rays from their starts and directions."""
        return cls(origin, direction, _inverse(direction))

    def seen_from(self, center: Array, heading: Array) -> Self:
        """Return the rays in the frames of K boxes: K N rays in each direction.

        Args:
            center: (2, K, N) centers of the boxes.
            heading: (2, K, N) unit vectors.
        """
        n_rays = self.direction.shape[1]
        origin = in_frame(heading, self.origin - center)
        direction = in_frame(heading[:, None], self.direction[:, :, None])
        return self.of(origin.reshape(2, 1, -1), direction.reshape(2, n_rays, -1))

    def to_room(self, low: ArrayLike, high: ArrayLike, radius: ArrayLike) -> Array:
        """Return (R, N) distances to the walls around an area.

        Args:
            low: Faces of the walls on the low sides, in x and z: two numbers, or (2, 1, N).
            high: Faces of the walls on the high sides, as `low`.
            radius: Radius of the spheres.
        """
        low, high = (np.reshape(bound, (2, 1, -1)) for bound in (low, high))
        face = np.where(self.direction > 0.0, high - radius, low + radius)
        travel = (face - self.origin) * self.inverse
        travel[travel < 0.0] = np.inf
        nearest: Array = np.minimum(travel[X], travel[Z])
        return nearest

    def to_boxes(self, center: Array, half: Array, radius: ArrayLike) -> Array:
        """Return (K, R, N) distances to K boxes along the axes, infinite for a miss.

        Args:
            center: (2, K, N) centers, or (2, K, 1) if all areas are alike.
            half: (2, K, N) or (2, K, 1) half lengths.
            radius: Radius of the spheres, or (K, 1, 1) radii that differ by box.
        """
        near, solid, approaches = self._near(center, half, radius)
        travel = np.full((center.shape[1], *self.direction.shape[1:]), np.inf)
        by_box = np.broadcast_to(radius, (len(travel), 1, 1)).reshape(-1)
        radii: Array = by_box.take(solid // travel.shape[2])
        travel.reshape(-1)[near] = approaches.enter(radii)
        return travel

    def to_solids(
        self,
        center: Array,
        half: Array,
        low: Array,
        high: Array,
        radius: float | Array,
        flights: Sequence[tuple[Array, float]],
    ) -> Array:
        """Return (F, K, R, N) distances to K boxes with lower and upper edges, infinite for a miss.

        Args:
            center: Centers, as for `to_boxes`.
            half: Half lengths, as for `to_boxes`.
            low: (K, N) heights of the lower edges.
            high: (K, N) heights of the upper edges.
            radius: Radius of the spheres.
            flights: F pairs: (N,) heights at which the spheres start, and their rise in a metre.
        """
        near, solid, approaches = self._near(center, half, radius)
        low, high = low.reshape(-1)[solid], high.reshape(-1)[solid]
        area = solid % center.shape[2]
        starts = np.array([height[area] for height, _ in flights])  # (F, n)
        slopes = np.array([slope for _, slope in flights])
        above, below = starts - high, low - starts
        passes_over = (above >= radius) & (slopes >= 0.0)[:, None]
        passes_under = (below >= radius) & (slopes <= 0.0)[:, None]
        flight, which = (~(passes_over | passes_under)).nonzero()
        slope = slopes[flight]
        (level,), (rising,) = (slope == 0.0).nonzero(), slope.nonzero()

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

        travels = np.empty((len(flights), center.shape[1], *self.direction.shape[1:]))
        travels.fill(np.inf)
        travels.reshape(len(flights), -1)[flight, near[which]] = found
        return travels

    def _near(
        self, center: Array, half: Array, radius: ArrayLike
    ) -> tuple[Indices, Indices, "_Approaches"]:
        """Find the rays that meet boxes enlarged by the radius, with sharp corners.

        Returns:
            n indices into (K, R, N), n indices into (K, N), and the approaches of those rays.
        """
        offset = self.origin - center  # (2, K, N)
        inverse = self.inverse[:, None]
        steepness: Array = np.abs(self.inverse)
        middle = -offset[:, :, None] * inverse
        span = (half[:, :, None] + np.asarray(radius, np.float64)) * steepness[:, None]
        enter, leave = middle - span, middle + span
        leave = np.minimum(leave[X], leave[Z])
        is_near = (np.maximum(enter[X], enter[Z]) <= leave) & (leave >= 0.0)
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

    def to_turned_boxes(
        self, center: Array, heading: Array, half: Array, radius: ArrayLike
    ) -> Array:
        """Return (K, R, N) distances to K boxes with headings, infinite for a miss.

        Most rays pass most boxes by. Only those that come near a box are turned into its frame.

        Args:
            center: (2, K, N) centers.
            heading: (2, K, N) unit vectors.
            half: (2, K, N) half lengths.
            radius: Radius of the spheres, or (K, 1) radii that differ by box.
        """
        apart: Array = center - self.origin
        reach = np.hypot(half[X], half[Z]) + radius
        aside = apart[X][:, None] * self.direction[Z]
        aside -= apart[Z][:, None] * self.direction[X]
        np.abs(aside, out=aside)
        (near,) = (aside < reach[:, None]).reshape(-1).nonzero()
        n_rays, n = self.direction.shape[1:]
        ray: Indices = near % (n_rays * n)
        box: Indices = near // (n_rays * n)
        at: Indices = box * n + near % n  # among (K, N)
        direction: Array = self.direction.reshape(2, -1).take(ray, axis=1)
        offset: Array = apart.reshape(2, -1).take(at, axis=1)
        (ahead,) = (dot(offset, direction) > -reach.reshape(-1).take(at)).nonzero()
        near, at, box = near[ahead], at[ahead], box[ahead]
        turned = heading.reshape(2, -1).take(at, axis=1)
        direction = in_frame(turned, direction.take(ahead, axis=1))
        offset = in_frame(turned, -offset.take(ahead, axis=1))
        inverse = _inverse(direction)
        approaches = _Approaches(
            offset,
            half.reshape(2, -1).take(at, axis=1),
            direction,
            -offset * inverse,
            np.abs(inverse),
        )
        radii = np.broadcast_to(radius, (center.shape[1], 1)).reshape(-1).take(box)
        travel = np.full(aside.shape, np.inf)
        travel.reshape(-1)[near] = approaches.enter(radii)
        return travel

    def to_discs(self, center: Array, radius: ArrayLike) -> Array:
        """Return (K, R, N) distances to K discs, infinite for a miss.

        Args:
            center: (2, K, N) centers.
            radius: Sum of a sphere's and a disc's radius, or (N,) of them.
        """
        apart = center[:, :, None] - self.origin[:, None]  # (2, K, 1, N)
        closest = dot(apart, self.direction[:, None])
        square = closest**2 - dot(apart, apart) + np.square(radius)
        with np.errstate(invalid="ignore"):
            travel: Array = closest - np.sqrt(square)
        travel[~(travel >= 0.0)] = np.inf
        return travel


class _Approaches(NamedTuple):
    """Approaches of n spheres to one box each.

    Attributes:
        offset: (2, n) starts, relative to the centers of the boxes.
        half: (2, n) half lengths of the boxes.
        direction: (2, n) unit vectors.
        middle: (2, n) distances at which a sphere is level with the center, in x and in z.
        steepness: (2, n) distances travelled per metre of x and of z.
    """

    offset: Array
    half: Array
    direction: Array
    middle: Array
    steepness: Array

    def only(self, chosen: Indices) -> "_Approaches":
        """Return the approaches at these indices."""
        return _Approaches(*(values.take(chosen, axis=1) for values in self))

    def enter(self, radius: Array) -> Array:
        """Return (n,) distances that spheres of (n,) radii travel to boxes, infinite for a miss.

        A sphere meets a box where its center meets the box enlarged by the radius, with round
        corners.
        """
        offset, half, direction, middle, steepness = self
        span = (half + np.array([radius, radius])) * steepness
        enter, leave = middle - span, middle + span
        travel: Array = np.maximum(enter[X], enter[Z])
        end = np.minimum(leave[X], leave[Z])
        is_met = travel >= 0.0
        is_not_passed = travel <= end
        start = np.maximum(travel, 0.0)
        point = offset + direction * np.array([start, start])
        beyond = np.abs(point) - half
        (corner,) = ((beyond[X] > 0.0) & (beyond[Z] > 0.0)).nonzero()
        if corner.size:
            corner_to_point = np.copysign(beyond, point).take(corner, axis=1)
            approach = -dot(corner_to_point, direction.take(corner, axis=1))
            square = np.square(approach) - dot(corner_to_point, corner_to_point)
            square += np.square(radius[corner])
            to_arc = approach - np.sqrt(np.maximum(square, 0.0))
            travel[corner] = start[corner] + to_arc
            is_met[corner] = (square >= 0.0) & (to_arc >= 0.0)
        np.copyto(travel, np.inf, where=~(is_met & is_not_passed))
        return travel


def enter_boxes(offset: Array, direction: Array, half: Array, radius: float) -> Array:
    """Return (n,) distances that spheres travel to one box each, infinite for a miss.

    Args:
        offset: (2, n) starts of the spheres, relative to the centers of the boxes.
        direction: (2, n) unit vectors of their motion.
        half: (2, n) half lengths of the boxes.
        radius: Radius of the spheres.
    """
    inverse = _inverse(direction)
    approaches = _Approaches(offset, half, direction, -offset * inverse, np.abs(inverse))
    return approaches.enter(np.full(offset.shape[1], radius))


def _enter_solids(offset: Array, direction: Array, half: Array, radius: float | Array) -> Array:
    """Return (n,) distances that spheres on slopes travel to boxes of some height.

    Let p(t) be a sphere's center relative to the box's center, and D its distance from the box:

        D^2 = sum over x, z and y of max(|p| - half, 0)^2

    D^2 is piecewise quadratic. It bends where p enters or leaves the box's extent along one axis,
    six times at most. The box is convex, so D^2 is too. A sphere that is outside and comes nearer
    has not met the box yet. The last bend at which this holds begins the piece in which D = radius.

    Args:
        offset: (3, n) starts of the spheres in x, z and y, relative to the centers of the boxes.
        direction: (3, n) motion per metre of the floor, in x, z and y.
        half: (3, n) half lengths of the boxes.
        radius: Radius of the spheres, above 0.

    Returns:
        Distances along the floor in m, infinite for a miss.
    """
    n = offset.shape[1]
    inverse = _inverse(direction)
    middle, span = -offset * inverse, half * np.abs(inverse)
    bends = np.zeros((7, n))  # the start counts as one
    comes, leaves = bends[1:4], bends[4:]
    np.maximum(middle - span, 0.0, out=comes)
    np.maximum(middle + span, 0.0, out=leaves)
    point = offset[:, None] + direction[:, None] * bends  # (3, 7, n)
    beyond = np.maximum(np.abs(point) - half[:, None], 0.0)
    away = np.copysign(beyond, point) * direction[:, None]
    x, z, y = beyond * beyond
    outside = x + z + y - np.square(radius)  # D^2 - radius^2
    x, z, y = away
    nearing = -(x + z + y)  # -dD^2/2dt
    is_before = (outside >= 0.0) & (nearing > 0.0)

    last = (bends * is_before).argmax(axis=0)
    bend = last * n + np.arange(n)
    start, outside, nearing, is_before = (
        values.reshape(-1)[bend] for values in (bends, outside, nearing, is_before)
    )
    is_beyond = (start < comes) | (start >= leaves)
    x, z, y = direction * direction * is_beyond
    square = nearing * nearing - (x + z + y) * outside
    travel: Array = np.full(n, np.inf)
    nearing += np.sqrt(np.maximum(square, 0.0))
    np.divide(outside, nearing, out=travel, where=is_before & (square >= 0.0))
    travel += start
    return travel


def _inverse(direction: Array) -> Array:
    """Return the reciprocal of each component, finite even if the component is 0."""
    inverse: Array = 1.0 / (direction + np.copysign(_TINY, direction))
    return inverse


def radius_at_edge(radius: float | Array, height: ArrayLike) -> Array:
    """Return the radius of a sphere's section at an edge, `height` below its center.

    The radius is 0 both for a sphere that grazes the edge and for one that passes above it. The
    caller must tell the two apart.
    """
    above = np.minimum(np.maximum(height, 0.0), radius)
    result: Array = np.sqrt(radius**2 - above * above)
    return result
