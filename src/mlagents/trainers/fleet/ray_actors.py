"""`RayWorkers`: rollout workers as actors of a Ray cluster.

Ray places the actors and transports messages. Messages are pickled bytes, because arrays that Ray
itself unpickles are read-only and stay in its object store.
"""

import importlib
import logging
import pickle
import platform
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.fleet.messages import Failure, Setup
from mlagents.trainers.fleet.processes import failure_of
from mlagents.trainers.fleet.worker import Renewal, RolloutWorker
from mlagents.trainers.fleet.workers import Gone, Reply, Workers
from mlagents.trainers.settings.run_options import ClusterSettings
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

LOCAL = "local"
"""Address that starts a cluster on this machine for this run."""

_LOCAL_OBJECT_STORE = 512 * 2**20

_SMALL = 90_000
"""Size of policies, in bytes, below which they travel with a call and not by the object store."""

_CONNECT_TIMEOUT_S = 5.0

_RESPONSE_S = 0.5
"""Time after which a signal is handled at the latest. Handlers do not run while Ray waits."""

_REMEDY = (
    "Add nodes, end other runs on the cluster, use fewer --workers, or lower "
    "cluster.cpus_per_worker."
)

_UNKNOWN = "a node of the cluster"

_UNPLACED_S = 20.0
"""Time after which the log tells that a worker started again waits for a node."""


