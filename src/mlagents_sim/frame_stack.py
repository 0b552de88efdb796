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

    Frames stay where they were written while a window moves over them, and are moved back only
    when it reaches the end of the buffer, once in `n_frames` steps.

    Args:
        frame: Description of a single frame.
        n_frames: Number of frames that an agent sees.
        n_agents: N.
    """

    def __init__(self, frame: ObservationSpec, n_frames: int, n_agents: int) -> None:
        self._shape = stacked(frame, n_frames).shape
        self._n_before = n_frames - 1
        self._buffer = np.zeros((n_agents, 2 * n_frames - 1, *frame.shape), frame.dtype)
        self._start = 0  # of the window, the same for all agents

    def clear(self, agents: Agents) -> None:
        """Forget what these agents have seen."""
        self._buffer[agents, self._start : self._start + self._n_before] = 0

    def add(self, agents: Agents, frame: NDArray[Any]) -> NDArray[Any]:
        """Add what these n agents see now, (n, *shape of a frame); return all that they see."""
        buffer, start = self._buffer, self._start
        end = start + self._n_before
        if len(frame) < len(buffer):
            # The window does not move for a few agents, so their frames do.
            seen = np.concatenate([buffer[agents, start:end], frame[:, None]], axis=1)
            buffer[agents, start:end] = seen[:, 1:]
        else:
            buffer[agents, end] = frame
            seen = buffer[agents, start : end + 1].copy()
            self._start += 1
            if end + 1 == buffer.shape[1]:
                buffer[:, : self._n_before] = buffer[:, self._start :]
                self._start = 0
        return seen.reshape(-1, *self._shape)
