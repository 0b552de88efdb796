"""Past experience to learn from again: a ring of arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.exception import UnityTrainerException
from mlagents_envs.base_env import BehaviorSpec

Rows = NDArray[np.int64]

FIRST_ROWS = 1024
"""Rows that a new ring has room for."""


class Ring:
    """Rows of several arrays, numbered as they come; the newest replace the oldest.

    The arrays double until they have room for `capacity` rows: what never fills costs little.

    Args:
        capacity: Rows that are kept.
        columns: Shape of one row, and type, of each array.

    Attributes:
        end: Number that the next row will have.
    """

    def __init__(self, capacity: int, columns: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
        self.capacity = capacity
        self.end = 0
        n_rows = min(capacity, FIRST_ROWS)
        self._columns = {
            name: np.zeros((n_rows, *shape), dtype) for name, (shape, dtype) in columns.items()
        }

    @property
    def start(self) -> int:
        """Number of the oldest row that is kept."""
        return max(0, self.end - self.capacity)

    def append(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add the same number of rows to every array."""
        numbers = np.arange(self.end, self.end + len(next(iter(rows.values()))))
        self.end += len(numbers)
        numbers = numbers[-self.capacity :]
        for name, column in self._columns.items():
            if len(column) < min(self.end, self.capacity):
                self._columns[name] = column = self._grown(column)
            column[numbers % self.capacity] = rows[name][len(rows[name]) - len(numbers) :]

    def column(self, name: str) -> NDArray[Any]:
        """One array, rows in the order of the ring."""
        return self._columns[name]

    def take(self, name: str, numbers: Rows) -> NDArray[Any]:
        """Return some of the rows of one array, in a new one."""
        return self._columns[name].take(numbers % self.capacity, axis=0)

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return all that is kept, for `restore`; the arrays are not copied."""
        n_rows = self.end - self.start
        columns = {name: column[:n_rows] for name, column in self._columns.items()}
        return {**columns, "end": np.array(self.end)}

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Begin with what another ring kept, oldest first; its capacity may have been another.

        Raises:
            ValueError: It kept something else.
        """
        rows: dict[str, NDArray[Any]] = {}
        end = int(saved["end"])
        for name, column in self._columns.items():
            found = saved[name]
            if found.shape[1:] != column.shape[1:] or found.dtype != column.dtype:
                raise ValueError(
                    f"{name}: expected {column.dtype} of shape {column.shape[1:]} for each row, "
                    f"got {found.dtype} of shape {found.shape[1:]}"
                )
            rows[name] = np.roll(found, -(end % max(1, len(found))), axis=0)
        self.append(rows)

    def _grown(self, column: NDArray[Any]) -> NDArray[Any]:
        n_rows = min(max(2 * len(column), self.end), self.capacity)
        grown = np.zeros((n_rows, *column.shape[1:]), column.dtype)
        grown[: len(column)] = column
        return grown


class Replayed(NamedTuple):
    """B steps drawn from a replay buffer, in S sequences that lie one after the other.

    Attributes:
        obs: One (B, *shape) per observation: what was acted on.
        next_obs: The same of what followed.
        continuous: (B, A) as the environment was sent them.
        discrete: (B, K).
        action_mask: (B, sum of branches) True where an action was not allowed.
        reward: (B,) of the agent and its group.
        terminated: (B,) whether the task ended the episode after the step.
        memory: (S, memory size) before the first step of each sequence.
        length: (S,), adding up to B.
    """

    obs: list[NDArray[Any]]
    next_obs: list[NDArray[Any]]
    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    memory: NDArray[np.float32]
    length: Rows


