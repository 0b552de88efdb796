"""`ProcessGroup`: the learners of a run, each in its own process, on one machine or on several.

Learners exchange numbers and JSON, never pickled objects: between CPUs with Gloo, and between GPUs
with NCCL.
"""

import io
import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.sharding import Shards

dist: Any = torch.distributed  # the type hints lack stores and process groups
Store = Any
"""`torch.distributed.Store`, a key-value store that all learners can reach."""

LONGEST_WAIT = timedelta(minutes=30)
"""Longest time to wait for other learners, whose players may be slow."""

_FAILED = "mlagents/failed"
_ALIVE = "mlagents/alive"
_POST_S = 2.0
"""Time to wait for another learner to give the cause of a lost connection, in s."""
_CAPACITY = 4096
"""Largest message that needs only one exchange, in bytes."""


class LearnerError(UnityTrainerException):
    """Another learner of the run has ended, or does not fit this one."""


class ProcessGroup:
    """All learners of a run, seen from one of them.

    Args:
        store: Key-value store that all learners can reach.
        rank: Number of this learner, from 0.
        size: Number of learners.
        device: Device to learn on.
        hostname: Address to listen on; None for the address of this machine's name, or of the
            network interface in the variable GLOO_SOCKET_IFNAME.

    Attributes:
        failure: Reason why the run must end, once it is known.

    Raises:
        LearnerError: The learners cannot connect.
    """

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        device: torch.device,
        hostname: str | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.failure: str | None = None
        self._store = store
        self._hostname = hostname
        self._n_groups = 0
        self._is_left = False
        self._control = self._gloo("control")
        self._backend = "gloo"

    def use_nccl(self) -> None:
        """Sum gradients with NCCL, between GPUs. Either all learners call this, or none."""
        self._backend = "nccl"
        torch.cuda.set_device(self.device)

    def shards(self) -> "GroupShards":
        """Return the shards of another behavior. Communicates."""
        self._n_groups += 1
        name = f"behavior{self._n_groups}"
        if self._backend == "gloo":
            return GroupShards(self, self._gloo(name), torch.device("cpu"))
        store = dist.PrefixStore(name, self._store)
        options = dist.ProcessGroupNCCL.Options()
        backend = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        return GroupShards(self, backend, self.device)

    def gather(self, message: Any) -> list[Any]:
        """Return the messages of all learners, by rank. Communicates.

        Args:
            message: This learner's message, which JSON must support; floats may be NaN.

        Raises:
            LearnerError: Another learner has ended.
        """
        written = json.dumps(message).encode()
        sizes, contents = self._exchange(written, _CAPACITY)
        if max(sizes) > _CAPACITY:
            _, contents = self._exchange(written, max(sizes))
        return [json.loads(content[:n]) for content, n in zip(contents, sizes, strict=True)]

    def broadcast(self, state: Any) -> Any:
        """Return the state of the first learner. Communicates.

        Args:
            state: State of tensors and plain values. Only the first learner's is used.
        """
        content = torch.zeros(0, dtype=torch.uint8)
        if self.rank == 0:
            buffer = io.BytesIO()
            torch.save(state, buffer)
            content = torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)
        (size, *_) = self.gather(len(content))
        if self.rank:
            content = torch.zeros(size, dtype=torch.uint8)
        self._wait(lambda: self._control.broadcast(content, 0))
        if self.rank == 0:
            return state
        buffer = io.BytesIO(content.numpy().tobytes())
        return torch.load(buffer, weights_only=True, map_location="cpu")

    def require_same(self, what: str, value: str, *, remedy: str) -> None:
        """Raise unless all learners have the same value. Communicates.

        Args:
            what: Name of the value, for the message.
            value: This learner's value.
            remedy: Advice for the message.

        Raises:
            LearnerError: Two learners have different values. The message names both.
        """
        values = self.gather(value)
        for rank, other in enumerate(values):
            if other != values[0]:
                raise LearnerError(
                    f"learners 0 and {rank} have different {what}: {values[0]} and {other}. "
                    f"{remedy}"
                )

    def leave(self, cause: str) -> None:
        """Tell the other learners that this one ends, and stop communicating."""
        if self._is_left:
            return
        self._is_left = True
        if self.failure is None:
            self.failure = cause
            try:
                self._store.set(_FAILED, json.dumps([self.rank, cause]))
            except (RuntimeError, OSError):
                return  # the machine of the store has ended

    def report(self, failure: str) -> None:
        """Record that another learner has ended. The next exchange or `check` raises an error."""
        if self.failure is None:
            self.failure = self._posted() or failure

    def check(self) -> None:
        """Raise if another learner is known to have ended.

        Raises:
            LearnerError: Another learner has ended. The message says which and why.
        """
        if self.failure is not None and not self._is_left:
            self._is_left = True
            raise LearnerError(self.failure)

    def run(self, start: Callable[[], Any]) -> None:
        """Start an exchange of numbers and wait for its end.

        Raises:
            LearnerError: Another learner has ended.
        """
        if self._is_left:
            return
        try:
            start().wait()
        except RuntimeError as error:
            self._raise_cause(error)

    def _gloo(self, name: str) -> Any:
        store = dist.PrefixStore(name, self._store)
        try:
            if self._hostname is None:
                return dist.ProcessGroupGloo(store, self.rank, self.size, LONGEST_WAIT)
            options = dist.ProcessGroupGloo._Options()
            options._timeout = LONGEST_WAIT
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._hostname)]
            return dist.ProcessGroupGloo(store, self.rank, self.size, options)
        except RuntimeError as error:
            raise LearnerError(
                f"learner {self.rank} cannot connect to the other learners: {error}"
            ) from error

    def _exchange(self, content: bytes, capacity: int) -> tuple[list[int], list[bytes]]:
        own = torch.zeros(8 + capacity, dtype=torch.uint8)
        held = content[:capacity]
        own[: 8 + len(held)] = torch.frombuffer(
            bytearray(len(content).to_bytes(8, "little") + held), dtype=torch.uint8
        )
        everyone = [torch.zeros_like(own) for _ in range(self.size)]
        self._wait(lambda: self._control.allgather([everyone], [own]))
        received = [each.numpy().tobytes() for each in everyone]
        return [int.from_bytes(each[:8], "little") for each in received], [
            each[8:] for each in received
        ]

    def _wait(self, start: Callable[[], Any]) -> None:
        """Wait for an exchange that may take long, and react to signals and failures meanwhile."""
        self.check()
        if self._is_left:
            raise LearnerError(self.failure or "this learner has left the others")
        try:
            work = start()
            pause_s = 0.0
            while not work.is_completed():
                self.check()
                time.sleep(pause_s)
                pause_s = min(pause_s + 1e-5, 0.002)
            work.wait()
        except RuntimeError as error:
            self._raise_cause(error)

    def _raise_cause(self, error: RuntimeError) -> None:
        with suppress(RuntimeError):
            self._store.set(f"{_ALIVE}/{self.rank}", "")
        deadline_s = time.monotonic() + _POST_S
        while self.failure is None and time.monotonic() < deadline_s:
            self.failure = self._posted()
            time.sleep(0.05)
        self._is_left = True
        raise LearnerError(self.failure or self._lost()) from error

    def _lost(self) -> str:
        """Return a message about a learner that ended without giving a cause."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        with suppress(RuntimeError):  # the machine of the store may have ended
            silent = [rank for rank in others if not self._store.check([f"{_ALIVE}/{rank}"])]
            others = silent or others
        return (
            f"the connection to learner {' or '.join(map(str, others))} was lost. Look at its log, "
            "and check whether its process was killed, for example for lack of memory."
        )

    def _posted(self) -> str | None:
        """Return the cause that another learner gave before it ended."""
        with suppress(RuntimeError):  # the machine of the store may have ended
            if self._store.check([_FAILED]):
                rank, cause = json.loads(self._store.get(_FAILED))
                return f"learner {rank} has ended: {cause}"
        return None


class GroupShards(Shards):
    """Communication of one learner with the other learners of a behavior.

    Args:
        group: All learners of the run.
        backend: Process group that sums numbers.
        device: Device on which the backend sums.
    """

    def __init__(self, group: ProcessGroup, backend: Any, device: torch.device) -> None:
        self.rank = group.rank
        self.size = group.size
        self._group = group
        self._backend = backend
        self._device = device

    def add(self, numbers: Tensor) -> None:
        """Replace numbers by their sum over all learners, in place.

        Raises:
            LearnerError: Another learner has ended.
        """
        there = numbers.to(self._device).contiguous()
        self._group.run(lambda: self._backend.allreduce([there]))
        if there is not numbers:
            numbers.copy_(there)

    def least(self, n: int) -> int:
        """Return the smallest n among all learners.

        Raises:
            LearnerError: Another learner has ended.
        """
        number = torch.tensor([n], device=self._device)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MIN
        self._group.run(lambda: self._backend.allreduce([number], options))
        return int(number.item())
