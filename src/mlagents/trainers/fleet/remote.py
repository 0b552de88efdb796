"""`RemoteFleet`: agents that act in rollout workers, and what they collect.

In mode `sync`, all workers collect, then the learner learns, then all act by the new policy: the
experience of an update is that of one policy. In mode `async`, each worker has a second collection
waiting while the first runs, so it never waits for others or for the learner.
"""

import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mlagents.trainers.acting.collector import Activity, Experience
from mlagents.trainers.acting.rollout import Policy, Seat, SharedSeat
from mlagents.trainers.data.segments import OpenSteps, Segments
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fleet.fleet import Fleet, Learning, PlayerReport
from mlagents.trainers.fleet.messages import (
    Failure,
    Gathered,
    Harvest,
    Order,
    Post,
    Setup,
    Target,
)
from mlagents.trainers.fleet.workers import Gone, Workers
from mlagents.trainers.players.pool import RestartBudget
from mlagents.trainers.settings.parameters import Sampler
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs import __version__
from mlagents_envs.base_env import BehaviorName, BehaviorSpec
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)

DROPPED = "Workers/Dropped Steps"
"""Statistic: steps that were too old to be learned from."""

_AT_ONCE = 256
"""Steps of all workers after which a learner is called that learns at any time."""


class _Part(NamedTuple):
    """Segments of one worker, decided by one version of a policy."""

    worker: int
    version: int
    segments: Segments


class RemoteExperience:
    """Experience of the agents of a behavior in all workers.

    Args:
        fetch: Function that makes the workers hand over the segments of the behavior.
        max_staleness: Largest number of updates between the policy that decided and the present
            one. Older segments are dropped. None for no limit.

    Attributes:
        version: Number of the present policy.
        problems: Unusual ends of the episodes of groups.
        n_dropped: Number of steps dropped so far, because they were too old.
    """

    def __init__(self, fetch: Callable[[], None], *, max_staleness: int | None) -> None:
        self._fetch = fetch
        self._max_staleness = max_staleness
        self._parts: list[_Part] = []
        self._activities: list[Activity] = []
        self._held: dict[int, tuple[int, int]] = {}
        """Steps of finished and of unfinished segments that each worker holds."""
        self._vanished: dict[int, int] = {}
        self.version = -1
        self.problems: list[str] = []
        self.n_dropped = 0

    @property
    def n_held(self) -> int:
        """Steps of finished segments that are not taken yet."""
        return self.n_steps - self.n_unfinished

    @property
    def n_unfinished(self) -> int:
        """Closed steps in segments that are not finished."""
        return sum(n_unfinished for _, n_unfinished in self._held.values())

    @property
    def n_vanished(self) -> int:
        """Number of agents that have vanished so far."""
        return sum(self._vanished.values())

    @property
    def n_steps(self) -> int:
        """Steps here and in the workers."""
        here = sum(part.segments.n_steps for part in self._parts)
        return here + sum(sum(held) for held in self._held.values())

    def held_by(self, worker: int) -> int:
        """Return the number of steps that a worker holds."""
        return sum(self._held.get(worker, (0, 0)))

    def add(self, worker: int, gathered: Gathered) -> None:
        """Add the result of a collection."""
        self._activities.append(gathered.activity)
        self._held[worker] = gathered.n_held, gathered.n_unfinished
        self._vanished[worker] = gathered.n_vanished
        self.problems += gathered.problems
        if gathered.segments is not None:
            self._parts.append(_Part(worker, gathered.version, gathered.segments))

    def add_fetched(self, worker: int, segments: Segments | None, activity: Activity) -> None:
        """Add the segments that a worker handed over for an update."""
        self._activities.append(activity)
        self._held[worker] = 0, 0
        if segments is not None:
            self._parts.append(_Part(worker, self.version, segments))

    def lose(self, worker: int) -> None:
        """Forget what a worker held, because it has ended."""
        self._held.pop(worker, None)

    def activity(self) -> Activity:
        """Return the activity of agents since the last call."""
        activities, self._activities = self._activities, []
        return activities[0] if len(activities) == 1 else Activity.concatenate(activities)

    def take(self, *, at_least: int = 0) -> Segments | None:
        """Remove and return the segments of all workers; None if there are too few steps."""
        self._drop_old()
        if at_least:
            if self.n_steps < at_least:
                return None
            self._fetch()
            if sum(part.segments.n_steps for part in self._parts) < at_least:
                return None  # a worker has ended meanwhile, and collects its share again
        parts, self._parts = self._parts, []
        return _joined(parts) if parts else None

    def _drop_old(self) -> None:
        if self._max_staleness is None:
            return
        oldest = self.version - self._max_staleness
        self.n_dropped += sum(p.segments.n_steps for p in self._parts if p.version < oldest)
        self._parts = [part for part in self._parts if part.version >= oldest]


