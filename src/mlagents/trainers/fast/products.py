"""Matrix products with the fastest library: MKL, oneDNN or OpenBLAS.

PyTorch multiplies float32 matrices with MKL. It also contains oneDNN, whose calls have more
overhead. For large products on an AMD EPYC with AVX-512, oneDNN takes less than half the time of
MKL. OpenBLAS, NumPy's library, is as fast as oneDNN and has the least overhead, but NumPy does not
compute gradients.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info
from torch import Tensor

from mlagents.trainers.fast.torch_internals import one_dnn_linear

LARGE = 2**21
"""Number of scalar multiplications above which oneDNN is faster."""

OF_NUMPY = torch.float32, torch.float64


@cache
def _one_dnn() -> Any:
    """Return oneDNN's x @ weight.T + bias, or None if it is not faster on this processor."""
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return one_dnn_linear() if has_avx512 else None


def is_large(x: Tensor, weight: Tensor) -> bool:
    """Return whether `product` is faster than torch's own matrix product.

    Args:
        x: (..., B, n_in) rows.
        weight: (..., n_in, n_out) matrix.
    """
    return (
        x.shape[-2] * weight.shape[-2] * weight.shape[-1] > LARGE
        and _one_dnn() is not None
        and x.device.type == "cpu"
        and x.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight + bias, computed by the faster library; twice differentiable.

    Args:
        x: (B, n_in) rows.
        weight: (n_in, n_out) matrix.
        bias: (n_out,) bias, or None.
    """
    if is_large(x, weight):
        return _Product.apply(x, weight, bias)
    return x @ weight if bias is None else torch.addmm(bias, x, weight)


def prepared_product(
    x: Tensor, weight: Tensor, out: Tensor, bias: Tensor | None = None
) -> Callable[[], object]:
    """Return a function that computes x @ weight + bias into `out` with the fastest library.

    Args:
        x: (B, n_in) rows. This and the other arrays may be views.
        weight: (n_in, n_out) matrix.
        out: (B, n_out) result.
        bias: (n_out,) bias, or None.
    """
    if bias is None and not out.is_contiguous() and out.t().is_contiguous():
        x, weight, out = weight.t(), x.t(), out.t()
    n_in, n_out = weight.shape
    is_cheap = len(x) * n_in * n_out <= LARGE
    # OpenBLAS is limited to one thread (see `torch_utils`) and is slow if n_in is 1.
    suits_numpy = is_cheap or (torch.get_num_threads() == 1 and _numpy_has_avx512())
    if x.device.type == "cpu" and x.dtype in OF_NUMPY and suits_numpy and n_in > 1:
        multiply = partial(np.matmul, x.numpy(), weight.numpy(), out=out.numpy())
        if bias is None:
            return multiply

        def multiply_and_add() -> None:
            multiply()
            out.add_(bias)

        return multiply_and_add
    # oneDNN is very slow for views of a subset of columns.
    if is_large(x, weight) and all(
        each.is_contiguous() or each.t().is_contiguous() for each in (x, weight)
    ):
        return lambda: out.copy_(_one_dnn()(x, weight.t(), bias, "none", [], ""))
    if bias is None:
        return partial(torch.mm, x, weight, out=out)
    return partial(torch.addmm, bias, x, weight, out=out)


@cache
def _numpy_has_avx512() -> bool:
    kernels = [each.get("architecture", "") for each in threadpool_info()]
    return not {"SkylakeX", "Cooperlake", "SapphireRapids"}.isdisjoint(kernels)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _one_dnn()(x, weight.t(), bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous()  # oneDNN is slow if rows are not adjacent
        by_x, by_weight, by_bias = ctx.needs_input_grad
        return (
            product(gradient, weight.t()) if by_x else None,
            product(x.t(), gradient) if by_weight else None,
            gradient.sum(0) if by_bias else None,
        )
