"""HTTP/2 connection on a socket with deadlines, shared by both ends of the wire.

Deadlines are values of `time.monotonic`; None waits without a limit.
"""

import selectors
import socket
import time
from collections import deque
from contextlib import suppress

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityTimeOutException,
)
from mlagents_envs.http2 import ClientConnection, Event, ProtocolError, ServerConnection

# Unlike epoll, poll needs neither a file descriptor nor system calls to register sockets.
Selector: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)

_READ_BYTES = 64 * 2**10
# poll() takes milliseconds as a 31-bit number, so a longer wait is split.
_LONGEST_WAIT_S = 86_400.0
# On close, unread bytes of the peer are read first. Otherwise the system would send a reset, and
# the peer could lose our last bytes. The number of reads is limited in case the peer never stops.
_LAST_READS = 64


def wait(selector: selectors.BaseSelector, deadline: float | None) -> list[selectors.SelectorKey]:
    """Wait until a registered object is ready, and return the keys of all that are.

    Raises:
        TimeoutError: The deadline has passed and no object is ready.
    """
    while True:
        wait_s = _LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
        ready = selector.select(min(max(wait_s, 0.0), _LONGEST_WAIT_S))
        if ready:
            return [key for key, _ in ready]
        if wait_s < _LONGEST_WAIT_S:
            raise TimeoutError


class Http2Socket:
    """Connected socket that carries an HTTP/2 connection.

    Args:
        sock: Connected socket, which this object owns from now on.
        connection: Server or client side of the HTTP/2 connection.
        peer: Name of the other end, for error messages.

    Attributes:
        events: Events of the connection, oldest first; the owner removes them.
    """

    def __init__(
        self, sock: socket.socket, connection: ServerConnection | ClientConnection, *, peer: str
    ) -> None:
        self.events: deque[Event] = deque()
        self._socket = sock
        self._connection = connection
        self._peer = peer
        self._unsent = memoryview(b"")
        self._selector = Selector()
        self._selector.register(sock, selectors.EVENT_READ)
        sock.setblocking(False)
        with suppress(OSError):  # fails on some systems if the peer is gone; `read` reports that
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    @property
    def peer_port(self) -> int:
        """Port of the other end; 0 if it has none."""
        try:
            return int(self._socket.getpeername()[1])
        except (OSError, IndexError):  # disconnected, or not an internet socket
            return 0

    def read(self, deadline: float | None) -> None:
        """Read once from the socket, which must be ready, and send the answers that are due.

        Raises:
            UnityTimeOutException: The peer does not read our answers; unsent bytes are kept.
            UnityCommunicatorStoppedException: The peer closed the connection.
            UnityCommunicationException: The peer broke the protocol.
        """
        if self._unsent:  # otherwise answers would pile up if the peer does not read them
            self.flush(deadline)
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise UnityCommunicatorStoppedException(
                f"the connection to {self._peer} was lost{self._if_not_established}: {error}"
            ) from error
        if not data:
            raise UnityCommunicatorStoppedException(
                f"{self._peer} closed the connection{self._if_not_established}"
            )
        try:
            self.events += self._connection.receive_data(data)
        except ProtocolError as error:
            raise UnityCommunicationException(
                f"{self._peer} broke the protocol: {error.reason}"
            ) from error
        self.flush(deadline)

    def wait_and_read(self, deadline: float | None) -> None:
        """Wait until the socket is ready, then `read`.

        Raises:
            UnityTimeOutException: The socket was not ready before the deadline, or the deadline
                had already passed.
        """
        try:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError  # the socket of a peer that never stops sending is always ready
            wait(self._selector, deadline)
        except TimeoutError:
            raise UnityTimeOutException(f"{self._peer} did not respond in time") from None
        self.read(deadline)

    def flush(self, deadline: float | None) -> None:
        """Write the bytes that the connection has to send, as far as its windows allow.

        Raises:
            UnityTimeOutException: The peer does not read; unsent bytes are kept.
            UnityCommunicatorStoppedException: The peer closed the connection.
        """
        data = self._connection.bytes_to_send()
        if self._unsent:
            data = bytes(self._unsent) + data
        if not data:
            return
        self._unsent = memoryview(data)
        self._write()
        if self._unsent:
            self._selector.modify(self._socket, selectors.EVENT_WRITE)
            try:
                while self._unsent:
                    wait(self._selector, deadline)
                    self._write()
            except TimeoutError:
                raise UnityTimeOutException(
                    f"{self._peer} did not read in time; {len(self._unsent)} bytes are unsent"
                ) from None
            finally:
                self._selector.modify(self._socket, selectors.EVENT_READ)

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            raise UnityCommunicatorStoppedException(
                f"the connection to {self._peer} was lost: {error}"
            ) from error
        self._unsent = self._unsent[sent:]

    def send(self, deadline: float | None) -> None:
        """Write our whole message, and read window updates in between if needed.

        Raises:
            UnityTimeOutException: The peer did not accept the message before the deadline.
            UnityCommunicatorStoppedException: The peer closed the connection.
            UnityCommunicationException: The peer broke the protocol.
        """
        self.flush(deadline)
        while self._connection.sending:
            self.wait_and_read(deadline)

    def close(self) -> None:
        """Send the last frames as far as possible without waiting, and close the socket."""
        self._connection.close()
        with suppress(OSError):
            self._socket.send(bytes(self._unsent) + self._connection.bytes_to_send())
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(_LAST_READS):
                if not self._socket.recv(_READ_BYTES):
                    break
        self._selector.close()
        self._socket.close()

    @property
    def _if_not_established(self) -> str:
        if self._connection.established:
            return ""
        return " before it sent anything; it may be connected to another program"
