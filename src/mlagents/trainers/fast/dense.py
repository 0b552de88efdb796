"""Forward and backward passes of dense layers without automatic differentiation.

For a small network, torch spends more time on calls and on recording the graph than on arithmetic.
Here all arrays are allocated once, for a fixed number of rows. A pass only writes to existing
arrays, and the gradient of an array overwrites the array.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.products import prepared_product
from mlagents.trainers.fast.torch_internals import copy_each, swish, swish_backward


class Weights(NamedTuple):
    """Views of a linear layer's weights and gradients, with y = x @ weight + bias.

    Attributes:
        weight: (n_in, n_out) weight.
        bias: (n_out,) bias.
        by_weight: (n_in, n_out) gradient of the weight, or None if the layer is not trained.
        by_bias: (n_out,) gradient of the bias, or None if the layer is not trained.
    """

    weight: Tensor
    bias: Tensor
    by_weight: Tensor | None
    by_bias: Tensor | None


def weights_of(layer: nn.Linear) -> Weights:
    """Return views of a layer's weights and of their gradients, if it has any."""
    by_weight, by_bias = layer.weight.grad, layer.bias.grad
    return Weights(
        layer.weight.detach().t(),
        layer.bias.detach(),
        None if by_weight is None else by_weight.t(),
        by_bias,
    )


class Copies:
    """Copies of weights in the precision of products, if it differs from the precision of weights.

    Args:
        precision: Precision of products.
    """

    def __init__(self, precision: torch.dtype) -> None:
        self._precision = precision
        self._weights: list[Tensor] = []
        self._copied_weights: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._copied_gradients: list[Tensor] = []

    def of(self, kept: Weights) -> Weights:
        """Return copies in the precision of products, or `kept` itself if it has that precision."""
        if kept.weight.dtype is self._precision:
            return kept
        weight = self._copy(kept.weight, self._weights, self._copied_weights)
        bias = self._copy(kept.bias, self._weights, self._copied_weights)
        by_weight, by_bias = kept.by_weight, kept.by_bias
        if by_weight is not None and by_bias is not None:
            by_weight = self._copy(by_weight, self._gradients, self._copied_gradients)
            by_bias = self._copy(by_bias, self._gradients, self._copied_gradients)
        return Weights(weight, bias, by_weight, by_bias)

    def take_weights(self) -> None:
        """Update the copies from the current weights."""
        if self._weights:
            copy_each(self._copied_weights, self._weights)

    def give_gradients(self) -> None:
        """Copy the gradients back to the trained weights."""
        if self._gradients:
            copy_each(self._gradients, self._copied_gradients)

    def _copy(self, kept: Tensor, kept_ones: list[Tensor], copies: list[Tensor]) -> Tensor:
        kept_ones.append(kept)
        copies.append(torch.zeros_like(kept, dtype=self._precision))
        return copies[-1]


class Workspace:
    """Preallocated outputs of a stack of layers for a minibatch.

    Args:
        n_rows: Number of rows in the minibatch.
        widths: Width of each layer.
        precision: Precision of products.
        like: Tensor with the device and the precision of all other computation.

    Attributes:
        layers: Output of each layer before and after swish, both (B, width).
        out: (B, width) output of the stack, in the precision of `like`.
    """

    def __init__(
        self, n_rows: int, widths: Sequence[int], precision: torch.dtype, like: Tensor
    ) -> None:
        self.layers = [
            (
                like.new_zeros(n_rows, width, dtype=precision),
                like.new_zeros(n_rows, width, dtype=precision),
            )
            for width in widths
        ]
        last = self.layers[-1][1]
        self.out = last if last.dtype is like.dtype else torch.zeros_like(last, dtype=like.dtype)


class Layer:
    """A linear layer, y = x W + b.

    Given the gradient g of y, the gradients are x' g for W, the sum of g over rows for b, and g W'
    for x.

    Args:
        weights: Weights W and b.
        x: (B, n_in) input. `forward` and `learn` read it. `back` overwrites it with its gradient.
        y: (B, n_out) output of `forward`. `learn` and `back` expect its gradient there.
    """

    def __init__(self, weights: Weights, x: Tensor, y: Tensor) -> None:
        weight, bias, by_weight, by_bias = weights
        self.y = y
        self.forward = prepared_product(x, weight, y, bias)
        self.back = prepared_product(y, weight.t(), x)
        if by_weight is not None:
            self._by_bias = by_bias
            self._weigh = prepared_product(x.t(), y, by_weight)

    def learn(self) -> None:
        """Write the gradients of weight and bias."""
        self._weigh()
        torch.sum(self.y, 0, out=self._by_bias)


class Stack:
    """Dense layers, each followed by swish.

    Args:
        layers: Weights of the layers, from first to last.
        x: (B, n_in) input, in the precision of the layers. It is not changed.
        space: Workspace for the outputs. Stacks that are not used at the same time may share it.
    """

    def __init__(self, layers: Sequence[Weights], x: Tensor, space: Workspace) -> None:
        inputs = [x, *(after for _, after in space.layers)]
        self._layers = [
            (Layer(weights, x, before), before, after)
            for weights, x, (before, after) in zip(layers, inputs, space.layers, strict=False)
        ]
        self._last, self._out = inputs[-1], space.out

    def forward(self) -> None:
        """Compute the outputs in the workspace."""
        for layer, before, after in self._layers:
            layer.forward()
            swish(before, out=after)
        if self._out is not self._last:
            self._out.copy_(self._last)

    def back(self, *, learn: bool = True) -> None:
        """Propagate the gradient in `out` back to the values before the first swish.

        Args:
            learn: Whether to compute gradients of the weights.
        """
        if self._out is not self._last:
            self._last.copy_(self._out)
        for i in range(len(self._layers) - 1, -1, -1):
            layer, before, after = self._layers[i]
            swish_backward(after, before, out=before)
            if learn:
                layer.learn()
            if i:
                layer.back()
