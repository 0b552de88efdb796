"""The trainer's end on real sockets: connecting, refusing, waiting, ending."""

import contextlib
import errno
import logging
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import http2_peer as peer
from http2_peer import frame, parse_frames, request, settings, window_update
from mlagents_envs import rpc_communicator
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from mlagents_envs.rpc_communicator import RpcCommunicator

HELLO = peer.PREFACE + settings()
SOON = 0.05
PLENTY = 30.0

has_ipv6 = True
try:
    socket.create_server(("::1", 0), family=socket.AF_INET6).close()
except OSError:
    has_ipv6 = False
needs_ipv6 = pytest.mark.skipif(not has_ipv6, reason="this machine has no IPv6 loopback")


@pytest.fixture
def server() -> Iterator[RpcCommunicator]:
    with RpcCommunicator(timeout_wait=PLENTY) as communicator:
        yield communicator


@contextlib.contextmanager
def connected(server: RpcCommunicator, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), PLENTY) as sock:
        sock.sendall(said)
        yield sock


def read_until(sock: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        piece = sock.recv(65_536)
        assert piece, f"closed after {data!r}"
        data += piece
    return data


def is_closed(sock: socket.socket) -> bool:
    """Whether the other end hangs up, whatever it says before."""
    try:
        while sock.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


@contextlib.contextmanager
def in_background(task: Callable[[], None]) -> Iterator[None]:
    """Run `task` meanwhile; it must end by itself, and its error is the test's."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(PLENTY)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


# -- exchanges --


def test_one_exchange(server):
    with connected(server, HELLO + request(b"question")) as sock:
        assert server.receive(PLENTY) == b"question"
        server.send(b"answer")
        said = parse_frames(read_until(sock, peer.TRAILERS))
        assert b"".join(each.payload for each in said if each.kind == peer.DATA) == (
            peer.grpc_message(b"answer")
        )


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "localhost", pytest.param("::1", marks=needs_ipv6)]
)
def test_both_loopback_addresses_are_listened_on(server, address):
    with socket.create_connection((address, server.port), PLENTY) as sock:
        sock.sendall(HELLO + request(b"abc"))
        assert server.receive(PLENTY) == b"abc"


def test_messages_that_come_in_many_pieces(server):
    message = os.urandom(300_000)
    data = HELLO + request(message)

    with connected(server) as sock:

        def trickle() -> None:
            for at in range(0, len(data), 7_001):
                sock.sendall(data[at : at + 7_001])

        with in_background(trickle):
            assert server.receive(PLENTY) == message


def test_reply_waits_for_the_windows_of_the_simulation(server):
    message = os.urandom(200_000)
    with connected(server, HELLO + request(b"")) as sock:
        assert server.receive(PLENTY) == b""
        received = bytearray()

        def read() -> None:
            while not received.endswith(peer.TRAILERS):
                piece = sock.recv(65_536)
                received.extend(piece)
                increment = max(len(piece), 1)
                sock.sendall(window_update(0, increment) + window_update(1, increment))

        with in_background(read):
            server.send(message)
        data = [each.payload for each in parse_frames(bytes(received)) if each.kind == peer.DATA]
        assert b"".join(data) == peer.grpc_message(message)


def test_readiness_means_a_message_or_a_frame_to_look_at(server):
    with connected(server, HELLO + request(b"one")) as sock, selectors.DefaultSelector() as waiting:
        assert server.receive(PLENTY) == b"one"
        waiting.register(server.fileno(), selectors.EVENT_READ)
        server.send(b"")
        assert not waiting.select(0)
        sock.sendall(frame(peer.PING, 0, 0, b"whatever"))
        assert waiting.select(PLENTY)
        with pytest.raises(UnityTimeOutException):
            server.receive(0)
        assert not waiting.select(0)
        read_until(sock, frame(peer.PING, peer.ACK, 0, b"whatever"))
        whole = request(b"two", stream=3)
        sock.sendall(whole[:-3])
        assert waiting.select(PLENTY)
        with pytest.raises(UnityTimeOutException):
            server.receive(0)
        sock.sendall(whole[-3:])
        assert waiting.select(PLENTY)
        assert server.receive(0) == b"two"


def test_call_that_comes_before_the_answer_is_refused_not_kept(server):
    # Else its message would wait in our memory, where no selector sees it.
    with connected(server, HELLO + request(b"one") + request(b"early", stream=3)) as sock:
        assert server.receive(PLENTY) == b"one"
        server.send(b"")
        assert frame(peer.RST_STREAM, 0, 3, b"\x00\x00\x00\x07") in read_until(sock, peer.TRAILERS)
        with pytest.raises(UnityTimeOutException):
            server.receive(0)
        sock.sendall(request(b"two", stream=5))
        assert server.receive(PLENTY) == b"two"


# -- waiting --


def test_nobody_connects(server):
    with pytest.raises(UnityTimeOutException, match=f"connected to port {server.port} within 0.05"):
        server.receive(SOON)


@pytest.mark.parametrize(
    "said",
    [b"", b"PRI * HTTP", HELLO, HELLO + request(b"abc")[:-1]],
    ids=["nothing", "half a greeting", "hello", "half"],
)
def test_another_program_takes_the_place_and_is_silent(server, said):
    with connected(server, said):
        with pytest.raises(UnityTimeOutException, match="end that program") as caught:
            server.receive(0.5)
    assert f"port {server.port} within 0.5 s" in str(caught.value)
    if Path("/proc/net/tcp").exists():
        assert f"process {os.getpid()} (" in str(caught.value)


def test_simulation_that_falls_silent(server):
    with connected(server, HELLO + request(b"one")):
        assert server.receive(PLENTY) == b"one"
        server.send(b"answer")
        says = "^the simulation is connected, but sent no message within 0.05 s"
        with pytest.raises(UnityTimeOutException, match=says):
            server.receive(SOON)


def test_time_runs_out_under_a_flood_of_pings(server):
    with connected(server, HELLO) as sock:

        def flood() -> None:
            with contextlib.suppress(OSError):  # until the server closes
                while True:
                    sock.sendall(frame(peer.PING, 0, 0, bytes(8)) * 100)
                    sock.recv(65_536)

        with in_background(flood):
            with pytest.raises(UnityTimeOutException):
                server.receive(0.3)
            server.close()


def test_timeout_may_be_longer_than_poll_can_count(server):
    with connected(server, HELLO + request(b"abc")):
        assert server.receive(float("inf")) == b"abc"


def test_alarm_ends_the_wait(server):
    alarm, trigger = socket.socketpair()
    with alarm, trigger, connected(server, HELLO):
        with pytest.raises(UnityTimeOutException):
            server.receive(SOON, alarm=alarm.fileno())
        trigger.close()
        assert server.receive(PLENTY, alarm=alarm.fileno()) is None
        with pytest.raises(UnityTimeOutException):
            server.receive(SOON)


def test_last_words_come_before_the_alarm(server):
    # As when a player sends its last message and exits.
    alarm, trigger = socket.socketpair()
    message = os.urandom(200_000)
    with alarm, connected(server, HELLO + request(message)) as sock:
        trigger.close()
        assert server.receive(PLENTY, alarm=alarm.fileno()) == message
        server.send(b"")
        sock.close()
        assert server.receive(PLENTY, alarm=alarm.fileno()) is None


def test_simulation_that_does_not_read_cannot_hold_us():
    with RpcCommunicator(timeout_wait=SOON) as server:
        greeting = peer.PREFACE + settings(window=2**31 - 1) + window_update(0, 2**30)
        with connected(server, greeting + request(b"")):
            assert server.receive(PLENTY) == b""
            with pytest.raises(UnityTimeOutException, match="did not read in time"):
                server.send(bytes(64 * 2**20))
            with pytest.raises(UnityCommunicatorStoppedException, match="session is over"):
                server.receive(PLENTY)


def test_simulation_that_never_opens_its_window_cannot_hold_us():
    with RpcCommunicator(timeout_wait=SOON) as server:
        with connected(server, peer.PREFACE + settings(window=0) + request(b"")):
            assert server.receive(PLENTY) == b""
            with pytest.raises(UnityTimeOutException, match="did not respond in time"):
                server.send(b"answer")


# -- endings --


def test_simulation_hangs_up(server):
    with connected(server, HELLO):
        pass
    with pytest.raises(UnityCommunicatorStoppedException, match="closed the connection"):
        server.receive(PLENTY)
    for again in (lambda: server.receive(PLENTY), lambda: server.send(b""), server.fileno):
        with pytest.raises(UnityCommunicatorStoppedException, match="closed the connection"):
            again()


def test_simulation_hangs_up_before_it_is_answered(server):
    with connected(server, HELLO + request(b"abc")):
        assert server.receive(PLENTY) == b"abc"
    with contextlib.suppress(UnityCommunicatorStoppedException):
        server.send(bytes(1000))
    with pytest.raises(UnityCommunicatorStoppedException):
        server.receive(PLENTY)


@pytest.mark.parametrize("when", ["receive", "send"])
def test_simulation_cancels_its_call(server, when):
    cancel = frame(peer.RST_STREAM, 0, 1, b"\x00\x00\x00\x08")
    with connected(server, HELLO + request(b"abc") + cancel):
        assert server.receive(PLENTY) == b"abc"
        with pytest.raises(UnityCommunicatorStoppedException, match="cancelled"):
            server.receive(PLENTY) if when == "receive" else server.send(b"answer")


def test_simulation_cancels_while_it_is_answered(server):
    with connected(server, peer.PREFACE + settings(window=10) + request(b"abc")) as sock:
        assert server.receive(PLENTY) == b"abc"
        sock.sendall(frame(peer.RST_STREAM, 0, 1, b"\x00\x00\x00\x08"))
        with pytest.raises(UnityCommunicatorStoppedException, match="cancelled"):
            server.send(bytes(1000))


def test_simulation_breaks_the_protocol(server):
    with connected(server, HELLO + frame(peer.PING, 0, 0, b"short")) as sock:
        with pytest.raises(UnityCommunicationException, match="broke the protocol: PING of 5 byt"):
            server.receive(PLENTY)
        goodbye = parse_frames(read_until(sock, b"\x00\x00\x00\x06"))[-1]
        assert goodbye.kind == peer.GOAWAY
        with pytest.raises(UnityCommunicatorStoppedException, match="PING of 5"):
            server.receive(PLENTY)


def test_message_over_the_limit():
    with RpcCommunicator(max_message_bytes=1000) as server:
        with connected(server, HELLO + request(bytes(1001))):
            with pytest.raises(UnityCommunicationException, match="1001 bytes, more than 1000"):
                server.receive(PLENTY)


def test_nothing_to_answer(server):
    with pytest.raises(UnityCommunicationException, match="no message"):
        server.send(b"")
    with connected(server, HELLO + request(b"abc")):
        assert server.receive(PLENTY) == b"abc"
        server.send(b"")
        with pytest.raises(UnityCommunicationException, match="no message"):
            server.send(b"")


def test_use_outside_of_open_and_close():
    server = RpcCommunicator()
    with pytest.raises(UnityCommunicationException, match=r"call open\(\) first"):
        server.receive(PLENTY)
    server.open()
    with pytest.raises(UnityCommunicationException, match=r"call receive\(\) first"):
        server.fileno()
    server.close()
    server.close()
    with pytest.raises(UnityCommunicationException, match=r"call open\(\) first"):
        server.receive(PLENTY)


def test_last_answer_arrives_though_we_close_at_once(server):
    with connected(server, HELLO + request(b"abc")) as sock:
        assert server.receive(PLENTY) == b"abc"
        sock.sendall(frame(peer.PING, 0, 0, bytes(8)) * 1000)
        server.send(b"closing")
        server.close()
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := sock.recv(65_536):
                data += piece
        kinds = [each.kind for each in parse_frames(data)]
        assert kinds[-4:] == [peer.HEADERS, peer.DATA, peer.HEADERS, peer.GOAWAY]


# -- strangers --


def test_second_connection_is_closed_and_the_first_undisturbed(server):
    with connected(server, HELLO + request(b"one")) as first:
        assert server.receive(PLENTY) == b"one"
        with connected(server, HELLO + request(b"intruder")) as second:
            server.send(b"")
            first.sendall(request(b"two", stream=3))
            assert server.receive(PLENTY) == b"two"
            server.send(b"")
            with pytest.raises(UnityTimeOutException):
                server.receive(SOON)
            assert is_closed(second)
        first.sendall(request(b"three", stream=5))
        assert server.receive(PLENTY) == b"three"


def test_scanners_are_dropped_and_the_simulation_still_comes(server):
    with contextlib.ExitStack() as stack:
        browser = stack.enter_context(connected(server, b"GET / HTTP/1.1\r\n\r\n"))
        stack.enter_context(connected(server))  # half open: never says a word
        stack.enter_context(connected(server, peer.PREFACE[:10]))
        connected_and_gone = stack.enter_context(connected(server))
        connected_and_gone.close()
        rude = stack.enter_context(connected(server, peer.PREFACE + b"x" * 100))
        with pytest.raises(UnityTimeOutException, match="no simulation connected"):
            server.receive(SOON)
        assert is_closed(browser)
        assert is_closed(rude)
        simulation = stack.enter_context(connected(server, HELLO + request(b"abc")))
        assert server.receive(PLENTY) == b"abc"
        server.send(b"answer")
        read_until(simulation, peer.TRAILERS)


def test_a_crowd_of_silent_strangers_cannot_lock_the_simulation_out(server, monkeypatch):
    monkeypatch.setattr(rpc_communicator, "_MAX_CANDIDATES", 4)  # each is looked up in /proc
    with contextlib.ExitStack() as stack:
        silent = []
        for _ in range(3 * rpc_communicator._MAX_CANDIDATES):
            silent.append(stack.enter_context(connected(server)))
            with pytest.raises(UnityTimeOutException):
                server.receive(0)
        assert len(server._candidates) <= rpc_communicator._MAX_CANDIDATES
        assert is_closed(silent[0])
        stack.enter_context(connected(server, HELLO + request(b"abc")))
        assert server.receive(PLENTY) == b"abc"
        assert all(is_closed(each) for each in silent)


def test_greeting_byte_by_byte_does_not_hold_up_the_simulation(server):
    with connected(server) as slow:
        for byte in peer.PREFACE[:5]:
            slow.sendall(bytes([byte]))
            with pytest.raises(UnityTimeOutException):
                server.receive(0.01)
        with connected(server, HELLO + request(b"abc")):
            assert server.receive(PLENTY) == b"abc"


# -- the port --


def test_port_is_known_once_open():
    server = RpcCommunicator()
    assert server.port == 0
    with server:
        assert server.port > 0


def test_port_taken_by_ourselves_names_this_process(server):
    with pytest.raises(UnityWorkerInUseException) as caught:
        RpcCommunicator(3, server.port - 3).open()
    assert caught.value.worker_id == 3
    assert f"Port {server.port}" in str(caught.value)
    if sys.platform == "linux":
        assert f"process {os.getpid()} " in str(caught.value)


def test_port_taken_by_another_process_names_it():
    program = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        with pytest.raises(UnityWorkerInUseException, match=f"Port {port} is used by") as caught:
            RpcCommunicator(base_port=port).open()
        if sys.platform == "linux":
            assert f"process {holder.pid} (python" in str(caught.value)
        holder.communicate()


@needs_ipv6
def test_port_taken_over_ipv6_only():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        with pytest.raises(UnityWorkerInUseException):
            RpcCommunicator(base_port=other.getsockname()[1]).open()


@needs_ipv6
def test_free_port_must_be_free_for_both(monkeypatch):
    # The first port that is free for IPv4 is taken for IPv6: another is picked.
    real, refused = rpc_communicator._listener, []

    def listener(address: str, port: int) -> socket.socket:
        if address == "::1" and not refused:
            refused.append(port)
            raise OSError(errno.EADDRINUSE, "taken")
        return real(address, port)

    monkeypatch.setattr(rpc_communicator, "_listener", listener)
    with RpcCommunicator() as server:
        assert server.port != 0
        assert len(refused) == 1


def test_machine_without_ipv6(monkeypatch):
    real = rpc_communicator._listener

    def listener(address: str, port: int) -> socket.socket:
        if address == "::1":
            raise OSError(errno.EADDRNOTAVAIL, "no such address")
        return real(address, port)

    monkeypatch.setattr(rpc_communicator, "_listener", listener)
    with RpcCommunicator() as server, connected(server, HELLO + request(b"abc")):
        assert server.receive(PLENTY) == b"abc"


def test_port_can_be_used_again_at_once():
    with RpcCommunicator() as server, connected(server, HELLO + request(b"abc")):
        assert server.receive(PLENTY) == b"abc"
        port = server.port
        server.close()  # the side that closes first keeps the connection in TIME_WAIT
        with RpcCommunicator(base_port=port) as second:
            assert second.port == port


@pytest.mark.parametrize(
    ("port", "address", "reason"),
    [
        (70_000, "127.0.0.1", "0 to 65535"),
        (0, "203.0.113.1", "cannot listen on 203.0.113.1"),
        (0, "not a name", "cannot listen on not a name"),
    ],
)
def test_where_nobody_can_listen(port, address, reason):
    with pytest.raises(UnityEnvironmentException, match=reason):
        RpcCommunicator(base_port=port, listen_address=address).open()


def test_other_addresses_than_loopback_come_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "mlagents_envs"):
        with RpcCommunicator(), RpcCommunicator(listen_address="127.0.0.2"):
            assert not caplog.records
        with RpcCommunicator(listen_address="0.0.0.0") as server:
            assert "can connect as the simulation" in caplog.text
            with connected(server, HELLO + request(b"abc")):
                assert server.receive(PLENTY) == b"abc"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_descriptors_do_not_leak():
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for cycle in range(200):
        with RpcCommunicator() as server:
            with connected(server, b"garbage"), connected(server, HELLO + request(b"abc")) as sock:
                assert server.receive(PLENTY) == b"abc"
                with connected(server):
                    server.send(b"")
                    read_until(sock, peer.TRAILERS)
                    if cycle % 2:
                        sock.close()
                        with pytest.raises(UnityCommunicatorStoppedException):
                            while True:
                                server.receive(PLENTY)
    assert descriptors() == before


def test_nothing_is_done_twice_while_time_passes():
    # Waiting takes no processor time: it is one blocking call, not a loop that asks.
    with RpcCommunicator() as server:
        busy_before = time.process_time()
        with pytest.raises(UnityTimeOutException):
            server.receive(0.5)
        assert time.process_time() - busy_before < 0.25
