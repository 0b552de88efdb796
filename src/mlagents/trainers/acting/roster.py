"""`Roster`: snapshots that act together; `RosterMemories`: the snapshot of each agent.

The last element of an agent's memory is the number of its snapshot. A decision for agents with K
snapshots takes K forward passes, or a single one if the networks are small. Actions are sampled
once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.memories import Lanes, Memories
from mlagents.trainers.data.snapshot import DenseSnapshot, Outputs, Snapshot
from mlagents_envs.base_env import AgentId, BehaviorName, DecisionSteps, TerminalSteps

FloatArray = NDArray[np.float32]

LATEST = -1
"""Number of the current policy, which changes as it learns."""


class Roster:
    """Several snapshots of one network; each agent has one of them.

    Args:
        latest: Function that returns the current policy.

    Attributes:
        snapshots: Snapshots by number, from 0.
    """

    def __init__(self, latest: Callable[[], Snapshot]) -> None:
        self.snapshots: dict[int, Snapshot] = {}
        self._latest = latest
        self._identities: tuple[int, ...] = ()
        self._held: list[Snapshot] = []
        """Snapshots of `_identities`, held so that their ids are not reused."""
        self._stack: DenseSnapshot | None = None

    @property
    def squashed(self) -> bool:
        """Whether tanh squashes continuous actions into [-1, 1]."""
        return self._latest().squashed

    @property
    def memory_size(self) -> int:
        """Size of the memory of each agent: the policy's memory, plus the snapshot number."""
        return self._latest().memory_size + 1

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """Map one array (N, *shape) per observation, and memory (N, memory size), to outputs."""
        numbers = memory[:, -1].astype(np.int64)
        present = sorted(set(numbers.tolist()))
        acting = [self._latest() if n == LATEST else self.snapshots[n] for n in present]
        if len(present) == 1:
            outputs = acting[0].forward(obs, memory[:, :-1])
            after = memory if memory.shape[1] == 1 else memory.copy()
            after[:, :-1] = outputs.memory
            return outputs._replace(memory=after)
        place = np.searchsorted(present, numbers)
        if len(numbers) <= _MOST_STACKED and (stack := self._stack_for(acting)) is not None:
            return _together(stack, obs, place, memory)
        return _one_by_one(acting, obs, place, memory)

    def _stack_for(self, acting: list[Snapshot]) -> DenseSnapshot | None:
        """Return a stack of small snapshots, cached until others act; None for large ones."""
        identities = tuple(map(id, acting))
        if identities != self._identities:
            self._identities, self._held = identities, acting
            self._stack = _stack_of(acting)
        return self._stack


def _one_by_one(
    acting: Sequence[Snapshot],
    obs: Sequence[NDArray[Any]],
    place: NDArray[np.int64],
    memory: FloatArray,
) -> Outputs:
    """Run each snapshot on its own rows."""
    after = memory.copy()
    mean = log_std = logits = None
    for k, snapshot in enumerate(acting):
        rows = np.flatnonzero(place == k)
        part = snapshot.forward([batch[rows] for batch in obs], memory[rows, :-1])
        mean = _scattered(mean, part.mean, rows, len(memory))
        logits = _scattered(logits, part.logits, rows, len(memory))
        if part.log_std is not None:
            of_rows = np.broadcast_to(part.log_std, (len(rows), part.log_std.shape[-1]))
            log_std = _scattered(log_std, of_rows, rows, len(memory))
        after[rows, :-1] = part.memory
    return Outputs(mean, log_std, logits, after)


def _scattered(
    whole: FloatArray | None, part: FloatArray | None, rows: NDArray[np.int64], n_rows: int
) -> FloatArray | None:
    """Write a part into rows of the whole array, which the first part allocates."""
    if part is None:
        return None
    if whole is None:
        whole = np.empty((n_rows, *part.shape[1:]), np.float32)
    whole[rows] = part
    return whole


_MOST_STACKED = 256
"""Largest number of agents for which stacked snapshots are faster than separate forward passes."""

_WIDEST_STACKED = 256
"""Largest number of inputs or units of a layer for which stacked snapshots are faster."""


def _stack_of(acting: Sequence[Snapshot]) -> DenseSnapshot | None:
    """Stack the arrays of several snapshots into one snapshot; return None for large ones.

    The stack maps (K, rows, size) to the outputs of K snapshots, so a layer is one product of
    stacked matrices. For small networks, this is faster than K forward passes.
    """
    dense = [each for each in acting if isinstance(each, DenseSnapshot)]
    if len(dense) < len(acting):
        return None
    if any(max(weights.shape) > _WIDEST_STACKED for weights, _ in dense[0].layers):
        return None
    stack: DenseSnapshot = _stacked(dense)
    return stack


def _stacked(parts: Sequence[Any]) -> Any:
    """Stack the arrays of nested tuples and lists, with a new first axis."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.stack(parts)[:, None] if first.ndim == 1 else np.stack(parts)
    if not isinstance(first, tuple | list):
        return first
    inner = [_stacked(of_all) for of_all in zip(*parts, strict=True)]
    return DenseSnapshot(*inner) if isinstance(first, DenseSnapshot) else type(first)(inner)


def _together(
    stack: DenseSnapshot, obs: Sequence[NDArray[Any]], place: NDArray[np.int64], memory: FloatArray
) -> Outputs:
    """Run a stack of snapshots, with each snapshot's rows padded to the same number.

    Args:
        stack: Stack of K snapshots.
        obs: One (N, size) per observation.
        place: (N,) index of each row's snapshot in the stack.
        memory: (N, memory size) memory, which dense layers do not change.
    """
    n_rows = np.bincount(place)
    order = np.argsort(place, kind="stable")
    row = np.empty_like(place)
    row[order] = np.arange(len(place)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    padded = [np.zeros((len(n_rows), n_rows.max(), each.shape[1]), np.float32) for each in obs]
    for batch, rows in zip(padded, obs, strict=True):
        batch[place, row] = rows
    mean, log_std, logits, _ = stack.forward(padded, memory)
    return Outputs(
        None if mean is None else mean[place, row],
        None if log_std is None else log_std[place, row if stack.squashed else 0],
        None if logits is None else logits[place, row],
        memory,
    )


class RosterMemories(Memories):
    """Memories of agents that act with snapshots of a `Roster`.

    Args:
        memory_size: Size of each agent's memory in the roster.
        numbers_of: Function that maps a player and agent ids to snapshot numbers. If the number of
            an agent changes, its memory is cleared.
    """

    def __init__(
        self, memory_size: int, numbers_of: Callable[[int, Sequence[AgentId]], Sequence[int]]
    ) -> None:
        super().__init__(memory_size)
        self._numbers_of = numbers_of

    def observe(
        self,
        player: int,
        decisions: DecisionSteps,
        terminals: TerminalSteps,
        *,
        behavior: BehaviorName = "",
    ) -> Lanes:
        """Process the report of a player; see `Memories.observe`."""
        lanes = super().observe(player, decisions, terminals, behavior=behavior)
        numbers = np.array(self._numbers_of(player, decisions.agent_id.tolist()), np.float32)
        changed = lanes[self._remembered[lanes, -1] != numbers]
        self._remembered[changed] = 0.0
        self._remembered[lanes, -1] = numbers
        return lanes
