"""A copy of an actor, for acting: learning may change the original meanwhile.

A batch of a few agents through a small network costs torch more in calls than in arithmetic; the
same matrix products in NumPy take about half the time. So an actor of nothing but vectors and
dense layers is copied to NumPy, any other as it is. The copy is made anew after every update.
"""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.networks.actions import LOG_STD_LIMITS, ActionHeads
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Normalizer

FloatArray = NDArray[np.float32]


class Outputs(NamedTuple):
    """What the heads of an actor give, None where there are no such actions, and its memory.

    Attributes:
        mean: (N, A) of the Gaussians.
        log_std: (A,) or, of squashed actions, (N, A).
        logits: (N, branches).
        memory: (N, memory size) after the step.
    """

    mean: FloatArray | None
    log_std: FloatArray | None
    logits: FloatArray | None
    memory: FloatArray


Weights = tuple[FloatArray, FloatArray]
"""Of a linear layer, (n_in, n_out), and its bias."""


class DenseActor(NamedTuple):
    """The weights of an `Actor` of vectors and dense layers as they were when it was frozen.

    Attributes:
        normalizers: For each observation its (shift, scale, limit), or None.
        layers: Of the dense block.
        mean: Of the Gaussian means, or None without continuous actions.
        log_std: (A,), or, of squashed actions, the layer; None without continuous actions.
        logits: Of all branches, or None without discrete actions.
    """

    normalizers: list[tuple[FloatArray, FloatArray, float] | None]
    layers: list[Weights]
    mean: Weights | None
    log_std: FloatArray | Weights | None
    logits: Weights | None

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """One (N, size) per observation to what the heads give; there is no memory to change."""
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
        log_std = self.log_std
        if isinstance(log_std, tuple):
            log_std = np.clip(hidden @ log_std[0] + log_std[1], *LOG_STD_LIMITS)
        return Outputs(mean, log_std, logits, memory)


class TorchActor:
    """A copy of any `Actor`.

    Args:
        actor: To be copied.
        critic_body: To be copied too, if the memory of an agent has a part of the critic's.
    """

    def __init__(self, actor: Actor, critic_body: NetworkBody | None) -> None:
        self._device = next(actor.parameters()).device
        # `to` lays the weights of an LSTM out as CUDA wants them, which the copy alone does not.
        self._actor = copy.deepcopy(actor).to(self._device)
        self._bodies = [self._actor.body]
        if critic_body is not None:
            self._bodies.append(copy.deepcopy(critic_body).to(self._device))

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """One (N, *shape) per observation and (N, memory size) to what the heads give."""
        heads = self._actor.heads
        with torch.inference_mode():
            tensors = [self._tensor(batch) for batch in obs]
            memories = self._tensor(memory).split([body.memory_size for body in self._bodies], 1)
            (encoding, _), *_ = steps = [
                body.step(tensors, part) for body, part in zip(self._bodies, memories, strict=True)
            ]
            mean, log_std = (None, None) if heads.mean is None else heads.gaussian(encoding)
            logits = None if heads.logits is None else heads.logits(encoding)
            after = torch.cat([part for _, part in steps], dim=1)
            return Outputs(
                _to_numpy(mean), _to_numpy(log_std), _to_numpy(logits), after.cpu().numpy()
            )

    def _tensor(self, batch: NDArray[Any]) -> Tensor:
        # Torch warns of arrays that may not be written to, as a message's may be.
        return torch.as_tensor(np.require(batch, requirements="W"), device=self._device)


def _to_numpy(output: Tensor | None) -> FloatArray | None:
    return None if output is None else output.cpu().numpy()


def freeze(actor: Actor, critic_body: NetworkBody | None = None) -> DenseActor | TorchActor:
    """Copy an actor.

    Args:
        actor: Is only read.
        critic_body: The body of a critic whose memory the agents carry along, if it has its own.
    """
    if not actor.body.is_dense:
        return TorchActor(actor, critic_body)
    heads = actor.heads
    return DenseActor(
        normalizers=[
            _normalizer(encoder.normalizer) for encoder in actor.body.observations.encoders
        ],
        layers=[_weights(layer) for layer in actor.body.dense if isinstance(layer, nn.Linear)],
        mean=None if heads.mean is None else _weights(heads.mean),
        log_std=_log_std(heads),
        logits=None if heads.logits is None else _weights(heads.logits),
    )


def _log_std(heads: ActionHeads) -> FloatArray | Weights | None:
    if heads.mean is None:
        return None
    log_std = heads.log_std
    return _weights(log_std) if isinstance(log_std, nn.Linear) else _array(log_std)


def _normalizer(normalizer: object) -> tuple[FloatArray, FloatArray, float] | None:
    if not isinstance(normalizer, Normalizer):
        return None
    return _array(normalizer.shift), _array(normalizer.scale), normalizer.limit


def _array(tensor: Tensor) -> FloatArray:
    return tensor.detach().cpu().numpy().copy()


def _weights(layer: nn.Linear) -> Weights:
    return np.ascontiguousarray(_array(layer.weight).T), _array(layer.bias)
