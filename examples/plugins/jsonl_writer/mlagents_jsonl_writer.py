"""Writes the statistics of a run to `summaries.jsonl` in its folder, one summary a line.

pip install examples/plugins/jsonl_writer
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.stats import StatsSummary, StatsWriter


class JsonLinesWriter(StatsWriter):
    """Writer that appends to a file, so that a resumed run continues it.

    Args:
        path: Path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Write a line: the behavior, its step, and each statistic as one number."""
        numbers = {name: summary.aggregated_value for name, summary in values.items()}
        finite = {name: x if math.isfinite(x) else None for name, x in numbers.items()}
        line = json.dumps({"behavior": category, "step": step, "stats": finite})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def stats_writers(options: RunOptions) -> list[StatsWriter]:
    """Return the writer for a run; inference writes no file."""
    settings = options.checkpoint_settings
    if settings.inference:
        return []
    return [JsonLinesWriter(Path(settings.results_dir) / settings.run_id / "summaries.jsonl")]
