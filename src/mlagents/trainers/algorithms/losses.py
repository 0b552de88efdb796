"""Losses as pure functions of (B, ...) tensors."""

import torch
from torch import Tensor

from mlagents.trainers.sharding import ALONE, Shards


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, epsilon: float, joint: bool
) -> Tensor:
    """-E[min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon) A)] (arXiv:1707.06347, equation 7).

    Args:
        log_probs: (B, components) log-probabilities under the policy that learns.
        old_log_probs: (B, components) log-probabilities under the policy that acted.
        advantages: (B, 1) advantages.
        epsilon: Relative change of a probability beyond which the loss decreases no further.
        joint: Whether to use one ratio for the whole action, as in the paper. Otherwise each
            component has its own ratio, and the mean is over rows and components.
    """
    log_ratio = log_probs - old_log_probs
    if joint:
        log_ratio = log_ratio.sum(1, keepdim=True)
    ratio = torch.exp(log_ratio)
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def normalized(advantages: Tensor, shards: Shards = ALONE) -> Tensor:
    """Return advantages (..., B, 1) with mean 0 and deviation 1 over the B rows of a minibatch.

    Args:
        advantages: Advantages of this learner's rows.
        shards: This learner's place among several. Mean and deviation are those of all their rows.
    """
    if shards.size == 1:
        deviation, mean = torch.std_mean(advantages, dim=-2, correction=0, keepdim=True)
        return (advantages - mean) / (deviation + 1e-10)
    wide = advantages.double()
    n_rows = torch.full_like(wide[..., :1, :], wide.shape[-2])
    totals = torch.stack([n_rows, wide.sum(-2, keepdim=True)])
    shards.add(totals)
    wide = wide - totals[1] / totals[0]
    squares = wide.square().sum(-2, keepdim=True)
    shards.add(squares)
    return (wide / ((squares / totals[0]).sqrt() + 1e-10)).to(advantages.dtype)


def divergence(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """Return an estimate of KL(old || new) from the actions of the old policy, a scalar.

        E[ratio - 1 - log(ratio)]

    Every term is at least 0, and the variance is lower than that of -log(ratio).

    Args:
        log_probs: (B, components) log-probabilities under the new policy.
        old_log_probs: (B, components) log-probabilities under the policy that acted.
    """
    log_ratio = (log_probs - old_log_probs).sum(1)
    return (log_ratio.expm1() - log_ratio).mean()


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, *, epsilon: float
) -> Tensor:
    """E[max((V - R)², (V_old + clip(V - V_old, -epsilon, epsilon) - R)²)].

    A value that has moved more than epsilon toward the return has no gradient. Epsilon is in
    units of the return, so values are learned slowly if returns are large.

    Args:
        values: (B, signals) values predicted now.
        old_values: (B, signals) values predicted when the experience was collected.
        returns: (B, signals) target values.
        epsilon: Change of a value beyond which the loss decreases no further.
    """
    clipped = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return torch.maximum((values - returns).square(), (clipped - returns).square()).mean()


def mean_entropy(entropies: Tensor, *, n_continuous: int, joint: bool) -> Tensor:
    """Return the mean entropy E[H] for the entropy bonus.

    Args:
        entropies: (B, A + K) entropy of each component of the action.
        n_continuous: Number of continuous actions A. The other components are branches.
        joint: Whether H is the entropy of the whole action: the sum over its components.
            Otherwise H is the mean over continuous actions plus the sum over branches.
    """
    of_components = entropies.mean(0)
    if joint or not n_continuous:
        return of_components.sum()
    return of_components[:n_continuous].mean() + of_components[n_continuous:].sum()
