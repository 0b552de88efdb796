"""The Adam optimizer and gradient step used by all algorithms."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.torch_internals import fused_adam
from mlagents.trainers.sharding import ALONE, Shards

Moments = Mapping[nn.Parameter, tuple[Tensor, Tensor]]
"""Running mean of the gradient and of its square, for each parameter."""

BETAS = 0.9, 0.999
EPSILON = 1e-8


@runtime_checkable
class Optimizer(Protocol):
    """Interface of an optimizer. The optimizers of torch satisfy it."""

    param_groups: list[dict[str, Any]]

    def step(self) -> None:
        """Take a step with the gradients already computed."""

    def zero_grad(self) -> None:
        """Clear all gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` restores."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


class Adam:
    """Adam (arXiv:1412.6980) in one call for all parameters.

    The steps equal those of `torch.optim.Adam`, and each class can load the other's state. For
    small networks, the bookkeeping of `torch.optim.Adam` takes longer than the arithmetic. Its
    first use also imports PyTorch's compiler, which adds one second to startup.

    Args:
        parameters: Parameters to train, all on one device that supports the fused form.
        learning_rate: Initial learning rate. It can be changed later in `param_groups`.

    Attributes:
        param_groups: One group, with "params" and "lr".
    """

    def __init__(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> None:
        self._held = list(parameters)
        self.param_groups: list[dict[str, Any]] = [{"params": self._held, "lr": learning_rate}]
        self._state: dict[int, dict[str, Tensor]] = {}
        """State by parameter index, for parameters that have had a gradient."""
        self._learns: list[bool] | None = None
        """Which parameters had gradients when the following lists were gathered."""
        self._parameters: list[Tensor] = []
        self._means: list[Tensor] = []
        self._squares: list[Tensor] = []
        self._moments: Moments = {}
        self._steps = torch.zeros(0)
        """Number of steps taken, for each parameter."""
        self._step_of_each: tuple[Tensor, ...] = ()
        """Views of `_steps`, one for each parameter, as the state holds them."""

    @torch.no_grad()
    def step(self) -> None:
        """Take a step with the gradients already computed."""
        learns = [parameter.grad is not None for parameter in self._held]
        if learns != self._learns:
            self._gather(learns)
        if not self._parameters:
            return
        self._steps += 1
        fused_adam(
            self._parameters,
            [p.grad for p in self._parameters if p.grad is not None],
            self._means,
            self._squares,
            self._step_of_each,
            learning_rate=self.param_groups[0]["lr"],
            betas=BETAS,
            epsilon=EPSILON,
        )

    def moments(self) -> tuple[Moments, int]:
        """Return the moments of all parameters and their step count, for other code to step.

        That code changes the moments in place and then calls `advance`. The returned mapping is the
        same object until another state is loaded or a parameter has no gradient.

        Raises:
            ValueError: Parameters have taken different numbers of steps.
        """
        learns = [True] * len(self._held)
        if learns != self._learns:
            self._gather(learns)
        n_steps = set(self._steps.tolist())
        if len(n_steps) > 1:
            raise ValueError(f"parameters have taken different numbers of steps: {n_steps}")
        return self._moments, int(n_steps.pop())

    def advance(self, n_steps: int) -> None:
        """Count steps that other code took with `moments`."""
        self._steps += n_steps

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for parameter in self._held:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state that `load_state_dict` restores, here or in `torch.optim.Adam`."""
        group = {
            "lr": self.param_groups[0]["lr"],
            "betas": BETAS,
            "eps": EPSILON,
            "weight_decay": 0.0,
            "fused": True,
            "params": list(range(len(self._held))),
        }
        state = {index: dict(of_one) for index, of_one in sorted(self._state.items())}
        return {"state": state, "param_groups": [group]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned, here or in `torch.optim.Adam`.

        Raises:
            ValueError: The number of saved parameters differs.
        """
        (saved,) = state_dict["param_groups"]
        if len(saved["params"]) != len(self._held):
            raise ValueError(
                f"the saved optimizer has {len(saved['params'])} parameters, expected "
                f"{len(self._held)}"
            )
        self.param_groups[0]["lr"] = saved["lr"]
        self._state = {
            index: {
                name: value.to(
                    self._held[index].device, copy=True, memory_format=torch.contiguous_format
                )
                for name, value in of_one.items()
            }
            for index, of_one in state_dict["state"].items()
        }
        self._learns = None

    def _gather(self, learns: list[bool]) -> None:
        self._learns = learns
        self._parameters = list(itertools.compress(self._held, learns))
        states = []
        for index in itertools.compress(range(len(learns)), learns):
            parameter = self._held[index].detach()
            states.append(
                self._state.setdefault(
                    index,
                    {
                        "step": torch.zeros((), device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    },
                )
            )
        self._means = [state["exp_avg"] for state in states]
        self._squares = [state["exp_avg_sq"] for state in states]
        self._steps = torch.stack([state["step"] for state in states]) if states else torch.zeros(0)
        self._step_of_each = self._steps.unbind()
        for state, step in zip(states, self._step_of_each, strict=True):
            state["step"] = step
        each = zip(itertools.compress(self._held, learns), self._means, self._squares, strict=True)
        self._moments = {parameter: (mean, square) for parameter, mean, square in each}


def adam(parameters: Iterable[nn.Parameter], learning_rate: float) -> Optimizer:
    """Return the fastest Adam optimizer that the parameters' device supports."""
    held = list(parameters)
    if all(parameter.device.type in ("cpu", "cuda") for parameter in held):
        return Adam(held, learning_rate)
    return torch.optim.Adam(held, lr=learning_rate)


def descend(
    loss: Tensor,
    optimizer: Optimizer,
    *parts: Iterable[nn.Parameter],
    max_norm: float | None = None,
    shards: Shards = ALONE,
    n_rows: int = 1,
) -> None:
    """Take one gradient step down a scalar loss.

    Args:
        loss: Scalar loss to differentiate, a mean over rows.
        optimizer: Optimizer of all parameters to train.
        *parts: Groups of parameters. The gradient of each group is clipped separately.
        max_norm: Largest gradient norm of a group, or None for no limit.
        shards: Communication with the other learners. They take one step together, down the mean
            loss over the rows of all.
        n_rows: Number of rows in the loss: the weight of this learner's gradient.
    """
    optimizer.zero_grad()
    loss.backward()
    take_step(optimizer, *parts, max_norm=max_norm, shards=shards, n_rows=n_rows)


def take_step(
    optimizer: Optimizer,
    *parts: Iterable[nn.Parameter],
    max_norm: float | None = None,
    shards: Shards = ALONE,
    n_rows: int = 1,
) -> None:
    """Take one step with the gradients already computed; arguments as in `descend`."""
    shards.average_gradients(optimizer.param_groups, n_rows)
    if max_norm is not None:
        for part in parts:
            nn.utils.clip_grad_norm_(part, max_norm)
    optimizer.step()
