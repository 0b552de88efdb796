"""`Places`: the behaviors that a worker acts for, with their policies and their experience."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.collector import Activity, Collector
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Policy, Seat, SharedSeat
from mlagents.trainers.acting.roster import Roster
from mlagents.trainers.acting.script import ScriptedPolicy
from mlagents.trainers.acting.teams import Opponents, TeamSeat
from mlagents.trainers.data.segments import OpenSteps, Segments
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.fleet.messages import (
    Cut,
    Games,
    Gathered,
    Opposition,
    Post,
    Shipment,
    Target,
    TeamNews,
)
from mlagents_envs.base_env import BehaviorId, BehaviorName
from mlagents_envs.factories import find_factory

_LIFE_SHIFT = 44
"""Episodes and groups of a worker are numbered from `life << _LIFE_SHIFT`."""


@dataclass(slots=True)
class _Place:
    """A behavior of the worker, and its activity in the current collection."""

    policy: ActingPolicy
    collector: Collector
    version: int
    opponents: Opponents | None = None
    activities: list[Activity] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    n_finished: int = 0
    n_unfinished_before: int = 0

    @property
    def seat(self) -> Seat:
        """Seat of the agents that the trainer learns from."""
        policy: Policy = self.policy
        return Seat(policy, self.collector)

    def note(self) -> None:
        """Record the activity of agents since the last report."""
        activity = self.collector.activity()
        if activity.n_steps or len(activity.episode_return) or len(activity.group_return):
            self.activities.append(activity)
            self.n_finished += activity.n_steps

    def has_reached(self, target: Target, n_opposed: int) -> bool:
        """Return whether a target is reached, given the number of decisions of opponents."""
        n_unfinished = self.collector.n_unfinished
        made = self.n_finished + n_unfinished - self.n_unfinished_before
        held = self.collector.n_held + n_unfinished
        reached = (
            (held, target.held),
            (self.n_finished, target.finished),
            (made, target.made),
            (n_opposed, target.opposed),
        )
        return any(limit is not None and n >= limit for n, limit in reached)


class Places:
    """All behaviors that a worker acts for.

    Args:
        life: Number of the worker's process; see `Setup.life`.
    """

    def __init__(self, life: int) -> None:
        self._life = life
        self._places: dict[str, _Place] = {}
        self._teams: dict[BehaviorId, TeamSeat] = {}
        self._begins: Mapping[BehaviorId, tuple[int, ...]] = {}
        self._opposing: frozenset[BehaviorId] = frozenset()
        self._n_decisions: dict[BehaviorId, int] = {}
        """Number of decisions of each team before the current collection."""
        self._games: list[tuple[int, Games]] = []

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the behaviors."""
        return iter(self._places)

    @property
    def versions(self) -> dict[str, int]:
        """Version of the policy of each behavior."""
        return {name: place.version for name, place in self._places.items()}

    def has_seat(self, behavior: BehaviorName) -> bool:
        """Return whether the worker acts for a behavior."""
        who = BehaviorId.parse(behavior)
        place = self._places.get(who.name)
        return place is not None and (place.opponents is None or who in self._teams)

    def seat_of(self, player: int, behavior: BehaviorName) -> Seat | SharedSeat:
        """Return the seat of a behavior or, with self-play, the seats of a team."""
        who = BehaviorId.parse(behavior)
        team = self._teams.get(who)
        return self._places[who.name].seat if team is None else team

    def begin(self, post: Post, snapshot: Snapshot) -> None:
        """Add a behavior to act for."""
        spec = post.spec.action_spec

        def policy_of(
            snapshot: Snapshot, state: Mapping[str, Any] | None, *seed: int
        ) -> ActingPolicy:
            rng = np.random.default_rng((*post.seed, *seed))
            if state is not None:
                rng.bit_generator.state = dict(state)
            return ActingPolicy(snapshot, spec, deterministic=post.deterministic, rng=rng)

        policy = policy_of(snapshot, post.random_state)
        opponents = None
        if post.opponents is not None:
            name, state = post.opponents
            script = None
            if name is not None:
                function: Any = find_factory(name)
                script = ScriptedPolicy(name, function, spec)
            roster = Roster(lambda: policy.snapshot)
            opponents = Opponents(roster, policy_of(roster, state, 1), script)
        collector = Collector(post.spec, **post.needs._asdict())
        self._places[post.name] = _Place(policy, collector, -1, opponents)

    def renew(self, name: str, version: int, snapshot: Snapshot) -> None:
        """Act with a newer policy from now on."""
        place = self._places[name]
        place.policy.snapshot, place.version = snapshot, version

    def oppose(self, opposition: Opposition) -> None:
        """Begin a collection with the choices of self-play."""
        self._begins, self._opposing = opposition.begins, opposition.opposing
        for name, place in self._places.items():
            if place.opponents is None:
                continue
            snapshots = place.opponents.roster.snapshots
            for number in opposition.drops.get(name, ()):
                snapshots.pop(number, None)
            for number, pickled in opposition.snapshots.get(name, {}).items():
                snapshots[number] = pickle.loads(pickled)
        for who in self._begins:
            place = self._places[who.name]
            if who not in self._teams and place.opponents is not None:
                begins = self._who_begins_of(who)
                self._teams[who] = TeamSeat.of(place.seat, place.opponents, begins)
            if who in opposition.swaps:
                self._teams[who].swap()
        self._n_decisions = {who: team.n_decisions for who, team in self._teams.items()}

    def note(self, players: Iterable[int]) -> None:
        """Record the activity of agents in the reports of these players."""
        for player in players:
            games = {who: team.take_results(player) for who, team in self._teams.items()}
            if any(games.values()):
                self._games.append((player, games))
        for place in self._places.values():
            place.note()

    def has_reached(self, targets: Mapping[str, Target]) -> bool:
        """Return whether any behavior has reached its target."""
        return any(
            self._places[name].has_reached(target, self._n_opposed(name))
            for name, target in targets.items()
            if name in self._places
        )

    def add_entropies(self, entropies: Mapping[Policy, float]) -> None:
        """Add the mean entropy of decisions, in nats, by policy."""
        for place in self._places.values():
            if (entropy := entropies.get(place.policy)) is not None:
                place.entropies.append(entropy)

    def gather(self, name: str, ships: Shipment | None) -> Gathered:
        """Return the report on a behavior after a collection, and begin the next report."""
        place = self._places[name]
        collector = place.collector
        segments = None
        if ships is not None:
            segments = collector.take(at_least=1 if ships == "cut" else 0)
            place.note()
        if ships == "discard":
            segments = None
        activity = Activity.concatenate(place.activities)
        problems = list(collector.problems)
        collector.problems.clear()
        entropies = place.entropies
        place.activities, place.entropies, place.n_finished = [], [], 0
        place.n_unfinished_before = collector.n_unfinished
        opponents = place.opponents
        return Gathered(
            activity,
            collector.n_held,
            collector.n_unfinished,
            collector.n_vanished,
            problems,
            entropies,
            place.version,
            place.policy.rng.bit_generator.state,
            numbered(segments, self._life),
            None if opponents is None else opponents.policy.rng.bit_generator.state,
        )

    def has_enough(self, name: str, target: Target) -> bool:
        """Return whether the worker holds as many steps of a behavior as the target requires."""
        collector = self._places[name].collector
        return target.held is not None and collector.n_held + collector.n_unfinished >= target.held

    def take(self, name: str) -> Cut:
        """Cut and return the segments of a behavior, and the activity that cutting them adds."""
        place = self._places[name]
        segments = place.collector.take(at_least=1)
        place.n_unfinished_before = place.collector.n_unfinished
        return numbered(segments, self._life), place.collector.activity()

    def take_news(self) -> dict[BehaviorId, TeamNews]:
        """Return the report on each team after a collection."""
        return {
            who: TeamNews(team.n_decisions - self._n_decisions.get(who, 0), team.present)
            for who, team in self._teams.items()
        }

    def take_games(self) -> list[tuple[int, Games]]:
        """Return the games that ended since the last call, each with its player."""
        games, self._games = self._games, []
        return games

    def _n_opposed(self, name: str) -> int:
        return sum(
            team.n_decisions - self._n_decisions[who]
            for who, team in self._teams.items()
            if who.name == name and who in self._opposing
        )

    def _who_begins_of(self, who: BehaviorId) -> Callable[[int], int]:
        return lambda player: self._begins[who][player]


def numbered(segments: Segments | None, life: int) -> Segments | None:
    """Return segments with numbers of episodes and groups that are unique among all workers."""
    if segments is None or life == 0:
        return segments
    first = life << _LIFE_SHIFT

    def of_group(number: NDArray[np.int64]) -> NDArray[np.int64]:
        return number + np.where(number < 0, -first, first)

    still: OpenSteps | None = segments.open_steps
    if still is not None:
        still = still._replace(group=of_group(still.group), episode=still.episode + first)
    return replace(
        segments,
        episode=segments.episode + first,
        group=of_group(segments.group),
        open_steps=still,
    )
