"""A run of a search: an ordinary run in a process of its own, which reports its curve."""

import os
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar

from mlagents.search.measure import is_reached
from mlagents.trainers.reporting.stats import StatsSummary, StatsWriter
from mlagents.trainers.run.interrupt import Interrupted
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.settings.search import Measure

STOP = "stop"
"""The only message to a run."""

_SPAWN = get_context("spawn")

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Job:
    """What a process does.

    Attributes:
        options: All settings of its run.
        behavior: Behavior whose curve it reports; None for every one.
        measure: Statistic that it reports.
        log: File for what the run prints.
        until: Step at which the run ends, to be continued later; None for its own end.
    """

    options: RunOptions
    behavior: str | None
    measure: Measure
    log: Path
    until: int | None = None


class Point(NamedTuple):
    """A value of the measured statistic, as a run reports it."""

    step: int
    value: float


class End(NamedTuple):
    """The end of a run; `error` is None unless the run failed."""

    error: str | None


class Pool(Generic[Key]):
    """Processes that run jobs at the same time, each known by a key.

    It is a context manager: at its end, it asks all runs to end and waits for them.

    Args:
        size: Largest number of processes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._processes: dict[Connection, tuple[Key, SpawnProcess]] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further job may be started now."""
        return len(self._processes) >= self._size

    @property
    def is_empty(self) -> bool:
        """Whether no job is running."""
        return not self._processes

    def start(self, key: Key, job: Job) -> None:
        """Start a job."""
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(job, theirs))
        process.start()
        theirs.close()  # so that our end is closed when the process ends
        self._processes[ours] = key, process

    def stop(self, key: Key) -> None:
        """Ask the run of a key to end at its next summary, and to save."""
        for connection, (other, _) in self._processes.items():
            if other == key:
                with suppress(OSError):  # it has ended already
                    connection.send(STOP)

    def events(self) -> Iterator[tuple[Key, Point | End]]:
        """Wait until a run reports something; yield all reports."""
        for connection in wait(list(self._processes)):
            assert isinstance(connection, Connection)
            key, process = self._processes[connection]
            try:
                event = connection.recv()
            except (EOFError, OSError):
                event = End("the process ended without a message.")
            if isinstance(event, End):
                del self._processes[connection]
                _release(process, connection)
            yield key, event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        for running, _process in list(self._processes.values()):
            self.stop(running)
        for connection, (_, process) in self._processes.items():
            with suppress(EOFError, OSError):
                while not isinstance(connection.recv(), End):
                    pass
            _release(process, connection)
        self._processes.clear()


def _release(process: SpawnProcess, connection: Connection) -> None:
    process.join()
    process.close()
    connection.close()


class _Reporter(StatsWriter):
    """Sends the curve of a run, and ends the run when told to.

    Args:
        job: What to report.
        connection: Connection to the search.
    """

    def __init__(self, job: Job, connection: Connection) -> None:
        self._job = job
        self._connection = connection

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        """Send the measured value of a summary.

        Raises:
            Interrupted: The run has reached its goal, was told to end, or the search is gone.
        """
        job = self._job
        if job.behavior not in (None, category):
            return
        is_over = job.until is not None and step >= job.until
        try:
            if job.measure.tag in values:
                value = values[job.measure.tag].aggregated_value
                self._connection.send(Point(step, value))
                is_over |= is_reached(job.measure, value)
            is_over |= self._connection.poll()  # the only message there is: STOP
        except (OSError, EOFError):
            is_over = True
        if is_over:
            raise Interrupted


def _work(job: Job, connection: Connection) -> None:
    """Run a job in this process."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("a") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
    end = End(None)
    try:
        from mlagents import plugins
        from mlagents.trainers.learn import run_training

        run_training(
            job.options,
            trainer_types=plugins.trainer_types(),
            writers=[_Reporter(job, connection)],
        )
    except (KeyboardInterrupt, Interrupted):
        pass  # the run was told to end
    except BaseException as error:
        end = End(f"{type(error).__name__}: {error}")
        print(end.error, file=sys.stderr)
    with suppress(OSError):  # the search is gone
        connection.send(end)
