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
"""Segments that a worker returns after a collection. `cut`: all, cutting unfinished segments.
`finished`: only finished segments. `discard`: none, and finished segments are dropped, because the
behavior has finished learning."""


class Setup(NamedTuple):
    """Information that a worker needs to begin.

    Attributes:
        options: Options of the run, with its seed.
        worker: Number of the worker, from 0.
        life: Unique number of the worker's process. The first process of worker k has life k.
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
        needs: Requirements of the learner for a collector.
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
    """Numbers of steps of a behavior at which a collection ends; None for no limit.

    Attributes:
        held: Closed steps that the worker holds, including earlier collections.
        finished: Steps in segments that finished in this collection.
        made: Steps that agents took in this collection.
        ships: Segments to return; None for none.
    """

    held: int | None = None
    finished: int | None = None
    made: int | None = None
    ships: Shipment | None = None


class Order(NamedTuple):
    """Request for one collection.

    Attributes:
        targets: Targets of the collection, by behavior. The first one reached ends it. If None, the
            players are reset and nothing is collected.
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
    """A worker's results for one behavior after a collection.

    Attributes:
        activity: Activity of the agents in the collection.
        n_held: Number of steps in finished segments that the worker still holds.
        n_unfinished: Number of closed steps in unfinished segments.
        n_vanished: Number of agents that have vanished so far.
        problems: Messages about wrongly ended episodes in groups.
        entropies: Mean entropies of the decisions, in nats.
        version: Version of the policy that decided.
        random_state: State of the random generator of samples.
        segments: Returned segments, if any.
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
