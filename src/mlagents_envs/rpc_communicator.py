"""`RpcCommunicator`: a listening socket that one simulation calls.

Speaks the protocol's one gRPC method (wire protocol, sections 1.1 and 2.1) directly in HTTP/2
frames, without threads: all work is done inside `receive` and `send`.
"""

import errno
import ipaddress
import logging
import os
import selectors
import socket
import time
from contextlib import suppress
from pathlib import Path

from mlagents_envs.communicator import Communicator
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from mlagents_envs.http2 import DEFAULT_MAX_MESSAGE_BYTES, Message, ServerConnection
from mlagents_envs.http2_socket import Http2Socket, Selector, wait

_LOOPBACK = "127.0.0.1"
_LOOPBACK_IPV6 = "::1"
_BACKLOG = 16
# Connections that have not introduced themselves yet: the simulation, or a port scanner.
_MAX_CANDIDATES = 16
_FREE_PORT_ATTEMPTS = 16

_logger = logging.getLogger("mlagents_envs")


class RpcCommunicator(Communicator):
    """The trainer's end of the wire, for one simulation.

    The first connection that introduces itself as HTTP/2 is the simulation; from then on others
    are closed at once, and when it ends, so does the session. Anybody who can reach the port can
    be that first: the protocol has no authentication, so only loopback is listened on by default.

    Args:
        port: Where to listen; 0 picks a free port, see `port` after `open`.
        worker_id: Which worker this is, for errors.
        listen_address: A numeric address, or a name, to listen on. The default is loopback, IPv4
            and, where the machine has it, IPv6: simulations connect to `localhost`.
        max_message_bytes: Largest message accepted from the simulation. What it accepts itself is
            commonly 4 MiB.
        send_timeout_s: How long `send` waits for a simulation that does not read.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        worker_id: int = 0,
        listen_address: str = _LOOPBACK,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        send_timeout_s: float = 60.0,
    ) -> None:
        self._port = port
        self._worker_id = worker_id
        self._listen_address = listen_address
        self._max_message_bytes = max_message_bytes
        self._send_timeout_s = send_timeout_s
        self._listeners: list[socket.socket] = []
        self._selector = Selector()
        self._alarm: int | None = None
        self._candidates: dict[Http2Socket, ServerConnection] = {}
        self._peer: Http2Socket | None = None
        self._connection: ServerConnection | None = None
        self._over = ""  # why the session ended

    @property
    def port(self) -> int:
        """The port to call; with port 0, known after `open`."""
        return self._port

    def open(self) -> None:
        """Start to listen.

        Raises:
            UnityWorkerInUseException: The port is taken.
            UnityEnvironmentException: The address or port cannot be listened on.
        """
        if not _is_loopback(self._listen_address):
            _logger.warning(
                "Listening on %s: whoever reaches port %s from there can pose as the simulation, "
                "and nothing is encrypted.",
                self._listen_address,
                self._port or "(any free one)",
            )
        try:
            self._listeners = self._listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UnityWorkerInUseException(
                    self._worker_id, f"Port {self._port} is held by {_holder_of(self._port)}."
                ) from error
            raise UnityEnvironmentException(
                f"cannot listen on {self._listen_address} port {self._port}: {error}"
            ) from error
        except OverflowError as error:
            raise UnityEnvironmentException(
                f"cannot listen on port {self._port}: ports go from 0 to 65535"
            ) from error
        self._port = self._listeners[0].getsockname()[1]
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def _listen(self) -> list[socket.socket]:
        if self._listen_address != _LOOPBACK:
            return [_listener(self._listen_address, self._port)]
        for _ in range(_FREE_PORT_ATTEMPTS):
            ipv4 = _listener(_LOOPBACK, self._port)
            try:
                return [ipv4, _listener(_LOOPBACK_IPV6, ipv4.getsockname()[1])]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:  # the machine has no IPv6
                    return [ipv4]
                ipv4.close()
                if self._port:
                    raise
        raise OSError(errno.EADDRINUSE, "found no port that is free for both IPv4 and IPv6")

    def receive(self, timeout_s: float, *, alarm: int | None = None) -> bytes | None:
        """Wait for the simulation's next message; the first one may take it to connect.

        Safe to call again after `UnityTimeOutException`: what came so far is kept.

        Args:
            timeout_s: How long to wait at most; 0 only looks.
            alarm: A file descriptor to watch meanwhile.

        Returns:
            The message, or None when the alarm became readable first.

        Raises:
            UnityTimeOutException: Nothing came in time.
            UnityCommunicatorStoppedException: The simulation hung up.
            UnityCommunicationException: The simulation broke the protocol.
        """
        self._require_session()
        self._watch(alarm)
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._next_message()
            if message is not None:
                return message
            try:
                ready = wait(self._selector, deadline)
            except TimeoutError:
                raise self._time_out(timeout_s) from None
            alarmed = any(key.data is None for key in ready)
            if alarmed and len(ready) == 1:
                return None
            try:
                for key in ready:
                    if key.data is not None:
                        key.data(key.fileobj, deadline)
            except UnityCommunicatorStoppedException:
                if alarmed:
                    return None
                raise
            if time.monotonic() >= deadline
