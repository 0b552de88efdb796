"""Reward signals: each scores steps in a stream of its own, and may learn to.

A stream has its own discount, values and advantages; the policy learns from all of them together.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.algorithms.curiosity import Curiosity
from mlagents.trainers.algorithms.gail import GAIL
from mlagents.trainers.algorithms.optimizer import Optimizer
from mlagents.trainers.algorithms.rnd import RND
from mlagents.trainers.algorithms.transitions import Transitions, transitions_of
from mlagents.trainers.data.demonstrations import load_demonstrations
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.behavior import (
    BehaviorSettings,
    CuriositySettings,
    GailSettings,
    RewardSignalSettings,
    RNDSettings,
)
from mlagents_envs.base_env import BehaviorSpec
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

FloatArray = NDArray[np.float32]

ROWS_AT_ONCE = 2048
"""Steps that are scored at once: many enough to be fast, few enough for images to fit."""


class RewardSignal(Protocol):
    """One stream of reward."""

    name: ClassVar[str]
    """Its key below `reward_signals`."""
    respects_end: ClassVar[bool]
    """Whether nothing can be gained once the task has ended an episode. What is new stays so: those
    who seek it must not learn to avoid, or to seek, the end."""
    needs_next_obs: ClassVar[bool]
    """Whether it looks at `Transitions.next_obs`."""
    gamma: float
    """Discount per step."""
    strength: float
    """Factor on the reward."""

    def score(self, batch: Transitions) -> Tensor:
        """(B,) reward of every step, `strength` included."""

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Learn from a minibatch; return what to plot, by tag, without waiting for the device."""

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Everything that learns, by its name in a checkpoint."""


class ExtrinsicReward:
    """What the task pays: the agent's own reward and its group's.

    Args:
        gamma: Discount per step.
        strength: Factor on the reward.
    """

    name: ClassVar[str] = "extrinsic"
    respects_end: ClassVar[bool] = True
    needs_next_obs: ClassVar[bool] = False

    def __init__(self, *, gamma: float, strength: float) -> None:
        self.gamma, self.strength = gamma, strength

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Nothing learns."""
        return {}

    def score(self, batch: Transitions) -> Tensor:
        """(B,) reward of every step."""
        return self.strength * batch.reward

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """There is nothing to learn."""
        return {}


def make_reward_signals(
    settings: BehaviorSettings,
    spec: BehaviorSpec,
    *,
    device: torch.device,
    generator: torch.Generator,
) -> list[RewardSignal]:
    """Make the reward signals of a behavior, in the order of its settings.

    Args:
        settings: Of the behavior.
        spec: What it observes and does.
        device: Where to learn.
        generator: Source of chance while learning, on the CPU; initial weights follow torch's own.

    Raises:
        UnityTrainerException: A demonstration cannot be read or does not fit the behavior.
    """

    def make(signal: RewardSignalSettings) -> RewardSignal:
        match signal:
            case CuriositySettings():
                return Curiosity(spec, signal, device=device)
            case RNDSettings():
                return RND(spec, signal, device=device)
            case GailSettings():
                demonstrations = load_demonstrations(signal.demo_path, spec)
                logger.info(f"GAIL learns from {signal.demo_path}: {demonstrations}.")
                return GAIL(spec, signal, demonstrations, device=device, generator=generator)
            case _:
                return ExtrinsicReward(gamma=signal.gamma, strength=signal.strength)

    return [make(signal) for signal in settings.reward_signals.values()]


def steps_for(
    signals: Sequence[RewardSignal], segments: Segments, device: torch.device
) -> Transitions | None:
    """Bring experience to the device as `signals` look at it; None if only the task's is there."""
    if all(isinstance(signal, ExtrinsicReward) for signal in signals):
        return None
    needs_next_obs = any(signal.needs_next_obs for signal in signals)
    return transitions_of(segments, device, with_next_obs=needs_next_obs)


def score_segments(
    signals: Sequence[RewardSignal], segments: Segments, device: torch.device
) -> FloatArray:
    """(N, signals) reward of every step in the eyes of every signal."""
    rewards = np.empty((segments.n_steps, len(signals)), np.float32)
    steps = steps_for(signals, segments, device)
    for column, signal in enumerate(signals):
        if steps is None or isinstance(signal, ExtrinsicReward):
            rewards[:, column] = signal.strength * (segments.reward + segments.group_reward)
        else:
            scores = [signal.score(part) for part in steps.split(ROWS_AT_ONCE)]
            rewards[:, column] = torch.cat(scores).cpu().numpy()
    return rewards
