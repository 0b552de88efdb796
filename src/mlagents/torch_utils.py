"""Device, threads and optimizers of torch: set when a run starts, never on import."""

import itertools
import os
from collections.abc import Iterable
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor


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


def set_threads(threads: int | None = None) -> None:
    """Let torch use `threads` CPUs; without a number half of those this process may use.

    That is at least one and at most four: small networks gain nothing from more, and simulations
    need the other CPUs. NumPy's linear algebra, which acts, gets one: its threads spin while they
    wait for each other, which costs up to eightfold where simulations need the CPUs too.
    """
    available = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    torch.set_num_threads(threads or max(1, min(4, available // 2)))
    threadpool_limits(1, user_api="blas")


class Adam(torch.optim.Adam):
    """Adam in its fused form, for parameters that are all on one device.

    What a step needs is gathered once and not for every step, which for small networks takes longer
    than the arithmetic. What is saved, and what is computed, is as in `torch.optim.Adam`.

    Args:
        parameters: All on one device that has the fused form.
        learning_rate: May be changed later, in `param_groups[0]`.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float) -> None:
        super().__init__(parameters, lr=learning_rate, fused=True)
        self._learns: list[bool] | None = None
        """Which parameters had gradients when the following were gathered."""
        self._parameters: list[Tensor] = []
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []
        self._steps = torch.zeros(0)
        """How many steps each has taken; the state holds views of it."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # it takes no closure
        """Take a step by the gradients that are there."""
        (group,) = self.param_groups
        learns = [parameter.grad is not None for parameter in group["params"]]
        if learns != self._learns:
            self._gather(learns)
        if not self._parameters:
            return
        self._steps += 1
        beta1, beta2 = group["betas"]
        torch._fused_adam_(
            self._parameters,
            [p.grad for p in self._parameters if p.grad is not None],
            self._means,
            self._squares,
            [],
            self._steps.unbind(),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned, of this class or of `torch.optim.Adam`."""
        super().load_state_dict(state_dict)
        self._learns = None

    def _gather(self, learns: list[bool]) -> None:
        parameters = self.param_groups[0]["params"]
        self._learns = learns
        self._parameters = list(itertools.compress(parameters, learns))
        states = [self.state[parameter] for parameter in self._parameters]
        for parameter, state in zip(self._parameters, states, strict=True):
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        self._means = [state["exp_avg"] for state in states]
        self._squares = [state["exp_avg_sq"] for state in states]
        if states:
            self._steps = torch.stack([state["step"] for state in states])
        for state, step in zip(states, self._steps, strict=True):
            state["step"] = step


def adam(parameters: Iterable[torch.nn.Parameter], learning_rate: float) -> torch.optim.Adam:
    """Make an Adam optimizer, in its fastest form on the device of the parameters."""
    held = list(parameters)
    if all(parameter.device.type in ("cpu", "cuda") for parameter in held):
        return Adam(held, learning_rate)
    return torch.optim.Adam(held, lr=learning_rate)
