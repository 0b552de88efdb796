"""Messages between a run and its rollout workers. All of them can be pickled."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from mlagents.trainers.acting.collector import Activity, Needs
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.parameters import Sampler
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BehaviorName, BehaviorSpec
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


class Post(NamedTuple):
    """A behavior that a worker acts for.

    Attributes:
        name: Name of the behavior, without a team.
        spec: Observations and actions.
        needs: What its learner needs from a collector.
        deterministic: Whether to take the likeliest action.
        seed: Seed of the generator of samples.
        random_state: State of that generator, if it continues; otherwise None.
    """

    name: str
    spec: BehaviorSpec
    needs: Needs
    deterministic: bool
    seed: tuple[int, ...]
    random_state: Mapping[str, Any] | None


class Target(NamedTuple):
    """Steps of a behavior after which a collection ends; None for no such end.

    Attributes:
        held: Closed steps that the worker holds, from earlier collections too.
        finished: Steps of segments that finished in this collection.
        made: Steps that agents took in this collection.
        ships: Segments to hand over; None for none.
    """

    held: int | None = None
    finished: int | None = None
    made: int | None = None
    ships: Shipment | None = None


class Order(NamedTuple):
    """One collection.

    Attributes:
        targets: Ends of the collection, by behavior; the first one reached ends it. Without
            targets, the players are reset and nothing is collected.
        posts: Behaviors to act for from now on.
        versions: Policies to wait for before the first decision, by behavior.
        parameters: Environment parameters to set.
        reset: Whether to reset the players first.
    """

    targets: dict[str, Target] | None
    posts: tuple[Post, ...] = ()
    versions: Mapping[str, int] = {}
    parameters: Mapping[str, Sampler] = {}
    reset: bool = False


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


class Harvest(NamedTuple):
    """Result of a collection.

    Attributes:
        specs: Behaviors that players have announced, if there are new ones.
        gathered: Results by behavior.
        statistics: Statistics of each player since the last harvest.
        logs: Messages for the log, each with its level.
        seconds: Time that the collection took.
    """

    specs: dict[BehaviorName, BehaviorSpec]
    gathered: dict[str, Gathered]
    statistics: dict[int, EnvironmentStats]
    logs: list[tuple[int, str]]
    seconds: float


class Failure(NamedTuple):
    """An error in a worker.

    Attributes:
        error: The error, or one with the same text if it cannot be pickled.
        trace: Traceback in the worker.
    """

    error: Exception
    trace: str
