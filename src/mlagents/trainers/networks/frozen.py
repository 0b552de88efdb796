"""A copy of an actor in NumPy, for acting.

A batch of a few agents through a small network costs torch more in calls than in arithmetic; the
same matrix products in NumPy take about half the time. The copy is made anew after every update.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.layers import Normalizer

FloatArray = NDArray[np.float32]


class FrozenActor(NamedTuple):
    """The weights of an `Actor` as they were when it was frozen.

    Attributes:
        normalizers: For each observation its (shift, scale, limit), or None.
        layers: (weights, bias) of the dense block; weights are (n_in, n_out).
        mean: (weights, bias) of the Gaussian means, or None without continuous actions.
        log_std: (A,).
        logits: (weights, bias) of all branches, or None without discrete actions.
    """

    normalizers: list[tuple[FloatArray, FloatArray, float] | None]
    layers: list[tuple[FloatArray, FloatArray]]
    mean: tuple[FloatArray, FloatArray] | None
    log_std: FloatArray
    logits: tuple[FloatArray, FloatArray] | None

    def forward(self, obs: Sequence[FloatArray]) -> tuple[FloatArray | None, FloatArray | None]:
        """One (N, size) per observation to Gaussian means (N, A) and logits (N, branches)."""
        encoded = [
            batch
            if normalizer is None
            else np.clip((batch - normalizer[0]) * normalizer[1], -normalizer[2], normalizer[2])
            for batch, normalizer in zip(obs, self.normalizers, strict=True)
        ]
        hidden = encoded[0] if len(encoded) == 1 else np.concatenate(encoded, axis=1)
        with np.errstate(over="ignore"):  # far below zero exp is infinite and swish, rightly, zero
            for weights, bias in self.layers:
                hidden = hidden @ weights
                hidden += bias
                hidden /= 1.0 + np.exp(-hidden)  # swish
        mean = None if self.mean is None else hidden @ self.mean[0] + self.mean[1]
        logits = None if self.logits is None else hidden @ self.logits[0] + self.logits[1]
        return mean, logits


def freeze(actor: Actor) -> FrozenActor:
    """Copy the weights of an actor."""
    normalizers = [_normalizer(encoder.normalizer) for encoder in actor.body.encoders]
    heads = actor.heads
    return FrozenActor(
        normalizers=normalizers,
        layers=[_weights(layer) for layer in actor.body.dense if isinstance(layer, nn.Linear)],
        mean=None if heads.mean is None else _weights(heads.mean),
        log_std=np.zeros(0, np.float32) if heads.mean is None else _array(heads.log_std),
        logits=None if heads.logits is None else _weights(heads.logits),
    )


def _normalizer(normalizer: object) -> tuple[FloatArray, FloatArray, float] | None:
    if not isinstance(normalizer, Normalizer):
        return None
    return _array(normalizer.shift), _array(normalizer.scale), normalizer.limit


def _array(tensor: Tensor) -> FloatArray:
    return tensor.detach().cpu().numpy().copy()


def _weights(layer: nn.Linear) -> tuple[FloatArray, FloatArray]:
    return np.ascontiguousarray(_array(layer.weight).T), _array(layer.bias)
