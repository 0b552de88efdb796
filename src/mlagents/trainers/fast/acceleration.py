"""Ways to learn faster that not every machine has: lower precision and a compiler."""

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
    """An algorithm whose losses are one function, without side effects and without chance."""

    losses: Callable[..., Any]


def accelerate(algorithm: Algorithm, settings: TorchSettings, *, name: str) -> None:
    """Let an algorithm learn in the ways that the settings ask for, as far as the machine can.

    Args:
        algorithm: The algorithm, before its first update.
        settings: `mixed_precision` and `compile`.
        name: Name of the behavior, for messages.
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
    """Calls a function through `torch.compile`; if that fails, says so once and does without.

    Args:
        function: Without side effects: what fails in the compiler is called again without it.
        backend: Of `torch.compile`.
    """

    def __init__(self, function: Callable[..., Any], *, backend: str = "inductor") -> None:
        self._function = function
        self._backend = backend
        self._call: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; the first call takes as long as compiling it does."""
        try:
            if self._call is None:
                self._call = torch.compile(self._function, backend=self._backend)
            return self._call(*arguments)
        except Exception as error:
            if self._call is self._function:
                raise
            result = self._function(*arguments)  # raises what compiling has no part in
            self._call = self._function
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            logger.warning(
                f"torch_settings.compile: {reason}. Learning goes on without compiling. PyTorch "
                "needs a C++ compiler, g++ or the one that the variable CXX names, and on a GPU "
                "Triton; or set torch_settings.compile to false."
            )
            return result


def _computes_in_bfloat16(device: torch.device) -> bool:
    if device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False):
        return True
    logger.warning(
        f"torch_settings.mixed_precision: {torch.cuda.get_device_name(device)} cannot compute in "
        "bfloat16; everything is computed in float32."
    )
    return False
