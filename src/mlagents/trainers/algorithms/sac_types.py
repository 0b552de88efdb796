"""What a gradient step of SAC learns from, what it computes, and what entropy is worth to it."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.transitions import Transitions
from mlagents.trainers.networks.layers import Sequences
from mlagents_envs.base_env import ActionSpec


class Minibatch(NamedTuple):
    """Everything one gradient step learns from, on the device; B rows.

    Attributes:
        obs: One (B, *shape) per observation.
        next_obs: The same of what followed.
        continuous: (B, A) as the environment was sent them.
        discrete: (B, K) int32.
        action_mask: (B, sum of branches).
        reward: (B,).
        terminated: (B,).
        noise: (B, A) that new actions are sampled with.
        sequences: How the rows follow each other, for networks with memory.
        first: (S,) the row that each sequence begins with.
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

    @property
    def steps(self) -> Transitions:
        """The steps as reward signals see them."""
        choices = self.discrete.long()
        return Transitions(
            self.obs, self.next_obs, self.continuous, choices, self.reward, self.terminated
        )


class Losses(NamedTuple):
    """What one minibatch says about every network, as far as gradients should go.

    Attributes:
        policy: Scalar, for the actor.
        q: (2,), for the Q networks.
        value: Scalar, for the network of values.
        entropy: Scalar, for the coefficients.
        estimate: (signals,) mean value of the states, to be plotted.
    """

    policy: Tensor
    q: Tensor
    value: Tensor
    entropy: Tensor
    estimate: Tensor


class EntropyCoefficients(nn.Module):
    """What entropy is worth: of all continuous actions, if there are any, then of every branch.

    Args:
        spec: The actions.
        initial: Every coefficient at the start.

    Attributes:
        log_alpha: (parts,) logarithms.
        target: (parts,) entropy that the policy is kept at: -A, and a fifth of the largest.
        weight: (parts,) share in the value of a state; branches count in the mean.
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