@dataclass
class _Behavior:
    """A behavior that workers act for."""

    trainer: Learning
    experience: RemoteExperience
    sent: Snapshot | None = None
    pickled: bytes = b""


@dataclass
class _Worker:
    """State of one worker, across restarts of its process.

    Attributes:
        orders: Orders that it has not answered, the oldest first.
        posts: Behaviors that its process acts for.
        parameters: Environment parameters to send.
        must_reset: Whether to reset its players.
        is_new: Whether its process has not answered yet.
    """

    number: int
    life: int
    budget: RestartBudget
    orders: list[Order] = field(default_factory=list)
    posts: set[str] = field(default_factory=set)
    parameters: dict[str, Sampler] = field(default_factory=dict)
    must_reset: bool = True
    is_new: bool = True


class _Arrival(NamedTuple):
    """Result of a collection, by the process that the worker had in it."""

    worker: _Worker
    life: int
    order: Order
    harvest: Harvest


class RemoteFleet(Fleet):
    """Agents that act in rollout workers.

    A worker whose process ends is started again within its restart budget, which is that of a
    player. What it had collected and not handed over is lost, and is collected again.

    Args:
        options: Options of the run, with its seed.
        workers: Processes of the workers.
        log_folder: Folder for the logs of players.
        sources: Folders to import environments from.
    """

    def __init__(
        self,
        options: RunOptions,
        workers: Workers,
        *,
        log_folder: str,
        sources: tuple[str, ...] = (),
    ) -> None:
        cluster, environment = options.cluster, options.env_settings
        assert cluster.workers is not None, "without workers, agents act in this process"
        self._workers = workers
        self._is_async = cluster.mode == "async"
        self._max_staleness = cluster.max_staleness if self._is_async else None
        # The settings of behaviors stay here: a plug-in's need not exist where workers run.
        bare = options.model_copy(update={"behaviors": {}, "default_settings": None})
        self._setup = Setup(bare, 0, 0, log_folder, sources, __version__)
        self._n_players = environment.num_envs
        self._all = [
            _Worker(
                number,
                number,
                RestartBudget(
                    max_lifetime=environment.max_lifetime_restarts,
                    rate_limit_n=environment.restarts_rate_limit_n,
                    rate_limit_period_s=environment.restarts_rate_limit_period_s,
                ),
            )
            for number in range(cluster.workers)
        ]
        self._n_lives = len(self._all)
        self._behaviors: dict[str, _Behavior] = {}
        self._specs: dict[BehaviorName, BehaviorSpec] = {}
        self._parameters: dict[str, Sampler] = {}
        self._entropies: list[tuple[Policy, float]] = []
        self._reports: list[PlayerReport] = []
        self._n_dropped = 0
        self._has_started = False
        self._enter: Callable[[BehaviorName], object]
        self._waiting: Callable[[], AbstractContextManager[object]] = nullcontext
        self._watches_episodes = False

    def open(
        self,
        *,
        enter: Callable[[BehaviorName], object],
        seat_of: Callable[[int, BehaviorName], Seat | SharedSeat],
        waiting: Callable[[], AbstractContextManager[object]],
        watches_episodes: bool,
    ) -> None:
        """Prepare for the run; see `Fleet.open`."""
        self._enter = enter
        self._waiting = waiting
        self._watches_episodes = watches_episodes

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._specs

    def collect(self, trainer: Learning) -> Experience:
        """Return the experience of a behavior's agents in all workers."""
        is_on_policy = trainer.needs.n_expected > 0
        experience = RemoteExperience(
            lambda: self._fetch(trainer.name),
            max_staleness=self._max_staleness if is_on_policy else None,
        )
        self._behaviors[trainer.name] = _Behavior(trainer, experience)
        return experience

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players, before the next collection of each worker."""
        self._parameters.update(parameters)
        for worker in self._all:
            worker.parameters.update(parameters)

    def reset(self) -> None:
        """Begin all episodes again, before the next collection of each worker.

        The first reset starts the workers, and waits for them.
        """
        for worker in self._all:
            worker.must_reset = True
        if self._has_started:
            return
        self._has_started = True
        began_s = time.perf_counter()
        for worker in self._all:
            self._start(worker)
        for worker in self._all:
            self._order(worker, None)
        while any(worker.orders for worker in self._all):
            self._process(self._receive())
        n = len(self._all)
        seconds = time.perf_counter() - began_s
        logger.info(f"{n} rollout worker{'s' * (n > 1)} began after {seconds:.1f} s.")

    def advance(self) -> list[PlayerReport]:
        """Let workers act; wait for all of them or, if `async`, for any of them."""
        self._renew()
        targets = self._targets()
        for worker in self._all:
            while len(worker.orders) < (2 if self._is_async else 1):
                self._order(worker, targets)
        with hierarchical_timer("collect"):
            if self._is_async:
                self._process(self._receive())
            while not self._is_async and any(worker.orders for worker in self._all):
                arrived = []
                while any(worker.orders for worker in self._all):
                    arrived += self._receive()
                self._process(arrived)  # which may order the rest of a collection
        self._report_dropped()
        reports, self._reports = self._reports, []
        return reports

    def answer(self) -> None:
        """Do nothing: workers answer their players when the next collection begins."""

    def take_entropies(self) -> list[tuple[Policy, float]]:
        """Return the mean entropies, in nats, of the decisions since the last call, by policy."""
        entropies, self._entropies = self._entropies, []
        return entropies

    def close(self) -> None:
        """End all workers. Calling it again does nothing."""
        self._workers.close()

    def _report_dropped(self) -> None:
        """Add the steps that were too old to the statistics."""
        n_dropped = sum(each.experience.n_dropped for each in self._behaviors.values())
        if n_new := n_dropped - self._n_dropped:
            self._n_dropped = n_dropped
            sums = {DROPPED: [(float(n_new), StatsAggregationMethod.SUM)]}
            self._reports.append(PlayerReport(0, sums))

    # Orders.

    def _targets(self) -> dict[str, Target]:
        """Return the ends of the next collections, without what each worker holds already."""
        return {name: self._target(behavior) for name, behavior in self._behaviors.items()}

    def _target(self, behavior: _Behavior) -> Target:
        trainer, n_workers = behavior.trainer, len(self._all)
        watches = self._watches_episodes and n_workers == 1  # so that it ends where it would here
        finished = 1 if watches else _share(trainer.steps_until_due, n_workers)
        if not trainer.is_learning:
            return Target(finished=finished, ships="discard")
        wants = trainer.needs.n_expected
        if not wants:
            made = 1 if n_workers == 1 else _share(_AT_ONCE, n_workers)
            return Target(finished=finished, made=made, ships="finished")
        if self._is_async:
            return Target(made=_share(wants, n_workers), finished=finished, ships="cut")
        missing = max(wants - behavior.experience.n_steps, 1)
        return Target(held=_share(missing, n_workers), finished=finished)

    def _order(self, worker: _Worker, targets: Mapping[str, Target] | None) -> None:
        """Send an order to a worker.

        Args:
            worker: The worker.
            targets: Ends of the collection; `held` without what the worker holds already. None to
                reset only.
        """
        own = None
        if targets is not None:
            own = {
                name: target
                if target.held is None
                else target._replace(
                    held=target.held + self._behaviors[name].experience.held_by(worker.number)
                )
                for name, target in targets.items()
            }
        self._send(worker, Order(own))

    def _send(self, worker: _Worker, order: Order) -> None:
        """Complete an order by all that a worker does not know yet, and send it."""
        posts = []
        for name, behavior in self._behaviors.items():
            if name in worker.posts or behavior.sent is None:
                continue
            trainer = behavior.trainer
            is_first = worker.life == 0
            posts.append(
                Post(
                    name,
                    trainer.spec,
                    trainer.needs._replace(
                        n_expected=_share(trainer.needs.n_expected, len(self._all))
                    ),
                    trainer.policy.deterministic,
                    # A resumed run draws other samples than its beginning.
                    (self._setup.options.env_settings.seed, worker.life, trainer.step),
                    trainer.policy.rng.bit_generator.state if is_first else None,
                )
            )
            renewal = behavior.experience.version, behavior.pickled
            self._workers.renew({worker.number: None}, {name: renewal})
            worker.posts.add(name)
        versions = {name: self._behaviors[name].experience.version for name in worker.posts}
        order = order._replace(
            posts=tuple(posts),
            versions=versions,
            parameters=worker.parameters,
            reset=worker.must_reset,
        )
        worker.parameters, worker.must_reset = {}, False
        worker.orders.append(order)
        self._workers.call(worker.number, "collect", order)

    def _renew(self) -> None:
        """Send policies that have changed to all workers that act by them."""
        for name, behavior in self._behaviors.items():
            snapshot = behavior.trainer.policy.snapshot
            if snapshot is behavior.sent:
                continue
            behavior.sent = snapshot
            behavior.pickled = pickle.dumps(snapshot, protocol=pickle.HIGHEST_PROTOCOL)
            behavior.experience.version += 1
            renewals = {name: (behavior.experience.version, behavior.pickled)}
            at = {worker.number: None for worker in self._all if name in worker.posts}
            self._workers.renew(at, renewals)

    def _fetch(self, name: str) -> None:
        """Take the segments of a behavior from all workers, in their order."""
        if self._is_async:
            return  # they arrive with each harvest
        for worker in self._all:
            self._workers.call(worker.number, "take", name)
        waiting = {worker.number for worker in self._all}
        experience = self._behaviors[name].experience
        arrived: dict[int, tuple[Segments | None, Activity]] = {}
        with self._waiting(), hierarchical_timer("fetch"):
            while waiting:
                for number, value in self._workers.wait():
                    waiting.discard(number)
                    if isinstance(value, Gone):
                        self._replace(self._all[number], value)
                    else:
                        arrived[number] = _checked(number, value)
        for number, (segments, activity) in sorted(arrived.items()):
            experience.add_fetched(number, segments, activity)

    # Replies.

    def _receive(self) -> list[_Arrival]:
        """Wait for replies; return the results of collections, and replace workers that ended."""
        with self._waiting():
            replies = self._workers.wait()
        arrived = []
        for number, value in replies:
            worker = self._all[number]
            if isinstance(value, Gone):
                orders = worker.orders
                self._replace(worker, value)
                for order in orders:
                    self._send(worker, order)
            else:
                order = worker.orders.pop(0)
                arrived.append(_Arrival(worker, worker.life, order, _checked(number, value)))
        return arrived

    def _process(self, arrived: list[_Arrival]) -> None:
        """Take in results, in the order of the workers; resume those that a new behavior ended."""
        for worker, life, order, harvest in sorted(arrived, key=lambda each: each.worker.number):
            self._take_in(worker, harvest)
            if worker.life != life:  # it has ended meanwhile
                self._lose(worker)
            if order.targets is not None and self._has_entered(harvest.specs):
                self._send(worker, Order({**self._targets(), **order.targets}))

    def _take_in(self, worker: _Worker, harvest: Harvest) -> None:
        for level, message in harvest.logs:
            logger.log(level, f"Worker {worker.number}: {message}")
        first = worker.number * self._n_players
        self._reports += [PlayerReport(first + p, each) for p, each in harvest.statistics.items()]
        for name, gathered in harvest.gathered.items():
            behavior = self._behaviors[name]
            behavior.experience.add(worker.number, gathered)
            policy = behavior.trainer.policy
            self._entropies += [(policy, entropy) for entropy in gathered.entropies]
            if worker.life == 0:
                policy.rng.bit_generator.state = dict(gathered.random_state)
        if worker.is_new:
            worker.is_new = False
            if worker.life != worker.number:
                logger.info(f"Worker {worker.number} acts again.")
        for name, spec in harvest.specs.items():
            known = self._specs.setdefault(name, spec)
            if spec != known:
                raise UnityTrainerException(
                    f"worker {worker.number} has behavior {name!r} as {spec}, but another worker "
                    f"has it as {known}. All workers must run the same environment."
                )

    def _has_entered(self, specs: Mapping[BehaviorName, BehaviorSpec]) -> bool:
        """Create trainers of new behaviors; return whether there were any."""
        for behavior in specs:
            self._enter(behavior)
        self._renew()
        return bool(specs)

    # Processes.

    def _lose(self, worker: _Worker) -> None:
        for behavior in self._behaviors.values():
            behavior.experience.lose(worker.number)

    def _start(self, worker: _Worker) -> None:
        worker.is_new = True
        self._workers.start(self._setup._replace(worker=worker.number, life=worker.life))

    def _replace(self, worker: _Worker, gone: Gone) -> None:
        """Start a worker again whose process has ended.

        Raises:
            UnityTrainerException: It ended before it had begun, or its budget is spent.
        """
        what = f"the process of worker {worker.number} {gone.reason}"
        if worker.is_new and worker.life == worker.number:
            raise UnityTrainerException(
                f"{what} before it began. Its output above may tell why. Try the environment "
                "without --workers."
            )
        if refusal := worker.budget.spend():
            raise UnityTrainerException(f"{what} and is not started again: {refusal}.")
        logger.warning(
            f"{what[0].upper()}{what[1:]}; {worker.budget}. Steps that it had not handed over are "
            "collected again."
        )
        self._lose(worker)
        worker.life = self._n_lives
        self._n_lives += 1
        worker.orders = []
        worker.posts = set()
        worker.parameters = dict(self._parameters)
        worker.must_reset = True
        self._start(worker)


def _checked(worker: int, value: Any) -> Any:
    """Return the result of a call; raise the error if it failed."""
    if isinstance(value, Failure):
        value.error.add_note(f"In worker {worker}:\n{value.trace}")
        raise value.error
    return value


def _share(n_steps: int, n_workers: int) -> int:
    """Return one worker's share of a number of steps, rounded up."""
    return -(-n_steps // n_workers)


def _joined(parts: list[_Part]) -> Segments:
    """Concatenate the segments of workers, in the order of the workers."""
    of_worker: dict[int, list[Segments]] = {}
    for part in parts:
        of_worker.setdefault(part.worker, []).append(part.segments)
    each = [Segments.concatenate(of_worker[number]) for number in sorted(of_worker)]
    if len(each) == 1:
        return each[0]
    still = [segments.open_steps for segments in each if segments.open_steps is not None]
    return replace(Segments.concatenate(each), open_steps=_joined_open(still) if still else None)


def _joined_open(parts: list[OpenSteps]) -> OpenSteps:
    obs, *others = zip(*parts, strict=True)
    return OpenSteps(
        [np.concatenate(batches) for batches in zip(*obs, strict=True)],
        *(np.concatenate(column) for column in others),
    )
