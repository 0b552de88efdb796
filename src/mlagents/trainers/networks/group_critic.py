"""`GroupCritic`: values of groups, and baselines that ignore the action of one member."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.data.group_steps import Arrangement
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.attention import N_HEADS, SelfAttention
from mlagents.trainers.networks.body import ObservationEncoder
from mlagents.trainers.networks.layers import (
    Memory,
    Sequences,
    dense_block,
)
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec


class Seen(NamedTuple):
    """Observations and actions of M members.

    Attributes:
        obs: One array (M, *shape) per observation.
        continuous: (M, A) continuous actions as sampled.
        discrete: (M, K) int64 discrete actions.
        acts: (M,) bool, False where the action is unknown; None if all actions are known.
    """

    obs: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    acts: Tensor | None


class Places(NamedTuple):
    """An `Arrangement` on the device of the critic.

    Attributes:
        place: (P,) index of the member in each place, or None if the indices are 0 to P - 1.
        sizes: Pairs (number of group steps, number of members), in order.
        step_of_row: (R,) index of the group step in which each row acts.
        place_of_row: (R,) place of each row.
        members: (R,) number of members of each row's group step.
    """

    place: Tensor | None
    sizes: list[tuple[int, int]]
    step_of_row: Tensor
    place_of_row: Tensor
    members: Tensor

    @staticmethod
    def of(arrangement: Arrangement, device: torch.device) -> "Places":
        """Move an arrangement to a device."""
        place, step_of_row = arrangement.place, arrangement.step_of_row
        members = arrangement.members[step_of_row].astype(np.float32)
        return Places(
            None if place is None else torch.from_numpy(place).to(device),
            arrangement.sizes,
            torch.from_numpy(step_of_row).to(device),
            torch.from_numpy(arrangement.place_of_row).to(device),
            torch.from_numpy(members).to(device),
        )


class GroupCritic(nn.Module):
    """Attention over the members of a group, for values and for counterfactual baselines.

    The value of a group depends on the observations of all members. The baseline of a member also
    depends on the actions of its mates, but not on its own action (arXiv:2111.05992).

    Each member is encoded twice: without its action and with it. Queries, keys and values of both
    encodings are computed once and reused for the value and for all baselines.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of the network. `hidden_units` must be a multiple of `N_HEADS`.
        n_signals: Number of reward signals. Each has one output column.
        compute: Precision of attention and dense layers.

    Attributes:
        width: Width of an encoding before memory.
        largest: Number of members of the largest group so far. Saved in checkpoints.
    """

    largest: Tensor

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        n_signals: int,
        compute: Compute = PLAIN,
    ) -> None:
        super().__init__()
        self.compute = compute
        self.branches = spec.action_spec.discrete_branches
        self.observations = ObservationEncoder(spec.observation_specs, settings)
        self.width = width = settings.hidden_units
        n_seen = self.observations.output_size
        n_done = spec.action_spec.continuous_size + sum(self.branches)
        self.without_action = dense_block(n_seen, width, 1)
        self.with_action = dense_block(n_seen + n_done, width, 1)
        self.attention = SelfAttention(width)
        self.dense = dense_block(width, width, max(1, settings.num_layers))
        self.memory: Memory | None = None
        self.memory_size = 0
        n_encoded = width
        if settings.memory is not None:
            self.memory_size = settings.memory.memory_size
            self.memory = Memory(width, self.memory_size)
            n_encoded = self.memory.output_size
        self.values = nn.Linear(n_encoded + 1, n_signals)
        nn.init.xavier_uniform_(self.values.weight)
        nn.init.zeros_(self.values.bias)
        self.register_buffer("largest", torch.ones(()))

    def encode(
        self, seen: Seen, places: Places, *, with_baselines: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Encode Q group steps, before memory.

        Args:
            seen: Members of the group steps.
            places: Order of the members.
            with_baselines: Whether to encode baselines. If not, the second result is empty.

        Returns:
            Encodings of values (Q, width), and of the baselines of all places (P, width).
        """
        with self.compute.lowered(seen.obs[0].device):
            values, baselines = self._attend(seen, places, with_baselines=with_baselines)
            encoded = self.dense(torch.cat([values, baselines]))
        encoded = self.compute.raised(encoded)
        return encoded[: len(values)], encoded[len(values) :]

    def estimate(self, encoding: Tensor, members: Tensor) -> Tensor:
        """Map encodings (B, n_encoded) and numbers of members (B,) to estimates (B, n_signals)."""
        size = 2 * members / self.largest - 1
        return self.values(torch.cat([encoding, size.unsqueeze(1)], dim=1))

    def forward(
        self, seen: Seen, places: Places, sequences: Sequences | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the values and the baselines of R acting rows, both (R, n_signals).

        Args:
            seen: Members of the group steps of the rows.
            places: Order of the members.
            sequences: Order of the rows, for a critic with memory. An agent's memory is the memory
                for its values, followed by the memory for its baselines.
        """
        values, baselines = self.encode(seen, places)
        values = values.index_select(0, places.step_of_row)
        baselines = baselines.index_select(0, places.place_of_row)
        if self.memory is not None and sequences is not None:
            values, baselines = self._remember(self.memory, values, baselines, sequences)
        return self.estimate(values, places.members), self.estimate(baselines, places.members)

    @torch.no_grad()
    def note_sizes(self, largest: int) -> None:
        """Update the number of members of the largest group."""
        self.largest.clamp_(min=largest)

    @staticmethod
    def _remember(
        memory: Memory, values: Tensor, baselines: Tensor, sequences: Sequences
    ) -> tuple[Tensor, Tensor]:
        of_values, of_baselines = sequences.memory.chunk(2, dim=1)
        n_places = len(of_values) * sequences.longest
        both = Sequences(
            torch.cat([of_values, of_baselines]),
            torch.cat([sequences.place, sequences.place + n_places]),
            sequences.longest,
        )
        encoded = memory(torch.cat([values, baselines]), both)
        return encoded[: len(values)], encoded[len(values) :]

    def _attend(self, seen: Seen, places: Places, *, with_baselines: bool) -> tuple[Tensor, Tensor]:
        """Return the mean over attended members, for values (Q, width) and baselines (P, width)."""
        kinds = self._entities(seen, with_actions=with_baselines)
        if (place := places.place) is not None:
            kinds = [kind.index_select(0, place) for kind in kinds]
        embedded, start = [], 0
        for n_steps, n_members in places.sizes:
            rows = slice(start, start := start + n_steps * n_members)
            shape = n_steps, n_members, self.width
            embedded.append(
                torch.stack([kind[rows].view(shape) for kind in kinds], 1).flatten(0, 2)
            )
        entity = self.attention.norm(_joined(embedded))
        projected = self.attention.queries_keys_values(entity)
        values, baselines, start = [], [], 0
        for n_steps, n_members in places.sizes:
            rows = slice(start, start := start + n_steps * n_members * len(kinds))
            group = _Group.of(
                *(part[rows].unflatten(0, (n_steps, -1)) for part in (entity, projected))
            )
            values.append(self._mean_of(*group.without_actions(n_members)))
            if with_baselines:
                baselines.append(self._mean_of(*group.without_one_action(n_members)))
        return _joined(values), _joined(baselines or [values[0][:0]])

    def _entities(self, seen: Seen, *, with_actions: bool) -> list[Tensor]:
        """Encode M members without their actions and, if requested, with them; (M, width) each."""
        encoding, _ = self.observations(seen.obs)
        without = self.without_action(encoding)
        if not with_actions:
            return [without]
        chosen = [
            nn.functional.one_hot(seen.discrete[:, branch], size).to(encoding.dtype)
            for branch, size in enumerate(self.branches)
        ]
        acting = self.with_action(torch.cat([encoding, seen.continuous, *chosen], dim=1))
        if seen.acts is not None:
            acting = torch.where(seen.acts.unsqueeze(1), acting, without)
        return [without, acting]

    def _mean_of(self, entity: Tensor, attended: Tensor) -> Tensor:
        """Return the mean over sets (..., n, width) of members after residual attention."""
        output = self.attention.output(attended.flatten(0, -2)).view(attended.shape)
        return self.attention.norm(entity + output).mean(-2).flatten(0, -2)


class _Group(NamedTuple):
    """The 2 n entities of q group steps: n members without their actions, then with them.

    If actions are not encoded, there are only the first n. All sets of members share the scores.

    Attributes:
        entity: (q, 2 n, width) normalized embeddings.
        score: (q, heads, 2 n, 2 n) attention score of each pair of entities, before softmax.
        value: (q, heads, 2 n, size of a head) values.
    """

    entity: Tensor
    score: Tensor
    value: Tensor

    @staticmethod
    def of(entity: Tensor, projected: Tensor) -> "_Group":
        """Return a group from (q, 2 n, width) and its projections (q, 2 n, 3 width)."""
        n_steps, n_entities, width = entity.shape
        of_heads = projected.view(n_steps, n_entities, 3, N_HEADS, width // N_HEADS)
        query, key, value = of_heads.permute(2, 0, 3, 1, 4)
        # The divisor is the root of the full width, as in `SelfAttention`.
        return _Group(entity, query @ key.transpose(2, 3) / math.sqrt(width), value)

    def without_actions(self, n: int) -> tuple[Tensor, Tensor]:
        """Return all members without their actions, and their attention outputs.

        Both are (q, n, width).
        """
        weight = self.score[:, :, :n, :n].softmax(3)
        attended = (weight @ self.value[:, :, :n]).transpose(1, 2).flatten(2)
        return self.entity[:, :n], attended

    def without_one_action(self, n: int) -> tuple[Tensor, Tensor]:
        """Return n sets of members without the action of one member, and their attention outputs.

        Set i contains member i without its action, and all other members with their actions. Both
        results are (q, n, n, width), with axes for group steps, sets and members.
        """
        own = torch.eye(n, dtype=torch.bool, device=self.score.device)
        is_own, attends_own = own.view(n, n, 1), own.view(n, 1, n)
        without, acting = self.entity[:, :n].unsqueeze(1), self.entity[:, n:].unsqueeze(1)
        # Scores (q, heads, set i, member j, attended k).
        score = self.score
        among_others = score[:, :, n:, n:].unsqueeze(2)
        to_own = score[:, :, n:, :n].transpose(2, 3).unsqueeze(4)
        of_own = score[:, :, :n, n:].unsqueeze(3)
        own_to_own = score[:, :, :n, :n].diagonal(dim1=2, dim2=3)[:, :, :, None, None]
        weight = torch.where(
            is_own,
            torch.where(attends_own, own_to_own, of_own),
            torch.where(attends_own, to_own, among_others),
        ).softmax(4)
        to_others = weight.masked_fill(attends_own, 0.0).flatten(2, 3) @ self.value[:, :, n:]
        of_set = weight.diagonal(dim1=2, dim2=4).transpose(2, 3)  # (q, heads, set i, member j)
        attended = to_others.unflatten(2, (n, n))
        attended = attended + of_set.unsqueeze(4) * self.value[:, :, :n].unsqueeze(3)
        return torch.where(is_own, without, acting), attended.permute(0, 2, 3, 1, 4).flatten(3)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class GroupActorCritic(nn.Module):
    """An actor that sees one agent, and a critic that sees its whole group.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of both networks.
        n_signals: Number of reward signals.
        policy_head_gain: Factor applied to the initial weights of the actor's output layers; None
            for the default of each kind of action.
        compute: Precision of both networks.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        n_signals: int,
        policy_head_gain: float | None = 1.0,
        compute: Compute = PLAIN,
    ) -> None:
        super().__init__()
        self.actor = Actor(spec, settings, head_gain=policy_head_gain, compute=compute)
        self.critic = GroupCritic(spec, settings, n_signals=n_signals, compute=compute)

    @torch.no_grad()
    def update_normalization(self, obs: Sequence[Tensor]) -> None:
        """Update every normalizer once with the observations."""
        self.actor.body.observations.update_normalization(obs)
        self.critic.observations.update_normalization(obs)
