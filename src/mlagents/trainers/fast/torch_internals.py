"""Wrappers of all undocumented PyTorch functions in use. Each has a test."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def fused_adam(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    learning_rate: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Take one step of Adam (arXiv:1412.6980) for all parameters in one call.

    Args:
        parameters: Parameters, changed in place.
        gradients: Gradient of each parameter.
        means: Running mean of each gradient, changed in place.
        squares: Running mean of each squared gradient, changed in place.
        steps: Scalar number of steps of each parameter, including this one.
        learning_rate: Step size.
        betas: Decay rates of the means and of the squares.
        epsilon: Number added to the root of the squares.
    """
    torch._fused_adam_(
        list(parameters),
        list(gradients),
        list(means),
        list(squares),
        [],
        list(steps),
        lr=learning_rate,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=0.0,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )
    torch.autograd.graph.increment_version([*parameters, *means, *squares])  # for `versions`


def copy_each(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy every source into its target."""
    torch._foreach_copy_(targets, sources)


def move_each(targets: list[Tensor], sources: list[Tensor], share: float) -> None:
    """Move every target toward its source by a fraction of the difference, in place."""
    torch._foreach_lerp_(targets, sources, share)


def versions(tensors: Sequence[Tensor]) -> list[int]:
    """Return a counter of PyTorch's in-place changes for each tensor."""
    return [tensor._version for tensor in tensors]


def swish(x: Tensor, *, out: Tensor) -> None:
    """Write x * sigmoid(x) to `out`."""
    torch.ops.aten.silu.out(x, out=out)


def swish_backward(gradient: Tensor, x: Tensor, *, out: Tensor) -> None:
    """Write the gradient of `x` to `out`, given the gradient of swish(x)."""
    torch.ops.aten.silu_backward.grad_input(gradient, x, grad_input=out)


def lstm_cell(
    x: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return hidden state and cell state after one step of an LSTM."""
    hidden, cell = torch.lstm_cell(x, tuple(states), *parameters)
    return hidden, cell


def one_dnn_linear() -> Any:
    """Return oneDNN's x @ weight.T + bias, or None if this build of PyTorch lacks it."""
    if not torch.backends.mkldnn.is_available():
        return None
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)
