"""`LocalEnv`: the base of environments that are computed in this process."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from mlagents_envs.base_env import (
    ActionBuffer,
    ActionSpec,
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorMapping,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
    as_floats,
    unknown_behavior,
    with_float_images,
)
from mlagents_envs.exception import UnityEnvironmentException


class Report(NamedTuple):
    """Steps that the agents of one behavior report at the same time.

    Attributes:
        decisions: Agents that request an action; None if there are none.
        terminals: Agents whose episode ended; None if there are none.
    """

    decisions: DecisionSteps | None = None
    terminals: TerminalSteps | None = None


class LocalEnv(BaseEnv):
    """Base class of worlds, adapters, and your own environments.

    It stores the specifications, the latest report and the actions. A subclass calls `announce`
    in its constructor and implements `restart` and `advance`.

    A subclass may announce and report images as uint8, 0 to 255. `get_steps` returns them as
    float32, 0 to 1, unless `keep_8_bit_images` was called.
    """

    def __init__(self) -> None:
        self._announced: dict[BehaviorName, BehaviorSpec] = {}
        self._specs: dict[BehaviorName, BehaviorSpec] = {}  # as returned to users
        self._empty_steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}
        self._current_steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}
        self._actions = ActionBuffer(self._specs, self.check_actions)
        self._keeps_8_bit_images = False
        self._makes_floats = False
        self._has_begun = False
        self._is_closed = False

    # Methods that a subclass implements.

    @abstractmethod
    def restart(self) -> Mapping[BehaviorName, Report]:
        """Begin all episodes, and return a report for each behavior with agents."""

    @abstractmethod
    def advance(self) -> Mapping[BehaviorName, Report]:
        """Apply `take_actions`, and simulate until an agent requests an action or its episode ends.

        Returns:
            A report for each behavior with such agents.
        """

    def check_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Check the values of actions; their shapes are already checked. Optional.

        Raises:
            UnityActionException: A value is not allowed. The message names it and the limits.
        """

    # Methods that a subclass calls.

    def announce(self, specs: Mapping[BehaviorName, BehaviorSpec]) -> None:
        """Add behaviors. Announce each one once, before its first report."""
        self._announced.update(specs)
        for name, spec in specs.items():
            self._specs[name] = spec if self._keeps_8_bit_images else with_float_images(spec)
            self._makes_floats |= self._specs[name] != spec
            empty = DecisionSteps.empty(self._specs[name]), TerminalSteps.empty(self._specs[name])
            self._empty_steps[name] = self._current_steps[name] = empty

    def take_actions(self, behavior_name: BehaviorName) -> ActionTuple:
        """Return one row for each agent that requested an action; zeros if no action was set."""
        return self._actions.take(behavior_name, len(self._current_steps[behavior_name][0]))

    # Methods that users of the environment call.

    @property
    def behavior_specs(self) -> BehaviorMapping:
        """Specifications by behavior name."""
        return BehaviorMapping(self._specs)

    def keep_8_bit_images(self) -> None:
        """Return 8-bit images as uint8, 0 to 255, instead of float32, 0 to 1.

        Raises:
            UnityEnvironmentException: The environment was already reset, so that its
                specifications can no longer change.
        """
        if self._has_begun:
            raise UnityEnvironmentException(
                "keep_8_bit_images() was called after the first reset. Call it before, because it "
                "changes the specifications."
            )
        self._keeps_8_bit_images = True
        self._makes_floats = False
        self.announce(self._announced.copy())

    def reset(self) -> None:
        """Begin a new episode for every agent; running episodes end without a terminal step."""
        self._require_open()
        self._has_begun = False  # so that the next step resets if `restart` raises
        self._hand_out(self.restart())

    def step(self) -> None:
        """Apply the actions, and simulate until an agent requests an action or its episode ends."""
        self._require_open()
        if not self._has_begun:
            self.reset()
            return
        self._has_begun = False
        self._hand_out(self.advance())

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the decision and terminal steps, which are empty before the first reset."""
        try:
            return self._current_steps[behavior_name]
        except KeyError:
            raise KeyError(unknown_behavior(behavior_name, self._specs)) from None

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set one row of actions for each agent that requests one."""
        self._actions.set(behavior_name, action, self._decisions(behavior_name))

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the action of one agent that requests one."""
        self._actions.set_for_agent(behavior_name, agent_id, action, self._decisions(behavior_name))

    def close(self) -> None:
        """Refuse further steps."""
        self._is_closed = True

    def _decisions(self, behavior_name: BehaviorName) -> DecisionSteps:
        return self._current_steps.get(behavior_name, _NO_STEPS)[0]

    def _require_open(self) -> None:
        if self._is_closed:
            raise UnityEnvironmentException("this environment is closed; create a new one")

    def _hand_out(self, reports: Mapping[BehaviorName, Report]) -> None:
        self._actions.clear()
        for name, empty in self._empty_steps.items():
            decisions, terminals = reports.get(name, _NO_REPORT)
            self._current_steps[name] = (
                empty[0] if decisions is None else decisions,
                empty[1] if terminals is None else terminals,
            )
            if self._makes_floats:
                for steps in self._current_steps[name]:
                    steps.obs = [as_floats(batch) for batch in steps.obs]
        self._has_begun = True


_NO_REPORT = Report()
_NO_SPEC = BehaviorSpec([], ActionSpec(0, ()))
_NO_STEPS = DecisionSteps.empty(_NO_SPEC), TerminalSteps.empty(_NO_SPEC)
"""Steps of an unknown behavior; `ActionBuffer` raises an error that names the behavior."""
