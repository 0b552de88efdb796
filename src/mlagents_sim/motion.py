"""Motion of agents that push and turn, and of the bodies around them, for several steps at once.

    motion = Motion(bodies, watched=Watched(pairs=[0]))
    motion.command(agents, forward=..., right=..., turn_rad=...)
    n_steps = motion.run(5)               # fewer if a watched event happened

A step has two parts, between which a `World` ends episodes that reached their time limit:

    step:  steer (turn, push or jump) ─► move (bodies, contacts, supports below agents)

Arrays and letters are those of `planar`. The agent of an area is its first body.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim import native_planar
from mlagents_sim.native_planar import FixedArrays
from mlagents_sim.planar import Bodies
from mlagents_sim.plane import Array, Indices, along, dot, turn
from mlagents_sim.standing import Standing

AGENT = 0


class Watched(NamedTuple):
    """Events after which `Motion.run` stops, in addition to an agent over a zone of its `Standing`.

    Attributes:
        pairs: Indices of pairs, whose contact is an event.
        walls: Indices of the side, the axis and the body, whose contact with the wall is an event.
        bodies: Indices of bodies, whose departure from the bounds is an event.
        center: Middle of the bounds, in x and z.
        half: Half lengths of the bounds.
    """

    pairs: Sequence[int] = ()
    walls: Sequence[tuple[int, int, int]] = ()
    bodies: Sequence[int] = ()
    center: tuple[float, float] = (0.0, 0.0)
    half: tuple[float, float] = (np.inf, np.inf)


NOTHING = Watched()


class Ring(FixedArrays):
    """A round room with objects in slots along its wall.

    Two bodies stand for a piece of the wall and for the object of the nearest slot. They are placed
    beside the agent before each motion.

    Args:
        bodies: Bodies of all areas.
        wall: Index of the body that is the piece of wall.
        item: Index of the body that is the object.
        wall_m: Distance from the middle to the center of the piece of wall.
        item_m: Distance from the middle to the center of an object.
        slots: (2, S) unit vectors from the middle to the slots.

    Attributes:
        items: (S, N) numbers of the objects in the slots; below 0 for an empty slot.
        near: (N,) numbers of the objects beside the agents; below 0 for none.
    """

    FAR_M = 1e3
    """Distance of an absent object."""

    def __init__(
        self,
        bodies: Bodies,
        *,
        wall: int,
        item: int,
        wall_m: float,
        item_m: float,
        slots: Array,
    ) -> None:
        n_areas = bodies.position.shape[2]
        self._bodies, self._slots = bodies, np.ascontiguousarray(slots)
        self._wall, self._item, self._wall_m, self._item_m = wall, item, wall_m, item_m
        self.items = np.full((slots.shape[1], n_areas), -1, np.int64)
        self.near = np.full(n_areas, -1, np.int64)

    @cached_property
    def shared(self) -> native_planar.Ring:
        """The room, as the native library knows it."""
        return native_planar.Ring(
            wall=self._wall,
            item=self._item,
            n_slots=self._slots.shape[1],
            wall_m=self._wall_m,
            item_m=self._item_m,
            far_m=self.FAR_M,
            slots=self._slots,
            items=self.items,
            near=self.near,
        )

    def surround(self) -> None:
        """Put wall and object beside the agents."""
        bodies, slots = self._bodies, self._slots
        place = bodies.position[:, AGENT]
        distance = np.sqrt(dot(place, place))
        outward = np.array([[0.0], [1.0]]).repeat(len(distance), axis=1)
        np.divide(place, distance, out=outward, where=distance > 0.0)
        bodies.heading[:, self._wall] = outward
        bodies.position[:, self._wall] = outward * self._wall_m
        nearest = dot(place[:, None], slots[:, :, None]).argmax(axis=0)
        self.near = self.items[nearest, np.arange(len(distance))]
        bodies.heading[:, self._item] = slots[:, nearest]
        item_m = np.where(self.near < 0, self.FAR_M, self._item_m)
        bodies.position[:, self._item] = slots[:, nearest] * item_m


class Motion(FixedArrays):
    """Motion of N areas.

    Agents turn and then push; with `pushes_first`, they push first. With a `Standing`, its rules
    apply to pushes, jumps and turns, and `forward` and `right` are fractions of a full push.

    Args:
        bodies: Bodies of all areas.
        pushes_first: Whether agents push before they turn.
        grips: (2, B, N) values for `Bodies.grip`, of bodies at rest and of bodies that move, chosen
            before the agents push; None to leave the grip alone.
        ring: Round room around the agents, if any.
        standing: Vertical motion of the agents, if they jump.
        watched: Events after which `run` stops.

    Attributes:
        bodies: Bodies of all areas.
        standing: Vertical motion of the agents, or None.
        forward: (N,) pushes ahead, in m/s per step.
        right: (N,) pushes to the right, in m/s per step.
        sine: (N,) sines of the turns to the right in a step.
        cosine: (N,) cosines of these turns.
    """

    def __init__(
        self,
        bodies: Bodies,
        *,
        pushes_first: bool = False,
        grips: Array | None = None,
        ring: Ring | None = None,
        standing: Standing | None = None,
        watched: Watched = NOTHING,
    ) -> None:
        n = bodies.position.shape[2]
        self.bodies, self.standing = bodies, standing
        self.forward, self.right, self.sine, self.cosine = *np.zeros((3, n)), np.ones(n)
        self._pushes_first, self._ring, self._watched = pushes_first, ring, watched
        self._grips: Array | None = None if grips is None else grips.view()
        self._middle = np.reshape(watched.center, (2, 1, 1))
        self._extent = np.reshape(watched.half, (2, 1, 1))

    @cached_property
    def shared(self) -> native_planar.Motion:
        """The motion, as the native library knows it."""
        watched, bodies = self._watched, self.bodies
        pairs = np.zeros(len(bodies.touching), np.bool_)
        pairs[list(watched.pairs)] = True
        walls = np.zeros(bodies.touching_walls.shape[:3], np.bool_)
        for wall in watched.walls:
            walls[wall] = True
        bounded = np.zeros(len(bodies.grip), np.bool_)
        bounded[list(watched.bodies)] = True
        at_rest, moving = (None, None) if self._grips is None else self._grips
        return native_planar.Motion(
            bodies=bodies.shared,
            ring=None if self._ring is None else self._ring.shared,
            standing=None if self.standing is None else self.standing.shared,
            pushes_first=self._pushes_first,
            forward=self.forward,
            right=self.right,
            sine=self.sine,
            cosine=self.cosine,
            static_grip=at_rest,
            dynamic_grip=moving,
            watched_pairs=pairs,
            watched_walls=walls,
            watched_bodies=bounded,
            middle=tuple(watched.center),
            extent=tuple(watched.half),
        )

    def command(
        self,
        agents: slice | Indices,
        *,
        forward: ArrayLike,
        right: ArrayLike,
        sine: ArrayLike,
        cosine: ArrayLike,
    ) -> None:
        """Set the pushes and turns of n agents in each of the coming steps.

        Args:
            agents: Indices of the agents, n of them.
            forward: (n,) pushes ahead.
            right: (n,) pushes to the right.
            sine: (n,) sines of the turns to the right.
            cosine: (n,) cosines of these turns.
        """
        self.forward[agents] = forward
        self.right[agents] = right
        self.sine[agents] = sine
        self.cosine[agents] = cosine

    def steer(self) -> None:
        """Let the agents turn, push and jump: the first part of a step."""
        if (functions := self.bodies.functions) is not None:
            functions.planar_steer(self.shared)
        elif self.standing is not None:
            self.standing.begin_step()
            self.standing.push(self.forward, self.right)
            self._turn()
            self.standing.rub()
        else:
            if self._pushes_first:
                self._push()
            self._turn()

    def move(self) -> None:
        """Move everything: the second part of a step."""
        if (functions := self.bodies.functions) is not None:
            self.bodies.call(functions.planar_move, self.shared)
        elif self.standing is not None:
            self.standing.move()
        else:
            if not self._pushes_first:
                self._push()
            if self._ring is not None:
                self._ring.surround()
            self.bodies.move()

    def run(self, most_steps: int) -> int:
        """Run steps up to one in which a watched event happens.

        Args:
            most_steps: Largest number of steps.

        Returns:
            The number of steps; 0 if a watched body is already outside its bounds.
        """
        if (functions := self.bodies.functions) is not None:
            return self.bodies.call(functions.planar_run, self.shared, most_steps)
        for step in range(most_steps):
            if self._has_left():
                return step
            self.steer()
            self.move()
            if self._has_happened():
                return step + 1
        return most_steps

    def _turn(self) -> None:
        turn(self.bodies.heading[:, AGENT], self.sine, self.cosine)

    def _push(self) -> None:
        bodies = self.bodies
        if self._grips is not None:
            bodies.grip = np.where(bodies.velocity.any(axis=0), self._grips[1], self._grips[0])
        bodies.velocity[:, AGENT] += along(bodies.heading[:, AGENT], self.forward, self.right)

    def _has_left(self) -> bool:
        """Return whether a watched body is outside its bounds, for the task to judge."""
        place = self.bodies.position[:, list(self._watched.bodies)]
        return bool((np.abs(place - self._middle) > self._extent).any())

    def _has_happened(self) -> bool:
        """Return whether a watched event happened in the last step."""
        bodies, watched = self.bodies, self._watched
        return bool(
            bodies.touching[list(watched.pairs)].any()
            or any(bodies.touching_walls[wall].any() for wall in watched.walls)
            or (self.standing is not None and self.standing.is_over_zone.any())
        )
