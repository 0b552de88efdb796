"""GridWorld: walk to the goal of the requested kind, seen from above."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    BoolArray,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.scene import Control, Scene
from mlagents_sim.floor_plan import FLOOR_M, FloorPlan, hidden
from mlagents_sim.native_planar import Pool, address
from mlagents_sim.planar import PLANAR
from mlagents_sim.raster import Array, Camera, Pixels, polygon
from mlagents_sim.world import Agents, World

MOVES = np.array([[0, 0], [0, 1], [0, -1], [-1, 0], [1, 0]])
"""By action, in cells to the right and up: stay, up, down, left, right."""
STEP_REWARD = -0.01
MAX_GRID_SIZE = 32
"""Largest grid whose cells have at least two by two pixels."""

PLUS, CROSS = range(2)
NOWHERE = -1

HEIGHT, WIDTH = 64, 84
BAR = 0.2
"""Width of the bars from which all objects are drawn; an edge of a cell is 1."""
# The colors that a Unity camera sees, lit as in the scene.
WALL_COLOR, FLOOR_COLOR = (137, 139, 143), (70, 73, 78)
AGENT_COLOR = np.array([62, 195, 255], np.uint8)
GOAL_COLORS = np.array([[140, 238, 151], [238, 92, 75]], np.uint8)


class Shadow(NamedTuple):
    """The soft shadow that an object casts on the floor, fitted to recorded pictures of Unity.

        depth * exp(-((l * u)^2 + (m * u + n * v)^2) / 2)

    with u to the right and v up, in cells, from the middle of the shadow.

    Attributes:
        depth: Largest darkening of every channel, in levels of 255.
        right: Distance from the object's center to the shadow's center to the right, in cells.
        up: Distance from the object's center to the shadow's center upward, in cells.
        shape: (l, m, n) above, per cell.
    """

    depth: float
    right: float
    up: float
    shape: tuple[float, float, float]


SHADOWS = (
    Shadow(4.13, -1.18, 1.42, (1.22, -0.11, 1.06)),  # of the agent
    Shadow(3.79, -1.19, 1.30, (0.97, -0.59, 1.33)),  # of a plus
    Shadow(4.00, -1.09, 1.18, (1.03, -0.37, 1.29)),  # of a cross
)
LIGHT = (0.83, -0.12, -0.66)
"""Levels by which the floor is lighter in the middle of the grid, and the differences from its left
to its right edge and from its lower to its upper one."""
PER_LEVEL = 8
"""Units of shade in a level of color. The shadows of a grid full of objects still fit 8 bits."""
LIGHTEST = 2
"""Largest difference, in levels, by which any floor is lighter than its color."""
MOST_SHADED = 12
"""Cells along an edge of the largest grid with shadows of objects, whose tables use memory."""
AT_ONCE = 32
"""Pictures that are shaded at once; they stay in the processor's cache."""

FROM_ABOVE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])[:, :, None]
"""Axes of a camera: x to the right, z up, down ahead."""


