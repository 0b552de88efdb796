"""Building blocks: initialised linear layers, dense blocks, running normalization."""

import math

import torch
from torch import Tensor, nn


def linear(n_in: int, n_out: int, *, gain: float = 1.0) -> nn.Linear:
    """Make a linear layer with weights N(0, gain² / n_in) and zero bias (arXiv:1502.01852)."""
    layer = nn.Linear(n_in, n_out)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(n_in))
    nn.init.zeros_(layer.bias)
    return layer


def dense_block(n_in: int, hidden_units: int, num_layers: int) -> nn.Sequential:
    """Make `num_layers` (at least one) of linear and swish, (B, n_in) to (B, hidden_units)."""
    layers: list[nn.Module] = []
    for layer in range(max(1, num_layers)):
        layers += [linear(hidden_units if layer else n_in, hidden_units), nn.SiLU()]
    return nn.Sequential(*layers)


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
