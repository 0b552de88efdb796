"""Match-3: swap neighboring gems so that three or more of the same color form a line."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    BoolArray,
    ObservationSpec,
)
from mlagents_envs.scene import Scene
from mlagents_sim.floor_plan import FloorPlan, hidden
from mlagents_sim.world import ALL, Agents, World

Gems = NDArray[np.int8]
"""One property of the gems of n boards, (9, 8, n): row 0 is the bottom, column 0 is on the left."""

ROWS, COLUMNS = 9, 8
SMALLEST = 6
"""Smallest number of rows, and of columns, of a board."""
COLORS, SPECIALS = 6, 3
NO_GEM = -1
RARITY = (0.7, 0.9)
"""Cumulative probabilities of the first and the second kind of gem."""
REWARD_PER_POINT = 0.01
MOVES_PER_EPISODE = 499
"""Moves of an episode. Unity requests 500 and drops the last request."""

TO_THE_RIGHT, UPWARD = ROWS * (COLUMNS - 1), (ROWS - 1) * COLUMNS
N_MOVES = TO_THE_RIGHT + UPWARD


def _cells_of_moves() -> NDArray[np.intp]:
    """Return row and column of the two gems that each move swaps, (2, 2, 127)."""
    right, up = np.arange(TO_THE_RIGHT), np.arange(UPWARD)
    first = np.concatenate([np.divmod(right, COLUMNS - 1), np.divmod(up, COLUMNS)], axis=1)
    step = np.repeat([[0, 1], [1, 0]], [TO_THE_RIGHT, UPWARD], axis=1)
    return np.array([first, first + step])


CELLS = _cells_of_moves()
CELLS_SENSOR, SPECIAL_SENSOR = "Match3 Sensor (cells)", "Match3 Sensor (special)"


class Match3VectorObs(World):
    """Four boards of gems; a move swaps two neighbors, and lines of three or more vanish.

    Observations, for each cell of the largest board, row by row from the bottom left:
        432 numbers: one-hot color of the gem, of 6 colors;
        216 numbers: one-hot kind of the gem, of 3 kinds. Cells outside the board are 0.
    Action: one branch of 127 swaps. 0 to 62 swap a gem with its right neighbor, row by row, 7 in
        each row. 63 to 126 swap a gem with its upper neighbor, row by row, 8 in each row. A swap
        is masked unless both gems are on the board and one of them completes a line. A masked swap
        does nothing.
    Decisions: every step.
    Reward: 0.01 per point. Each gem that vanishes is worth 1, 2 or 3 points, depending on its kind.
        This includes chain reactions: the gems above fall down, and new gems fall from above.
    Interrupts: after 499 moves. The agent is absent for one step.
    Start: a board of 6 to 9 rows and 6 to 8 columns without lines. On average, seven of ten gems
        are of the first kind, two of the second and one of the third. There are no parameters. A
        board without a valid move is dealt again.
    A good policy reaches 38.5 on boards of 9 by 8. There, random valid moves reach 34.2, and the
    moves with the most immediate points reach 37.0. On boards of varying size, these values are 1.8
    lower.

    Attributes:
        color: (9, 8, N) colors of the gems, 0 to 5; `NO_GEM` outside a board.
        special: (9, 8, N) kinds of the gems, 0 to 2; `NO_GEM` outside a board.
        valid: (127, N) whether each move is not masked.
    """

    behavior_name = "Match3VectorObs?team=0"
    behavior_spec = BehaviorSpec(
        [
            ObservationSpec.vector(ROWS * COLUMNS * COLORS, CELLS_SENSOR),
            ObservationSpec.vector(ROWS * COLUMNS * SPECIALS, SPECIAL_SENSOR),
        ],
        ActionSpec.create_discrete((N_MOVES,)),
    )
    agents_per_area = 4

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.color = np.full((ROWS, COLUMNS, n), NO_GEM, np.int8)
        self.special = np.full((ROWS, COLUMNS, n), NO_GEM, np.int8)
        self.valid = np.zeros((N_MOVES, n), np.bool_)
        self._move = np.zeros(n, np.intp)
        self._n_moves = np.zeros(n, np.intp)
        self._is_away = np.zeros(n, np.bool_)

    def begin(self, agents: Agents) -> None:
        """Deal boards of new sizes."""
        n = len(self.agent_id[agents])
        rows, columns = self.draw_sizes(n)
        is_inside = (np.arange(ROWS)[:, None, None] < rows) & (
            np.arange(COLUMNS)[:, None] < columns
        )
        self.color[:, :, agents] = np.where(is_inside, 0, NO_GEM)
        self._deal(np.arange(self.n_agents)[agents])
        self._n_moves[agents] = 0
        self._is_away[agents] = False

    def draw_sizes(self, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the numbers of rows and of columns of n new boards."""
        rows, columns = self.rng.integers(SMALLEST, [[ROWS + 1], [COLUMNS + 1]], (2, n))
        return rows, columns

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observations that the class describes."""
        return [
            _one_hot(gems[:, :, agents], size)
            for gems, size in ((self.color, COLORS), (self.special, SPECIALS))
        ]

    def requests(self) -> Agents | None:
        """Return the agents that are not absent."""
        if not self._is_away.any():
            return ALL
        here = np.flatnonzero(~self._is_away)
        return here if len(here) else None

    def masks(self, agents: Agents) -> list[BoolArray]:
        """Mask the moves that complete no line."""
        return [~self.valid[:, agents].T]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Store the moves."""
        self._move[agents] = action.discrete[:, 0]

    def choose(self) -> NDArray[np.intp]:
        """Return the moves of all boards, (N,)."""
        return self._move

    def act(self) -> None:
        """Swap gems, clear lines until there are none, and end episodes after the last move."""
        move, is_here = self.choose(), ~self._is_away
        boards = np.flatnonzero(self.valid[move, np.arange(self.n_agents)] & is_here)
        (row, column), (other_row, other_column) = CELLS[:, :, move[boards]]
        for gems in (self.color, self.special):
            swapped = gems[row, column, boards]
            gems[row, column, boards] = gems[other_row, other_column, boards]
            gems[other_row, other_column, boards] = swapped
        self.reward += np.float32(REWARD_PER_POINT) * self._settle(boards)
        self.valid = valid_moves(self.color)
        self._deal(np.flatnonzero(~self.valid.any(axis=0)))

        self._n_moves += is_here
        done = np.flatnonzero(self._n_moves == MOVES_PER_EPISODE)
        self._is_away[:] = False
        self.end(done, interrupted=True)
        self._is_away[done] = True

    def _settle(self, boards: NDArray[np.intp]) -> NDArray[np.intp]:
        """Clear all lines, including those of falling gems; return the points of all N boards."""
        points = np.zeros(self.n_agents, np.intp)
        while len(boards):
            gone = lines(self.color[:, :, boards])
            has_lines = gone.any(axis=(0, 1))
            boards, gone = boards[has_lines], gone[:, :, has_lines]
            points[boards] += ((self.special[:, :, boards] + 1) * gone).sum(axis=(0, 1))
            self._refill(boards, gone)
        return points

    def _refill(self, boards: NDArray[np.intp], gone: BoolArray) -> None:
        """Move the gems above those in `gone`, (9, 8, n), down; put new gems on top."""
        column, which = np.nonzero(gone.any(axis=0))
        place = slice(None), column, boards[which]
        color, special = self.color[place], self.special[place]  # (9, columns with gaps)
        gone = gone[:, column, which]
        is_outside = color == NO_GEM
        # Remaining gems come first, then gems that are gone, then cells outside the board.
        order = (gone + 2 * is_outside).argsort(axis=0, kind="stable")
        color = np.take_along_axis(color, order, axis=0)
        special = np.take_along_axis(special, order, axis=0)
        is_new = np.take_along_axis(gone, order, axis=0)
        color[is_new], special[is_new] = self._draw_gems(int(is_new.sum()))
        self.color[place], self.special[place] = color, special

    def _deal(self, boards: NDArray[np.intp]) -> None:
        """Fill boards again, without lines and with at least one move."""
        while len(boards):
            color, special = self.color[:, :, boards], self.special[:, :, boards]
            is_inside = color != NO_GEM
            special[:] = NO_GEM
            color[is_inside], special[is_inside] = self._draw_gems(int(is_inside.sum()))
            self.color[:, :, boards], self.special[:, :, boards] = color, special
            self._settle(boards)
            self.valid[:, boards] = valid_moves(self.color[:, :, boards])
            boards = boards[~self.valid[:, boards].any(axis=0)]

    def _draw_gems(self, n: int) -> tuple[Gems, Gems]:
        """Return the colors and the kinds of n gems."""
        color = self.rng.integers(0, COLORS, n, np.int8)
        special = np.searchsorted(RARITY, self.rng.random(n), side="right").astype(np.int8)
        return color, special

    def scene(self) -> Scene:
        """Return the boards; gems worth 2 points bear a small white ball, those worth 3 a large."""
        n = self.n_agents
        plan = FloorPlan(self, n, (0.0, 0.0), (COLUMNS, ROWS), floor=BOARD_COLOR, top_m=1.0)
        row, column = np.mgrid[:ROWS, :COLUMNS].reshape(2, -1, 1) + 0.5
        cells = np.broadcast_to(np.array([column, row]), (2, ROWS * COLUMNS, n))
        color, special = (gems.reshape(-1, n) for gems in (self.color, self.special))
        gems = hidden(cells, color != NO_GEM)
        plan.ball("gem", gems, 0.42, color=GEM_COLORS[color])
        radius = np.where(special == 1, 0.12, 0.2)
        marks = hidden(cells, special > 0)
        plan.ball("mark", marks, radius, low_m=0.75, color=MARK_COLOR)
        plan.box(
            "board",
            np.tile([[COLUMNS / 2], [-0.3]], n),
            (COLUMNS / 2, 0.2),
            height_m=0.2,
            low_m=-0.2,
            color=EMPTY_COLOR,
            agents=np.arange(n),
        )
        return plan.scene()


