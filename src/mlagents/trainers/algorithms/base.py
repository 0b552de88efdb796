"""`Algorithm`: base class of all learning algorithms."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.behavioral_cloning import BehavioralCloning
from mlagents.trainers.algorithms.optimizer import Optimizer, descend, take_step
from mlagents.trainers.algorithms.reward_signals import (
    RewardSignal,
    make_reward_signals,
    score_segments,
)
from mlagents.trainers.algorithms.schedules import LEARNING_RATE_FLOOR, scheduled
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.layers import Normalizer
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import HyperparameterSettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec, FloatArray


class ClosedError(UnityTrainerException):
    """Raised when an algorithm is closed during an update."""


class Algorithm(ABC):
    """Networks of a behavior, with the optimizer and the reward signals that train them.

    A subclass creates its networks and its `optimizer` (`make_networks`), names them for
    checkpoints (`networks`) and provides `update` with the signature that its learner expects.

    Args:
        spec: Observations and actions of the behavior.
        settings: The behavior's settings.
        device: Device to learn on.
        seed: Seed of weights, minibatches and samples.
        inference: Whether the networks only act. Reward signals and demonstrations are then not
            loaded.
        compute: Precision of learning, and whether its losses are compiled.
        shards: This learner's rank, and communication with the other learners.

    Attributes:
        spec: Observations and actions of the behavior.
        settings: The algorithm's own settings: `hyperparameters` of the behavior's settings.
        device: Device to learn on.
        compute: Precision of learning, and whether the losses are compiled.
        shards: This learner's rank, and communication with the other learners.
        seed: Seed of the behavior, the same for all learners.
        generator: Random generator used in learning, on the CPU. Checkpoints contain its state.
        max_steps: Step of the behavior at which schedules end.
        signals: Reward signals, in the order of the columns of `score`.
        cloning: Behavioral cloning in addition to experience, or None if the settings do not enable
            it.
        optimizer: Optimizer of the networks.
        stop_flag: (1,) int32, 1 after `close`. Native code reads it between gradient steps.

    Raises:
        UnityTrainerException: A demonstration cannot be read or does not fit the behavior.
    """

    learns_in_groups: ClassVar[bool] = False
    """Whether `update` uses `Segments.tick`, `last_tick` and `group`."""
    settings: HyperparameterSettings
    optimizer: Optimizer

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: BehaviorSettings,
        *,
        device: torch.device,
        seed: int,
        inference: bool = False,
        compute: Compute = PLAIN,
        shards: Shards = ALONE,
    ) -> None:
        self.spec = spec
        self.settings = settings.hyperparameters
        self.device = device
        self.compute = compute
        self.shards = shards
        self.seed = seed
        self.generator = torch.Generator().manual_seed(shards.seed(seed))
        self.signals: list[RewardSignal] = []
        self.cloning: BehavioralCloning | None = None
        self.max_steps = settings.max_steps
        self.stop_flag = np.zeros(1, np.int32)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.make_networks(settings)
            if not inference:
                self.make_sources(settings)
        for network in self.modules().values() if shards.size > 1 else ():
            for module in network.modules() if isinstance(network, nn.Module) else ():
                if isinstance(module, Normalizer):
                    module.shards = shards

    @property
    @abstractmethod
    def actor(self) -> Actor:
        """The network that acts."""

    @abstractmethod
    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create all networks. Initial weights come from torch's global random generator."""

    def make_sources(self, settings: BehaviorSettings) -> None:
        """Create the reward signals, and behavioral cloning if the settings enable it."""
        self.signals = make_reward_signals(
            settings,
            self.spec,
            device=self.device,
            generator=self.generator,
            compute=self.compute,
            shards=self.shards,
        )
        if settings.behavioral_cloning:
            self.cloning = BehavioralCloning(
                self.actor,
                self.spec,
                settings,
                device=self.device,
                generator=self.generator,
                shards=self.shards,
                seed=self.seed,
            )

    @abstractmethod
    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Return the algorithm's own networks and optimizers, by their names in a checkpoint."""

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return all trained modules and optimizers, by their names in a checkpoint."""
        modules = self.networks()
        for part in (*self.signals, self.cloning):
            modules |= {} if part is None else part.modules()
        return modules

    def snapshot(self) -> Snapshot:
        """Return a copy of the current policy."""
        return snapshot_of(self.actor)

    def score(self, segments: Segments) -> FloatArray:
        """Return the reward of every step from every reward signal, (N, signals)."""
        return score_segments(self.signals, segments, self.device)

    def set_learning_rate(self, step: int) -> float:
        """Set and return the optimizer's learning rate at a step of the behavior."""
        s = self.settings
        learning_rate = scheduled(
            s.learning_rate,
            s.learning_rate_schedule,
            floor=LEARNING_RATE_FLOOR,
            step=step,
            max_steps=self.max_steps,
        )
        self.optimizer.param_groups[0]["lr"] = learning_rate
        return learning_rate

    def reseed(self, seed: int) -> None:
        """Restart the random numbers of this learner with a seed of its own.

        Args:
            seed: Seed of this learner, from `Shards.seed`.
        """
        self.generator.manual_seed(seed)

    def descend(self, loss: Tensor, *parts: Iterable[nn.Parameter], n_rows: int = 1) -> None:
        """Take one gradient step down a scalar loss, together with all other learners.

        Args:
            loss: Scalar loss to differentiate, a mean over rows.
            *parts: Groups of parameters. The gradient of each group is clipped to `max_grad_norm`.
            n_rows: Number of rows in the loss: the weight of this learner's gradient.

        Raises:
            ClosedError: The algorithm was closed.
        """
        self.refuse_when_closed()
        descend(
            loss,
            self.optimizer,
            *parts,
            max_norm=self.settings.max_grad_norm,
            shards=self.shards,
            n_rows=n_rows,
        )

    def take_step(self, *parts: Iterable[nn.Parameter], n_rows: int = 1) -> None:
        """Take one step with the gradients already computed; otherwise like `descend`."""
        self.refuse_when_closed()
        take_step(
            self.optimizer,
            *parts,
            max_norm=self.settings.max_grad_norm,
            shards=self.shards,
            n_rows=n_rows,
        )

    def close(self) -> None:
        """Make an update in another thread stop at its next gradient step."""
        self.stop_flag[0] = 1

    def refuse_when_closed(self) -> None:
        """Raise `ClosedError` if the algorithm was closed."""
        if self.stop_flag[0]:
            raise ClosedError("the algorithm was closed during an update")

    @property
    def has_diverged(self) -> bool:
        """Whether any weight is NaN or infinite."""
        networks = [m for m in self.modules().values() if isinstance(m, nn.Module)]
        weights = [weight for network in networks for weight in network.parameters()]
        return not all(bool(weight.isfinite().all()) for weight in weights)
