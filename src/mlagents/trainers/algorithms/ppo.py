"""Proximal policy optimization (arXiv:1707.06347)."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.algorithms.behavioral_cloning import BehavioralCloning
from mlagents.trainers.algorithms.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    mean_entropy,
)
from mlagents.trainers.algorithms.minibatches import deal, deal_sequences
from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.plotting import means
from mlagents.trainers.algorithms.returns import gae, joined_advantages
from mlagents.trainers.algorithms.reward_signals import (
    ROWS_AT_ONCE,
    RewardSignal,
    make_reward_signals,
    score_segments,
    steps_for,
)
from mlagents.trainers.algorithms.schedules import LEARNING_RATE_FLOOR, scheduled
from mlagents.trainers.data.segments import Segments, cut_into, is_step, to_columns
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings
from mlagents_envs.base_env import BehaviorSpec

FloatArray = NDArray[np.float32]


class Batch(NamedTuple):
    """Everything one update learns from, on the device; N rows.

    Attributes:
        obs: One (N, *shape) per observation.
        memory: (N, memory size) before the step.
        continuous: (N, A).
        discrete: (N, K) int64.
        action_mask: (N, sum of branches).
        old_log_probs: (N, A + K).
        old_values: (N, signals).
        advantages: (N, 1), normalized.
        returns: (N, signals).
    """

    obs: list[Tensor]
    memory: Tensor
    continuous: Tensor
    discrete: Tensor
    action_mask: Tensor
    old_log_probs: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor

    def take(self, rows: Tensor) -> "Batch":
        """Return some of the rows."""
        others = [field.index_select(0, rows) for field in self[1:]]
        return Batch([batch.index_select(0, rows) for batch in self.obs], *others)


class PPO:
    """Learns a policy and its values from the policy's own recent experience.

    Args:
        spec: What the behavior observes and does.
        settings: The behavior's settings; `hyperparameters` are PPO's.
        device: Where to learn.
        seed: Of weights and minibatches.
        inference: Only act: there are no reward signals and no demonstrations.

    Attributes:
        losses: Of the policy, of the values, and the entropy, see `_losses`; may be replaced by a
            faster form.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: BehaviorSettings,
        *,
        device: torch.device,
        seed: int,
        inference: bool = False,
    ) -> None:
        assert isinstance(settings.hyperparameters, PPOSettings)
        self.settings = settings.hyperparameters
        self.max_steps = settings.max_steps
        memory = settings.network_settings.memory
        self.sequence_length = memory.sequence_length if memory else None
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)
        self.signals: list[RewardSignal] = []
        self.cloning: BehavioralCloning | None = None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = ActorCritic(
                spec,
                settings.network_settings,
                n_signals=len(settings.reward_signals),
                shared=self.settings.shared_critic,
            ).to(device)
            if not inference:
                self.signals = make_reward_signals(
                    settings, spec, device=device, generator=self.generator
                )
        self.losses = self._losses
        self.optimizer = adam(self.network.parameters(), self.settings.learning_rate)
        if settings.behavioral_cloning and not inference:
            self.cloning = BehavioralCloning(
                self.actor, spec, settings, device=device, generator=self.generator
            )

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self.network.actor

    @property
    def remembering_critic(self) -> NetworkBody | None:
        """The critic's body, if it has a memory of its own."""
        return self.network.remembering_critic

    def modules(self) -> dict[str, nn.Module | Optimizer]:
        """Everything that learns, by its name in a checkpoint."""
        modules: dict[str, nn.Module | Optimizer] = {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:value_optimizer": self.optimizer,
        }
        for signal in self.signals:
            modules |= signal.modules()
        if self.cloning is not None:
            modules |= self.cloning.modules()
        return modules

    def score(self, segments: Segments) -> FloatArray:
        """(N, signals) reward of every step in the eyes of every reward signal."""
        return score_segments(self.signals, segments, self.device)

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
        epsilon = now(s.epsilon, s.epsilon_schedule, floor=s.epsilon_floor)
        beta = now(s.beta, s.beta_schedule, floor=s.beta_floor)
        self.optimizer.param_groups[0]["lr"] = learning_rate

        losses: list[Tensor] = []
        plots: list[dict[str, Tensor]] = []
        steps = steps_for(self.signals, segments, self.device)
        for _ in range(s.num_epoch):
            for rows, sequences in self._minibatches(batch, segments.length):
                part = batch.take(rows)
                policy_loss, value_loss, entropy = self.losses(part, sequences, epsilon)
                loss = policy_loss + 0.5 * value_loss - beta * entropy

                self.optimizer.zero_grad()
                loss.backward()
                if s.max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(self.network.parameters(), s.max_grad_norm)
                self.optimizer.step()
                losses += [policy_loss.detach().abs(), value_loss.detach()]
                if steps is not None:
                    of_signals = steps.take(rows)
                    plots += [signal.update(of_signals) for signal in self.signals]
        if self.cloning is not None:
            plots.append(self.cloning.update(step=step))

        # Last, so that the policy that acts and the policy that learns see the same observations.
        self.network.update_normalization(batch.obs)
        mean_policy_loss, mean_value_loss = torch.stack(losses).view(-1, 2).mean(0).tolist()
        return (
            estimates
            | means(plots)
            | {
                "Losses/Policy Loss": mean_policy_loss,
                "Losses/Value Loss": mean_value_loss,
                "Policy/Learning Rate": learning_rate,
                "Policy/Epsilon": epsilon,
                "Policy/Beta": beta,
            }
        )

    def _losses(
        self, batch: Batch, sequences: Sequences | None, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the policy's loss, that of the values and the mean entropy, all scalars."""
        s = self.settings
        log_probs, entropies, values = self.network.evaluate(
            batch.obs, batch.continuous, batch.discrete, batch.action_mask, sequences
        )
        policy_loss = clipped_policy_loss(
            log_probs, batch.old_log_probs, batch.advantages, epsilon=epsilon, joint=s.joint_ratio
        )
        if s.clip_values:
            value_loss = clipped_value_loss(
                values, batch.old_values, batch.returns, epsilon=epsilon
            )
        else:
            value_loss = nn.functional.mse_loss(values, batch.returns)
        n_continuous = batch.continuous.shape[1]
        entropy = mean_entropy(entropies, n_continuous=n_continuous, joint=s.joint_entropy)
        return policy_loss, value_loss, entropy

    def _minibatches(
        self, batch: Batch, length: NDArray[np.int64]
    ) -> Iterator[tuple[Tensor, Sequences | None]]:
        """Deal the rows of experience out at random, steps or, with memory, whole sequences.

        What does not fill a minibatch is left out of this pass.
        """
        if self.sequence_length is None:
            size = min(self.settings.batch_size, len(batch.advantages))
            for rows in deal(len(batch.advantages), size, self.generator).to(self.device):
                yield rows, None
            return
        longest = self.sequence_length
        lengths = torch.from_numpy(cut_into(longest, length))
        size = min(max(1, self.settings.batch_size // longest), len(lengths))
        for rows, starts, place in deal_sequences(
            lengths, size, longest, self.generator, self.device
        ):
            yield rows, Sequences(batch.memory[starts], place, longest)

    @torch.no_grad()
    def _prepare(self, segments: Segments, rewards: FloatArray) -> tuple[Batch, dict[str, float]]:
        """Add values, advantages and returns to experience and bring it to the device."""
        to_device = partial(torch.as_tensor, device=self.device)
        obs, memory = [to_device(o) for o in segments.obs], to_device(segments.memory)
        values = self._values(obs, memory)
        bootstrap = self._values(
            [to_device(o) for o in segments.last_obs], to_device(segments.last_memory)
        )

        real = is_step(segments.length)
        advantages = np.empty_like(values)  # (N, signals)
        for i, signal in enumerate(self.signals):
            if signal.respects_end:
                bootstrap[segments.terminated, i] = 0.0
            advantages[:, i] = gae(
                to_columns(rewards[:, i], segments.length),
                to_columns(values[:, i], segments.length),
                bootstrap[:, i],
                segments.length,
                gamma=signal.gamma,
                lambd=self.settings.lambd,
            )[real]
        each = self.settings.normalize_each_signal
        strengths = [signal.strength for signal in self.signals] if each else None

        batch = Batch(
            obs=obs,
            memory=memory,
            continuous=to_device(segments.continuous),
            discrete=to_device(segments.discrete).long(),
            action_mask=to_device(segments.action_mask),
            old_log_probs=to_device(segments.log_probs),
            old_values=to_device(values),
            advantages=to_device(joined_advantages(advantages, strengths)),
            returns=to_device(advantages + values),
        )
        estimates = {
            f"Policy/{signal.name.capitalize()} Value Estimate": float(values[:, i].mean())
            for i, signal in enumerate(self.signals)
        }
        return batch, estimates

    def _values(self, obs: list[Tensor], memory: Tensor) -> FloatArray:
        """(N, signals) value of N steps."""
        parts = zip(*(batch.split(ROWS_AT_ONCE) for batch in (memory, *obs)), strict=True)
        return torch.cat([self.network.values(part, m) for m, *part in parts]).cpu().numpy()
