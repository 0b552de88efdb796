"""`BaseEnv`, the interface of all environments, with types for specs, steps and actions.

A `BaseEnv` is batched by *behavior*: all agents that follow the same policy report in one batch and
get their actions in one batch. Agents may appear and disappear at any step.

    specs = env.behavior_specs                     observations and actions of each behavior
    decisions, terminals = env.get_steps(name)     agents that request an action; ended episodes
    env.set_actions(name, action)                  one row per agent in `decisions`, in its order
    env.step()                                     until an agent requests an action or ends

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
    """Interface of all environments: players behind a socket, built-in worlds, adapters.

    `step_send` and `step_receive` split `step` in two so that one thread keeps many environments
    busy. An environment whose step is computed elsewhere overrides both and `fileno`. All others
    inherit them and do their work in `step_receive`.

    Attributes:
        reports_are_checked: Whether the environment guarantees that the results of `get_steps`
            match the specifications. If not, `mlagents_envs.checked_env` checks them.
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
        """Begin a new episode for every agent; running episodes end without a terminal step."""

    @abstractmethod
    def step(self) -> None:
        """Apply the actions, and simulate until an agent requests an action or its episode ends.

        Agents whose action was not set get zeros. If there was no reset before, the first step is
        a reset.
        """

    @abstractmethod
    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the decision steps and terminal steps of the last step or reset.

        Raises:
            KeyError: The behavior is unknown.
        """

    @abstractmethod
    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set the next actions of a behavior, one row per agent of its `DecisionSteps`.

        The arrays are not copied: do not change them before the next step.

        Raises:
            UnityActionException: The behavior is unknown or the shapes do not fit.
        """

    @abstractmethod
    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the next action of one agent, one row; other agents keep theirs, zeros by default.

        Raises:
            IndexError: The agent did not request a decision.
            UnityActionException: The behavior is unknown or the shapes do not fit.
        """

    @abstractmethod
    def close(self) -> None:
        """End the environment and release its resources. Calling it again does nothing."""

    def step_send(self) -> None:  # not abstract: by default `step_receive` does all the work
        """Start a step and return at once."""

    def step_receive(self) -> None:
        """Finish the step that `step_send` started."""
        self.step()

    def fileno(self) -> int | None:
        """Return a file descriptor that becomes readable when `step_receive` would not wait.

        Returns:
            The file descriptor; None if `step_receive` computes the step itself.
        """
        return None


@runtime_checkable
class HasEightBitImages(Protocol):
    """Environment that can return its 8-bit images unchanged: a world or an adapter.

    `UnityEnvironment` has an argument of its constructor instead.
    """

    def keep_8_bit_images(self) -> None:
        """Return 8-bit images as uint8, 0 to 255, instead of float32, 0 to 1.

        They take a quarter of the memory. Call this before the first reset.

        Raises:
            UnityEnvironmentException: The environment was already reset.
        """


def with_float_images(spec: BehaviorSpec) -> BehaviorSpec:
    """Return the specification with the type float32 for all observations."""
    floats = np.dtype(np.float32)
    return spec._replace(
        observation_specs=[
            observation._replace(dtype=floats) for observation in spec.observation_specs
        ]
    )


_WHITE = np.float32(255)


def as_floats(image: NDArray[Any]) -> FloatArray:
    """Return images as float32: uint8 is scaled to [0, 1], other types keep their values."""
    return scale_8_bit(image) if image.dtype == np.uint8 else image.astype(np.float32, copy=False)


def scale_8_bit(values: NDArray[Any], *, out: FloatArray | None = None) -> FloatArray:
    """Return values from 0 to 255 as float32 in [0, 1], in `out` if it is given."""
    scaled: FloatArray = np.divide(values, _WHITE, out=out, dtype=np.float32)
    return scaled


def as_8_bit(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return images as uint8: floats in [0, 1] are scaled and rounded, uint8 is unchanged."""
    return image if image.dtype == np.uint8 else np.round(image * _WHITE).astype(np.uint8)


def unknown_behavior(behavior: BehaviorName, known: Iterable[BehaviorName]) -> str:
    """Return an error message for an unknown behavior, with similar names."""
    names = sorted(known)
    if not names:
        return (
            f"unknown behavior {behavior!r}: no behavior is known yet. Call reset() first; it "
            "announces behaviors."
        )
    full_names = {name.partition("?")[0]: name for name in names}
    meant = did_you_mean(full_names.get(behavior, behavior), names, n=3) or "."
    return f"unknown behavior {behavior!r}{meant} This environment has {names}."


class ActionBuffer:
    """Buffer of an environment for the actions of the next step.

    Args:
        specs: Specifications of the known behaviors; the mapping may grow.
        check_values: Function that raises an error if it rejects the values of actions, whose
            shapes are already checked. Rejected actions are not stored.
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
        """Check the actions of `n_agents` agents, and return their specification."""
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
                f"behavior {behavior!r}: agent {agent_id} did not request a decision; "
                f"agents that did: {decisions.agent_id.tolist()}"
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
        """Remove all actions."""
        self._actions.clear()
