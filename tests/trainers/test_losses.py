import math

import pytest
import torch
from torch import Tensor

from mlagents.trainers.algorithms.losses import clipped_policy_loss


def loss_of(ratios: list[list[float]], advantages: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Return the loss with epsilon 0.2 and its derivative by the log-probabilities."""
    old = torch.full((len(ratios), len(ratios[0])), math.log(0.1))
    log_probs = (old + torch.tensor(ratios).log()).requires_grad_()
    loss = clipped_policy_loss(log_probs, old, torch.tensor(advantages), epsilon=0.2)
    (gradient,) = torch.autograd.grad(loss, log_probs)
    return loss, gradient


def test_clipped_policy_loss_by_hand() -> None:
    # ratio 1.5, A  1: min( 1.5,  1.2) =  1.2   clipped: no more reward, no gradient
    # ratio 0.5, A  1: min( 0.5,  0.8) =  0.5   d/dlogp = ratio * A =  0.5
    # ratio 1.5, A -1: min(-1.5, -1.2) = -1.5   d/dlogp = ratio * A = -1.5
    # ratio 0.5, A -1: min(-0.5, -0.8) = -0.8   clipped
    # loss = -(1.2 + 0.5 - 1.5 - 0.8) / 4 = 0.15; the gradient is divided by -4 likewise.
    loss, gradient = loss_of([[1.5], [0.5], [1.5], [0.5]], [[1.0], [1.0], [-1.0], [-1.0]])
    assert loss.item() == pytest.approx(0.15)
    torch.testing.assert_close(gradient, torch.tensor([[0.0], [-0.125], [0.375], [0.0]]))


def test_every_component_has_its_own_ratio() -> None:
    # A = 2: min(2 * 1.1, 2 * 1.1) = 2.2 and min(2 * 2, 2 * 1.2) = 2.4, mean 2.3. One ratio of both,
    # 1.1 * 2 = 2.2, would be clipped to 1.2: 2.4.
    loss, gradient = loss_of([[1.1, 2.0]], [[2.0]])
    assert loss.item() == pytest.approx(-2.3)
    torch.testing.assert_close(gradient, torch.tensor([[-1.1, 0.0]]))


def test_before_the_first_step_it_is_the_policy_gradient() -> None:
    # All ratios are 1: the loss is minus the mean advantage, the gradient -A / 3.
    loss, gradient = loss_of([[1.0], [1.0], [1.0]], [[3.0], [-1.5], [0.0]])
    assert loss.item() == pytest.approx(-0.5)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0], [0.5], [0.0]]))
