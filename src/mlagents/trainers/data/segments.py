"""Segments: parts of episodes, stored in stacked arrays.

A *segment* consists of consecutive steps of one agent: a whole episode, or a part of it within the
time horizon. The steps of S segments are stored consecutively in arrays of N rows, without padding.
`to_columns` pads numbers, but not images, to (S, T) for sums over time.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import FloatArray


def _none() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


class OpenSteps(NamedTuple):
    """Steps of L agents that still wait for their rewards and will belong to later segments.

    Attributes:
        obs: One array per observation, (L, *shape).
        continuous: (L, A) actions as sampled; arbitrary for agents that have not decided yet.
        discrete: (L, K) int32 discrete actions; arbitrary for agents that have not decided yet.
        tick: (L,) int, number of the player's report that contained the observation.
        group: (L,) int, number of the agent's group.
        episode: (L,) int, number of the episode.
    """

    obs: list[NDArray[Any]]
    continuous: FloatArray
    discrete: NDArray[np.int32]
    tick: NDArray[np.int64]
    group: NDArray[np.int64]
    episode: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """S segments with N steps in total.

    Attributes:
        obs: One array per observation, (N, *shape), before the action.
        continuous: (N, A) actions as sampled.
        discrete: (N, K) int32 discrete actions.
        log_probs: (N, A + K) log-probabilities under the policy that acted.
        action_mask: (N, sum of branches) bool, True where an action is *not* allowed.
        memory: (Q, memory size) memory before the first step of each sequence. `cut_into` cuts
            segments into Q sequences.
        reward: (N,) reward that followed the action.
        group_reward: (N,) reward of the agent's group that followed the action.
        length: (S,) int, number of steps in each segment; the sum is N.
        last_obs: One array per observation, (S, *shape), after the last step.
        last_memory: (S, memory size) memory after the last step.
        terminated: (S,) bool, True where the task ended the episode after the last step.
        interrupted: (S,) bool, True where a time limit ended the episode after the last step.
        episode: (S,) int, number of the episode, the same for all its segments.
        tick: (N,) int, number of the player's report that contained the observation. This and the
            next two fields are empty unless the algorithm learns in groups.
        last_tick: (S,) int, number of the player's report that contained `last_obs`.
        group: (S,) int, number of the agent's group; a unique negative number without a group.
        open_steps: Steps of agents whose episodes continue; None unless the algorithm learns in
            groups.
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
    tick: NDArray[np.int64] = dataclasses.field(default_factory=_none)
    last_tick: NDArray[np.int64] = dataclasses.field(default_factory=_none)
    group: NDArray[np.int64] = dataclasses.field(default_factory=_none)
    open_steps: OpenSteps | None = None

    @property
    def n_steps(self) -> int:
        """Number of steps, N."""
        return len(self.reward)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether each segment is the last of its episode, (S,)."""
        return self.terminated | self.interrupted

    @staticmethod
    def concatenate(parts: Sequence["Segments"]) -> "Segments":
        """Concatenate the segments of several batches."""
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for field in fields(Segments):
            values = [getattr(part, field.name) for part in parts]
            if field.name == "open_steps":
                joined[field.name] = values[-1]  # open steps of earlier parts have become segments
                continue
            if field.name in ("obs", "last_obs"):
                joined[field.name] = [
                    np.concatenate(arrays) for arrays in zip(*values, strict=True)
                ]
            else:
                joined[field.name] = np.concatenate(values)
        return Segments(**joined)


def to_columns(rows: FloatArray, length: NDArray[np.int64]) -> FloatArray:
    """Pad rows (N, ...) of S segments with zeros to (S, T, ...); T is the longest length."""
    columns = np.zeros((len(length), int(length.max()), *rows.shape[1:]), rows.dtype)
    columns[is_step(length)] = rows
    return columns


def is_step(length: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (S, T) bool, True at steps and False at padding.

    `columns[is_step(length)]` inverts `to_columns`.
    """
    return np.arange(int(length.max())) < length[:, None]


def cut_into(longest: int, length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cut segments into sequences of `longest` steps. The last one of a segment may be shorter.

    Args:
        longest: Number of steps in a sequence.
        length: (S,) lengths of the segments, all positive.

    Returns:
        (sequences,) lengths of the sequences, segment by segment, with the same sum.
    """
    per_segment = -(-length // longest)
    cut = np.full(per_segment.sum(), longest)
    last = np.cumsum(per_segment) - 1
    cut[last] = length - (per_segment - 1) * longest
    return cut
