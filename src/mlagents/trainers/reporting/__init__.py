"""Output of a run: statistics, tables, curves and texts."""