class GridWorld(World):
    """Nine agents, each on its own grid with goals of two kinds, one of which is requested.

    Observations:
        an image, (3, 64, 84), 8-bit: the grid from above, as high as the image, with walls left and
            right of it. The floor is dark gray with soft shadows. The agent is a blue frame. Goals
            are green pluses and red crosses.
        2 numbers, the goal signal: 1 for the requested kind, plus or cross, and 0 for the other.
    Action: one branch of 5: stay, up, down, left, right. A move out of the grid is masked and
        does nothing.
    Decisions: every step.
    Reward: -0.01 per step; instead +1 for walking into a goal of the requested kind, -1 for one of
        the other kind.
    Ends: at any goal.
    Interrupts: after 100 steps.
    Parameters: `gridSize` 5, in cells; `numPlusGoals` 1; `numExGoals` 1. Values are rounded down
        and apply to episodes that begin later.
    Start: goals and agent in different random cells. Both kinds are requested equally often, even
        if the grid has no such goal.
    A good policy reaches 0.8.

    Attributes:
        size: (N,) cells along an edge of each grid.
        place: (N, 2) places of the agents, in cells from the left and from the bottom.
        goal: (N, G, 2) places of the goals; `NOWHERE` for absent goals.
        kind: (N, G) kinds of the goals, `PLUS` or `CROSS`.
        requested: (N,) requested kinds.
    """

    behavior_name = "GridWorld?team=0"
    behavior_spec = BehaviorSpec(
        [
            ObservationSpec.image((3, HEIGHT, WIDTH), "CameraSensor"),
            ObservationSpec.vector(2, "VectorSensor_size2_GoalSignal")._replace(
                observation_type=ObservationType.GOAL_SIGNAL
            ),
        ],
        ActionSpec.create_discrete((len(MOVES),)),
    )
    controls = (
        Control("up", "W", 0, 1),
        Control("down", "S", 0, 2),
        Control("left", "A", 0, 3),
        Control("right", "D", 0, 4),
    )
    agents_per_area = 9
    max_steps = 100
    default_parameters: ClassVar[Mapping[str, float]] = {
        "gridSize": 5.0,
        "numPlusGoals": 1.0,
        "numExGoals": 1.0,
    }
    counts: ClassVar[tuple[str, str]] = ("numPlusGoals", "numExGoals")
    """Parameters that say how many pluses and crosses there are."""

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.size = np.zeros(n, np.intp)
        self.place = np.zeros((n, 2), np.intp)
        self.goal = np.full((n, 0, 2), NOWHERE)
        self.kind = np.zeros((n, 0), np.intp)
        self.requested = np.zeros(n, np.intp)
        self._move = np.zeros((n, 2), np.intp)
        self._pool = Pool()

    # The task.

    def begin(self, agents: Agents) -> None:
        """Put goals and agents into different cells; choose the requested kinds."""
        n = len(self.agent_id[agents])
        drawn_sizes = [
            np.trunc(self.parameters.draw(name, n)) for name in ("gridSize", *self.counts)
        ]
        self._check(*drawn_sizes)
        size, n_plus, n_cross = (sizes.astype(np.intp) for sizes in drawn_sizes)
        n_goals = n_plus + n_cross
        # The cells of each grid in random order: the first is for the agent, the next for goals.
        cell = np.arange(size.max() ** 2)
        drawn = np.where(cell < size[:, None] ** 2, self.rng.random((n, len(cell))), np.inf)
        taken = drawn.argsort(axis=1)[:, : n_goals.max() + 1]
        places = np.stack([taken % size[:, None], taken // size[:, None]], axis=-1)
        number = np.arange(n_goals.max())
        self._make_room(len(number))
        self.size[agents] = size
        self.place[agents] = places[:, 0]
        self.goal[agents] = NOWHERE
        self.goal[agents, : len(number)] = np.where(
            (number < n_goals[:, None])[..., None], places[:, 1:], NOWHERE
        )
        self.kind[agents, : len(number)] = np.where(number < n_plus[:, None], PLUS, CROSS)
        self.requested[agents] = self.rng.integers(0, 2, n)

    @classmethod
    def _check(cls, size: Array, n_plus: Array, n_cross: Array) -> None:
        """Raise unless each grid has a cell for every goal and the agent."""
        is_bad = (
            (size < 1)
            | (size > MAX_GRID_SIZE)
            | (np.minimum(n_plus, n_cross) < 0)
            | (n_plus + n_cross >= size**2)
        )
        if is_bad.any():
            bad = is_bad.argmax()
            raise UnityEnvironmentException(
                f"{cls.__name__} cannot begin with gridSize {size[bad]:g}, {cls.counts[0]} "
                f"{n_plus[bad]:g} and {cls.counts[1]} {n_cross[bad]:g}: expected a size from 1 to "
                f"{MAX_GRID_SIZE}, and a cell for every goal and the agent. Change these "
                "environment parameters."
            )

    def _make_room(self, n_goals: int) -> None:
        n_lacking = n_goals - self.goal.shape[1]
        if n_lacking > 0:
            columns = ((0, 0), (0, n_lacking))
            self.goal = np.pad(self.goal, (*columns, (0, 0)), constant_values=NOWHERE)
            self.kind = np.pad(self.kind, columns)

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observations that the class describes."""
        signal = np.eye(2, dtype=np.float32)[self.requested[agents]]
        return [self._pictures(agents), signal]

    def masks(self, agents: Agents) -> list[BoolArray]:
        """Mask the moves out of the grid."""
        return [self._leads_out(self.place[agents, None] + MOVES, self.size[agents, None])]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Store the moves."""
        self._move[agents] = MOVES[action.discrete[:, 0]]

    def act(self) -> None:
        """Move the agents; end episodes that reached a goal."""
        place = self.place + self._move
        stays = self._leads_out(place, self.size)
        place[stays] = self.place[stays]
        self.place = place
        self.reward += STEP_REWARD

        agent, goal = (self.goal == place[:, None]).all(axis=-1).nonzero()
        is_right = self.kind[agent, goal] == self.requested[agent]
        self.reward[agent] = np.where(is_right, 1.0, -1.0)
        self.end(agent)

    @staticmethod
    def _leads_out(place: NDArray[np.intp], size: NDArray[np.intp]) -> BoolArray:
        outside = (place < 0) | (place >= size[..., None])
        return outside[..., 0] | outside[..., 1]

    # The picture.

    def _pictures(self, agents: Agents) -> Pixels:
        """Draw the grids of n agents: (n, 3, H, W)."""
        place, goal, kind = self.place[agents], self.goal[agents], self.kind[agents]
        sizes, group = np.unique(self.size[agents], return_inverse=True)
        stamps = [stamps_of(size) for size in sizes.tolist()]
        pictures = self._pool.empty((len(place), 3, HEIGHT * WIDTH), np.uint8)
        for number, (size, stamp) in enumerate(zip(sizes, stamps, strict=True)):
            is_here = group == number
            (picture,) = is_here.nonzero()
            _shade(pictures, picture, stamp, size, place, goal, kind)
            is_goal = is_here[:, None] & (goal[..., 0] != NOWHERE)
            for which, color in enumerate(GOAL_COLORS):
                picture, column = (is_goal & (kind == which)).nonzero()
                cell = goal[picture, column] @ (1, size)
                _paint(pictures, picture, stamp.goals[which], cell, color)
            (picture,) = is_here.nonzero()
            _paint(pictures, picture, stamp.agent, place[picture] @ (1, size), AGENT_COLOR)
        return pictures.reshape(-1, 3, HEIGHT, WIDTH)

    def scene(self) -> Scene:
        """Return all grids. The bar at the left has the color of the requested kind."""
        n, n_goals = self.n_agents, self.goal.shape[1]
        edge = float(self.size.max())
        plan = FloorPlan(self, n, (-0.6, 0.0), (edge, edge), floor=None, top_m=1.0)
        half = self.size / 2.0
        plan.box(
            "grid",
            np.array([half, half]),
            np.array([half, half]),
            height_m=FLOOR_M,
            low_m=-FLOOR_M,
            color=FLOOR_COLOR,
        )
        plan.box(
            "requested",
            np.array([np.full(n, -0.4), half]),
            np.array([np.full(n, 0.2), half]),
            height_m=0.2,
            low_m=-0.2,
            color=GOAL_COLORS[self.requested],
        )
        place = self.goal.transpose(2, 1, 0) + 0.5  # (2, G, N)
        for name, kind, yaw in (("plus", PLUS, 0.0), ("cross", CROSS, np.pi / 4)):
            shown = hidden(place, ((self.goal[..., 0] != NOWHERE) & (self.kind == kind)).T)
            for bar, turn in enumerate((yaw, yaw + np.pi / 2)):
                heading = np.array([np.sin(turn), np.cos(turn)])
                plan.box(
                    f"{name} {bar}",
                    shown,
                    (BAR / 2, 0.45),
                    height_m=0.2,
                    heading=np.broadcast_to(heading[:, None, None], (2, n_goals, n)),
                    color=GOAL_COLORS[kind],
                )
        plan.box(
            "agent",
            self.place.T + 0.5,
            (0.35, 0.35),
            height_m=0.7,
            color=AGENT_COLOR,
            agents=np.arange(n),
        )
        return plan.scene()


class Stamps(NamedTuple):
    """Pixels to draw on grids of one size.

    Attributes:
        lightest: (3, H * W) the grid and its walls, `LIGHTEST` levels lighter than they ever are.
        shades: (3 * cells + 1, H * W) units of shade: of the floor with an agent in each cell, then
            what a plus, and a cross, adds in each cell, then of no object. In grids larger than
            `MOST_SHADED` one row, of the floor alone.
        agent: (cells, P) indices of an agent's pixels in each cell. Cells are counted from the
            left, then from the bottom. Some pixels appear twice.
        goals: (cells, P) indices of a goal's pixels in each cell, for each kind of goal.
    """

    lightest: Pixels
    shades: Pixels
    agent: NDArray[np.intp]
    goals: tuple[NDArray[np.intp], NDArray[np.intp]]


def _shade(
    pictures: Pixels,
    which: NDArray[np.intp],
    stamp: Stamps,
    size: int,
    place: NDArray[np.intp],
    goal: NDArray[np.intp],
    kind: NDArray[np.intp],
) -> None:
    """Draw walls and shaded floor of some of the pictures, (N, 3, H * W), of grids of one size."""
    rows = np.zeros((len(which), 1), np.intp)  # of `shades`, for every object
    if size <= MOST_SHADED:
        cells = size**2
        of_goals = (1 + kind[which]) * cells + goal[which] @ (1, size)
        of_goals[goal[which, :, 0] == NOWHERE] = 3 * cells
        rows = np.column_stack([place[which] @ (1, size), of_goals])
    if (functions := PLANAR.load()) is not None:
        which, rows = map(np.ascontiguousarray, (which, rows))
        functions.raster_shade(
            address(pictures),
            address(which),
            len(which),
            pictures.shape[2],
            address(stamp.lightest),
            address(stamp.shades),
            address(rows),
            rows.shape[1],
            PER_LEVEL,
        )
        return
    for start in range(0, len(which), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        units = stamp.shades[rows[part, 0]]
        for column in range(1, rows.shape[1]):
            units += stamp.shades[rows[part, column]]
        units //= PER_LEVEL
        pictures[which[part]] = stamp.lightest - units[:, None]


def _paint(
    pictures: Pixels,
    which: NDArray[np.intp],
    pixels: NDArray[np.intp],
    cell: NDArray[np.intp],
    color: Pixels,
) -> None:
    """Paint the pixels, (cells, P), of n cells into n of the pictures, (N, 3, H * W)."""
    if (functions := PLANAR.load()) is not None:
        which = np.ascontiguousarray(which)
        functions.raster_stamp(
            address(pictures),
            address(which),
            len(which),
            pictures.shape[2],
            address(pixels),
            address(cell),
            pixels.shape[1],
            address(color),
        )
        return
    for channel, value in enumerate(color):
        pictures[which[:, None], channel, pixels[cell]] = value


@lru_cache(maxsize=MAX_GRID_SIZE)
def stamps_of(size: int) -> Stamps:
    """Prepare the pixels to draw on grids of `size` cells by `size`."""
    half = size / 2
    x = (np.arange(WIDTH) - (WIDTH - 1) / 2) * size / HEIGHT + half
    is_floor = (x > 0.0) & (x < size)
    row = np.where(is_floor[:, None], FLOOR_COLOR, WALL_COLOR).astype(np.uint8)  # (W, 3)
    lightest = row.T[:, None].repeat(HEIGHT, axis=1) + np.uint8(LIGHTEST)
    z = (HEIGHT - 0.5 - np.arange(HEIGHT)) * size / HEIGHT
    across, along = np.meshgrid(x, z)  # (H, W) of the middle of each pixel, in cells
    light = LIGHT[0] + LIGHT[1] * (across / half - 1) / 2 + LIGHT[2] * (along / half - 1) / 2
    ground = _units(np.where(is_floor, LIGHTEST - light, LIGHTEST))

    cell = np.arange(size**2)
    middle = np.array([cell % size + 0.5, np.zeros(size**2), cell // size + 0.5])
    camera = Camera.orthographic(
        np.array([[half], [0.0], [half]]), FROM_ABOVE, extent_m=size, height=HEIGHT, width=WIDTH
    )

    def pixels(bars: Array) -> NDArray[np.intp]:
        corners = middle[:, None, None] + bars[..., None]  # (3, 4, bars, cells)
        covered = polygon(camera, corners).mask(WIDTH).any(axis=0).reshape(len(cell), -1)
        n_most = covered.sum(axis=1).max()
        return np.array([np.resize(np.flatnonzero(of_cell), n_most) for of_cell in covered])

    width = max(BAR, size / HEIGHT)  # at least a pixel, so that nothing is lost between two
    edge = (1.0 - width) / 2
    frame = [bar(width, turn_rad=turn, aside=edge) for turn in np.arange(4) * np.pi / 2]
    plus = [bar(width, turn_rad=0.0), bar(width, turn_rad=np.pi / 2)]
    cross = [bar(width, turn_rad=np.pi / 4), bar(width, turn_rad=-np.pi / 4)]
    agent, *goals = (pixels(np.stack(bars, axis=-1)) for bars in (frame, plus, cross))
    ground += np.uint8(PER_LEVEL // 2 - 1)  # rounds to the nearest level
    shades = ground[None]
    if size <= MOST_SHADED:
        of_objects = [
            _units(shadow_of(shadow, across - i, along - j) * is_floor)
            for shadow in SHADOWS
            for i, _, j in middle.T
        ]
        shades = np.array([*of_objects, np.zeros_like(ground)])
        shades[: len(cell)] += ground
    return Stamps(lightest.reshape(3, -1), shades, agent, (goals[0], goals[1]))


def _units(levels: Array) -> Pixels:
    """Turn levels of shade, (H, W), into whole units, (H * W,)."""
    return np.rint(PER_LEVEL * levels).astype(np.uint8).reshape(-1)


def shadow_of(shadow: Shadow, right: Array, up: Array) -> Array:
    """Return the levels that a shadow takes, at places given from the object's middle in cells."""
    u, v = right - shadow.right, up - shadow.up
    narrow, slope, high = shadow.shape
    return shadow.depth * np.exp(-0.5 * ((narrow * u) ** 2 + (slope * u + high * v) ** 2))


def bar(width: float, *, turn_rad: float, aside: float = 0.0) -> Array:
    """Return the corners, (3, 4), of a bar of length 1 along z, moved along x, then turned."""
    x = np.array([-0.5, -0.5, 0.5, 0.5]) * width + aside
    z = np.array([-0.5, 0.5, 0.5, -0.5])
    cosine, sine = math.cos(turn_rad), math.sin(turn_rad)
    return np.array([cosine * x + sine * z, np.zeros(4), cosine * z - sine * x])