class Replay:
    """The newest experience of a behavior, to be drawn in sequences.

    What was observed lies in order, so that what followed a step is found in the next row, and is
    held once. Behind the last step of a segment a row holds only what followed.

    Args:
        spec: What the behavior observes and does.
        capacity: Rows that are held. Of `capacity` the rows behind segments are no steps.
        longest: Steps of a sequence; the last of a segment may be shorter.
        memory_size: Numbers that an agent remembers.
    """

    def __init__(
        self, spec: BehaviorSpec, *, capacity: int, longest: int = 1, memory_size: int = 0
    ) -> None:
        actions = spec.action_spec
        self._longest = longest
        self._obs = [f"obs_{i}" for i in range(len(spec.observation_specs))]
        self._rows = Ring(
            capacity,
            {
                name: (observation.shape, observation.dtype)
                for name, observation in zip(self._obs, spec.observation_specs, strict=True)
            }
            | {
                "continuous_actions": ((actions.continuous_size,), np.float32),
                "discrete_actions": ((actions.discrete_size,), np.int32),
                "action_mask": ((sum(actions.discrete_branches),), np.bool_),
                "reward": ((), np.float32),
                "terminated": ((), np.bool_),
            },
        )
        self._sequences = Ring(
            capacity,
            {
                "row": ((), np.int64),
                "length": ((), np.int64),
                "memory": ((memory_size,), np.float32),
            },
        )
        self._oldest = 0  # sequence whose rows are all held

    @property
    def n_rows(self) -> int:
        """Rows that are held."""
        return self._rows.end - self._rows.start

    @property
    def n_sequences(self) -> int:
        """Sequences to draw from."""
        return self._sequences.end - self._oldest

    def add(self, segments: Segments) -> None:
        """Append finished segments; the oldest experience makes room for them."""
        n_segments = len(segments.length)
        # Every segment moves on by the rows behind the segments before it.
        steps = np.arange(segments.n_steps) + np.repeat(np.arange(n_segments), segments.length)
        behind = np.cumsum(segments.length) + np.arange(n_segments)

        def spread(of_steps: NDArray[Any], of_last: Any = 0) -> NDArray[Any]:
            shape = (segments.n_steps + n_segments, *of_steps.shape[1:])
            column = np.empty(shape, of_steps.dtype)
            column[steps], column[behind] = of_steps, of_last
            return column

        terminated = np.zeros(segments.n_steps, np.bool_)
        terminated[np.cumsum(segments.length) - 1] = segments.terminated
        length = cut_into(self._longest, segments.length)
        first = np.cumsum(length) - length  # step that each sequence begins with
        self._sequences.append(
            {
                "row": self._rows.end + steps[first],
                "length": length,
                "memory": segments.memory,
            }
        )
        self._rows.append(
            {
                name: spread(obs, last_obs)
                for name, obs, last_obs in zip(
                    self._obs, segments.obs, segments.last_obs, strict=True
                )
            }
            | {
                "continuous_actions": spread(segments.continuous),
                "discrete_actions": spread(segments.discrete),
                "action_mask": spread(segments.action_mask),
                "reward": spread(segments.reward + segments.group_reward),
                "terminated": spread(terminated),
            }
        )
        self._forget_overwritten()

    def _forget_overwritten(self) -> None:
        """Leave out the sequences whose first rows have made room for newer ones."""
        self._oldest = max(self._oldest, self._sequences.start)
        # The rows are in the order of the sequences: it is enough to look until one is held.
        while self._oldest < self._sequences.end:
            numbers = np.arange(self._oldest, min(self._oldest + 256, self._sequences.end))
            is_gone = self._sequences.take("row", numbers) < self._rows.start
            self._oldest += int(is_gone.sum())
            if not is_gone.all():
                return

    def take(self, sequences: Rows) -> Replayed:
        """Return sequences by their place from the oldest, 0, to the newest."""
        numbers = self._oldest + sequences
        length = self._sequences.take("length", numbers)
        row = self._sequences.take("row", numbers)
        if self._longest > 1:
            within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            row = np.repeat(row, length) + within
        return Replayed(
            obs=[self._rows.take(name, row) for name in self._obs],
            next_obs=[self._rows.take(name, row + 1) for name in self._obs],
            continuous=self._rows.take("continuous_actions", row),
            discrete=self._rows.take("discrete_actions", row),
            action_mask=self._rows.take("action_mask", row),
            reward=self._rows.take("reward", row),
            terminated=self._rows.take("terminated", row),
            memory=self._sequences.take("memory", numbers),
            length=length,
        )

    def save(self, file: BinaryIO) -> None:
        """Write everything to an `.npz` file."""
        arrays = {
            f"{kind}.{name}": array
            for kind, ring in self._rings.items()
            for name, array in ring.saved().items()
        }
        np.savez(file, **arrays)  # type: ignore[arg-type]  # of an option that is not given

    def load(self, path: Path) -> None:
        """Begin with what `save` wrote; the capacity may have been another.

        Raises:
            UnityTrainerException: It cannot be read, or is of another behavior.
        """
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                for kind, ring in self._rings.items():
                    names = [name for name in file if name.startswith(f"{kind}.")]
                    ring.restore({name.removeprefix(f"{kind}."): file[name] for name in names})
                renumbered = int(file["rows.end"]) - self._rows.end
        except (OSError, EOFError, KeyError, ValueError, BadZipFile) as error:
            raise UnityTrainerException(
                f"replay buffer {path} cannot be loaded: {error}. It must be of a behavior with "
                "the same observations, actions and memory. Without the file, the run resumes "
                "with an empty buffer."
            ) from error
        self._sequences.column("row")[:] -= renumbered
        self._forget_overwritten()

    @property
    def _rings(self) -> dict[str, Ring]:
        return {"rows": self._rows, "sequences": self._sequences}
