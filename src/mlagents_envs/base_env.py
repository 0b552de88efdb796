"""The words all three packages share: specs, steps, actions and `BaseEnv`.

Everything that can be stepped is a `BaseEnv`. It is batched by *behavior*: all agents that follow
the same policy arrive as one batch and get their actions as one batch, and agents come and go.

    specs = env.behavior_specs                     what each behavior observes and does
    decisions, terminals = env.get_steps(name)     who asks for an action, who just ended
    env.set_actions(name, action)                  one row per asking agent, in that order
    env.step()                                     until somebody asks or ends again

Letters in shapes: N agents of this step, A continuous actions, K discrete branches.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, IntFlag
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from mlagents_envs.closing import Closing
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.folder_names import folder_name_problem
from mlagents_envs.suggestions import did_you_mean

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


class DecisionStep(NamedTuple):
    """What one agent reports when it asks for an action; fields as in `DecisionSteps`."""

    obs: list[NDArray[Any]]
    reward: float
    agent_id: AgentId
    action_mask: list[BoolArray] | None
    group_id: GroupId
    group_reward: float


class TerminalStep(NamedTuple):
    """What one agent reports when its episode ends; fields as in `TerminalSteps`."""

    obs: list[NDArray[Any]]
    reward: float
    interrupted: bool
    agent_id: AgentId
    group_id: GroupId
    group_reward: float


class _Steps:
    """What both kinds of steps share: most columns, and looking an agent up by its id."""

    __slots__ = ("_index", "agent_id", "group_id", "group_reward", "obs", "reward")

    def __init__(
        self,
        obs: list[NDArray[Any]],
        reward: FloatArray,
        agent_id: IntArray,
        group_id: IntArray,
        group_reward: FloatArray,
    ) -> None:
        self.obs = obs
        self.reward = reward
        self.agent_id = agent_id
        self.group_id = group_id
        self.group_reward = group_reward
        self._index: dict[AgentId, int] | None = None

    @property
    def agent_id_to_index(self) -> dict[AgentId, int]:
        """Row of every agent."""
        if self._index is None:
            self._index = {int(agent): row for row, agent in enumerate(self.agent_id)}
        return self._index

    def __len__(self) -> int:
        return len(self.agent_id)

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self.agent_id_to_index)

    def __eq__(self, other: object) -> bool:
        """Whether all that is reported is the same, value by value."""
        return type(other) is type(self) and all(
            _equal(getattr(self, name), getattr(other, name))
            for name in ("agent_id", *type(self).__slots__)
        )

    def _row(self, agent_id: AgentId) -> int:
        try:
            return self.agent_id_to_index[agent_id]
        except KeyError:
            raise KeyError(
                f"agent {agent_id} is not in this batch; its agents are {self.agent_id.tolist()}"
            ) from None


def _equal(one: Any, other: Any) -> bool:
    """Compare two arrays, lists of arrays or None."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(np.array_equal, one, other))
    return np.array_equal(one, other)


