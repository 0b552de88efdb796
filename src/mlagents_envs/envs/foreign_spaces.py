"""Conversion of Gymnasium spaces and values to those of a `BaseEnv`, for adapters.

This is the inverse of `spaces.py`.

| space | observation | action |
|---|---|---|
| `Box`, three axes | image, channels first; uint8 becomes [0, 1] | continuous, as below |
| `Box`, otherwise | vector | continuous: [-1, 1], scaled to the limits if it has any |
| `Discrete` | one-hot vector | one branch |
| `MultiDiscrete` | one-hot vector | branches |
| `MultiBinary` | vector | branches of size 2 |
| `Dict`, `Tuple` | all of their parts | all of their parts |

The channel axis of an image is the smaller of its first and last axis.

Letters in shapes: N agents, A continuous actions, K discrete branches.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BoolArray,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.envs.spaces import Space, UnityGymException

Path = tuple[str | int, ...]
"""Path of keys from a nested space, or one of its values, to a part."""

Convert = Callable[[NDArray[Any]], NDArray[Any]]
"""Function that converts a batch of values."""


class ForeignObservations:
    """Converter of observations from a space to the arrays of a `BaseEnv`.

    Args:
        space: Observation space of one agent.

    Attributes:
        specs: Specifications of the parts of the space. Images of uint8 stay uint8.

    Raises:
        UnityGymException: The space, or a part of it, is not supported.
    """

    def __init__(self, space: Space) -> None:
        self._parts = list(_observed_parts(space))
        self.specs = [part.spec for part in self._parts]

    def encode(self, batch: Any, rows: NDArray[np.intp]) -> list[NDArray[Any]]:
        """Convert N rows of a vector environment's batch to one (N, *shape) array per part."""
        return [part.convert(_pick(batch, part.path)[rows]) for part in self._parts]

    def encode_each(self, observations: Sequence[Any]) -> list[NDArray[Any]]:
        """Convert the observations of N > 0 agents to one (N, *shape) array per part."""
        return [
            part.convert(np.stack([np.asarray(_pick(one, part.path)) for one in observations]))
            for part in self._parts
        ]


