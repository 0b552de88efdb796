"""`EnvManager`: all players of a run as one source of steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from mlagents.trainers.settings.parameters import (
    ConstantParameters,
    GaussianParameters,
    MultiRangeUniformParameters,
    Sampler,
    UniformParameters,
)
from mlagents_envs.base_env import (
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.side_channel.environment_parameters_channel import ParameterReceiver
from mlagents_envs.side_channel.stats_side_channel import EnvironmentStats

NO_STATISTICS: EnvironmentStats = {}


class PlayerSteps(NamedTuple):
    """Report of one player after a reset or a step.

    Attributes:
        player: Number of the player, from 0.
        steps: Decision steps and terminal steps, by behavior.
        is_new: Whether the report follows a reset or a restart. If so, all episodes begin here, and
            earlier unfinished episodes must be dropped.
        statistics: Statistics that the simulation recorded since its last report.
    """

    player: int
    steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]]
    is_new: bool = False
    statistics: EnvironmentStats = NO_STATISTICS


class EnvManager(ABC):
    """Interface to one or several players. The caller answers every report with actions."""

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""

    @property
    def shown(self) -> object:
        """Environment of the first player, for viewing; None if it plays in another process."""
        return None

    @abstractmethod
    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players, including those started later.

        They are sent with the next message to each player, so set initial parameters before
        `reset`. Parameters missing from `parameters` do not change.
        """

    @abstractmethod
    def reset(self) -> None:
        """Reset all players, which restarts all episodes."""

    @abstractmethod
    def receive(self) -> list[PlayerSteps]:
        """Wait until at least one player has a report; return all reports."""

    @abstractmethod
    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Send actions to a player that reported, and start its next step."""

    @abstractmethod
    def close(self) -> None:
        """Close all players. Calling it again does nothing."""


def send_parameters(receiver: ParameterReceiver, parameters: Mapping[str, Sampler]) -> None:
    """Send the samplers of parameters to a side channel or an environment in this process."""
    for name, sampler in parameters.items():
        match sampler.sampler_parameters:
            case ConstantParameters(value=value):
                receiver.set_float_parameter(name, value)
            case UniformParameters(min_value=lower, max_value=upper, seed=seed):
                receiver.set_uniform_sampler_parameters(name, lower, upper, seed)
            case GaussianParameters(mean=mean, st_dev=st_dev, seed=seed):
                receiver.set_gaussian_sampler_parameters(name, mean, st_dev, seed)
            case MultiRangeUniformParameters(intervals=intervals, seed=seed):
                receiver.set_multirangeuniform_sampler_parameters(name, intervals, seed)
