"""Action distributions given an encoding, with log-probabilities and entropies.

Continuous actions are independent Gaussians. Their deviation does not depend on the state, unless
they are *squashed* into [-1, 1] by tanh. Each discrete branch is a categorical distribution over
the unmasked choices.
"""

import math

import torch
from torch import Tensor, nn

from mlagents.trainers.data.decision import CONTINUOUS_LIMIT, LOG_STD_LIMITS, MASKED_LOGIT
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.layers import joined, linear
from mlagents_envs.base_env import ActionSpec

FIRST_MEANS = 0.05
"""Default factor on the initial weights of the means of continuous actions, in PPO and MA-POCA."""


class ActionHeads(nn.Module):
    """Output layers of an actor.

    Args:
        n_in: Width of the encoding.
        spec: Actions of the behavior: A continuous actions and K branches.
        squashed: Whether tanh squashes continuous actions into [-1, 1].
        gain: Factor applied to the initial weights of means and logits. None stands for
            `FIRST_MEANS` for means, and 1 for logits.

    Raises:
        UnityTrainerException: The behavior has no actions.
    """

    log_std: nn.Parameter | nn.Linear

    def __init__(
        self, n_in: int, spec: ActionSpec, *, squashed: bool = False, gain: float | None = 1.0
    ) -> None:
        super().__init__()
        if not (spec.continuous_size or spec.discrete_size):
            raise UnityTrainerException(
                "the behavior has no actions. Add continuous or discrete actions to its agents."
            )
        of_means, of_logits = (FIRST_MEANS, 1.0) if gain is None else (gain, gain)
        self.spec = spec
        self.squashed = squashed
        self.mean: nn.Linear | None = None
        self.logits: nn.Linear | None = None
        if spec.continuous_size:
            self.mean = linear(n_in, spec.continuous_size, gain=0.2 * of_means)
            self.log_std = (
                linear(n_in, spec.continuous_size, gain=0.2)
                if squashed
                else nn.Parameter(torch.zeros(spec.continuous_size))
            )
        if spec.discrete_size:
            self.logits = linear(n_in, sum(spec.discrete_branches), gain=0.1 * of_logits)

    def gaussian(self, encoding: Tensor) -> tuple[Tensor, Tensor]:
        """Map (B, n_in) to means (B, A) and log-deviations: (A,), or (B, A) if squashed."""
        assert self.mean is not None
        if isinstance(self.log_std, nn.Linear):
            return self.mean(encoding), self.log_std(encoding).clamp(*LOG_STD_LIMITS)
        return self.mean(encoding), self.log_std

    def branch_log_probs(self, encoding: Tensor, action_mask: Tensor) -> list[Tensor]:
        """Return log-probabilities (B, choices) of each branch from (B, n_in) and the mask."""
        assert self.logits is not None
        logits = self.logits(encoding).masked_fill(action_mask, MASKED_LOGIT)
        return [
            torch.log_softmax(branch, dim=1)
            for branch in logits.split(self.spec.discrete_branches, 1)
        ]

    def environment_actions(self, encoding: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return continuous actions (B, A) on the environment's scale, not clamped.

        Args:
            encoding: (B, n_in) encoding.
            noise: (B, A) noise from N(0, 1) to sample with; None to return the means.
        """
        mean, log_std = self.gaussian(encoding)
        sample = mean if noise is None else mean + log_std.exp() * noise
        return sample.tanh() if self.squashed else sample / CONTINUOUS_LIMIT

    def evaluate(
        self, encoding: Tensor, continuous: Tensor, discrete: Tensor, action_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Evaluate past, unsquashed actions under the current policy.

        Args:
            encoding: (B, n_in) encoding.
            continuous: (B, A) continuous actions as sampled.
            discrete: (B, K) int64 discrete actions.
            action_mask: (B, sum of branches) True where an action was not allowed.

        Returns:
            Log-probability and entropy of each component, both (B, A + K).
        """
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        if self.mean is not None:
            mean, log_std = self.gaussian(encoding)
            log_probs.append(gaussian_log_prob(continuous, mean, log_std))
            entropies.append(gaussian_entropy(log_std).expand_as(continuous))
        if self.logits is not None:
            for branch, log_p in enumerate(self.branch_log_probs(encoding, action_mask)):
                log_probs.append(log_p.gather(1, discrete[:, branch : branch + 1]))
                entropies.append(-(log_p.exp() * log_p).sum(1, keepdim=True))
        return joined(log_probs), joined(entropies)


def gaussian_log_prob(sample: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return log N(sample; mean, exp(log_std)) of each component."""
    z = (sample - mean) * torch.exp(-log_std)
    return -0.5 * z * z - (log_std + 0.5 * math.log(2 * math.pi))


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Return the entropy of each component, ½ log(2πe σ²)."""
    return log_std + 0.5 * math.log(2 * math.pi * math.e)


def squashed_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return tanh(a) with a = mean + exp(log_std) * noise, and each component's log-probability.

        log p(tanh(a)) = log N(a; mean, exp(log_std)) - log(1 - tanh(a)²)

    Both results are differentiable with respect to `mean` and `log_std`.
    """
    before = mean + log_std.exp() * noise
    log_probs = -0.5 * noise * noise - (log_std + 0.5 * math.log(2 * math.pi))
    return before.tanh(), log_probs - log_slope_of_tanh(before)


def log_slope_of_tanh(x: Tensor) -> Tensor:
    """Return log(1 - tanh(x)²), in a form that stays accurate if tanh rounds to 1."""
    return 2 * (math.log(2) - x - nn.functional.softplus(-2 * x))
