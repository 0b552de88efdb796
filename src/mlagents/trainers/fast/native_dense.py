"""Dense layers in the form of the native library, as in `mlagents_native/source/dense.h`.

Structures only point to memory of PyTorch tensors, which must outlive them.
"""

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_int64, c_void_p
from typing import NamedTuple

from torch import Tensor, nn

from mlagents.trainers.algorithms.optimizer import Moments
from mlagents.trainers.networks.actor_critic import Actor, Critic

WIDEST = 256
"""Number of hidden units above which PyTorch is as fast, for large minibatches."""

WIDEST_OF_SMALL, SMALL = 512, 128
"""Number of hidden units above which PyTorch is as fast, for minibatches of up to `SMALL` rows."""


def is_faster(hidden_units: int, batch_size: int) -> bool:
    """Return whether the library is faster than PyTorch for networks of this width."""
    return hidden_units <= (WIDEST_OF_SMALL if batch_size <= SMALL else WIDEST)


class Weights(NamedTuple):
    """Weight and bias of a linear layer, with Adam's moments if the layer is trained.

    Attributes:
        weight: Weight, optionally followed by its mean gradient and mean squared gradient.
        bias: Bias, optionally followed by its mean gradient and mean squared gradient.
        is_transposed: Whether the weight is (n_in, n_out), not (n_out, n_in) as in `nn.Linear`.
    """

    weight: Sequence[Tensor]
    bias: Sequence[Tensor]
    is_transposed: bool = False


class Linear(ctypes.Structure):
    """`DenseLinear` of `dense.h`."""

    _fields_ = [
        *((name, c_void_p) for name in ("weight", "weight_mean", "weight_square")),
        *((name, c_void_p) for name in ("bias", "bias_mean", "bias_square")),
        *((name, c_int64) for name in ("n_in", "n_out", "is_transposed")),
    ]


def hidden_layers(network: Actor | Critic) -> list[nn.Linear]:
    """Return the dense layers of a body, from first to last."""
    return [layer for layer in network.body.dense if isinstance(layer, nn.Linear)]


def weights_of(layer: nn.Linear, moments: Moments | None) -> Weights:
    """Return the weights of a layer, with Adam's moments unless `moments` is None."""
    weight, bias = (with_means(parameter, moments) for parameter in layer.parameters(recurse=False))
    return Weights(weight, bias)


def with_means(parameter: nn.Parameter, moments: Moments | None) -> list[Tensor]:
    """Return a parameter, with Adam's moments unless `moments` is None."""
    return [parameter.detach(), *(() if moments is None else moments[parameter])]


def linears(layers: Sequence[Weights]) -> "ctypes.Array[Linear]":
    """Return the structures of several layers."""
    return (Linear * len(layers))(
        *(
            Linear(
                *pointers(layer.weight),
                *pointers(layer.bias),
                *(layer.weight[0].shape if layer.is_transposed else layer.weight[0].shape[::-1]),
                layer.is_transposed,
            )
            for layer in layers
        )
    )


def pointers(tensors: Sequence[Tensor]) -> Iterator[int | None]:
    """Return the addresses of a parameter and of its moments; None for missing moments."""
    assert all(tensor.is_contiguous() for tensor in tensors)
    missing = [None] * (3 - len(tensors))
    return iter([*(tensor.data_ptr() for tensor in tensors), *missing])
