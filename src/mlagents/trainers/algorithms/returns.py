"""Advantages as pure functions, over (S, T) columns and over N steps."""

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
        length: (S,) number of steps in each segment. The rest of each row is padding and must be
            zero.
        gamma: Discount per step.
        lambd: Decay of TD errors: 0 relies on the values, 1 on the rewards.

    Returns:
        (S, T) advantages, not normalized; zero at padding.
    """
    deltas = _deltas(rewards, values, bootstrap, length, gamma)
    advantages = np.empty_like(deltas)
    carried = np.zeros_like(bootstrap)
    for t in reversed(range(deltas.shape[1])):
        carried = deltas[:, t] + gamma * lambd * carried
        advantages[:, t] = carried
    return advantages


def vtrace(
    log_ratio: FloatArray,
    rewards: FloatArray,
    values: FloatArray,
    bootstrap: FloatArray,
    length: NDArray[np.int64],
    *,
    gamma: float,
    lambd: float,
) -> tuple[FloatArray, FloatArray]:
    """Return advantages and value targets for steps taken by an older policy.

    V-trace (arXiv:1802.01561), with rho = c = min(1, ratio of the probabilities):

        delta[t] = r[t] + gamma * V[t+1] - V[t]
        D[t]     = rho[t] * (delta[t] + gamma * lambd * D[t+1])
        A[t]     =           delta[t] + gamma * lambd * D[t+1]
        target[t] = V[t] + D[t]

    An advantage excludes the ratio of its own step, because the policy loss contains it. If the
    policies are equal, all ratios are 1 and A equals the result of `gae`.

    Args:
        log_ratio: (S, T) log-probability of each action under the present policy, minus that under
            the policy that acted.
        rewards: (S, T) rewards. This and the following arguments are as in `gae`.
        values: (S, T) values.
        bootstrap: (S,) values of the states after the last step.
        length: (S,) number of steps in each segment.
        gamma: Discount per step.
        lambd: Decay of TD errors: 0 relies on the values, 1 on the rewards.

    Returns:
        (S, T) advantages, not normalized, and (S, T) targets; arbitrary at padding.
    """
    deltas = _deltas(rewards, values, bootstrap, length, gamma)
    rho = np.exp(np.minimum(log_ratio, np.float32(0.0)))
    advantages, corrections = np.empty_like(deltas), np.empty_like(deltas)
    carried = np.zeros_like(bootstrap)
    for t in reversed(range(deltas.shape[1])):
        advantages[:, t] = deltas[:, t] + gamma * lambd * carried
        carried = corrections[:, t] = rho[:, t] * advantages[:, t]
    return advantages, values + corrections


def _deltas(
    rewards: FloatArray,
    values: FloatArray,
    bootstrap: FloatArray,
    length: NDArray[np.int64],
    gamma: float,
) -> FloatArray:
    """Return r[t] + gamma * V[t+1] - V[t], (S, T)."""
    next_values = np.zeros_like(values)
    next_values[:, :-1] = values[:, 1:]
    next_values[np.arange(len(length)), length - 1] = bootstrap
    deltas: FloatArray = rewards + gamma * next_values - values
    return deltas


class Stream(Protocol):
    """Properties of a reward signal that its advantages depend on."""

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
        lambd: Decay of TD errors: 0 relies on the values, 1 on the rewards.

    Returns:
        (N, streams) advantages, not normalized.
    """
    advantages = np.empty_like(values)
    real = is_step(segments.length)
    for i, stream in enumerate(streams):
        advantages[:, i] = gae(
            to_columns(rewards[:, i], segments.length),
            to_columns(values[:, i], segments.length),
            _after_ends(segments, bootstrap[:, i], stream),
            segments.length,
            gamma=stream.gamma,
            lambd=lambd,
        )[real]
    return advantages


def corrected_advantages_of(
    segments: Segments,
    log_ratio: FloatArray,
    rewards: FloatArray,
    values: FloatArray,
    bootstrap: FloatArray,
    streams: Sequence[Stream],
    *,
    lambd: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the advantages and value targets of N steps for every reward signal; see `vtrace`.

    Args:
        segments: Experience; only its lengths and ends are used.
        log_ratio: (N,) log-probability of each action under the present policy, minus that under
            the policy that acted.
        rewards: (N, streams) rewards. This and the following arguments are as in `advantages_of`.
        values: (N, streams) values.
        bootstrap: (S, streams) values after the last steps.
        streams: Reward signals, in the order of the columns.
        lambd: Decay of TD errors: 0 relies on the values, 1 on the rewards.

    Returns:
        (N, streams) advantages, not normalized, and (N, streams) targets.
    """
    advantages, targets = np.empty_like(values), np.empty_like(values)
    real = is_step(segments.length)
    for i, stream in enumerate(streams):
        of_stream = vtrace(
            to_columns(log_ratio, segments.length),
            to_columns(rewards[:, i], segments.length),
            to_columns(values[:, i], segments.length),
            _after_ends(segments, bootstrap[:, i], stream),
            segments.length,
            gamma=stream.gamma,
            lambd=lambd,
        )
        advantages[:, i], targets[:, i] = (columns[real] for columns in of_stream)
    return advantages, targets


def _after_ends(segments: Segments, bootstrap: FloatArray, stream: Stream) -> FloatArray:
    """Return (S,) values after the last steps, 0 where the task ended an episode."""
    if not stream.respects_end:
        return bootstrap
    return np.where(segments.terminated, np.float32(0.0), bootstrap)


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


    Args:
        advantages: (N, signals) advantages of each signal.
        strengths: Strength of each signal, or None to sum the advantages unnormalized.
        shards: Communication with the other learners. Means and deviations cover the rows of all.
        normalize: Whether to normalize the sum.

    Returns:
        (N, 1) advantages. If normalized, they have mean 0 and standard deviation 1.
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
