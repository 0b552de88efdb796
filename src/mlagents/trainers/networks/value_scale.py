"""`ValueScale`: normalizes the targets of a critic with running statistics of the returns."""

import torch
from torch import Tensor, nn

from mlagents.trainers.networks.layers import Normalizer


class ValueScale(Normalizer):
    """Converts between returns and outputs of a critic, for each reward signal (arXiv:1602.07714).

        output = (return - mean) / deviation

    Mean and deviation cover all returns so far. When they change, the output layer is adjusted so
    that predictions stay the same.

    Args:
        size: Number of reward signals.
    """

    def forward(self, returns: Tensor) -> Tensor:
        """Map returns (N, signals) to outputs of the critic, without a limit."""
        return (returns - self.shift) * self.scale

    def returns(self, outputs: Tensor) -> Tensor:
        """Map outputs of the critic (N, signals) to returns."""
        return outputs / self.scale + self.shift

    @torch.no_grad()
    def follow(self, returns: Tensor, layer: nn.Linear) -> None:
        """Update the statistics with new returns, and adjust the output layer to them.

        Args:
            returns: (N, signals) returns.
            layer: Output layer of the critic.
        """
        bias, scale = self.returns(layer.bias), self.scale.clone()
        self.update(returns)
        layer.weight.mul_((self.scale / scale).unsqueeze(1))
        layer.bias.copy_(self(bias))
