"""Shows the statistics of a run on Weights & Biases.

    pip install examples/plugins/wandb_writer
    wandb login                     # or WANDB_MODE=offline, and `wandb sync` later

A run there holds the settings and the curves of all behaviors; the runs that resume one another
are a group. The project is that of `WANDB_PROJECT`, else `ml-agents`.
"""

import os
from collections.abc import Mapping

import wandb

from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.stats import StatsSummary, StatsWriter


class WandbWriter(StatsWriter):
    """One run on Weights & Biases.

    Args:
        options: Settings of the run.
    """

    def __init__(self, options: RunOptions) -> None:
        run_id = options.checkpoint_settings.run_id
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ml-agents"),
            name=run_id,
            group=run_id,
            config=options.model_dump(mode="json"),
        )
        self._known: set[str] = set()

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Send one summary; every behavior has its own step count."""
        if category not in self._known:
            self._known.add(category)
            self._run.define_metric(f"{category}/*", step_metric=f"{category}/Step")
        numbers = {f"{category}/{key}": value.aggregated_value for key, value in values.items()}
        self._run.log(numbers | {f"{category}/Step": step})

    def close(self) -> None:
        """Wait until everything is sent."""
        self._run.finish()


def stats_writers(options: RunOptions) -> list[StatsWriter]:
    """Return the writer for a run; inference sends nothing."""
    return [] if options.checkpoint_settings.inference else [WandbWriter(options)]
