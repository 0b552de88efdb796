"""Proximal policy optimization (arXiv:1707.06347)."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.algorithms.minibatches import deal, deal_sequences, in_order
from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.proximal import VALUE_LOSS, Batch, Proximal, Terms
from mlagents.trainers.algorithms.returns import advantages_of, corrected_advantages_of
from mlagents.trainers.algorithms.reward_signals import ROWS_AT_ONCE
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.networks.actor_critic import Actor, ActorCritic
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings

FloatArray = NDArray[np.float32]

Rows = tuple[Tensor, Sequences | None]
"""Rows of a minibatch (B,) and, with memory, their order."""


class Experience(NamedTuple):
    """Experience of one update: the batch, and the segments it was made from."""

    batch: Batch
    segments: Segments


class Minibatch(NamedTuple):
    """Rows of a batch and, with memory, their order."""

    batch: Batch
    sequences: Sequences | None


class PPO(Proximal[Experience, Minibatch]):
    """Learns a policy and a value function from recent experience of that policy.

    Attributes:
        network: Actor and critic.
        losses: Function that returns policy loss, value loss and entropy; see `_losses`.
        corrects_staleness: Whether `vtrace` corrects advantages for steps of older policies. Not
            supported for policies with memory.
    """

    settings: PPOSettings
    network: ActorCritic

    corrects_staleness = False

    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create the actor, the critic and their optimizer."""
        memory = settings.network_settings.memory
        self.sequence_length = memory.sequence_length if memory else None
        self.network = ActorCritic(
            self.spec,
            settings.network_settings,
            n_signals=len(settings.reward_signals),
            shared=self.settings.shared_critic,
            policy_head_gain=self.settings.policy_head_gain,
            compute=self.compute,
        ).to(self.device)
        self.make_value_scale(len(settings.reward_signals))
        self.losses = self.compute.compiled(self._losses)
        self.optimizer = adam(self.network.parameters(), self.settings.learning_rate)

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self.network.actor

    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Return the actor, the critic and the optimizer, by their names in a checkpoint."""
        return {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:value_optimizer": self.optimizer,
            **({} if self.value_scale is None else {"Optimizer:value_scale": self.value_scale}),
        }

    def snapshot(self) -> Snapshot:
        """Return a copy of the actor, and of the critic's body if it has its own memory."""
        return snapshot_of(self.actor, self.network.remembering_critic)

    def prepare(
        self, segments: Segments, rewards: FloatArray
    ) -> tuple[Experience, dict[str, float]]:
        """Return the experience on the device, and estimates to plot."""
        batch, estimates = self._prepare(segments, rewards)
        return Experience(batch, segments), estimates

    def minibatches(self, experience: Experience) -> Iterator[tuple[Tensor, Minibatch]]:
        """Yield random minibatches of single steps or, with memory, of whole sequences."""
        for rows, sequences in self.dealt(experience.segments):
            yield rows, Minibatch(experience.batch.take(rows), sequences)

    def terms(self, minibatch: Minibatch, epsilon: float) -> Terms:
        """Return the terms of the loss of a minibatch."""
        batch = self.with_normal_advantages(minibatch.batch)
        policy_loss, value_loss, entropy = self.losses(batch, minibatch.sequences, epsilon)
        return Terms(policy_loss, value_loss, entropy, {VALUE_LOSS: value_loss.detach()})

    def log_probs(self, minibatch: Minibatch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities under the current and the acting policy, both (B, A + K)."""
        batch, sequences = minibatch
        now, *_ = self.network.evaluate(
            batch.obs, batch.continuous, batch.discrete, batch.action_mask, sequences
        )
        return now, batch.old_log_probs

    def _losses(
        self, batch: Batch, sequences: Sequences | None, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return policy loss, value loss and mean entropy, all scalars."""
        log_probs, entropies, values = self.network.evaluate(
            batch.obs, batch.continuous, batch.discrete, batch.action_mask, sequences
        )
        policy_loss, entropy = self.policy_loss(log_probs, entropies, batch, epsilon)
        value_loss = self.value_loss(values, batch.old_values, batch.returns, epsilon)
        return policy_loss, value_loss, entropy

    def dealt(self, segments: Segments) -> Iterator[Rows]:
        """Yield random minibatches of single steps or, with memory, of whole sequences.

        An incomplete last minibatch is dropped from this epoch. If there are several learners, each
        yields its share of every minibatch, and all yield equally many.
        """
        shards, batch_size = self.shards, self.shards.share(self.settings.batch_size)
        if self.sequence_length is None:
            size = min(batch_size, segments.n_steps)
            dealt = deal(segments.n_steps, size, self.generator).to(self.device)
            for rows in dealt[: shards.least(len(dealt))]:
                yield rows, None
            return
        longest = self.sequence_length
        lengths = torch.from_numpy(cut_into(longest, segments.length))
        memory = torch.as_tensor(segments.memory, device=self.device)
        size = min(max(1, batch_size // longest), len(lengths))
        n_dealt = shards.least(len(lengths) // size)
        minibatches = deal_sequences(lengths, size, longest, self.generator, self.device)
        for rows, which, place in islice(minibatches, n_dealt):
            yield rows, Sequences(memory[which], place, longest)

    @torch.no_grad()
    def _prepare(self, segments: Segments, rewards: FloatArray) -> tuple[Batch, dict[str, float]]:
        """Return a batch with values, advantages and returns, and estimates to plot."""
        to_device = partial(torch.as_tensor, device=self.device)
        obs = [to_device(o) for o in segments.obs]
        last_obs = [to_device(o) for o in segments.last_obs]
        if self.sequence_length is None:
            values = self._values(obs, to_device(np.zeros((segments.n_steps, 0), np.float32)))
        else:
            values = self._values_along(obs, segments, self.sequence_length)
        bootstrap = self._values(last_obs, to_device(segments.last_memory))

        estimated = rewards, values, bootstrap, self.signals
        if self.corrects_staleness:
            advantages, returns = corrected_advantages_of(
                segments, self._log_ratio(segments, obs), *estimated, lambd=self.settings.lambd
            )  # (N, signals) each
        else:
            advantages = advantages_of(segments, *estimated, lambd=self.settings.lambd)
            returns = advantages + values
        returns, old_values = self.scaled(returns, values)
        batch = Batch.of(
            segments,
            obs,
            values=old_values,
            advantages=self.joined(advantages),
            returns=returns,
        )
        return batch, self.estimates(values, "Value")

    def _log_ratio(self, segments: Segments, obs: list[Tensor]) -> FloatArray:
        """Return log-probabilities of the actions now minus those when they were taken, (N,)."""
        to_device = partial(torch.as_tensor, device=self.device)
        columns = (
            to_device(segments.log_probs),
            to_device(segments.continuous),
            to_device(segments.discrete).long(),
            to_device(segments.action_mask),
            *obs,
        )
        ratios = []
        for old, continuous, discrete, mask, *part in zip(
            *(column.split(ROWS_AT_ONCE) for column in columns), strict=True
        ):
            log_probs, *_ = self.network.evaluate(list(part), continuous, discrete, mask, None)
            ratios.append((log_probs - old).sum(dim=1))
        return torch.cat(ratios).cpu().numpy()

    def _values(self, obs: list[Tensor], memory: Tensor) -> FloatArray:
        """Return the values of N steps (N, signals), given the memory before each step."""
        parts = zip(*(batch.split(ROWS_AT_ONCE) for batch in (memory, *obs)), strict=True)
        return self.in_rewards(torch.cat([self.network.values(part, m) for m, *part in parts]))

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
        return self.in_rewards(torch.cat(values))
