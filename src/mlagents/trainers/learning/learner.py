"""`Learner`: learns from segments and returns snapshots of the policy."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import nn

from mlagents.trainers.algorithms.base import Algorithm, ClosedError
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward, RewardSignal
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.export.export import export_onnx
from mlagents.trainers.learning.background import in_background
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import BehaviorSpec, FloatArray
from mlagents_envs.timers import TimerNode, get_timer_root, hierarchical_timer


class Update(NamedTuple):
    """Result of finished updates.

    Attributes:
        plots: Numbers to plot, by tag; one dictionary per update.
        snapshot: Policy to act with from now on.
    """

    plots: list[dict[str, float]]
    snapshot: Snapshot


class Learner(ABC):
    """Decides which experience to keep and when to learn from it. An algorithm decides how.

    A behavior with `threaded: true` learns in its own thread while its agents continue. They act
    with the snapshot of the last finished update. Only one update runs at a time; the next one
    waits for it. Experience is therefore at most one update older than the policy that learns
    from it.

    Args:
        name: Name of the behavior, for messages.
        algorithm: Algorithm to run. While an update runs, only the update may use its weights.
        settings: Settings of the behavior.

    Attributes:
        others_can_learn: Whether `can_learn` is true for all learners that learn together.
    """

    counts_own_steps: ClassVar[bool] = False
    """Whether the step count includes steps learned from instead of steps taken by agents."""

    def __init__(self, name: str, algorithm: Algorithm, settings: BehaviorSettings) -> None:
        self.name = name
        self.algorithm = algorithm
        self.settings = settings
        self._running: Future[tuple[dict[str, float], TimerNode]] | None = None
        self.others_can_learn = True
        self._plots: list[dict[str, float]] = []
        self._snapshot: Snapshot | None = None
        """Snapshot of the last update that `finished` has not returned yet."""

    @property
    def spec(self) -> BehaviorSpec:
        """Observations and actions of the behavior."""
        return self.algorithm.spec

    @property
    def longest_segment(self) -> int:
        """Largest number of an agent's steps in a segment."""
        return self.settings.time_horizon

    @property
    def sequence_length(self) -> int | None:
        """Number of steps in the sequences that segments are cut into; None for whole segments."""
        memory = self.settings.network_settings.memory
        return None if memory is None else memory.sequence_length

    @property
    def wants(self) -> int:
        """Number of steps that `learn` needs. Unfinished segments are cut to reach it.

        If it is 0, `learn` gets finished segments as soon as there are any.
        """
        return 0

    @property
    def can_learn(self) -> bool:
        """Whether there is enough past experience to learn from."""
        return True

    @abstractmethod
    def learn(self, segments: Segments | None, *, step: int, n_unfinished: int) -> int:
        """Store experience, and start an update if there is enough.

        Args:
            segments: New experience, if there is any.
            step: Step count of the behavior.
            n_unfinished: Number of steps in unfinished segments, which `step` does not include.

        Returns:
            Number of steps learned from if `counts_own_steps` is set, otherwise 0.
        """

    def finished(self) -> Update | None:
        """Return the result of the updates finished since the last call; None if there are none."""
        if self._running is not None and self._running.done():
            self.settle()
        if self._snapshot is None:
            return None
        update = Update(self._plots, self._snapshot)
        self._plots, self._snapshot = [], None
        return update

    def settle(self) -> None:
        """Wait for the running update, if there is one.

        Raises:
            Exception: Any exception that the update raised.
        """
        if self._running is None:
            return
        running, self._running = self._running, None
        with hierarchical_timer("wait_for_update"):
            plots, times = running.result()
        get_timer_root().merge(times, "trainer_threads")
        self._has_updated(plots)

    def close(self) -> None:
        """Stop the running update, if there is one, at its next gradient step."""
        self.algorithm.close()
        if self._running is not None:
            wait([self._running])

    @property
    def has_diverged(self) -> bool:
        """Whether any weight is NaN or infinite."""
        self.settle()
        return self.algorithm.has_diverged

    def digest(self) -> str:
        """Return a digest of all weights, to check that learners have equal weights."""
        self.settle()
        digest = hashlib.sha256()
        for network in self.algorithm.modules().values():
            for weight in network.parameters() if isinstance(network, nn.Module) else ():
                digest.update(weight.detach().cpu().numpy().tobytes())
        return digest.hexdigest()

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, without unused experience."""
        self.settle()
        return {
            **{name: module.state_dict() for name, module in self.algorithm.modules().items()},
            "random_states": {"minibatches": self.algorithm.generator.get_state()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the saved `state` of a run."""
        for name, module in self.algorithm.modules().items():
            module.load_state_dict(state[name])
        self.algorithm.generator.set_state(state["random_states"]["minibatches"])
        self._snapshot = self.algorithm.snapshot()

    def load_weights(self, state: dict[str, Any]) -> None:
        """Start from the networks of another run, without the rest of its state."""
        for name, module in self.algorithm.modules().items():
            if isinstance(module, nn.Module):
                module.load_state_dict(state[name])
        self._snapshot = self.algorithm.snapshot()

    def save_experience(self, path: Path) -> None:  # noqa: B027  # most learners keep none
        """Write past experience for a later run, if the learner keeps any."""

    def load_experience(self, path: Path) -> None:  # noqa: B027  # most learners keep none
        """Load past experience that `save_experience` wrote, if there is any."""

    def export(self) -> bytes:
        """Return the current policy as an ONNX file."""
        self.settle()
        return export_onnx(self.algorithm.actor, self.spec)

    def start(self, update: Callable[[], dict[str, float]]) -> None:
        """Wait for the running update, then run this one; if `threaded`, in its own thread.

        Args:
            update: Function that updates the algorithm and returns numbers to plot, by tag.
        """
        self.settle()
        if not self.settings.threaded:
            with hierarchical_timer("update"):
                self._has_updated(update())
            return

        def timed_update() -> tuple[dict[str, float], TimerNode]:
            with hierarchical_timer("update"):
                try:
                    results = update()
                except ClosedError as error:
                    raise UnityTrainerException(f"{self.name}: {error}") from error
            return results, get_timer_root()

        self._running = in_background(timed_update, name=f"learns {self.name}")

    def _has_updated(self, plots: dict[str, float]) -> None:
        self._plots.append(plots)
        self._snapshot = self.algorithm.snapshot()


