"""Random network distillation: reward for observations unlike those seen before.

    reward = |predictor(o) - target(o)|²

The target is a random network that never changes. The predictor learns to match its output, so its
error is small for observations that it has often been trained on (arXiv:1810.12894).
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.optimizer import Optimizer, adam, descend
from mlagents.trainers.algorithms.transitions import Transitions
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Normalizer
from mlagents.trainers.settings.behavior import RNDSettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec

NORMALIZED_BY = 10_000
"""Number of observations after which `normalize` stops updating its statistics. Further updates
would change the target's output, and all observations would seem new again."""


class RND:
    """Reward for observations that the predictor has not learned yet.

    Args:
        spec: Observations of the behavior.
        settings: Settings of this signal.
        device: Device to learn on.
        shards: This learner's rank, and communication with the other learners.
    """

    name: ClassVar[str] = "rnd"
    respects_end: ClassVar[bool] = False
    needs_next_obs: ClassVar[bool] = False

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: RNDSettings,
        *,
        device: torch.device,
        shards: Shards = ALONE,
    ) -> None:
        self.shards = shards
        self.gamma, self.strength = settings.gamma, settings.strength
        self.predictor, self.target = (
            NetworkBody(spec.observation_specs, settings.network_settings).to(device)
            for _ in range(2)
        )
        self.target.requires_grad_(False)
        self.normalizers = [
            module for module in self.target.modules() if isinstance(module, Normalizer)
        ]
        self.optimizer = adam(self.predictor.parameters(), settings.learning_rate)

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Return all trained modules and optimizers, by their names in a checkpoint."""
        return {
            "Module:RND-pred": self.predictor,
            "Module:RND-target": self.target,
            "Optimizer:RND": self.optimizer,
        }

    @torch.no_grad()
    def score(self, batch: Transitions) -> Tensor:
        """Return the reward of every step, (B,)."""
        return self.strength * self._errors(batch)

    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Learn from a minibatch; return the statistics to plot, by tag."""
        loss = self._errors(batch).mean()

        descend(loss, self.optimizer, shards=self.shards, n_rows=len(batch.reward))
        if any(normalizer.count <= NORMALIZED_BY for normalizer in self.normalizers):
            for network in (self.predictor, self.target):
                network.observations.update_normalization(batch.obs)
        return {"Losses/RND Loss": loss.detach()}

    def _errors(self, batch: Transitions) -> Tensor:
        # `step` always computes in float32. In lower precision, rounding would exceed the
        # difference, which becomes very small.
        no_memory = batch.reward.new_empty(0)
        predicted, _ = self.predictor.step(batch.obs, no_memory)
        wanted, _ = self.target.step(batch.obs, no_memory)
        return (predicted - wanted).square().sum(1)
