"""The words all three packages share: specs, steps, actions and `BaseEnv`.

Everything that can be stepped is a `BaseEnv`. It is batched by *behavior*: all agents that follow
the same policy arrive as one batch and get their actions as one batch, and agents come and go.

    specs = env.behavior_specs                     what each behavior observes and does
    decisions, terminals = env.get_steps(name)     who asks for an action, who just ended
    env.set_actions(name, action)                  one row per asking agent, in that order
    env.step()                                     until somebody asks or ends again

Letters in shapes: N agents of this step, A continuous actions, K discrete branches.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.closing import Closing
from mlagents_envs.exception import UnityActionException
from mlagents_envs.specs import (
    ActionSpec,
    ActionTuple,
    AgentId,
    BehaviorId,
    BehaviorMapping,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DimensionProperty,
    FloatArray,
    GroupId,
    IntArray,
    ObservationSpec,
    ObservationType,
    behavior_name_problem,
    check_behavior_name,
    is_named,
)
from mlagents_envs.steps import (
    DecisionStep,
    DecisionSteps,
    TerminalStep,
    TerminalSteps,
)
from mlagents_envs.suggestions import did_you_mean

__all__ = [
    "ActionBuffer",
    "ActionSpec",
    "ActionTuple",
    "AgentId",
    "BaseEnv",
    "BehaviorId",
    "BehaviorMapping",
    "BehaviorName",
    "BehaviorSpec",
    "BoolArray",
    "DecisionStep",
    "DecisionSteps",
    "DimensionProperty",
    "FloatArray",
    "GroupId",
    "HasEightBitImages",
    "IntArray",
    "ObservationSpec",
    "ObservationType",
    "TerminalStep",
    "TerminalSteps",
    "as_8_bit",
    "as_floats",
    "behavior_name_problem",
    "check_behavior_name",
    "is_named",
    "scale_8_bit",
    "unknown_behavior",
    "with_float_images",
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
