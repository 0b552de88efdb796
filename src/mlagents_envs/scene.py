"""`Scene`: what an environment shows, as solids of few kinds and their poses.

A viewer, a film or a picture draws the same scene. An environment offers one by a method `scene`:

    def scene(self) -> Scene: ...

All vectors and quaternions are in Unity's frame: left-handed, x right, y up, z forward; metres.
They are relative to the area that a solid belongs to. An area is what one agent, or one group, sees
at most: a room, a field or a board.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.base_env import IntArray

Array = NDArray[np.float64]
Colours = NDArray[np.uint8]
Vector = tuple[float, float, float]


class Shape(Enum):
    """Shape of a solid, which its size stretches."""

    BOX = "box"
    BALL = "ball"
    CYLINDER = "cylinder"
    """A cylinder that stands on its round face."""
    CAPSULE = "capsule"
    """A cylinder along y with half a ball at each end. All solids of a kind have one size."""


class Solids(NamedTuple):
    """Solids of one kind, n of them, one row each.

    Attributes:
        name: Name of the kind, unique within a scene.
        shape: Shape of all of them.
        position: (n, 3) centres, in m. A solid at NaN is hidden.
        rotation: (n, 4) unit quaternions: x, y, z, w.
        size: (n, 3) extents along the solids' own axes, in m.
        colour: (n, 3) red, green and blue, 0 to 255.
        area: (n,) indices of their areas; None for solids that every area has and that never move.
        agent: (n,) indices of the agents that they are; None for solids that are not agents.
    """

    name: str
    shape: Shape
    position: Array
    rotation: Array
    size: Array
    colour: Colours
    area: IntArray | None = None
    agent: IntArray | None = None

    @classmethod
    def of(
        cls,
        name: str,
        shape: Shape,
        position: ArrayLike,
        size: ArrayLike,
        colour: ArrayLike,
        *,
        rotation: ArrayLike = (0.0, 0.0, 0.0, 1.0),
        area: IntArray | None = None,
        agent: IntArray | None = None,
    ) -> "Solids":
        """Return solids; an argument with one row counts for all of them.

        Args:
            name: Name of the kind.
            shape: Shape of all of them.
            position: (n, 3) or (3,) centres.
            size: (n, 3) or (3,) extents.
            colour: (n, 3) or (3,) colours.
            rotation: (n, 4) or (4,) quaternions; by default the solids are not rotated.
            area: (n,) indices of their areas; None for solids that every area has.
            agent: (n,) indices of the agents that they are.
        """
        centres = np.atleast_2d(np.array(position, np.float64))
        n = len(centres) if area is None else len(area)

        def rows(value: ArrayLike, width: int) -> Array:
            return np.broadcast_to(np.asarray(value, np.float64), (n, width))

        return cls(
            name,
            shape,
            rows(centres, 3),
            rows(rotation, 4).copy(),
            rows(size, 3).copy(),
            rows(colour, 3).astype(np.uint8),
            area,
            agent,
        )


class Scene(NamedTuple):
    """The state of all areas at one moment. The arrays do not change with the next step.

    The same environment always has the same kinds in the same order.

    Attributes:
        solids: Solids by kind; what lies below comes first.
        n_areas: Number of areas.
        low: Lowest corner of an area.
        high: Highest corner of an area.
        agent_id: (N,) ids of the agents, to find their steps by.
        time_s: Simulated time since the last reset, in seconds.
    """

    solids: Sequence[Solids]
    n_areas: int
    low: Vector
    high: Vector
    agent_id: IntArray
    time_s: float = 0.0

    def agent_places(self) -> tuple[IntArray, Array]:
        """Return the agents' areas, (N,), and places, (N, 3).

        An agent without a solid in the scene has area -1 and is at NaN. An agent of several solids
        is where the first one is.
        """
        area = np.full(len(self.agent_id), -1, np.int32)
        place = np.full((len(self.agent_id), 3), np.nan)
        for solids in reversed(self.solids):
            if solids.agent is not None and solids.area is not None:
                area[solids.agent] = solids.area
                is_shown = np.isfinite(solids.position).all(axis=1)
                place[solids.agent[is_shown]] = solids.position[is_shown]
        return area, place


@runtime_checkable
class HasScene(Protocol):
    """An environment that describes what it shows."""

    def scene(self) -> Scene | None:
        """Return the current scene; None if the environment has none."""


class Control(NamedTuple):
    """A key or button that a person plays by.

    A continuous action is the sum of the held controls. A discrete branch takes the choice of the
    control that was pressed last.

    Attributes:
        name: Name on the button, such as "forward".
        key: Key of the keyboard: a capital letter, a digit or "Space".
        action: Index of the continuous action, or of the discrete branch.
        value: Value of the continuous action, from -1 to 1, or the choice of the branch.
        is_continuous: Whether `action` counts continuous actions.
    """

    name: str
    key: str
    action: int
    value: float
    is_continuous: bool = False


def turned(yaw_rad: ArrayLike) -> Array:
    """Return (..., 4) rotations about the axis up: to the right by an angle."""
    half = np.asarray(yaw_rad, np.float64) / 2.0
    zero = np.zeros_like(half)
    return np.stack([zero, np.sin(half), zero, np.cos(half)], axis=-1)
