"""`EnvManager`: the players of a run, seen as one source of steps."""

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
    """What one player reported: after its reset, or after one step.

    Attributes:
        player: Which one, counted from 0.
        steps: Who asks for an action and who ended, by behavior.
        is_new: Whether all its episodes begin here, after a reset or a restart: what was
            unfinished before is void.
        statistics: What the simulation recorded about itself since its last report.
    """

    player: int
    steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]]
    is_new: bool = False
    statistics: EnvironmentStats = NO_STATISTICS


class EnvManager(ABC):
    """Steps one or several players. Every report of a player is answered by actions for it."""

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""

    @abstractmethod
    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Tell all players, also those started later, their environment parameters.

        They travel with the next message to each: the first ones are set before `reset`. Those
        that are not among `parameters` stay as they are.
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin all episodes of all players anew."""

    @abstractmethod
    def receive(self) -> list[PlayerSteps]:
        """Wait until at least one player has something to report; return all that have."""

    @abstractmethod
    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Give a player that reported its actions and let it go on."""

    @abstractmethod
    def close(self) -> None:
        """Close all players. Calling it again does nothing."""


def send_parameters(receiver: ParameterReceiver, parameters: Mapping[str, Sampler]) -> None:
    """Tell a side channel, or an environment in this process, where its parameters come from."""
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
