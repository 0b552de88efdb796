"""A line at the foot of the terminal that shows how far each behavior is.

Where output is not a terminal nothing is drawn: the summary lines of the log tell the same.
"""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from mlagents.trainers.training.trainer import Trainer


class ProgressLine:
    """One bar per behavior: steps, steps per second, mean reward, time left."""

    def __init__(self) -> None:
        console = Console()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("mean reward {task.fields[reward]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
            refresh_per_second=4,
            speed_estimate_period=60,
        )
        self._tasks: dict[str, TaskID] = {}
        self._next_update_s = 0.0

    def update(self, trainers: Iterable[Trainer]) -> None:
        """Show where each behavior is now, if it is time to look again."""
        now_s = time.monotonic()
        if self._progress.disable or now_s < self._next_update_s:
            return
        self._next_update_s = now_s + 0.25
        for trainer in trainers:
            self._update(trainer)

    def _update(self, trainer: Trainer) -> None:
        progress = self._progress
        task = self._tasks.get(trainer.name)
        if task is None:
            task = self._tasks[trainer.name] = progress.add_task(
                trainer.name, total=trainer.settings.max_steps, rate="", reward="-"
            )
            progress.reset(task, completed=trainer.step)
        speed = progress.tasks[task].speed
        reward = trainer.mean_reward
        progress.update(
            task,
            completed=trainer.step,
            rate=f"{speed:,.0f} steps/s" if speed else "",
            reward="-" if reward is None else f"{reward:.3f}",
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()
