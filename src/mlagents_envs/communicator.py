"""`Communicator`: one message out, one message back, a deadline.

The trainer serves and the simulation calls: each message of the simulation is *received*, and
the trainer's next message is *sent* as its answer. Messages are bytes here; `codec` and
`handshake` know what is in them.
"""

from abc import abstractmethod
from typing import Self

from mlagents_envs.closing import Closing

Received = bytes | memoryview
"""A message of the simulation. A view keeps the bytes that were read with it."""


class Communicator(Closing):
    """The trainer's end of a connection to one simulation."""

    @abstractmethod
    def open(self) -> None:
        """Start to listen; return without waiting for the simulation.

        Raises:
            UnityWorkerInUseException: The port is taken.
        """

    @abstractmethod
    def receive(self, timeout_s: float, *, alarm: int | None = None) -> Received | None:
        """Wait for the simulation's next message.

        Args:
            timeout_s: How long to wait at most.
            alarm: A file descriptor to watch meanwhile, for example one that becomes readable
                when the player's process exits.

        Returns:
            The message, or None when the alarm became readable first.

        Raises:
            UnityTimeOutException: Nothing came in time.
            UnityCommunicatorStoppedException: The simulation hung up.
            UnityCommunicationException: The simulation broke the protocol.
        """

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Answer the message received last; return as soon as it is handed to the system.

        Raises:
            UnityCommunicatorStoppedException: The simulation hung up.
        """

    def silence(self, timeout_s: float) -> str:
        """Say for an error that no message came within so many seconds, and what is known of it."""
        return f"the simulation sent no message within {timeout_s:g} s"

    @abstractmethod
    def fileno(self) -> int:
        """File descriptor that becomes readable when the simulation's next message arrives."""

    def filenos(self) -> tuple[int, ...]:
        """File descriptors of which one becomes readable when it is time to `receive(0)`.

        Unlike `fileno`, also before the simulation has connected; each `receive` may change them.
        """
        return (self.fileno(),)

    @abstractmethod
    def close(self) -> None:
        """Hang up and stop listening. Calling it again does nothing."""

    def __enter__(self) -> Self:
        self.open()
        return self
