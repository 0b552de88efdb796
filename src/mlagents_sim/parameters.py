"""A world's environment parameters: numbers that are fixed or drawn at every read.

The distributions are those of Unity. Unity uses a .NET generator, so the same seed gives different
values here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.side_channel.environment_parameters_channel import (
    check_deviation,
    check_intervals,
)


class Sampler(Protocol):
    """A random source of values of a parameter."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Lowest and highest value that may be drawn; None if values are unbounded."""

    def draw(self, n: int) -> NDArray[np.float64]:
        """Return the next (n,) values."""


class Uniform:
    """The uniform distribution over a union of intervals.

    If all intervals have length 0, they are equally likely.

    Args:
        intervals: Pairs (lower, upper).
        seed: Seed of the sampler's own generator.

    Raises:
        UnityEnvironmentException: There is no interval, or one is not finite or does not ascend.
    """

    def __init__(self, intervals: Sequence[tuple[float, float]], seed: int) -> None:
        check_intervals(intervals)
        bounds = np.array(intervals, np.float64)  # (intervals, 2)
        self._lower, self._upper = bounds.T
        self.bounds: tuple[float, float] | None = float(bounds.min()), float(bounds.max())
        lengths = self._upper - self._lower
        weights = lengths if lengths.any() else np.ones_like(lengths)
        self._share = weights / weights.sum()
        self._rng = _generator(seed)

    def draw(self, n: int) -> NDArray[np.float64]:
        """Return the next (n,) values."""
        chosen = self._rng.choice(len(self._share), n, p=self._share)
        values: NDArray[np.float64] = self._rng.uniform(self._lower[chosen], self._upper[chosen])
        return values


class Gaussian:
    """The normal distribution.

    Args:
        mean: Mean of the values.
        st_dev: Standard deviation of the values.
        seed: Seed of the sampler's own generator.

    Raises:
        UnityEnvironmentException: A number is not finite, or the deviation is negative.
    """

    def __init__(self, mean: float, st_dev: float, seed: int) -> None:
        check_deviation(mean, st_dev)
        self.bounds: tuple[float, float] | None = None
        self._mean, self._st_dev = mean, st_dev
        self._rng = _generator(seed)

    def draw(self, n: int) -> NDArray[np.float64]:
        """Return the next (n,) values."""
        return self._rng.normal(self._mean, self._st_dev, n)


class Parameters(Mapping[str, float]):
    """Parameters by name. Reading a sampled parameter draws its next value.

    Values from a normal distribution are clipped to the range of the parameter.

    Args:
        defaults: Default values of all parameters.
        ranges: Lowest and highest value of parameters that have bounds.
    """

    def __init__(
        self,
        defaults: Mapping[str, float],
        ranges: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._sources: dict[str, float | Sampler] = dict(defaults)
        self._ranges = ranges or {}

    def draw(self, name: str, n: int) -> NDArray[np.float64]:
        """Return (n,) values: one for each of n agents or areas that begin an episode."""
        source = self._source(name)
        if not isinstance(source, float | int):
            return self._drawn(name, source, n)
        values = np.empty(n)
        values.fill(source)
        return values

    def set(self, name: str, source: float | Sampler) -> None:
        """Fix a parameter to a number, or draw its values from a sampler.

        Raises:
            UnityEnvironmentException: The number is not finite, or values are beyond the range of
                the parameter.
        """
        if isinstance(source, float | int) and not np.isfinite(source):
            raise UnityEnvironmentException(
                f"environment parameter {name!r} is {source}: expected a finite number"
            )
        bounds = (source, source) if isinstance(source, float | int) else source.bounds
        if name in self._ranges and bounds is not None:
            (low, high), (lowest, highest) = bounds, self._ranges[name]
            if low < lowest or high > highest:
                found = f"{low}" if low == high else f"drawn from {low} to {high}"
                raise UnityEnvironmentException(
                    f"environment parameter {name!r} is {found}: expected at least {lowest:g} and "
                    f"at most {highest:g}"
                )
        self._sources[name] = source

    def __getitem__(self, name: str) -> float:
        source = self._source(name)
        return source if isinstance(source, float | int) else float(self._drawn(name, source, 1)[0])

    def _drawn(self, name: str, source: Sampler, n: int) -> NDArray[np.float64]:
        """Return the next (n,) values of a sampled parameter, within its range."""
        return np.clip(source.draw(n), *self._ranges.get(name, (-np.inf, np.inf)))

    def _source(self, name: str) -> float | Sampler:
        try:
            return self._sources[name]
        except KeyError:
            raise KeyError(
                f"there is no environment parameter {name!r}: default_parameters has "
                f"{sorted(self._sources) or 'none'}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed % 2**32)  # on the wire it may be negative
