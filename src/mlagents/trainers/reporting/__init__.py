"""What a run tells: statistics, tables, curves."""
