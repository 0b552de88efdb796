"""`Columns`, the content of lanes, and `Rows`, the arrays of finished steps."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import BehaviorSpec


@dataclass(slots=True)
class Columns:
    """Content of the lanes: columns (lanes, time horizon, ...), followed by columns (lanes,)."""

    obs: list[NDArray[Any]]
    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    action_mask: NDArray[np.bool_]
    memory: NDArray[np.float32]
    """(lanes, sequences, memory size) memory before the first step of each sequence."""
    tick: NDArray[np.int64]
    """(lanes, time horizon) number of the report that opened each step; (lanes, 0) if unused."""
    reward: NDArray[np.float32]
    group_reward: NDArray[np.float32]

    length: NDArray[np.int64]
    """Number of closed steps, and thus the index of the open step."""
    is_open: NDArray[np.bool_]
    """Whether there is an open step, which waits for its reward."""
    remembered_before: NDArray[np.float32]
    """(lanes, memory size) memory before the open step."""
    episode: NDArray[np.int64]
    episode_return: NDArray[np.float64]
    episode_group_return: NDArray[np.float64]
    episode_length: NDArray[np.int64]

    @classmethod
    def empty(
        cls,
        spec: BehaviorSpec,
        horizon: int,
        n_sequences: int,
        memory_size: int,
        *,
        with_ticks: bool,
    ) -> Self:
        """Return columns with no lanes."""
        n_lanes = 0
        actions, shape = spec.action_spec, (n_lanes, horizon)
        n_actions, n_branches = actions.continuous_size, actions.discrete_size
        return cls(
            obs=[np.zeros(shape + o.shape, o.dtype) for o in spec.observation_specs],
            continuous=np.zeros((*shape, n_actions), np.float32),
            discrete=np.zeros((*shape, n_branches), np.int32),
            log_probs=np.zeros((*shape, n_actions + n_branches), np.float32),
            action_mask=np.zeros((*shape, sum(actions.discrete_branches)), np.bool_),
            memory=np.zeros((n_lanes, n_sequences, memory_size), np.float32),
            tick=np.zeros((n_lanes, horizon if with_ticks else 0), np.int64),
            reward=np.zeros(shape, np.float32),
            group_reward=np.zeros(shape, np.float32),
            length=np.zeros(n_lanes, np.int64),
            is_open=np.zeros(n_lanes, np.bool_),
            remembered_before=np.zeros((n_lanes, memory_size), np.float32),
            episode=np.zeros(n_lanes, np.int64),
            episode_return=np.zeros(n_lanes, np.float64),
            episode_group_return=np.zeros(n_lanes, np.float64),
            episode_length=np.zeros(n_lanes, np.int64),
        )

    def before_reward(self) -> list[NDArray[Any]]:
        """Return the columns that are written before a step's reward is known."""
        decided = [self.continuous, self.discrete, self.log_probs, self.action_mask]
        ticks = [self.tick] if self.tick.shape[1] else []
        return [*self.obs, *decided, *ticks]

    def per_step(self) -> list[NDArray[Any]]:
        """Return all columns of steps, in the order of the fields."""
        return [*self.before_reward(), self.reward, self.group_reward]

    def extend(self, n_lanes: int) -> None:
        """Make room for more lanes."""
        for name in (field.name for field in fields(self)):
            held = getattr(self, name)
            if name == "obs":
                self.obs = [extended(column, n_lanes) for column in held]
            else:
                setattr(self, name, extended(held, n_lanes))

    def release(self) -> None:
        """Free the memory of all observations except the first of each lane."""
        for i, column in enumerate(self.obs):
            self.obs[i] = np.zeros(column.shape, column.dtype)
            self.obs[i][:, 0] = column[:, 0]


def extended(column: NDArray[Any], n_lanes: int) -> NDArray[Any]:
    """Return a column extended with zeros; the system allocates memory only as it is written."""
    more = np.zeros((n_lanes, *column.shape[1:]), column.dtype)
    more[: len(column)] = column
    return more


class Rows:
    """Rows of several arrays, appended in place.

    Args:
        n_rows: Initial capacity in rows.
        like: Arrays whose shapes after the first two axes, and types, are those of the rows.
    """

    def __init__(self, n_rows: int, like: list[NDArray[Any]]) -> None:
        self.n_rows = 0
        self._columns = [np.empty((n_rows, *one.shape[2:]), one.dtype) for one in like]

    def append(self, spans: list[tuple[int, int]], lanes_of: list[NDArray[Any]]) -> None:
        """Append the first steps of lanes.

        Args:
            spans: Pairs of a lane and its number of steps, in the order to append.
            lanes_of: One array (lanes, time horizon, ...) per column.
        """
        end = self.n_rows + sum(n_steps for _, n_steps in spans)
        for i, source in enumerate(lanes_of):
            column = self._columns[i]
            if len(column) < end:
                grown = np.empty((max(end, 2 * len(column)), *column.shape[1:]), column.dtype)
                grown[: self.n_rows] = column[: self.n_rows]
                self._columns[i] = column = grown
            at = self.n_rows
            for lane, n_steps in spans:
                column[at : at + n_steps] = source[lane, :n_steps]
                at += n_steps
        self.n_rows = end

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the written part of every array."""
        return iter([column[: self.n_rows] for column in self._columns])
