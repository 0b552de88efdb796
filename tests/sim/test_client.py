"""The simulation's end, against the trainer's end and against sockets that misbehave."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

import http2_peer as peer
from http2_peer import frame, settings
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_sim.client import RpcClient

SOON = 0.05
PLENTY = 30.0


@contextlib.contextmanager
def misbehaving_server(*said: bytes) -> Iterator[int]:
    """Listens, says a piece for everything it hears, and hangs up; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for piece in said:
                    connection.recv(65_536)
                    connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(PLENTY)


def test_calls_of_many_sizes():
    sizes = (0, 1, 16_379, 16_384, 65_530, 65_536, 1_000_000)
    with RpcCommunicator() as server:

        def call() -> None:
            with RpcClient(server.port) as client:
                for size in sizes:
                    message = os.urandom(size)
                    assert client.call(message) == message[::-1]
                    arrived.append(size)

        arrived: list[int] = []
        thread = threading.Thread(target=call)
        thread.start()
        for size in sizes:
            message = server.receive(PLENTY)
            assert message is not None
            assert len(message) == size
            server.send(bytes(message)[::-1])
        thread.join(PLENTY)
        assert arrived == list(sizes)
        with pytest.raises(UnityCommunicatorStoppedException):
            server.receive(PLENTY)


def test_nobody_listens():
    with RpcCommunicator() as server:
        port = server.port
    with pytest.raises(UnityEnvironmentException, match=f"port {port}.*Start the trainer"):
        RpcClient(port).connect(PLENTY)


def test_no_such_host_or_port():
    with pytest.raises(UnityEnvironmentException, match="cannot connect"):
        RpcClient(70_000).connect(PLENTY)
    with pytest.raises(UnityEnvironmentException, match="cannot connect"):
        RpcClient(5004, host="not a name").connect(PLENTY)


def test_trainer_that_never_answers():
    with RpcCommunicator() as server, RpcClient(server.port) as client:
        with pytest.raises(UnityTimeOutException, match="did not respond in time"):
            client.call(b"", SOON)


def test_trainer_that_serves_another_simulation():
    errors = []

    def second() -> None:
        with RpcClient(server.port) as client:
            try:
                client.call(b"intruder", PLENTY)
            except UnityCommunicatorStoppedException as error:
                errors.append(str(error))

    with RpcCommunicator() as server, socket.create_connection(("127.0.0.1", server.port)) as first:
        first.sendall(peer.PREFACE + settings() + peer.request(b"one"))
        assert server.receive(PLENTY) == b"one"
        thread = threading.Thread(target=second)
        thread.start()
        for _ in range(1000):
            with pytest.raises(UnityTimeOutException):
                server.receive(0.02)
            if not thread.is_alive():
                break
        thread.join(PLENTY)
    (error,) = errors
    assert "connected to another program" in error or "was lost" in error


@pytest.mark.parametrize(
    ("said", "error", "reason"),
    [
        ([], UnityCommunicatorStoppedException, "before it sent anything|was lost"),
        ([b""], UnityCommunicatorStoppedException, "before it sent anything|was lost"),
        ([settings()], UnityCommunicatorStoppedException, "closed the connection|was lost"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], UnityCommunicationException, "frame of 4740180"),
        ([frame(peer.PING, 0, 0, bytes(8))], UnityCommunicationException, "first frame"),
        (
            [settings() + frame(peer.RST_STREAM, 0, 1, b"\x00\x00\x00\x07")],
            UnityCommunicatorStoppedException,
            "REFUSED_STREAM",
        ),
        (
            [settings() + frame(peer.GOAWAY, 0, 0, bytes(8) + b"bye")],
            UnityCommunicatorStoppedException,
            "closed the connection .NO_ERROR: bye",
        ),
    ],
)
def test_server_that_misbehaves(said, error, reason):
    with misbehaving_server(*said) as port, RpcClient(port, host="127.0.0.1") as client:
        with pytest.raises(error, match=reason):
            client.call(b"abc", PLENTY)
        with pytest.raises(UnityCommunicationException, match="not connected"):
            client.call(b"abc", PLENTY)


def test_close_twice_and_connect_again():
    with misbehaving_server(settings()) as port:
        client = RpcClient(port, host="127.0.0.1")
        client.connect(PLENTY)
        client.close()
        client.close()
    with misbehaving_server(settings() + peer.response(b"abc")) as port:
        client = RpcClient(port, host="127.0.0.1")
        client.connect(PLENTY)
        assert client.call(b"", PLENTY) == b"abc"
        client.close()
