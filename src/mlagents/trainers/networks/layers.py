"""Building blocks of networks: linear layers, normalization, goal conditioning and memory."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.products import is_large, product
from mlagents.trainers.fast.torch_internals import lstm_cell
from mlagents.trainers.sharding import ALONE, Shards


class Linear(nn.Linear):
    """A linear layer with the fastest available matrix product."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., n_in) to (..., n_out)."""
        weight = self.weight.t()
        if x.dim() == 2 and is_large(x, weight):
            return product(x, weight, self.bias)
        return super().forward(x)


def linear(n_in: int, n_out: int, *, gain: float = 1.0) -> nn.Linear:
    """Return a linear layer with weights N(0, gain² / n_in) and zero bias (arXiv:1502.01852)."""
    layer = Linear(n_in, n_out)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(n_in))
    nn.init.zeros_(layer.bias)
    return layer


def as_floats(image: Tensor) -> Tensor:
    """Return images as floats: bytes are scaled to [0, 1], floats are unchanged."""
    return image.float().div_(255) if image.dtype == torch.uint8 else image


def dense_block(
    n_in: int, hidden_units: int, num_layers: int, *, normalize: bool = False
) -> nn.Sequential:
    """Return `num_layers` linear layers with swish, which map (B, n_in) to (B, hidden_units).

    Args:
        n_in: Width of the input.
        hidden_units: Width of every layer.
        num_layers: Number of layers.
        normalize: Whether each layer is normalized before swish.
    """
    layers: list[nn.Module] = []
    for layer in range(num_layers):
        layers.append(linear(hidden_units if layer else n_in, hidden_units))
        layers += [layer_norm(hidden_units)] if normalize else []
        layers.append(nn.SiLU())
    return nn.Sequential(*layers)


def layer_norm(size: int) -> nn.LayerNorm:
    """Return a layer normalization of `size` numbers without trained parameters."""
    return nn.LayerNorm(size, elementwise_affine=False)


def joined(columns: list[Tensor]) -> Tensor:
    """Concatenate the columns of several tensors (B, n)."""
    return columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)


class Normalizer(nn.Module):
    """Normalizes a vector to mean 0 and deviation 1, with running statistics.

    The statistics start with one observation of mean 0 and variance 1, so early outputs stay small.
    They are buffers: they are saved with the network, but not trained.

    Args:
        size: Length of the vector.

    Attributes:
        shards: Communication with the other learners. The statistics cover the rows of all.
    """

    limit = 5.0
    """Normalized values are clamped to [-limit, limit]."""

    count: Tensor
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("squares", torch.ones(size, dtype=torch.float64))
        self.shards: Shards = ALONE
        # The statistics in the precision of `forward`: (x - shift) * scale.
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, vector: Tensor) -> Tensor:
        """Normalize (B, size)."""
        return ((vector - self.shift) * self.scale).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def update(self, vectors: Tensor) -> None:
        """Update the statistics with (B, size), all rows at once (Welford's algorithm)."""
        vectors = vectors.to(torch.float64)
        before = vectors - self.mean
        if self.shards.size == 1:
            self.count += len(vectors)
            self.mean += before.sum(0) / self.count
            self.squares += ((vectors - self.mean) * before).sum(0)
        else:
            n_rows = self.count.new_full((1,), len(vectors))
            sums = torch.cat([n_rows, before.sum(0), before.square().sum(0)])
            self.shards.add(sums)
            n_rows, total, squares = sums.split([1, len(self.mean), len(self.mean)])
            self.count += n_rows[0]
            self.mean += total / self.count
            # The sum of (x - new mean) (x - old mean), as above.
            self.squares += squares - total / self.count * total
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.rsqrt(self.squares / self.count))


class GoalLayer(nn.Module):
    """A dense layer whose weights are computed from the goal (a hypernetwork, arXiv:1609.09106).

    Args:
        n_in: Width of the input.
        n_out: Width of the output.
        n_goal: Width of the encoded goal.
    """

    def __init__(self, n_in: int, n_out: int, n_goal: int) -> None:
        super().__init__()
        self.hidden = dense_block(n_goal, n_out, 2)
        self.norm = layer_norm(n_out)
        self.weights = nn.Linear(n_out, n_in * n_out)
        bound = 1 / math.sqrt(n_out * n_in)
        nn.init.uniform_(self.weights.weight, -bound, bound)
        nn.init.zeros_(self.weights.bias)
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.n_in, self.n_out = n_in, n_out

    def forward(self, x: Tensor, goal: Tensor) -> Tensor:
        """Map (B, n_in) and (B, n_goal) to (B, n_out)."""
        # Weights are costly and many agents share a goal, so compute them once per distinct goal.
        _, which, counts = torch.unique(
            goal.detach(), dim=0, return_inverse=True, return_counts=True
        )
        order = which.argsort()
        firsts = order.index_select(0, counts.cumsum(0) - counts)
        hidden = self.norm(self.hidden(goal.index_select(0, firsts)))
        weights = self.weights(hidden).view(-1, self.n_in, self.n_out)
        rows = x.index_select(0, order).split(counts.tolist())
        out = torch.cat([part @ w for part, w in zip(rows, weights.unbind(0), strict=True)])
        return nn.functional.silu(out.index_select(0, order.argsort()) + self.bias)


class Sequences(NamedTuple):
    """Order of the rows of a batch: B steps in S sequences.

    A batch never contains padding. Only the LSTM needs sequences of equal length, so `Memory` pads
    its rows to S times `longest` places.

    Attributes:
        memory: (S, memory size) memory before the first step of each sequence.
        place: (B,) index of each row among the S times `longest` places, sequence by sequence.
        longest: Largest number of steps in a sequence.
    """

    memory: Tensor
    place: Tensor
    longest: int


class Memory(nn.Module):
    """An LSTM layer. An agent's memory is the hidden state followed by the cell state.

    Args:
        n_in: Width of the input.
        memory_size: Size of both states together.
    """

    def __init__(self, n_in: int, memory_size: int) -> None:
        super().__init__()
        self.output_size = memory_size // 2
        self.lstm = nn.LSTM(n_in, self.output_size, batch_first=True)
        for name, parameter in self.lstm.named_parameters():
            gates = parameter.detach().chunk(4)  # input, forget, cell, output
            if name.startswith("weight"):
                for gate in gates:
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(parameter)
                nn.init.ones_(gates[1])  # in both biases, so the LSTM initially keeps its memory

    def forward(self, rows: Tensor, sequences: Sequences) -> Tensor:
        """Map whole sequences (B, n_in) to (B, output_size)."""
        memory, place, longest = sequences
        spread = rows.new_zeros(len(memory) * longest, rows.shape[1]).index_copy(0, place, rows)
        states = memory.unsqueeze(0).chunk(2, dim=2)
        hidden, _ = self.lstm(
            spread.view(len(memory), longest, -1), tuple(state.contiguous() for state in states)
        )
        return hidden.flatten(0, 1)[place]

    def step(self, rows: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Map one step of N agents, (N, n_in) and memory, to (N, output_size) and next memory."""
        # For one step, the cell takes a third of the time of `lstm`.
        states = lstm_cell(rows, memory.chunk(2, dim=1), list(self.lstm.parameters()))
        return states[0], torch.cat(states, dim=1)
