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

    Args:
        frame: What a single frame is.
        n_frames: How many of them an agent sees.
        n_agents: N.
    """

    def __init__(self, frame: ObservationSpec, n_frames: int, n_agents: int) -> None:
        before = stacked(frame, n_frames - 1)
        self._before = np.zeros((n_agents, *before.shape), before.dtype)
        self._frame_size = frame.shape[0]

    def clear(self, agents: Agents) -> None:
        """Forget what these agents have seen."""
        self._before[agents] = 0

    def add(self, agents: Agents, frame: NDArray[Any]) -> NDArray[Any]:
        """Add what these n agents see now, (n, *shape of a frame); return all that they see."""
        seen = np.concatenate([self._before[agents], frame], axis=1)
        self._before[agents] = seen[:, self._frame_size :]
        return seen
