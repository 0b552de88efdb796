"""Entities of varying number to one vector, by attention of each to all (arXiv:1706.03762)."""

import math

import torch
from torch import Tensor, nn

from mlagents.trainers.networks.layers import layer_norm, linear

N_HEADS = 4
"""Parts of an embedding that attend on their own."""

PADDING_SCORE = -1e6
"""The score of an entity that is not there; no chance is left of it."""


def is_entity(entities: Tensor) -> Tensor:
    """(B, N, features) to (B, N), False where all features are zero: there the list has ended."""
    return entities.square().sum(2) > 0


def without_padding(entities: Tensor) -> Tensor:
    """(B, N, features) to (B, n, features), n the length of the longest list, at least 1."""
    is_used = is_entity(entities).any(0)
    n_used = int(is_used.nonzero().max()) + 1 if is_used.any() else 1
    return entities[:, :n_used]


class EntityEncoder(nn.Module):
    """The entities of one observation, each with what the agent knows besides, embedded.

    Args:
        n_features: Of an entity.
        n_self: Width of what the agent knows besides; 0 if that is nothing.
        output_size: Width of an embedding.
    """

    def __init__(self, n_features: int, n_self: int, output_size: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.dense = _linear(n_features + n_self, output_size, embedding=output_size)

    def forward(self, entities: Tensor, x_self: Tensor | None) -> Tensor:
        """(B, N, n_features) and (B, n_self) to (B, N, output_size)."""
        weight, bias = self.dense.weight, self.dense.bias
        # The layer of [entity | x_self], without writing x_self out for every entity.
        embedded = nn.functional.linear(entities, weight[:, : self.n_features], bias)
        if x_self is not None:
            of_self = nn.functional.linear(x_self, weight[:, self.n_features :])
            embedded = embedded + of_self.unsqueeze(1)
        return nn.functional.silu(embedded)


class SelfAttention(nn.Module):
    """Residual self-attention over N embeddings, then their mean.

    Args:
        size: Width of an embedding, a multiple of `N_HEADS`.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.norm = layer_norm(size)
        self.queries_keys_values = _linear(size, 3 * size, embedding=size)
        self.output = _linear(size, size, embedding=size)

    def forward(self, embedded: Tensor, is_there: Tensor) -> Tensor:
        """(B, N, size) and (B, N), which of them count, to (B, size); zeros where none does."""
        batch, n_entities, size = embedded.shape
        embedded = self.norm(embedded)
        queries, keys, values = (
            self.queries_keys_values(embedded)
            .view(batch, n_entities, 3, N_HEADS, size // N_HEADS)
            .permute(2, 0, 3, 1, 4)
        )  # each (B, heads, N, size of a head)
        # Divided by the root of the whole size, not of a head's: published models were trained so.
        scores = queries @ keys.transpose(2, 3) / math.sqrt(size)
        scores = scores.masked_fill(~is_there[:, None, None, :], PADDING_SCORE)
        attended = (scores.softmax(dim=3) @ values).transpose(1, 2).reshape(embedded.shape)
        embedded = self.norm(embedded + self.output(attended))
        counted = embedded * is_there.unsqueeze(2)
        return counted.sum(1) / is_there.sum(1, keepdim=True).clamp(min=1)


class EntityAttention(nn.Module):
    """One attention over the entities of all observations that hold such lists.

    Args:
        n_features: Of an entity of each observation.
        n_self: Width of the encodings of all other observations; 0 if there are none.
    """

    output_size = 128

    def __init__(self, n_features: list[int], n_self: int) -> None:
        super().__init__()
        size = self.output_size
        self.encode_self = (
            nn.Sequential(_linear(n_self, size, embedding=size), nn.SiLU()) if n_self else None
        )
        self.encoders = nn.ModuleList(
            EntityEncoder(features, size if n_self else 0, size) for features in n_features
        )
        self.attention = SelfAttention(size)

    def forward(self, entities: list[Tensor], others: Tensor | None) -> Tensor:
        """One (B, N, features) per observation and (B, n_self) to (B, output_size)."""
        # Nobody attends to padding, and most lists are much shorter than they may be.
        entities = [without_padding(batch) for batch in entities]
        x_self = None if self.encode_self is None else self.encode_self(others)
        embedded = [
            encoder(batch, x_self) for encoder, batch in zip(self.encoders, entities, strict=True)
        ]
        is_there = [is_entity(batch) for batch in entities]
        return self.attention(torch.cat(embedded, dim=1), torch.cat(is_there, dim=1))


def _linear(n_in: int, n_out: int, *, embedding: int) -> nn.Linear:
    """Make a linear layer with weights N(0, 0.125 / width of an embedding) and zero bias."""
    return linear(n_in, n_out, gain=math.sqrt(0.125 * n_in / embedding))
