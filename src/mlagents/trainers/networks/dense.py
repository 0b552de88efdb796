"""Dense layers, forward and back, without automatic differentiation.

A small network costs torch more in calls, and in remembering what to differentiate, than in
arithmetic. Here everything that can be is prepared once, for one number of rows: a pass is nothing
but products into arrays that are there already, and the gradient by an array takes its place.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mlagents.trainers.networks.products import prepared_product

silu_backward = torch.ops.aten.silu_backward.grad_input


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


class Layer:
    """y = x W + b. Of a gradient g by y the share of W is x' g, that of b the sum of g, of x g W'.

    Args:
        weights: W and b.
        x: (B, n_in) read by `forward` and `learn`, and overwritten by `back`.
        y: (B, n_out) written by `forward`; the others find the gradient there.
    """

    def __init__(self, weights: Weights, x: Tensor, y: Tensor) -> None:
        weight, self._bias, by_weight, by_bias = weights
        self.y = y
        self._multiply = prepared_product(x, weight, y)
        self.back = prepared_product(y, weight.t(), x)
        if by_weight is not None:
            self._by_bias = by_bias
            self._weigh = prepared_product(x.t(), y, by_weight)

    def forward(self) -> None:
        """Write y."""
        self._multiply()
        self.y.add_(self._bias)

    def learn(self) -> None:
        """Write the gradients of weight and bias."""
        self._weigh()
        torch.sum(self.y, 0, out=self._by_bias)


class Stack:
    """Dense layers with swish behind each.

    Args:
        layers: From the first to the last.
        x: (B, n_in) what comes in; is only read.
        space: For every layer what it makes before and after swish, (B, width) each; may be shared
            by stacks that do not need it at the same time.
    """

    def __init__(
        self, layers: Sequence[Weights], x: Tensor, space: Sequence[tuple[Tensor, Tensor]]
    ) -> None:
        inputs = [x, *(after for _, after in space)]
        self._layers = [
            (Layer(weights, x, before), before, after)
            for weights, x, (before, after) in zip(layers, inputs, space, strict=False)
        ]

    def forward(self) -> None:
        """Fill the space."""
        for layer, before, after in self._layers:
            layer.forward()
            torch.ops.aten.silu.out(before, out=after)

    def back(self, *, learn: bool = True) -> None:
        """Go from the gradient by the output, in its place, to that before the first swish.

        Args:
            learn: Whether weights are given gradients.
        """
        for i in range(len(self._layers) - 1, -1, -1):
            layer, before, after = self._layers[i]
            silu_backward(after, before, grad_input=before)
            if learn:
                layer.learn()
            if i:
                layer.back()
