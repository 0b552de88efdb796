"""GAIL: reward for behaving as in demonstrations.

A discriminator D learns to distinguish demonstrated steps from the policy's steps. The reward is
-log(1 - D), which is high for steps that D mistakes for demonstrated ones (arXiv:1606.03476). A
penalty keeps the norm of D's gradients near 1 (arXiv:1704.00028). A variational bottleneck limits
the information that reaches D, so that D does not become accurate too early (VAIL,
arXiv:1810.00821).
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.optimizer import Optimizer, adam, descend
from mlagents.trainers.algorithms.transitions import Transitions, transitions_of_experts
from mlagents.trainers.data.demonstrations import Demonstrations
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import as_floats, linear
from mlagents.trainers.settings.behavior import GailSettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec

EPSILON = 1e-7
GRADIENT_PENALTY_WEIGHT = 10.0
LATENT_SIZE = 128
INFORMATION_LIMIT = 0.5
"""Target information about a step that passes the bottleneck, in nats."""
BETA_STEP = 0.0005


class Inputs(NamedTuple):
    """Inputs of the discriminator for B steps.

    Attributes:
        obs: One float array (B, *shape) per observation.
        actions: (B, actions + 1). The last column is 1 where the task ended the episode. None if
            the discriminator does not see actions.
    """

    obs: list[Tensor]
    actions: Tensor | None


class Discriminator(nn.Module):
    """Estimates the probability that a step is demonstrated.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of the signal.
    """

    beta: Tensor

    def __init__(
        self, spec: BehaviorSpec, settings: GailSettings, compute: Compute = PLAIN
    ) -> None:
        super().__init__()
        self.spec, self.use_actions = spec.action_spec, settings.use_actions
        n_actions = self.spec.continuous_size + sum(self.spec.discrete_branches) + 1
        self.body = NetworkBody(
            spec.observation_specs,
            settings.network_settings,
            n_beside=n_actions if settings.use_actions else 0,
            compute=compute,
        )
        size = self.body.output_size
        self.latent_mean: nn.Linear | None = None
        if settings.use_vail:
            self.latent_mean = linear(size, LATENT_SIZE)
            self.latent_std = nn.Parameter(torch.ones(LATENT_SIZE))
            self.register_buffer("beta", torch.zeros(()))
            size = LATENT_SIZE
        self.estimate = linear(size, 1)

    def inputs(self, batch: Transitions) -> Inputs:
        """Return the discriminator's inputs for a batch."""
        obs = [as_floats(observed) for observed in batch.obs]
        if not self.use_actions:
            return Inputs(obs, None)
        ended = batch.terminated.to(batch.continuous.dtype).unsqueeze(1)
        return Inputs(obs, torch.cat([batch.actions(self.spec), ended], dim=1))

    def forward(self, inputs: Inputs) -> Tensor:
        """Return the encoding (B, size) or, with a bottleneck, the mean of the latent."""
        hidden = self.body(inputs.obs, beside=inputs.actions)
        return hidden if self.latent_mean is None else self.latent_mean(hidden)

    def probability(self, encoding: Tensor) -> Tensor:
        """Return the probability that each step is demonstrated, (B,)."""
        return torch.sigmoid(self.estimate(encoding)).squeeze(1)


