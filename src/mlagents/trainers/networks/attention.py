"""Self-attention that maps a variable number of entities to one vector (arXiv:1706.03762)."""

import math

import torch
from torch import Tensor, nn

from mlagents.trainers.networks.layers import layer_norm, linear

N_HEADS = 4
"""Number of attention heads."""

PADDING_SCORE = -1e6
"""Attention score of padding. After softmax, its weight is zero."""


def is_entity(entities: Tensor) -> Tensor:
    """Map (B, N, features) to (B, N) bool: False for padding, whose features are all zero."""
    return entities.square().sum(2) > 0


def without_padding(entities: Tensor) -> Tensor:
    """Cut (B, N, features) to (B, n, features), where n >= 1 is the length of the longest list."""
    is_used = is_entity(entities).any(0)
    n_used = int(is_used.nonzero().max()) + 1 if is_used.any() else 1
    return entities[:, :n_used]


class EntityEncoder(nn.Module):
    """Embeds the entities of one observation, each combined with the agent's other observations.

    Args:
        n_features: Number of features of an entity.
        n_self: Width of the encoded other observations; 0 if there are none.
        output_size: Width of an embedding.
    """

    def __init__(self, n_features: int, n_self: int, output_size: int) -> None:
        super().__init__()
        self.n_features = n_features
        self.dense = _linear(n_features + n_self, output_size, embedding=output_size)

    def forward(self, entities: Tensor, x_self: Tensor | None) -> Tensor:
        """Map (B, N, n_features) and (B, n_self) to (B, N, output_size)."""
        weight, bias = self.dense.weight, self.dense.bias
        # Equals the layer on [entity | x_self], without a copy of x_self for every entity.
        embedded = nn.functional.linear(entities, weight[:, : self.n_features], bias)
        if x_self is not None:
            of_self = nn.functional.linear(x_self, weight[:, self.n_features :])
            embedded = embedded + of_self.unsqueeze(1)
        return nn.functional.silu(embedded)


class SelfAttention(nn.Module):
    """Residual self-attention over N embeddings, followed by their mean.

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
        """Map embeddings (B, N, size) and validity (B, N) to (B, size); zeros if none is valid."""
        batch, n_entities, size = embedded.shape
        embedded = self.norm(embedded)
        queries, keys, values = (
            self.queries_keys_values(embedded)
            .view(batch, n_entities, 3, N_HEADS, size // N_HEADS)
            .permute(2, 0, 3, 1, 4)
        )  # each (B, heads, N, size of a head)
        # For compatibility with published models, divide by the root of the full size, not of the
        # size of a head.
        scores = queries @ keys.transpose(2, 3) / math.sqrt(size)
        scores = scores.masked_fill(~is_there[:, None, None, :], PADDING_SCORE)
        attended = (scores.softmax(dim=3) @ values).transpose(1, 2).reshape(embedded.shape)
        embedded = self.norm(embedded + self.output(attended))
        counted = embedded * is_there.unsqueeze(2)
        return counted.sum(1) / is_there.sum(1, keepdim=True).clamp(min=1)


class EntityAttention(nn.Module):
    """One attention layer over the entities of all entity observations.

    Args:
        n_features: Number of features of an entity, for each observation.
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
        """Map one array (B, N, features) per observation and (B, n_self) to (B, output_size)."""
        # No entity attends to padding, and most lists are much shorter than their maximum.
        entities = [without_padding(batch) for batch in entities]
        x_self = None if self.encode_self is None else self.encode_self(others)
        embedded = [
            encoder(batch, x_self) for encoder, batch in zip(self.encoders, entities, strict=True)
        ]
        is_there = [is_entity(batch) for batch in entities]
        return self.attention(torch.cat(embedded, dim=1), torch.cat(is_there, dim=1))


def _linear(n_in: int, n_out: int, *, embedding: int) -> nn.Linear:
    """Return a linear layer with weights N(0, 0.125 / width of an embedding) and zero bias."""
    return linear(n_in, n_out, gain=math.sqrt(0.125 * n_in / embedding))
