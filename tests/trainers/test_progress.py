"""The table at the foot of the terminal."""

import io
import logging
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from mlagents.trainers.reporting import progress
from mlagents.trainers.reporting.progress import ProgressTable, Row, hours, progress_table
from mlagents.trainers.reporting.stats import CUMULATIVE_REWARD, EPISODE_LENGTH, StatsReporter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.logging_util import get_logger

BALL = Row("3DBall", 125_000, 500_000, 2_500.0, 12.3456, 1.25, 250.4)
WALL = Row("[b]Wall", 500_000, 500_000, reward=-1.0, change=-0.5)


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rich move the cursor, which it does not do on a terminal that calls itself dumb."""
    monkeypatch.setenv("TERM", "xterm")


def lines(*rows: Row, width: int, lessons: str = "") -> list[str]:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    with console.capture() as capture:
        console.print(progress_table(rows, lessons=lessons, width=width))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (90061, "25:01:01")]
)
def test_hours(seconds: float, text: str) -> None:
    assert hours(seconds) == text


def test_a_wide_terminal_shows_everything() -> None:
    header, ball, wall, footer = lines(BALL, WALL, width=120, lessons="wall 1 of 3 (low)")
    columns = "behavior steps steps/s reward (last 100) change length left"
    assert header.split() == columns.split()
    assert ball.startswith("3DBall    ━━╸")
    # (500,000 - 125,000) steps at 2,500 a second are 150 seconds.
    assert ball.split()[2:] == "125,000 of 500,000 2,500 12.346 +1.250 250 2:30".split()
    assert wall.startswith("[b]Wall   ━━━━━━━━━━ "), "a name is no markup"
    assert wall.split()[2:] == "500,000 of 500,000 -1.000 -0.500 done".split()
    assert footer == "lessons: wall 1 of 3 (low)"


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (77, "behavior steps steps/s reward (last 100) change left"),
        (60, "behavior steps reward (last 100) left"),
        (50, "behavior reward (last 100) left"),
        (30, "behavior reward (last 100)"),
        (20, "behavior"),
    ],
)
def test_a_narrow_terminal_shows_what_matters_most(width: int, columns: str) -> None:
    shown = lines(BALL, WALL, width=width, lessons="wall 1 of 3 (a lesson with a long name)" * 3)
    assert shown[0].split() == columns.split()
    assert len(shown) == 4 and max(map(len, shown)) <= width


def test_a_long_name_is_cut_not_wrapped() -> None:
    shown = lines(BALL._replace(name="Behavior" * 20), width=50)
    assert shown == [
        "behavior                  reward (last 100)  left",
        "BehaviorBehaviorBehavio…             12.346  2:30",
    ]


def test_no_rows_are_no_error() -> None:
    assert "behavior" in lines(width=60)[0]


def test_what_is_not_known_yet_is_left_open() -> None:
    assert lines(Row("A", 0, 100), width=100)[1].split()[1:] == "0 of 100 ?".split()


def test_what_only_acts_has_no_end(clock: SimpleNamespace) -> None:
    acting = Row("A", 1050, None, 10.0)
    assert lines(acting, width=100)[1].split()[1:] == "1,050 10 no end".split()
    console = terminal()
    with ProgressTable(endless=True, console=console) as table:
        table.update([Trainer()])
    assert "no end" in drawn(console)


def test_the_reward_of_groups_has_a_column_if_there_are_groups() -> None:
    alone, together = Row("A", 1, 10, reward=0.5), Row("B", 1, 10, reward=0.0, group_reward=7.25)
    assert "group reward" not in "".join(lines(alone, width=120))
    found = lines(together, width=120)
    assert "group reward" in found[0]
    assert "7.250" in found[1]


class Trainer:
    """What the table reads of a trainer."""

    name = "Ball"
    settings = BehaviorSettings(max_steps=1000)
    mean_reward = 3.25
    mean_group_reward = None
    has_learned = False

    def __init__(self) -> None:
        self.step = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time the table goes by."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal() -> Console:
    return Console(file=Terminal(), width=100, force_terminal=True, legacy_windows=False)


def drawn(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    console.file.truncate(0)
    console.file.seek(0)
    return text


def test_the_table_follows_the_trainer_and_its_summaries(clock: SimpleNamespace) -> None:
    console, trainer = terminal(), Trainer()
    with ProgressTable(lessons=lambda: "wall 1 of 2 (low)", console=console) as table:
        stats = StatsReporter("Ball", [table])
        for step, reward in ((100, 1.0), (200, 1.5)):
            stats.add_stats(CUMULATIVE_REWARD, np.array([reward]))
            stats.add_stats(EPISODE_LENGTH, np.array([7.0]))
            stats.write_stats(step)
        stats.write_stats(300)  # no episode ended: the change is still that of the last two
        table.update([trainer])
        clock.s, trainer.step = 110.0, 400
        drawn(console)
        table.update([trainer])
        text = drawn(console)
        # 400 steps in 10 seconds, and 600 to go.
        assert "400 of 1,000" in text and " 40 " in text and "0:15" in text
        assert "3.250" in text and "+0.500" in text and " 7 " in text
        assert "lessons: wall 1 of 2 (low)" in text
        table.update([trainer])
        assert drawn(console) == "", "it is drawn once a second at most"


def test_the_speed_is_that_of_the_last_minute(clock: SimpleNamespace) -> None:
    console, trainer = terminal(), Trainer()
    with ProgressTable(console=console) as table:
        for clock.s, trainer.step in ((0.0, 0), (50.0, 900), (70.0, 920), (110.0, 950)):
            drawn(console)
            table.update([trainer])
    # From (50 s, 900) to (110 s, 950): 50 steps in 60 s, so 50 more take a minute.
    assert "1:00" in drawn(console)


def test_log_lines_appear_above_the_table_and_stay(clock: SimpleNamespace) -> None:
    console, trainer = terminal(), Trainer()
    logger = get_logger("mlagents.test_progress")
    with ProgressTable(console=console) as table:
        table.update([trainer])
        drawn(console)
        logger.log(logging.INFO, "Ball. [bold]Step: 12000[/bold]. Training.")
        text = drawn(console)
    before, _, after = text.partition("[INFO] Ball. [bold]Step: 12000[/bold]. Training.\n")
    assert "\x1b[2K" in before, "the table is removed"
    assert "0 of 1,000" in after, "and drawn again below"
    assert drawn(console).endswith("\x1b[2K"), "at the end nothing of it is left"


@pytest.mark.parametrize("forces_colors", [True, False])
def test_nothing_is_drawn_where_there_is_no_terminal(forces_colors: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=forces_colors)
    with ProgressTable(console=console) as table:
        table.update([Trainer()])
    assert drawn(console) == ""
