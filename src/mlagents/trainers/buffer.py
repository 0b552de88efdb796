"""What `mlagents.trainers.demo_loader.demo_to_buffer` returns, and its keys."""

import enum
from typing import Any

from numpy.typing import NDArray


class BufferKey(enum.Enum):
    """Names of the columns of an `AgentBuffer`, besides observations."""

    CONTINUOUS_ACTION = "continuous_action"
    """(N, A) float32, from -1 to 1."""
    DISCRETE_ACTION = "discrete_action"
    """(N, K) int32."""
    DONE = "done"
    """(N,) float32, 1 at the last step of an episode."""
    ENVIRONMENT_REWARDS = "environment_rewards"
    """(N,) float32, what followed the action."""
    MASKS = "masks"
    """(N,) float32, 0 in rows that only fill up a sequence."""


class ObservationKeyPrefix(enum.Enum):
    """First part of the key of an observation; the second is its index."""

    OBSERVATION = "obs"
    """(N, *shape) float32; images are (channels, height, width) from 0 to 1."""


class AgentBuffer(dict[BufferKey | tuple[ObservationKeyPrefix, int], NDArray[Any]]):
    """N steps of experience, by column."""

    @property
    def num_experiences(self) -> int:
        """N."""
        return len(next(iter(self.values()), ()))
