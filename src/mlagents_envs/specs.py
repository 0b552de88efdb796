"""Specifications of what a behavior observes and does, and `ActionTuple`, what it does."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, IntFlag
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.folder_names import folder_name_problem

AgentId = int
GroupId = int
BehaviorName = str

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


class BehaviorId(NamedTuple):
    """A behavior as the simulation names it, taken apart.

    Attributes:
        name: What the settings call it, for example `3DBall`.
        team: The team that plays it, 0 unless the simulation says otherwise.
    """

    name: str
    team: int

    @staticmethod
    def parse(full_name: BehaviorName) -> "BehaviorId":
        """Take `<name>?team=<id>` apart; a name without a team belongs to team 0."""
        found = _WITH_TEAM.fullmatch(full_name)
        return BehaviorId(found[1], int(found[2])) if found else BehaviorId(full_name, 0)


_WITH_TEAM = re.compile(r"(.*)\?team=(-?[0-9]{1,10})", re.DOTALL)


def behavior_name_problem(behavior: BehaviorName) -> str:
    """Say why files cannot be saved under a behavior's name; empty if they can."""
    name = BehaviorId.parse(behavior).name
    if "?" in name:
        return "a question mark may only begin `?team=` and a number of at most ten digits"
    return folder_name_problem(name)


def check_behavior_name(behavior: BehaviorName) -> None:
    """Raise if files cannot be saved under a behavior's name.

    Everything that takes in behaviors from outside calls this first, once for each of them.

    Raises:
        UnityEnvironmentException: The name leads to another folder, is malformed or too long.
    """
    if problem := behavior_name_problem(behavior):
        raise UnityEnvironmentException(
            f"a behavior is named {behavior[:80]!r}{' ...' if len(behavior) > 80 else ''}: "
            f"{problem}. Files are saved under this name. Change the Behavior Name in the "
            "simulation."
        )


def is_named(behavior: BehaviorName, name: str) -> bool:
    """Whether a person who says `name`, with or without a team, means this behavior."""
    return name in (behavior, BehaviorId.parse(behavior).name)


class DimensionProperty(IntFlag):
    """What may be assumed of one axis of an observation."""

    UNSPECIFIED = 0
    """The simulation says nothing."""
    NONE = 1
    """Every entry has its own meaning; there is no structure."""
    TRANSLATIONAL_EQUIVARIANCE = 2
    """Neighbours are alike, as in the rows and columns of an image."""
    VARIABLE_SIZE = 4
    """A number of entities that varies; unused rows are zero."""


class ObservationType(Enum):
    """What an observation is for."""

    DEFAULT = 0
    GOAL_SIGNAL = 1


class ObservationSpec(NamedTuple):
    """What one observation looks like; agreed once, before the first step.

    Attributes:
        shape: Axes for a single agent. Images are (channels, height, width).
        dimension_property: One flag per axis of `shape`.
        observation_type: Whether the observation is the goal to reach.
        name: The sensor's name, unique within its behavior.
        dtype: float32, or uint8 for images of 8 bit, whose 255 is the 1.0 of others.
    """

    shape: tuple[int, ...]
    dimension_property: tuple[DimensionProperty, ...]
    observation_type: ObservationType
    name: str
    dtype: np.dtype[Any] = np.dtype(np.float32)

    @staticmethod
    def vector(size: int, name: str) -> "ObservationSpec":
        """Describe a plain vector of `size` numbers."""
        return ObservationSpec((size,), (DimensionProperty.NONE,), ObservationType.DEFAULT, name)

    @staticmethod
    def image(
        shape: tuple[int, int, int], name: str, dtype: DTypeLike = np.uint8
    ) -> "ObservationSpec":
        """Describe an image, or a grid of planes, of (channels, height, width)."""
        alike = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
        axes = (DimensionProperty.NONE, alike, alike)
        return ObservationSpec(shape, axes, ObservationType.DEFAULT, name, np.dtype(dtype))


class ActionTuple:
    """Actions of N agents of one behavior: a continuous part, a discrete part, or both.

    Args:
        continuous: (N, A); cast to float32.
        discrete: (N, K), the chosen index of every branch; cast to int32.

    Setting one part alone makes the other an (N, 0) array. With neither, both are None until
    `add_continuous` or `add_discrete` is called.
    """

    __slots__ = ("_continuous", "_discrete")

    def __init__(
        self, continuous: NDArray[Any] | None = None, discrete: NDArray[Any] | None = None
    ) -> None:
        self._continuous: FloatArray | None = None
        self._discrete: IntArray | None = None
        if continuous is not None:
            self.add_continuous(continuous)
        if discrete is not None:
            self.add_discrete(discrete)

    @property
    def continuous(self) -> FloatArray:
        """(N, A) float32."""
        return self._continuous  # type: ignore[return-value]  # None only before either is set

    @property
    def discrete(self) -> IntArray:
        """(N, K) int32."""
        return self._discrete  # type: ignore[return-value]  # None only before either is set

    def add_continuous(self, continuous: NDArray[Any]) -> None:
        """Set the continuous part, (N, A)."""
        self._continuous = np.asarray(continuous, np.float32)
        if self._discrete is None:
            self._discrete = np.zeros((self._continuous.shape[0], 0), np.int32)

    def add_discrete(self, discrete: NDArray[Any]) -> None:
        """Set the discrete part, (N, K)."""
        self._discrete = np.asarray(discrete, np.int32)
        if self._continuous is None:
            self._continuous = np.zeros((self._discrete.shape[0], 0), np.float32)

    def __repr__(self) -> str:
        return f"ActionTuple(continuous={self._continuous!r}, discrete={self._discrete!r})"


