"""Products are the same whoever multiplies, and so are their gradients."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mlagents.trainers.fast import products
from mlagents.trainers.fast.products import is_large, prepared_product, product
from mlagents.trainers.networks.layers import linear
from mlagents.trainers.networks.twin_q import StackedLinear

needs_one_dnn = pytest.mark.skipif(
    products._one_dnn() is None, reason="this processor does as well without oneDNN"
)
ROWS, N_IN, N_OUT = 160, 130, 140


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(ROWS, N_IN), (N_IN, N_OUT), (N_OUT,)]
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)  # type: ignore[return-value]


def near(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted.double(), rtol=1e-4, atol=1e-3)


@needs_one_dnn
def test_a_large_product_and_its_gradients_are_those_of_float64() -> None:
    found = [tensor.requires_grad_() for tensor in inputs()]
    wanted = [tensor.double().requires_grad_() for tensor in inputs()]
    assert is_large(found[0], found[1])
    assert not is_large(wanted[0], wanted[1])
    outputs = []
    for x, weight, bias in (found, wanted):
        out = product(x, weight, bias)
        (out.square().sum() / ROWS).backward()
        outputs.append(out)
    near(*outputs)
    assert outputs[0].grad_fn is not None and "_Product" in outputs[0].grad_fn.name()
    for ours, theirs in zip(found, wanted, strict=True):
        near(ours.grad, theirs.grad)


@needs_one_dnn
def test_the_gradient_of_a_gradient_is_that_of_float64() -> None:
    # As in a penalty on the length of a gradient.
    found = []
    for tensors in (inputs(), [tensor.double() for tensor in inputs()]):
        x, weight, bias = (tensor.requires_grad_() for tensor in tensors)
        out = nn.functional.silu(product(x, weight, bias) / 10)
        (by_x,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        found.append(torch.autograd.grad(by_x.square().sum() / ROWS, [x, weight, bias]))
    for ours, theirs in zip(*found, strict=True):
        assert theirs.abs().max() > 1e-4
        near(ours, theirs)


@needs_one_dnn
def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    x, weight, bias = inputs()
    product(x.requires_grad_(), weight, bias).sum().backward()
    assert x.grad is not None and weight.grad is None


def test_layers_are_the_same_whatever_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, stacked = linear(N_IN, N_OUT), StackedLinear(N_IN, N_OUT)
    x = inputs()[0]
    both = torch.stack([x, 2 * x])

    def outputs() -> list[Tensor]:
        layer.zero_grad()
        stacked.zero_grad()
        out = [layer(x), stacked(both)]
        sum(o.square().mean() for o in out).backward()  # type: ignore[union-attr]
        gradients = [p.grad for p in (*layer.parameters(), *stacked.parameters())]
        return [*out, *gradients]

    fast = outputs()
    monkeypatch.setattr(products, "_one_dnn", lambda: None)
    for ours, theirs in zip(fast, outputs(), strict=True):
        near(ours, theirs)


@needs_one_dnn
def test_lower_precision_is_left_to_torch() -> None:
    x, weight, _ = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_large(x, weight)
        assert product(x, weight).dtype is torch.bfloat16


@pytest.mark.parametrize("numpy_has_avx512", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [3, ROWS])
@pytest.mark.parametrize("n_in", [1, N_IN])
@pytest.mark.parametrize("part", [False, True])
def test_a_prepared_product_is_of_what_its_matrices_hold_now(
    numpy_has_avx512: bool,
    dtype: torch.dtype,
    n_rows: int,
    n_in: int,
    part: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "_numpy_has_avx512", lambda: numpy_has_avx512)
    n_held = n_in + 2 if part else n_in  # columns of which n_in are multiplied
    x, weight = torch.zeros(n_rows, n_held, dtype=dtype), torch.zeros(n_in, N_OUT, dtype=dtype)
    out, turned = torch.zeros(n_rows, N_OUT, dtype=dtype), torch.zeros(N_OUT, n_rows, dtype=dtype)
    bias, biased = torch.ones(N_OUT, dtype=dtype), torch.zeros_like(out)
    there = prepared_product(x[:, :n_in], weight, out)
    there_and_more = prepared_product(x[:, :n_in], weight, biased, bias)
    turned_there = prepared_product(x[:, :n_in], weight, turned.t())
    back = prepared_product(out, weight.t(), x[:, :n_in])
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        for each in (x, weight):
            each.copy_(torch.randn(each.shape, generator=generator))
        there()
        there_and_more()
        turned_there()
        near(out, x[:, :n_in].double() @ weight.double())
        near(turned, out.t())
        near(biased, out + 1)
        beside = x[:, n_in:].clone()
        back()
        torch.testing.assert_close(
            x[:, :n_in].double(), out.double() @ weight.t().double(), rtol=1e-4, atol=1e-2
        )
        assert torch.equal(x[:, n_in:], beside)


def test_many_threads_share_what_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_numpy_has_avx512", lambda: True)
    x, weight, _ = inputs()
    out = torch.zeros(ROWS, N_OUT)

    def by_numpy(n_rows: int) -> bool:
        way = prepared_product(x[:n_rows], weight, out[:n_rows])
        return getattr(way, "func", None) is np.matmul

    assert by_numpy(ROWS)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert not by_numpy(ROWS)
    assert by_numpy(3)
