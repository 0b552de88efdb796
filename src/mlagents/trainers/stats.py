"""Statistics of a run, at the import path for plug-ins; see `reporting.stats`."""

from mlagents.trainers.reporting.stats import (
    StatsPropertyType,
    StatsReporter,
    StatsSummary,
    StatsWriter,
)

__all__ = ["StatsPropertyType", "StatsReporter", "StatsSummary", "StatsWriter"]
