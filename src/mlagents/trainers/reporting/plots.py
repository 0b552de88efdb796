"""`CurveWriter`: draws `training.png`, the rewards of all behaviors over their steps.

The points are stored in `run_logs/rewards.csv`, so a resumed run continues its curves.
"""

import csv
import io
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mlagents.trainers.reporting.stats import (
    CUMULATIVE_REWARD,
    GROUP_CUMULATIVE_REWARD,
    StatsSummary,
    StatsWriter,
)
from mlagents.trainers.run.folder import RunFolder
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger
from mlagents_envs.programs import install_command

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

logger = get_logger(__name__)

DRAW_PERIOD_S = 20.0
"""Shortest time between two drawings, in seconds."""
DRAW_SHARE = 0.01
"""Largest fraction of a run's time to spend on drawing."""


OF_GROUPS = ", groups"
"""Suffix of a behavior's name that names the curve of its group rewards."""


class Point(NamedTuple):
    """A point of a curve: the rewards of one summary.

    Attributes:
        step: Step count of the behavior.
        mean: Mean reward of the episodes that ended since the previous summary.
        std: Standard deviation of these rewards.
    """

    step: int
    mean: float
    std: float


Curves = Mapping[str, Sequence[Point]]
"""Points of each behavior, in the order of their steps."""


