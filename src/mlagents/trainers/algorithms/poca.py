"""MA-POCA: multi-agent posthumous credit assignment (arXiv:2111.05992).

Agents act independently and are trained together. One critic sees all members of a group, however
many. Its value V predicts the rewards of the group. Its baseline b for a member predicts the same
rewards from the actions of all other members, so the difference is the contribution of the
member's own action:

    G[t] = r[t] + gamma ((1 - lambda) V[t+1] + lambda G[t+1])
    A[t] = G[t] - b[t]

V[t+1] is the value of the members that remain. A member whose episode ends early therefore learns
from the rewards that the others receive afterward.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.algorithms.minibatches import deal_sequences
from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.proximal import VALUE_LOSS, Batch, Proximal, Terms
from mlagents.trainers.algorithms.returns import advantages_of
from mlagents.trainers.algorithms.reward_signals import ROWS_AT_ONCE
from mlagents.trainers.data.group_steps import (
    Arrangement,
    GroupSteps,
    group_steps,
    reward_of_mates,
)
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.group_critic import GroupActorCritic, Places, Seen
from mlagents.trainers.networks.layers import Memory, Sequences
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import POCASettings
from mlagents_envs.base_env import FloatArray

BASELINE_LOSS = "Losses/Baseline Loss"

_MOST_CARRIED = 100_000
"""Largest number of unfinished episodes whose memory is kept for the next update."""


class Appearances(NamedTuple):
    """Observations and actions of all agents, on the device; numbered as in `GroupSteps`.

    Attributes:
        obs: One array (N, *shape) per observation, for the rows.
        others: One array (L + S, *shape) per observation, for open steps and ends of segments.
        continuous: (N + L + S, A) continuous actions as sampled; zero for ends.
        discrete: (N + L + S, K) int64 discrete actions; zero for ends.
        n_acting: Number of appearances with an action, N + L.
    """

    obs: list[Tensor]
    others: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    n_acting: int

    @staticmethod
    def of(segments: Segments, device: torch.device) -> "Appearances":
        """Move the observations and actions of segments to a device."""
        still = segments.open_steps
        assert still is not None
        to_device = partial(torch.as_tensor, device=device)
        n_ends = len(segments.length)
        no_continuous = np.zeros((n_ends, segments.continuous.shape[1]), np.float32)
        no_discrete = np.zeros((n_ends, segments.discrete.shape[1]), np.int32)
        others = zip(still.obs, segments.last_obs, strict=True)
        continuous = np.concatenate([segments.continuous, still.continuous, no_continuous])
        discrete = np.concatenate([segments.discrete, still.discrete, no_discrete])
        return Appearances(
            [to_device(o) for o in segments.obs],
            [to_device(np.concatenate(both)) for both in others],
            to_device(continuous),
            to_device(discrete).long(),
            len(segments.obs[0]) + len(still.tick),
        )

    def take(self, appearance: NDArray[np.int64]) -> Seen:
        """Return the given M appearances. Appearances without a row must come last."""
        n_rows = len(self.obs[0])
        which = torch.from_numpy(appearance).to(self.discrete.device)
        n_first = int((appearance < n_rows).sum())
        obs = [batch.index_select(0, which[:n_first]) for batch in self.obs]
        if n_first < len(which):
            last = [batch.index_select(0, which[n_first:] - n_rows) for batch in self.others]
            obs = [torch.cat(both) for both in zip(obs, last, strict=True)]
        acts = which < self.n_acting
        return Seen(
            obs,
            self.continuous.index_select(0, which),
            self.discrete.index_select(0, which),
            None if (appearance < self.n_acting).all() else acts,
        )


class Experience(NamedTuple):
    """Experience of one update.

    Attributes:
        batch: All rows.
        old_baselines: (N, signals) baselines before the update.
        seen: Appearances of all agents.
        steps: Group steps.
        length: (sequences,) lengths of the sequences, for networks with memory.
        memory: (sequences, memory size) memory of actor and critic before each sequence.
    """

    batch: Batch
    old_baselines: Tensor
    seen: Appearances
    steps: GroupSteps
    length: NDArray[np.int64]
    memory: Tensor


class Minibatch(NamedTuple):
    """Rows of a batch, their group steps and, with memory, their order."""

    batch: Batch
    old_baselines: Tensor
    seen: Seen
    places: Places
    sequences: Sequences | None


class POCA(Proximal[Experience, Minibatch]):
    """Learns a policy, group values and member baselines from recent experience.

    Attributes:
        network: Actor and critic.
    """

    learns_in_groups: ClassVar[bool] = True
    settings: POCASettings
    network: GroupActorCritic

    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create the actor, the critic and their optimizer."""
        memory = settings.network_settings.memory
        self.sequence_length = memory.sequence_length if memory else None
        self.network = GroupActorCritic(
            self.spec,
            settings.network_settings,
            n_signals=len(settings.reward_signals),
            policy_head_gain=self.settings.policy_head_gain,
            compute=self.compute,
        ).to(self.device)
        self.make_value_scale(len(settings.reward_signals))
        self.optimizer = adam(self.network.parameters(), self.settings.learning_rate)
        self._carried: dict[int, FloatArray] = {}
        """Memory of the critic after the last segment of each unfinished episode."""

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self.network.actor

    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Return the actor, the critic and the optimizer, by their names in a checkpoint."""
        return {
            "Policy": self.network.actor,
            "Optimizer:critic": self.network.critic,
            "Optimizer:adam": self.optimizer,
            **({} if self.value_scale is None else {"Optimizer:value_scale": self.value_scale}),
        }

    def score(self, segments: Segments) -> FloatArray:
        """Return the reward of every step from every reward signal, (N, signals).

        The extrinsic reward of an agent is the sum of its own, its group's and its mates' rewards.
        """
        of_all = segments.reward + reward_of_mates(segments)
        return super().score(replace(segments, reward=of_all))

    @torch.no_grad()
    def prepare(
        self, segments: Segments, rewards: FloatArray
    ) -> tuple[Experience, dict[str, float]]:
        """Return the experience on the device with the critic's estimates, and means to plot."""
        steps, seen = group_steps(segments), Appearances.of(segments, self.device)
        critic = self.network.critic
        critic.note_sizes(self.shards.most(int(steps.size.max())))
        values, baselines = self._encodings(steps, seen)
        members = torch.as_tensor(steps.size, device=self.device).float()
        step_of_row = torch.from_numpy(steps.step_of_row).to(self.device)
        after = torch.from_numpy(steps.after).to(self.device)
        of_rows, of_ends = values.index_select(0, step_of_row), values.index_select(0, after)
        length, memory = segments.length, torch.zeros(0)
        if critic.memory is not None and self.sequence_length is not None:
            length = cut_into(self.sequence_length, segments.length)
            encoded = torch.stack([of_rows, baselines], dim=1)
            (of_rows, baselines), of_ends, of_critic = self._remembered(
                critic.memory, segments, encoded, of_ends, self.sequence_length
            )
            memory = torch.cat([torch.as_tensor(segments.memory, device=self.device), of_critic], 1)

        def estimated(encoding: Tensor, of_steps: Tensor) -> FloatArray:
            return self.in_rewards(critic.estimate(encoding, members.index_select(0, of_steps)))

        old_values = estimated(of_rows, step_of_row)
        old_baselines = estimated(baselines, step_of_row)
        returns = old_values + advantages_of(
            replace(segments, terminated=steps.is_over),
            rewards,
            old_values,
            estimated(of_ends, after),
            self.signals,
            lambd=self.settings.lambd,
        )  # (N, signals); the advantage over V plus V is the lambda-return
        plotted = self.estimates(old_values, "Value") | self.estimates(old_baselines, "Baseline")
        advantages = self.joined(returns - old_baselines)
        returns, old_values, old_baselines = self.scaled(returns, old_values, old_baselines)
        batch = Batch.of(
            segments, seen.obs, values=old_values, advantages=advantages, returns=returns
        )
        baselines = torch.as_tensor(old_baselines, device=self.device)
        return Experience(batch, baselines, seen, steps, length, memory), plotted

    def minibatches(self, experience: Experience) -> Iterator[tuple[Tensor, Minibatch]]:
        """Yield random minibatches of whole group steps or, with memory, of whole sequences.

        An incomplete last minibatch is dropped from this epoch.
        """
        if self.sequence_length is None:
            for arrangement in self._dealt_steps(experience.steps):
                yield self._minibatch(experience, arrangement, None)
            return
        longest = self.sequence_length
        lengths = torch.from_numpy(experience.length)
        batch_size = self.shards.share(self.settings.batch_size)
        size = min(max(1, batch_size // longest), len(lengths))
        n_dealt = self.shards.least(len(lengths) // size)
        minibatches = deal_sequences(lengths, size, longest, self.generator, self.device)
        for rows, dealt, place in islice(minibatches, n_dealt):
            sequences = Sequences(experience.memory[dealt], place, longest)
            arrangement = experience.steps.around(rows.cpu().numpy())
            yield self._minibatch(experience, arrangement, sequences)

    def terms(self, minibatch: Minibatch, epsilon: float) -> Terms:
        """Return the terms of the loss of a minibatch."""
        batch, old_baselines, seen, places, _ = minibatch
        batch = self.with_normal_advantages(batch)
        of_actor, of_critic = self._orders(minibatch)
        log_probs, entropies = self._evaluate(batch, of_actor)
        policy_loss, entropy = self.policy_loss(log_probs, entropies, batch, epsilon)
        values, baselines = self.network.critic(seen, places, of_critic)
        value_loss = self.value_loss(values, batch.old_values, batch.returns, epsilon)
        baseline_loss = self.value_loss(baselines, old_baselines, batch.returns, epsilon)
        plotted = {VALUE_LOSS: value_loss.detach(), BASELINE_LOSS: baseline_loss.detach()}
        return Terms(policy_loss, value_loss + 0.5 * baseline_loss, entropy, plotted)

    def log_probs(self, minibatch: Minibatch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities under the current and the acting policy, both (B, A + K)."""
        of_actor, _ = self._orders(minibatch)
        now, _ = self._evaluate(minibatch.batch, of_actor)
        return now, minibatch.batch.old_log_probs

    def _orders(self, minibatch: Minibatch) -> tuple[Sequences | None, Sequences | None]:
        """Return the order of the rows, once with the actor's and once with the critic's memory."""
        sequences = minibatch.sequences
        if sequences is None:
            return None, None
        of_actor, of_critic = sequences.memory.tensor_split([self.actor.body.memory_size], dim=1)
        return sequences._replace(memory=of_actor), sequences._replace(memory=of_critic)

    def _evaluate(self, batch: Batch, sequences: Sequences | None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies of all components, both (B, A + K)."""
        return self.actor.heads.evaluate(
            self.actor.body(batch.obs, sequences),
            batch.continuous,
            batch.discrete,
            batch.action_mask,
        )

    def _dealt_steps(self, steps: GroupSteps) -> Iterator[Arrangement]:
        """Shuffle the group steps that have rows, and split them into minibatches of rows."""
        acting, n_rows = np.unique(steps.step_of_row, return_counts=True)
        order = torch.randperm(len(acting), generator=self.generator).numpy()
        dealt_before = np.cumsum(n_rows[order]) - n_rows[order]
        size = min(self.shards.share(self.settings.batch_size), steps.n_rows)
        firsts = np.searchsorted(dealt_before, size * np.arange(steps.n_rows // size + 1))
        # A group step with more rows than a minibatch leaves empty parts.
        parts = [(first, end) for first, end in pairwise(firsts.tolist()) if end > first]
        for first, end in parts[: self.shards.least(len(parts))]:
            yield steps.arrange(acting[order[first:end]])

    def _minibatch(
        self, experience: Experience, arrangement: Arrangement, sequences: Sequences | None
    ) -> tuple[Tensor, Minibatch]:
        rows = torch.from_numpy(arrangement.row).to(self.device)
        return rows, Minibatch(
            experience.batch.take(rows),
            experience.old_baselines.index_select(0, rows),
            experience.seen.take(arrangement.appearance),
            Places.of(arrangement, self.device),
            sequences,
        )

    def _encodings(self, steps: GroupSteps, seen: Appearances) -> tuple[Tensor, Tensor]:
        """Return encodings before memory, for values (Q, width) and for baselines (N, width)."""
        critic, width = self.network.critic, self.network.critic.width
        values = torch.empty(len(steps.size), width, device=self.device)
        baselines = torch.empty(steps.n_rows, width, device=self.device)
        acting = np.unique(steps.step_of_row)
        others = np.setdiff1d(np.arange(len(values)), acting)
        for with_baselines, of_kind in ((True, acting), (False, others)):
            for part in steps.parts(of_kind, ROWS_AT_ONCE):
                places = Places.of(part, self.device)
                of_values, of_baselines = critic.encode(
                    seen.take(part.appearance), places, with_baselines=with_baselines
                )
                values[torch.from_numpy(part.step)] = of_values
                if with_baselines:
                    baselines[torch.from_numpy(part.row)] = of_baselines[places.place_of_row]
        return values, baselines

    def _remembered(
        self,
        memory: Memory,
        segments: Segments,
        encoded: Tensor,
        of_ends: Tensor,
        longest: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the critic's memory along all episodes.

        Each agent has one memory for values and one for baselines.

        Args:
            memory: The critic's memory layer.
            segments: Experience.
            encoded: (N, 2, width) encodings of values and baselines.
            of_ends: (S, width) encodings of the values after each segment.
            longest: Largest number of steps in a sequence.

        Returns:
            Encodings of values and baselines after memory (2, N, n_encoded), encodings of the
            values after each segment (S, n_encoded), and memory before each sequence
            (sequences, 2 x memory size).
        """
        size, device = self.network.critic.memory_size, self.device
        length = cut_into(longest, segments.length)
        start = np.cumsum(length) - length
        per_segment = -(-segments.length // longest)
        episode = np.repeat(segments.episode, per_segment)
        before = torch.zeros(len(length), 2, size, device=device)
        after = torch.zeros_like(before)
        out = torch.empty(len(encoded), 2, memory.output_size, device=device)
        latest: dict[int, int] = {}
        for sequences in _in_rounds(episode):
            for sequence in sequences.tolist():
                if (previous := latest.get(episode[sequence])) is not None:
                    before[sequence] = after[previous]
                elif (carried := self._carried.get(episode[sequence])) is not None:
                    before[sequence] = torch.as_tensor(carried, device=device)
                latest[episode[sequence]] = sequence
            now = before[sequences]
            for t in range(int(length[sequences].max())):
                active = np.flatnonzero(length[sequences] > t)
                rows = start[sequences[active]] + t
                hidden, states = memory.step(encoded[rows].flatten(0, 1), now[active].flatten(0, 1))
                out[rows] = hidden.view(len(rows), 2, -1)
                now[active] = states.view(len(rows), 2, -1)
            after[sequences] = now
        last = np.cumsum(per_segment) - 1
        ends, _ = memory.step(of_ends, after[last, 0])
        for number, has_ended, state in zip(
            segments.episode.tolist(),
            segments.ended.tolist(),
            after[last].cpu().numpy(),
            strict=True,
        ):
            self._carried.pop(number, None)
            if not has_ended:
                self._carried[number] = state
        while len(self._carried) > _MOST_CARRIED:
            del self._carried[next(iter(self._carried))]
        return out.transpose(0, 1), ends, before.flatten(1)


def _in_rounds(episode: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the first sequence of every episode, then the second of every episode, and so on."""
    order = np.argsort(episode, kind="stable")
    _, first, counts = np.unique(episode[order], return_index=True, return_counts=True)
    within = np.arange(len(episode)) - np.repeat(first, counts)
    for number in range(int(counts.max())):
        yield order[within == number]