_MOST_UNFINISHED = 100_000


class LearnedRewards:
    """Sums of the rewards from learned signals over each episode.

    Task rewards are counted elsewhere. If too many episodes are unfinished, the least recently
    reported ones are dropped.

    Args:
        signals: Reward signals of the behavior.
    """

    def __init__(self, signals: Sequence[RewardSignal]) -> None:
        names = [signal.name for signal in signals]
        self._columns = [i for i, name in enumerate(names) if name != ExtrinsicReward.name]
        self._tags = [f"Policy/{names[i].capitalize()} Reward" for i in self._columns]
        self._unfinished: dict[int, FloatArray] = {}

    def __bool__(self) -> bool:
        """Whether there is a learned signal."""
        return bool(self._columns)

    def add(self, segments: Segments, rewards: FloatArray) -> dict[str, float]:
        """Add segments with their (N, signals) rewards; return means of ended episodes, by tag."""
        starts = np.cumsum(segments.length) - segments.length
        of_segments = np.add.reduceat(rewards[:, self._columns], starts, axis=0)
        totals: list[FloatArray] = []
        for episode, ended, reward in zip(
            segments.episode.tolist(), segments.ended.tolist(), of_segments, strict=True
        ):
            total = self._unfinished.pop(episode, 0.0) + reward
            if ended:
                totals.append(total)
            else:
                self._unfinished[episode] = total
        while len(self._unfinished) > _MOST_UNFINISHED:
            del self._unfinished[next(iter(self._unfinished))]
        if not totals:
            return {}
        return dict(zip(self._tags, np.mean(totals, axis=0).tolist(), strict=True))
