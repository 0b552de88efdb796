"""The optimizer does what torch's own does, and is saved as it is."""

import copy

import pytest
import torch
from torch import Tensor, nn

from mlagents.torch_utils import Adam


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


def take_steps(optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        held = optimizer.param_groups[0]["params"]
        assert all(parameter.grad is None for parameter in held)
        for parameter, gradient in zip(held, gradients(step), strict=True):
            parameter.grad = gradient
        optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
        optimizer.step()


def assert_same_state(found: torch.optim.Optimizer, wanted: torch.optim.Optimizer) -> None:
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
    def make(held: list[nn.Parameter], is_torch: bool) -> torch.optim.Optimizer:
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
    Adam(held, 0.01).step()
    assert all(torch.equal(a, b) for a, b in zip(held, parameters(), strict=True))
