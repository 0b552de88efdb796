"""Specifications of the observations and actions of behaviors, and `ActionTuple`."""

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
    """Parts of a behavior's full name.

    Attributes:
        name: Name in the settings, for example `3DBall`.
        team: Number of the team; 0 if the full name does not contain one.
    """

    name: str
    team: int

    @staticmethod
    def parse(full_name: BehaviorName) -> "BehaviorId":
        """Parse `<name>?team=<id>`; without a team, the result has team 0."""
        found = _WITH_TEAM.fullmatch(full_name)
        return BehaviorId(found[1], int(found[2])) if found else BehaviorId(full_name, 0)


_WITH_TEAM = re.compile(r"(.*)\?team=(-?[0-9]{1,10})", re.DOTALL)


def behavior_name_problem(behavior: BehaviorName) -> str:
    """Return the reason why files cannot be saved under a behavior's name; empty if they can."""
    name = BehaviorId.parse(behavior).name
    if "?" in name:
        return "it may contain a question mark only in `?team=` before a number of up to ten digits"
    return folder_name_problem(name)


def check_behavior_name(behavior: BehaviorName) -> None:
    """Check that files can be saved under a behavior's name.

    Must be called once for every behavior whose name comes from a simulation or file.

    Raises:
        UnityEnvironmentException: The name refers to another folder, is malformed or too long.
    """
    if problem := behavior_name_problem(behavior):
        raise UnityEnvironmentException(
            f"a behavior is named {behavior[:80]!r}{' ...' if len(behavior) > 80 else ''}: "
            f"{problem}. Files are saved under this name. Change the Behavior Name in the "
            "simulation."
        )


def is_named(behavior: BehaviorName, name: str) -> bool:
    """Return whether `name`, with or without a team, refers to this behavior."""
    return name in (behavior, BehaviorId.parse(behavior).name)


class DimensionProperty(IntFlag):
    """Property of one axis of an observation."""

    UNSPECIFIED = 0
    """Not specified by the simulation."""
    NONE = 1
    """Unstructured axis: each index has its own meaning."""
    TRANSLATIONAL_EQUIVARIANCE = 2
    """Spatial axis, such as the height and width of an image."""
    VARIABLE_SIZE = 4
    """Axis of a varying number of entities; unused rows are zero."""


class ObservationType(Enum):
    """Purpose of an observation."""

    DEFAULT = 0
    GOAL_SIGNAL = 1


class ObservationSpec(NamedTuple):
    """Specification of one observation, which never changes.

    Attributes:
        shape: Shape for a single agent; (channels, height, width) for images.
        dimension_property: Properties of each axis of `shape`.
        observation_type: Purpose of the observation: default, or a goal to reach.
        name: Name of the sensor, unique within the behavior.
        dtype: float32, or uint8 for 8-bit images, in which 255 corresponds to 1.0.
    """

    shape: tuple[int, ...]
    dimension_property: tuple[DimensionProperty, ...]
    observation_type: ObservationType
    name: str
    dtype: np.dtype[Any] = np.dtype(np.float32)

    @staticmethod
    def vector(size: int, name: str) -> "ObservationSpec":
        """Return the specification of an unstructured vector of `size` numbers."""
        return ObservationSpec((size,), (DimensionProperty.NONE,), ObservationType.DEFAULT, name)

    @staticmethod
    def image(
        shape: tuple[int, int, int], name: str, dtype: DTypeLike = np.uint8
    ) -> "ObservationSpec":
        """Return the specification of an image or grid, (channels, height, width)."""
        alike = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
        axes = (DimensionProperty.NONE, alike, alike)
        return ObservationSpec(shape, axes, ObservationType.DEFAULT, name, np.dtype(dtype))


