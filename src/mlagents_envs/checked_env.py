"""`checked`: a wrapper that checks the reports of an environment in this process.

Reports from the wire are checked when they are decoded. An environment in this process may report
anything: other types of numbers, lists, arrays of wrong shapes. The wrapper converts what it can,
with one warning per field, and raises an error for everything else.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
    check_behavior_name,
)
from mlagents_envs.exception import (
    UnityEnvironmentException,
    UnityNonFiniteException,
    UnityObservationException,
)
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

_METHODS = "reset", "step", "get_steps", "set_actions", "set_action_for_agent", "close"

_BOOL = np.dtype(np.bool_)
_INT32 = np.dtype(np.int32)
_FLOAT32 = np.dtype(np.float32)
_UINT8 = np.dtype(np.uint8)


def is_environment(thing: object) -> TypeGuard[BaseEnv]:
    """Return whether an object has all methods and properties of a `BaseEnv`; False for classes."""
    return not isinstance(thing, type) and not missing_in(thing)


def missing_in(thing: object) -> list[str]:
    """Return the methods and properties of a `BaseEnv` that an object lacks."""
    if isinstance(thing, BaseEnv):
        return []
    lacks = [name for name in _METHODS if not callable(getattr(thing, name, None))]
    return lacks if hasattr(thing, "behavior_specs") else ["behavior_specs", *lacks]


def checked(env: BaseEnv) -> BaseEnv:
    """Return an environment whose reports fulfill the contract of `BaseEnv`.

    Args:
        env: Environment, or an object with its methods. If it is already checked, it is returned
            unchanged.
    """
    return env if getattr(env, "reports_are_checked", False) else CheckedEnv(env)


def unwrapped(env: BaseEnv) -> BaseEnv:
    """Return the environment without the checks, to access more than the methods of `BaseEnv`."""
    return env._env if isinstance(env, CheckedEnv) else env


class CheckedEnv(BaseEnv):
    """Wrapper of an environment in this process that checks its reports once per step.

    Lists and numbers of another type are converted, with one warning for each behavior and field.
    `SystemExit` in the environment's code becomes a `UnityEnvironmentException`, so that the
    program can save its work. Attributes that `BaseEnv` does not have are those of the environment.

    Args:
        env: Object with the methods of a `BaseEnv`; `step_send`, `step_receive` and `fileno` are
            optional.
    """

    reports_are_checked = True

    def __init__(self, env: BaseEnv) -> None:
        self._env = env
        self._inspectors: dict[BehaviorName, _Inspector] = {}
        self._reports: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "_env":  # not set yet, for example while this object is being copied
            raise AttributeError(name)
        return getattr(self._env, name)

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications by behavior name."""
        return self._env.behavior_specs

    def reset(self) -> None:
        """Begin a new episode for every agent."""
        self._reports.clear()
        try:
            self._env.reset()
        except SystemExit as error:
            self._refuse_exit("reset", error)
        self._meet_behaviors()

    def step(self) -> None:
        """Apply the actions, and simulate until an agent requests an action or its episode ends."""
        self._reports.clear()
        try:
            self._env.step()
        except SystemExit as error:
            self._refuse_exit("step", error)
        self._meet_behaviors()

    def step_send(self) -> None:
        """Start a step and return at once."""
        if hasattr(self._env, "step_send"):
            try:
                self._env.step_send()
            except SystemExit as error:
                self._refuse_exit("step_send", error)

    def step_receive(self) -> None:
        """Finish the step that `step_send` started."""
        if not hasattr(self._env, "step_receive"):
            self.step()
            return
        self._reports.clear()
        try:
            self._env.step_receive()
        except SystemExit as error:
            self._refuse_exit("step", error)
        self._meet_behaviors()

    def fileno(self) -> int | None:
        """Return a file descriptor that becomes readable when `step_receive` would not wait."""
        return self._env.fileno() if hasattr(self._env, "fileno") else None

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the decision steps and terminal steps of the last step or reset.

        Raises:
            KeyError: The behavior is unknown.
            UnityObservationException: A field cannot be converted. The message names it.
            UnityNonFiniteException: An observation or a reward is NaN or infinite.
        """
        report = self._reports.get(behavior_name)
        if report is None:
            report = self._reports[behavior_name] = self._inspected(behavior_name)
        return report

    def _meet_behaviors(self) -> None:
        """Check the names of new behaviors."""
        for name, spec in self._env.behavior_specs.items():
            if name not in self._inspectors:
                check_behavior_name(name)
                self._inspectors[name] = _Inspector(name, spec)

    def _inspected(self, behavior: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        pair = self._env.get_steps(behavior)
        if behavior not in self._inspectors:  # the environment was reset before it was wrapped
            self._meet_behaviors()
        inspector = self._inspectors[behavior]
        try:
            decisions, terminals = pair
        except (TypeError, ValueError):
            raise UnityObservationException(
                f"behavior {behavior!r}: get_steps() returned {_shown(pair)}; expected a pair of "
                "DecisionSteps and TerminalSteps"
            ) from None
        return inspector.decisions(decisions), inspector.terminals(terminals)

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set the next actions of a behavior, one row per agent of its `DecisionSteps`."""
        self._env.set_actions(behavior_name, action)

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the next action of one agent, one row; other agents keep theirs, zeros by default."""
        self._env.set_action_for_agent(behavior_name, agent_id, action)

    def close(self) -> None:
        """End the environment and release its resources."""
        self._env.close()

    def _refuse_exit(self, method: str, error: SystemExit) -> NoReturn:
        raise UnityEnvironmentException(
            f"{type(self._env).__name__}.{method}() ended the program (SystemExit: {error}). An "
            "environment must not call sys.exit(); raise an error instead."
        ) from error


class _Inspector:
    """Checker of the reports of one behavior.

    Args:
        behavior: Name of the behavior.
        spec: Specification of the behavior.
    """

    def __init__(self, behavior: BehaviorName, spec: BehaviorSpec) -> None:
        self._behavior = behavior
        self._observations = list(spec.observation_specs)
        self._expected = [(tuple(o.shape), o.dtype) for o in self._observations]
        self._branches = tuple(spec.action_spec.discrete_branches)
        self._unique_ids = b""  # the last ids without duplicates; most steps have the same ids
        self._warned_of: set[str] = set()
        self._converted: dict[str, str] = {}

    def decisions(self, steps: DecisionSteps) -> DecisionSteps:
        """Check decision steps, and return them with the right types."""
        n = self._size(steps)
        if n < 0 or type(steps) is not DecisionSteps or not self._has_masks(steps, n):
            kind = "decision steps"
            common = self._common(steps, kind)
            n = len(common["agent_id"])
            steps = DecisionSteps(**common, action_mask=self._masks(steps, n, kind))
            self._warn()
        if n:
            self._require_sound_values(steps, "decision steps")
        return steps

    def terminals(self, steps: TerminalSteps) -> TerminalSteps:
        """Check terminal steps, and return them with the right types."""
        n = self._size(steps)
        if n < 0 or type(steps) is not TerminalSteps or not _is(steps.interrupted, _BOOL, (n,)):
            kind = "terminal steps"
            common = self._common(steps, kind)
            n = len(common["agent_id"])
            interrupted = self._field(steps, "interrupted", _BOOL, (n,), kind)
            steps = TerminalSteps(**common, interrupted=interrupted)
            self._warn()
        if n:
            self._require_sound_values(steps, "terminal steps")
        return steps

    # Fast checks at every step.

    def _size(self, steps: DecisionSteps | TerminalSteps) -> int:
        """Return the number of agents; -1 if a common field has a wrong type or shape."""
        ids = getattr(steps, "agent_id", None)
        if type(ids) is not np.ndarray or ids.dtype != _INT32 or ids.ndim != 1:
            return -1
        n = len(ids)
        one_each = (n,)
        try:
            if not (
                _is(steps.reward, _FLOAT32, one_each)
                and _is(steps.group_reward, _FLOAT32, one_each)
                and _is(steps.group_id, _INT32, one_each)
            ):
                return -1
            for batch, (shape, dtype) in zip(steps.obs, self._expected, strict=True):
                if not _is(batch, dtype, (n, *shape)):
                    return -1
        except (AttributeError, TypeError, ValueError):  # a field or an observation is missing
            return -1
        return n

    def _has_masks(self, decisions: DecisionSteps, n: int) -> bool:
        masks = decisions.action_mask
        if not masks:
            return masks is None
        return len(masks) == len(self._branches) and all(
            _is(mask, _BOOL, (n, size)) for mask, size in zip(masks, self._branches, strict=True)
        )

    def _require_sound_values(self, steps: DecisionSteps | TerminalSteps, kind: str) -> None:
        """Check that agent ids are unique, and that rewards and observations are finite."""
        ids = steps.agent_id.tobytes()
        if ids != self._unique_ids:
            unique, counts = np.unique(steps.agent_id, return_counts=True)
            if len(unique) < len(steps.agent_id):
                raise UnityObservationException(
                    f"behavior {self._behavior!r}, {kind}: agent {unique[counts.argmax()]} is "
                    f"reported {counts.max()} times; expected each agent once. All ids: "
                    f"{_shown(steps.agent_id.tolist())}"
                )
            self._unique_ids = ids
        if not _is_finite(steps.reward + steps.group_reward):
            self._refuse_rewards(steps)
        for observation, batch in zip(self._observations, steps.obs, strict=True):
            if batch.dtype != _UINT8 and not _is_finite(batch):
                self._refuse_values(observation, batch, steps.agent_id)

    def _refuse_rewards(self, steps: DecisionSteps | TerminalSteps) -> NoReturn:
        row = int((np.isfinite(steps.reward) & np.isfinite(steps.group_reward)).argmin())
        raise UnityNonFiniteException(
            f"behavior {self._behavior!r}: agent {steps.agent_id[row]} has the reward "
            f"{steps.reward[row]} and the group reward {steps.group_reward[row]}; both must be "
            "finite"
        )

    def _refuse_values(
        self, observation: ObservationSpec, batch: NDArray[Any], agents: NDArray[np.int32]
    ) -> NoReturn:
        row, *place = np.argwhere(~np.isfinite(batch))[0].tolist()
        raise UnityNonFiniteException(
            f"behavior {self._behavior!r}, observation {observation.name!r}: agent {agents[row]} "
            f"observes {batch[row, *place]} at index {place}; all numbers must be finite"
        )

    # Conversion and errors, if a fast check fails.

    def _common(self, steps: DecisionSteps | TerminalSteps, kind: str) -> dict[str, Any]:
        """Return the fields of both kinds of steps, converted."""
        ids = self._field(steps, "agent_id", _INT32, (-1,), kind)
        one_each = (len(ids),)
        return {
            "agent_id": ids,
            "obs": self._observed(steps, len(ids), kind),
            "reward": self._field(steps, "reward", _FLOAT32, one_each, kind),
            "group_id": self._field(steps, "group_id", _INT32, one_each, kind, default=0),
            "group_reward": self._field(steps, "group_reward", _FLOAT32, one_each, kind, default=0),
        }

    def _field(
        self,
        steps: object,
        name: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        kind: str,
        *,
        default: int | None = None,
    ) -> NDArray[Any]:
        value = getattr(steps, name, None)
        if value is None and default is not None:  # an environment without support for groups
            return np.full(shape, default, dtype)
        return self._array(value, dtype, shape, name, kind)

    def _observed(self, steps: object, n: int, kind: str) -> list[NDArray[Any]]:
        obs = getattr(steps, "obs", None)
        if not isinstance(obs, Sequence) or len(obs) != len(self._expected):
            found = len(obs) if isinstance(obs, Sequence) else type(obs).__name__
            names = [observation.name for observation in self._observations]
            raise UnityObservationException(
                f"behavior {self._behavior!r}, {kind}: expected obs to be a list of "
                f"{len(names)} arrays, one for each of {names}, got {found}"
            )
        return [
            self._array(batch, dtype, (n, *shape), f"observation {observation.name!r}", kind)
            for observation, batch, (shape, dtype) in zip(
                self._observations, obs, self._expected, strict=True
            )
        ]

    def _masks(self, steps: object, n: int, kind: str) -> list[NDArray[np.bool_]] | None:
        masks = getattr(steps, "action_mask", None)
        if masks is None or not n or not self._branches:
            return None
        if not isinstance(masks, Sequence) or len(masks) != len(self._branches):
            raise UnityObservationException(
                f"behavior {self._behavior!r}: expected action_mask to be None or a list of "
                f"{len(self._branches)} arrays, one per discrete branch, got {_shown(masks)}"
            )
        return [
            self._array(mask, _BOOL, (n, size), f"action_mask of branch {branch}", kind)
            for branch, (mask, size) in enumerate(zip(masks, self._branches, strict=True))
        ]

    def _array(
        self, value: object, dtype: np.dtype[Any], shape: tuple[int, ...], what: str, kind: str
    ) -> NDArray[Any]:
        """Return `value` as an array of this type and shape, and note a conversion for `_warn`.

        Args:
            value: Value of the field.
            dtype: Expected type.
            shape: Expected shape; -1 allows any size.
            what: Name of the field.
            kind: Kind of steps.

        Raises:
            UnityObservationException: The shape differs, or the type cannot represent the values.
        """
        where = f"behavior {self._behavior!r}, {kind}: {what}"
        expected = f"expected an array of {dtype} of shape {_shape(shape)}"
        try:
            array = np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise UnityObservationException(f"{where}: {expected}; {error}") from None
        if array.dtype.kind not in "biuf":
            got = "None" if value is None else f"{type(value).__name__}: {_shown(value)}"
            raise UnityObservationException(f"{where}: {expected}, got {got}")
        if array.size == 0 == math.prod(shape):
            array = array.reshape(shape)  # an empty list has only one axis
        if array.ndim != len(shape) or any(
            size not in (found, -1) for size, found in zip(shape, array.shape, strict=True)
        ):
            raise UnityObservationException(
                f"{where}: {expected}, one row per agent, got the shape {_shape(array.shape)}"
            )
        if array.dtype == dtype and isinstance(value, np.ndarray):
            return array
        if dtype == _FLOAT32 and array.dtype == _UINT8 and len(shape) == 4:
            raise UnityObservationException(
                f"{where}: the specification says float32, from 0 to 1, but the image is uint8. "
                "Use dtype=np.uint8 in the specification, or divide the image by 255."
            )
        with np.errstate(over="ignore", invalid="ignore"):  # infinite results are refused later
            converted = array.astype(dtype)
        is_fraction = array.dtype.kind == "f" and dtype.kind != "f" and array.size > 0
        if is_fraction or (dtype.kind != "f" and not np.array_equal(converted, array)):
            raise UnityObservationException(
                f"{where}: {expected}, got {array.dtype} values that {dtype} cannot represent: "
                f"{_shown(array)}"
            )
        found = str(array.dtype) if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        self._converted[what] = f"{what} is {found}, not {dtype}"
        return converted

    def _warn(self) -> None:
        """Warn about conversions, once for each field."""
        new = [note for field, note in self._converted.items() if field not in self._warned_of]
        self._warned_of |= self._converted.keys()
        self._converted.clear()
        if new:
            logger.warning(
                f"behavior {self._behavior!r}: {'; '.join(new)}. This is converted at every step. "
                "To save time, report NumPy arrays of the expected types."
            )


def _is(array: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    # Equal types are nearly always the same object, and comparing identity is faster.
    return (
        type(array) is np.ndarray
        and array.shape == shape
        and (array.dtype is dtype or bool(array.dtype == dtype))
    )


def _is_finite(array: NDArray[Any]) -> bool:
    return int(np.count_nonzero(np.isfinite(array))) == array.size  # takes half the time of all()


def _shape(shape: tuple[int, ...]) -> str:
    sizes = ", ".join("n_agents" if size == -1 else str(size) for size in shape)
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def _shown(value: object) -> str:
    """Return the `repr` of a value, in one line of at most 80 characters."""
    return f"{' '.join(repr(value).split()):.80}"
