"""Pieces of episodes, stacked.

A *segment* is a run of consecutive steps of one agent: a whole episode, or the part of it that
fits the time horizon. The steps of S segments lie one after the other in arrays of N rows, so no
row is padding; `to_columns` spreads numbers (not images) out to (S, T) where a sum over time needs
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Segments:
    """S segments of N steps in all.

    Attributes:
        obs: One array per observation, (N, *shape): what was acted on.
        continuous: (N, A) actions as sampled.
        discrete: (N, K) int32.
        log_probs: (N, A + K) of the policy that acted.
        action_mask: (N, sum of branches) bool, True where an action is *not* allowed.
        memory: (Q, memory size) what the agent remembered before the first step of each sequence;
            `cut_into` cuts segments into Q sequences.
        reward: (N,) reward that followed the action.
        group_reward: (N,) the same of the agent's group.
        length: (S,) int, adding up to N.
        last_obs: One array per observation, (S, *shape): what followed the last step.
        last_memory: (S, memory size) what the agent remembered after it.
        terminated: (S,) bool, the episode ended there because the task said so.
        interrupted: (S,) bool, the episode ended there because a clock ran out.
        episode: (S,) int, the same number for all segments of one episode.
    """

    obs: list[NDArray[Any]]
    continuous: FloatArray
    discrete: NDArray[np.int32]
    log_probs: FloatArray
    action_mask: NDArray[np.bool_]
    memory: FloatArray
    reward: FloatArray
    group_reward: FloatArray
    length: NDArray[np.int64]
    last_obs: list[NDArray[Any]]
    last_memory: FloatArray
    terminated: NDArray[np.bool_]
    interrupted: NDArray[np.bool_]
    episode: NDArray[np.int64]

    @property
    def n_steps(self) -> int:
        """N."""
        return len(self.reward)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """(S,) whether the segment is the last of its episode."""
        return self.terminated | self.interrupted

    @staticmethod
    def concatenate(parts: Sequence["Segments"]) -> "Segments":
        """Put the segments of several batches one after the other."""
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for field in fields(Segments):
            values = [getattr(part, field.name) for part in parts]
            if field.name in ("obs", "last_obs"):
                joined[field.name] = [
                    np.concatenate(arrays) for arrays in zip(*values, strict=True)
                ]
            else:
                joined[field.name] = np.concatenate(values)
        return Segments(**joined)


def to_columns(rows: FloatArray, length: NDArray[np.int64]) -> FloatArray:
    """Spread (N, ...) rows of S segments out to (S, T, ...), T the longest; zeros fill the rest."""
    columns = np.zeros((len(length), int(length.max()), *rows.shape[1:]), rows.dtype)
    columns[is_step(length)] = rows
    return columns


def is_step(length: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(S, T) True at real steps; `columns[is_step(length)]` is the inverse of `to_columns`."""
    return np.arange(int(length.max())) < length[:, None]


def cut_into(longest: int, length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut segments into sequences of `longest` steps, the last of each maybe shorter.

    Args:
        longest: Steps of a sequence.
        length: (S,) of the segments, all positive.

    Returns:
        (sequences,) their lengths, segment by segment, with the same sum.
    """
    per_segment = -(-length // longest)
    cut = np.full(per_segment.sum(), longest)
    last = np.cumsum(per_segment) - 1
    cut[last] = length - (per_segment - 1) * longest
    return cut
