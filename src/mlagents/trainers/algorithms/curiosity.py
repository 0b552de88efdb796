"""Curiosity: reward for transitions that a learned model predicts badly.

    phi(o): features, trained so that phi(o) and phi(o') reveal the action
    reward = ½ |phi(o') - f(phi(o), a)|²

The features ignore parts of the observation that actions cannot affect, so changes in those parts
are not rewarded (arXiv:1705.05363).
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.optimizer import Optimizer, adam, descend
from mlagents.trainers.algorithms.transitions import Transitions
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import dense_block, linear
from mlagents.trainers.settings.behavior import CuriositySettings, NetworkSettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec

HIDDEN_UNITS = 256
FORWARD_WEIGHT = 0.2
"""Weight of the forward loss. The inverse loss has weight 1 - FORWARD_WEIGHT."""
LOSS_SCALE = 10.0


class CuriosityNetwork(nn.Module):
    """Feature encoder, forward model (predicts features) and inverse model (predicts actions).

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of the feature encoder.
    """

    has_learned: Tensor

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, compute: Compute = PLAIN
    ) -> None:
        super().__init__()
        self.spec = spec.action_spec
        self.n_actions = self.spec.continuous_size + sum(self.spec.discrete_branches)
        self.features = NetworkBody(spec.observation_specs, settings, compute=compute)
        size = self.features.output_size
        self.inverse = nn.Sequential(
            dense_block(2 * size, HIDDEN_UNITS, 1), linear(HIDDEN_UNITS, self.n_actions)
        )
        self.forward_model = nn.Sequential(
            dense_block(size + self.n_actions, HIDDEN_UNITS, 1), linear(HIDDEN_UNITS, size)
        )
        self.register_buffer("has_learned", torch.zeros(()))

    def errors(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """Return the errors of the forward and the inverse model for each step, both (B,)."""
        before, after = self.features(batch.obs), self.features(batch.next_obs)
        actions = batch.actions(self.spec)
        predicted = self.forward_model(torch.cat([before, actions], dim=1))
        forward_error = 0.5 * (after - predicted).square().sum(1)

        told = self.inverse(torch.cat([before, after], dim=1))
        sizes = [self.spec.continuous_size, *self.spec.discrete_branches]
        continuous, *branches = told.split(sizes, dim=1)
        inverse_error = (continuous - batch.continuous).square().sum(1)
        for logits, choice in zip(branches, batch.discrete.unbind(1), strict=True):
            inverse_error = inverse_error + nn.functional.cross_entropy(
                logits, choice, reduction="none"
            )
        return forward_error, inverse_error


class Curiosity:
    """Reward for the prediction error of the forward model, limited to 1 per step.

    The limit applies after `strength`. The reward is zero before the first update, because the
    errors of an untrained model carry no information.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of this signal.
        device: Device to learn on.
        compute: Precision of the features.
        shards: This learner's rank, and communication with the other learners.
    """

    name: ClassVar[str] = "curiosity"
    respects_end: ClassVar[bool] = False
    needs_next_obs: ClassVar[bool] = True

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: CuriositySettings,
        *,
        device: torch.device,
        compute: Compute = PLAIN,
        shards: Shards = ALONE,
    ) -> None:
        self.shards = shards
        self.gamma, self.strength = settings.gamma, settings.strength
        self.network = CuriosityNetwork(spec, settings.network_settings, compute).to(device)
        self.optimizer = adam(self.network.parameters(), settings.learning_rate)

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return all trained modules and optimizers, by their names in a checkpoint."""
        return {"Module:Curiosity": self.network, "Optimizer:Curiosity": self.optimizer}

    @torch.no_grad()
    def score(self, batch: Transitions) -> Tensor:
        """Return the reward of every step, (B,)."""
        forward_error, _ = self.network.errors(batch)
        return (self.strength * forward_error).clamp(max=1.0) * self.network.has_learned

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Learn from a minibatch; return the statistics to plot, by tag."""
        forward_error, inverse_error = self.network.errors(batch)
        forward_loss, inverse_loss = forward_error.mean(), inverse_error.mean()
        loss = LOSS_SCALE * (FORWARD_WEIGHT * forward_loss + (1 - FORWARD_WEIGHT) * inverse_loss)

        descend(loss, self.optimizer, shards=self.shards, n_rows=len(batch.reward))
        self.network.features.observations.update_normalization(batch.obs)
        self.network.has_learned.fill_(1.0)
        return {
            "Losses/Curiosity Forward Loss": forward_loss.detach(),
            "Losses/Curiosity Inverse Loss": inverse_loss.detach(),
        }
