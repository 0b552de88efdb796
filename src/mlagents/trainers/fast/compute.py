"""`Compute`: the precision of learning, and whether its losses are compiled."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class Compute(NamedTuple):
    """Precision and compilation of networks and losses, passed to all code that learns.

    Weights, memory and outputs of networks are always float32, so losses and distributions keep
    full precision.

    Attributes:
        precision: Precision of matrix products and convolutions; None for the precision of the
            weights.
        compile: Whether losses are compiled.
        dense: Library for dense layers: `auto`, `native` or `torch`, as in `torch_settings`.
    """

    precision: torch.dtype | None = None
    compile: bool = False
    dense: str = "torch"

    @classmethod
    def of(cls, settings: TorchSettings, device: torch.device) -> Self:
        """Return the configuration that the settings request and the device supports."""
        is_low = settings.mixed_precision and _computes_in_bfloat16(device)
        return cls(torch.bfloat16 if is_low else None, settings.compile, settings.dense)

    def lowered(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context manager in which a network computes on `device`."""
        return (
            nullcontext() if self.precision is None else torch.autocast(device.type, self.precision)
        )

    def raised(self, x: Tensor) -> Tensor:
        """Convert a result of the context `lowered` to float32."""
        return x if self.precision is None else x.float()

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, compiled if requested. It must not have side effects."""
        return Compiled(function) if self.compile else function


PLAIN = Compute()
"""The precision of the weights, without compilation and without the native library."""


class Compiled:
    """Calls a function through `torch.compile`, or directly if compilation has failed.

    Args:
        function: Function to compile. It must not have side effects, because it is called again if
            compilation fails.
        backend: Backend of `torch.compile`.
    """

    def __init__(self, function: Callable[..., Any], *, backend: str = "inductor") -> None:
        self._function = function
        self._backend = backend
        self._call: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function. The first call also compiles it."""
        try:
            if self._call is None:
                self._call = torch.compile(self._function, backend=self._backend)
            return self._call(*arguments)
        except Exception as error:
            if self._call is self._function:
                raise
            result = self._function(*arguments)  # raises errors that compilation did not cause
            self._call = self._function
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            logger.warning(
                f"torch_settings.compile: {reason}. Learning continues without compilation. "
                "PyTorch needs a C++ compiler (g++, or the one in the variable CXX) and, on a GPU, "
                "Triton. Install them, or set torch_settings.compile to false."
            )
            return result


def _computes_in_bfloat16(device: torch.device) -> bool:
    if device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False):
        return True
    logger.warning(
        f"torch_settings.mixed_precision: {torch.cuda.get_device_name(device)} does not support "
        "bfloat16. All computation uses float32."
    )
    return False
