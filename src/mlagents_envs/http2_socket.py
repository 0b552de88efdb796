"""An HTTP/2 connection on a socket, with deadlines: what both ends of the wire share.

Deadlines are moments on the clock of `time.monotonic`; None is never.
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

# Registers in memory alone: no descriptor of its own, no system call but the one that waits.
Selector: type[selectors.BaseSelector] = getattr(
    selectors, "PollSelector", selectors.SelectSelector
)

_READ_BYTES = 64 * 2**10
# poll() counts milliseconds in 31 bits; a longer wait is several of these.
_LONGEST_WAIT_S = 86_400.0
# What a peer had under way when we hung up is read away, so that its system does not take the
# close for a reset and drop our last words; a peer that never stops is not waited for.
_LAST_READS = 64


def wait(selector: selectors.BaseSelector, deadline: float | None) -> list[selectors.SelectorKey]:
    """Return what is ready, waiting for it until the deadline at most.

    Raises:
        TimeoutError: Nothing is.
    """
    while True:
        wait_s = _LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
        ready = selector.select(min(max(wait_s, 0.0), _LONGEST_WAIT_S))
        if ready:
            return [key for key, _ in ready]
        if wait_s < _LONGEST_WAIT_S:
            raise TimeoutError


class Http2Socket:
    """Moves bytes between a connected socket, which it owns, and an HTTP/2 connection.

    Args:
        sock: The socket.
        connection: Our role on it.
        peer: What errors call the other end.

    Attributes:
        events: What the bytes read so far amount to, oldest first; the owner removes them.
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
        with suppress(OSError):  # some systems refuse where the peer is gone; `read` will say so
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._socket.fileno()

    @property
    def peer_port(self) -> int:
        """The port of the other end; 0 where there is none."""
        try:
            return int(self._socket.getpeername()[1])
        except (OSError, IndexError):  # gone, or not of the internet
            return 0

    def read(self, deadline: float | None) -> None:
        """Read once from the socket, which is ready, and answer what asks for an answer.

        Raises:
            UnityTimeOutException: The peer does not read our answer; what is unsent is kept.
            UnityCommunicatorStoppedException: The peer hung up.
            UnityCommunicationException: The peer broke the protocol.
        """
        if self._unsent:  # a peer that reads no answers is not read from: else they would pile up
            self.flush(deadline)
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise UnityCommunicatorStoppedException(
                f"the connection to {self._peer} broke{self._without_a_word}: {error}"
            ) from error
        if not data:
            raise UnityCommunicatorStoppedException(f"{self._peer} hung up{self._without_a_word}")
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
            UnityTimeOutException: It was not ready before the deadline, or that has passed already.
        """
        try:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError  # a peer that talks on and on is always ready
            wait(self._selector, deadline)
        except TimeoutError:
            raise UnityTimeOutException(f"{self._peer} was silent for too long") from None
        self.read(deadline)

    def flush(self, deadline: float | None) -> None:
        """Write what the connection has to send and its windows allow.

        Raises:
            UnityTimeOutException: The peer does not read; what is unsent is kept.
            UnityCommunicatorStoppedException: The peer hung up.
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
                    f"{self._peer} did not read for too long; {len(self._unsent)} bytes are unsent"
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
                f"the connection to {self._peer} broke: {error}"
            ) from error
        self._unsent = self._unsent[sent:]

    def send(self, deadline: float | None) -> None:
        """Write our whole message, reading meanwhile where its windows ask for that.

        Raises:
            UnityTimeOutException: The peer did not take it before the deadline.
            UnityCommunicatorStoppedException: The peer hung up.
            UnityCommunicationException: The peer broke the protocol.
        """
        self.flush(deadline)
        while self._connection.sending:
            self.wait_and_read(deadline)

    def close(self) -> None:
        """Say goodbye as far as that does not take waiting, and close the socket."""
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
    def _without_a_word(self) -> str:
        return "" if self._connection.established else " without a word; it may serve another"
