"""`EnvManager`: the players of a run, seen as one source of steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from mlagents_envs.base_env import (
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)


class PlayerSteps(NamedTuple):
    """What one player reported: after its reset, or after one step.

    Attributes:
        player: Which one, counted from 0.
        steps: Who asks for an action and who ended, by behavior.
    """

    player: int
    steps: dict[BehaviorName, tuple[DecisionSteps, TerminalSteps]]


class EnvManager(ABC):
    """Steps one or several players. Every report of a player is answered by actions for it."""

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""

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
