"""Reward signals, which score steps. Some are trained.

Each signal has its own discount, values and advantages. The policy learns from the combined
advantages.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.curiosity import Curiosity
from mlagents.trainers.algorithms.gail import GAIL
from mlagents.trainers.algorithms.optimizer import Optimizer
from mlagents.trainers.algorithms.rnd import RND
from mlagents.trainers.algorithms.transitions import Transitions, transitions_of
from mlagents.trainers.data.demonstrations import load_demonstrations
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.settings.behavior import (
    BehaviorSettings,
    CuriositySettings,
    GailSettings,
    RewardSignalSettings,
    RNDSettings,
)
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec, FloatArray
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

ROWS_AT_ONCE = 2048
"""Number of steps to score at once: enough for speed, few enough for images to fit in memory."""


class RewardSignal(Protocol):
    """A source of rewards."""

    name: ClassVar[str]
    """Key of the signal in `reward_signals`."""
    respects_end: ClassVar[bool]
    """Whether the value is zero after the task has ended an episode. False for novelty
    rewards, because agents would otherwise learn to seek or to avoid the end of an episode."""
    needs_next_obs: ClassVar[bool]
    """Whether the signal uses `Transitions.next_obs`."""
    gamma: float
    """Discount per step."""
    strength: float
    """Factor applied to the reward."""

    def score(self, batch: Transitions) -> Tensor:
        """Return the reward of every step (B,), `strength` included."""

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Learn from a minibatch; return statistics to plot, still on the device."""

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return all trained modules and optimizers, by their names in a checkpoint."""


class ExtrinsicReward:
    """Task reward: the agent's own reward plus its group's.

    Args:
        gamma: Discount per step.
        strength: Factor applied to the reward.
    """

    name: ClassVar[str] = "extrinsic"
    respects_end: ClassVar[bool] = True
    needs_next_obs: ClassVar[bool] = False

    def __init__(self, *, gamma: float, strength: float) -> None:
        self.gamma, self.strength = gamma, strength

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return an empty dictionary: the signal is not trained."""
        return {}

    def score(self, batch: Transitions) -> Tensor:
        """Return the reward of every step, (B,)."""
        return self.strength * batch.reward

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Do nothing: the signal is not trained."""
        return {}


def make_reward_signals(
    settings: BehaviorSettings,
    spec: BehaviorSpec,
    *,
    device: torch.device,
    generator: torch.Generator,
    compute: Compute = PLAIN,
    shards: Shards = ALONE,
) -> list[RewardSignal]:
    """Return the reward signals of a behavior, in the order of its settings.

    Args:
        settings: Settings of the behavior.
        spec: Observations and actions of the behavior.
        device: Device to learn on.
        generator: Random generator used in learning, on the CPU. Initial weights come from torch's
            global generator.
        compute: Precision of the signals' networks.
        shards: This learner's rank, and communication with the other learners.

    Raises:
        UnityTrainerException: A demonstration cannot be read or does not fit the behavior.
    """

    def make(signal: RewardSignalSettings) -> RewardSignal:
        match signal:
            case CuriositySettings():
                return Curiosity(spec, signal, device=device, compute=compute, shards=shards)
            case RNDSettings():
                return RND(spec, signal, device=device, shards=shards)
            case GailSettings():
                demonstrations = load_demonstrations(signal.demo_path, spec)
                logger.info(f"GAIL learns from {signal.demo_path}: {demonstrations}.")
                return GAIL(
                    spec,
                    signal,
                    demonstrations,
                    device=device,
                    generator=generator,
                    compute=compute,
                    shards=shards,
                )
            case _:
                return ExtrinsicReward(gamma=signal.gamma, strength=signal.strength)

    return [make(signal) for signal in settings.reward_signals.values()]


def steps_for(
    signals: Sequence[RewardSignal], segments: Segments, device: torch.device
) -> Transitions | None:
    """Return experience for `signals` on the device; None if all signals are extrinsic."""
    if all(isinstance(signal, ExtrinsicReward) for signal in signals):
        return None
    needs_next_obs = any(signal.needs_next_obs for signal in signals)
    return transitions_of(segments, device, with_next_obs=needs_next_obs)


def score_segments(
    signals: Sequence[RewardSignal], segments: Segments, device: torch.device
) -> FloatArray:
    """Return the reward of every step from every signal, (N, signals)."""
    rewards = np.empty((segments.n_steps, len(signals)), np.float32)
    steps = steps_for(signals, segments, device)
    for column, signal in enumerate(signals):
        if steps is None or isinstance(signal, ExtrinsicReward):
            rewards[:, column] = signal.strength * (segments.reward + segments.group_reward)
        else:
            scores = [signal.score(part) for part in steps.split(ROWS_AT_ONCE)]
            rewards[:, column] = torch.cat(scores).cpu().numpy()
    return rewards
