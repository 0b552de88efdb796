"""Indices of random minibatches, made of single steps or of whole sequences."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def deal(n: int, size: int, generator: torch.Generator) -> Tensor:
    """Return n shuffled indices as full minibatches, (minibatches, size); drop the remainder."""
    return torch.randperm(n, generator=generator)[: n // size * size].view(-1, size)


def deal_sequences(
    length: Tensor, size: int, longest: int, generator: torch.Generator, device: torch.device
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Shuffle sequences into minibatches of `size` sequences; drop the remainder.

    Args:
        length: (S,) number of steps in each sequence. Sequences are stored consecutively.
        size: Number of sequences in a minibatch.
        longest: Upper bound of `length`.
        generator: Random generator for the order.
        device: Device of the returned indices.

    Yields:
        For each minibatch: the rows of its steps (B,), the number of each sequence (size,), and the
        `Sequences.place` of each step (B,).
    """
    dealt = deal(len(length), size, generator)
    starts = (length.cumsum(0) - length)[dealt]  # (minibatches, size)
    position = torch.arange(longest)
    is_there = position < length[dealt].unsqueeze(2)  # (minibatches, size, longest)
    rows = (starts.unsqueeze(2) + position)[is_there]
    place = torch.arange(size * longest).view(size, longest).expand_as(is_there)[is_there]
    n_steps = is_there.sum((1, 2)).tolist()
    yield from zip(
        rows.to(device).split(n_steps),
        dealt.to(device),
        place.to(device).split(n_steps),
        strict=True,
    )


def in_order(
    length: NDArray[np.int64], n_rows: int, longest: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Split sequences, in order, into parts of at most `n_rows` steps.

    Args:
        length: (S,) number of steps in each sequence. Sequences are stored consecutively.
        n_rows: Largest number of steps in a part. A longer sequence forms a part of its own.
        longest: Upper bound of `length`.

    Yields:
        For each part: its rows, its sequences, and the `Sequences.place` of each row.
    """
    size = max(1, n_rows // longest)
    ends = np.concatenate([[0], np.cumsum(length)])
    for first in range(0, len(length), size):
        sequences = slice(first, min(first + size, len(length)))
        within = np.arange(longest) < length[sequences, None]
        place = np.flatnonzero(within)
        yield slice(ends[first], ends[sequences.stop]), sequences, torch.from_numpy(place)