class GAIL:
    """Reward for steps that the discriminator mistakes for demonstrated ones.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of this signal.
        demonstrations: Demonstrations of the expert.
        device: Device to learn on.
        generator: Random generator of the updates, on the CPU.
        compute: Precision of the discriminator's body.
        shards: This learner's rank, and communication with the other learners.
    """

    name: ClassVar[str] = "gail"
    respects_end: ClassVar[bool] = True
    needs_next_obs: ClassVar[bool] = False

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: GailSettings,
        demonstrations: Demonstrations,
        *,
        device: torch.device,
        generator: torch.Generator,
        compute: Compute = PLAIN,
        shards: Shards = ALONE,
    ) -> None:
        self.shards = shards
        self.gamma, self.strength = settings.gamma, settings.strength
        self.expert = transitions_of_experts(demonstrations, device)
        self.network = Discriminator(spec, settings, compute).to(device)
        self.network.body.observations.update_normalization(self.expert.obs)
        self.optimizer = adam(self.network.parameters(), settings.learning_rate)
        self.generator = generator
        self.noise = torch.Generator(device)  # `update` seeds it from `generator`

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return all trained modules and optimizers, by their names in a checkpoint."""
        return {"Module:GAIL": self.network, "Optimizer:GAIL": self.optimizer}

    @torch.no_grad()
    def score(self, batch: Transitions) -> Tensor:
        """Return the reward of every step, (B,)."""
        probability = self.network.probability(self.network(self.network.inputs(batch)))
        return self.strength * -torch.log(1 - probability * (1 - EPSILON))

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Train on a minibatch and equally many demonstrated steps; return statistics to plot."""
        network, size = self.network, len(batch.reward)
        self.noise.manual_seed(int(torch.randint(2**62, (), generator=self.generator)))
        rows = torch.randint(
            len(self.expert.reward), (size,), generator=self.noise, device=self.noise.device
        )
        expert, policy = network.inputs(self.expert.take(rows)), network.inputs(batch)

        encoding = network(joined(expert, policy))
        latent = encoding
        if network.latent_mean is not None:
            noise = torch.empty_like(encoding).normal_(generator=self.noise)
            latent = encoding + network.latent_std * noise
        of_expert, of_policy = network.probability(latent).split(size)
        gail_loss = discriminator_loss(of_expert, of_policy)
        penalty = gradient_penalty(network, interpolated(expert, policy, self.noise))
        loss = gail_loss + GRADIENT_PENALTY_WEIGHT * penalty
        plotted = {
            "Losses/GAIL Loss": gail_loss,
            "Policy/GAIL Policy Estimate": of_policy.mean(),
            "Policy/GAIL Expert Estimate": of_expert.mean(),
            "Policy/GAIL Grad Mag Loss": penalty,
        }
        if network.latent_mean is not None:
            excess = latent_information(encoding, network.latent_std) - INFORMATION_LIMIT
            loss = loss + network.beta * excess
            plotted["Losses/GAIL KL Loss"] = excess + INFORMATION_LIMIT
            plotted["Policy/GAIL Beta"] = network.beta.clone()

        descend(loss, self.optimizer, shards=self.shards, n_rows=size)
        if network.latent_mean is not None:
            excess = self.shards.mean(excess.detach(), size)
            network.beta.add_(BETA_STEP * excess).clamp_(min=0.0)
        return {tag: value.detach() for tag, value in plotted.items()}


def discriminator_loss(of_expert: Tensor, of_policy: Tensor) -> Tensor:
    """Return -E[log D(expert)] - E[log(1 - D(policy))]; both arguments are (B,) probabilities."""
    return -(torch.log(of_expert + EPSILON) + torch.log(1 - of_policy + EPSILON)).mean()


def latent_information(mean: Tensor, std: Tensor) -> Tensor:
    """Return the KL divergence of the latent from N(0, 1), summed over expert and policy steps.

        E[-sum(1 + log std² - ½ mean_expert² - ½ mean_policy² - std²)]

    Args:
        mean: (2 B, size) means of the latent: expert steps first, then policy steps.
        std: (size,) standard deviations of the latent.
    """
    of_expert, of_policy = mean.square().chunk(2)
    variance = std.square()
    terms = 1 + variance.log() - 0.5 * of_expert - 0.5 * of_policy - variance
    return -terms.sum(1).mean()


def gradient_penalty(network: Discriminator, inputs: Inputs) -> Tensor:
    """Return E[(|gradient of D| - 1)²], the gradient taken over all inputs of a step together."""
    tensors = [t.requires_grad_() for t in _tensors(inputs)]
    probability = network.probability(network(inputs))
    gradients = torch.autograd.grad(probability.sum(), tensors, create_graph=True)
    squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0)
    return ((squares + EPSILON).sqrt() - 1).square().mean()


def interpolated(one: Inputs, other: Inputs, generator: torch.Generator) -> Inputs:
    """Interpolate two batches, with an independent random weight for each number."""
    mixed = [
        torch.lerp(a, b, torch.empty_like(a).uniform_(generator=generator))
        for a, b in zip(_tensors(one), _tensors(other), strict=True)
    ]
    return _inputs_like(one, mixed)


def joined(one: Inputs, other: Inputs) -> Inputs:
    """Concatenate two batches."""
    both = [torch.cat(pair) for pair in zip(_tensors(one), _tensors(other), strict=True)]
    return _inputs_like(one, both)


def _tensors(inputs: Inputs) -> list[Tensor]:
    return inputs.obs if inputs.actions is None else [*inputs.obs, inputs.actions]


def _inputs_like(inputs: Inputs, tensors: list[Tensor]) -> Inputs:
    n_obs = len(inputs.obs)
    return Inputs(tensors[:n_obs], None if inputs.actions is None else tensors[n_obs])
