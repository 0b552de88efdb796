"""Comparisons of runs, and accidents of rollout workers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from mlagents.trainers.fleet.processes import ProcessWorkers
from mlagents.trainers.fleet.ray_actors import RayWorkers
from mlagents.trainers.fleet.remote import RemoteFleet
from mlagents.trainers.fleet.workers import Gone


def assert_equal(one: Any, other: Any, path: str = "") -> None:
    """Compare two trees of tensors and numbers, to the last bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_equal(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal(a, b, f"{path}[{number}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    else:
        assert one == other, path


class KillsAWorker(RemoteFleet):
    """Kills a worker before the third collection, and waits for its return before the fifth."""

    n_collections = 0

    def advance(self) -> Any:
        self.n_collections += 1
        if self.n_collections == 3:
            assert isinstance(self._workers, ProcessWorkers)
            process = self._workers._processes[1].process
            process.kill()
            process.join()
        if self.n_collections == 5:
            assert len(self._present) == 1, "the other worker collects meanwhile"
            while len(self._present) < 2:
                self._process(self._receive())
        return super().advance()


class KillsAWorkerThatHasAnswered(RemoteFleet):
    """Kills a worker after its first collection, before the others have answered."""

    has_killed = False

    def _process(self, arrived: Any) -> None:
        has_collected = all(each.order.targets for each in arrived)
        if has_collected and len(arrived) == 2 and not self.has_killed:
            self.has_killed = True
            assert isinstance(self._workers, ProcessWorkers)
            self._workers._processes[1].process.kill()
            ((number, gone),) = self._workers.wait()
            assert number == 1 and isinstance(gone, Gone)
            assert not self._replace(self._all[1], gone), "it has answered all orders"
        super()._process(arrived)


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Start a cluster on loopback addresses: a head that does not act, and two nodes of one CPU."""
    if sys.platform != "linux":
        pytest.skip("each node needs a loopback address of its own")
    from ray.cluster_utils import Cluster

    addresses = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    cluster = Cluster()
    try:
        for address in addresses:
            n_cpus = 0 if address == addresses[0] else 1
            cluster.add_node(
                num_cpus=n_cpus,
                node_ip_address=address,
                include_dashboard=False,
                env_vars={"RAY_worker_niceness": "0"},
            )
        yield cluster
    finally:
        cluster.shutdown()


class KillsANode(RemoteFleet):
    """Kills the node of a worker before the third collection."""

    nodes: Any = ()
    n_collections = 0

    def advance(self) -> Any:
        self.n_collections += 1
        if self.n_collections == 3:
            import ray

            assert isinstance(self._workers, RayWorkers)
            placed = self._workers._started[1].placed
            assert placed is not None
            (node,) = (each for each in self.nodes if placed[1] == f"node {each.node_ip_address}")
            raylet = node.all_processes["raylet"][0].process
            raylet.kill()
            raylet.wait()
            with pytest.raises(ray.exceptions.RayActorError):
                while True:  # its process acts until it misses the raylet
                    ray.get(self._workers._started[1].actor.node.remote())
        return super().advance()
