"""`Demonstrations`: steps from `.demo` files, checked against the behavior.

A file contains records. Its reader pairs every action with the observation for which it was taken.
Step t consists of observation and action of record t, with the reward and the end of record t + 1.
The last record of an episode only closes the previous step: its action is not learned from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.exception import UnityTrainerException
from mlagents_envs.base_env import BehaviorSpec, FloatArray
from mlagents_envs.demonstration_file import (
    SUFFIX,
    Demonstration,
    DemonstrationRecords,
    read_demonstration,
)
from mlagents_envs.exception import UnityException


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """N steps of S episodes, stored consecutively. The last episode of a file may be unfinished.

    Attributes:
        obs: One array per observation, (N, *shape), before the action.
        continuous: (N, A) actions in [-1, 1].
        discrete: (N, K) int32 discrete actions.
        reward: (N,) reward that followed the action, the group's included.
        terminated: (N,) bool, True where the task ended the episode after the action.
        length: (S,) int, number of steps in each episode.
    """

    obs: list[NDArray[Any]]
    continuous: FloatArray
    discrete: NDArray[np.int32]
    reward: FloatArray
    terminated: NDArray[np.bool_]
    length: NDArray[np.int64]

    @property
    def n_steps(self) -> int:
        """Number of steps, N."""
        return len(self.reward)

    def __str__(self) -> str:
        mean = self.reward.sum(dtype=np.float64) / len(self.length)
        return f"{self.n_steps:,} steps in {len(self.length):,} episodes, mean reward {mean:.3f}"

    def split(
        self, share: float, rng: np.random.Generator
    ) -> "tuple[Demonstrations, Demonstrations | None]":
        """Split off random whole episodes: at least one, but not all.

        Args:
            share: Share of the episodes to hold out; 0 holds none out.
            rng: Random generator that selects the episodes.

        Returns:
            The episodes to learn from, and the held-out episodes. These are None if `share` is 0 or
            there is only one episode.
        """
        n_episodes = len(self.length)
        if n_episodes == 1 or share == 0.0:
            return self, None
        n_held_out = min(max(1, round(share * n_episodes)), n_episodes - 1)
        is_held_out = np.zeros(n_episodes, np.bool_)
        is_held_out[rng.permutation(n_episodes)[:n_held_out]] = True
        return self._episodes(~is_held_out), self._episodes(is_held_out)

    def _episodes(self, chosen: NDArray[np.bool_]) -> "Demonstrations":
        rows = np.repeat(chosen, self.length)
        return Demonstrations(
            obs=[batch[rows] for batch in self.obs],
            continuous=self.continuous[rows],
            discrete=self.discrete[rows],
            reward=self.reward[rows],
            terminated=self.terminated[rows],
            length=self.length[chosen],
        )


def load_demonstrations(path: str | Path, spec: BehaviorSpec) -> Demonstrations:
    """Read the demonstrations of a behavior.

    Compressed images keep 8 bits per channel.

    Args:
        path: A `.demo` file, or a folder of `.demo` files.
        spec: Observations and actions of the behavior.

    Raises:
        UnityTrainerException: There is no file, or a file cannot be read, has different
            observations or actions, or contains no step.
    """
    parts = []
    for file in _files(Path(path)):
        demonstration = _read(file)
        _check_fit(file, demonstration.spec, spec)
        steps = _steps(demonstration.records)
        if not steps.n_steps:
            raise UnityTrainerException(
                f"{file}: the demonstration contains no step. Expected at least two consecutive "
                "observations. Record a longer demonstration."
            )
        parts.append(steps)
    return _concatenated(parts)


def demonstrated_spec(path: str | Path) -> BehaviorSpec:
    """Return the observations and actions in a `.demo` file, or in the first one of a folder.

    Raises:
        UnityTrainerException: There is no file, or it cannot be read.
    """
    return _read(_files(Path(path))[0]).spec


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(path.glob(f"*{SUFFIX}"))
        if not files:
            raise UnityTrainerException(
                f"demo_path: the folder {path} contains no {SUFFIX} file. Record a demonstration "
                "there, or set another path."
            )
        return files
    if not path.is_file():
        raise UnityTrainerException(
            f"demo_path: the file or folder {path} does not exist, relative to {Path.cwd()}. Copy "
            "a demonstration there, recorded in Unity or by DemonstrationRecorder "
            "(docs/demonstrations.md)."
        )
    return [path]


def _read(file: Path) -> Demonstration:
    try:
        return read_demonstration(file, keep_8_bit_images=True)
    except (UnityException, OSError) as error:
        raise UnityTrainerException(f"the demonstration cannot be read: {error}") from error


def _check_fit(file: Path, found: BehaviorSpec, expected: BehaviorSpec) -> None:
    """Raise unless both specs have the same observations and actions."""
    advice = "Record it again with the current sensors and actions of the behavior."
    if len(found.observation_specs) != len(expected.observation_specs):
        raise UnityTrainerException(
            f"{file}: expected {len(expected.observation_specs)} observations, "
            f"{[o.name for o in expected.observation_specs]}, but the demonstration has "
            f"{len(found.observation_specs)}: {[o.name for o in found.observation_specs]}. {advice}"
        )
    pairs = zip(found.observation_specs, expected.observation_specs, strict=True)
    for number, (of_file, of_behavior) in enumerate(pairs):
        if of_file.shape != of_behavior.shape:
            raise UnityTrainerException(
                f"{file}: observation {number}, {of_behavior.name!r}: expected the shape "
                f"{of_behavior.shape}, but the demonstration has {of_file.shape}. {advice}"
            )
    if found.action_spec != expected.action_spec:
        raise UnityTrainerException(
            f"{file}: expected actions {expected.action_spec}, but the demonstration has "
            f"{found.action_spec}. {advice}"
        )


def _steps(records: DemonstrationRecords) -> Demonstrations:
    """Pair each action with the reward and the end that followed it."""
    episodes = records.episodes()
    # Every record of an episode except the last begins a step, which ends at the next record.
    rows = np.concatenate([episode[:-1] for episode in episodes])
    after = np.concatenate([episode[1:] for episode in episodes])
    length = np.array([len(episode) - 1 for episode in episodes], np.int64)
    return Demonstrations(
        obs=[batch[rows] for batch in records.obs],
        # A policy cannot exceed these limits.
        continuous=records.action.continuous[rows].clip(-1.0, 1.0),
        discrete=records.action.discrete[rows],
        reward=records.reward[after] + records.group_reward[after],
        terminated=records.done[after] & ~records.interrupted[after],
        length=length[length > 0],
    )


def _concatenated(parts: Sequence[Demonstrations]) -> Demonstrations:
    return Demonstrations(
        obs=[np.concatenate(arrays) for arrays in zip(*(part.obs for part in parts), strict=True)],
        continuous=np.concatenate([part.continuous for part in parts]),
        discrete=np.concatenate([part.discrete for part in parts]),
        reward=np.concatenate([part.reward for part in parts]),
        terminated=np.concatenate([part.terminated for part in parts]),
        length=np.concatenate([part.length for part in parts]),
    )
