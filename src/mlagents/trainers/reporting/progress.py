"""`ProgressTable`: shows the progress of each behavior at the bottom of the terminal.

Log lines appear above the table. If the output is not a terminal, nothing is drawn; the summary
lines of the log have the same content.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mlagents.trainers.reporting.stats import (
    CUMULATIVE_REWARD,
    EPISODE_LENGTH,
    GROUP_CUMULATIVE_REWARD,
    StatsSummary,
    StatsWriter,
)
from mlagents.trainers.settings.behavior import BehaviorSettings

REFRESH_S = 1.0
"""Refresh period. Training stops for some milliseconds while the table is drawn."""
SPEED_PERIOD_S = 60.0
"""Period over which speed is averaged, because an update may stop the steps for seconds."""

NAME_WIDTH = 24
BAR_WIDTH = 10
GAP = 2


class Shown(Protocol):
    """Properties of a trainer that the table shows."""

    name: str
    settings: BehaviorSettings
    has_learned: bool

    @property
    def step(self) -> int:
        """Step count of the behavior."""

    @property
    def mean_reward(self) -> float | None:
        """Mean return of the last episodes, or None before the first one has ended."""

    @property
    def mean_group_reward(self) -> float | None:
        """Mean return of the last groups, or None before the first one has ended."""


class Row(NamedTuple):
    """Row of the table: one behavior.

    Attributes:
        name: Name of the behavior.
        step: Step count of the behavior.
        max_steps: Step count at which training ends; None if the behavior acts until interrupted.
        steps_per_s: Steps per second; 0 if not yet known.
        reward: Mean return of the last 100 episodes; None before the first one has ended.
        change: Difference between the mean rewards of the last two summaries; group rewards if
            there are any.
        episode_length: Mean number of steps in an episode, in the last summary.
        has_learned: Whether training ended before `max_steps`.
        group_reward: Mean return of the last 100 groups; None before the first one has ended.
    """

    name: str
    step: int
    max_steps: int | None
    steps_per_s: float = 0.0
    reward: float | None = None
    change: float | None = None
    episode_length: float | None = None
    has_learned: bool = False
    group_reward: float | None = None


class Column(NamedTuple):
    """One column of the table.

    Attributes:
        header: Header of the column.
        cell: Function that returns the cell of a row. The cell is not a string, because rich would
            parse a string as markup.
        rank: If the terminal is too narrow, columns of the highest rank are removed first.
        justify: Alignment of the cells.
    """

    header: str
    cell: Callable[[Row], Text | ProgressBar]
    rank: int
    justify: Literal["left", "right"] = "right"


def _name(row: Row) -> Text:
    name = Text(row.name)
    name.truncate(NAME_WIDTH, overflow="ellipsis")
    return name


def _bar(row: Row) -> Text | ProgressBar:
    return Text() if row.max_steps is None else ProgressBar(row.max_steps, row.step, BAR_WIDTH)


def _steps(row: Row) -> Text:
    return Text(f"{row.step:,}" if row.max_steps is None else f"{row.step:,} of {row.max_steps:,}")


def _speed(row: Row) -> Text:
    return Text(f"{row.steps_per_s:,.0f}" if row.steps_per_s else "")


def _reward(row: Row) -> Text:
    return Text("" if row.reward is None else f"{row.reward:.3f}")


def _group_reward(row: Row) -> Text:
    return Text("" if row.group_reward is None else f"{row.group_reward:.3f}")


def _change(row: Row) -> Text:
    if row.change is None:
        return Text()
    return Text(f"{row.change:+.3f}", style="green" if row.change >= 0 else "red")


def _length(row: Row) -> Text:
    return Text("" if row.episode_length is None else f"{row.episode_length:.0f}")


def _time_left(row: Row) -> Text:
    if row.max_steps is None:
        return Text("no end")
    if row.has_learned or row.step >= row.max_steps:
        return Text("done")
    return Text(hours((row.max_steps - row.step) / row.steps_per_s) if row.steps_per_s else "?")


COLUMNS = [
    Column("behavior", _name, 0, "left"),
    Column("", _bar, 6, "left"),
    Column("steps", _steps, 3),
    Column("steps/s", _speed, 4),
    Column("reward (last 100)", _reward, 1),
    Column("group reward", _group_reward, 1),
    Column("change", _change, 5),
    Column("length", _length, 7),
    Column("left", _time_left, 2),
]


def hours(seconds: float) -> str:
    """Return a time as `h:mm:ss`, or `m:ss` below an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    whole_hours, minutes = divmod(minutes, 60)
    return f"{whole_hours}:{minutes:02}:{seconds:02}" if whole_hours else f"{minutes}:{seconds:02}"


