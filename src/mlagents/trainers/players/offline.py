"""No environment: behaviors that are known from their demonstrations, and nobody who plays them."""

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
    """A player 0 that never has an agent, so that trainers only learn.

    Args:
        specs: What the behaviors observe and do.
    """

    def __init__(self, specs: Mapping[BehaviorName, BehaviorSpec]) -> None:
        self._specs = specs

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors."""
        return self._specs

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Nothing obeys them."""

    def reset(self) -> None:
        """There is no episode."""

    def receive(self) -> list[PlayerSteps]:
        """Report of every behavior that nobody is there."""
        steps = {
            name: (DecisionSteps.empty(spec), TerminalSteps.empty(spec))
            for name, spec in self._specs.items()
        }
        return [PlayerSteps(0, steps)]

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Nobody acts."""

    def close(self) -> None:
        """Nothing is open."""
