"""Conversion of specifications to Gymnasium spaces, and of values between the two.

Letters in shapes: N agents, A continuous actions, K discrete branches.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BoolArray,
    ObservationSpec,
    as_8_bit,
    as_floats,
)
from mlagents_envs.exception import UnityActionException, UnityException

Space = spaces.Space[Any]


class UnityGymException(UnityException, gymnasium.error.Error):
    """An environment does not fit the wrapper, or a method was called at the wrong time."""


def is_image(spec: ObservationSpec) -> bool:
    """Return whether the observation is an image, (channels, height, width)."""
    return len(spec.shape) == 3


def observation_space(spec: ObservationSpec, *, uint8_visual: bool = False) -> spaces.Box:
    """Return the space of one observation: [0, 1] for an image, otherwise unbounded.

    Args:
        spec: Specification of the observation.
        uint8_visual: Whether images are uint8, 0 to 255.
    """
    if not is_image(spec):
        return spaces.Box(-np.inf, np.inf, spec.shape, np.float32)
    if uint8_visual:
        return spaces.Box(0, 255, spec.shape, np.uint8)
    return spaces.Box(0.0, 1.0, spec.shape, np.float32)


def action_space(spec: ActionSpec) -> Space:
    """Return the space of one agent's actions.

    Continuous actions are a `Box` of [-1, 1], one branch is `Discrete`, several are
    `MultiDiscrete`. Both kinds together are a `Dict` of `continuous` and `discrete`, where
    `discrete` is always `MultiDiscrete`.

    Raises:
        UnityGymException: The behavior has no actions.
    """
    continuous = spaces.Box(-1.0, 1.0, (spec.continuous_size,), np.float32)
    branches = list(spec.discrete_branches)
    if spec.continuous_size and branches:
        return spaces.Dict({"continuous": continuous, "discrete": spaces.MultiDiscrete(branches)})
    if spec.continuous_size:
        return continuous
    if not branches:
        raise UnityGymException("the behavior has no actions; the wrapper needs at least one")
    return spaces.Discrete(branches[0]) if len(branches) == 1 else spaces.MultiDiscrete(branches)


class ActionFlattener:
    """Converter of several discrete branches to a single one of all their combinations.

    Args:
        branched_action_space: Size of each branch. The last branch varies fastest.

    Attributes:
        action_space: Space of all combinations.
        table: (combinations, K) chosen action of each branch, by combination.
        action_lookup: Rows of `table` as lists, by combination.
    """

    def __init__(self, branched_action_space: Sequence[int]) -> None:
        sizes = tuple(int(size) for size in branched_action_space)
        self.action_space = spaces.Discrete(math.prod(sizes))
        self.table = np.stack(
            np.unravel_index(np.arange(math.prod(sizes)), sizes), axis=1, dtype=np.int32
        )
        self.action_lookup: dict[int, list[int]] = dict(enumerate(self.table.tolist()))

    def lookup_action(self, action: int) -> list[int]:
        """Return the chosen action of each branch for a combination."""
        return self.action_lookup[int(action)]


class ActionLayout:
    """Layout of a behavior's actions in Gymnasium.

    Args:
        spec: Specification of the actions.
        flatten_branched: Whether `ActionFlattener` converts several discrete branches to one.

    Attributes:
        space: Action space of one agent.
        n_choices: Number of columns of an action mask: the discrete actions of all branches.
        flattener: Converter of flattened branches; None if branches are not flattened.

    Raises:
        UnityGymException: The behavior has no actions.
    """

    def __init__(self, spec: ActionSpec, *, flatten_branched: bool = False) -> None:
        self._spec = spec
        self.flattener: ActionFlattener | None = None
        self.space = action_space(spec)
        if flatten_branched and spec.is_discrete() and spec.discrete_size > 1:
            self.flattener = ActionFlattener(spec.discrete_branches)
            self.space = self.flattener.action_space
        self.n_choices = (
            sum(spec.discrete_branches) if self.flattener is None else len(self.flattener.table)
        )

    def decode(self, actions: Any) -> ActionTuple:
        """Convert Gymnasium's batch of actions of N agents to an `ActionTuple`.

        Raises:
            UnityActionException: The actions have a wrong type or structure. Their number is not
                checked.
        """
        try:
            return self._decode(actions)
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise UnityActionException(
                f"expected a batch of actions of the space {self.space}, got {actions!r}"
            ) from error

    def decode_one(self, action: Any) -> ActionTuple:
        """Convert the action of one agent to an `ActionTuple` of one row.

        Raises:
            UnityActionException: The action is not in this space.
        """
        row = None
        is_dict = isinstance(action, Mapping)
        if is_dict == isinstance(self.space, spaces.Dict):
            with suppress(TypeError, ValueError, KeyError, IndexError):
                row = self._decode(
                    {kind: np.asarray(part)[None] for kind, part in action.items()}
                    if is_dict
                    else np.asarray(action)[None]
                )
        if (
            row is None
            or row.continuous.shape != (1, self._spec.continuous_size)
            or row.discrete.shape != (1, self._spec.discrete_size)
        ):
            raise UnityActionException(
                f"expected an action of the space {self.space}, got {action!r}"
            )
        return row

    def _decode(self, actions: Any) -> ActionTuple:
        if self._spec.is_continuous():
            return ActionTuple(continuous=np.asarray(actions, np.float32))
        if not self._spec.is_discrete():
            return ActionTuple(actions["continuous"], actions["discrete"])
        discrete = np.asarray(actions)
        if self.flattener is not None:
            discrete = self.flattener.table[discrete]
        return ActionTuple(discrete=discrete[:, None] if discrete.ndim == 1 else discrete)

    def allowed(self, masks: list[BoolArray]) -> BoolArray:
        """Convert the masks of a `DecisionSteps` to (N, n_choices), True where allowed."""
        if self.flattener is None:
            return ~np.concatenate(masks, axis=1)
        table = self.flattener.table
        allowed = np.ones((len(masks[0]), self.n_choices), np.bool_)
        for branch, mask in enumerate(masks):
            allowed &= ~mask[:, table[:, branch]]
        return allowed

    def mask_to_sample(self, masks: list[BoolArray]) -> Any:
        """Convert the masks of one agent to the mask of `space.sample(mask)`, 1 where allowed."""
        if isinstance(self.space, spaces.Discrete):
            return self.allowed(masks)[0].astype(np.int8)
        by_branch = tuple((~mask[0]).astype(np.int8) for mask in masks)
        if isinstance(self.space, spaces.Dict):
            return {"continuous": None, "discrete": by_branch}
        return by_branch


def observation_keys(specs: Sequence[ObservationSpec]) -> list[str]:
    """Return a unique key for each observation, usually its name.

    An observation without a name gets `obs_` and its index. If several have the same name, the
    first gets the name, the second the name with `_2`, and so on. A number is skipped if another
    observation already has the resulting name.
    """
    names = [spec.name or f"obs_{index}" for index, spec in enumerate(specs)]
    keys: list[str] = []
    for name in names:
        key, number = name, 2
        while key in keys or (key != name and key in names):
            key, number = f"{name}_{number}", number + 1
        keys.append(key)
    return keys


ObservationStyle = Literal["first", "tuple", "dict", "flat"]


class ObservationLayout:
    """Layout of a behavior's observations in Gymnasium.

    | style | observation of an agent |
    |---|---|
    | `first` | the first image if there is one, else all vectors, concatenated |
    | `tuple` | all images, all matrices, then all vectors, concatenated |
    | `dict` | all observations by `observation_keys`; if there is only one, the array itself |
    | `flat` | all observations, flattened and concatenated |

    Args:
        specs: Specifications of the observations.
        style: Style of the table above.
        uint8_visual: Whether images are uint8, 0 to 255.

    Attributes:
        space: Observation space of one agent.
        part_spaces: Spaces of the arrays that make up an observation.
        left_out: Keys of the observations that the style omits.

    Raises:
        UnityGymException: The behavior has no observations.
    """

    def __init__(
        self, specs: Sequence[ObservationSpec], style: ObservationStyle, *, uint8_visual: bool
    ) -> None:
        if not specs:
            raise UnityGymException("the behavior has no observations")
        self._specs = list(specs)
        self._keys = observation_keys(specs)
        self._style = style
        self._uint8_visual = uint8_visual and style != "flat"
        self._parts = self._choose_parts()
        shown = {index for part in self._parts for index in part}
        self.left_out = [key for index, key in enumerate(self._keys) if index not in shown]
        self.part_spaces = [self._space_of_part(part) for part in self._parts]
        self.space = self._space()

    def _choose_parts(self) -> list[list[int]]:
        """Return the indices of the observations in each part, which are concatenated."""
        by_rank: dict[int, list[int]] = {}
        for index, spec in enumerate(self._specs):
            by_rank.setdefault(len(spec.shape), []).append(index)
        vectors = by_rank.pop(1, [])
        others = [index for rank in sorted(by_rank, reverse=True) for index in by_rank[rank]]
        if self._style == "flat":
            return [list(range(len(self._specs)))]
        if self._style == "dict":
            return [[index] for index in range(len(self._specs))]
        if self._style == "tuple":
            return [[index] for index in others] + ([vectors] if vectors else [])
        images = by_rank.get(3)
        return [images[:1] if images else vectors or others[:1]]

    def _space(self) -> Space:
        structure = self.assemble(self.part_spaces)
        if isinstance(structure, tuple):
            return spaces.Tuple(structure)
        return spaces.Dict(structure) if isinstance(structure, dict) else structure

    def _space_of_part(self, part: list[int]) -> spaces.Box:
        if len(part) == 1 and self._style != "flat":
            return observation_space(self._specs[part[0]], uint8_visual=self._uint8_visual)
        size = sum(math.prod(self._specs[index].shape) for index in part)
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def encode(self, obs: Sequence[NDArray[Any]]) -> Any:
        """Return a copy of observations, (N, *shape), or (*shape) for one agent, in the layout."""
        return self.assemble([part.copy() for part in self.encode_parts(obs)])

    def encode_parts(self, obs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the arrays that make up the observation, and copy them only if necessary."""
        return [self._encode_part(part, obs) for part in self._parts]

    def assemble(self, parts: Sequence[Any]) -> Any:
        """Assemble the parts of an observation, which may be arrays or spaces."""
        if self._style == "tuple":
            return tuple(parts)
        if len(parts) == 1:
            return parts[0]
        return dict(zip(self._keys, parts, strict=True))

    def _encode_part(self, part: list[int], obs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        if len(part) == 1 and self._style != "flat":
            spec, array = self._specs[part[0]], obs[part[0]]
            return self._encode_image(array) if is_image(spec) else array
        flat = []
        for index in part:
            shape = self._specs[index].shape
            array = as_floats(obs[index])
            flat.append(array.reshape(*array.shape[: array.ndim - len(shape)], math.prod(shape)))
        return np.concatenate(flat, axis=-1)

    def _encode_image(self, image: NDArray[Any]) -> NDArray[Any]:
        return as_8_bit(image) if self._uint8_visual else as_floats(image)
