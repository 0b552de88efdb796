"""Device and threads of torch. They are set when a run starts, never on import."""

import torch
from threadpoolctl import threadpool_limits
from torch import nn

from mlagents_envs.cpus import n_cpus

__all__ = ["choose_device", "default_device", "nn", "set_threads", "torch"]


def choose_device(name: str | None) -> torch.device:
    """Return the device `name`; without a name, a GPU if available, otherwise the CPU.

    Raises:
        ValueError: The device does not exist on this machine.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"torch device {name!r} cannot be used: {error}") from error
    return device


def default_device() -> torch.device:
    """Return the device that a run takes unless `--torch-device` names another."""
    return choose_device(None)


def set_threads(threads: int | None = None, *, n_learners: int = 1) -> None:
    """Set the number of threads of torch; by default, half of the CPUs of this process.

    Several learners of a machine divide the CPUs among themselves.

    The default is at least one and at most four, because small networks gain nothing from more and
    simulations need the other CPUs. NumPy's linear algebra, which acting uses, gets one thread: its
    threads spin while they wait, which makes acting up to eight times slower beside simulations.
    """
    torch.set_num_threads(threads or max(1, min(4, n_cpus() // n_learners // 2)))
    threadpool_limits(1, user_api="blas")