class Match3VisualObs(Match3VectorObs):
    """Match-3 for agents that observe the board as images of 9 by 8 pixels.

    Observations, 8-bit: (6, 9, 8), one plane for each color, with the bottom row of the board
    first. A pixel is 255 if the gem has the plane's color, else 0. And (3, 9, 8), one plane for
    each kind of gem.
    A good policy reaches 39.5 on boards of 9 by 8.

    Everything else is as in `Match3VectorObs`.
    """

    behavior_name = "Match3VisualObs?team=0"
    behavior_spec = BehaviorSpec(
        [
            ObservationSpec.image((COLORS, ROWS, COLUMNS), CELLS_SENSOR),
            ObservationSpec.image((SPECIALS, ROWS, COLUMNS), SPECIAL_SENSOR),
        ],
        Match3VectorObs.behavior_spec.action_spec,
    )

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observations that the class describes."""
        return [
            _planes(gems[:, :, agents], size)
            for gems, size in ((self.color, COLORS), (self.special, SPECIALS))
        ]


class Match3SimpleHeuristic(Match3VectorObs):
    """Match-3 played by a rule on two boards: a random move that completes a line.

    Actions are ignored. Everything else is as in `Match3VectorObs`. The rule reaches 34.2 on boards
    of 9 by 8, and 32.4 on boards of varying size. Unity's newest scenes use the rule of
    `Match3SmartHeuristic` under this name, too.
    """

    behavior_name = "Match3SimpleHeuristic?team=0"
    agents_per_area = 2

    def choose(self) -> NDArray[np.intp]:
        """Return random valid moves."""
        return _best(self.valid, self.rng)


class Match3SmartHeuristic(Match3VectorObs):
    """Match-3 played by a rule on two boards: the move with the most immediate points.

    Actions are ignored. Everything else is as in `Match3VectorObs`. The rule reaches 37.0 on boards
    of 9 by 8, and 35.2 on boards of varying size.
    """

    behavior_name = "Match3SmartHeuristic?team=0"
    agents_per_area = 2

    def choose(self) -> NDArray[np.intp]:
        """Return random moves among those with the most points."""
        return _best(move_points(self.color, self.special), self.rng)


def _best(worth: NDArray[Any], rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the row of the greatest whole number in each column of (127, N); ties are random."""
    best: NDArray[np.intp] = (worth + rng.random(worth.shape, np.float32)).argmax(axis=0)
    return best


