"""Probabilities of opponents in self-play, from the learner's win rates against them.

`pfsp` is prioritized fictitious self-play (doi:10.1038/s41586-019-1724-z). It prefers opponents
that the learner does not beat yet.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_LEAST = 0.02
"""Weight of the uniform distribution in `pfsp` and `even`, so that no opponent is forgotten."""


def uniform(win_rates: FloatArray) -> FloatArray:
    """Give all opponents the same probability."""
    return np.full(len(win_rates), 1.0 / len(win_rates))


def pfsp(win_rates: FloatArray) -> FloatArray:
    """Prefer opponents that beat the learner: weight (1 - x)^2 at a win rate x against them."""
    return _normalized((1.0 - win_rates) ** 2)


def even(win_rates: FloatArray) -> FloatArray:
    """Prefer opponents of equal strength: weight x (1 - x) at a win rate x against them."""
    return _normalized(win_rates * (1.0 - win_rates))


def _normalized(weights: FloatArray) -> FloatArray:
    total = weights.sum()
    if total <= 0.0:  # the learner beats all of them
        return uniform(weights)
    return (1.0 - _LEAST) * weights / total + _LEAST * uniform(weights)


PROBABILITIES: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "uniform": uniform,
    "pfsp": pfsp,
    "even": even,
}
"""Functions by the value of the setting `opponents`. Each returns the probability of meeting each
of n snapshots (n,), from the learner's win rates against them (n,)."""
