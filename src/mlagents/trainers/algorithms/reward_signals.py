"""Reward signals: each scores a batch of experience in its own stream."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.behavior import BehaviorSettings


@dataclass(frozen=True)
class ExtrinsicReward:
    """What the task pays: the agent's own reward and its group's.

    Attributes:
        gamma: Discount per step.
        strength: Factor on the reward.
    """

    gamma: float
    strength: float

    name: ClassVar[str] = "extrinsic"

    def score(self, segments: Segments) -> NDArray[np.float32]:
        """(N,) reward of every step."""
        return self.strength * (segments.reward + segments.group_reward)


def make_reward_signals(settings: BehaviorSettings) -> list[ExtrinsicReward]:
    """Make the reward signals of a behavior, in the order of its settings."""
    return [
        _SIGNALS[name](gamma=signal.gamma, strength=signal.strength)
        for name, signal in settings.reward_signals.items()
    ]


_SIGNALS = {ExtrinsicReward.name: ExtrinsicReward}
