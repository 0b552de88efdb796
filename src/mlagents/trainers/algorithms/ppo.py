"""Proximal policy optimization (arXiv:1707.06347)."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    mean_entropy,
)
from mlagents.trainers.algorithms.minibatches import deal, deal_sequences, in_order
from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.plotting import means
from mlagents.trainers.algorithms.returns import advantages_of, joined_advantages
from mlagents.trainers.algorithms.reward_signals import ROWS_AT_ONCE, steps_for
from mlagents.trainers.algorithms.schedules import scheduled
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings

FloatArray = NDArray[np.float32]


class Batch(NamedTuple):
    """Everything one update learns from, on the device; N rows.

    Attributes:
        obs: One array (N, *shape) per observation.
        continuous: (N, A) continuous actions.
        discrete: (N, K) int64 discrete actions.
        action_mask: (N, sum of branches) bool, True where an action is not allowed.
        old_log_probs: (N, A + K) log-probabilities under the policy that acted.
        old_values: (N, signals) values before the update.
        advantages: (N, 1) normalized advantages.
        returns: (N, signals) returns.
    """

    obs: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    action_mask: Tensor
    old_log_probs: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor

    def take(self, rows: Tensor) -> "Batch":
        """Return a batch of the given rows."""
        others = [field.index_select(0, rows) for field in self[1:]]
        return Batch([batch.index_select(0, rows) for batch in self.obs], *others)


class PPO(Algorithm):
    """Learns a policy and a value function from recent experience of that policy.

    Attributes:
        losses: Function that returns policy loss, value loss and entropy; see `_losses`.
    """

    settings: PPOSettings

    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create actor and critic."""
        memory = settings.network_settings.memory
        self.sequence_length = memory.sequence_length if memory else None
        self.network = ActorCritic(
            self.spec,
            settings.network_settings,
            n_signals=len(settings.reward_signals),
            shared=self.settings.shared_critic,
            compute=self.compute,
        ).to(self.device)
        self.losses = self.compute.compiled(self._losses)
        self.optimizer = adam(self.network.parameters(), self.settings.learning_rate)

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self.network.actor

    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Return actor, critic and optimizer, by their names in a checkpoint."""
        return {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:value_optimizer": self.optimizer,
        }

    def snapshot(self) -> Snapshot:
        """Return a copy of the actor and of a critic body with memory of its own."""
        return snapshot_of(self.actor, self.network.remembering_critic)

    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the current policy; return the statistics to plot, by tag.

        Args:
            segments: Experience of the current policy.
            rewards: (N, signals) rewards from `score`.
            step: Step count of the behavior, for the schedules.
        """
        s = self.settings
        batch, estimates = self._prepare(segments, rewards)
        now = partial(scheduled, step=step, max_steps=self.max_steps)
        learning_rate = self.set_learning_rate(step)
        epsilon = now(s.epsilon, s.epsilon_schedule, floor=s.epsilon_floor)
        beta = now(s.beta, s.beta_schedule, floor=s.beta_floor)

        losses: list[Tensor] = []
        plots: list[dict[str, Tensor]] = []
        steps = steps_for(self.signals, segments, self.device)
        for _ in range(s.num_epoch):
            for rows, sequences in self._minibatches(segments):
                part = batch.take(rows)
                policy_loss, value_loss, entropy = self.losses(part, sequences, epsilon)
                loss = policy_loss + 0.5 * value_loss - beta * entropy
                self.descend(loss, self.network.parameters())
                losses += [policy_loss.detach().abs(), value_loss.detach()]
                if steps is not None:
                    of_signals = steps.take(rows)
                    plots += [signal.update(of_signals) for signal in self.signals]
        if self.cloning is not None:
            plots.append(self.cloning.update(step=step))

        # Normalization comes last, so the acting and the learning policy see the same observations.
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
        """Return policy loss, value loss and mean entropy, all scalars."""
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

    def _minibatches(self, segments: Segments) -> Iterator[tuple[Tensor, Sequences | None]]:
        """Yield random minibatches of single steps or, with memory, of whole sequences.

        An incomplete last minibatch is left out of this epoch.
        """
        if self.sequence_length is None:
            size = min(self.settings.batch_size, segments.n_steps)
            for rows in deal(segments.n_steps, size, self.generator).to(self.device):
                yield rows, None
            return
        longest = self.sequence_length
        lengths = torch.from_numpy(cut_into(longest, segments.length))
        memory = torch.as_tensor(segments.memory, device=self.device)
        size = min(max(1, self.settings.batch_size // longest), len(lengths))
        for rows, dealt, place in deal_sequences(
            lengths, size, longest, self.generator, self.device
        ):
            yield rows, Sequences(memory[dealt], place, longest)

    @torch.no_grad()
    def _prepare(self, segments: Segments, rewards: FloatArray) -> tuple[Batch, dict[str, float]]:
        """Move experience to the device, with values, advantages and returns added."""
        to_device = partial(torch.as_tensor, device=self.device)
        obs = [to_device(o) for o in segments.obs]
        last_obs = [to_device(o) for o in segments.last_obs]
        if self.sequence_length is None:
            values = self._values(obs, to_device(np.zeros((segments.n_steps, 0), np.float32)))
        else:
            values = self._values_along(obs, segments, self.sequence_length)
        bootstrap = self._values(last_obs, to_device(segments.last_memory))

        advantages = advantages_of(
            segments, rewards, values, bootstrap, self.signals, lambd=self.settings.lambd
        )  # (N, signals)
        each = self.settings.normalize_each_signal
        strengths = [signal.strength for signal in self.signals] if each else None

        batch = Batch(
            obs=obs,
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
        """Return the values of N steps (N, signals), each with the memory before it."""
        parts = zip(*(batch.split(ROWS_AT_ONCE) for batch in (memory, *obs)), strict=True)
        return torch.cat([self.network.values(part, m) for m, *part in parts]).cpu().numpy()

    def _values_along(self, obs: list[Tensor], segments: Segments, longest: int) -> FloatArray:
        """Return the values of N steps (N, signals), with memory carried along each sequence."""
        memory = torch.as_tensor(segments.memory, device=self.device)
        lengths = cut_into(longest, segments.length)
        values = [
            self.network.values_along(
                [batch[rows] for batch in obs],
                Sequences(memory[sequences], place.to(self.device), longest),
            )
            for rows, sequences, place in in_order(lengths, ROWS_AT_ONCE, longest)
        ]
        return torch.cat(values).cpu().numpy()