class _Actor:
    """A `RolloutWorker` in a Ray process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._worker: RolloutWorker | None = None
        self._early: dict[str, Renewal] = {}
        self._lock = threading.Lock()

    def call(self, method: str, arguments: tuple[Any, ...], renewals: dict[str, Renewal]) -> bytes:
        """Send new policies to the worker, and call a method of it.

        Returns:
            The pickled result or `Failure`.
        """
        try:
            worker = self._made()
            worker.renew(renewals)
            result = getattr(worker, method)(*arguments)
        except Exception as error:
            result = failure_of(error)
        return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)

    def renew(self, renewals: dict[str, Renewal]) -> None:
        """Send new policies to the worker while it collects."""
        with self._lock:
            if self._worker is None:
                self._early.update(renewals)
                return
        self._worker.renew(renewals)

    def node(self) -> tuple[str, str]:
        """Return the number and the address of the node that runs the actor."""
        ray: Any = importlib.import_module("ray")
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def _made(self) -> RolloutWorker:
        if self._worker is None:
            worker = RolloutWorker(self._setup)
            with self._lock:
                self._worker = worker
                worker.renew(self._early)
        return self._worker


@dataclass
class _Started:
    """An actor, as the head knows it.

    Attributes:
        actor: Handle of the actor.
        node: Reference to the result of `_Actor.node`, which arrives when the actor is placed.
        is_first: Whether it is the first actor of its worker.
        since_s: Time when it was started.
        placed: Number of its node, and the words for it in messages, once it is placed.
        pending: References to the results of its calls, oldest first.
        has_told: Whether the log tells that it waits for a node.
        mail: Policies for its next call.
    """

    actor: Any
    node: Any
    is_first: bool
    since_s: float = field(default_factory=time.monotonic)
    placed: tuple[str, str] | None = None
    pending: deque[Any] = field(default_factory=deque)
    has_told: bool = False
    mail: dict[str, Renewal] = field(default_factory=dict)


class RayWorkers(Workers):
    """Rollout workers on the machines of a Ray cluster.

    Ray ends the actors whenever this process ends.

    Args:
        settings: Number of workers, their resources, and the address of the cluster.

    Raises:
        TrainerConfigError: Ray is not installed, or no cluster answers at the address.
        UnityTrainerException: The cluster runs other versions, or has too few CPUs or GPUs.
    """

    def __init__(self, settings: ClusterSettings) -> None:
        try:
            ray: Any = importlib.import_module("ray")  # optional, so types may be missing
        except ImportError as error:
            raise TrainerConfigError(
                "cluster.address (--cluster) needs Ray. Install it on all nodes: pip install "
                '"mlagents-next[cluster]". Without --cluster, workers run on this machine.'
            ) from error
        self._ray = ray
        self._settings = settings
        self._started: dict[int, _Started] = {}
        self._lost_nodes: set[str] = set()
        """Nodes whose workers could not be reached. Ray notices 15 s later by default."""
        self._connects = not ray.is_initialized()
        if self._connects:
            self._connect()
        try:
            self._require_resources()
        except BaseException:
            self.close()
            raise
        renew = ray.method(concurrency_group="mail")(_Actor.renew)
        node = ray.method(concurrency_group="mail")(_Actor.node)
        in_groups = ray.remote(concurrency_groups={"mail": 1})
        self._class = in_groups(type("RolloutActor", (_Actor,), {"renew": renew, "node": node}))

    def _connect(self) -> None:
        address, ray = self._settings.address, self._ray
        self._require_listener()
        arguments: dict[str, Any] = {"address": address}
        if address == LOCAL:
            arguments |= {
                "num_cpus": self._n_cpus,
                "include_dashboard": False,
                "object_store_memory": _LOCAL_OBJECT_STORE,
                "_system_config": {
                    # By default, Ray gives its workers less CPU time than all other programs.
                    "worker_niceness": 0,
                    # Results of up to 4 MB travel without the object store, which takes 1 ms more.
                    "max_direct_call_object_size": 4_000_000,
                },
            }
            if sys.platform == "linux":  # Ray would replace 127.0.0.1 with a network address
                arguments["_node_ip_address"] = "127.0.0.2"
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            if address == LOCAL:
                self._init(arguments)
            else:
                self._init_in_time(arguments)
        except (ConnectionError, ValueError, TimeoutError) as error:
            raise _no_cluster(address, error) from error
        except RuntimeError as error:
            if "ersion mismatch" not in str(error):
                raise
            raise UnityTrainerException(
                f"this process runs Python {platform.python_version()} and Ray {ray.__version__}, "
                f"but the cluster at {address!r} runs other versions. Install the same versions on "
                f"all nodes. Ray reports: {error}"
            ) from error
        finally:
            if is_main:  # Ray has replaced the handler, which saves the run
                signal.signal(signal.SIGTERM, before)

    def _init(self, arguments: Mapping[str, Any]) -> None:
        self._ray.init(log_to_driver=False, logging_level="ERROR", **arguments)
        _mute(self._ray)

    def _init_in_time(self, arguments: Mapping[str, Any]) -> None:
        """Connect to a running cluster within `start_timeout_s`.

        Ray itself would wait without end for a process that listens and does not answer. A cluster
        that is started here would end with the thread.
        """
        outcome: list[Exception | None] = []

        def connect() -> None:
            try:
                _show_token(self._ray, self._address)
                self._init(arguments)
            except Exception as error:
                outcome.append(error)
            else:
                outcome.append(None)

        logging.getLogger("ray").setLevel(logging.ERROR)  # `ray.init` does so later
        thread = threading.Thread(target=connect, name="connect to Ray", daemon=True)
        thread.start()
        within_s = self._settings.start_timeout_s
        thread.join(within_s)
        if not outcome:
            raise TimeoutError(f"it did not answer within {within_s} s (cluster.start_timeout_s)")
        if (error := outcome[0]) is not None:
            raise error

    @property
    def _address(self) -> str:
        """The address, or that of the cluster that `auto` stands for."""
        address = self._settings.address or ""
        return _last_address() if address == "auto" else address

    def _require_listener(self) -> None:
        """Raise early if no process listens at the address. Ray would try for a minute."""
        address = self._address
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()) or "://" in address:
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(self._settings.address, error, at=address) from error

    @property
    def _n_cpus(self) -> float:
        assert self._settings.workers is not None
        return self._settings.workers * self._settings.cpus_per_worker

    def _require_resources(self) -> None:
        """Wait until the cluster has enough free CPUs and GPUs for all workers."""
        settings, ray = self._settings, self._ray
        assert settings.workers is not None
        wanted = {"CPU": self._n_cpus, "GPU": settings.workers * settings.gpus_per_worker}
        deadline_s = time.monotonic() + settings.start_timeout_s
        has_told = False
        while True:
            total, free = ray.cluster_resources(), ray.available_resources()
            missing = [
                f"{n:g} {what}{'s' * (n != 1)} (free in the cluster: {free.get(what, 0.0):g} of "
                f"{total.get(what, 0.0):g})"
                for what, n in wanted.items()
                if n > free.get(what, 0.0)
            ]
            if not missing:
                break
            n_workers = settings.workers
            who = "1 worker needs" if n_workers == 1 else f"{n_workers} workers need"
            needs = f"{who} {' and '.join(missing)}"
            if time.monotonic() > deadline_s:
                raise UnityTrainerException(
                    f"cluster {settings.address!r}: {needs}. Waited {settings.start_timeout_s} s. "
                    f"{_REMEDY}"
                )
            if not has_told:
                has_told = True
                logger.info(f"Waiting for the cluster: {needs}.")
            time.sleep(0.5)

    def start(self, setup: Setup) -> None:
        """Start an actor; see `Workers.start`."""
        settings = self._settings
        actor = self._class.options(
            num_cpus=settings.cpus_per_worker,
            num_gpus=settings.gpus_per_worker,
            max_restarts=0,  # the fleet restarts workers, within their budget
            max_task_retries=0,
            scheduling_strategy=self._strategy(),
        ).remote(setup)
        is_first = setup.life == setup.worker
        self._started[setup.worker] = _Started(actor, actor.node.remote(), is_first)

    def _strategy(self) -> object:
        """Return the scheduling strategy of an actor, which prefers nodes that can be reached."""
        if not self._lost_nodes:
            return "SPREAD"
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        others = strategies.NotIn(*sorted(self._lost_nodes))
        return strategies.NodeLabelSchedulingStrategy({}, soft={"ray.io/node-id": others})

    def call(self, worker: int, method: str, *arguments: Any) -> None:
        """Call a method of a worker; see `Workers.call`."""
        started = self._started[worker]
        mail, started.mail = started.mail, {}
        started.pending.append(started.actor.call.remote(method, arguments, mail))

    def renew(self, workers: Mapping[int, object], renewals: Mapping[str, Renewal]) -> None:
        """Send new policies to workers; see `Workers.renew`."""
        busy = []
        is_small = sum(len(pickled) for _, pickled in renewals.values()) < _SMALL
        for worker in workers:
            started = self._started[worker]
            if is_small and not started.pending:
                started.mail.update(renewals)
            else:
                busy.append(started.actor)
        if busy:
            message = dict(renewals) if is_small else self._ray.put(dict(renewals))
            for actor in busy:
                actor.renew.remote(message)

    def wait(self, timeout_s: float | None = None) -> list[Reply]:
        """Wait for replies; see `Workers.wait`.

        Raises:
            UnityTrainerException: No node has room for a worker within `start_timeout_s`.
        """
        until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            results = {each.pending[0]: who for who, each in self._started.items() if each.pending}
            nodes = {each.node: each for each in self._started.values() if each.placed is None}
            refs = [*results, *nodes]
            due_s = min([until_s, *map(self._due_s, nodes.values())])
            left_s = min(_RESPONSE_S, max(0.0, due_s - time.monotonic()))
            ready = self._ready(refs, n=1, within_s=left_s)
            if ready:
                ready = self._ready(refs, n=len(refs), within_s=0.0)
            for ref in ready:
                if ref in nodes:
                    nodes[ref].placed = self._node_of(ref)
            replies = [self._reply(results[ref], ref) for ref in ready if ref in results]
            if replies or time.monotonic() >= until_s:
                return replies
            for worker, each in self._started.items():
                if each.placed is None and time.monotonic() >= self._due_s(each):
                    self._tell_unplaced(worker, each)

    def _ready(self, refs: list[Any], *, n: int, within_s: float) -> list[Any]:
        """Return at most `n` references whose results have arrived."""
        try:
            ready, _ = self._ray.wait(refs, num_returns=n, timeout=within_s)
        except SystemError as error:  # a handler of a signal has raised something in Ray
            raise error.__cause__ or error from None
        return list(ready)

    def _node_of(self, ref: Any) -> tuple[str, str]:
        try:
            node: tuple[str, str] = self._ray.get(ref)
        except self._ray.exceptions.RayActorError:  # its next result tells why
            return "", _UNKNOWN
        return node[0], f"node {node[1]}"

    def _reply(self, worker: int, ref: Any) -> Reply:
        started = self._started[worker]
        started.pending.popleft()
        errors = self._ray.exceptions
        try:
            value = pickle.loads(self._ray.get(ref))
            if isinstance(value, Failure):
                value = value._replace(node=(started.placed or ("", ""))[1])
            return Reply(worker, value)
        except errors.RayActorError as error:
            del self._started[worker]
            with suppress(Exception):  # it may continue on a node that cannot be reached
                self._ray.kill(started.actor)
            number, address = started.placed or ("", _UNKNOWN)
            if not isinstance(error, errors.ActorUnavailableError):
                return Reply(worker, Gone(f"on {address} has ended{_reason(error)}"))
            if number:
                self._lost_nodes.add(number)
            return Reply(worker, Gone(f"cannot be reached, because {address} has failed"))

    def _due_s(self, started: _Started) -> float:
        """Return when to look why an actor has no node yet."""
        if started.is_first or not started.has_told:
            wait_s = self._settings.start_timeout_s if started.is_first else _UNPLACED_S
            return started.since_s + wait_s
        return float("inf")

    def _tell_unplaced(self, worker: int, started: _Started) -> None:
        """Log that a worker waits for a node, or raise if it is part of the run's beginning."""
        settings, total = self._settings, self._ray.cluster_resources()
        free = self._ray.available_resources()
        wanted = {"CPU": settings.cpus_per_worker, "GPU": settings.gpus_per_worker}
        needs = " and ".join(
            f"{n:g} {what}{'s' * (n != 1)} on one node (free in the cluster: "
            f"{free.get(what, 0.0):g} of {total.get(what, 0.0):g})"
            for what, n in wanted.items()
            if n
        )
        if started.is_first:
            raise UnityTrainerException(
                f"cluster {settings.address!r}: no node had room for worker {worker} within "
                f"{settings.start_timeout_s} s. It needs {needs}. {_REMEDY}"
            )
        started.has_told = True
        logger.warning(f"Worker {worker} waits for a node, and needs {needs}.")

    def close(self) -> None:
        """End all actors, and leave the cluster; see `Workers.close`."""
        started, self._started = list(self._started.values()), {}
        for each in started:
            with suppress(Exception):  # it has ended already
                self._ray.kill(each.actor)
        if self._connects:
            self._connects = False
            self._ray.shutdown()


