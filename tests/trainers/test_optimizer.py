"""The optimizer does what torch's own does, and is saved as it is."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.optimizer import Adam, Optimizer, descend


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (4,), (2, 1, 3)]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def gradients(step: int) -> list[Tensor | None]:
    """Return one for every parameter; the second has none in every third step."""
    generator = torch.Generator().manual_seed(step)
    found: list[Tensor | None] = [
        torch.randn(parameter.shape, generator=generator) for parameter in parameters()
    ]
    if step % 3 == 0:
        found[1] = None
    return found


def take_steps(optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        held = optimizer.param_groups[0]["params"]
        assert all(parameter.grad is None for parameter in held)
        for parameter, gradient in zip(held, gradients(step), strict=True):
            parameter.grad = gradient
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
        optimizer.step()


def assert_same_state(found: Optimizer, wanted: Optimizer) -> None:
    found_state, wanted_state = found.state_dict()["state"], wanted.state_dict()["state"]
    assert found_state.keys() == wanted_state.keys()
    for index, of_one in wanted_state.items():
        for name, value in of_one.items():
            assert torch.equal(found_state[index][name], value), (index, name)


def test_steps_are_those_of_torch_bit_for_bit() -> None:
    ours, theirs = parameters(), parameters()
    adam, original = Adam(ours, 0.01), torch.optim.Adam(theirs, lr=0.01, fused=True)
    take_steps(adam, range(8))
    take_steps(original, range(8))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], parameters()[0])
    assert_same_state(adam, original)


@pytest.mark.parametrize("saved_by_torch", [False, True])
def test_what_either_saved_the_other_goes_on_from(saved_by_torch: bool) -> None:
    def make(held: list[nn.Parameter], is_torch: bool) -> Optimizer:
        return torch.optim.Adam(held, lr=0.01, fused=True) if is_torch else Adam(held, 0.01)

    held = parameters()
    straight = make(held, saved_by_torch)
    take_steps(straight, range(4))
    saved, resumed = copy.deepcopy(straight.state_dict()), copy.deepcopy(held)
    other = make(resumed, not saved_by_torch)
    take_steps(other, range(20, 22))  # what it did before is forgotten
    with torch.no_grad():
        for there, here in zip(resumed, held, strict=True):
            there.copy_(here)
    other.load_state_dict(saved)
    take_steps(straight, range(4, 8))
    take_steps(other, range(4, 8))
    assert all(torch.equal(a, b) for a, b in zip(held, resumed, strict=True))
    assert_same_state(other, straight)


def test_without_any_gradient_nothing_happens() -> None:
    held = parameters()
    optimizer = Adam(held, 0.01)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(held, parameters(), strict=True))
    take_steps(optimizer, range(2))
    before = copy.deepcopy(held)
    optimizer.zero_grad()
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


def test_the_state_of_another_number_of_parameters_is_refused() -> None:
    saved = Adam(parameters(), 0.01).state_dict()
    with pytest.raises(ValueError, match="saved optimizer has 3 parameters, expected 2"):
        Adam(parameters()[:2], 0.01).load_state_dict(saved)


def test_descend_clips_each_part_by_itself() -> None:
    # The gradient is (3, 4) of one part and (0, 0.5) of the other: norms 5 and 0.5, at most 1.
    one, other = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = Adam([one, other], 0.01)
    loss = 3 * one[0] + 4 * one[1] + 0.5 * other[1]
    descend(loss, optimizer, [one], [other], max_norm=1.0)
    torch.testing.assert_close(one.grad, torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(other.grad, torch.tensor([0.0, 0.5]))
    # The first step of Adam is as long as the learning rate, along the sign of the gradient.
    torch.testing.assert_close(one.detach(), torch.tensor([-0.01, -0.01]))


def test_descend_forgets_the_gradient_before() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = Adam([parameter], 0.01)
    for _ in range(2):
        descend(2 * parameter.sum(), optimizer)
        assert parameter.grad is not None and parameter.grad.item() == 2.0


def test_learning_does_not_wait_for_the_compiler_to_be_imported() -> None:
    program = """
import sys, torch
from mlagents.trainers.algorithms.optimizer import adam
weight = torch.nn.Parameter(torch.ones(2))
optimizer = adam([weight], 0.1)
weight.sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
assert weight.max() < 1
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
