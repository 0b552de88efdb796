"""`RpcCommunicator`: a listening socket for one simulation.

It implements the protocol's one gRPC method (`docs/protocol.md`) directly in HTTP/2 frames. It has
no threads: `receive` and `send` do all the work.
"""

import errno
import ipaddress
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mlagents_envs.communicator import Communicator, Received
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
_LARGEST_PORT = 65_535
_BACKLOG = 16
# Connections whose first frame has not arrived yet: the simulation, or a port scanner.
_MAX_CANDIDATES = 16
_FREE_PORT_ATTEMPTS = 16

_logger = logging.getLogger("mlagents_envs")


class RpcCommunicator(Communicator):
    """Trainer's end of the wire for one simulation.

    The first connection that speaks HTTP/2 is the simulation. All others are then closed at once,
    and the session ends when this connection does. The protocol has no authentication, so any
    program that can reach the port can connect as the simulation. By default this listens only on
    loopback.

    Args:
        worker_id: Number of the worker, which is added to `base_port` and named in errors.
        base_port: Port of worker 0. 0 takes any free port; `port` has it after `open`.
        timeout_wait: Seconds that `send` waits for a simulation that does not read.
        listen_address: Numeric address or host name to listen on. The default is loopback, both
            IPv4 and, if available, IPv6, because simulations connect to `localhost`.
        max_message_bytes: Size of the largest message to accept from the simulation. Simulations
            usually accept up to 4 MiB themselves.
    """

    def __init__(
        self,
        worker_id: int = 0,
        base_port: int = 0,
        timeout_wait: float = 60.0,
        *,
        listen_address: str = _LOOPBACK,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    ) -> None:
        self._port = base_port + worker_id if base_port else 0
        self._worker_id = worker_id
        self._listen_address = listen_address
        self._max_message_bytes = max_message_bytes
        self._send_timeout_s = timeout_wait
        self._listeners: list[socket.socket] = []
        self._selector = Selector()
        self._alarm: int | None = None
        self._candidates: dict[Http2Socket, ServerConnection] = {}
        self._peer: Http2Socket | None = None
        self._connection: ServerConnection | None = None
        self._has_received = False
        self._over = ""  # why the session ended

    @property
    def port(self) -> int:
        """Port for the simulation to connect to; with `base_port` 0, it is known after `open`."""
        return self._port

    def open(self) -> None:
        """Start to listen.

        Raises:
            UnityWorkerInUseException: The port is in use.
            UnityEnvironmentException: The system cannot listen on the address or port.
        """
        if not 0 <= self._port <= _LARGEST_PORT:
            raise UnityEnvironmentException(
                f"cannot listen on port {self._port}: expected a port from 0 to {_LARGEST_PORT}"
            )
        if not _is_loopback(self._listen_address):
            _logger.warning(
                "Listening on %s: any program that can reach port %s can connect as the "
                "simulation, and messages are not encrypted.",
                self._listen_address,
                self._port or "(any free port)",
            )
        try:
            self._listeners = self._listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UnityWorkerInUseException(
                    self._worker_id, f"Port {self._port} is used by {_holder_of(self._port)}."
                ) from error
            raise UnityEnvironmentException(
                f"cannot listen on {self._listen_address} port {self._port}: {error}"
            ) from error
        self._port = self._listeners[0].getsockname()[1]
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def _listen(self) -> list[socket.socket]:
        if self._listen_address not in (_LOOPBACK, "localhost"):
            return [_listener(self._listen_address, self._port)]
        for _ in range(_FREE_PORT_ATTEMPTS):
            ipv4 = _listener(_LOOPBACK, self._port)
            try:
                return [ipv4, _listener(_LOOPBACK_IPV6, ipv4.getsockname()[1])]
            except OSError as error:
                if error.errno != errno.EADDRINUSE:  # IPv6 is not available
                    return [ipv4]
                ipv4.close()
                if self._port:
                    raise
        raise OSError(errno.EADDRINUSE, "found no port that is free for both IPv4 and IPv6")

    def receive(self, timeout_s: float, *, alarm: int | None = None) -> Received | None:
        """Wait for the simulation's next message, and first for its connection if necessary.

        After `UnityTimeOutException` it may be called again: bytes that have arrived are kept.

        Args:
            timeout_s: Longest wait, in seconds; 0 returns at once.
            alarm: File descriptor that ends the wait when it becomes readable.

        Returns:
            The message; None if the alarm became readable first.

        Raises:
            UnityTimeOutException: No message arrived in time.
            UnityCommunicatorStoppedException: The simulation closed the connection.
            UnityCommunicationException: The simulation broke the protocol.
        """
        self._require_session()
        self._watch(alarm)
        deadline = time.monotonic() + timeout_s
        message = self._next_message()
        if message is None and timeout_s == 0 and self._peer is not None:
            self._read_peer(self._peer, deadline)  # usually succeeds, and saves a system call
            message = self._next_message()
        try:
            while message is None:
                if not self._handle(wait(self._selector, deadline), deadline):
                    return None
                message = self._next_message()
                if message is None and time.monotonic() >= deadline:
                    raise TimeoutError
        except TimeoutError:
            raise UnityTimeOutException(self.silence(timeout_s)) from None
        return message

    def silence(self, timeout_s: float) -> str:
        """Return the error message for a simulation that sent nothing in time.

        If another program is connected, the message names it, as far as /proc shows it.
        """
        if self._has_received:
            return f"the simulation is connected, but sent no message within {timeout_s:g} s"
        connected = [self._peer] if self._peer is not None else list(self._candidates)
        if not connected:
            return f"no simulation connected to port {self._port} within {timeout_s:g} s"
        programs = sorted({_program_at(self._port, each.peer_port) for each in connected})
        return (
            f"no simulation connected to port {self._port} within {timeout_s:g} s; "
            f"{' and '.join(programs)} is connected, but sent no message. If that is not the "
            "simulation, end that program or choose another port"
        )

    def send(self, message: bytes) -> None:
        """Answer the last received message; return as soon as the system has taken the answer.

        Raises:
            UnityTimeOutException: The simulation does not read. The session is over.
            UnityCommunicatorStoppedException: The simulation closed the connection.
            UnityCommunicationException: No message waits for an answer, or the simulation broke
                the protocol.
        """
        self._require_session()
        peer, connection = self._peer, self._connection
        if peer is not None and peer.events:  # the peer ended the call: raises
            self._next_message()
        if peer is None or connection is None or not connection.awaits_response:
            raise UnityCommunicationException("no message of the simulation waits for an answer")
        connection.respond(message)
        try:
            peer.send(time.monotonic() + self._send_timeout_s)
        except UnityException as error:
            self._end_session(error)
            raise
        # Waiting for `fileno` would miss data that was just read. It cannot contain a message,
        # which would be a second call, but it may end the session.
        self._next_message()

    def fileno(self) -> int:
        """Return the file descriptor of the connection, readable when the next message arrives.

        It also becomes readable for HTTP/2 frames that are not part of a message. To wait for
        several simulations, call `receive(0)` when it is readable, and wait again if that raises
        `UnityTimeOutException`.

        Raises:
            UnityCommunicatorStoppedException: The simulation closed the connection.
            UnityCommunicationException: No simulation has connected yet.
        """
        self._require_session()
        if self._peer is None:
            raise UnityCommunicationException(
                f"no simulation has connected to port {self._port} yet: call receive() first"
            )
        return self._peer.fileno()

    def filenos(self) -> tuple[int, ...]:
        """Return file descriptors, one of which becomes readable when `receive(0)` has work to do.

        Before the simulation has connected, these are the listening sockets and the connections
        that may turn out to be the simulation.
        """
        if self._peer is not None:
            return (self._peer.fileno(),)
        listeners = (listener.fileno() for listener in self._listeners)
        return (*listeners, *(candidate.fileno() for candidate in self._candidates))

    def close(self) -> None:
        """Close the connection and stop listening. Calling it again does nothing."""
        for connection in self._candidates:
            connection.close()
        self._candidates.clear()
        if self._peer is not None:
            self._peer.close()
            self._peer = None
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        self._selector.close()

    def _require_session(self) -> None:
        if self._over:
            raise UnityCommunicatorStoppedException(self._over)
        if not self._listeners:
            raise UnityCommunicationException("not listening: call open() first")

    def _end_session(self, error: UnityException) -> None:
        self._over = f"the session is over: {error}"
        if self._peer is not None:
            self._selector.unregister(self._peer)
            self._peer.close()
            self._peer = None

    def _next_message(self) -> Received | None:
        """Return the next message that was read; None if there is none.

        Raises:
            UnityCommunicatorStoppedException: The simulation ended the call.
        """
        if self._peer is None or not self._peer.events:
            return None
        event = self._peer.events.popleft()
        if isinstance(event, Message):
            self._has_received = True
            return event.data
        error = UnityCommunicatorStoppedException(
            f"the simulation ended the session: {event.reason}"
        )
        self._end_session(error)
        raise error

    def _watch(self, alarm: int | None) -> None:
        if alarm == self._alarm:
            return
        if self._alarm is not None:
            self._selector.unregister(self._alarm)
        self._alarm = alarm
        if alarm is not None:
            self._selector.register(alarm, selectors.EVENT_READ)

    def _handle(self, ready: list[selectors.SelectorKey], deadline: float) -> bool:
        """Handle the sockets that are ready; return False if only the alarm is.

        A player that exits may leave unread messages, so sockets are handled before the alarm.
        """
        alarmed = any(key.data is None for key in ready)
        try:
            for key in ready:
                if key.data is not None:
                    key.data(key.fileobj, deadline)
        except UnityCommunicatorStoppedException:
            if not alarmed:
                raise
            return False
        return not alarmed or len(ready) > 1

    def _accept(self, listener: socket.socket, deadline: float) -> None:
        try:
            sock, _ = listener.accept()
        except OSError as error:  # the peer has already disconnected
            _logger.debug("Could not accept a connection: %s", error)
            return
        if self._peer is not None:
            _logger.debug("Refused a second connection to port %d.", self._port)
            sock.close()
            return
        if len(self._candidates) == _MAX_CANDIDATES:
            self._drop(next(iter(self._candidates)), "too many connections")
        connection = ServerConnection(self._max_message_bytes)
        candidate = Http2Socket(sock, connection, peer="the simulation")
        self._candidates[candidate] = connection
        self._selector.register(candidate, selectors.EVENT_READ, self._read_candidate)

    def _drop(self, candidate: Http2Socket, reason: object) -> None:
        _logger.debug("Dropped a connection to port %d: %s", self._port, reason)
        del self._candidates[candidate]
        self._selector.unregister(candidate)
        candidate.close()

    def _read_candidate(self, candidate: Http2Socket, deadline: float) -> None:
        connection = self._candidates.get(candidate)
        if connection is None:  # dropped, because another one has just become the peer
            return
        try:
            candidate.read(deadline)
        except UnityException as error:
            if not connection.established:
                self._drop(candidate, error)
                return
            self._adopt(candidate)
            self._end_session(error)
            raise
        if connection.established:
            self._adopt(candidate)

    def _adopt(self, candidate: Http2Socket) -> None:
        """Make a candidate the peer."""
        self._peer, self._connection = candidate, self._candidates.pop(candidate)
        self._selector.modify(candidate, selectors.EVENT_READ, self._read_peer)
        for other in list(self._candidates):
            self._drop(other, "another connection is the simulation")

    def _read_peer(self, peer: Http2Socket, deadline: float) -> None:
        try:
            peer.read(deadline)
        except (UnityCommunicatorStoppedException, UnityCommunicationException) as error:
            self._end_session(error)
            raise


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _listener(address: str, port: int) -> socket.socket:
    """Return a listening socket; ports whose old connections are in TIME_WAIT can be used."""
    return socket.create_server(
        (address, port),
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        backlog=_BACKLOG,
        dualstack_ipv6=address == "::" and socket.has_dualstack_ipv6(),
    )


def _holder_of(port: int) -> str:
    """Return a description of the process that listens on a port, as far as /proc shows it."""
    return _owner_of(lambda local, _remote, state: state == "0A" and local == port)


def _program_at(port: int, peer_port: int) -> str:
    """Return a description of the process that is connected from `peer_port` to our `port`."""
    return _owner_of(lambda local, remote, _state: (local, remote) == (peer_port, port))


def _owner_of(is_meant: Callable[[int, int, str], bool]) -> str:
    """Return a description of the process that owns a socket.

    Args:
        is_meant: Function of local port, remote port and state that selects the socket.
    """
    sockets = _sockets(is_meant)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # a process of another user, or one that has exited
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) in sockets:
                    name = (process / "comm").read_text().strip()
                    return f"process {process.name} ({name})"
    return "another process"


def _sockets(is_meant: Callable[[int, int, str], bool]) -> set[str]:
    """Return the selected sockets, named as by the links in /proc/<pid>/fd."""
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()  # number, local address:port, remote, state, ..., inode
                local, remote = (int(end.rpartition(":")[2], 16) for end in fields[1:3])
                if is_meant(local, remote, fields[3]):
                    sockets.add(f"socket:[{fields[9]}]")
    return sockets
