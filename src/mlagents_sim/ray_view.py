"""Ray observations of a scene of walls, boxes and discs, which is declared once.

    view = RayView(
        RAYS, bodies, radius_m=0.5, room=Room(WALL, low, high), boxes=[Box(BLOCK_TAG, body=BLOCK)]
    )
    seen = view.observe(agents)

Arrays and letters are those of `planar`; R is the number of rays of an agent. The first M bodies of
an area are agents; agent i is body i % M of area i // M.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import FloatArray
from mlagents_sim import native_planar
from mlagents_sim.native_planar import address
from mlagents_sim.planar import Bodies
from mlagents_sim.plane import Array, Indices, X
from mlagents_sim.rays import Rays, radius_at_edge
from mlagents_sim.sensors import RaySensor

Tags = NDArray[np.int8]

GRAZE_M = 1e-6
"""Largest difference at which the heights of a sphere's lowest point and of a wall's upper edge
count as equal."""


class Room(NamedTuple):
    """Walls around an area.

    Attributes:
        tag: Tag of the walls.
        low: Faces of the walls on the low sides, in x and z.
        high: Faces of the walls on the high sides.
        edge_m: Height of the rays above the upper edges of the walls while the agent is on the
            floor; None if the walls are higher than any ray.
    """

    tag: int
    low: tuple[float, float]
    high: tuple[float, float]
    edge_m: float | None = None


class Box(NamedTuple):
    """A box in every area.

    Attributes:
        tag: Tag of the box, or (N,) tags by area, which may change. A tag below
            0 hides the box.
        body: Index of the body that the box stands for, or None.
        center: Center in x and z, if the box is not a body.
        half: Half lengths, if the box is not a body.
        radius_m: Radius of the rays at this box, if it differs from that at the others.
        heading: Heading, if the box is not a body.
        is_turned: Whether the box has a heading; otherwise it is aligned with the axes.
        edges_m: (N,) heights of the lower and of the upper edges, for rays with a `Flight`.
    """

    tag: int | Tags
    body: int | None = None
    center: tuple[float, float] = (0.0, 0.0)
    half: tuple[float, float] = (0.0, 0.0)
    radius_m: float | None = None
    heading: tuple[float, float] = (0.0, 1.0)
    is_turned: bool = False
    edges_m: tuple[Array, Array] | None = None


class Discs(NamedTuple):
    """Balls in every area, D of them.

    Attributes:
        center: (2, D, N) centers in x and z.
        hidden: (D, N) numbers, 0 for a visible ball.
        tags: (D,) tags.
        radius_m: Radius of the balls.
        height_m: Height of their centers above the floor.
    """

    center: Array
    hidden: NDArray[np.int64]
    tags: Tags
    radius_m: float
    height_m: float


class Flight(NamedTuple):
    """Heights of rays.

    Attributes:
        height: (N,) heights of the agents.
        start_m: Height of a ray's start above the agent.
        slope: Rise of a ray per metre.
    """

    height: Array
    start_m: float
    slope: float


class RayView:
    """A ray sensor in a scene. Of equally distant objects, the first in declared order is observed.

    Args:
        sensor: Rays and their encoding.
        bodies: Bodies of all areas, the agents among them.
        radius_m: Radius of the rays.
        room: Walls, if there are any.
        discs: Balls, if there are any.
        boxes: Boxes. A ray passes through the agent that casts it.
        flight: Heights of the rays, if boxes have edges.
        n_members: Number of agents in an area, M.
        unit_half_m: Half length of an agent whose rays have the length and radius of `sensor`. The
            rays of other agents are scaled with their size. None if all rays are alike.
    """

    def __init__(
        self,
        sensor: RaySensor,
        bodies: Bodies,
        *,
        radius_m: float,
        room: Room | None = None,
        discs: Discs | None = None,
        boxes: Sequence[Box] = (),
        flight: Flight | None = None,
        n_members: int = 1,
        unit_half_m: float | None = None,
    ) -> None:
        self._sensor, self._bodies, self._radius_m = sensor, bodies, radius_m
        self._room, self._discs, self._boxes, self._flight = room, discs, boxes, flight
        self._n_members, self._unit_half_m = n_members, unit_half_m
        self._n_agents = n_members * bodies.position.shape[2]

    @cached_property
    def shared(self) -> native_planar.Rays:
        """The view, as the native library knows it."""
        sensor, room, flight = self._sensor, self._room, self._flight
        discs = None
        if self._discs is not None:
            discs = native_planar.SeenDiscs(
                count=len(self._discs.tags),
                center=self._discs.center,
                hidden=self._discs.hidden,
                tags=self._discs.tags,
                radius=self._discs.radius_m,
                height_m=self._discs.height_m,
            )
        boxes = [
            native_planar.SeenBox(
                body=-1 if box.body is None else box.body,
                is_turned=box.is_turned,
                center=box.center,
                half=box.half,
                heading=box.heading,
                radius=self._radius_m if box.radius_m is None else box.radius_m,
                tag=box.tag if isinstance(box.tag, int) else 0,
                tags=None if isinstance(box.tag, int) else box.tag,
                low=None if box.edges_m is None else box.edges_m[0],
                high=None if box.edges_m is None else box.edges_m[1],
            )
            for box in self._boxes
        ]
        return native_planar.Rays(
            bodies=self._bodies.shared,
            n_members=self._n_members,
            n_rays=sensor.directions.shape[1],
            n_tags=sensor.n_tags,
            n_boxes=len(boxes),
            has_room=room is not None,
            has_flight=flight is not None,
            length=sensor.length,
            radius=self._radius_m,
            directions=sensor.directions,
            room_low=(0.0, 0.0) if room is None else room.low,
            room_high=(0.0, 0.0) if room is None else room.high,
            room_radius=self._radius_m,
            room_edge_m=np.nan if room is None or room.edge_m is None else room.edge_m,
            room_tag=0 if room is None else room.tag,
            boxes=native_planar.array_of(native_planar.SeenBox, boxes),
            discs=discs,
            unit_half_m=self._unit_half_m or 0.0,
            height=None if flight is None else flight.height,
            start_m=0.0 if flight is None else flight.start_m,
            slope=0.0 if flight is None else flight.slope,
        )

    def observe(self, agents: slice | Indices) -> FloatArray:
        """Return the (n, size) observations of n agents."""
        functions = self._bodies.functions
        if functions is None:
            return self._observe(agents)
        which = native_planar.indices(agents, self._n_agents)
        n = self._n_agents if which is None else len(which)
        seen = np.empty((n, self._sensor.size), np.float32)
        functions.planar_see(self.shared, address(which), n, address(seen))
        return seen

    def _observe(self, agents: slice | Indices) -> FloatArray:
        bodies, n = self._bodies, self._n_members
        area, member = np.divmod(np.arange(self._n_agents)[agents], n)
        half, above_m = bodies.half[X, member, area], bodies.above_m[member, area]
        scale = 1.0 if self._unit_half_m is None else half / self._unit_half_m
        rays = Rays.cast(
            bodies.position[:, member, area] / scale,
            bodies.heading[:, member, area],
            self._sensor.directions,
        )
        travels: list[Array] = []
        tags: list[int | Tags] = []
        if self._room is not None:
            travels.append(self._to_room(rays, scale, above_m))
            tags.append(self._room.tag)
        if self._discs is not None:
            to_discs = self._to_discs(self._discs, rays, scale, area, half + above_m)
            for tag in np.unique(self._discs.tags).tolist():
                travels.append(to_discs[self._discs.tags == tag].min(axis=0))
                tags.append(tag)
        for box in self._boxes:
            to_box = self._to_box(box, rays, scale, area)
            tag = box.tag if isinstance(box.tag, int) else box.tag[area]
            is_unseen = (member == box.body) | np.less(tag, 0)
            travels.append(np.where(is_unseen, np.inf, to_box))
            tags.append(tag)
        return self._sensor.observe(travels, tags)

    def _to_room(self, rays: Rays, scale: float | Array, above_m: Array) -> Array:
        """Return (R, n) distances to the walls, for n agents at these heights above the floor."""
        assert self._room is not None
        _, low, high, edge_m = self._room
        low_m, high_m = (np.reshape(bound, (2, 1)) / scale for bound in (low, high))
        radius = self._radius_m
        if edge_m is None:
            return rays.to_room(low_m[:, None], high_m[:, None], radius)
        height = edge_m + above_m
        travel = rays.to_room(low_m[:, None], high_m[:, None], radius_at_edge(radius, height))
        return np.where(height < radius + GRAZE_M, travel, np.inf)

    def _to_discs(
        self, discs: Discs, rays: Rays, scale: float | Array, area: Indices, height: Array
    ) -> Array:
        """Return (D, R, n) distances to balls, for n agents at these heights."""
        below = np.abs(height - discs.height_m) / scale
        together = radius_at_edge(self._radius_m + discs.radius_m / scale, below)
        travel = rays.to_discs(discs.center[:, :, area] / scale, together)
        return np.where(discs.hidden[:, None, area] == 0, travel, np.inf)

    def _to_box(self, box: Box, rays: Rays, scale: float | Array, area: Indices) -> Array:
        """Return (R, n) distances to a box."""
        bodies = self._bodies
        radius = self._radius_m if box.radius_m is None else box.radius_m
        if box.body is None:
            center, half, heading = (
                np.repeat(np.reshape(value, (2, 1)), len(area), axis=1)
                for value in (box.center, box.half, box.heading)
            )
        else:
            center, half, heading = (
                values[:, box.body, area]
                for values in (bodies.position, bodies.half, bodies.heading)
            )
        if box.is_turned:
            rays = rays.seen_from((center / scale)[:, None], heading[:, None])
            center, half = np.zeros_like(center), half / scale
        travel: Array
        if self._flight is None or box.edges_m is None:
            (travel,) = rays.to_boxes(center[:, None], half[:, None], radius)
            return travel
        height, start_m, slope = self._flight
        low, high = (edge[None, area] for edge in box.edges_m)
        flights = [(height[area] + start_m, slope)]
        ((travel,),) = rays.to_solids(center[:, None], half[:, None], low, high, radius, flights)
        return travel
