"""`Communicator`: the trainer's interface for exchanging messages with one simulation.

The trainer is the server and the simulation the client: each message of the simulation is
*received*, and the trainer's next message is *sent* as its answer. Messages are bytes; `codec` and
`handshake` encode and decode them.
"""

from abc import abstractmethod
from typing import Self

from mlagents_envs.closing import Closing

Received = bytes | memoryview
"""Message of the simulation. A view keeps the whole buffer that was read in memory."""


class Communicator(Closing):
    """Trainer's end of a connection to one simulation."""

    @abstractmethod
    def open(self) -> None:
        """Start to listen, without waiting for the simulation.

        Raises:
            UnityWorkerInUseException: The port is in use.
        """

    @abstractmethod
    def receive(self, timeout_s: float, *, alarm: int | None = None) -> Received | None:
        """Wait for the simulation's next message.

        Args:
            timeout_s: Longest wait, in seconds.
            alarm: File descriptor that ends the wait when it becomes readable, for example because
                the player has exited.

        Returns:
            The message; None if the alarm became readable first.

        Raises:
            UnityTimeOutException: No message arrived in time.
            UnityCommunicatorStoppedException: The simulation closed the connection.
            UnityCommunicationException: The simulation broke the protocol.
        """

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Answer the last received message; return as soon as the system has taken the answer.

        Raises:
            UnityCommunicatorStoppedException: The simulation closed the connection.
        """

    def silence(self, timeout_s: float) -> str:
        """Return the error message for a simulation that was silent for `timeout_s` seconds."""
        return f"the simulation sent no message within {timeout_s:g} s"

    @abstractmethod
    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the next message arrives."""

    def filenos(self) -> tuple[int, ...]:
        """Return file descriptors, one of which becomes readable when `receive(0)` has work to do.

        Unlike `fileno`, this works before the simulation has connected. Each `receive` may change
        the result.
        """
        return (self.fileno(),)

    @abstractmethod
    def close(self) -> None:
        """Close the connection and stop listening. Calling it again does nothing."""

    def __enter__(self) -> Self:
        self.open()
        return self
