"""`SimpleEnvManager`: steps one environment in this process."""

from collections.abc import Mapping

from mlagents.trainers.players.env_manager import (
    NO_STATISTICS,
    EnvManager,
    PlayerSteps,
    send_parameters,
)
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import ActionTuple, BaseEnv, BehaviorName, BehaviorSpec
from mlagents_envs.checked_env import checked, unwrapped
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.environment_parameters_channel import ParameterReceiver
from mlagents_envs.side_channel.stats_side_channel import StatsSource
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class SimpleEnvManager(EnvManager):
    """Steps one environment in this process, as player 0.

    Args:
        env: Environment to step. The manager closes it.
    """

    def __init__(self, env: BaseEnv) -> None:
        self._env = checked(env)
        own = unwrapped(env)
        self._stats_source = own if isinstance(own, StatsSource) else None
        self._parameter_receiver = own if isinstance(own, ParameterReceiver) else None
        self._kind = type(own).__name__
        self._is_stepping = False
        self._is_new = False
        self._has_warned = False

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._env.behavior_specs

    @property
    def shown(self) -> object:
        """The environment, for viewing."""
        return unwrapped(self._env)

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Pass parameters to the environment; warn once if it does not support parameters."""
        if self._parameter_receiver is not None:
            send_parameters(self._parameter_receiver, parameters)
        elif parameters and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"{self._kind} does not support environment parameters while it runs. Of "
                f"{', '.join(parameters)}, only initial constants have an effect, if its factory "
                "accepts them. To support all parameters, implement "
                "mlagents_envs.side_channel.environment_parameters_channel.ParameterReceiver."
            )

    def reset(self) -> None:
        """Reset the environment, which restarts all episodes."""
        with hierarchical_timer("reset"):
            self._env.reset()
        self._is_stepping = False
        self._is_new = True

    def receive(self) -> list[PlayerSteps]:
        """Finish a step that `send` began, and return the report."""
        if self._is_stepping:
            with hierarchical_timer("env_step"):
                self._env.step_receive()
            self._is_stepping = False
        is_new, self._is_new = self._is_new, False
        steps = {name: self._env.get_steps(name) for name in self.behavior_specs}
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
