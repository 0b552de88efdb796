"""The players of a run, as one source of steps."""
