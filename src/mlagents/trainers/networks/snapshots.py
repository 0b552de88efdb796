"""Snapshots of actors: NumPy arrays for dense actors, a copy of the network for others."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlagents.trainers.data.snapshot import DenseSnapshot, Outputs, Snapshot, Weights
from mlagents.trainers.networks.actions import ActionHeads
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Normalizer
from mlagents_envs.base_env import FloatArray


class TorchSnapshot:
    """A copy of any `Actor`.

    Args:
        actor: Network to copy.
        critic_body: Body of the critic to copy too, if it has a memory of its own. The memory of an
            agent is then the actor's memory followed by the critic's.

    Attributes:
        squashed: Whether tanh squashes continuous actions into [-1, 1].
        memory_size: Size of the memory of each agent.
    """

    def __init__(self, actor: Actor, critic_body: NetworkBody | None) -> None:
        self._device = next(actor.parameters()).device
        # `to` arranges the weights of an LSTM in the layout CUDA needs; `deepcopy` does not.
        self._actor = copy.deepcopy(actor).to(self._device)
        self._bodies = [self._actor.body]
        if critic_body is not None:
            self._bodies.append(copy.deepcopy(critic_body).to(self._device))
        self.squashed = actor.heads.squashed
        self.memory_size = sum(body.memory_size for body in self._bodies)

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """Map one (N, *shape) per observation and (N, memory size) to outputs of the heads."""
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
        # Torch warns about read-only arrays, such as those of a received message.
        return torch.as_tensor(np.require(batch, requirements="W"), device=self._device)


def _to_numpy(output: Tensor | None) -> FloatArray | None:
    return None if output is None else output.cpu().numpy()


def snapshot_of(actor: Actor, critic_body: NetworkBody | None = None) -> Snapshot:
    """Return a copy of an actor as it is now.

    Args:
        actor: Network to copy; it is not changed.
        critic_body: Body of the critic, if it has a memory of its own.
    """
    if not actor.body.is_dense:
        return TorchSnapshot(actor, critic_body)
    heads = actor.heads
    return DenseSnapshot(
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
