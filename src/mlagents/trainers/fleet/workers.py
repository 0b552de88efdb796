"""`Workers`: the processes of rollout workers, and how to talk to them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from mlagents.trainers.fleet.messages import Setup
from mlagents.trainers.fleet.worker import Renewal


class Gone(NamedTuple):
    """The process of a worker has ended.

    Attributes:
        reason: How it ended, as the end of a sentence about the worker.
    """

    reason: str


class Reply(NamedTuple):
    """Answer to the oldest call of a worker that is not answered yet.

    Attributes:
        worker: Number of the worker.
        value: Result of the call, a `Failure` or `Gone`. After `Gone`, no call is answered until
            the worker is started again.
    """

    worker: int
    value: Any


class Workers(ABC):
    """Processes that each run a `RolloutWorker`.

    Calls of a worker run one after the other, in the order in which they were made.
    """

    @abstractmethod
    def start(self, setup: Setup) -> None:
        """Start the process of a worker without waiting for it; an earlier one must be gone."""

    @abstractmethod
    def call(self, worker: int, method: str, *arguments: Any) -> None:
        """Call a method of a worker. Its result arrives in a later `wait`."""

    @abstractmethod
    def renew(self, workers: Mapping[int, object], renewals: Mapping[str, Renewal]) -> None:
        """Hand new policies to these workers, even while a call runs."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[Reply]:
        """Wait for replies of any workers; return all that have arrived, the oldest first.

        Args:
            timeout_s: Time in s after which an empty list is returned; None for no limit.
        """

    @abstractmethod
    def close(self) -> None:
        """End all processes. Calling it again does nothing."""
