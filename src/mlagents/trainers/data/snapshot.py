"""`Snapshot`: a copy of a policy for acting, while learning changes the original.

Learning sends a `Snapshot` to acting, and acting sends `Segments` to learning. Most policies are
dense layers over vectors. Their snapshots consist of NumPy arrays, do not need torch and can be
sent to other processes. NumPy is also faster for matrix products with few rows: in torch, the calls
take about as long as the arithmetic.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.decision import LOG_STD_LIMITS
from mlagents_envs.base_env import FloatArray


class Outputs(NamedTuple):
    """Outputs of an actor's heads, and its memory. None for actions that do not exist.

    Attributes:
        mean: (N, A) means of the Gaussians.
        log_std: (A,) log-deviations or, if actions are squashed, (N, A).
        logits: (N, sum of branches) logits.
        memory: (N, memory size) memory after the step.
    """

    mean: FloatArray | None
    log_std: FloatArray | None
    logits: FloatArray | None
    memory: FloatArray


class Snapshot(Protocol):
    """A copy of a policy, unaffected by further learning. It can be pickled."""

    @property
    def squashed(self) -> bool:
        """Whether tanh squashes continuous actions into [-1, 1]."""

    @property
    def memory_size(self) -> int:
        """Size of the memory of each agent."""

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """Map one array (N, *shape) per observation, and memory (N, memory size), to outputs."""


Weights = tuple[FloatArray, FloatArray]
"""Weights (n_in, n_out) and bias (n_out,) of a linear layer."""


class DenseSnapshot(NamedTuple):
    """A policy of dense layers over vectors.

    Attributes:
        normalizers: (shift, scale, limit) for each observation, or None.
        layers: Weights of the dense block.
        mean: Weights of the Gaussian means, or None without continuous actions.
        log_std: (A,) log-deviations or, if actions are squashed, their weights. None without
            continuous actions.
        logits: Weights of all branches, or None without discrete actions.
    """

    normalizers: list[tuple[FloatArray, FloatArray, float] | None]
    layers: list[Weights]
    mean: Weights | None
    log_std: FloatArray | Weights | None
    logits: Weights | None

    @property
    def squashed(self) -> bool:
        """Whether tanh squashes continuous actions into [-1, 1]."""
        return isinstance(self.log_std, tuple)

    @property
    def memory_size(self) -> int:
        """Zero: dense layers have no memory."""
        return 0

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """Map one array (N, size) per observation to outputs of the heads; memory is unchanged."""
        encoded = [
            batch
            if normalizer is None
            else np.clip((batch - normalizer[0]) * normalizer[1], -normalizer[2], normalizer[2])
            for batch, normalizer in zip(obs, self.normalizers, strict=True)
        ]
        hidden = encoded[0] if len(encoded) == 1 else np.concatenate(encoded, axis=-1)
        with np.errstate(over="ignore"):  # for large negative inputs exp overflows, and swish is 0
            for weights, bias in self.layers:
                hidden = hidden @ weights
                hidden += bias
                hidden /= 1.0 + np.exp(-hidden)  # swish
        mean = None if self.mean is None else hidden @ self.mean[0] + self.mean[1]
        logits = None if self.logits is None else hidden @ self.logits[0] + self.logits[1]
        log_std = self.log_std
        if isinstance(log_std, tuple):
            log_std = np.clip(hidden @ log_std[0] + log_std[1], *LOG_STD_LIMITS)
        return Outputs(mean, log_std, logits, memory)
