"""`WatchedPlayers`: shows the first of several players in a live view."""

from collections.abc import Callable, Mapping

from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.settings.parameters import Sampler
from mlagents.viewing.stage import Probabilities, Stage, Steps
from mlagents_envs.base_env import ActionTuple, BehaviorName, BehaviorSpec

_PLAYER = 0
"""Number of the player to show."""


class WatchedPlayers(EnvManager):
    """Sends the first player's reports and actions to the live view.

    If that player is in this process, the view shows its scene. If it is in another process, the
    view shows its observations, actions and rewards.

    Args:
        players: Players to run.
        stage: Stage that receives the reports.

    Attributes:
        probabilities_of: Function that returns the probabilities of discrete choices for the
            player's steps, by behavior. It is called only if the view needs them.
    """

    def __init__(self, players: EnvManager, stage: Stage) -> None:
        self._players = players
        self._stage = stage
        self._steps: Steps = {}
        self.probabilities_of: Callable[[Steps], Probabilities] = lambda steps: {}

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._players.behavior_specs

    @property
    def shown(self) -> object:
        """Environment of the first player, for viewing; None if it plays in another process."""
        return self._players.shown

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players."""
        self._players.set_parameters(parameters)

    def reset(self) -> None:
        """Reset all players."""
        self._players.reset()

    def receive(self) -> list[PlayerSteps]:
        """Wait until at least one player has a report; return all reports."""
        reports = self._players.receive()
        if self._stage.is_watched:
            for report in reports:
                if report.player == _PLAYER:
                    self._steps = report.steps
        return reports

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Send actions to a player that reported, and start its next step."""
        if self._stage.is_watched and player == _PLAYER and self._steps:
            steps = self._steps
            self._stage.offer(
                self._players.shown,
                self._players.behavior_specs,
                steps,
                actions,
                lambda: self.probabilities_of(steps),
            )
        self._players.send(player, actions)

    def close(self) -> None:
        """Close all players."""
        self._players.close()
