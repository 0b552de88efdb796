"""Schedules that change hyperparameters during a run."""

from mlagents.trainers.settings.hyperparameters import Schedule

LEARNING_RATE_FLOOR = 1e-10

ADAPTIVE_STEP = 1.5
"""Factor of one change of an adaptive learning rate."""
ADAPTIVE_LIMITS = 1e-5, 1e-2
"""Smallest and largest adaptive learning rate."""


def scheduled(
    initial: float, schedule: Schedule, *, floor: float, step: int, max_steps: int
) -> float:
    """Return the value at `step`: constant, or decreasing linearly to `floor` at `max_steps`.

    An initial value at or below the floor stays constant.
    """
    if schedule != "linear" or initial <= floor:
        return initial
    remaining = 1.0 - min(step, max_steps) / max_steps
    return floor + (initial - floor) * remaining


def adapted(learning_rate: float, divergence: float, *, desired: float) -> float:
    """Return the next learning rate: lower if the policy changed too much, higher if too little.

    Args:
        learning_rate: Current learning rate.
        divergence: Divergence of the current policy from the policy that acted.
        desired: Target divergence. Between half and twice this value, the rate does not change.
    """
    least, most = ADAPTIVE_LIMITS
    if divergence > 2 * desired:
        return max(least, learning_rate / ADAPTIVE_STEP)
    if divergence < desired / 2:
        return min(most, learning_rate * ADAPTIVE_STEP)
    return learning_rate
