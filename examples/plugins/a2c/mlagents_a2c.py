"""Advantage actor-critic (arXiv:1602.01783, but synchronous) as a trainer type.

    pip install examples/plugins/a2c

After that, a behavior may use `trainer_type: a2c`.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.plotting import means
from mlagents.trainers.algorithms.returns import advantages_of
from mlagents.trainers.algorithms.reward_signals import steps_for
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.on_policy import OnPolicyAlgorithm, OnPolicyLearner
from mlagents.trainers.learning.trainer_types import TrainerType
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.settings.base import Float, Int
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import HyperparameterSettings

FloatArray = NDArray[np.float32]


class A2CSettings(HyperparameterSettings):
    """Keys below `hyperparameters`, in addition to those of every algorithm."""

    batch_size: Int = Field(64, ge=1)
    """Unused: an update is one gradient step on the whole buffer."""
    buffer_size: Int = Field(64, ge=1)
    """Experiences collected before an update."""
    beta: Float = Field(0.01, ge=0.0)
    """Weight of the entropy bonus; with a larger weight, the policy explores for longer."""
    lambd: Float = Field(0.95, ge=0.0, le=1.0)
    """Trust in rewards over values: 0 values only, 1 rewards only."""
    max_grad_norm: Float | None = Field(0.5, gt=0.0)
    """Largest norm of the gradient of all parameters together; null for no limit."""


class A2C(OnPolicyAlgorithm):
    """Learns a policy and its values from new experience, using each step once."""

    settings: A2CSettings

    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create the networks of actor and critic, and their optimizer."""
        if settings.network_settings.memory:
            raise UnityTrainerException(
                "network_settings.memory: a2c does not support memory. Remove this key."
            )
        self.network = ActorCritic(
            self.spec,
            settings.network_settings,
            n_signals=len(settings.reward_signals),
            shared=False,
            compute=self.compute,
        ).to(self.device)
        self.optimizer = adam(self.network.parameters(), self.settings.learning_rate)

    @property
    def actor(self) -> Actor:
        """Network of the policy."""
        return self.network.actor

    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Actor, critic and their optimizer, by their names in a checkpoint."""
        return {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:adam": self.optimizer,
        }

    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the current policy; return numbers to plot, by tag."""
        tensor = partial(torch.as_tensor, device=self.device)
        obs = [tensor(o) for o in segments.obs]
        learning_rate = self.set_learning_rate(step)

        log_probs, entropies, values = self.network.evaluate(
            obs,
            tensor(segments.continuous),
            tensor(segments.discrete).long(),
            tensor(segments.action_mask),
        )
        with torch.no_grad():
            bootstrap = self.network.critic([tensor(o) for o in segments.last_obs])
        advantages = advantages_of(
            segments,
            rewards,
            values.detach().cpu().numpy(),
            bootstrap.cpu().numpy(),
            self.signals,
            lambd=self.settings.lambd,
        )  # (N, signals)
        returns = tensor(advantages) + values.detach()
        advantage = tensor(advantages.sum(axis=1))  # (N,)
        policy_loss = -(log_probs.sum(dim=1) * advantage).mean()
        value_loss = nn.functional.mse_loss(values, returns)
        entropy = entropies.sum(dim=1).mean()
        loss = policy_loss + 0.5 * value_loss - self.settings.beta * entropy

        self.descend(loss, self.network.parameters(), n_rows=segments.n_steps)
        self.network.update_normalization(obs)
        return {
            **self._update_signals(segments, step),
            "Losses/Policy Loss": abs(policy_loss.item()),
            "Losses/Value Loss": value_loss.item(),
            "Policy/Learning Rate": learning_rate,
        }

    def _update_signals(self, segments: Segments, step: int) -> dict[str, float]:
        """Train curiosity, RND, GAIL and cloning, if the settings contain them."""
        plots = []
        steps = steps_for(self.signals, segments, self.device)
        if steps is not None:
            plots += [signal.update(steps) for signal in self.signals]
        if self.cloning is not None:
            plots.append(self.cloning.update(step=step))
        return means(plots)


def trainer_types() -> dict[str, TrainerType]:
    """Return the trainer types of this package, by name."""
    return {"a2c": TrainerType(OnPolicyLearner, A2C, A2CSettings)}
