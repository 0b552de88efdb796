"""The picture of the rewards, and the file that lets a resumed run go on with it."""

import csv
import io
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mlagents.trainers.reporting import plots
from mlagents.trainers.reporting.plots import CurveWriter, Point, draw_curves, steps_in_short, ticks
from mlagents.trainers.reporting.stats import (
    CUMULATIVE_REWARD,
    GROUP_CUMULATIVE_REWARD,
    StatsReporter,
)
from mlagents.trainers.run.folder import RunFolder

LINE = (0x1F, 0x6F, 0xB4)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "first")


def write(writer: CurveWriter, *points: tuple[int, float], behavior: str = "Ball") -> None:
    stats = StatsReporter(behavior, [writer])
    for step, reward in points:
        stats.add_stats(CUMULATIVE_REWARD, np.array([reward - 1, reward + 1]))
        stats.write_stats(step)


def rows(folder: RunFolder) -> list[list[str]]:
    with (folder.logs / "rewards.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def picture(folder: RunFolder) -> Image.Image:
    return Image.open(folder.path / "training.png").convert("RGB")


def test_the_points_of_all_behaviors_are_kept(folder: RunFolder) -> None:
    writer = CurveWriter(folder)
    write(writer, (10, 2.0), (20, 3.5))
    write(writer, (10, -1.0), behavior='Wall, "big"')
    writer.write_stats("Idle", {}, 10)  # no episode ended
    # The two returns of each summary lie 1 above and 1 below the mean.
    assert rows(folder) == [
        ["behavior", "step", "mean", "std"],
        ["Ball", "10", "2.0", "1.0"],
        ["Ball", "20", "3.5", "1.0"],
        ['Wall, "big"', "10", "-1.0", "1.0"],
    ]


def test_groups_have_a_curve_of_their_own(folder: RunFolder) -> None:
    writer = CurveWriter(folder)
    stats = StatsReporter("Ball", [writer])
    stats.add_stats(CUMULATIVE_REWARD, [0.0])
    stats.add_stats(GROUP_CUMULATIVE_REWARD, [4.0, 6.0])
    stats.write_stats(10)
    writer.close()
    assert rows(folder)[1:] == [
        ["Ball", "10", "0.0", "0.0"],
        ["Ball, groups", "10", "5.0", "1.0"],
    ]
    assert picture(folder).width == 2 * plots.WIDTH


def test_it_draws_at_once_and_at_the_end_but_seldom_between(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    draw = plots.draw_curves
    monkeypatch.setattr(
        plots, "draw_curves", lambda *a, **k: drawn.append(len(a[0]["Ball"])) or draw(*a, **k)
    )
    writer = CurveWriter(folder)
    write(writer, (10, 1.0), (20, 2.0), (30, 3.0))
    writer.close()
    writer.close()
    assert drawn == [1, 3], "and not again when nothing is new"


def test_a_resumed_run_goes_on_and_replaces_what_the_killed_one_wrote_after_its_checkpoint(
    folder: RunFolder,
) -> None:
    write(CurveWriter(folder), (10, 1.0), (20, 2.0), (30, 3.0))
    path = folder.logs / "rewards.csv"
    path.write_bytes(path.read_bytes() + b"Ball,4")  # killed while it wrote a line
    resumed = CurveWriter(folder, resume=True)
    write(resumed, (20, 2.5))
    write(resumed, (30, 3.5))
    assert [row[1:3] for row in rows(folder)[1:]] == [["10", "1.0"], ["20", "2.5"], ["30", "3.5"]]


def test_a_new_run_begins_anew(folder: RunFolder) -> None:
    write(CurveWriter(folder), (10, 1.0))
    write(CurveWriter(folder), (20, 2.0))
    assert [row[1] for row in rows(folder)[1:]] == ["20"]
    CurveWriter(RunFolder(folder.path / "none"), resume=True)  # nothing there is no error


def test_values_that_are_no_numbers_are_left_out(folder: RunFolder) -> None:
    write(CurveWriter(folder), (10, 1.0), (20, float("nan")), (30, float("inf")), (40, 2.0))
    assert [row[1] for row in rows(folder)[1:]] == ["10", "40"]


def test_a_disk_that_refuses_is_said_once_and_tried_again(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.path.parent.mkdir(exist_ok=True)
    folder.path.write_text("a file where the folder should be")
    writer = CurveWriter(folder)
    write(writer, (10, 1.0), (20, 2.0))
    writer.close()
    assert capsys.readouterr().out.count("Cannot write the reward curve") == 1
    folder.path.unlink()
    write(writer, (30, 3.0))
    writer.close()
    assert [row[1] for row in rows(folder)[1:]] == ["10", "20", "30"], "nothing is lost"
    assert picture(folder)


def test_without_pillow_a_run_says_so_once(
    folder: RunFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    writer = CurveWriter(folder)
    write(writer, (10, 1.0), (20, 2.0))
    writer.close()
    assert capsys.readouterr().out.count("pip install 'pillow>=") == 1
    assert len(rows(folder)) == 3
    assert not (folder.path / "training.png").exists()


# --- the picture


def test_the_line_runs_where_the_rewards_are() -> None:
    # Rewards from 0 to 4 at steps 0 to 4, ticks 0 to 4 on both axes: the diagonal of the panel,
    # x from 70 to 560, y from 36 + 320 - 46 = 310 up to 36 + 40 = 76.
    png = draw_curves({"Ball": [Point(step, float(step), 0.0) for step in range(5)]}, title="first")
    image = Image.open(io.BytesIO(png)).convert("RGB")
    assert image.size == (640, 356)
    for share in (0.25, 0.5, 0.75):
        x, y = 70 + share * 490, 310 - share * 234
        for dx, dy in ((0, 0), (40, 0), (-40, 0)):
            pixel = image.getpixel((round(x) + dx, round(y) + dy))
            assert isinstance(pixel, tuple)
            is_line = max(abs(a - b) for a, b in zip(pixel, LINE, strict=True)) < 60
            assert is_line == (dx == 0)


@pytest.mark.parametrize(("n", "size"), [(1, (640, 356)), (2, (1280, 356)), (3, (1280, 676))])
def test_there_is_a_panel_per_behavior(n: int, size: tuple[int, int]) -> None:
    curves = {f"Behavior{i}": [Point(i, 1.0, 0.5)] for i in range(n)}
    assert Image.open(io.BytesIO(draw_curves(curves, title="first"))).size == size


def test_many_points_are_thinned_to_the_last() -> None:
    many = [Point(step, float(step), 1.0) for step in range(1, 5001)]
    few = draw_curves({"Ball": many[::-9][::-1]}, title="first")
    assert draw_curves({"Ball": many}, title="first") == few


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500_000, [0, 100_000, 200_000, 300_000, 400_000, 500_000]),
        (-1.3, 99, [-50, 0, 50, 100]),
        (0, 0, [-0.6, -0.4, -0.2, 0, 0.2, 0.4, 0.6]),
        (4, 4, [2, 3, 4, 5, 6]),
    ],
)
def test_ticks_by_hand(low: float, high: float, expected: list[float]) -> None:
    np.testing.assert_allclose(ticks(low, high), expected, atol=1e-12)


NUMBERS = st.floats(-3e38, 3e38)


@given(NUMBERS, NUMBERS)
def test_ticks_enclose_the_data_and_ascend(one: float, other: float) -> None:
    low, high = sorted([one, other])
    found = ticks(low, high)
    slack = 1e-9 * max(abs(low), abs(high))
    assert 2 <= len(found) <= 8
    assert found[0] <= low + slack and found[-1] >= high - slack
    assert all(b > a for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("steps", "text"), [(0, "0"), (999, "999"), (2500, "2.5k"), (500_000, "500k"), (1.5e6, "1.5M")]
)
def test_steps_in_short(steps: float, text: str) -> None:
    assert steps_in_short(steps) == text
