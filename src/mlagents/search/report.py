"""The report of a search: one HTML file with drawings, which needs no network and no script."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from mlagents.search.search import Plan, values_in_words
from mlagents.search.study import Result
from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.search import Choices, Range
from mlagents_envs.atomic_file import write_atomically

REPORT = "search.html"

_WIDTH, _HEIGHT, _MARGIN = 640, 260, 46
_GOOD, _PRUNED, _OTHER = "#c2410c", "#c9ccd1", "#3b6ea5"
_MOST_ROWS = 200

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; color: #222; }
h1 { font-size: 1.6em } h2 { font-size: 1.15em; margin-top: 2em }
table { border-collapse: collapse } td, th { padding: .15em .8em; text-align: right }
tr:nth-child(even) { background: #f4f5f7 } th { border-bottom: 1px solid #999 }
svg { background: #fff; border: 1px solid #ddd }
text { font: 11px system-ui, sans-serif; fill: #555 }
.slices { display: flex; flex-wrap: wrap; gap: 1em }
"""


def write_report(
    plan: Plan,
    results: Sequence[Result],
    importances: Mapping[str, float],
    confirmed: Sequence[float],
) -> Path:
    """Write the report of a search into its folder; return its path.

    Args:
        plan: What was searched.
        results: Trials that have ended.
        importances: Share of each setting in the differences of results.
        confirmed: Values of the best settings with fresh seeds.
    """
    ranked = sorted(results, key=lambda result: _rank(plan, result))
    parts = [
        f"<h1>{escape(plan.folder.name)}</h1>",
        _summary(plan, ranked, confirmed),
        "<h2>Curves</h2>",
        f"<p>{escape(plan.settings.measure.tag)} by step. Gray runs were ended early; the best is "
        "orange.</p>",
        _curves(plan, ranked),
    ]
    complete = [result for result in ranked if result.value is not None]
    if len(complete) > 1:
        parts += [
            "<h2>Settings together</h2>",
            "<p>A line is a trial. Orange lines are the best tenth.</p>",
            _parallel(plan, complete),
            "<h2>Settings one by one</h2>",
            '<div class="slices">',
            *(_slice(plan, path, complete) for path in plan.settings.space),
            "</div>",
        ]
    if importances:
        parts += [
            "<h2>Importance</h2>",
            "<p>Share of each setting in the differences between trials.</p>",
            _bars(importances),
        ]
    parts += ["<h2>Trials</h2>", _table(plan, ranked)]
    title = escape(f"Search {plan.folder.name}")
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style>{''.join(parts)}</html>"
    )
    file = plan.folder / REPORT
    write_atomically(file, page.encode())
    return file


def _rank(plan: Plan, result: Result) -> tuple[bool, float]:
    sign = -1.0 if plan.settings.measure.direction == "maximize" else 1.0
    return result.value is None, sign * (result.value or 0.0)


def _summary(plan: Plan, ranked: Sequence[Result], confirmed: Sequence[float]) -> str:
    n_pruned = sum(result.was_pruned for result in ranked)
    n_failed = sum(not result.has_counted for result in ranked)
    says = [f"{len(ranked)} trials, of which {n_pruned} were ended early and {n_failed} failed."]
    if ranked and ranked[0].value is not None:
        best = ranked[0]
        says.append(
            f"Best: <b>{escape(values_in_words(best.trial.values))}</b> (trial "
            f"{best.trial.number}), {plan.in_words(best.value)} in the search."
        )
        if confirmed:
            mean, deviation = float(np.mean(confirmed)), float(np.std(confirmed))
            says.append(
                f"With fresh seeds: <b>{plan.in_words(mean)}</b> ± {deviation:.3g} in "
                f"{len(confirmed)} runs. This is the figure to rely on: the value in the search is "
                "the best of many, so luck is part of it."
            )
    return "".join(f"<p>{sentence}</p>" for sentence in says)


class _Scale:
    """Maps values to pixels.

    Args:
        values: Values that must fit.
        low: Pixel of the smallest value.
        high: Pixel of the largest value.
        log: Whether the scale is logarithmic.
    """

    def __init__(
        self, values: Iterable[float], low: float, high: float, *, log: bool = False
    ) -> None:
        held = list(values) or [0.0, 1.0]
        self._log = log and min(held) > 0
        self._ends = self._mapped(min(held)), self._mapped(max(held))
        self._low, self._high = low, high
        self.range = min(held), max(held)

    def _mapped(self, value: float) -> float:
        return math.log(value) if self._log else value

    def __call__(self, value: float) -> float:
        first, last = self._ends
        share = (self._mapped(value) - first) / (last - first) if last > first else 0.5
        return self._low + share * (self._high - self._low)


def _line(points: Iterable[tuple[float, float]], color: str, width: float = 1.0) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(parts: Iterable[str], width: int = _WIDTH, height: int = _HEIGHT) -> str:
    return f'<svg width="{width}" height="{height}" role="img">{"".join(parts)}</svg>'


def _axes(across: _Scale, up: _Scale, width: int, height: int) -> list[str]:
    (left, right), (bottom, top) = across.range, up.range
    return [
        _text(_MARGIN, height - 12, f"{left:.4g}", "start"),
        _text(width - 10, height - 12, f"{right:.4g}", "end"),
        _text(_MARGIN - 6, height - _MARGIN + 14, f"{bottom:.4g}", "end"),
        _text(_MARGIN - 6, 20, f"{top:.4g}", "end"),
    ]


