"""Schedules of hyperparameters over a run."""

from mlagents.trainers.settings.hyperparameters import Schedule

LEARNING_RATE_FLOOR = 1e-10

ADAPTIVE_STEP = 1.5
ADAPTIVE_LIMITS = 1e-5, 1e-2
"""Factor by which an adaptive learning rate changes at once, and its limits."""


def scheduled(
    initial: float, schedule: Schedule, *, floor: float, step: int, max_steps: int
) -> float:
    """Return the value at `step`: constant, or falling linearly to `floor` at `max_steps`.

    A value that begins at or below its floor stays constant.
    """
    if schedule != "linear" or initial <= floor:
        return initial
    remaining = 1.0 - min(step, max_steps) / max_steps
    return floor + (initial - floor) * remaining


def adapted(learning_rate: float, divergence: float, *, desired: float) -> float:
    """Return the next learning rate: lower after a large change of the policy, else higher.

    Args:
        learning_rate: Present learning rate.
        divergence: Divergence of the policy from the one that acted.
        desired: Divergence to stay near; between half and twice that, nothing changes.
    """
    least, most = ADAPTIVE_LIMITS
    if divergence > 2 * desired:
        return max(least, learning_rate / ADAPTIVE_STEP)
    if divergence < desired / 2:
        return min(most, learning_rate * ADAPTIVE_STEP)
    return learning_rate
