"""`RayWorkers`: rollout workers as actors of a Ray cluster.

Ray places the actors and transports messages. Messages are pickled bytes, because arrays that Ray
itself unpickles are read-only and stay in its object store.
"""

import importlib
import pickle
import platform
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.fleet.messages import Setup
from mlagents.trainers.fleet.processes import failure_of
from mlagents.trainers.fleet.worker import Renewal, RolloutWorker
from mlagents.trainers.fleet.workers import Gone, Reply, Workers
from mlagents.trainers.settings.run_options import ClusterSettings
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

LOCAL = "local"
"""Address that starts a cluster on this machine for this run."""

LEAST_OBJECT_STORE = 64 * 2**20
"""Smallest object store that a run accepts, in bytes."""

_LOCAL_OBJECT_STORE = 512 * 2**20

_CONNECT_TIMEOUT_S = 5.0


class _Actor:
    """A `RolloutWorker` in a Ray process."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._worker: RolloutWorker | None = None
        self._early: dict[str, Renewal] = {}
        self._lock = threading.Lock()

    def call(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        """Call a method of the worker; return its pickled result or `Failure`."""
        try:
            result = getattr(self._made(), method)(*arguments)
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

    def _made(self) -> RolloutWorker:
        if self._worker is None:
            worker = RolloutWorker(self._setup)
            with self._lock:
                self._worker = worker
                worker.renew(self._early)
        return self._worker


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
        self._actors: dict[int, Any] = {}
        self._pending: dict[int, deque[Any]] = {}
        self._connects = not ray.is_initialized()
        if self._connects:
            self._connect()
        try:
            self._require_resources()
        except BaseException:
            self.close()
            raise
        renew = ray.method(concurrency_group="mail")(_Actor.renew)
        in_groups = ray.remote(concurrency_groups={"mail": 1})
        self._class = in_groups(type("RolloutActor", (_Actor,), {"renew": renew}))

    def _connect(self) -> None:
        address, ray = self._settings.address, self._ray
        self._require_listener()
        arguments: dict[str, Any] = {"address": address}
        if address == LOCAL:
            arguments |= {
                "num_cpus": self._n_cpus,
                "include_dashboard": False,
                "object_store_memory": _LOCAL_OBJECT_STORE,
            }
            if sys.platform == "linux":  # Ray would replace 127.0.0.1 with a network address
                arguments["_node_ip_address"] = "127.0.0.2"
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **arguments)
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

    def _require_listener(self) -> None:
        """Raise early if no process listens at the address. Ray would try for a minute."""
        address = self._settings.address or ""
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()) or "://" in address:
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, error) from error

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
                f"{n:g} {what}s, of which it has {total.get(what, 0.0):g} and "
                f"{free.get(what, 0.0):g} are free"
                for what, n in wanted.items()
                if n > free.get(what, 0.0)
            ]
            if not missing:
                break
            needs = f"{settings.workers} workers need {' and '.join(missing)}"
            if time.monotonic() > deadline_s:
                raise UnityTrainerException(
                    f"cluster {settings.address!r}: {needs}. Waited {settings.start_timeout_s} s. "
                    "Add nodes, end other runs on the cluster, use fewer --workers, or lower "
                    "cluster.cpus_per_worker."
                )
            if not has_told:
                has_told = True
                logger.info(f"Waiting for the cluster: {needs}.")
            time.sleep(0.5)
        store = total.get("object_store_memory", 0.0)
        if store < LEAST_OBJECT_STORE:
            raise UnityTrainerException(
                f"the object store of cluster {settings.address!r} has {store / 2**20:.0f} MiB; "
                f"expected at least {LEAST_OBJECT_STORE // 2**20} MiB. Start its nodes with "
                "--object-store-memory."
            )

    def start(self, setup: Setup) -> None:
        """Start an actor; see `Workers.start`."""
        settings = self._settings
        actor = self._class.options(
            num_cpus=settings.cpus_per_worker,
            num_gpus=settings.gpus_per_worker,
            max_restarts=0,  # the fleet restarts workers, within their budget
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        ).remote(setup)
        self._actors[setup.worker] = actor
        self._pending[setup.worker] = deque()

    def call(self, worker: int, method: str, *arguments: Any) -> None:
        """Call a method of a worker; see `Workers.call`."""
        result = self._actors[worker].call.remote(method, arguments)
        self._pending[worker].append(result)

    def renew(self, workers: Mapping[int, object], renewals: Mapping[str, Renewal]) -> None:
        """Send new policies to workers; see `Workers.renew`."""
        message = self._ray.put(dict(renewals))
        for worker in workers:
            self._actors[worker].renew.remote(message)

    def wait(self, timeout_s: float | None = None) -> list[Reply]:
        """Wait for replies; see `Workers.wait`."""
        worker_of = {refs[0]: worker for worker, refs in self._pending.items() if refs}
        ready, _ = self._ray.wait(list(worker_of), num_returns=1, timeout=timeout_s)
        if ready:
            ready, _ = self._ray.wait(list(worker_of), num_returns=len(worker_of), timeout=0)
        replies = []
        for ref in ready:
            worker = worker_of[ref]
            self._pending[worker].popleft()
            try:
                replies.append(Reply(worker, pickle.loads(self._ray.get(ref))))
            except self._ray.exceptions.RayActorError as error:
                self._actors.pop(worker)
                self._pending.pop(worker)
                first_line = str(error).strip().splitlines()[0]
                replies.append(Reply(worker, Gone(f"ended in the cluster: {first_line}")))
        return replies

    def close(self) -> None:
        """End all actors, and leave the cluster; see `Workers.close`."""
        actors, self._actors = list(self._actors.values()), {}
        self._pending = {}
        for actor in actors:
            with suppress(Exception):  # it has ended already
                self._ray.kill(actor)
        if self._connects:
            self._connects = False
            self._ray.shutdown()


def _no_cluster(address: str | None, error: Exception) -> TrainerConfigError:
    return TrainerConfigError(
        f"cluster.address (--cluster) is {address!r}, but no Ray cluster answers there: {error} "
        "Start one with `ray start --head`, and join other machines with `ray start --address "
        "HEAD:6379`; or use --cluster local for one on this machine. If Ray's log above names a "
        "token, set RAY_AUTH_MODE=token for all nodes and for this command, and give them the same "
        "token, which `ray get-auth-token --generate` makes."
    )
