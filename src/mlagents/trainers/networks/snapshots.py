"""Snapshots of actors: NumPy arrays for dense actors, copies of the network for all others."""

import copy
from collections.abc import Iterator, Mapping, Sequence
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
    """A copy of any `Actor`. Unpickled copies are on the CPU.

    Args:
        actor: Network to copy.
        critic_body: Body of the critic, to copy as well if it has its own memory. The memory of an
            agent is then the actor's memory followed by the critic's.

    Attributes:
        squashed: Whether tanh squashes continuous actions into [-1, 1].
        memory_size: Size of the memory of each agent.
    """

    def __init__(self, actor: Actor, critic_body: NetworkBody | None) -> None:
        self._device = next(actor.parameters()).device
        # Unlike `deepcopy`, `to` arranges the weights of an LSTM in the layout that CUDA needs.
        self._actor = copy.deepcopy(actor).to(self._device)
        self._bodies = [self._actor.body]
        if critic_body is not None:
            self._bodies.append(copy.deepcopy(critic_body).to(self._device))
        self.squashed = actor.heads.squashed
        self.memory_size = sum(body.memory_size for body in self._bodies)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the networks on the CPU, because another process may not have a GPU."""
        actor, *others = (copy.deepcopy(m).cpu() for m in (self._actor, *self._bodies[1:]))
        return TorchSnapshot, (actor, others[0] if others else None)

    def forward(self, obs: Sequence[NDArray[Any]], memory: FloatArray) -> Outputs:
        """Map one array (N, *shape) per observation, and memory (N, memory size), to outputs."""
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

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights of all bodies and heads, by name. They must not be changed."""
        return nn.ModuleList([self._actor, *self._bodies[1:]]).state_dict()

    def with_state(self, state: Mapping[str, Tensor]) -> "TorchSnapshot":
        """Return a copy with other weights.

        Raises:
            RuntimeError: The weights do not fit the networks.
        """
        critic_body = self._bodies[1] if len(self._bodies) > 1 else None
        other = TorchSnapshot(self._actor, critic_body)
        nn.ModuleList([other._actor, *other._bodies[1:]]).load_state_dict(state)
        return other

    def _tensor(self, batch: NDArray[Any]) -> Tensor:
        # Torch warns about read-only arrays, such as arrays of a received message.
        return torch.as_tensor(np.require(batch, requirements="W"), device=self._device)


def _to_numpy(output: Tensor | None) -> FloatArray | None:
    return None if output is None else output.cpu().numpy()


def snapshot_of(actor: Actor, critic_body: NetworkBody | None = None) -> Snapshot:
    """Return a copy of an actor.

    Args:
        actor: Network to copy.
        critic_body: Body of the critic, if it has its own memory.
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


def weights_of(snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the weights of a snapshot by name, for a checkpoint.

    Raises:
        TypeError: The type of the snapshot is not supported, for example one of a plug-in.
    """
    if isinstance(snapshot, TorchSnapshot):
        return {name: each.cpu() for name, each in snapshot.state_dict().items()}
    return {name: torch.from_numpy(array) for name, array in _arrays(_dense(snapshot))}


def with_weights(like: Snapshot, weights: Mapping[str, Tensor]) -> Snapshot:
    """Return a snapshot with saved weights.

    Args:
        like: Snapshot of the same network.
        weights: Weights from `weights_of`.

    Raises:
        ValueError: The weights do not fit; the message names the first one that differs.
        TypeError: The type of the snapshot is not supported, for example one of a plug-in.
    """
    expected = weights_of(like)
    for name in [*expected, *weights]:
        ours, theirs = expected.get(name), weights.get(name)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            shapes = ["missing" if t is None else tuple(t.shape) for t in (ours, theirs)]
            raise ValueError(f"{name} is {shapes[1]}; expected {shapes[0]}")
    if isinstance(like, TorchSnapshot):
        return like.with_state(weights)
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    dense: DenseSnapshot = _replaced(_dense(like), arrays, "")
    return dense


def _dense(snapshot: Snapshot) -> DenseSnapshot:
    if not isinstance(snapshot, DenseSnapshot):
        raise TypeError(f"a {type(snapshot).__name__} cannot be saved in a checkpoint")
    return snapshot


def _arrays(tree: Any, path: str = "") -> Iterator[tuple[str, FloatArray]]:
    """Yield the path and the array, for all arrays in nested tuples and lists."""
    if isinstance(tree, np.ndarray):
        yield path, tree
    elif isinstance(tree, tuple | list):
        for key, part in zip(_keys(tree), tree, strict=True):
            yield from _arrays(part, f"{path}.{key}" if path else key)


def _replaced(tree: Any, arrays: Mapping[str, FloatArray], path: str) -> Any:
    """Return nested tuples and lists with their arrays replaced, by path."""
    if isinstance(tree, np.ndarray):
        return arrays[path]
    if not isinstance(tree, tuple | list):
        return tree
    parts = [
        _replaced(part, arrays, f"{path}.{key}" if path else key)
        for key, part in zip(_keys(tree), tree, strict=True)
    ]
    return type(tree)(*parts) if isinstance(tree, DenseSnapshot) else type(tree)(parts)


def _keys(tree: Any) -> Sequence[str]:
    return getattr(tree, "_fields", None) or [str(i) for i in range(len(tree))]
