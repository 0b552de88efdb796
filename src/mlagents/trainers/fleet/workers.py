"""`Workers`: the processes of rollout workers, and communication with them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from mlagents.trainers.fleet.messages import Setup
from mlagents.trainers.fleet.worker import Renewal


class Gone(NamedTuple):
    """The process of a worker has ended.

    Attributes:
        reason: Description of the end, such as "ended with exit status 1".
    """

    reason: str


class Reply(NamedTuple):
    """Answer to a worker's oldest unanswered call.

    Attributes:
        worker: Number of the worker.
        value: Result of the call, a `Failure` or `Gone`. After `Gone`, no calls are answered until
            the worker is started again.
    """

    worker: int
    value: Any


class Workers(ABC):
    """Processes that each run a `RolloutWorker`.

    Calls of a worker's methods run one after the other, in order.
    """

    @abstractmethod
    def start(self, setup: Setup) -> None:
        """Start a worker's process without waiting for it. An earlier one must have ended."""

    @abstractmethod
    def call(self, worker: int, method: str, *arguments: Any) -> None:
        """Call a method of a worker. Its result arrives in a later `wait`."""

    @abstractmethod
    def renew(self, workers: Mapping[int, object], renewals: Mapping[str, Renewal]) -> None:
        """Send new policies to these workers, even while a call runs."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> list[Reply]:
        """Wait for replies of any workers; return all that have arrived, oldest first.

        Args:
            timeout_s: Time in s after which an empty list is returned; None for no limit.
        """

    @abstractmethod
    def close(self) -> None:
        """End all processes. Calling it again does nothing."""
