"""The number that a search improves, from the curve of a run."""

import numpy as np

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.search import Measure

Curve = list[tuple[int, float]]
"""Values of the measured statistic with their steps, in order."""


def measured_behavior(measure: Measure, options: RunOptions) -> str | None:
    """Return the behavior that is measured; None for the only one of the environment.

    Raises:
        TrainerConfigError: It is not named although there are several, or is not configured.
    """
    names = list(options.behaviors)
    if measure.behavior is None:
        if len(names) > 1:
            raise TrainerConfigError(
                f"search.measure.behavior: there are several behaviors ({', '.join(names)}). "
                "Name the one to measure."
            )
        return names[0] if names else None
    options.behavior_settings(measure.behavior)
    return measure.behavior


def is_reached(measure: Measure, value: float) -> bool:
    """Return whether a value of the statistic ends the run, because it is that of `steps_to`."""
    if measure.steps_to is None:
        return False
    is_above = value >= measure.steps_to
    return is_above if measure.direction == "maximize" else value <= measure.steps_to


def score(curve: Curve, measure: Measure, *, max_steps: int) -> float | None:
    """Return the value of a finished run, better in the direction of the measure.

    It is the mean of the statistic at the end or, with `steps_to`, the number of steps, negative if
    larger values are better. A run that never got there counts as `max_steps` and as large a share
    of it more as the statistic is missing.

    Args:
        curve: Values of the statistic.
        measure: What to measure.
        max_steps: Steps of the run.

    Returns:
        The value, or None if the run has none: no episode ended in its last part.
    """
    if measure.steps_to is None:
        end = [value for step, value in curve if step > (1 - measure.last) * max_steps]
        return float(np.mean(end)) if end else None
    if not curve:
        return None
    reached = [step for step, value in curve if is_reached(measure, value)]
    steps = float(reached[0]) if reached else max_steps * (1 + _missing(curve, measure.steps_to))
    return -steps if measure.direction == "maximize" else steps


def _missing(curve: Curve, goal: float) -> float:
    """Return the share of the way to the goal that is left, from 0 to 1."""
    values = [value for _, value in curve]
    begin, nearest = values[0], min(values, key=lambda value: abs(goal - value))
    way = abs(goal - begin)
    return abs(goal - nearest) / way if way else 0.0
