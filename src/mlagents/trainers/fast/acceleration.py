"""Optional acceleration of learning: lower precision, compilation, and SAC without autograd."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.fast.sac_by_hand import ByHand
from mlagents.trainers.networks.layers import MixedPrecision
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


@runtime_checkable
class Compilable(Protocol):
    """An algorithm whose losses are one deterministic function without side effects."""

    losses: Callable[..., Any]


def accelerate(algorithm: Algorithm, settings: TorchSettings, *, name: str) -> None:
    """Enable the acceleration that the settings request and the machine supports.

    Args:
        algorithm: Algorithm to accelerate, before its first update.
        settings: Settings with `mixed_precision` and `compile`.
        name: Name of the behavior, for log messages.
    """
    if settings.mixed_precision and _computes_in_bfloat16(algorithm.device):
        networks = [m for m in algorithm.modules().values() if isinstance(m, nn.Module)]
        for part in [part for network in networks for part in network.modules()]:
            if isinstance(part, MixedPrecision):
                part.precision = torch.bfloat16
    if settings.compile and isinstance(algorithm, Compilable):
        algorithm.losses = Compiled(algorithm.losses)
    elif isinstance(algorithm, SAC) and algorithm.actor.body.is_dense:
        algorithm.differentiate = ByHand(algorithm)
        logger.info(f"{name}: the gradients of SAC are computed without autograd.")


class Compiled:
    """Calls a function through `torch.compile`, or directly after compilation has failed.

    Args:
        function: Function to compile. It must have no side effects, because it is called again if
            compilation fails.
        backend: Backend of `torch.compile`.
    """

    def __init__(self, function: Callable[..., Any], *, backend: str = "inductor") -> None:
        self._function = function
        self._backend = backend
        self._call: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function. The first call includes compilation."""
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
