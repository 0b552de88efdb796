"""Each undocumented function of PyTorch against a form that is documented."""

import pytest
import torch
from torch import Tensor, nn

from mlagents.trainers.fast import torch_internals


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_fused_adam_is_adam() -> None:
    ours, theirs = ([nn.Parameter(rows(3, 2)), nn.Parameter(rows(2, seed=1))] for _ in range(2))
    expected = torch.optim.Adam(theirs, lr=0.01, betas=(0.8, 0.9), eps=1e-6)
    means, squares = ([torch.zeros_like(p) for p in ours] for _ in range(2))
    steps = [torch.zeros(()) for _ in ours]
    for seed in range(3):
        for parameter in (*ours, *theirs):
            parameter.grad = rows(*parameter.shape, seed=seed)
        for step in steps:
            step += 1
        with torch.no_grad():
            torch_internals.fused_adam(
                ours,
                [p.grad for p in ours if p.grad is not None],
                means,
                squares,
                steps,
                learning_rate=0.01,
                betas=(0.8, 0.9),
                epsilon=1e-6,
            )
        expected.step()
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, wanted)


def test_versions_grow_with_changes_in_place() -> None:
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    before = torch_internals.versions(weights)
    assert torch_internals.versions(weights) == before
    nn.Module.load_state_dict(nn.ParameterList(weights), {"0": torch.ones(2), "1": torch.ones(2)})
    loaded = torch_internals.versions(weights)
    assert all(now > then for now, then in zip(loaded, before, strict=True))
    means, squares, gradients = ([torch.zeros(2)] for _ in range(3))
    with torch.no_grad():
        torch_internals.fused_adam(
            weights[:1],
            gradients,
            means,
            squares,
            [torch.ones(())],
            learning_rate=0.01,
            betas=(0.8, 0.9),
            epsilon=1e-6,
        )
    first, second = torch_internals.versions(weights)
    assert first > loaded[0] and second == loaded[1]
    assert all(version > 0 for version in torch_internals.versions([*means, *squares]))


def test_copy_each() -> None:
    targets = [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(3)]
    torch_internals.copy_each(targets, [torch.tensor([1.0, 2.0]), torch.ones(3)])
    torch.testing.assert_close(targets[0].float(), torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(targets[1], torch.ones(3))


def test_move_each() -> None:
    targets = [torch.zeros(2), torch.full((1,), 4.0)]
    torch_internals.move_each(targets, [torch.ones(2), torch.zeros(1)], 0.25)
    torch.testing.assert_close(targets[0], torch.full((2,), 0.25))
    torch.testing.assert_close(targets[1], torch.full((1,), 3.0))


def test_swish_and_its_gradient() -> None:
    x = rows(5, 3).requires_grad_()
    wanted = nn.functional.silu(x)
    gradient = rows(5, 3, seed=1)
    wanted.backward(gradient)
    found, by_x = torch.empty(5, 3), torch.empty(5, 3)
    torch_internals.swish(x.detach(), out=found)
    torch_internals.swish_backward(gradient, x.detach(), out=by_x)
    torch.testing.assert_close(found, wanted.detach())
    torch.testing.assert_close(by_x, x.grad)


def test_lstm_cell_is_one_step_of_an_lstm() -> None:
    lstm = nn.LSTM(3, 4, batch_first=True)
    x, hidden, cell = rows(5, 3), rows(5, 4, seed=1), rows(5, 4, seed=2)
    found = torch_internals.lstm_cell(x, (hidden, cell), list(lstm.parameters()))
    _, wanted = lstm(x[:, None], (hidden[None], cell[None]))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs[0])


def test_one_dnn_linear_is_a_linear_layer() -> None:
    linear = torch_internals.one_dnn_linear()
    if linear is None:
        pytest.skip("this build of PyTorch comes without oneDNN")
    x, weight, bias = rows(5, 3), rows(2, 3, seed=1), rows(2, seed=2)
    torch.testing.assert_close(
        linear(x, weight, bias, "none", [], ""), nn.functional.linear(x, weight, bias)
    )
