"""Environment manager with some players in this process and others in separate processes."""

from collections.abc import Mapping, Sequence

from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.players.pool import PlayerPool
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import ActionTuple, BehaviorName, BehaviorSpec


class MixedEnvManager(EnvManager):
    """Steps some players in this process while other processes step the rest.

    Args:
        here: Managers of one player each in this process, for the first workers.
        elsewhere: Manager of the players of all other workers.
    """

    def __init__(self, here: Sequence[SimpleEnvManager], elsewhere: PlayerPool) -> None:
        self._here = here
        self._elsewhere = elsewhere
        self._managers: list[EnvManager] = [*here, elsewhere]

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return {
            name: spec
            for manager in self._managers
            for name, spec in manager.behavior_specs.items()
        }

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players."""
        for manager in self._managers:
            manager.set_parameters(parameters)

    def reset(self) -> None:
        """Reset all players, so that all episodes begin again."""
        for manager in self._managers:
            manager.reset()

    def receive(self) -> list[PlayerSteps]:
        """Step all players of this process; return their reports and all others available."""
        reports = [
            report._replace(player=worker)
            for worker, manager in enumerate(self._here)
            for report in manager.receive()
        ]
        return reports + self._elsewhere.receive(wait=False)

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Send actions to a player that reported, and start its next step."""
        if player < len(self._here):
            self._here[player].send(0, actions)
        else:
            self._elsewhere.send(player, actions)

    def close(self) -> None:
        """Close all players. Calling it again does nothing."""
        for manager in self._managers:
            manager.close()
