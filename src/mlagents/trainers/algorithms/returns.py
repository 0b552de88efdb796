"""What a step was worth: pure functions over (S, T), then over its N steps."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


def gae(
    rewards: FloatArray,
    values: FloatArray,
    bootstrap: FloatArray,
    length: NDArray[np.int64],
    *,
    gamma: float,
    lambd: float,
) -> FloatArray:
    """Advantage of every step of S segments (arXiv:1506.02438).

        delta[t] = r[t] + gamma * V[t+1] - V[t]
        A[t]     = delta[t] + gamma * lambd * A[t+1]

    Args:
        rewards: (S, T) reward that followed the action taken at each step.
        values: (S, T) value predicted for the state acted in.
        bootstrap: (S,) value of the state after the last step: 0 where the task ended the
            episode there, a prediction where a clock interrupted it or the segment was cut.
        length: (S,) steps that are real; the rest of the row is padding and must be zero.
        gamma: Discount per step.
        lambd: 0 trusts the values, 1 trusts the rewards.

    Returns:
        (S, T) advantages, not normalized; zero at padding.
    """
    next_values = np.zeros_like(values)
    next_values[:, :-1] = values[:, 1:]
    next_values[np.arange(len(length)), length - 1] = bootstrap
    deltas = rewards + gamma * next_values - values
    advantages = np.empty_like(deltas)
    carried = np.zeros_like(bootstrap)
    for t in reversed(range(deltas.shape[1])):
        carried = deltas[:, t] + gamma * lambd * carried
        advantages[:, t] = carried
    return advantages


def joined_advantages(
    advantages: FloatArray, strengths: Sequence[float] | None = None
) -> FloatArray:
    """One advantage of every step, of those in the eyes of each reward signal.

        A = normal(sum over signals of A_s),    normal(x) = (x - mean(x)) / deviation(x)

    or, with strengths, of what each signal prefers, however large its rewards are:

        A = normal(sum over signals of strength_s * normal(A_s))

    A mean in place of the sum would give the same numbers.

    Args:
        advantages: (N, signals).
        strengths: The signals'.

    Returns:
        (N, 1) with mean 0 and deviation 1.
    """
    if strengths is not None:
        advantages = _normal(advantages) * np.asarray(strengths, np.float32)
    return _normal(advantages.sum(axis=1, keepdims=True))


def _normal(x: FloatArray) -> FloatArray:
    normal: FloatArray = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-10)
    return normal
