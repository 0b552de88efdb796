"""`OfflineEnvManager`: replaces the players of a run that learns only from demonstrations."""

from collections.abc import Mapping

from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import (
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)


class OfflineEnvManager(EnvManager):
    """Source of reports without agents, so that trainers learn without an environment.

    Args:
        specs: Specifications of all behaviors, by name.
    """

    def __init__(self, specs: Mapping[BehaviorName, BehaviorSpec]) -> None:
        self._specs = specs

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors."""
        return self._specs

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Do nothing: there is no environment."""

    def reset(self) -> None:
        """Do nothing: there are no episodes."""

    def receive(self) -> list[PlayerSteps]:
        """Return a report without agents for every behavior."""
        steps = {
            name: (DecisionSteps.empty(spec), TerminalSteps.empty(spec))
            for name, spec in self._specs.items()
        }
        return [PlayerSteps(0, steps)]

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Do nothing: there are no agents."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
