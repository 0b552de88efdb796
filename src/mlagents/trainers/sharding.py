"""`Shards`: sums over the learners of a behavior. A single learner has nothing to sum.

Several learners hold equal copies of all networks, and each has its own experience. Together they
learn like one learner with all the experience: gradients and the statistics of observations and
advantages are means over the rows of all learners.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Shards:
    """A learner's rank, and its communication with the other learners.

    This base class serves a single learner. All learners of a behavior must call the methods that
    communicate in the same order.

    Attributes:
        rank: Index of this learner, from 0.
        size: Number of learners.
    """

    rank = 0
    size = 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies of networks only act, here or in another process: they have no learners to join.
        return _alone, ()

    def share(self, n: int) -> int:
        """Return this learner's share of n rows. The shares of all learners add up to n."""
        return n // self.size + (self.rank < n % self.size)

    def seed(self, *numbers: int) -> int:
        """Return a seed for this learner. Rank 0 gets the first number itself."""
        if self.rank == 0:
            return numbers[0]
        return int(np.random.SeedSequence([*numbers, self.rank]).generate_state(1)[0])

    def add(self, numbers: Tensor) -> None:
        """Replace numbers by their sum over all learners, in place. Communicates."""

    def least(self, n: int) -> int:
        """Return the smallest n among all learners. Communicates."""
        return n

    def most(self, n: int) -> int:
        """Return the largest n among all learners. Communicates."""
        return -self.least(-n)

    def sums(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of (n,) numbers over all learners. Communicates."""
        if self.size == 1:
            return numbers
        summed = torch.from_numpy(np.array(numbers, np.float64))
        self.add(summed)
        return summed.numpy()

    def mean(self, value: Tensor, n_rows: int) -> Tensor:
        """Return the mean over the rows of all learners. Communicates.

        Args:
            value: Mean over this learner's rows.
            n_rows: Number of this learner's rows.
        """
        if self.size == 1:
            return value
        total = torch.stack([value.detach() * n_rows, torch.full_like(value.detach(), n_rows)])
        self.add(total)
        return total[0] / total[1]

    def average_gradients(self, groups: Iterable[Mapping[str, Any]], n_rows: int) -> None:
        """Replace gradients by those of the mean loss over the rows of all learners. Communicates.

        Args:
            groups: Parameter groups of an optimizer, with the gradients of this learner's mean
                loss.
            n_rows: Number of rows of this learner's loss.
        """
        if self.size == 1:
            return
        parameters = [parameter for group in groups for parameter in group["params"]]
        # A parameter may have a gradient in only some of the learners.
        has = [float(parameter.grad is not None) for parameter in parameters]
        like = parameters[0].detach()
        counts = like.new_tensor([n_rows, *has])
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in parameters
        ]
        flat = torch.cat([gradient.detach().reshape(-1) for gradient in gradients]).mul_(n_rows)
        everything = torch.cat([counts, flat])
        self.add(everything)
        counts, flat = everything.split([len(counts), len(flat)])
        flat = flat / counts[0]
        parts = flat.split([parameter.numel() for parameter in parameters])
        is_any_missing = 0.0 in has
        for parameter, part, n_with in zip(
            parameters, parts, counts[1:].tolist() if is_any_missing else has, strict=True
        ):
            parameter.grad = part.view_as(parameter) if n_with else None


ALONE = Shards()
"""The only learner of a behavior."""


def _alone() -> Shards:
    return ALONE