class ActionTuple:
    """Actions of N agents of one behavior: a continuous part, a discrete part, or both.

    Args:
        continuous: (N, A) continuous actions, converted to float32.
        discrete: (N, K) chosen action of each branch, converted to int32.

    If only one part is given, the other is an (N, 0) array. If none is given, both are None until
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
        """Continuous actions, (N, A) float32."""
        return self._continuous  # type: ignore[return-value]  # None only before either is set

    @property
    def discrete(self) -> IntArray:
        """Chosen action of each discrete branch, (N, K) int32."""
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
    """Specification of the actions of a behavior.

    Attributes:
        continuous_size: Number of continuous actions, A.
        discrete_branches: Number of actions in each of the K discrete branches.
    """

    continuous_size: int
    discrete_branches: tuple[int, ...]

    @staticmethod
    def create_continuous(continuous_size: int) -> "ActionSpec":
        """Return a specification with only continuous actions."""
        return ActionSpec(continuous_size, ())

    @staticmethod
    def create_discrete(discrete_branches: tuple[int, ...]) -> "ActionSpec":
        """Return a specification with only discrete actions."""
        return ActionSpec(0, tuple(discrete_branches))

    @staticmethod
    def create_hybrid(continuous_size: int, discrete_branches: tuple[int, ...]) -> "ActionSpec":
        """Return a specification with continuous and discrete actions."""
        return ActionSpec(continuous_size, tuple(discrete_branches))

    @property
    def discrete_size(self) -> int:
        """Number of discrete branches, K."""
        return len(self.discrete_branches)

    def is_discrete(self) -> bool:
        """Return whether every action is discrete."""
        return self.discrete_size > 0 and self.continuous_size == 0

    def is_continuous(self) -> bool:
        """Return whether every action is continuous."""
        return self.discrete_size == 0 and self.continuous_size > 0

    def empty_action(self, n_agents: int) -> ActionTuple:
        """Return actions of zeros for `n_agents` agents."""
        return ActionTuple(
            np.zeros((n_agents, self.continuous_size), np.float32),
            np.zeros((n_agents, self.discrete_size), np.int32),
        )

    def random_action(self, n_agents: int, rng: np.random.Generator | None = None) -> ActionTuple:
        """Return random actions: continuous ones from U[-1, 1), discrete ones uniform.

        Args:
            n_agents: Number of agents, N.
            rng: Random number generator; by default NumPy's global generator, which
                `np.random.seed` seeds.
        """
        uniform = np.random.random if rng is None else rng.random
        continuous = uniform((n_agents, self.continuous_size)) * 2.0 - 1.0
        branches = np.array(self.discrete_branches, np.float64)
        discrete = np.floor(uniform((n_agents, self.discrete_size)) * branches)
        return ActionTuple(continuous, discrete)

    def check(self, action: ActionTuple, n_agents: int, *, behavior: BehaviorName) -> None:
        """Check that `action` has one row per agent and one column per action or branch.

        Raises:
            UnityActionException: The shape differs. The message has the expected and actual shape.
        """
        wanted = (n_agents, self.continuous_size), (n_agents, self.discrete_size)
        for kind, part, shape in zip(
            ("continuous", "discrete"), (action.continuous, action.discrete), wanted, strict=True
        ):
            if part is None or part.shape != shape:
                raise UnityActionException(
                    f"behavior {behavior!r}: expected {kind} actions of shape {shape} (agents that "
                    f"requested a decision, actions), got "
                    f"{'none' if part is None else part.shape}. Set one row per agent of "
                    f"get_steps({behavior!r})[0], in that order."
                )

    def __str__(self) -> str:
        return f"Continuous: {self.continuous_size}, Discrete: {self.discrete_branches}"


class BehaviorSpec(NamedTuple):
    """Specification of the observations and actions of a behavior.

    Attributes:
        observation_specs: Specification of each observation, in the order of `DecisionSteps.obs`.
        action_spec: Specification of the actions.
    """

    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec


class BehaviorMapping(Mapping[BehaviorName, BehaviorSpec]):
    """Read-only view of the specifications by behavior name, which grows as behaviors appear."""

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