class ForeignActions:
    """Converter of actions from those of a `BaseEnv` to those of a space.

    Args:
        space: Action space of one agent.

    Attributes:
        spec: Specification of the actions.

    Raises:
        UnityGymException: The space, or a part of it, is not supported.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._parts = list(_acted_parts(space))
        self.spec = ActionSpec(
            sum(part.continuous_size for part in self._parts),
            tuple(size for part in self._parts for size in part.branches),
        )

    def decode(self, actions: ActionTuple) -> Any:
        """Return the actions of N agents as a batch for a vector environment."""
        return _nest(self._space, iter(self._decode_parts(actions)))

    def decode_each(self, actions: ActionTuple) -> list[Any]:
        """Return the actions of N agents as a list with one element per agent."""
        parts = self._decode_parts(actions)
        return [
            _nest(self._space, iter([part[row] for part in parts]))
            for row in range(len(actions.continuous))
        ]

    def masks(self, given: Sequence[Any]) -> list[BoolArray] | None:
        """Return masks in the format of `DecisionSteps`.

        Args:
            given: Mask of each of the N agents, 1 where an action is allowed: one array of all
                branches, a tuple of one array per branch, or None if all actions are allowed.

        Returns:
            One (N, size) array per branch, True where an action is not allowed; None without
            branches or agents. If a mask allows no action of a branch, all of them are allowed.
        """
        branches = self.spec.discrete_branches
        if not branches or not given:
            return None
        allowed = np.ones((len(given), sum(branches)), np.bool_)
        for row, mask in enumerate(given):
            if mask is not None:
                allowed[row] = np.concatenate(mask) if isinstance(mask, tuple) else mask
        masks = np.split(~allowed, np.cumsum(branches)[:-1], axis=1)
        return [mask & ~mask.all(axis=1, keepdims=True) for mask in masks]

    def _decode_parts(self, actions: ActionTuple) -> list[NDArray[Any]]:
        values = []
        continuous = discrete = 0
        for part in self._parts:
            if part.branches:
                stop = discrete + len(part.branches)
                values.append(part.convert(actions.discrete[:, discrete:stop]))
                discrete = stop
            else:
                stop = continuous + part.continuous_size
                values.append(part.convert(actions.continuous[:, continuous:stop]))
                continuous = stop
        return values


def _parts_of(space: Space) -> list[tuple[str | int, Space]] | None:
    """Return the parts of a nested space with their keys; None if the space is not nested."""
    if isinstance(space, spaces.Dict):
        return list(space.items())
    return list(enumerate(space)) if isinstance(space, spaces.Tuple) else None


def _pick(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _nest(space: Space, values: Iterator[Any]) -> Any:
    """Assemble the values of all parts, given in the order of `_acted_parts`."""
    if isinstance(space, spaces.Dict):
        return {key: _nest(part, values) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nest(part, values) for part in space)
    return next(values)


# Observations.


class _Observed(NamedTuple):
    path: Path
    spec: ObservationSpec
    convert: Convert
    """Function from (N, ...) values of the part to (N, *shape)."""


def _observed_parts(space: Space, path: Path = ()) -> Iterator[_Observed]:
    if (parts := _parts_of(space)) is not None:
        for key, part in parts:
            yield from _observed_parts(part, (*path, key))
        return
    name = ".".join(map(str, path)) or "observation"
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        yield _observed_image(space, path, name)
        return
    convert: Convert = _flat
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        size = math.prod(space.shape)
    elif isinstance(space, spaces.Discrete):
        size = int(space.n)
        convert = _one_hot([size], np.array([space.start]))
    elif isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.ravel().tolist()
        size, convert = sum(sizes), _one_hot(sizes, space.start.ravel())
    else:
        raise UnityGymException(
            f"observation {name!r}: {space} is not supported. Wrap the environment to get a Box, "
            "Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these."
        )
    yield _Observed(path, ObservationSpec.vector(size, name), convert)


def _observed_image(space: spaces.Box, path: Path, name: str) -> _Observed:
    first, second, third = space.shape
    is_channels_last = third <= first
    dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
    shape = (third, first, second) if is_channels_last else (first, second, third)

    def convert(batch: NDArray[Any]) -> NDArray[Any]:
        images = np.moveaxis(batch, -1, 1) if is_channels_last else batch
        return np.ascontiguousarray(images, dtype)

    return _Observed(path, ObservationSpec.image(shape, name, dtype), convert)


def _flat(batch: NDArray[Any]) -> FloatArray:
    return batch.reshape(len(batch), math.prod(batch.shape[1:])).astype(np.float32)


def _one_hot(sizes: Sequence[int], start: NDArray[Any]) -> Convert:
    """Return a function that converts (N, ...) choices to (N, sum of sizes) one-hot vectors."""
    offset = np.cumsum([0, *sizes[:-1]]) - start

    def convert(batch: NDArray[Any]) -> FloatArray:
        columns = batch.reshape(len(batch), len(sizes)) + offset
        encoded = np.zeros((len(batch), sum(sizes)), np.float32)
        np.put_along_axis(encoded, columns, 1.0, axis=1)
        return encoded

    return convert


# Actions.


class _Acted(NamedTuple):
    continuous_size: int
    branches: tuple[int, ...]
    convert: Convert
    """Function from (N, continuous_size) or (N, len(branches)) to (N, ...) values of the part."""


def _acted_parts(space: Space) -> Iterator[_Acted]:
    if (parts := _parts_of(space)) is not None:
        for _, part in parts:
            yield from _acted_parts(part)
    elif isinstance(space, spaces.Box):
        yield _Acted(math.prod(space.shape), (), _stretch(space))
    elif isinstance(space, spaces.Discrete):
        yield _Acted(0, (int(space.n),), _choose(space, space.start))
    elif isinstance(space, spaces.MultiDiscrete):
        yield _Acted(0, tuple(space.nvec.ravel().tolist()), _choose(space, space.start))
    elif isinstance(space, spaces.MultiBinary):
        yield _Acted(0, (2,) * math.prod(space.shape), _choose(space, np.int64(0)))
    else:
        raise UnityGymException(
            f"the action space {space} is not supported. Wrap the environment to get a Box, "
            "Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these."
        )


def _stretch(space: spaces.Box) -> Convert:
    """Return a function that scales [-1, 1] to the limits; unlimited actions stay unchanged."""
    low = space.low.ravel().astype(np.float64)
    high = space.high.ravel().astype(np.float64)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    bottom, top = np.where(is_bounded, low, -1.0), np.where(is_bounded, high, 1.0)
    middle, reach = (top + bottom) / 2, (top - bottom) / 2
    is_integer = np.issubdtype(space.dtype, np.integer)

    def convert(actions: NDArray[Any]) -> NDArray[Any]:
        values = np.clip(middle + reach * actions, low, high)
        if is_integer:
            values = np.round(values)
        return np.asarray(values, space.dtype).reshape(len(actions), *space.shape)

    return convert


def _choose(space: Space, start: NDArray[Any] | np.integer[Any]) -> Convert:
    """Return a function that shifts choices from 0 on to the values of the space."""
    shape = space.shape or ()

    def convert(choices: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(choices.reshape(len(choices), *shape) + start, space.dtype)

    return convert
