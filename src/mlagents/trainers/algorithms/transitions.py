"""Steps on the device, with the environment's actions, for reward signals and cloning.

A policy samples continuous actions on another scale than the environment's. Here they are always
on the environment's scale, [-1, 1], so actions of experts and policies can be compared.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.data.decision import CONTINUOUS_LIMIT
from mlagents.trainers.data.demonstrations import Demonstrations
from mlagents.trainers.data.segments import Segments
from mlagents_envs.base_env import ActionSpec


class Transitions(NamedTuple):
    """B steps in any order.

    Attributes:
        obs: One array (B, *shape) per observation, before the action. Images may be uint8.
        next_obs: Observations after the step, in the same form; empty if not requested.
        continuous: (B, A) continuous actions as the environment receives them, in [-1, 1].
        discrete: (B, K) int64 discrete actions.
        reward: (B,) the agent's own reward plus its group's.
        terminated: (B,) bool, True where the task ended the episode after the step.
    """

    obs: list[Tensor]
    next_obs: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    reward: Tensor
    terminated: Tensor

    def take(self, rows: Tensor) -> "Transitions":
        """Return the steps at `rows`."""
        return Transitions(
            [batch.index_select(0, rows) for batch in self.obs],
            [batch.index_select(0, rows) for batch in self.next_obs],
            *(field.index_select(0, rows) for field in self[2:]),
        )

    def split(self, size: int) -> "Iterator[Transitions]":
        """Yield the steps in order, `size` at a time."""
        for start in range(0, len(self.reward), size):
            part = slice(start, start + size)
            yield Transitions(
                [batch[part] for batch in self.obs],
                [batch[part] for batch in self.next_obs],
                *(field[part] for field in self[2:]),
            )

    def actions(self, spec: ActionSpec) -> Tensor:
        """Return continuous actions and one-hot discrete actions, (B, A + sum of branches)."""
        chosen = [
            nn.functional.one_hot(self.discrete[:, branch], size).to(self.continuous.dtype)
            for branch, size in enumerate(spec.discrete_branches)
        ]
        return torch.cat([self.continuous, *chosen], dim=1)


def transitions_of(
    segments: Segments, device: torch.device, *, with_next_obs: bool = False
) -> Transitions:
    """Return steps on the device, from segments whose actions are unsquashed Gaussian samples."""
    obs = [torch.as_tensor(batch, device=device) for batch in segments.obs]
    next_obs = []
    if with_next_obs:
        rows = torch.from_numpy(_next_rows(segments.length)).to(device)
        last = [torch.as_tensor(batch, device=device) for batch in segments.last_obs]
        next_obs = [torch.cat(both).index_select(0, rows) for both in zip(obs, last, strict=True)]
    continuous = torch.as_tensor(segments.continuous, device=device)
    terminated = np.zeros(segments.n_steps, np.bool_)
    terminated[np.cumsum(segments.length) - 1] = segments.terminated
    return Transitions(
        obs,
        next_obs,
        continuous.clamp(-CONTINUOUS_LIMIT, CONTINUOUS_LIMIT) / CONTINUOUS_LIMIT,
        torch.as_tensor(segments.discrete, device=device).long(),
        torch.as_tensor(segments.reward + segments.group_reward, device=device),
        torch.as_tensor(terminated, device=device),
    )


def transitions_of_experts(demonstrations: Demonstrations, device: torch.device) -> Transitions:
    """Return demonstrated steps on the device, without `next_obs`."""
    return Transitions(
        [torch.as_tensor(batch, device=device) for batch in demonstrations.obs],
        [],
        torch.as_tensor(demonstrations.continuous, device=device),
        torch.as_tensor(demonstrations.discrete, device=device).long(),
        torch.as_tensor(demonstrations.reward, device=device),
        torch.as_tensor(demonstrations.terminated, device=device),
    )


def _next_rows(length: np.ndarray) -> np.ndarray:
    """Return the index of each step's next observation in [observations, last observations]."""
    n_steps = int(length.sum())
    rows = np.arange(1, n_steps + 1)
    rows[np.cumsum(length) - 1] = n_steps + np.arange(len(length))
    return rows
