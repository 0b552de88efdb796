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
    """What the agents of one behavior report in one step.

    Attributes:
        decisions: The agents that ask for an action; None for no agent.
        terminals: The agents whose episode ended; None for no agent.
    """

    decisions: DecisionSteps | None = None
    terminals: TerminalSteps | None = None


class LocalEnv(BaseEnv):
    """Base of worlds, adapters, and environments of your own.

    It keeps the specifications, the last report and the actions set. A subclass calls `announce`
    in its constructor and writes `restart` and `advance`.

    Images may be announced and reported as uint8, 0 to 255. They are handed out as float32, 0 to 1,
    unless `keep_8_bit_images` is called.
    """

    def __init__(self) -> None:
        self._announced: dict[BehaviorName, BehaviorSpec] = {}
        self._specs: dict[BehaviorName, BehaviorSpec] = {}  # as handed out
        self._empty_steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}
        self._current_steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]] = {}
        self._actions = ActionBuffer(self._specs, self.check_actions)
        self._keeps_8_bit_images = False
        self._makes_floats = False
        self._has_begun = False
        self._is_closed = False

    # What a subclass writes.

    @abstractmethod
    def restart(self) -> Mapping[BehaviorName, Report]:
        """Begin all episodes. Return a report for each behavior that has any."""

    @abstractmethod
    def advance(self) -> Mapping[BehaviorName, Report]:
        """Apply `take_actions` and go on until some agent asks or ended.

        Return a report for each behavior that has any.
        """

    def check_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Raise if the values of actions cannot be obeyed. Their shapes are right.

        Raises:
            UnityActionException: The text says which value, and what is allowed.
        """

    # What a subclass calls.

    def announce(self, specs: Mapping[BehaviorName, BehaviorSpec]) -> None:
        """Add behaviors. Each is announced once, at the latest before its first report."""
        self._announced.update(specs)
        for name, spec in specs.items():
            self._specs[name] = spec if self._keeps_8_bit_images else with_float_images(spec)
            self._makes_floats |= self._specs[name] != spec
            empty = DecisionSteps.empty(self._specs[name]), TerminalSteps.empty(self._specs[name])
            self._empty_steps[name] = self._current_steps[name] = empty

    def take_actions(self, behavior_name: BehaviorName) -> ActionTuple:
        """Return a row for each agent that asks; zeros where no action was set."""
        return self._actions.take(behavior_name, len(self._current_steps[behavior_name][0]))

    # What an environment offers.

    @property
    def behavior_specs(self) -> BehaviorMapping:
        """Specifications by behavior name."""
        return BehaviorMapping(self._specs)

    def keep_8_bit_images(self) -> None:
        """Hand out images of 8 bit as uint8, 0 to 255, rather than as float32, 0 to 1.

        Raises:
            UnityEnvironmentException: The environment has been reset: its specifications are known.
        """
        if self._has_begun:
            raise UnityEnvironmentException(
                "keep_8_bit_images() comes before the first reset: specifications never change"
            )
        self._keeps_8_bit_images = True
        self._makes_floats = False
        self.announce(self._announced.copy())

    def reset(self) -> None:
        """Begin a new episode for every agent; running ones vanish without a terminal step."""
        self._require_open()
        self._has_begun = False  # until all is done: after an error, the next step is a reset
        self._hand_out(self.restart())

    def step(self) -> None:
        """Apply the actions set and go on until some agent asks or ended."""
        self._require_open()
        if not self._has_begun:
            self.reset()
            return
        self._has_begun = False
        self._hand_out(self.advance())

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return who asks and who ended; no agent before the first reset."""
        try:
            return self._current_steps[behavior_name]
        except KeyError:
            raise KeyError(unknown_behavior(behavior_name, self._specs)) from None

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set one row per agent that asks."""
        self._actions.set(behavior_name, action, self._decisions(behavior_name))

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the row of one agent that asks."""
        self._actions.set_for_agent(behavior_name, agent_id, action, self._decisions(behavior_name))

    def close(self) -> None:
        """Refuse further steps."""
        self._is_closed = True

    def _decisions(self, behavior_name: BehaviorName) -> DecisionSteps:
        return self._current_steps.get(behavior_name, _NOBODY)[0]

    def _require_open(self) -> None:
        if self._is_closed:
            raise UnityEnvironmentException("this environment is closed; make a new one")

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
_NOBODY = DecisionSteps.empty(_NO_SPEC), TerminalSteps.empty(_NO_SPEC)
"""Steps of an unknown behavior, which `ActionBuffer` refuses by name."""
