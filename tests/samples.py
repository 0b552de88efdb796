"""Whether a sample comes from a distribution, with a bound on how often the answer is wrong.

The distribution function of n draws strays further than e from the true one with a probability of
at most 2 exp(-2 n e²), whatever the distribution (Massart, 1990).
"""

import math

import numpy as np
import torch
from numpy.typing import ArrayLike

PROBABILITY_OF_FALSE_ALARM = 1e-9


def _largest_gap(n_draws: int) -> float:
    return math.sqrt(math.log(2 / PROBABILITY_OF_FALSE_ALARM) / (2 * n_draws))


def assert_normal(sample: ArrayLike) -> None:
    """Fail unless `sample` was drawn from N(0, 1)."""
    ordered = np.sort(np.asarray(sample, np.float64), axis=None)
    expected = torch.special.ndtr(torch.from_numpy(ordered)).numpy()
    found = np.arange(1, ordered.size + 1) / ordered.size
    assert np.abs(found - expected).max() < _largest_gap(ordered.size)


def assert_categorical(sample: ArrayLike, probabilities: ArrayLike) -> None:
    """Fail unless the indices in `sample` were drawn with these probabilities."""
    drawn = np.asarray(sample).ravel()
    expected = np.asarray(probabilities, np.float64).ravel()
    counts = np.bincount(drawn, minlength=expected.size)
    assert counts.size == expected.size
    assert not counts[expected == 0.0].any()
    gap = np.abs(np.cumsum(counts) / drawn.size - np.cumsum(expected))
    assert gap.max() < _largest_gap(drawn.size)
