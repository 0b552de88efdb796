"""Statistics of a run: the import path that plug-ins use; see `reporting.stats`."""

from mlagents.trainers.reporting.stats import (
    StatsPropertyType,
    StatsReporter,
    StatsSummary,
    StatsWriter,
)

__all__ = ["StatsPropertyType", "StatsReporter", "StatsSummary", "StatsWriter"]
