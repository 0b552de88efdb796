"""`RpcClient`: the simulation's end of the connection. It calls the trainer."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from mlagents_envs.closing import Closing
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)
from mlagents_envs.http2 import DEFAULT_MAX_MESSAGE_BYTES, ClientConnection, Message
from mlagents_envs.http2_socket import Http2Socket


class RpcClient(Closing):
    """Sends messages to a trainer and receives its answers.

        with RpcClient(port) as client:
            answer = client.call(message)

    Args:
        port: Port the trainer listens on.
        host: Machine the trainer runs on.
        connect_timeout_s: Longest time, in seconds, to wait for the connection in a `with` block.
        max_message_bytes: Largest answer accepted.
    """

    def __init__(
        self,
        port: int,
        *,
        host: str = "localhost",
        connect_timeout_s: float = 10.0,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    ) -> None:
        self._host = host
        self._port = port
        self._connect_timeout_s = connect_timeout_s
        self._max_message_bytes = max_message_bytes
        self._connection: ClientConnection | None = None
        self._socket: Http2Socket | None = None

    def connect(self, timeout_s: float) -> None:
        """Connect to the trainer, which must already be listening.

        Raises:
            UnityEnvironmentException: No trainer listens there.
            UnityTimeOutException: No trainer answered within `timeout_s`.
        """
        where = f"{self._host} port {self._port}"
        try:
            sock = socket.create_connection((self._host, self._port), timeout_s)
        except TimeoutError as error:
            raise UnityTimeOutException(f"{where} did not answer within {timeout_s:g} s") from error
        except (OSError, OverflowError) as error:
            raise UnityEnvironmentException(
                f"cannot connect to a trainer at {where}: {error}. Start the trainer first; it "
                "prints the port it listens on."
            ) from error
        self._connection = ClientConnection(f"{self._host}:{self._port}", self._max_message_bytes)
        self._socket = Http2Socket(sock, self._connection, peer=f"the trainer at {where}")

    def fileno(self) -> int:
        """File descriptor that becomes readable when a part of the answer has arrived."""
        return self._connected().fileno()

    def send(self, message: bytes, timeout_s: float | None = None) -> None:
        """Send a message; `poll` then returns the answer.

        Args:
            message: Message to send.
            timeout_s: Longest time for the trainer to read it, in seconds; None for no limit.

        Raises:
            As `call`.
        """
        sock, connection = self._connected(), self._connection
        assert connection is not None
        with self._closed_on_error():
            connection.request(message)
            sock.send(_deadline(timeout_s))

    def poll(self) -> bytes | None:
        """Read the data that has arrived; return the trainer's answer once it is complete.

        Raises:
            As `call`.
        """
        with self._closed_on_error():
            self._connected().read(None)
        return self._answer()

    def call(self, message: bytes, timeout_s: float | None = None) -> bytes:
        """Send a message and return the trainer's answer.

        After an error, the client is closed, because the state of the trainer is unknown.

        Args:
            message: Message to send.
            timeout_s: Longest time, in seconds, to wait for the answer; None for no limit, since
                the trainer may be learning.

        Raises:
            UnityTimeOutException: No answer arrived in time.
            UnityCommunicatorStoppedException: The trainer refused the call or disconnected.
            UnityCommunicationException: The trainer violated the protocol, or the client is not
                connected.
        """
        deadline = _deadline(timeout_s)
        self.send(message, timeout_s)
        while (answer := self._answer()) is None:
            with self._closed_on_error():
                self._connected().wait_and_read(deadline)
        return answer

    def _connected(self) -> Http2Socket:
        if self._socket is None:
            raise UnityCommunicationException("not connected to a trainer: call connect() first")
        return self._socket

    def _answer(self) -> bytes | None:
        events = self._connected().events
        if not events:
            return None
        event = events.popleft()
        if isinstance(event, Message):
            return bytes(event.data)
        self.close()
        raise UnityCommunicatorStoppedException(f"the trainer ended the session: {event.reason}")

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except UnityException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. Calling it again does nothing."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        self.connect(self._connect_timeout_s)
        return self


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s