class CurveWriter(StatsWriter):
    """Writes the rewards of a run to a file, and draws them periodically and at the end.

    If writing fails, the error is logged once, and the next summary tries again. Without Pillow,
    nothing is drawn.

    Args:
        folder: Folder of the run.
        resume: Whether to continue the existing curves.
    """

    def __init__(self, folder: RunFolder, *, resume: bool = False) -> None:
        self._data = folder.logs / "rewards.csv"
        self._image = folder.path / "training.png"
        self._title = folder.path.name
        self._curves: dict[str, list[Point]] = {}
        self._is_whole = False
        """Whether the file contains all points so far, so that points can be appended."""
        self._is_failing = False
        self._can_draw = True
        self._has_news = False
        self._next_draw_s = 0.0
        if resume:
            self._read()

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Add points to the curves of a behavior and its groups, if episodes have ended."""
        for key, curve in (
            (CUMULATIVE_REWARD, category),
            (GROUP_CUMULATIVE_REWARD, f"{category}{OF_GROUPS}"),
        ):
            if key in values and math.isfinite(values[key].mean):
                self._write(curve, Point(step, values[key].mean, values[key].std))

    def _write(self, curve: str, point: Point) -> None:
        self._add(curve, point)
        self._has_news = True
        try:
            if self._is_whole:
                with self._data.open("a", encoding="utf-8", newline="") as file:
                    csv.writer(file).writerow([curve, *point])
            else:
                write_atomically(self._data, _table(self._curves).encode())
                self._is_whole = True
            if time.monotonic() >= self._next_draw_s:
                self._draw()
            self._is_failing = False
        except OSError as error:
            self._report(error)

    def close(self) -> None:
        """Draw the points added since the last drawing."""
        try:
            if self._has_news:
                self._draw()
        except OSError as error:
            self._report(error)

    def _add(self, behavior: str, point: Point) -> None:
        curve = self._curves.setdefault(behavior, [])
        # Steps after the resumed checkpoint are repeated, so their old points are dropped.
        while curve and curve[-1].step >= point.step:
            curve.pop()
        curve.append(point)

    def _read(self) -> None:
        try:
            text = self._data.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            self._report(error)
            return
        for row in csv.reader(text.splitlines()[1:]):
            try:
                behavior, step, mean, std = row
                self._add(behavior, Point(int(step), float(mean), float(std)))
            except ValueError:
                continue  # a line that was being written when the run was killed

    def _draw(self) -> None:
        if not self._can_draw:
            return
        started_s = time.monotonic()
        try:
            image = draw_curves(self._curves, title=self._title)
        except ImportError:
            logger.info(f"To draw training.png, install Pillow: {install_command('images')}")
            self._can_draw = False
            return
        write_atomically(self._image, image)
        self._has_news = False
        ended_s = time.monotonic()
        self._next_draw_s = ended_s + max(DRAW_PERIOD_S, (ended_s - started_s) / DRAW_SHARE)

    def _report(self, error: OSError) -> None:
        self._is_whole = False
        if not self._is_failing:
            logger.warning(
                f"Cannot write the reward curve: {error}. The run continues and tries again at "
                "the next summary."
            )
        self._is_failing = True


def _table(curves: Curves) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["behavior", *Point._fields])
    writer.writerows([name, *point] for name, curve in curves.items() for point in curve)
    return text.getvalue()


# Drawing

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 80, 40, 46
TITLE_HEIGHT = 36
SCALE = 2
"""Factor by which the drawing is larger than the image, to smooth edges when it is scaled down."""
MAX_POINTS = 600
"""Largest number of points in a panel. More points could not be distinguished."""

INK, GRAY, LINE, BAND = "#222222", "#dddddd", "#1f6fb4", "#c9dff0"


def draw_curves(curves: Curves, *, title: str) -> bytes:
    """Return a PNG with a panel per behavior.

    Raises:
        ImportError: Pillow is missing, or lacks fonts.
    """
    from PIL import Image, ImageDraw, ImageFont

    n_columns = math.ceil(math.sqrt(len(curves))) or 1
    n_rows = math.ceil(len(curves) / n_columns)
    size = (n_columns * WIDTH, TITLE_HEIGHT + n_rows * HEIGHT)
    image = Image.new("RGB", (size[0] * SCALE, size[1] * SCALE), "white")
    draw = ImageDraw.Draw(image)
    fonts = [ImageFont.load_default(height * SCALE) for height in (13, 16)]
    small, large = (font for font in fonts if isinstance(font, ImageFont.FreeTypeFont))
    center = (size[0] * SCALE / 2, TITLE_HEIGHT * SCALE / 2)
    draw.text(center, f"Run {title}", INK, large, anchor="mm")
    for number, (name, curve) in enumerate(curves.items()):
        row, column = divmod(number, n_columns)
        corner = (column * WIDTH, TITLE_HEIGHT + row * HEIGHT)
        shown = curve[:: -(len(curve) // MAX_POINTS + 1)][::-1]  # always with the last point
        _draw_panel(draw, small, name, shown, corner)
    png = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(png, "PNG")
    return png.getvalue()


def _draw_panel(
    draw: "ImageDraw",
    font: "FreeTypeFont",
    name: str,
    curve: Sequence[Point],
    corner: tuple[int, int],
) -> None:
    """Draw a panel with a curve and its axes; `corner` is the upper left corner of the panel."""
    x_ticks = ticks(0, curve[-1].step)
    y_ticks = ticks(min(p.mean - p.std for p in curve), max(p.mean + p.std for p in curve))
    left, right = corner[0] + LEFT, corner[0] + WIDTH - RIGHT
    top, bottom = corner[1] + TOP, corner[1] + HEIGHT - BOTTOM

    def at(step: float, reward: float) -> tuple[float, float]:
        x = (step - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        y = (reward - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return (left + x * (right - left)) * SCALE, (bottom - y * (bottom - top)) * SCALE

    def text(x: float, y: float, says: str, anchor: str) -> None:
        draw.text((x * SCALE, y * SCALE), says, INK, font, anchor=anchor)

    for reward in y_ticks:
        draw.line([at(x_ticks[0], reward), at(x_ticks[-1], reward)], GRAY, SCALE)
        text(left - 6, at(0, reward)[1] / SCALE, f"{reward:,.10g}", "rm")
    for step in x_ticks:
        draw.line([at(step, y_ticks[0]), at(step, y_ticks[-1])], GRAY, SCALE)
        text(at(step, 0)[0] / SCALE, bottom + 6, steps_in_short(step), "ma")
    text((left + right) / 2, corner[1] + 12, name, "ma")
    text(
        (left + right) / 2,
        bottom + 24,
        "steps; mean reward and standard deviation of episodes",
        "ma",
    )

    above = [at(p.step, p.mean + p.std) for p in curve]
    below = [at(p.step, p.mean - p.std) for p in reversed(curve)]
    points = [at(p.step, p.mean) for p in curve]
    if len(curve) > 1:
        draw.polygon(above + below, BAND)
        draw.line(points, LINE, 2 * SCALE, joint="curve")
    x, y = points[-1]
    draw.ellipse([x - 3 * SCALE, y - 3 * SCALE, x + 3 * SCALE, y + 3 * SCALE], LINE)
    text(x / SCALE + 6, y / SCALE, f"{curve[-1].mean:.4g}", "lm")


def ticks(low: float, high: float) -> list[float]:
    """Return a few evenly spaced round numbers that cover the range from `low` to `high`."""
    size = max(abs(low), abs(high))
    if high - low <= 1e-6 * size:  # almost equal: add a margin
        margin = size / 2 or 0.5
        low, high = low - margin, high + margin
    spread = high - low
    unit = 10.0 ** math.floor(math.log10(spread / 4))
    distance = next(unit * factor for factor in (1, 2, 5, 10) if spread / (unit * factor) <= 5)
    first, last = math.floor(low / distance), math.ceil(high / distance)
    return [number * distance for number in range(first, last + 1)]


def steps_in_short(steps: float) -> str:
    """Return a number of steps in short form, such as `250k` or `1.5M`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if steps >= size:
            return f"{steps / size:.6g}{unit}"
    return f"{steps:.6g}"