# The rules.


def lines(color: Gems) -> BoolArray:
    """Return which gems lie in a line of three or more, (9, 8, n)."""
    found = np.zeros(color.shape, np.bool_)
    # Once along the rows, once along the columns.
    for gems, marks in ((color, found), (color.swapaxes(0, 1), found.swapaxes(0, 1))):
        alike = (gems[1:] == gems[:-1]) & (gems[1:] != NO_GEM)
        three = alike[1:] & alike[:-1]
        marks[:-2] |= three
        marks[1:-1] |= three
        marks[2:] |= three
    return found


def valid_moves(color: Gems) -> BoolArray:
    """Return which moves complete a line, (127, n), on boards without any."""
    return _by_number(_completes_line, color)


def move_points(color: Gems, special: Gems) -> Gems:
    """Return the immediate points of each move, (127, n), on boards without a line."""
    return _by_number(_points, color, special)


def _by_number(judge: Callable[..., NDArray[Any]], *gems: Gems) -> NDArray[Any]:
    """Apply `judge` to all swaps along the second axis, then to those along the first."""
    right = judge(*gems)
    up = judge(*(of_one.swapaxes(0, 1) for of_one in gems)).swapaxes(0, 1)
    return np.concatenate([right.reshape(TO_THE_RIGHT, -1), up.reshape(UPWARD, -1)])