def _curves(plan: Plan, ranked: Sequence[Result]) -> str:
    steps = [step for result in ranked for step in result.curve]
    values = [value for result in ranked for value in result.curve.values()]
    if not values:
        return "<p>No trial has reported a value.</p>"
    across = _Scale([0, *steps], _MARGIN, _WIDTH - 10)
    up = _Scale(values, _HEIGHT - 30, 14)
    lines = []
    for place, result in reversed(list(enumerate(ranked))):  # the best is drawn last
        is_best = place == 0 and result.value is not None
        color = _PRUNED if result.value is None else _GOOD if is_best else _OTHER
        points = [(across(step), up(value)) for step, value in sorted(result.curve.items())]
        lines.append(_line(points, color, 2.5 if is_best else 1.0))
    return _svg([*lines, *_axes(across, up, _WIDTH, _HEIGHT)])


def _place(dimension: Range | Choices, value: Any) -> float:
    """Return a number for a value, to be drawn."""
    if isinstance(dimension, Choices):
        return float(dimension.choices.index(value))
    return float(value)


def _parallel(plan: Plan, complete: Sequence[Result]) -> str:
    space = plan.settings.space
    columns: list[tuple[str, _Scale, list[float]]] = []
    for path, each in space.items():
        places = [_place(each, result.trial.values[path]) for result in complete]
        log = isinstance(each, Range) and each.log
        columns.append((path, _Scale(places, _HEIGHT - 40, 20, log=log), places))
    values = [result.value or 0.0 for result in complete]
    columns.append(("value", _Scale(values, _HEIGHT - 40, 20), values))
    width = max(_WIDTH, 150 * len(columns))
    at = [60 + i * (width - 120) / (len(columns) - 1) for i in range(len(columns))]
    n_good = math.ceil(len(complete) / 10)
    parts = []
    for row in reversed(range(len(complete))):
        points = [(x, scale(held[row])) for x, (_, scale, held) in zip(at, columns, strict=True)]
        is_good = row < n_good
        parts.append(_line(points, _GOOD if is_good else _PRUNED, 2.0 if is_good else 1.0))
    for x, (path, scale, _) in zip(at, columns, strict=True):
        dimension = space.get(path)
        low, high = scale.range
        if isinstance(dimension, Choices):
            says = quoted(dimension.choices[int(low)]), quoted(dimension.choices[int(high)])
        else:
            says = f"{low:.4g}", f"{high:.4g}"
        parts += [
            _line([(x, 20), (x, _HEIGHT - 40)], "#888"),
            _text(x, _HEIGHT - 26, says[0]),
            _text(x, 14, says[1]),
            _text(x, _HEIGHT - 8, path.rpartition(".")[2]),
        ]
    return _svg(parts, width)


def _slice(plan: Plan, path: str, complete: Sequence[Result]) -> str:
    dimension = plan.settings.space[path]
    width, height = 300, 220
    places = [_place(dimension, result.trial.values[path]) for result in complete]
    values = [result.value or 0.0 for result in complete]
    log = isinstance(dimension, Range) and dimension.log
    across = _Scale(places, _MARGIN, width - 12, log=log)
    up = _Scale(values, height - 46, 16)
    dots = [
        f'<circle cx="{across(place):.1f}" cy="{up(value):.1f}" r="3" '
        f'fill="{_GOOD if row == 0 else _OTHER}" fill-opacity="0.7"/>'
        for row, (place, value) in reversed(list(enumerate(zip(places, values, strict=True))))
    ]
    if isinstance(dimension, Choices):
        marks = [
            _text(across(place), height - 28, quoted(dimension.choices[int(place)]))
            for place in sorted(set(places))
        ]
    else:
        marks = [
            _text(_MARGIN, height - 28, f"{across.range[0]:.4g}", "start"),
            _text(width - 12, height - 28, f"{across.range[1]:.4g}", "end"),
        ]
    marks += [
        _text(_MARGIN - 6, height - 46, f"{up.range[0]:.4g}", "end"),
        _text(_MARGIN - 6, 20, f"{up.range[1]:.4g}", "end"),
        _text(width / 2, height - 8, path.rpartition(".")[2]),
    ]
    return _svg([*dots, *marks], width, height)


def _bars(importances: Mapping[str, float]) -> str:
    height = 24 * len(importances) + 12
    largest = max(importances.values()) or 1.0
    parts = []
    for row, (path, share) in enumerate(importances.items()):
        y = 10 + 24 * row
        length = 300 * share / largest
        parts += [
            _text(250, y + 12, path.rpartition(".")[2], "end"),
            f'<rect x="260" y="{y}" width="{length:.1f}" height="16" fill="{_OTHER}"/>',
            _text(266 + length, y + 12, f"{share:.0%}", "start"),
        ]
    return _svg(parts, _WIDTH, height)


def _table(plan: Plan, ranked: Sequence[Result]) -> str:
    names = [path.rpartition(".")[2] for path in plan.settings.space]
    rows = [
        f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in ('trial', 'value', *names))}</tr>"
    ]
    for result in ranked[:_MOST_ROWS]:
        if result.value is not None:
            says = plan.in_words(result.value)
        else:
            says = "ended early" if result.was_pruned else "failed"
        cells = [str(result.trial.number), says]
        for path in plan.settings.space:
            value = result.trial.values.get(path)
            cells.append(f"{value:.4g}" if isinstance(value, float) else quoted(value))
        rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(rows)}</table>"