def progress_table(rows: Sequence[Row], *, lessons: str = "", width: int) -> RenderableType:
    """Return the table of `rows`, with as many columns as fit into `width` characters.

    Args:
        rows: Rows of all behaviors.
        lessons: Description of the current lessons.
        width: Width of the terminal in characters.
    """
    columns = list(COLUMNS)
    if all(row.group_reward is None for row in rows):
        columns = [column for column in columns if column.cell is not _group_reward]
    while len(columns) > 1 and _width(columns, rows) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.header, justify=column.justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns))
    if not lessons:
        return table
    return Group(table, Text(f"lessons: {lessons}", no_wrap=True, overflow="ellipsis"))


def _width(columns: Sequence[Column], rows: Sequence[Row]) -> int:
    widths = [
        max([len(column.header), *(_cell_width(column.cell(row)) for row in rows)])
        for column in columns
    ]
    return sum(widths) + GAP * (len(widths) - 1)


def _cell_width(cell: Text | ProgressBar) -> int:
    return cell.cell_len if isinstance(cell, Text) else BAR_WIDTH


@dataclass
class _History:
    """History of a behavior, from which the table computes its row."""

    moments: deque[tuple[float, int]] = field(default_factory=deque)
    """Time in seconds and step count at each refresh of the last minute."""
    rewards: deque[float] = field(default_factory=lambda: deque(maxlen=2))
    """Mean rewards of the last two summaries that contained one."""
    episode_length: float | None = None

    def steps_per_s(self, now_s: float, step: int) -> float:
        """Add the current step count; return the speed."""
        self.moments.append((now_s, step))
        while now_s - self.moments[0][0] > SPEED_PERIOD_S:
            self.moments.popleft()
        then_s, before = self.moments[0]
        return (step - before) / (now_s - then_s) if now_s > then_s else 0.0


class ProgressTable(StatsWriter):
    """Context manager that shows the table, with one row per behavior.

    As a statistics writer, it receives episode lengths and rewards.

    Args:
        lessons: Function that returns a description of the current lessons.
        endless: Whether the behaviors only act, until interrupted.
        console: Console to draw on.
    """

    def __init__(
        self,
        *,
        lessons: Callable[[], str] = lambda: "",
        endless: bool = False,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console()
        self._lessons = lessons
        self._endless = endless
        self._live: Live | None = None
        self._histories: dict[str, _History] = {}
        self._next_update_s = 0.0

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Store the statistics that the behavior's row shows."""
        history = self._histories.setdefault(category, _History())
        key = GROUP_CUMULATIVE_REWARD if GROUP_CUMULATIVE_REWARD in values else CUMULATIVE_REWARD
        if key in values:
            history.rewards.append(values[key].mean)
        if EPISODE_LENGTH in values:
            history.episode_length = values[EPISODE_LENGTH].mean

    def update(self, trainers: Iterable[Shown]) -> None:
        """Redraw the table, unless the last update was very recent."""
        now_s = time.monotonic()
        if self._live is None or now_s < self._next_update_s:
            return
        self._next_update_s = now_s + REFRESH_S
        rows = [self._row(trainer, now_s) for trainer in trainers]
        table = progress_table(rows, lessons=self._lessons(), width=self._console.width)
        # The cursor is in the empty line, so the terminal does not echo keys into the table.
        self._live.update(Group(table, Text()), refresh=True)

    def _row(self, trainer: Shown, now_s: float) -> Row:
        history = self._histories.setdefault(trainer.name, _History())
        return Row(
            trainer.name,
            trainer.step,
            None if self._endless else trainer.settings.max_steps,
            steps_per_s=history.steps_per_s(now_s, trainer.step),
            reward=trainer.mean_reward,
            change=history.rewards[1] - history.rewards[0] if len(history.rewards) == 2 else None,
            episode_length=history.episode_length,
            has_learned=trainer.has_learned,
            group_reward=trainer.mean_group_reward,
        )

    def __enter__(self) -> Self:
        # Some CI systems force colors, so rich mistakes a log file for a terminal.
        if self._console.is_interactive and self._console.file.isatty():
            # Only `update` draws, because a refresh thread could read trainers during a step.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_shown(self) -> bool:
        """Whether the table is shown: the context is entered and the output is a terminal."""
        return self._live is not None

    def close(self) -> None:
        """Remove the table from the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
