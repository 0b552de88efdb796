"""Losses: pure functions over (B, ...)."""

import torch
from torch import Tensor


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, epsilon: float, joint: bool
) -> Tensor:
    """-E[min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon) A)] (arXiv:1707.06347, equation 7).

    Args:
        log_probs: (B, components) of the policy that learns.
        old_log_probs: (B, components) of the policy that acted.
        advantages: (B, 1).
        epsilon: Largest relative change of a probability that is rewarded.
        joint: Whether the ratio is that of whole actions, as in the paper. Else every component
            has its own, and the mean runs over rows and components.
    """
    log_ratio = log_probs - old_log_probs
    if joint:
        log_ratio = log_ratio.sum(1, keepdim=True)
    ratio = torch.exp(log_ratio)
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, *, epsilon: float
) -> Tensor:
    """E[max((V - R)², (V_old + clip(V - V_old, -epsilon, epsilon) - R)²)].

    A value that has moved further than epsilon, towards the return, is pulled no more. Epsilon is
    in units of the return here: where returns are large, values learn slowly.

    Args:
        values: (B, signals) that learn.
        old_values: (B, signals) when the experience was made.
        returns: (B, signals) that they should be.
        epsilon: Largest change of a value that is rewarded.
    """
    clipped = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return torch.maximum((values - returns).square(), (clipped - returns).square()).mean()


def mean_entropy(entropies: Tensor, *, n_continuous: int, joint: bool) -> Tensor:
    """E[H], what the entropy bonus pays for.

    Args:
        entropies: (B, A + K) of every component of the action.
        n_continuous: A; the other components are branches.
        joint: Whether H is the entropy of the whole action, the sum over its components. Else
            continuous actions count with their mean, branches with their sum.
    """
    of_components = entropies.mean(0)
    if joint or not n_continuous:
        return of_components.sum()
    return of_components[:n_continuous].mean() + of_components[n_continuous:].sum()
