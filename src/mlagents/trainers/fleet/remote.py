"""`RemoteFleet`: agents that act in rollout workers, and the experience that they collect.

In mode `sync`, all workers collect, then the learner learns, then all act with the new policy. All
experience of an update thus comes from one policy. In mode `async`, each worker has a second order
in its queue while it executes the first. It never waits for other workers or for the learner.
"""

import pickle
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from mlagents.trainers.acting.collector import Experience
from mlagents.trainers.acting.rollout import Policy, Seat, SharedSeat
from mlagents.trainers.acting.teams import Lineup, Team
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fleet.experience import RemoteExperience
from mlagents.trainers.fleet.fleet import Fleet, Learning, PlayerReport
from mlagents.trainers.fleet.handle import WorkerHandle
from mlagents.trainers.fleet.messages import Cut, Harvest, Order, Post, Setup, Target
from mlagents.trainers.fleet.teams import RemoteTeams
from mlagents.trainers.fleet.workers import Gone, Workers
from mlagents.trainers.settings.parameters import Sampler
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs import __version__
from mlagents_envs.base_env import BehaviorId, BehaviorName, BehaviorSpec
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)

DROPPED = "Workers/Dropped Steps"
"""Statistic: number of steps that were too old to be learned from."""

_AT_ONCE = 256
"""Number of steps of all workers between calls of a learner that accepts any number of steps."""


@dataclass
class _Behavior:
    """A behavior that workers act for."""

    trainer: Learning
    experience: RemoteExperience
    sent: Snapshot | None = None
    pickled: bytes = b""


class _Arrival(NamedTuple):
    """Result of a collection, with the process of the worker that collected it."""

    worker: WorkerHandle
    life: int
    order: Order
    harvest: Harvest