class DecisionSteps(_Steps, Mapping[AgentId, DecisionStep]):
    """All agents of a behavior that ask for an action now; a mapping from agent id.

    Attributes:
        obs: One array per observation, (N, *shape).
        reward: (N,) float32, summed since the agent's previous report.
        agent_id: (N,) int32. An id may also be in the `TerminalSteps` of the same step: the agent
            ended an episode and began the next.
        action_mask: One (N, size) array per discrete branch, True where an action is *not*
            allowed; None where the behavior has no discrete actions or no agent asks.
        group_id: (N,) int32, 0 for no group.
        group_reward: (N,) float32.
    """

    __slots__ = ("action_mask",)

    def __init__(
        self,
        obs: list[NDArray[Any]],
        reward: FloatArray,
        agent_id: IntArray,
        action_mask: list[BoolArray] | None,
        group_id: IntArray,
        group_reward: FloatArray,
    ) -> None:
        super().__init__(obs, reward, agent_id, group_id, group_reward)
        self.action_mask = action_mask

    def __getitem__(self, agent_id: AgentId) -> DecisionStep:
        row = self._row(agent_id)
        masks = self.action_mask
        return DecisionStep(
            obs=[batch[row] for batch in self.obs],
            reward=float(self.reward[row]),
            agent_id=agent_id,
            action_mask=None if masks is None else [mask[row] for mask in masks],
            group_id=int(self.group_id[row]),
            group_reward=float(self.group_reward[row]),
        )

    @staticmethod
    def of(
        obs: list[NDArray[Any]],
        reward: ArrayLike,
        agent_id: ArrayLike,
        *,
        masks: list[BoolArray] | None = None,
        groups: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "DecisionSteps":
        """Make a batch of N agents. Arrays of the right type are not copied.

        Args:
            obs: One array per observation, (N, *shape).
            reward: (N,) rewards since the agents' previous report.
            agent_id: (N,) ids.
            masks: One (N, size) array per discrete branch, True where an action is not allowed.
            groups: (N,) group ids and (N,) group rewards; None if no agent is in a group.
        """
        ids = np.asarray(agent_id, np.int32)
        return DecisionSteps(
            obs, np.asarray(reward, np.float32), ids, masks, *_group_columns(groups, len(ids))
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> "DecisionSteps":
        """Make the batch of no agents."""
        return DecisionSteps.of(_empty_observations(spec), (), ())


class TerminalSteps(_Steps, Mapping[AgentId, TerminalStep]):
    """All agents of a behavior whose episode just ended; a mapping from agent id.

    Attributes:
        obs: One array per observation, (N, *shape): the last of the episode.
        reward: (N,) float32, summed since the agent's previous report.
        interrupted: (N,) bool. True where a clock ran out, False where the task ended it.
        agent_id: (N,) int32.
        group_id: (N,) int32, 0 for no group.
        group_reward: (N,) float32.
    """

    __slots__ = ("interrupted",)

    def __init__(
        self,
        obs: list[NDArray[Any]],
        reward: FloatArray,
        interrupted: BoolArray,
        agent_id: IntArray,
        group_id: IntArray,
        group_reward: FloatArray,
    ) -> None:
        super().__init__(obs, reward, agent_id, group_id, group_reward)
        self.interrupted = interrupted

    def __getitem__(self, agent_id: AgentId) -> TerminalStep:
        row = self._row(agent_id)
        return TerminalStep(
            obs=[batch[row] for batch in self.obs],
            reward=float(self.reward[row]),
            interrupted=bool(self.interrupted[row]),
            agent_id=agent_id,
            group_id=int(self.group_id[row]),
            group_reward=float(self.group_reward[row]),
        )

    @staticmethod
    def of(
        obs: list[NDArray[Any]],
        reward: ArrayLike,
        agent_id: ArrayLike,
        interrupted: ArrayLike,
        *,
        groups: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "TerminalSteps":
        """Make a batch of N agents. Arrays of the right type are not copied.

        Args:
            obs: One array per observation, (N, *shape).
            reward: (N,) rewards since the agents' previous report.
            agent_id: (N,) ids.
            interrupted: (N,) whether a clock ran out, or one bool for all agents.
            groups: (N,) group ids and (N,) group rewards; None if no agent is in a group.
        """
        ids = np.asarray(agent_id, np.int32)
        ends = np.full(len(ids), interrupted, np.bool_)
        return TerminalSteps(
            obs, np.asarray(reward, np.float32), ends, ids, *_group_columns(groups, len(ids))
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> "TerminalSteps":
        """Make the batch of no agents."""
        return TerminalSteps.of(_empty_observations(spec), (), (), ())


def _group_columns(
    groups: tuple[ArrayLike, ArrayLike] | None, n_agents: int
) -> tuple[IntArray, FloatArray]:
    """Return the group of every agent and its reward."""
    if groups is None:
        return np.zeros(n_agents, np.int32), np.zeros(n_agents, np.float32)
    group_id, group_reward = groups
    return np.asarray(group_id, np.int32), np.asarray(group_reward, np.float32)


def _empty_observations(spec: BehaviorSpec) -> list[NDArray[Any]]:
    return [
        np.zeros((0, *observation.shape), observation.dtype)
        for observation in spec.observation_specs
    ]


class BaseEnv(Closing):
    """Anything that can be stepped: a player behind a socket, a native world, an adapter.

    `step_send` and `step_receive` split `step` in two so that one thread keeps many environments
    busy. An environment whose step takes time elsewhere overrides both and `fileno`; any other
    inherits them and does its work in `step_receive`.

    Attributes:
        reports_are_checked: Whether `get_steps` only returns what fits the specifications, as when
            it was decoded from messages; otherwise `mlagents_envs.checked_env` checks it.
    """

    reports_are_checked: ClassVar[bool] = False

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications by behavior name (`<name>?team=<id>`).

        A behavior may appear at any reset or step. It never disappears or changes.
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin a new episode for every agent; running ones vanish without a terminal step."""

    @abstractmethod
    def step(self) -> None:
        """Apply the actions set and go on until some agent needs an action or ended.

        Agents without an action get zeros. The first step before any reset is a reset.
        """

    @abstractmethod
    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return who asks for an action and who ended in the last step or reset.

        Raises:
            KeyError: The behavior is unknown.
        """

    @abstractmethod
    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set the next actions of a behavior, one row per agent of its `DecisionSteps`.

        The arrays are not copied: leave them as they are until the next step.

        Raises:
            UnityActionException: The behavior is unknown or the shapes do not fit.
        """

    @abstractmethod
    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the next action of one agent, one row; the others keep theirs, at first zeros.

        Raises:
            IndexError: The agent did not ask for a decision.
            UnityActionException: The behavior is unknown or the shapes do not fit.
        """

    @abstractmethod
    def close(self) -> None:
        """End the environment and free what it holds. Calling it again does nothing."""

    def step_send(self) -> None:  # doing nothing is the default on purpose
        """Start a step and return at once."""

    def step_receive(self) -> None:
        """Finish the step that `step_send` started."""
        self.step()

    def fileno(self) -> int | None:
        """File descriptor that becomes readable when `step_receive` would not wait.

        None where `step_receive` does the step's work itself.
        """
        return None


@runtime_checkable
class HasEightBitImages(Protocol):
    """An environment that can hand out its images of 8 bit as they are: a world, an adapter.

    `UnityEnvironment` is told when it is made.
    """

    def keep_8_bit_images(self) -> None:
        """Hand out images of 8 bit as uint8, 0 to 255, rather than as float32, 0 to 1.

        They take a quarter of the memory. To be called before the first reset.

        Raises:
            UnityEnvironmentException: The environment has been reset.
        """


def with_float_images(spec: BehaviorSpec) -> BehaviorSpec:
    """Return the specification with images of 8 bit announced as float32."""
    floats = np.dtype(np.float32)
    return spec._replace(
        observation_specs=[
            observation._replace(dtype=floats) for observation in spec.observation_specs
        ]
    )


_WHITE = np.float32(255)


def as_floats(image: NDArray[Any]) -> FloatArray:
    """Return images as float32: bytes are scaled to [0, 1], other numbers stay as they are."""
    return scale_8_bit(image) if image.dtype == np.uint8 else image.astype(np.float32, copy=False)


def scale_8_bit(values: NDArray[Any], *, out: FloatArray | None = None) -> FloatArray:
    """Return values from 0 to 255 as float32 in [0, 1], in `out` if it is given."""
    scaled: FloatArray = np.divide(values, _WHITE, out=out, dtype=np.float32)
    return scaled


def as_8_bit(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return images as uint8: floats in [0, 1] are scaled and rounded, bytes stay as they are."""
    return image if image.dtype == np.uint8 else np.round(image * _WHITE).astype(np.uint8)


def unknown_behavior(behavior: BehaviorName, known: Iterable[BehaviorName]) -> str:
    """Say that there is no such behavior, and which one may be meant."""
    names = sorted(known)
    if not names:
        return (
            f"unknown behavior {behavior!r}: none is known yet. Call reset() first: behaviors are "
            "announced with the first step."
        )
    full_names = {name.partition("?")[0]: name for name in names}
    meant = did_you_mean(full_names.get(behavior, behavior), names, n=3) or "."
    return f"unknown behavior {behavior!r}{meant} This environment has {names}."


class ActionBuffer:
    """The actions set for the coming step: what every `BaseEnv` keeps between two steps.

    Args:
        specs: The behaviors known so far; may grow.
        check_values: Raises what there is to say against the values of a behavior's actions, whose
            shapes are right. What is refused is not set.
    """

    def __init__(
        self,
        specs: Mapping[BehaviorName, BehaviorSpec],
        check_values: Callable[[BehaviorName, ActionTuple], None] | None = None,
    ) -> None:
        self._specs = specs
        self._check_values = check_values
        self._actions: dict[BehaviorName, ActionTuple] = {}

    def _spec(self, behavior: BehaviorName) -> ActionSpec:
        try:
            return self._specs[behavior].action_spec
        except KeyError:
            raise UnityActionException(unknown_behavior(behavior, self._specs)) from None

    def _check(self, behavior: BehaviorName, action: ActionTuple, n_agents: int) -> ActionSpec:
        """Raise unless these are actions of so many agents; return what they have to be."""
        spec = self._spec(behavior)
        spec.check(action, n_agents, behavior=behavior)
        if self._check_values is not None:
            self._check_values(behavior, action)
        return spec

    def set(self, behavior: BehaviorName, action: ActionTuple, decisions: DecisionSteps) -> None:
        """Set one row per agent of `decisions`."""
        self._check(behavior, action, len(decisions))
        self._actions[behavior] = action

    def set_for_agent(
        self,
        behavior: BehaviorName,
        agent_id: AgentId,
        action: ActionTuple,
        decisions: DecisionSteps,
    ) -> None:
        """Set the row of one agent of `decisions`; rows not set yet are zero."""
        spec = self._check(behavior, action, 1)
        row = decisions.agent_id_to_index.get(agent_id)
        if row is None:
            raise IndexError(
                f"behavior {behavior!r}: agent {agent_id} did not ask for a decision; "
                f"those who did are {decisions.agent_id.tolist()}"
            )
        held = self._actions.get(behavior)
        rows = spec.empty_action(len(decisions)) if held is None else held
        continuous, discrete = rows.continuous.copy(), rows.discrete.copy()
        continuous[row], discrete[row] = action.continuous[0], action.discrete[0]
        self._actions[behavior] = ActionTuple(continuous, discrete)

    def take(self, behavior: BehaviorName, n_agents: int) -> ActionTuple:
        """Remove and return the actions of a behavior; zeros for `n_agents` if none were set."""
        action = self._actions.pop(behavior, None)
        return (
            self._specs[behavior].action_spec.empty_action(n_agents) if action is None else action
        )

    def clear(self) -> None:
        """Forget all actions set."""
        self._actions.clear()
