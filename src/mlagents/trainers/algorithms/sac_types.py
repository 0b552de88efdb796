"""Data types of SAC: minibatch, losses and entropy coefficients."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.transitions import Transitions
from mlagents.trainers.networks.layers import Sequences
from mlagents_envs.base_env import ActionSpec


class Minibatch(NamedTuple):
    """Experience of one gradient step, on the device; B rows.

    Attributes:
        obs: One array (B, *shape) per observation.
        next_obs: Observations after the step, in the same form.
        continuous: (B, A) continuous actions as sent to the environment.
        discrete: (B, K) int32 discrete actions.
        action_mask: (B, sum of branches) bool, True where an action is not allowed.
        reward: (B,) rewards, or discounted sums of several.
        terminated: (B,) bool, True where the task ended the episode after the step.
        noise: (B, A) standard normal noise for sampling new actions.
        sequences: Order of the rows, for networks with memory.
        first: (S,) first row of each sequence.
        n_rewards: (B,) number of rewards in each sum; None if `reward` covers a single step.
    """

    obs: list[Tensor]
    next_obs: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    action_mask: Tensor
    reward: Tensor
    terminated: Tensor
    noise: Tensor
    sequences: Sequences | None
    first: Tensor
    n_rewards: Tensor | None = None

    def split(self, n_rows: list[int]) -> "Iterator[Minibatch]":
        """Yield consecutive parts with the given numbers of rows, without their sequences."""
        columns = [*self.obs, *self.next_obs, *self[2:8]]
        n_rewards: Iterable[Tensor | None] = [None] * len(n_rows)
        if self.n_rewards is not None:
            n_rewards = self.n_rewards.split(n_rows)
        parts = zip(*(column.split(n_rows) for column in columns), n_rewards, strict=True)
        for *rows, of_rows in parts:
            *seen, continuous, discrete, action_mask, reward, terminated, noise = rows
            yield Minibatch(
                obs=seen[: len(self.obs)],
                next_obs=seen[len(self.obs) :],
                continuous=continuous,
                discrete=discrete,
                action_mask=action_mask,
                reward=reward,
                terminated=terminated,
                noise=noise,
                sequences=None,
                first=self.first[: len(reward)],
                n_rewards=of_rows,
            )

    @property
    def steps(self) -> Transitions:
        """The steps in the form that reward signals expect."""
        choices = self.discrete.long()
        return Transitions(
            self.obs, self.next_obs, self.continuous, choices, self.reward, self.terminated
        )


class Losses(NamedTuple):
    """Losses of one minibatch, one for each kind of network.

    Attributes:
        policy: Scalar loss of the actor.
        q: (2,) losses of the Q networks.
        value: Scalar loss of the value network.
        entropy: Scalar loss of the entropy coefficients.
        estimate: (signals,) mean value of the states, for plotting.
    """

    policy: Tensor
    q: Tensor
    value: Tensor
    entropy: Tensor
    estimate: Tensor


class EntropyCoefficients(nn.Module):
    """Weights of entropy: one for all continuous actions, if any, then one per branch.

    Args:
        spec: Actions of the behavior.
        initial: Initial value of every coefficient.

    Attributes:
        log_alpha: (parts,) logarithms of the coefficients.
        target: (parts,) target entropy: -A for continuous actions, a fifth of the maximum for a
            branch.
        weight: (parts,) weight in the value of a state: 1 for continuous actions, 1 / K for a
            branch.
    """

    target: Tensor
    weight: Tensor

    def __init__(self, spec: ActionSpec, initial: float) -> None:
        super().__init__()
        target = [0.2 * math.log(size) for size in spec.discrete_branches]
        weight = [1 / spec.discrete_size for _ in target]
        if spec.continuous_size:
            target.insert(0, float(-spec.continuous_size))
            weight.insert(0, 1.0)
        self.log_alpha = nn.Parameter(torch.full((len(target),), math.log(initial)))
        self.register_buffer("target", torch.tensor(target), persistent=False)
        self.register_buffer("weight", torch.tensor(weight), persistent=False)
