"""`Scene`: a geometric description of an environment, as solids of several kinds with their poses.

Viewers, films and pictures draw the same scene. An environment provides it with a method `scene`:

    def scene(self) -> Scene: ...

All vectors and quaternions are in Unity's frame: left-handed, x right, y up, z forward, in meters.
They are relative to the area of the solid. An area is the largest space that one agent, or one
group, can observe: a room, a field or a board.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.base_env import IntArray

Array = NDArray[np.float64]
Colors = NDArray[np.uint8]
Vector = tuple[float, float, float]


class Shape(Enum):
    """Shape of a solid, which is scaled to the solid's size."""

    BOX = "box"
    BALL = "ball"
    CYLINDER = "cylinder"
    """Cylinder along y."""
    CAPSULE = "capsule"
    """Cylinder along y with a half ball at each end. All solids of a kind have the same size."""


class Solids(NamedTuple):
    """Batch of n solids of one kind, one row each.

    Attributes:
        name: Name of the kind, unique within a scene.
        shape: Shape of all solids.
        position: (n, 3) centers, in m. A solid at NaN is hidden.
        rotation: (n, 4) unit quaternions: x, y, z, w.
        size: (n, 3) extents along the solids' own axes, in m.
        color: (n, 3) red, green and blue, 0 to 255.
        area: (n,) indices of the solids' areas; None for solids that are in every area and never
            move.
        agent: (n,) indices of the agents that the solids represent; None for other solids.
    """

    name: str
    shape: Shape
    position: Array
    rotation: Array
    size: Array
    color: Colors
    area: IntArray | None = None
    agent: IntArray | None = None

    @classmethod
    def of(
        cls,
        name: str,
        shape: Shape,
        position: ArrayLike,
        size: ArrayLike,
        color: ArrayLike,
        *,
        rotation: ArrayLike = (0.0, 0.0, 0.0, 1.0),
        area: IntArray | None = None,
        agent: IntArray | None = None,
    ) -> "Solids":
        """Return a batch of solids; an argument with a single row applies to all of them.

        Args:
            name: Name of the kind.
            shape: Shape of all solids.
            position: (n, 3) or (3,) centers.
            size: (n, 3) or (3,) extents.
            color: (n, 3) or (3,) colors.
            rotation: (n, 4) or (4,) quaternions; by default the solids are not rotated.
            area: (n,) indices of the solids' areas; None for solids that are in every area.
            agent: (n,) indices of the agents that the solids represent.
        """
        centers = np.atleast_2d(np.array(position, np.float64))
        n = len(centers) if area is None else len(area)

        def rows(value: ArrayLike, width: int) -> Array:
            return np.broadcast_to(np.asarray(value, np.float64), (n, width))

        return cls(
            name,
            shape,
            rows(centers, 3),
            rows(rotation, 4).copy(),
            rows(size, 3).copy(),
            rows(color, 3).astype(np.uint8),
            area,
            agent,
        )


class Scene(NamedTuple):
    """State of all areas at one moment. The next step does not change the arrays.

    An environment always has the same kinds of solids in the same order.

    Attributes:
        solids: Solids by kind, from bottom to top.
        n_areas: Number of areas.
        low: Corner of an area with the smallest coordinates, in m.
        high: Corner of an area with the largest coordinates, in m.
        agent_id: (N,) ids of the agents, as in their steps.
        time_s: Simulated time since the last reset, in seconds.
        close_up_m: Extent of the first agent's surroundings that pictures show, in m, if areas are
            much larger than agents; None for pictures of whole areas.
    """

    solids: Sequence[Solids]
    n_areas: int
    low: Vector
    high: Vector
    agent_id: IntArray
    time_s: float = 0.0
    close_up_m: float | None = None

    def agent_places(self) -> tuple[IntArray, Array]:
        """Return the areas, (N,), and positions, (N, 3), of the agents.

        An agent without a solid has area -1 and position NaN. An agent with several solids has the
        position of the first one.
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
    """Environment that provides a scene."""

    def scene(self) -> Scene | None:
        """Return the current scene; None if the environment has none."""


class Control(NamedTuple):
    """Key or button with which a person plays.

    A continuous action is the sum of the controls that are held. A discrete branch takes the value
    of the control that was pressed last.

    Attributes:
        name: Label of the button, such as "forward".
        key: Key on the keyboard: a capital letter, a digit or "Space".
        action: Index of the continuous action or discrete branch.
        value: Value of the continuous action, from -1 to 1, or chosen action of the branch.
        is_continuous: Whether `action` is the index of a continuous action.
    """

    name: str
    key: str
    action: int
    value: float
    is_continuous: bool = False


def turned(yaw_rad: ArrayLike) -> Array:
    """Return (..., 4) quaternions of rotations to the right about the y axis."""
    half = np.asarray(yaw_rad, np.float64) / 2.0
    zero = np.zeros_like(half)
    return np.stack([zero, np.sin(half), zero, np.cos(half)], axis=-1)
