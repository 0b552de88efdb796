"""`RemoteTeams`: self-play of agents that act in workers.

The league of the run decides here; see `Lineup`. Workers receive these decisions with each order:
the policies for new episodes, and the snapshots among them that a worker does not have yet. They
return the results of games and the policies that still act.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from mlagents.games import GameResult
from mlagents.trainers.acting.teams import Limits, Lineup
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.fleet.handle import WorkerHandle
from mlagents.trainers.fleet.messages import Games, Harvest, OpponentsPost, Opposition, TeamNews
from mlagents_envs.base_env import BehaviorId


class RemoteTeam:
    """A team whose agents act in workers; a `Team` of the league.

    Args:
        lineup: Choices of the league.
        assigned: Function that returns the policies of the team in unanswered orders.

    Attributes:
        lineup: Choices of the league.
        n_decisions: Number of decisions for agents of the team so far.
    """

    def __init__(self, lineup: Lineup, assigned: Callable[[], set[int]]) -> None:
        self.lineup = lineup
        self.n_decisions = 0
        self._assigned = assigned
        self._present: dict[int, set[int]] = {}
        """Policies in unfinished episodes of each worker."""
        self._results: dict[int, deque[list[GameResult]]] = {}
        """Results in each player's reports that the league has not taken yet."""
        self._swapping: set[int] = set()
        """Workers whose unfinished episodes continue with the policies for new episodes."""

    @property
    def present(self) -> set[int]:
        """Numbers of the policies in all unfinished episodes."""
        return self._assigned().union(*self._present.values())

    def take_results(self, player: int) -> list[GameResult]:
        """Return the results in the oldest report that has not been taken yet."""
        results = self._results.get(player)
        return results.popleft() if results else []

    def swap(self) -> None:
        """Continue all episodes with the policies for new episodes."""
        self._swapping = set(self._present)

    def take_swap(self, worker: int) -> bool:
        """Return whether the unfinished episodes of a worker must change policies, once."""
        swaps = worker in self._swapping
        self._swapping.discard(worker)
        return swaps

    def take_in(self, worker: int, news: TeamNews) -> None:
        """Add the report of a worker after a collection."""
        self.n_decisions += news.n_decisions
        self._present[worker] = news.present

    def add_results(self, player: int, results: list[GameResult]) -> None:
        """Add the results of another report of a player."""
        self._results.setdefault(player, deque()).append(results)

    def lose(self, worker: int) -> None:
        """Forget the unfinished episodes of a worker, because it has ended."""
        self._present.pop(worker, None)
        self._swapping.discard(worker)


class RemoteTeams:
    """All teams of a run whose agents act in workers.

    Args:
        workers: All workers.
        n_players: Number of players of each worker.
    """

    def __init__(self, workers: Sequence[WorkerHandle], *, n_players: int) -> None:
        self._workers = workers
        self._n_players = n_players
        self._teams: dict[BehaviorId, RemoteTeam] = {}
        self._pickled: dict[str, dict[int, bytes]] = {}

    def add(self, behavior: BehaviorId, lineup: Lineup) -> RemoteTeam:
        """Return a new team."""

        def assigned() -> set[int]:
            orders = (order for worker in self._workers for order in worker.orders)
            return {who for order in orders for who in order.opposition.begins.get(behavior, ())}

        team = self._teams[behavior] = RemoteTeam(lineup, assigned)
        return team

    def limits(self, name: str) -> Limits | None:
        """Return the current limits of a behavior's self-play; None without self-play."""
        lineup = self._lineup(name)
        return None if lineup is None else lineup.limits()

    def post(self, name: str, *, continues: bool) -> OpponentsPost | None:
        """Return the policies of a behavior's opponents for a worker; None without self-play.

        Args:
            name: Name of the behavior.
            continues: Whether the worker continues the random numbers of this process.
        """
        lineup = self._lineup(name)
        if lineup is None:
            return None
        policy, script = lineup.opponents.policy, lineup.opponents.script
        state = policy.rng.bit_generator.state if continues else None
        return OpponentsPost(None if script is None else script.name, state)

    def opposition(self, worker: WorkerHandle) -> Opposition:
        """Return the choices of self-play for the next collection of a worker.

        Opponents are drawn here, for one player after another.
        """
        begins: dict[BehaviorId, list[int]] = {behavior: [] for behavior in self._teams}
        first = worker.number * self._n_players
        for player in range(first, first + self._n_players):
            for behavior, team in self._teams.items():
                begins[behavior].append(team.lineup.who_begins(player))
        snapshots: dict[str, dict[int, bytes]] = {}
        drops: dict[str, frozenset[int]] = {}
        for name in {behavior.name for behavior in self._teams}:
            lineup = self._lineup(name)
            assert lineup is not None
            known = lineup.opponents.roster.snapshots
            held = worker.snapshots.setdefault(name, set())
            if gone := held - known.keys():
                drops[name] = frozenset(gone)
                held -= gone
            needed = {
                who for behavior, each in begins.items() if behavior.name == name for who in each
            }
            if new := (needed & known.keys()) - held:
                snapshots[name] = self._pickle(name, known, new)
                held |= new
        return Opposition(
            {behavior: tuple(each) for behavior, each in begins.items()},
            frozenset(who for who, team in self._teams.items() if not team.lineup.learns()),
            frozenset(who for who, team in self._teams.items() if team.take_swap(worker.number)),
            snapshots,
            drops,
        )

    def take_in(self, worker: WorkerHandle, harvest: Harvest) -> list[int]:
        """Add the result of a worker's collection.

        Returns:
            Number of the player of each report in which games ended, oldest first.
        """
        for behavior, news in harvest.teams.items():
            self._teams[behavior].take_in(worker.number, news)
        first = worker.number * self._n_players
        players = [first + player for player, _ in harvest.games]
        results: Iterable[Games] = (games for _, games in harvest.games)
        for player, games in zip(players, results, strict=True):
            for behavior, team in self._teams.items():
                team.add_results(player, games.get(behavior, []))
        for name, gathered in harvest.gathered.items():
            lineup = self._lineup(name)
            if lineup is not None and worker.life == 0 and gathered.random_state_of_opponents:
                rng = lineup.opponents.policy.rng
                rng.bit_generator.state = dict(gathered.random_state_of_opponents)
        return players

    def lose(self, worker: int) -> None:
        """Forget the unfinished episodes of a worker, because it has ended."""
        for team in self._teams.values():
            team.lose(worker)

    def _lineup(self, name: str) -> Lineup | None:
        """Return the lineup of any team of a behavior: all have the same opponents and limits."""
        lineups = (team.lineup for behavior, team in self._teams.items() if behavior.name == name)
        return next(lineups, None)

    def _pickle(
        self, name: str, known: Mapping[int, Snapshot], numbers: Iterable[int]
    ) -> dict[int, bytes]:
        """Return pickled snapshots. Each is pickled only once for all workers."""
        pickled = self._pickled.setdefault(name, {})
        for number in pickled.keys() - known.keys():
            del pickled[number]
        for number in numbers:
            if number not in pickled:
                pickled[number] = pickle.dumps(known[number], pickle.HIGHEST_PROTOCOL)
        return {number: pickled[number] for number in numbers}
