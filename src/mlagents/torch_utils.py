"""Device and threads of torch: set when a run starts, never on import."""

import torch
from threadpoolctl import threadpool_limits
from torch import nn

from mlagents_envs.cpus import n_cpus

__all__ = ["choose_device", "default_device", "nn", "set_threads", "torch"]


def choose_device(name: str | None) -> torch.device:
    """Return the device called `name`; without a name a GPU if there is one, else the CPU.

    Raises:
        ValueError: There is no such device on this machine.
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


def set_threads(threads: int | None = None) -> None:
    """Let torch use `threads` CPUs; without a number half of those this process may use.

    That is at least one and at most four: small networks gain nothing from more, and simulations
    need the other CPUs. NumPy's linear algebra, which acts, gets one: its threads spin while they
    wait for each other, which costs up to eightfold where simulations need the CPUs too.
    """
    torch.set_num_threads(threads or max(1, min(4, n_cpus() // 2)))
    threadpool_limits(1, user_api="blas")
