"""One environment, in this process."""

from collections.abc import Mapping

import numpy as np

from mlagents.trainers.rollout.env_manager import (
    NO_STATISTICS,
    EnvManager,
    PlayerSteps,
    send_parameters,
)
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import (
    ActionTuple,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.exception import UnityNonFiniteException, UnityObservationException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.environment_parameters_channel import ParameterReceiver
from mlagents_envs.side_channel.stats_side_channel import StatsSource
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class SimpleEnvManager(EnvManager):
    """Player 0 and no other.

    Args:
        env: Closed together with the manager.
    """

    def __init__(self, env: BaseEnv) -> None:
        self._env = env
        self._stats_source = env if isinstance(env, StatsSource) else None
        self._is_stepping = False
        self._is_new = False
        self._has_warned = False

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._env.behavior_specs

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Tell the environment its parameters, if it obeys any; else warn, once."""
        if isinstance(self._env, ParameterReceiver):
            send_parameters(self._env, parameters)
        elif parameters and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"{type(self._env).__name__} does not obey environment parameters while it runs. "
                f"Constants are handed to what makes it, if that takes them; all else is ignored "
                f"of {', '.join(parameters)}. To obey them, it needs the methods of "
                "mlagents_envs.side_channel.environment_parameters_channel.ParameterReceiver."
            )

    def reset(self) -> None:
        """Begin all episodes anew."""
        with hierarchical_timer("reset"):
            self._env.reset()
        self._is_stepping = False
        self._is_new = True

    def receive(self) -> list[PlayerSteps]:
        """Finish the step that `send` began, if there is one, and report."""
        if self._is_stepping:
            with hierarchical_timer("env_step"):
                self._env.step_receive()
            self._is_stepping = False
        is_new, self._is_new = self._is_new, False
        steps = {name: self._env.get_steps(name) for name in self.behavior_specs}
        for name, spec in self.behavior_specs.items():
            for reported in steps[name]:
                _require_sound(name, spec, reported)
        source = self._stats_source
        statistics = NO_STATISTICS if source is None else source.get_and_reset_stats()
        return [PlayerSteps(0, steps, is_new, statistics)]

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Set actions and begin a step."""
        for behavior, action in actions.items():
            self._env.set_actions(behavior, action)
        self._env.step_send()
        self._is_stepping = True

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _require_sound(
    behavior: BehaviorName, spec: BehaviorSpec, steps: DecisionSteps | TerminalSteps
) -> None:
    """Raise what a process of its own would have said of rewards and shapes.

    Raises:
        UnityObservationException: An observation is missing, or has another shape.
        UnityNonFiniteException: A reward is NaN or infinite.
    """
    n = len(steps)
    if not n:
        return
    found = [batch.shape for batch in steps.obs]
    expected = [(n, *observation.shape) for observation in spec.observation_specs]
    if found != expected:
        raise UnityObservationException(
            f"behavior {behavior!r}: the observations of {n} agents have the shapes {found}; "
            f"those specified are {expected}"
        )
    is_finite = np.isfinite(steps.reward + steps.group_reward)
    if np.count_nonzero(is_finite) < n:
        row = is_finite.argmin()
        raise UnityNonFiniteException(
            f"behavior {behavior!r}: agent {steps.agent_id[row]} has the reward "
            f"{steps.reward[row]} and the group reward {steps.group_reward[row]}; both must be "
            "finite"
        )
