"""Losses: pure functions over (B, ...)."""

import torch
from torch import Tensor


def clipped_policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, epsilon: float
) -> Tensor:
    """-E[min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon) A)] (arXiv:1707.06347, equation 7).

    The ratio is taken of each action component on its own, as the published hyperparameters
    expect, and the mean runs over rows and components.

    Args:
        log_probs: (B, components) of the policy that learns.
        old_log_probs: (B, components) of the policy that acted.
        advantages: (B, 1).
        epsilon: Largest relative change of a probability that is rewarded.
    """
    ratio = torch.exp(log_probs - old_log_probs)
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()