class ActionSpec(NamedTuple):
    """What the agents of a behavior can do.

    Attributes:
        continuous_size: Number of continuous actions, A.
        discrete_branches: Number of choices in each of the K discrete branches.
    """

    continuous_size: int
    discrete_branches: tuple[int, ...]

    @staticmethod
    def create_continuous(continuous_size: int) -> "ActionSpec":
        """Make a specification of continuous actions alone."""
        return ActionSpec(continuous_size, ())

    @staticmethod
    def create_discrete(discrete_branches: tuple[int, ...]) -> "ActionSpec":
        """Make a specification of discrete actions alone."""
        return ActionSpec(0, tuple(discrete_branches))

    @staticmethod
    def create_hybrid(continuous_size: int, discrete_branches: tuple[int, ...]) -> "ActionSpec":
        """Make a specification of both kinds at once."""
        return ActionSpec(continuous_size, tuple(discrete_branches))

    @property
    def discrete_size(self) -> int:
        """Number of discrete branches, K."""
        return len(self.discrete_branches)

    def is_discrete(self) -> bool:
        """Whether every action is discrete."""
        return self.discrete_size > 0 and self.continuous_size == 0

    def is_continuous(self) -> bool:
        """Whether every action is continuous."""
        return self.discrete_size == 0 and self.continuous_size > 0

    def empty_action(self, n_agents: int) -> ActionTuple:
        """Make the action of all zeros for `n_agents`."""
        return ActionTuple(
            np.zeros((n_agents, self.continuous_size), np.float32),
            np.zeros((n_agents, self.discrete_size), np.int32),
        )

    def random_action(self, n_agents: int, rng: np.random.Generator | None = None) -> ActionTuple:
        """Draw actions: continuous from U[-1, 1), every branch uniformly.

        Args:
            n_agents: N.
            rng: Source of randomness; without it, NumPy's global generator as `np.random.seed`
                set it.
        """
        uniform = np.random.random if rng is None else rng.random
        continuous = uniform((n_agents, self.continuous_size)) * 2.0 - 1.0
        branches = np.array(self.discrete_branches, np.float64)
        discrete = np.floor(uniform((n_agents, self.discrete_size)) * branches)
        return ActionTuple(continuous, discrete)

    def check(self, action: ActionTuple, n_agents: int, *, behavior: BehaviorName) -> None:
        """Raise unless `action` has one row per agent and one column per action.

        Raises:
            UnityActionException: The shapes differ; the text has both.
        """
        wanted = (n_agents, self.continuous_size), (n_agents, self.discrete_size)
        for kind, part, shape in zip(
            ("continuous", "discrete"), (action.continuous, action.discrete), wanted, strict=True
        ):
            if part is None or part.shape != shape:
                raise UnityActionException(
                    f"behavior {behavior!r}: expected {kind} actions of shape {shape} (agents that "
                    f"asked for a decision, actions), got "
                    f"{'none' if part is None else part.shape}. Set one row per agent of "
                    f"get_steps({behavior!r})[0], in that order."
                )

    def __str__(self) -> str:
        return f"Continuous: {self.continuous_size}, Discrete: {self.discrete_branches}"


class BehaviorSpec(NamedTuple):
    """What the agents of a behavior see and do.

    Attributes:
        observation_specs: In the order of `DecisionSteps.obs`.
        action_spec: Their actions.
    """

    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec


class BehaviorMapping(Mapping[BehaviorName, BehaviorSpec]):
    """Read-only view of behavior specs by name; it grows as behaviors appear."""

    def __init__(self, specs: dict[BehaviorName, BehaviorSpec]) -> None:
        self._specs = specs

    def __len__(self) -> int:
        return len(self._specs)

    def __getitem__(self, behavior: BehaviorName) -> BehaviorSpec:
        return self._specs[behavior]

    def __iter__(self) -> Iterator[BehaviorName]:
        return iter(self._specs)

    def __repr__(self) -> str:
        return f"BehaviorMapping({self._specs!r})"
