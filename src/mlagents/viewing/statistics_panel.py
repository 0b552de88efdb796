"""The panel of a training run: its statistics as they come."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import viser

REWARD = "Environment/Cumulative Reward"
_HIDDEN = ("Step", "Is Training")
_MOST_POINTS = 500


class StatisticsPanel:
    """Shows the newest summary of every behavior, and the curve of one statistic.

    Args:
        gui: Side bar of the page.
    """

    def __init__(self, gui: "viser.GuiApi") -> None:
        self._gui = gui
        self._folder = gui.add_folder("Statistics")
        with self._folder:
            self._text = gui.add_markdown("The first summary is not there yet.")
        self._lock = threading.Lock()  # background learners may report, too
        self._tables: dict[str, str] = {}
        self._curves: dict[str, list[tuple[float, float]]] = {}
        self._plots: dict[str, Any] = {}

    def add(self, behavior: str, values: Mapping[str, float], step: int) -> None:
        """Add a summary.

        Args:
            behavior: Name of the behavior.
            values: Mean of each statistic by name.
            step: Step count of the behavior.
        """
        with self._lock:
            rows = "\n".join(
                f"| {name} | {value:.4g} |"
                for name, value in sorted(values.items())
                if name not in _HIDDEN
            )
            self._tables[behavior] = f"**{behavior}**, step {step}\n\n| | |\n|---|--:|\n{rows}"
            self._text.content = "\n\n".join(self._tables.values())
            if REWARD in values:
                curve = self._curves.setdefault(behavior, [])
                curve.append((float(step), values[REWARD]))
                if len(curve) > _MOST_POINTS:
                    del curve[1:-1:2]
                self._plot(behavior, np.array(curve))

    def _plot(self, behavior: str, curve: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        steps, rewards = curve.T.copy()
        if (plot := self._plots.get(behavior)) is not None:
            plot.data = (steps, rewards)
            return
        with self._folder:
            self._plots[behavior] = self._gui.add_uplot(
                (steps, rewards),
                ({"label": "step"}, {"label": "reward", "stroke": "#2563c3", "width": 2}),
                title=f"Cumulative reward of {behavior}",
                scales={"x": {"time": False}},
                aspect=1.6,
            )
