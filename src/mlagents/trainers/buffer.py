"""`AgentBuffer`, the result of `mlagents.trainers.demo_loader.demo_to_buffer`, and its keys."""

import enum
from typing import Any

from numpy.typing import NDArray


class BufferKey(enum.Enum):
    """Keys of the columns of an `AgentBuffer`, except observations."""

    CONTINUOUS_ACTION = "continuous_action"
    """(N, A) float32, from -1 to 1."""
    DISCRETE_ACTION = "discrete_action"
    """(N, K) int32."""
    DONE = "done"
    """(N,) float32, 1 at the last step of an episode."""
    ENVIRONMENT_REWARDS = "environment_rewards"
    """(N,) float32, reward that followed the action."""
    MASKS = "masks"
    """(N,) float32, 0 in rows that are padding of a sequence."""


class ObservationKeyPrefix(enum.Enum):
    """First part of an observation's key. The second part is its index."""

    OBSERVATION = "obs"
    """(N, *shape) float32; images are (channels, height, width) from 0 to 1."""


class AgentBuffer(dict[BufferKey | tuple[ObservationKeyPrefix, int], NDArray[Any]]):
    """N steps of experience, by column."""

    @property
    def num_experiences(self) -> int:
        """Number of steps, N."""
        return len(next(iter(self.values()), ()))
