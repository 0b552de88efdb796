"""Some players in this process, the others in processes of their own."""

from collections.abc import Mapping, Sequence

from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.players.pool import PlayerPool
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import ActionTuple, BehaviorName, BehaviorSpec


class MixedEnvManager(EnvManager):
    """Plays a part of the players itself while the others compute, instead of waiting for them.

    Args:
        here: Each has one player, of the workers from 0 on.
        elsewhere: Has those of all other workers.
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
        """Tell all players their environment parameters."""
        for manager in self._managers:
            manager.set_parameters(parameters)

    def reset(self) -> None:
        """Begin all episodes of all players anew."""
        for manager in self._managers:
            manager.reset()

    def receive(self) -> list[PlayerSteps]:
        """Step all players that are here; report them, and all others that have something to."""
        reports = [
            report._replace(player=worker)
            for worker, manager in enumerate(self._here)
            for report in manager.receive()
        ]
        return reports + self._elsewhere.receive(wait=False)

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Give a player that reported its actions and let it go on."""
        if player < len(self._here):
            self._here[player].send(0, actions)
        else:
            self._elsewhere.send(player, actions)

    def close(self) -> None:
        """Close all players. Calling it again does nothing."""
        for manager in self._managers:
            manager.close()
