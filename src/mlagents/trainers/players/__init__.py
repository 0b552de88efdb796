"""The players of a run, seen as one source of steps."""
