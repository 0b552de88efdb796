import math

import pytest
import torch
from torch import Tensor

from mlagents.trainers.algorithms.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    mean_entropy,
)


def loss_of(
    ratios: list[list[float]], advantages: list[list[float]], *, joint: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the loss with epsilon 0.2 and its derivative by the log-probabilities."""
    old = torch.full((len(ratios), len(ratios[0])), math.log(0.1))
    log_probs = (old + torch.tensor(ratios).log()).requires_grad_()
    loss = clipped_policy_loss(log_probs, old, torch.tensor(advantages), epsilon=0.2, joint=joint)
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


def test_every_component_may_have_its_own_ratio() -> None:
    # A = 2: min(2 * 1.1, 2 * 1.1) = 2.2 and min(2 * 2, 2 * 1.2) = 2.4, mean 2.3. One ratio of both,
    # 1.1 * 2 = 2.2, would be clipped to 1.2: 2.4.
    loss, gradient = loss_of([[1.1, 2.0]], [[2.0]])
    assert loss.item() == pytest.approx(-2.3)
    torch.testing.assert_close(gradient, torch.tensor([[-1.1, 0.0]]))


def test_the_ratio_may_be_that_of_the_whole_action() -> None:
    # 1.5 * 0.6 = 0.9 is within 0.2 of 1, though neither factor is: A * 0.9 = 1.8, and either
    # log-probability has the whole gradient. 1.1 * 1.15 = 1.265 is not, though both factors are:
    # min(2 * 1.265, 2 * 1.2) = 2.4. The mean is 2.1.
    loss, gradient = loss_of([[1.5, 0.6], [1.1, 1.15]], [[2.0], [2.0]], joint=True)
    assert loss.item() == pytest.approx(-2.1)
    torch.testing.assert_close(gradient, torch.tensor([[-0.9, -0.9], [0.0, 0.0]]))


def test_an_action_of_one_component_is_whole() -> None:
    ratios, advantages = [[1.5], [0.9], [0.5]], [[1.0], [2.0], [-1.0]]
    for whole, own in zip(
        loss_of(ratios, advantages, joint=True), loss_of(ratios, advantages), strict=True
    ):
        torch.testing.assert_close(whole, own)


def test_before_the_first_step_it_is_the_policy_gradient() -> None:
    # All ratios are 1: the loss is minus the mean advantage, the gradient -A / 3.
    loss, gradient = loss_of([[1.0], [1.0], [1.0]], [[3.0], [-1.5], [0.0]])
    assert loss.item() == pytest.approx(-0.5)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0], [0.5], [0.0]]))


def test_clipped_value_loss_by_hand() -> None:
    # Old value 1, epsilon 0.2, so the clipped value is within [0.8, 1.2].
    # V 1.1, R 3: within; (1.1 - 3)² = 3.61 both ways.      d/dV = 2 (1.1 - 3) = -3.8
    # V 2.0, R 3: max((2 - 3)², (1.2 - 3)²) = 3.24.          has moved far enough: no gradient
    # V 2.0, R 1: max((2 - 1)², (1.2 - 1)²) = 1.             moved away: d/dV = 2 (2 - 1) = 2
    # V 0.5, R 0: max((0.5 - 0)², (0.8 - 0)²) = 0.64.        no gradient
    # loss = (3.61 + 3.24 + 1 + 0.64) / 4 = 2.1225; the gradient is divided by 4 likewise.
    values = torch.tensor([[1.1], [2.0], [2.0], [0.5]], requires_grad=True)
    returns = torch.tensor([[3.0], [3.0], [1.0], [0.0]])
    loss = clipped_value_loss(values, torch.ones(4, 1), returns, epsilon=0.2)
    (gradient,) = torch.autograd.grad(loss, values)
    assert loss.item() == pytest.approx(2.1225)
    torch.testing.assert_close(gradient, torch.tensor([[-0.95], [0.0], [0.5], [0.0]]))


@pytest.mark.parametrize(
    ("n_continuous", "joint", "wanted"),
    [
        # Means over the two rows: 2, 5 and 3.
        (2, False, (2.0 + 5.0) / 2 + 3.0),
        (2, True, 2.0 + 5.0 + 3.0),
        (3, False, (2.0 + 5.0 + 3.0) / 3),
        (3, True, 2.0 + 5.0 + 3.0),
        (0, False, 2.0 + 5.0 + 3.0),
        (0, True, 2.0 + 5.0 + 3.0),
    ],
)
def test_mean_entropy_by_hand(n_continuous: int, joint: bool, wanted: float) -> None:
    entropies = torch.tensor([[1.0, 4.0, 0.0], [3.0, 6.0, 6.0]])
    found = mean_entropy(entropies, n_continuous=n_continuous, joint=joint)
    assert found.item() == pytest.approx(wanted)