def _show_token(ray: Any, address: str) -> None:
    """Show the user's token to a cluster that asks for one.

    Without RAY_AUTH_MODE, `ray start` uses the token of the user's home, but `ray.init` does not.
    """
    with suppress(ImportError, AttributeError):  # another version of Ray
        authentication: Any = importlib.import_module(
            "ray._private.authentication.authentication_token_setup"
        )
        try:
            ray._raylet.GcsClient(address=address)
        except ray.exceptions.AuthenticationError:
            authentication.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def _mute(ray: Any) -> None:
    """Log messages of the cluster's nodes only when debugging; the fleet reports what has failed.

    `log_to_driver=False` does not cover them, and Ray has no other option.
    """

    def log(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        for line in data["lines"]:
            logger.debug(f"Ray: {line}")

    with suppress(AttributeError):  # a later version of Ray
        ray._private.worker.print_to_stdstream = log


def _reason(error: Exception) -> str:
    """Return why an actor could not be created, from a message of Ray; empty for other ends."""
    lines = str(error).strip().splitlines()
    if "creation task" not in lines[0]:
        return ""
    if "No module named 'mlagents" in lines[-1]:
        return " (mlagents-next is not installed there)"
    return f" ({lines[-1]})"


def _last_address() -> str:
    """Return the address that `auto` stands for: that of RAY_ADDRESS, or of the last cluster."""
    services: Any = importlib.import_module("ray._private.services")
    with suppress(ConnectionError):
        if address := services.canonicalize_bootstrap_address("auto"):
            return str(address)
    raise _no_cluster("auto", ConnectionError("no cluster was started on this machine"))


def _no_cluster(
    address: str | None, error: Exception, *, at: str | None = None
) -> TrainerConfigError:
    named = f"{address!r} ({at})" if at not in (None, address) else repr(address)
    reason = str(error).strip().rstrip(".")
    return TrainerConfigError(
        f"cluster.address (--cluster) is {named}, but no Ray cluster answers there: {reason}. "
        "Start one with `ray start --head`, and join other machines with `ray start --address "
        "HEAD:6379`; or use --cluster local for one on this machine. If Ray's log above names a "
        "token, set RAY_AUTH_MODE=token for all nodes and for this command, and give them the same "
        "token, which `ray get-auth-token --generate` makes."
    )
