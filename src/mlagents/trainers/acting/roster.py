"""`Roster`: snapshots that act together; `RosterMemories`: the snapshot of each agent.

The number of an agent's snapshot is the last number of its memory. A decision for agents with K
snapshots therefore takes K forward passes, or a single one if the networks are small, and samples
once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.collector import Lanes, Memories
from mlagents.trainers.data.snapshot import Outputs, Snapshot
from mlagents_envs.base_env import AgentId, DecisionSteps, TerminalSteps

FloatArray = NDArray[np.float32]

LATEST = -1
"""Number of the present policy, which changes as it learns."""


class Roster:
    """Several snapshots of one network; each agent has one of them.

    Args:
        latest: Function that returns the present policy.

    Attributes:
        snapshots: Snapshots by their number, 0 or more.
    """

    def __init__(self, latest: Callable[[], Snapshot]) -> None:
        self.snapshots: dict[int, Snapshot] = {}
        self._latest = latest

    @property
    def squashed(self) -> bool:
        """Whether tanh squashes continuous actions into [-1, 1]."""
        return self._latest().squashed

    @property
    def memory_size(self) -> int:
        """Size of the memory of each agent: the policy's, and the number of the snapshot."""
        return self._latest().memory_size + 1

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """Map one (N, *shape) per observation and (N, memory size) to outputs of the heads."""
        numbers = memory[:, -1].astype(np.int64)
        present = np.unique(numbers).tolist()
        if len(present) == 1:
            outputs = self._of(present[0]).forward(obs, memory[:, :-1])
            return outputs._replace(memory=np.column_stack([outputs.memory, memory[:, -1]]))
        after = memory.copy()
        mean = log_std = logits = None
        for number in present:
            rows = np.flatnonzero(numbers == number)
            part = self._of(number).forward([batch[rows] for batch in obs], memory[rows, :-1])
            mean = _scattered(mean, part.mean, rows, len(memory))
            logits = _scattered(logits, part.logits, rows, len(memory))
            if part.log_std is not None:
                of_rows = np.broadcast_to(part.log_std, (len(rows), part.log_std.shape[-1]))
                log_std = _scattered(log_std, of_rows, rows, len(memory))
            after[rows, :-1] = part.memory
        return Outputs(mean, log_std, logits, after)

    def _of(self, number: int) -> Snapshot:
        return self._latest() if number == LATEST else self.snapshots[number]


def _scattered(
    whole: FloatArray | None, part: FloatArray | None, rows: NDArray[np.int64], n_rows: int
) -> FloatArray | None:
    """Write a part into rows of the whole, which is made by its first part."""
    if part is None:
        return None
    if whole is None:
        whole = np.empty((n_rows, *part.shape[1:]), np.float32)
    whole[rows] = part
    return whole


class RosterMemories(Memories):
    """Memories of agents that act by snapshots of a `Roster`.

    Args:
        memory_size: Size of the memory that the roster keeps for every agent.
        numbers_of: Function from a player and ids of its agents to the numbers of their snapshots.
            If the number of an agent changes, its memory is cleared.
    """

    def __init__(
        self, memory_size: int, numbers_of: Callable[[int, Sequence[AgentId]], Sequence[int]]
    ) -> None:
        super().__init__(memory_size)
        self._numbers_of = numbers_of

    def observe(self, player: int, decisions: DecisionSteps, terminals: TerminalSteps) -> Lanes:
        """Process the report of a player; see `Memories.observe`."""
        lanes = super().observe(player, decisions, terminals)
        numbers = np.array(self._numbers_of(player, decisions.agent_id.tolist()), np.float32)
        changed = lanes[self._remembered[lanes, -1] != numbers]
        self._remembered[changed] = 0.0
        self._remembered[lanes, -1] = numbers
        return lanes
