"""Stacks of the last frames of an observation, as Unity's stacking sensor returns them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ObservationSpec
from mlagents_sim import native_planar
from mlagents_sim.native_planar import Pool, address, indices
from mlagents_sim.planar import PLANAR
from mlagents_sim.world import ALL, Agents


def stacked(spec: ObservationSpec, n_frames: int) -> ObservationSpec:
    """Return the specification of `n_frames` frames, joined along the first axis."""
    size, *rest = spec.shape
    return spec._replace(
        shape=(n_frames * size, *rest), name=f"StackingSensor_size{n_frames}_{spec.name}"
    )


class FrameStack:
    """The last frames of one observation of every agent, the oldest first.

    A frame is added whenever an agent reports: with each decision and at the end of an episode.
    Frames from before the episode are zero.

    The earlier frames of all agents are in a ring buffer, where the newest frame replaces the
    oldest. A step therefore copies only its own frame and its result.

    Args:
        frame: Description of a single frame.
        n_frames: Number of frames in an observation.
        n_agents: Number of agents, N.
    """

    def __init__(self, frame: ObservationSpec, n_frames: int, n_agents: int) -> None:
        self._shape = stacked(frame, n_frames).shape
        self._ring = np.zeros((n_frames - 1, n_agents, *frame.shape), frame.dtype)
        self._start = 0  # of the ring: the slot of the oldest frame, the same for all agents
        self._functions = PLANAR.load()
        self._pool = Pool()
        n_bytes = frame.dtype.itemsize * math.prod(frame.shape)
        self._shared = native_planar.Stack(
            n_agents=n_agents,
            n_before=n_frames - 1,
            frame_bytes=n_bytes,
            ring=self._ring.view(np.uint8) if n_frames > 1 else None,
        )

    def clear(self, agents: Agents) -> None:
        """Clear the frames of these agents."""
        self._ring[:, agents] = 0

    def add(self, agents: Agents, frame: NDArray[Any]) -> NDArray[Any]:
        """Add new frames of n agents, (n, *shape of a frame); return their stacked frames."""
        ring, start = self._ring, self._start
        n_before, n_agents = ring.shape[:2]
        are_all = len(frame) == n_agents and _ascend(agents)
        if are_all:
            agents = ALL
        if self._functions is not None:
            stacks = self._pool.empty((len(frame), *self._shape), ring.dtype)
            which = indices(agents, n_agents)
            frame = np.ascontiguousarray(frame, ring.dtype)
            self._functions.planar_stack(
                self._shared, address(which), len(frame), address(frame), address(stacks)
            )
            return stacks
        seen = np.empty((len(frame), n_before + 1, *ring.shape[2:]), ring.dtype)
        older, newer = seen[:, : n_before - start], seen[:, n_before - start : -1]
        older.swapaxes(0, 1)[:] = ring[start:, agents]
        newer.swapaxes(0, 1)[:] = ring[:start, agents]
        seen[:, -1] = frame
        if are_all and n_before:
            ring[start] = frame
            self._start = (start + 1) % n_before
        else:
            # All agents share the slots, so the frames of only some agents must be moved.
            moved = seen[:, 1:].swapaxes(0, 1)
            ring[start:, agents], ring[:start, agents] = np.split(moved, [n_before - start])
        return seen.reshape(-1, *self._shape)


def _ascend(agents: Agents) -> bool:
    return isinstance(agents, slice) or bool((agents[1:] > agents[:-1]).all())
