"""Advantage actor-critic (arXiv:1602.01783, without its many threads) as a trainer type.

    pip install examples/plugins/a2c

From then on a behavior may say `trainer_type: a2c`.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from mlagents.trainers.algorithms.returns import gae
from mlagents.trainers.algorithms.reward_signals import make_reward_signals, score_segments
from mlagents.trainers.algorithms.schedules import LEARNING_RATE_FLOOR, scheduled
from mlagents.trainers.data.segments import Segments, is_step, to_columns
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.settings.base import Float, Int
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import HyperparameterSettings
from mlagents.trainers.training.trainer import OnPolicyTrainer
from mlagents_envs.base_env import BehaviorSpec

FloatArray = NDArray[np.float32]


class A2CSettings(HyperparameterSettings):
    """What may stand below `hyperparameters`, beside what every algorithm has."""

    batch_size: Int = Field(64, ge=1)
    """Not used: an update is one gradient step on the whole buffer."""
    buffer_size: Int = Field(64, ge=1)
    """Experiences collected before an update."""
    beta: Float = Field(0.01, ge=0.0)
    """Weight of the entropy bonus; more keeps the policy exploring for longer."""
    lambd: Float = Field(0.95, ge=0.0, le=1.0)
    """Trust in rewards over values: 0 values only, 1 rewards only."""
    clip_norm: Float = Field(0.5, gt=0.0)
    """Largest norm of the gradient of all parameters together."""


class A2C:
    """Learns a policy and its values from fresh experience, each step of it once.

    Args:
        spec: What the behavior observes and does.
        settings: The behavior's settings; `hyperparameters` are those above.
        device: Where to learn.
        seed: Of weights.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: BehaviorSettings, *, device: torch.device, seed: int
    ) -> None:
        assert isinstance(settings.hyperparameters, A2CSettings)
        self.settings = settings.hyperparameters
        self.max_steps = settings.max_steps
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)
        self.signals = make_reward_signals(settings, spec, device=device, generator=self.generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = ActorCritic(
                spec, settings.network_settings, n_signals=len(self.signals), shared=False
            ).to(device)
        self.optimizer = torch.optim.Adam(self.network.parameters())

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self.network.actor

    @property
    def remembering_critic(self) -> None:
        """The body of a critic with a memory of its own: there is none."""

    def modules(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        """Everything that learns, by its name in a checkpoint."""
        return {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:adam": self.optimizer,
        }

    def score(self, segments: Segments) -> FloatArray:
        """(N, signals) reward of every step in the eyes of every reward signal."""
        return score_segments(self.signals, segments, self.device)

    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from the experience of the present policy; return what to plot, by tag."""
        s, tensor = self.settings, partial(torch.as_tensor, device=self.device)
        obs = [tensor(o) for o in segments.obs]
        learning_rate = scheduled(
            s.learning_rate,
            s.learning_rate_schedule,
            step=step,
            max_steps=self.max_steps,
            floor=LEARNING_RATE_FLOOR,
        )
        self.optimizer.param_groups[0]["lr"] = learning_rate

        log_probs, entropies, values = self.network.evaluate(
            obs,
            tensor(segments.continuous),
            tensor(segments.discrete).long(),
            tensor(segments.action_mask),
        )
        advantages = self._advantages(segments, rewards, values.detach().cpu().numpy())
        returns = tensor(advantages) + values.detach()  # (N, signals)
        advantage = tensor(advantages.mean(axis=1))  # (N,)
        policy_loss = -(log_probs.sum(dim=1) * advantage).mean()
        value_loss = nn.functional.mse_loss(values, returns)
        entropy = entropies.sum(dim=1).mean()
        loss = policy_loss + 0.5 * value_loss - s.beta * entropy

        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), s.clip_norm)
        self.optimizer.step()
        self.network.update_normalization(obs)
        return {
            "Losses/Policy Loss": abs(policy_loss.item()),
            "Losses/Value Loss": value_loss.item(),
            "Policy/Learning Rate": learning_rate,
        }

    def _advantages(
        self, segments: Segments, rewards: FloatArray, values: FloatArray
    ) -> FloatArray:
        """(N, signals) advantage of every step."""
        with torch.no_grad():
            last_obs = [torch.as_tensor(o, device=self.device) for o in segments.last_obs]
            bootstrap = self.network.critic(last_obs).cpu().numpy()  # (S, signals)
        bootstrap[segments.terminated] = 0.0
        advantages = np.empty_like(values)
        for i, signal in enumerate(self.signals):
            advantages[:, i] = gae(
                to_columns(rewards[:, i], segments.length),
                to_columns(values[:, i], segments.length),
                bootstrap[:, i],
                segments.length,
                gamma=signal.gamma,
                lambd=self.settings.lambd,
            )[is_step(segments.length)]
        return advantages


class A2CTrainer(OnPolicyTrainer):
    """Collects, learns, drops what it learned from; only what learns is not PPO."""

    def make_algorithm(self, *, device: torch.device, seed: int) -> A2C:
        """Make what learns."""
        if self.settings.network_settings.memory:
            raise TrainerConfigError(
                f"behaviors.{self.name}.network_settings.memory: a2c learns without memory; "
                "remove it."
            )
        return A2C(self.spec, self.settings, device=device, seed=seed)


def trainer_types() -> tuple[dict[str, type[A2CTrainer]], dict[str, type[A2CSettings]]]:
    """Return the trainers this package brings, and their settings, by trainer type."""
    return {"a2c": A2CTrainer}, {"a2c": A2CSettings}
