"""Proximal policy optimization (arXiv:1707.06347)."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.algorithms.losses import clipped_policy_loss
from mlagents.trainers.algorithms.returns import gae
from mlagents.trainers.algorithms.reward_signals import make_reward_signals
from mlagents.trainers.algorithms.schedules import (
    BETA_FLOOR,
    EPSILON_FLOOR,
    LEARNING_RATE_FLOOR,
    scheduled,
)
from mlagents.trainers.data.segments import Segments, is_step, to_columns
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings
from mlagents_envs.base_env import BehaviorSpec

FloatArray = NDArray[np.float32]


class Batch(NamedTuple):
    """Everything one update learns from, on the device; N rows.

    Attributes:
        obs: One (N, *shape) per observation.
        continuous: (N, A).
        discrete: (N, K) int64.
        action_mask: (N, sum of branches).
        old_log_probs: (N, A + K).
        advantages: (N, 1), normalized.
        returns: (N, signals).
    """

    obs: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    action_mask: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    returns: Tensor

    def shuffled_minibatches(self, size: int, generator: torch.Generator) -> "list[Batch]":
        """Deal the rows out at random into batches of `size`; what does not fill one is left."""
        n_rows = len(self.advantages)
        order = torch.randperm(n_rows, generator=generator)[: n_rows // size * size]
        order = order.to(self.advantages.device)
        obs = zip(*(o[order].split(size) for o in self.obs), strict=True)
        others = zip(*(field[order].split(size) for field in self[1:]), strict=True)
        return [Batch(list(o), *rest) for o, rest in zip(obs, others, strict=True)]


class PPO:
    """Learns a policy and its values from the policy's own recent experience.

    Args:
        spec: What the behavior observes and does.
        settings: The behavior's settings; `hyperparameters` are PPO's.
        device: Where to learn.
        seed: Of weights and minibatches.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: BehaviorSettings, *, device: torch.device, seed: int
    ) -> None:
        assert isinstance(settings.hyperparameters, PPOSettings)
        self.settings = settings.hyperparameters
        self.max_steps = settings.max_steps
        self.signals = make_reward_signals(settings)
        self.device = device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = ActorCritic(
                spec,
                settings.network_settings,
                n_signals=len(self.signals),
                shared=self.settings.shared_critic,
            ).to(device)
        self.generator = torch.Generator().manual_seed(seed)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=self.settings.learning_rate,
            fused=device.type in ("cpu", "cuda"),
        )

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self.network.actor

    def modules(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        """Everything that learns, by its name in a checkpoint."""
        return {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:value_optimizer": self.optimizer,
        }

    def score(self, segments: Segments) -> FloatArray:
        """(N, signals) reward of every step in the eyes of every reward signal."""
        return np.column_stack([signal.score(segments) for signal in self.signals])

    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the present policy; return what to plot, by tag.

        Args:
            segments: Fresh experience.
            rewards: (N, signals) from `score`.
            step: The behavior's step count, for the schedules.
        """
        s = self.settings
        batch, estimates = self._prepare(segments, rewards)
        now = partial(scheduled, step=step, max_steps=self.max_steps)
        learning_rate = now(s.learning_rate, s.learning_rate_schedule, floor=LEARNING_RATE_FLOOR)
        epsilon = now(s.epsilon, s.epsilon_schedule, floor=EPSILON_FLOOR)
        beta = now(s.beta, s.beta_schedule, floor=BETA_FLOOR)
        self.optimizer.param_groups[0]["lr"] = learning_rate

        losses: list[Tensor] = []
        size = min(s.batch_size, len(batch.advantages))
        for _ in range(s.num_epoch):
            for part in batch.shuffled_minibatches(size, self.generator):
                log_probs, entropy, values = self.network.evaluate(
                    part.obs, part.continuous, part.discrete, part.action_mask
                )
                policy_loss = clipped_policy_loss(
                    log_probs, part.old_log_probs, part.advantages, epsilon=epsilon
                )
                value_loss = nn.functional.mse_loss(values, part.returns)
                loss = policy_loss + 0.5 * value_loss - beta * entropy.mean()

                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                losses += [policy_loss.detach(), value_loss.detach()]

        # Last, so that the policy that acts and the policy that learns see the same observations.
        self.network.update_normalization(batch.obs)
        mean_policy_loss, mean_value_loss = torch.stack(losses).view(-1, 2).mean(0).tolist()
        return estimates | {
            "Losses/Policy Loss": abs(mean_policy_loss),
            "Losses/Value Loss": mean_value_loss,
            "Policy/Learning Rate": learning_rate,
            "Policy/Epsilon": epsilon,
            "Policy/Beta": beta,
        }

    @torch.no_grad()
    def _prepare(self, segments: Segments, rewards: FloatArray) -> tuple[Batch, dict[str, float]]:
        """Add values, advantages and returns to experience and bring it to the device."""
        device, n_steps = self.device, segments.n_steps
        obs = [torch.as_tensor(o, device=device) for o in segments.obs]
        last_obs = [torch.as_tensor(o, device=device) for o in segments.last_obs]
        joined = [torch.cat(pair) for pair in zip(obs, last_obs, strict=True)]
        values, bootstrap = np.split(self.network.critic(joined).cpu().numpy(), [n_steps])
        bootstrap[segments.terminated] = 0.0

        real = is_step(segments.length)
        advantages = np.empty_like(values)  # (N, signals)
        for i, signal in enumerate(self.signals):
            advantages[:, i] = gae(
                to_columns(rewards[:, i], segments.length),
                to_columns(values[:, i], segments.length),
                bootstrap[:, i],
                segments.length,
                gamma=signal.gamma,
                lambd=self.settings.lambd,
            )[real]
        returns = advantages + values
        advantage = advantages.mean(axis=1, keepdims=True)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-10)

        batch = Batch(
            obs=obs,
            continuous=torch.as_tensor(segments.continuous, device=device),
            discrete=torch.as_tensor(segments.discrete, device=device).long(),
            action_mask=torch.as_tensor(segments.action_mask, device=device),
            old_log_probs=torch.as_tensor(segments.log_probs, device=device),
            advantages=torch.as_tensor(advantage, device=device),
            returns=torch.as_tensor(returns, device=device),
        )
        estimates = {
            f"Policy/{signal.name.capitalize()} Value Estimate": float(values[:, i].mean())
            for i, signal in enumerate(self.signals)
        }
        return batch, estimates