class RemoteFleet(Fleet):
    """Agents that act in rollout workers.

    If the process of a worker ends, it is restarted, within the same limits as a player. Steps that
    it had not handed over are lost, and are collected again. Until its new process answers, the
    other workers collect its share.

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
        # The settings of behaviors stay here: workers may lack the plug-in that defines their type.
        bare = options.model_copy(update={"behaviors": {}, "default_settings": None})
        self._setup = Setup(bare, 0, 0, log_folder, sources, __version__)
        self._n_players = environment.num_envs
        self._all = [WorkerHandle(number, environment) for number in range(cluster.workers)]
        self._teams = RemoteTeams(self._all, n_players=environment.num_envs)
        self._n_lives = len(self._all)
        self._behaviors: dict[str, _Behavior] = {}
        self._specs: dict[BehaviorName, BehaviorSpec] = {}
        self._parameters: dict[str, Sampler] = {}
        self._entropies: list[tuple[Policy, float]] = []
        self._reports: list[PlayerReport] = []
        self._n_dropped = 0
        self._early: list[_Arrival] = []
        """Results that arrived while segments were fetched."""
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

    def team(self, behavior: BehaviorId, trainer: Learning, lineup: Lineup) -> Team:
        """Return a team that acts in all workers; see `Fleet.team`."""
        return self._teams.add(behavior, lineup)

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players, before the next collection of each worker."""
        self._parameters.update(parameters)
        for worker in self._all:
            worker.parameters.update(parameters)

    def reset(self) -> None:
        """Restart all episodes before the next collection of each worker.

        The first reset starts the workers and waits for them.
        """
        for worker in self._all:
            worker.must_reset = True
        if self._has_started:
            return
        began_s = time.perf_counter()
        for worker in self._all:
            self._start(worker)
        for worker in self._all:
            self._order(worker, None)
        while any(worker.orders for worker in self._all):
            self._process(self._receive())
        self._has_started = True
        n = len(self._all)
        seconds = time.perf_counter() - began_s
        logger.info(f"{n} rollout worker{'s' * (n > 1)} began after {seconds:.1f} s.")

    def advance(self) -> list[PlayerReport]:
        """Let workers act; wait for all of them or, if `async`, for any of them."""
        self._renew()
        for behavior in self._behaviors.values():  # segments that the last update did not need
            for worker in self._all:
                behavior.experience.settle(worker.number)
        with hierarchical_timer("collect"):
            while not self._present:
                self._process(self._receive())
            targets = self._targets()
            for worker in self._present:
                while len(worker.orders) < (2 if self._is_async else 1):
                    self._order(worker, targets)
            if self._is_async:
                self._process(self._receive())
            while not self._is_async and any(worker.orders for worker in self._present):
                arrived = []
                while any(worker.orders for worker in self._present):
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

    @property
    def _present(self) -> list[WorkerHandle]:
        """Workers whose processes have answered since they were started."""
        return [worker for worker in self._all if not worker.is_new]

    # Orders.

    def _targets(self) -> dict[str, Target]:
        """Return the targets of the next collections, not counting steps that workers hold."""
        return {name: self._target(behavior) for name, behavior in self._behaviors.items()}

    def _target(self, behavior: _Behavior) -> Target:
        trainer, n_workers = behavior.trainer, len(self._present)
        # A single worker reports after every episode, so that the run ends where it would without
        # workers.
        watches = self._watches_episodes and len(self._all) == 1
        finished, opposed = trainer.steps_until_due, None
        if limits := self._teams.limits(trainer.name):
            finished = min(finished, limits.n_learned)
            opposed = 1 if watches else _share(limits.n_opposed, n_workers)
        finished = 1 if watches else _share(finished, n_workers)
        return self._learning_target(behavior)._replace(finished=finished, opposed=opposed)

    def _learning_target(self, behavior: _Behavior) -> Target:
        """Return the target of the next collections that the learner of a behavior needs."""
        trainer, n_workers = behavior.trainer, len(self._present)
        if not trainer.is_learning:
            return Target(ships="discard")
        wants = trainer.needs.n_expected
        if not wants:
            made = 1 if n_workers == 1 else _share(_AT_ONCE, n_workers)
            return Target(made=made, ships="finished")
        if self._is_async:
            return Target(made=_share(wants, n_workers), ships="cut")
        missing = max(wants - behavior.experience.n_steps, 1)
        return Target(held=_share(missing, n_workers))

    def _order(self, worker: WorkerHandle, targets: Mapping[str, Target] | None) -> None:
        """Send an order to a worker.

        Args:
            worker: The worker.
            targets: Targets of the collection, by behavior. `held` does not include the steps that
                the worker already holds. None to reset only.
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

    def _send(self, worker: WorkerHandle, order: Order) -> None:
        """Add everything to an order that a worker does not know yet, and send it."""
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
                    # The step makes a resumed run draw other samples than its beginning did.
                    (self._setup.options.env_settings.seed, worker.life, trainer.step),
                    trainer.policy.rng.bit_generator.state if is_first else None,
                    self._teams.post(name, continues=is_first),
                )
            )
            self._send_policy(name, [worker])
        for name, version in worker.posts.items():  # those that changed while it was started
            if version != self._behaviors[name].experience.version:
                self._send_policy(name, [worker])
        order = order._replace(
            posts=tuple(posts),
            versions=dict(worker.posts),
            parameters=worker.parameters,
            reset=worker.must_reset,
            opposition=self._teams.opposition(worker),
        )
        worker.parameters, worker.must_reset = {}, False
        worker.orders.append(order)
        self._workers.call(worker.number, "collect", order)

    def _renew(self) -> None:
        """Send policies that have changed to the present workers that use them."""
        for name, behavior in self._behaviors.items():
            snapshot = behavior.trainer.policy.snapshot
            if snapshot is behavior.sent:
                continue
            behavior.sent = snapshot
            behavior.pickled = pickle.dumps(snapshot, protocol=pickle.HIGHEST_PROTOCOL)
            behavior.experience.version += 1
            self._send_policy(name, [worker for worker in self._present if name in worker.posts])

    def _send_policy(self, name: str, workers: list[WorkerHandle]) -> None:
        behavior = self._behaviors[name]
        version = behavior.experience.version
        at = {worker.number: None for worker in workers}
        self._workers.renew(at, {name: (version, behavior.pickled)})
        for worker in workers:
            worker.posts[name] = version

    def _fetch(self, name: str) -> None:
        """Take the segments of a behavior from all workers, in the order of their numbers."""
        if self._is_async:
            return  # they arrive with each harvest
        experience = self._behaviors[name].experience
        # A worker without steps may have a new process, which has no orders yet.
        waiting = {each.number for each in self._all if experience.has_to_send(each.number)}
        for number in sorted(waiting):
            self._workers.call(number, "take", name)
        arrived: dict[int, Cut] = {}
        with self._waiting(), hierarchical_timer("fetch"):
            while waiting:
                for number, value in self._workers.wait():
                    worker = self._all[number]
                    if isinstance(value, Gone):
                        self._replace(worker, value)
                    elif number in waiting:
                        arrived[number] = worker.result(value)
                    else:  # a process that was started again
                        self._early.append(self._arrival(worker, value))
                    waiting.discard(number)
        for worker in self._all:
            experience.settle(worker.number)
            if (cut := arrived.get(worker.number)) is not None:
                experience.add_fetched(worker.number, cut)

    # Replies.

    def _receive(self) -> list[_Arrival]:
        """Wait for replies; return the results of collections, and replace workers that ended."""
        if self._early:
            arrived, self._early = self._early, []
            return arrived
        with self._waiting():
            replies = self._workers.wait()
        arrived = []
        for number, value in replies:
            worker = self._all[number]
            if isinstance(value, Gone):
                self._replace(worker, value)
            else:
                arrived.append(self._arrival(worker, value))
        return arrived

    def _arrival(self, worker: WorkerHandle, value: object) -> _Arrival:
        return _Arrival(worker, worker.life, worker.orders.pop(0), worker.result(value))

    def _process(self, arrived: list[_Arrival]) -> None:
        """Process results in the order of the workers; continue those that a new behavior ended."""
        for worker, life, order, harvest in sorted(arrived, key=lambda each: each.worker.number):
            self._take_in(worker, harvest)
            if worker.life == life:
                worker.has_answered()
            else:  # it has ended meanwhile
                self._lose(worker)
            has_entered = self._has_started and self._has_entered(harvest.specs)
            if has_entered and order.targets is not None and worker.life == life:
                self._send(worker, Order({**self._targets(), **order.targets}))

    def _take_in(self, worker: WorkerHandle, harvest: Harvest) -> None:
        for level, message in harvest.logs:
            logger.log(level, f"Worker {worker.number}: {message}")
        self._reports += [PlayerReport(p, {}) for p in self._teams.take_in(worker, harvest)]
        first = worker.number * self._n_players
        self._reports += [PlayerReport(first + p, each) for p, each in harvest.statistics.items()]
        for name, gathered in harvest.gathered.items():
            behavior = self._behaviors[name]
            behavior.experience.add(worker.number, gathered)
            policy = behavior.trainer.policy
            self._entropies += [(policy, entropy) for entropy in gathered.entropies]
            if worker.life == 0:
                policy.rng.bit_generator.state = dict(gathered.random_state)
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

    def _lose(self, worker: WorkerHandle) -> None:
        self._teams.lose(worker.number)
        for behavior in self._behaviors.values():
            behavior.experience.lose(worker.number)

    def _start(self, worker: WorkerHandle) -> None:
        self._workers.start(self._setup._replace(worker=worker.number, life=worker.life))

    def _replace(self, worker: WorkerHandle, gone: Gone) -> None:
        """Start a worker again whose process has ended. The next collections make up for its loss.

        Raises:
            UnityTrainerException: The first process ended before it had answered, or the limit on
                restarts is reached.
        """
        worker.begin_again(gone, life=self._n_lives, parameters=self._parameters)
        self._n_lives += 1
        self._lose(worker)
        self._start(worker)
        self._order(worker, None)


def _share(n_steps: int, n_workers: int) -> int:
    """Return one worker's share of a number of steps, rounded up."""
    return -(-n_steps // n_workers)
