"""`ProcessWorkers`: rollout workers in processes on this machine, connected by pipes."""

import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from mlagents.trainers.fleet.messages import Failure, Setup
from mlagents.trainers.fleet.worker import Renewal, RolloutWorker
from mlagents.trainers.fleet.workers import Gone, Reply, Workers

_CLOSING_S = 10.0
"""Time within which a worker must end after its pipe was closed, in s."""

_ORPHAN_S = 3.0
"""Time after which a worker exits at the latest once its pipe is closed, in s."""


class _Process(NamedTuple):
    process: BaseProcess
    connection: "Connection[Any, Any]"


class ProcessWorkers(Workers):
    """Rollout workers, each in its own process on this machine.

    A worker ends when its pipe closes, and therefore also when this process ends for any reason.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, _Process] = {}

    def start(self, setup: Setup) -> None:
        """Start the process of a worker; see `Workers.start`."""
        here, there = self._context.Pipe()
        # The process is not a daemon, because environments may start their own processes.
        process = self._context.Process(
            target=_serve, args=(there, setup), name=f"rollout worker {setup.worker}"
        )
        process.start()
        there.close()
        self._processes[setup.worker] = _Process(process, here)

    def call(self, worker: int, method: str, *arguments: Any) -> None:
        """Call a method of a worker; see `Workers.call`."""
        with suppress(OSError):  # `wait` reports a process that has ended
            _send(self._processes[worker].connection, (method, arguments))

    def renew(self, workers: Mapping[int, object], renewals: Mapping[str, Renewal]) -> None:
        """Send new policies to workers; see `Workers.renew`."""
        message = _pickled(("renew", (dict(renewals),)))
        for worker in workers:
            with suppress(OSError):
                self._processes[worker].connection.send_bytes(message)

    def wait(self, timeout_s: float | None = None) -> list[Reply]:
        """Wait for replies; see `Workers.wait`."""
        worker_of = {each.connection: worker for worker, each in self._processes.items()}
        ready = wait(list(worker_of), timeout_s)
        return [
            Reply(worker, self._receive(worker))
            for connection, worker in worker_of.items()
            if connection in ready
        ]

    def _receive(self, worker: int) -> Any:
        try:
            return self._processes[worker].connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._gone(worker)

    def _gone(self, worker: int) -> Gone:
        process, connection = self._processes.pop(worker)
        connection.close()
        process.join(_CLOSING_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        return Gone(_ended(process.exitcode))

    def close(self) -> None:
        """End all processes; see `Workers.close`."""
        processes, self._processes = list(self._processes.values()), {}
        for _, connection in processes:
            connection.close()
        deadline_s = time.monotonic() + _CLOSING_S
        for process, _ in processes:
            process.join(max(0.0, deadline_s - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()


def _pickled(message: object) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def _send(connection: "Connection[Any, Any]", message: object) -> None:
    """Send a message. `Connection.send` would copy arrays two more times."""
    connection.send_bytes(_pickled(message))


def _ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit status {exit_code}"


def _serve(connection: "Connection[Any, Any]", setup: Setup) -> None:
    """Run a worker in its own process until the pipe is closed."""
    for number in (signal.SIGINT, getattr(signal, "SIGHUP", None)):
        if number is not None:  # the head handles signals of the terminal, and closes the pipe
            signal.signal(number, signal.SIG_IGN)
    calls: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = queue.SimpleQueue()
    ready = threading.Event()
    worker: RolloutWorker | None = None

    def read() -> None:
        try:
            while True:
                method, arguments = connection.recv()
                if method == "renew":
                    ready.wait()
                    if worker is not None:
                        worker.renew(*arguments)
                else:
                    calls.put((method, arguments))
        except (EOFError, OSError):
            calls.put(None)
            if worker is not None:
                worker.stop()
            time.sleep(_ORPHAN_S)  # the players may not answer any more
            os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    try:
        worker = RolloutWorker(setup)
    except Exception as error:
        ready.set()
        while calls.get() is not None:
            _reply(connection, failure_of(error))
        return
    ready.set()
    try:
        while (call := calls.get()) is not None:
            method, arguments = call
            try:
                result = getattr(worker, method)(*arguments)
            except Exception as error:
                result = failure_of(error)
            _reply(connection, result)
    finally:
        worker.close()


def _reply(connection: "Connection[Any, Any]", result: Any) -> None:
    with suppress(OSError):  # the head has closed the pipe; the reader ends the loop
        _send(connection, result)


def failure_of(error: Exception) -> Failure:
    """Return an error with its traceback in a form that can be pickled."""
    trace = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Failure(error, trace)
