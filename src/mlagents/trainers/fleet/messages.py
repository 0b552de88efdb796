"""Messages between a run and its rollout workers. All of them can be pickled."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mlagents.games import GameResult
from mlagents.trainers.acting.collector import Activity, Needs
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.parameters import Sampler
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BehaviorId, BehaviorName, BehaviorSpec
from mlagents_envs.side_channel.stats_side_channel import EnvironmentStats

Shipment = Literal["cut", "finished", "discard"]
"""Segments that a worker hands over after a collection: all, with unfinished ones cut; finished
ones; or none, and finished ones are dropped, because the behavior has finished learning."""


class Setup(NamedTuple):
    """What a worker needs to begin.

    Attributes:
        options: Options of the run, with its seed.
        worker: Number of the worker, from 0.
        life: Number that no other worker has had, nor an earlier process of this one. The first
            process of worker k has life k.
        log_folder: Folder for the logs of players.
        sources: Folders to import environments from.
        version: Version of this package on the head.
    """

    options: RunOptions
    worker: int
    life: int
    log_folder: str
    sources: tuple[str, ...]
    version: str


Cut = tuple[Segments | None, Activity]
"""Segments of a behavior with unfinished ones cut, and the activity that cutting adds."""


class OpponentsPost(NamedTuple):
    """Policies for the agents of a behavior that are not learned from.

    Attributes:
        script: Name of a scripted opponent, if there is one.
        random_state: State of the generator of their samples, if it continues; otherwise None.
    """

    script: str | None
    random_state: Mapping[str, Any] | None


class Post(NamedTuple):
    """A behavior that a worker acts for.

    Attributes:
        name: Name of the behavior, without a team.
        spec: Observations and actions.
        needs: What its learner needs from a collector.
        deterministic: Whether to take the likeliest action.
        seed: Seed of the generator of samples.
        random_state: State of that generator, if it continues; otherwise None.
        opponents: Policies of opponents, with self-play.
    """

    name: str
    spec: BehaviorSpec
    needs: Needs
    deterministic: bool
    seed: tuple[int, ...]
    random_state: Mapping[str, Any] | None
    opponents: OpponentsPost | None = None


class Target(NamedTuple):
    """Steps of a behavior after which a collection ends; None for no such end.

    Attributes:
        held: Closed steps that the worker holds, from earlier collections too. When it has so
            many, the worker cuts and sends them with its answer.
        finished: Steps of segments that finished in this collection.
        made: Steps that agents took in this collection.
        opposed: Decisions of opponents in this collection.
        ships: Segments to hand over; None for none.
    """

    held: int | None = None
    finished: int | None = None
    made: int | None = None
    opposed: int | None = None
    ships: Shipment | None = None


class Opposition(NamedTuple):
    """Self-play in a collection. `LEARNER`, `LATEST` and `SCRIPT` are policies too; see `Lineup`.

    Attributes:
        begins: Number of the policy for episodes that begin, for each player of the worker, by
            team.
        opposing: Teams whose decisions are those of opponents.
        swaps: Teams whose unfinished episodes continue by the policies for new ones.
        snapshots: Pickled snapshots that are new to the worker, by behavior and number.
        drops: Numbers of snapshots that no agent acts by any more, by behavior.
    """

    begins: Mapping[BehaviorId, tuple[int, ...]] = {}
    opposing: frozenset[BehaviorId] = frozenset()
    swaps: frozenset[BehaviorId] = frozenset()
    snapshots: Mapping[str, Mapping[int, bytes]] = {}
    drops: Mapping[str, frozenset[int]] = {}


class Order(NamedTuple):
    """One collection.

    Attributes:
        targets: Ends of the collection, by behavior; the first one reached ends it. Without
            targets, the players are reset and nothing is collected.
        posts: Behaviors to act for from now on.
        versions: Policies to wait for before the first decision, by behavior.
        parameters: Environment parameters to set.
        reset: Whether to reset the players first.
        opposition: Self-play.
    """

    targets: dict[str, Target] | None
    posts: tuple[Post, ...] = ()
    versions: Mapping[str, int] = {}
    parameters: Mapping[str, Sampler] = {}
    reset: bool = False
    opposition: Opposition = Opposition()


class Gathered(NamedTuple):
    """What a worker tells of one behavior after a collection.

    Attributes:
        activity: What agents did in the collection.
        n_held: Steps of finished segments that the worker still holds.
        n_unfinished: Closed steps in unfinished segments.
        n_vanished: Number of agents that have vanished so far.
        problems: Unusual ends of the episodes of groups.
        entropies: Mean entropies of the decisions, in nats.
        version: Policy that decided.
        random_state: State of the generator of samples.
        segments: Segments handed over, if any.
        random_state_of_opponents: State of the generator of opponents' samples, with self-play.
        cut: What `RolloutWorker.take` returned after the collection; None if it was not called.
    """

    activity: Activity
    n_held: int
    n_unfinished: int
    n_vanished: int
    problems: list[str]
    entropies: list[float]
    version: int
    random_state: Mapping[str, Any]
    segments: Segments | None
    random_state_of_opponents: Mapping[str, Any] | None = None
    cut: Cut | None = None


class TeamNews(NamedTuple):
    """What a worker tells of one team after a collection.

    Attributes:
        n_decisions: Number of decisions for agents of the team in the collection.
        present: Numbers of the policies in all unfinished episodes.
    """

    n_decisions: int
    present: set[int]


Games = dict[BehaviorId, list[GameResult]]
"""Results of the games that ended in one report of a player, by team."""


class Harvest(NamedTuple):
    """Result of a collection.

    Attributes:
        specs: Behaviors that players have announced, if there are new ones.
        gathered: Results by behavior.
        statistics: Statistics of each player since the last harvest.
        logs: Messages for the log, each with its level.
        seconds: Time that the collection took.
        teams: News of each team, with self-play.
        games: Games that ended, each with its player, the oldest first.
    """

    specs: dict[BehaviorName, BehaviorSpec]
    gathered: dict[str, Gathered]
    statistics: dict[int, EnvironmentStats]
    logs: list[tuple[int, str]]
    seconds: float
    teams: dict[BehaviorId, TeamNews]
    games: list[tuple[int, Games]]


class Failure(NamedTuple):
    """An error in a worker.

    Attributes:
        error: The error, or one with the same text if it cannot be pickled.
        trace: Traceback in the worker.
    """

    error: Exception
    trace: str
