"""The last few frames of an observation in a row, as Unity's stacking sensor hands them out."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ObservationSpec
from mlagents_sim.world import Agents


def stacked(spec: ObservationSpec, n_frames: int) -> ObservationSpec:
    """Describe `n_frames` frames of an observation, joined along its first axis."""
    size, *rest = spec.shape
    return spec._replace(
        shape=(n_frames * size, *rest), name=f"StackingSensor_size{n_frames}_{spec.name}"
    )


class FrameStack:
    """The last frames of one observation of every agent, the oldest first.

    A frame is added whenever an agent reports: with each decision and at the end of an episode.
    Frames from before the episode are zero.

    Earlier frames are kept in a ring, so none of them is moved when the next one is added.

    Args:
        frame: Description of a single frame.
        n_frames: Number of frames that an agent sees, 2 or more.
        n_agents: N.
    """

    def __init__(self, frame: ObservationSpec, n_frames: int, n_agents: int) -> None:
        self._shape = stacked(frame, n_frames).shape
        self._ring = np.zeros((n_agents, n_frames - 1, *frame.shape), frame.dtype)
        self._oldest = 0  # slot of the ring, the same for all agents

    def clear(self, agents: Agents) -> None:
        """Forget what these agents have seen."""
        self._ring[agents] = 0

    def add(self, agents: Agents, frame: NDArray[Any]) -> NDArray[Any]:
        """Add what these n agents see now, (n, *shape of a frame); return all that they see."""
        ring, oldest = self._ring, self._oldest
        n_before = ring.shape[1]
        n_last = n_before - oldest  # frames from the oldest one to the end of the ring
        seen = np.empty((len(frame), n_before + 1, *ring.shape[2:]), ring.dtype)
        seen[:, :n_last] = ring[agents, oldest:]
        seen[:, n_last:-1] = ring[agents, :oldest]
        seen[:, -1] = frame
        if len(frame) == len(ring):
            ring[agents, oldest] = frame
            self._oldest = (oldest + 1) % n_before
        else:  # the ring does not turn for a few agents, so their own frames move
            ring[agents, oldest:] = seen[:, 1 : n_last + 1]
            ring[agents, :oldest] = seen[:, n_last + 1 :]
        return seen.reshape(-1, *self._shape)
