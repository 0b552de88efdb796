"""Boxes that push and turn themselves among boxes that turn, for several steps at once.

    pushers = Pushers(boxes, n_members=3, n_watched=6, line=-12.0)
    pushers.command(members, areas, forward=..., right=..., sine=..., cosine=...)
    n_steps = pushers.run(5)              # fewer if a watched box crosses the line

Arrays and letters are those of `planar`; M is the number of boxes of an area that push themselves,
which are its last ones.
"""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mlagents_sim import native_planar
from mlagents_sim.native_planar import FixedArrays, require_memory
from mlagents_sim.plane import Array, Indices, Mask, X, Z, along, turn
from mlagents_sim.turning import TurningBoxes


class Pushers(FixedArrays):
    """Motion of N areas, in which some boxes push and then turn themselves.

    Args:
        boxes: Boxes of all areas.
        n_members: Number of boxes that push themselves, M.
        n_watched: Number of boxes, from the first one on, after whose arrival `run` stops.
        line: Value of z below which a box has arrived as soon as one of its corners is there.

    Attributes:
        boxes: Boxes of all areas.
        arrived: (watched, N) which solid watched boxes were beyond the line after the last step.
    """

    def __init__(self, boxes: TurningBoxes, *, n_members: int, n_watched: int, line: float) -> None:
        n = boxes.spin.shape[1]
        self.boxes, self._n_watched, self._line = boxes, n_watched, line
        self._members = slice(len(boxes.spin) - n_members, None)
        self._forward, self._right, self._sine, self._cosine = np.zeros((4, n_members, n))
        self._cosine.fill(1.0)
        self.arrived: Mask = np.zeros((n_watched, n), np.bool_)

    @cached_property
    def shared(self) -> native_planar.Pushers:
        """The motion, as the native library knows it."""
        return native_planar.Pushers(
            boxes=self.boxes.shared,
            n_members=len(self._forward),
            n_watched=self._n_watched,
            line=self._line,
            forward=self._forward,
            right=self._right,
            sine=self._sine,
            cosine=self._cosine,
            arrived=self.arrived,
        )

    def command(
        self,
        members: Indices,
        areas: Indices,
        *,
        forward: ArrayLike,
        right: ArrayLike,
        sine: ArrayLike,
        cosine: ArrayLike,
    ) -> None:
        """Set what n boxes do in each of the coming steps.

        Args:
            members: (n,) indices among the boxes that push themselves.
            areas: (n,) their areas.
            forward: (n,) pushes ahead, in m/s a step.
            right: (n,) pushes to the right, in m/s a step.
            sine: (n,) sines of the turns to the right in a step.
            cosine: (n,) cosines of these turns.
        """
        self._forward[members, areas] = forward
        self._right[members, areas] = right
        self._sine[members, areas] = sine
        self._cosine[members, areas] = cosine

    def steer(self) -> None:
        """Let the boxes push and turn: the first part of a step."""
        if (functions := self.boxes.functions) is not None:
            functions.turning_steer(self.shared)
            return
        heading = self.boxes.heading[:, self._members]
        self.boxes.velocity[:, self._members] += along(heading, self._forward, self._right)
        turn(heading, self._sine, self._cosine)

    def move(self) -> None:
        """Move all boxes: the second part of a step."""
        self.boxes.move()
        self.arrived = self._have_arrived()

    def run(self, most_steps: int) -> int:
        """Run steps up to one after which a watched box is beyond the line.

        Args:
            most_steps: Largest number of steps.

        Returns:
            The number of steps.
        """
        if (functions := self.boxes.functions) is not None:
            return require_memory(functions.turning_run(self.shared, most_steps))
        for step in range(most_steps):
            self.steer()
            self.move()
            if self.arrived.any():
                return step + 1
        return most_steps

    def _have_arrived(self) -> Mask:
        boxes, watched = self.boxes, slice(self._n_watched)
        heading = np.abs(boxes.heading[:, watched])
        half = boxes.half[:, watched, None]
        reach: Array = heading[X] * half[X] + heading[Z] * half[Z]
        is_in: Mask = boxes.position[Z, watched] - reach < self._line
        return is_in & boxes.is_solid[watched]
