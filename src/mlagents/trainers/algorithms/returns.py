"""Advantages: pure functions over (S, T) columns and over N steps."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.segments import Segments, is_step, to_columns
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import FloatArray


def gae(
    rewards: FloatArray,
    values: FloatArray,
    bootstrap: FloatArray,
    length: NDArray[np.int64],
    *,
    gamma: float,
    lambd: float,
) -> FloatArray:
    """Return the advantage of every step of S segments (arXiv:1506.02438).

        delta[t] = r[t] + gamma * V[t+1] - V[t]
        A[t]     = delta[t] + gamma * lambd * A[t+1]

    Args:
        rewards: (S, T) reward that followed the action taken at each step.
        values: (S, T) value predicted for the state acted in.
        bootstrap: (S,) value of the state after the last step. It is 0 if the task ended the
            episode there, and a prediction if the episode was interrupted or the segment was cut.
        length: (S,) number of steps in each segment. The rest of the row is padding and must be
            zero.
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


class Stream(Protocol):
    """The properties of a reward signal that advantages depend on."""

    gamma: float
    """Discount per step."""

    @property
    def respects_end(self) -> bool:
        """Whether the value is zero after the task has ended an episode."""


def advantages_of(
    segments: Segments,
    rewards: FloatArray,
    values: FloatArray,
    bootstrap: FloatArray,
    streams: Sequence[Stream],
    *,
    lambd: float,
) -> FloatArray:
    """Return the advantages of N steps of S segments for every reward signal; see `gae`.

    Args:
        segments: Experience; only its lengths and ends are used.
        rewards: (N, streams) reward that followed each step.
        values: (N, streams) value predicted for the state acted in.
        bootstrap: (S, streams) value predicted for the state after the last step.
        streams: Reward signals, in the order of the columns.
        lambd: 0 trusts the values, 1 trusts the rewards.

    Returns:
        (N, streams) advantages, not normalized.
    """
    advantages = np.empty_like(values)
    real = is_step(segments.length)
    for i, stream in enumerate(streams):
        ends = segments.terminated if stream.respects_end else np.zeros_like(segments.terminated)
        advantages[:, i] = gae(
            to_columns(rewards[:, i], segments.length),
            to_columns(values[:, i], segments.length),
            np.where(ends, np.float32(0.0), bootstrap[:, i]),
            segments.length,
            gamma=stream.gamma,
            lambd=lambd,
        )[real]
    return advantages


def joined_advantages(
    advantages: FloatArray,
    strengths: Sequence[float] | None = None,
    shards: Shards = ALONE,
    *,
    normalize: bool = True,
) -> FloatArray:
    """Return one advantage per step, combined from the advantages of all reward signals.

        A = normal(sum over signals of A_s),    normal(x) = (x - mean(x)) / deviation(x)

    With strengths, each signal is normalized first, so the scale of its rewards has no effect:

        A = normal(sum over signals of strength_s * normal(A_s))

    A mean in place of the sum would give the same numbers.

    Args:
        advantages: (N, signals) advantages of each signal.
        strengths: Strength of each signal, or None to sum the advantages unnormalized.
        shards: This learner's place among several. Means and deviations are over all their rows.
        normalize: Whether the sum is normalized.

    Returns:
        (N, 1) advantages; with mean 0 and deviation 1 if they are normalized.
    """
    if strengths is not None:
        advantages = _normal(advantages, shards) * np.asarray(strengths, np.float32)
    joined: FloatArray = advantages.sum(axis=1, keepdims=True)
    return _normal(joined, shards) if normalize else joined


def _normal(x: FloatArray, shards: Shards) -> FloatArray:
    if shards.size == 1:
        normal: FloatArray = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-10)
        return normal
    wide = x.astype(np.float64)
    n_rows, *sums = shards.sums(np.array([len(x), *wide.sum(axis=0)]))
    wide -= np.array(sums) / n_rows
    deviation = np.sqrt(shards.sums(np.square(wide).sum(axis=0)) / n_rows)
    return (wide / (deviation + 1e-10)).astype(np.float32)
