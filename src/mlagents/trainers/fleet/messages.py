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
"""Segments that a worker hands over after a collection. `cut` stands for all segments, with
unfinished ones cut. `finished` stands for finished segments. With `discard`, finished segments are
dropped, because the behavior no longer learns."""


class Setup(NamedTuple):
    """Setup of the process of a worker.

    Attributes:
        options: Options of the run, with its seed.
        worker: Number of the worker, from 0.
        life: Number of the process, unique among the processes of all workers. The first process
            of worker k has life k.
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
"""Segments of a behavior, with unfinished ones cut, and the activity that cutting adds."""


class OpponentsPost(NamedTuple):
    """Policies for the agents of a behavior that the trainer does not learn from.

    Attributes:
        script: Name of a scripted opponent, if there is one.
        random_state: State of the random generator that samples their actions; None for a new
            generator.
    """

    script: str | None
    random_state: Mapping[str, Any] | None


class Post(NamedTuple):
    """A behavior that a worker acts for.

    Attributes:
        name: Name of the behavior, without a team.
        spec: Observations and actions.
        needs: Requirements of its learner for the collector.
        deterministic: Whether to take the most likely action.
        seed: Seed of the random generator that samples actions.
        random_state: State of that generator; None for a new generator.
        opponents: Policies of opponents; None without self-play.
    """

    name: str
    spec: BehaviorSpec
    needs: Needs
    deterministic: bool
    seed: tuple[int, ...]
    random_state: Mapping[str, Any] | None
    opponents: OpponentsPost | None = None


class Target(NamedTuple):
    """Numbers of steps of a behavior after which a collection ends; None for no limit.

    Attributes:
        held: Number of completed steps that the worker holds, including those of earlier
            collections. When it holds so many, it cuts them and sends them with its answer.
        finished: Number of steps in segments that finished in this collection.
        made: Number of steps that agents took in this collection.
        opposed: Number of decisions of opponents in this collection.
        ships: Segments to hand over; None for none.
    """

    held: int | None = None
    finished: int | None = None
    made: int | None = None
    opposed: int | None = None
    ships: Shipment | None = None


class Opposition(NamedTuple):
    """Choices of self-play for a collection. Numbers of policies are as in `Lineup`.

    Attributes:
        begins: Number of the policy for new episodes, for each player of the worker, by team.
        opposing: Teams whose agents act as opponents.
        swaps: Teams whose unfinished episodes continue with the policies for new episodes.
        snapshots: Pickled snapshots that are new to the worker, by behavior and number.
        drops: Numbers of snapshots that no agent uses any more, by behavior.
    """

    begins: Mapping[BehaviorId, tuple[int, ...]] = {}
    opposing: frozenset[BehaviorId] = frozenset()
    swaps: frozenset[BehaviorId] = frozenset()
    snapshots: Mapping[str, Mapping[int, bytes]] = {}
    drops: Mapping[str, frozenset[int]] = {}


class Order(NamedTuple):
    """Order to a worker for one collection.

    Attributes:
        targets: Targets by behavior. The first one reached ends the collection. With None, the
            players are reset and nothing is collected.
        posts: Behaviors to act for from now on.
        versions: Versions of the policies to wait for before the first decision, by behavior.
        parameters: Environment parameters to set.
        reset: Whether to reset the players first.
        opposition: Choices of self-play.
    """

    targets: dict[str, Target] | None
    posts: tuple[Post, ...] = ()
    versions: Mapping[str, int] = {}
    parameters: Mapping[str, Sampler] = {}
    reset: bool = False
    opposition: Opposition = Opposition()


class Gathered(NamedTuple):
    """Report of a worker on one behavior after a collection.

    Attributes:
        activity: Steps and episodes of agents in the collection.
        n_held: Number of steps in finished segments that the worker still holds.
        n_unfinished: Number of completed steps in unfinished segments.
        n_vanished: Number of agents that have vanished so far.
        problems: Unusual ends of the episodes of groups.
        entropies: Mean entropies of the decisions, in nats.
        version: Version of the policy that acted.
        random_state: State of the random generator that samples actions.
        segments: Segments handed over, if any.
        random_state_of_opponents: State of the random generator that samples the actions of
            opponents; None without self-play.
        cut: Result of `RolloutWorker.take` after the collection; None if it was not called.
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
    """Report of a worker on one team after a collection.

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
        seconds: Duration of the collection.
        teams: Report on each team, with self-play.
        games: Games that ended, each with its player, oldest first.
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
        node: Words for the node of a cluster that ran the worker; empty without a cluster.
    """

    error: Exception
    trace: str
    node: str = ""
