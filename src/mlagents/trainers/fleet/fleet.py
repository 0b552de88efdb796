"""`Fleet`: the agents of a run, wherever they act; `LocalFleet`: in this process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from mlagents.trainers.acting.collector import Collector, Experience, Needs
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Policy, Rollout, Seat, SharedSeat
from mlagents.trainers.acting.teams import Lineup, Team, TeamSeat
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import BehaviorId, BehaviorName, BehaviorSpec
from mlagents_envs.side_channel.stats_side_channel import EnvironmentStats


class Learning(Protocol):
    """The properties of a behavior's trainer that a fleet uses."""

    name: str
    spec: BehaviorSpec
    policy: ActingPolicy
    needs: Needs

    @property
    def step(self) -> int:
        """Steps counted so far."""

    @property
    def is_learning(self) -> bool:
        """Whether the behavior continues to learn."""

    @property
    def steps_until_due(self) -> int:
        """Steps until the next summary or checkpoint, or the end of training."""


class PlayerReport(NamedTuple):
    """Statistics of a player since its last report.

    If the player reported several times, there is a `PlayerReport` for each report in which games
    of self-play ended.

    Attributes:
        player: Number of the player.
        statistics: Statistics that the simulation recorded.
    """

    player: int
    statistics: EnvironmentStats


class Fleet(ABC):
    """The agents of a run. The run calls `advance`, learns when due, and then calls `answer`."""

    @abstractmethod
    def open(
        self,
        *,
        enter: Callable[[BehaviorName], object],
        seat_of: Callable[[int, BehaviorName], Seat | SharedSeat],
        waiting: Callable[[], AbstractContextManager[object]],
        watches_episodes: bool,
    ) -> None:
        """Prepare for the run. This must be called first, and once.

        Args:
            enter: Function that creates the trainer of a new behavior.
            seat_of: Function that returns the seat of a behavior in a player of this process, and
                creates the trainer if necessary.
            waiting: Function that creates the context manager entered while waiting for players.
            watches_episodes: Whether decisions of the run depend on the returns of episodes, for
                example the beginning of a lesson.
        """

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""

    @abstractmethod
    def collect(self, trainer: Learning) -> Experience:
        """Return the experience of the agents of a behavior, when its trainer is created."""

    @abstractmethod
    def team(self, behavior: BehaviorId, trainer: Learning, lineup: Lineup) -> Team:
        """Return a team of a behavior with self-play, when it appears, after `collect`.

        Args:
            behavior: The behavior and its team.
            trainer: Trainer of the behavior.
            lineup: Choices of self-play for the team.
        """

    @abstractmethod
    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players; see `EnvManager.set_parameters`."""

    @abstractmethod
    def reset(self) -> None:
        """Restart all episodes of all players."""

    @abstractmethod
    def advance(self) -> list[PlayerReport]:
        """Wait until agents have acted; return the statistics of players."""

    @abstractmethod
    def answer(self) -> None:
        """Let agents continue with the current policies."""

    @abstractmethod
    def take_entropies(self) -> list[tuple[Policy, float]]:
        """Return the mean entropies, in nats, of the decisions since the last call, by policy."""

    @abstractmethod
    def close(self) -> None:
        """Close all players. Calling it again does nothing."""


class LocalFleet(Fleet):
    """All agents act in this process.

    Args:
        manager: Players of the run; the fleet closes them.
    """

    def __init__(self, manager: EnvManager) -> None:
        self._manager = manager
        self._entropies: list[tuple[Policy, float]] = []
        self._collectors: dict[str, Collector] = {}
        self._rollout: Rollout

    def open(
        self,
        *,
        enter: Callable[[BehaviorName], object],
        seat_of: Callable[[int, BehaviorName], Seat | SharedSeat],
        waiting: Callable[[], AbstractContextManager[object]],
        watches_episodes: bool,
    ) -> None:
        """Prepare for the run; see `Fleet.open`."""
        self._rollout = Rollout(self._manager, seat_of, waiting=waiting)

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._manager.behavior_specs

    def collect(self, trainer: Learning) -> Experience:
        """Return a collector of the behavior."""
        collector = Collector(trainer.spec, **trainer.needs._asdict())
        self._collectors[trainer.name] = collector
        return collector

    def team(self, behavior: BehaviorId, trainer: Learning, lineup: Lineup) -> Team:
        """Return the seats of a team; see `Fleet.team`."""
        learner = Seat(trainer.policy, self._collectors[trainer.name])
        return TeamSeat.of(learner, lineup.opponents, lineup.who_begins)

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players."""
        self._manager.set_parameters(parameters)

    def reset(self) -> None:
        """Restart all episodes of all players."""
        self._rollout.reset()

    def advance(self) -> list[PlayerReport]:
        """Wait for players; store and return what they report."""
        reports = self._rollout.advance()
        return [PlayerReport(each.player, each.statistics) for each in reports]

    def answer(self) -> None:
        """Decide for all agents that request a decision."""
        self._entropies += self._rollout.answer().items()

    def take_entropies(self) -> list[tuple[Policy, float]]:
        """Return the mean entropies, in nats, of the decisions since the last call, by policy."""
        entropies, self._entropies = self._entropies, []
        return entropies

    def close(self) -> None:
        """Close all players."""
        self._manager.close()