class _Arrival(NamedTuple):
    """One property of a swapped gem and of its new neighbors.

    Each array holds all swaps along the second axis, (R, C - 1, n).
    """

    gem: Gems
    ahead: Gems
    second_ahead: Gems
    left: Gems
    second_left: Gems
    right: Gems
    second_right: Gems


def _arrivals(gems: Gems) -> Iterator[_Arrival]:
    """Yield the arrival of the first gem of each swap, and that of the second."""
    rows, columns, n = gems.shape
    padded = np.full((rows + 4, columns + 4, n), NO_GEM, np.int8)
    padded[2:-2, 2:-2] = gems

    def beside(row: int, column: int) -> Gems:
        return padded[2 + row : 2 + row + rows, 2 + column : 1 + column + columns]

    for start, target in ((0, 1), (1, 0)):
        way = target - start
        yield _Arrival(
            beside(0, start),
            *(beside(0, target + way * far) for far in (1, 2)),
            *(beside(far, target) for far in (1, 2)),
            *(beside(-far, target) for far in (1, 2)),
        )


class _Lines(NamedTuple):
    """Lines that a gem completes, and its neighbors that belong to the line across."""

    straight: BoolArray
    across: BoolArray
    left: BoolArray
    second_left: BoolArray
    right: BoolArray
    second_right: BoolArray


def _lines_of(color: _Arrival) -> _Lines:
    # On a board without lines, at most two gems on each side have the same color.
    gem = color.gem
    is_gem = gem != NO_GEM
    left, right = gem == color.left, gem == color.right
    second_left = left & (gem == color.second_left)
    second_right = right & (gem == color.second_right)
    return _Lines(
        is_gem & (gem == color.ahead) & (gem == color.second_ahead),
        is_gem & ((left & right) | second_left | second_right),
        left,
        second_left,
        right,
        second_right,
    )


def _completes_line(color: Gems) -> BoolArray:
    first, second = (_lines_of(arrival) for arrival in _arrivals(color))
    return first.straight | first.across | second.straight | second.across


def _points(color: Gems, special: Gems) -> Gems:
    one, other = (
        _points_of(_lines_of(arrival), worth)
        for arrival, worth in zip(_arrivals(color), _arrivals(special + np.int8(1)), strict=True)
    )
    return one + other


def _points_of(lines: _Lines, worth: _Arrival) -> Gems:
    """Return the points of a gem and its lines; 0 if it completes no line."""
    sides = (
        lines.left * worth.left
        + lines.second_left * worth.second_left
        + lines.right * worth.right
        + lines.second_right * worth.second_right
    )
    points: Gems = (
        (lines.straight | lines.across) * worth.gem
        + lines.straight * (worth.ahead + worth.second_ahead)
        + lines.across * sides
    )
    return points


# Observations and pictures.


def _one_hot(gems: Gems, size: int) -> NDArray[np.float32]:
    """Return one-hot gems, (n, 72 * size)."""
    rows = np.vstack([np.eye(size, dtype=np.float32), np.zeros(size, np.float32)])
    by_board = gems.reshape(ROWS * COLUMNS, -1).T
    return rows[by_board].reshape(len(by_board), -1)  # no gem, -1, is the last row


def _planes(gems: Gems, size: int) -> NDArray[np.uint8]:
    """Return one plane for each property value, (n, size, 9, 8)."""
    has_it = gems.transpose(2, 0, 1)[:, None] == np.arange(size, dtype=np.int8)[:, None, None]
    return np.where(has_it, np.uint8(255), np.uint8(0))


BOARD_COLOR, EMPTY_COLOR = (44, 50, 62), (24, 27, 34)
GEM_COLORS = np.array(
    [(229, 78, 72), (72, 168, 92), (70, 130, 224), (242, 196, 62), (168, 96, 204), (240, 140, 60)]
)
MARK_COLOR = (250, 250, 250)
