"""Schedules of hyperparameters over a run."""

from mlagents.trainers.settings.hyperparameters import Schedule

LEARNING_RATE_FLOOR = 1e-10


def scheduled(
    initial: float, schedule: Schedule, *, floor: float, step: int, max_steps: int
) -> float:
    """Return the value at `step`: constant, or falling linearly to `floor` at `max_steps`.

    A value that begins at or below its floor stays constant.
    """
    if schedule == "constant" or initial <= floor:
        return initial
    remaining = 1.0 - min(step, max_steps) / max_steps
    return floor + (initial - floor) * remaining
