"""Dense layers, forward and back, without automatic differentiation.

A small network costs torch more in calls, and in remembering what to differentiate, than in
arithmetic. Here everything that can be is prepared once, for one number of rows: a pass is nothing
but products into arrays that are there already, and the gradient by an array takes its place.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.products import prepared_product
from mlagents.trainers.fast.torch_internals import copy_each, swish, swish_backward


class Weights(NamedTuple):
    """Of a linear layer, seen so that x @ weight + bias comes out, and where gradients belong.

    Attributes:
        weight: (n_in, n_out).
        bias: (n_out,).
        by_weight: (n_in, n_out) gradient, None if the layer does not learn.
        by_bias: (n_out,).
    """

    weight: Tensor
    bias: Tensor
    by_weight: Tensor | None
    by_bias: Tensor | None


def weights_of(layer: nn.Linear) -> Weights:
    """View the weights of a layer, and their gradients, if it has some."""
    by_weight, by_bias = layer.weight.grad, layer.bias.grad
    return Weights(
        layer.weight.detach().t(),
        layer.bias.detach(),
        None if by_weight is None else by_weight.t(),
        by_bias,
    )


class Copies:
    """Weights in the precision of products, where that is not the one they are kept and learn in.

    Args:
        precision: That of products.
    """

    def __init__(self, precision: torch.dtype) -> None:
        self._precision = precision
        self._weights: list[Tensor] = []
        self._copied_weights: list[Tensor] = []
        self._gradients: list[Tensor] = []
        self._copied_gradients: list[Tensor] = []

    def of(self, kept: Weights) -> Weights:
        """Return the weights to multiply with, which are the same if the precision is."""
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
        """Look at what has been learned."""
        if self._weights:
            copy_each(self._copied_weights, self._weights)

    def give_gradients(self) -> None:
        """Bring gradients to where they belong."""
        if self._gradients:
            copy_each(self._gradients, self._copied_gradients)

    def _copy(self, kept: Tensor, kept_ones: list[Tensor], copies: list[Tensor]) -> Tensor:
        kept_ones.append(kept)
        copies.append(torch.zeros_like(kept, dtype=self._precision))
        return copies[-1]


class Workspace:
    """Room for what a stack of layers makes of a minibatch.

    Args:
        n_rows: Of the minibatch.
        widths: Of every layer.
        precision: Of products.
        like: What has the device and precision of everything else.

    Attributes:
        layers: What every layer makes before and after swish, (B, width) each.
        out: (B, width) what comes out, for those who are not of the stack.
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
    """y = x W + b. Of a gradient g by y the share of W is x' g, that of b the sum of g, of x g W'.

    Args:
        weights: W and b.
        x: (B, n_in) read by `forward` and `learn`, and overwritten by `back`.
        y: (B, n_out) written by `forward`; the others find the gradient there.
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
    """Dense layers with swish behind each.

    Args:
        layers: From the first to the last.
        x: (B, n_in) what comes in, in the precision of the layers; is only read.
        space: May be shared by stacks that do not need it at the same time.
    """

    def __init__(self, layers: Sequence[Weights], x: Tensor, space: Workspace) -> None:
        inputs = [x, *(after for _, after in space.layers)]
        self._layers = [
            (Layer(weights, x, before), before, after)
            for weights, x, (before, after) in zip(layers, inputs, space.layers, strict=False)
        ]
        self._last, self._out = inputs[-1], space.out

    def forward(self) -> None:
        """Fill the space."""
        for layer, before, after in self._layers:
            layer.forward()
            swish(before, out=after)
        if self._out is not self._last:
            self._out.copy_(self._last)

    def back(self, *, learn: bool = True) -> None:
        """Go from the gradient by the output, in its place, to that before the first swish.

        Args:
            learn: Whether weights are given gradients.
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
