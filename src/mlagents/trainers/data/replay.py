"""Replay buffer: ring buffers of past experience."""

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
"""Initial number of rows of a ring buffer."""


class Ring:
    """Ring buffer of numbered rows in several arrays, in which new rows replace the oldest.

    The arrays start small and grow up to `capacity` rows, so unused capacity takes no memory.

    Args:
        capacity: Number of rows to keep.
        columns: Shape of a row and data type of each array, by name.

    Attributes:
        end: Number of the next row.
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
        """Number of the oldest row kept."""
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
        """Return one array, with rows in storage order."""
        return self._columns[name]

    def take(self, name: str, numbers: Rows) -> NDArray[Any]:
        """Return a copy of the given rows of one array."""
        return self._columns[name].take(numbers % self.capacity, axis=0)

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return the state for `restore`, without copying the arrays."""
        n_rows = self.end - self.start
        columns = {name: column[:n_rows] for name, column in self._columns.items()}
        return {**columns, "end": np.array(self.end)}

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Append the rows that `saved` returned, oldest first. The saved capacity may differ.

        Raises:
            ValueError: The saved rows have another shape or type.
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
    """B steps drawn from a replay buffer, in S sequences stored consecutively.

    Attributes:
        obs: One array (B, *shape) per observation, before the action.
        next_obs: Observations after the step, in the same form.
        continuous: (B, A) continuous actions as sent to the environment.
        discrete: (B, K) discrete actions.
        action_mask: (B, sum of branches) True where an action was not allowed.
        reward: (B,) reward of the agent plus its group's, or a discounted sum of several.
        terminated: (B,) True where the task ended the episode after the step.
        memory: (S, memory size) memory before the first step of each sequence.
        length: (S,) number of steps in each sequence; the sum is B.
        n_rewards: (B,) number of rewards in each sum; None if `reward` covers a single step.
            `next_obs` and `terminated` belong to the last step of the sum.
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
    n_rewards: Rows | None = None


class Replay:
    """Replay buffer with the newest experience of a behavior, sampled in sequences.

    Rows are in chronological order, so the next observations of a step are in the next row and are
    stored only once. After the last step of a segment, an additional row contains only the
    observations that followed.

    Args:
        spec: Observations and actions of the behavior.
        capacity: Number of rows to keep, including the additional row of each segment.
        longest: Number of steps in a sequence. The last one of a segment may be shorter.
        memory_size: Size of the memory of each agent.
        n_step: Largest number of rewards in a sum. Sums for a segment's last steps have fewer. If
            above 1, `longest` must be 1.
        gamma: Discount per step within a sum.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        *,
        capacity: int,
        longest: int = 1,
        memory_size: int = 0,
        n_step: int = 1,
        gamma: float = 1.0,
    ) -> None:
        actions = spec.action_spec
        assert n_step == 1 or longest == 1
        self._longest = longest
        self._n_step, self._gamma = n_step, gamma
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
            }
            | ({} if n_step == 1 else {"steps_left": ((), np.int64)}),
        )
        self._sequences = Ring(
            capacity,
            {
                "row": ((), np.int64),
                "length": ((), np.int64),
                "memory": ((memory_size,), np.float32),
            },
        )
        self._oldest = 0  # oldest sequence whose rows are all kept

    @property
    def n_rows(self) -> int:
        """Number of rows kept."""
        return self._rows.end - self._rows.start

    @property
    def n_sequences(self) -> int:
        """Number of sequences kept."""
        return self._sequences.end - self._oldest

    def add(self, segments: Segments) -> None:
        """Append finished segments, replacing the oldest experience."""
        n_segments = len(segments.length)
        # The additional row of each earlier segment shifts the rows by one.
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
        first = np.cumsum(length) - length  # first step of each sequence
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
            | ({} if self._n_step == 1 else {"steps_left": spread(steps_left(segments.length))})
        )
        self._forget_overwritten()

    def _forget_overwritten(self) -> None:
        """Drop the sequences whose first rows were overwritten."""
        self._oldest = max(self._oldest, self._sequences.start)
        # Rows are in the order of sequences, so the search stops at the first one kept.
        while self._oldest < self._sequences.end:
            numbers = np.arange(self._oldest, min(self._oldest + 256, self._sequences.end))
            is_gone = self._sequences.take("row", numbers) < self._rows.start
            self._oldest += int(is_gone.sum())
            if not is_gone.all():
                return

    def take(self, sequences: Rows) -> Replayed:
        """Return sequences by index; 0 is the oldest."""
        numbers = self._oldest + sequences
        length = self._sequences.take("length", numbers)
        row = self._sequences.take("row", numbers)
        if self._longest > 1:
            within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            row = np.repeat(row, length) + within
        n_rewards, last = None, row
        reward = self._rows.take("reward", row)
        if self._n_step > 1:
            n_rewards = np.minimum(self._n_step, self._rows.take("steps_left", row))
            last = row + n_rewards - 1
            for ahead in range(1, self._n_step):
                later = self._rows.take("reward", np.minimum(row + ahead, last))
                reward += np.float32(self._gamma**ahead) * later * (ahead < n_rewards)
        return Replayed(
            obs=[self._rows.take(name, row) for name in self._obs],
            next_obs=[self._rows.take(name, last + 1) for name in self._obs],
            continuous=self._rows.take("continuous_actions", row),
            discrete=self._rows.take("discrete_actions", row),
            action_mask=self._rows.take("action_mask", row),
            reward=reward,
            terminated=self._rows.take("terminated", last),
            memory=self._sequences.take("memory", numbers),
            length=length,
            n_rewards=n_rewards,
        )

    def save(self, file: BinaryIO) -> None:
        """Write the buffer to an `.npz` file."""
        arrays = {
            f"{kind}.{name}": array
            for kind, ring in self._rings.items()
            for name, array in ring.saved().items()
        }
        np.savez(file, **arrays)  # type: ignore[arg-type]  # names an option that is not used

    def load(self, path: Path) -> None:
        """Load a buffer that `save` wrote. The saved capacity may differ.

        Raises:
            UnityTrainerException: The file cannot be read or belongs to another behavior.
        """
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                for kind, ring in self._rings.items():
                    names = [name for name in file if name.startswith(f"{kind}.")]
                    ring.restore({name.removeprefix(f"{kind}."): file[name] for name in names})
                renumbered = int(file["rows.end"]) - self._rows.end
        except (OSError, EOFError, KeyError, ValueError, BadZipFile) as error:
            raise UnityTrainerException(
                f"replay buffer {path} cannot be loaded: {error}. Expected a buffer of a behavior "
                "with the same observations, actions and memory. If you remove the file, the run "
                "resumes with an empty buffer."
            ) from error
        self._sequences.column("row")[:] -= renumbered
        self._forget_overwritten()

    @property
    def _rings(self) -> dict[str, Ring]:
        return {"rows": self._rows, "sequences": self._sequences}


def steps_left(length: Rows) -> Rows:
    """Return how many steps of its segment remain at each step, the step itself included.

    Args:
        length: (S,) number of steps in each segment; the sum is N.

    Returns:
        (N,) 1 for the last step of each segment.
    """
    return np.repeat(np.cumsum(length), length) - np.arange(length.sum())
