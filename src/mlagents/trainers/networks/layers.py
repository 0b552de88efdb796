"""Building blocks: initialised linear layers, dense blocks, normalization, conditioning, memory."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.products import is_large, product
from mlagents.trainers.fast.torch_internals import lstm_cell


class Linear(nn.Linear):
    """A linear layer that multiplies in the fastest way there is."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., n_in) to (..., n_out)."""
        weight = self.weight.t()
        if x.dim() == 2 and is_large(x, weight):
            return product(x, weight, self.bias)
        return super().forward(x)


def linear(n_in: int, n_out: int, *, gain: float = 1.0) -> nn.Linear:
    """Make a linear layer with weights N(0, gain² / n_in) and zero bias (arXiv:1502.01852)."""
    layer = Linear(n_in, n_out)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(n_in))
    nn.init.zeros_(layer.bias)
    return layer


def dense_block(n_in: int, hidden_units: int, num_layers: int) -> nn.Sequential:
    """Make `num_layers` of linear and swish, (B, n_in) to (B, hidden_units)."""
    layers: list[nn.Module] = []
    for layer in range(num_layers):
        layers += [linear(hidden_units if layer else n_in, hidden_units), nn.SiLU()]
    return nn.Sequential(*layers)


def layer_norm(size: int) -> nn.LayerNorm:
    """Make a normalization of `size` numbers by their own mean and deviation, not learned."""
    return nn.LayerNorm(size, elementwise_affine=False)


class MixedPrecision(nn.Module):
    """A network that may compute its `forward` in less than float32.

    Its weights stay float32, and so do its memory and what comes out: losses and distributions lose
    nothing.

    Attributes:
        precision: Of matrix products and convolutions; None is that of the weights.
    """

    precision: torch.dtype | None = None

    def computing(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context to compute in on `device`."""
        if self.precision is None:
            return nullcontext()
        return torch.autocast(device.type, self.precision)

    def computed(self, x: Tensor) -> Tensor:
        """Bring what was computed in that context back to float32."""
        return x if self.precision is None else x.float()


class Normalizer(nn.Module):
    """Running mean and variance of a vector; brings observations to mean 0, deviation 1.

    The statistics start as one observation of mean 0 and variance 1, so that early outputs stay
    tame, and are buffers: they are saved with the network and no optimiser touches them.

    Args:
        size: Length of the vector.
    """

    limit = 5.0
    """Normalized values are clamped to plus and minus this."""

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
        # What `forward` needs of the above, in its own precision: (x - shift) * scale.
        self.register_buffer("shift", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, vector: Tensor) -> Tensor:
        """Normalize (B, size)."""
        return ((vector - self.shift) * self.scale).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def update(self, vectors: Tensor) -> None:
        """Count (B, size) in, all rows at once (Welford's method)."""
        vectors = vectors.to(torch.float64)
        before = vectors - self.mean
        self.count += len(vectors)
        self.mean += before.sum(0) / self.count
        self.squares += ((vectors - self.mean) * before).sum(0)
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.rsqrt(self.squares / self.count))


class GoalLayer(nn.Module):
    """A dense layer whose weights another network makes of the goal (arXiv:1609.09106).

    Args:
        n_in: Width of what comes in.
        n_out: Width of what goes out.
        n_goal: Width of the goal's encoding.
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
        """(B, n_in) and (B, n_goal) to (B, n_out)."""
        # Most agents share a few goals, and weights are dear: they are made once for each goal.
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
    """Which rows of a batch follow each other: B steps in S sequences.

    A batch never holds padding. Only the LSTM needs sequences of equal length, and spreads its
    rows over S times `longest` places for as long as it runs.

    Attributes:
        memory: (S, memory size) before the first step of each sequence.
        place: (B,) of each row among the S times `longest`, sequence by sequence.
        longest: Steps that a sequence has room for.
    """

    memory: Tensor
    place: Tensor
    longest: int


class Memory(nn.Module):
    """One LSTM layer. What an agent remembers is its hidden state and, behind it, its cell state.

    Args:
        n_in: Width of what comes in.
        memory_size: Of both states together.
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
                nn.init.ones_(gates[1])  # in both biases: it starts out remembering

    def forward(self, rows: Tensor, sequences: Sequences) -> Tensor:
        """Run through whole sequences, (B, n_in) to (B, output_size)."""
        memory, place, longest = sequences
        spread = rows.new_zeros(len(memory) * longest, rows.shape[1]).index_copy(0, place, rows)
        states = memory.unsqueeze(0).chunk(2, dim=2)
        hidden, _ = self.lstm(
            spread.view(len(memory), longest, -1), tuple(state.contiguous() for state in states)
        )
        return hidden.flatten(0, 1)[place]

    def step(self, rows: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step of N agents: (N, n_in) and their memory to (N, output_size) and memory."""
        # One step of `lstm` in a third of the time.
        states = lstm_cell(rows, memory.chunk(2, dim=1), list(self.lstm.parameters()))
        return states[0], torch.cat(states, dim=1)
