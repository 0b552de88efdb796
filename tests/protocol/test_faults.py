"""Players, peers and networks that fail: the right error in time, and nothing left behind."""

import contextlib
import gc
import itertools
import logging
import os
import queue
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

import numpy as np
import pytest

import http2_peer as peer
from http2_peer import request, settings, window_update
from mlagents_envs import launcher, rpc_communicator
from mlagents_envs.codec import Output, encode_output
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_envs.handshake import (
    API_VERSION,
    Capabilities,
    SimulationHello,
    encode_ready,
    encode_simulation_hello,
)
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_sim.catalog import CATALOG
from mlagents_sim.client import RpcClient
from processes import children

# What hangs would wait for one of these, longer than a test may take.
pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc"),
]
PLENTY = 300.0
SOON = 0.3
TCP_REPAIR = 19  # of Linux

SIMULATION = Path(sys.executable).with_name("mlagents-sim")
GREETING = peer.PREFACE + settings()
HELLO = encode_simulation_hello(SimulationHello(API_VERSION, "4.0.0", Capabilities.all()))
READY = encode_ready()
STEP = encode_output(Output({}, {}, b""), {})

# Speaks frame by frame, so that it can stop anywhere. A child of its own, which nothing but a
# signal ends, holds the pipe open with it.
PRELUDE = f"""#!{sys.executable}
import os, signal, socket, subprocess, sys, time
from mlagents_envs.http2 import ClientConnection
HELLO, READY, STEP = {HELLO!r}, {READY!r}, {STEP!r}
connection = ClientConnection("localhost")
pipe = os.open(os.path.join(os.path.dirname(__file__), "pipe"), os.O_WRONLY)
subprocess.Popen(["sleep", "600"], pass_fds=[pipe])
os.write(pipe, b"up")
def connect():
    port = int(sys.argv[sys.argv.index("--mlagents-port") + 1])
    return socket.create_connection(("127.0.0.1", port))
def say(message, share=1.0):
    connection.request(message)
    data = connection.bytes_to_send()
    sock.sendall(data[: int(share * len(data))])
def hear():
    while True:
        data = sock.recv(65536)
        if not data:
            raise EOFError
        for event in connection.receive_data(data):
            return event
        sock.sendall(connection.bytes_to_send())
def call(message):
    say(message)
    return hear()
"""
OBEDIENT = """
sock = connect()
call(HELLO)
call(READY)
try:
    while hasattr(call(STEP), "data"):
        pass
except EOFError:
    pass
"""
DEATHS = {
    "os._exit(3)": "exited with code 3",
    "os.kill(os.getpid(), signal.SIGKILL)": "was killed by SIGKILL",
}


def descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """Fail where a test leaves threads, descriptors or children of ours."""
    gc.collect()
    threads, n_descriptors = set(threading.enumerate()), len(descriptors())
    processes = children()  # other tests may have left a helper of `multiprocessing`
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive()
    assert len(descriptors()) == n_descriptors
    assert children() <= processes


@pytest.fixture
def player(tmp_path: Path, nothing_is_left: None) -> Iterator[Callable[[str], str]]:
    """Return a function that makes a program; of what it started, nothing may be left."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def make(code: str) -> str:
        path = tmp_path / "Game.x86_64"
        path.write_text(code)
        path.chmod(0o755)
        return str(path)

    yield make
    assert read_to_end(pipe) == b"up"
    os.close(pipe)


def read_to_end(pipe: int) -> bytes:
    """Read until nobody holds the other end."""
    said = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], 10)
        assert ready, "a process still holds the pipe"
        piece = os.read(pipe, 100)
        if not piece:
            return said
        said += piece


def launch(file_name: str, timeout_wait: float = PLENTY, **arguments) -> UnityEnvironment:
    return UnityEnvironment(file_name, base_port=0, timeout_wait=timeout_wait, **arguments)


def simulation(prelude: str = "") -> str:
    """Write a program that plays 3DBall in the process that holds the pipe."""
    return f"""#!/bin/sh
exec 9> "$(dirname "$0")/pipe"
printf up >&9
{prelude}
exec {SIMULATION} "$@" 3DBall
"""


def pid_of(env: UnityEnvironment) -> int:
    process = env._session.player
    assert process is not None
    return process._process.pid


# Players that die.


@pytest.mark.parametrize(("death", "description"), DEATHS.items(), ids=["exit", "SIGKILL"])
@pytest.mark.parametrize(
    "life",
    [
        "",
        "sock = connect()",
        "sock = connect(); say(HELLO, 0.1)",
        "sock = connect(); say(HELLO, 0.9)",
        "sock = connect(); call(HELLO)",
        "sock = connect(); call(HELLO); say(READY, 0.5)",
    ],
    ids=["before connecting", "connected", "greeting", "in hello", "after hello", "in ready"],
)
def test_a_player_that_dies_before_it_is_ready_is_described(player, life, death, description):
    with pytest.raises(UnityEnvironmentException, match=description):
        launch(player(f"{PRELUDE}{life}\n{death}"))


@pytest.mark.parametrize(("death", "description"), DEATHS.items(), ids=["exit", "SIGKILL"])
@pytest.mark.parametrize(
    "life",
    [
        "say(READY)",
        "call(READY)",
        "call(READY); say(STEP, 0.5)",
        "call(READY); say(STEP)",
        "call(READY); call(STEP)",
        "call(READY); call(STEP); say(STEP, 0.5)",
    ],
    ids=["said ready", "in reset", "in its answer", "after it", "in step", "in its answer to step"],
)
def test_a_player_that_dies_at_play_is_described(player, life, death, description):
    code = f"{PRELUDE}sock = connect(); call(HELLO); {life}\n{death}"
    with launch(player(code)) as env, pytest.raises(UnityEnvironmentException, match=description):
        for _ in range(3):
            env.step()


@pytest.mark.parametrize("death", [*DEATHS, "os.abort()"])
@pytest.mark.parametrize("is_stepping", [False, True])
def test_a_player_that_dies_when_told_to_quit_leaves_nothing(player, death, is_stepping):
    env = launch(player(f"{PRELUDE}{OBEDIENT}\n{death}"))
    env.reset()
    if is_stepping:
        env.step_send()
    env.close()
    env.close()


def test_the_death_of_one_player_leaves_another_undisturbed(player):
    with launch(str(SIMULATION), additional_args=["3DBall"]) as other:
        other.reset()
        with launch(player(simulation())) as env:
            env.reset()
            os.kill(pid_of(env), signal.SIGKILL)
            with pytest.raises(UnityEnvironmentException, match="killed by SIGKILL"):
                for _ in range(3):
                    env.step()
            other.step()
        other.step()
        (name,) = other.behavior_specs
        assert len(other.get_steps(name)[0])


def test_a_simulation_ends_with_a_trainer_that_is_killed(player):
    program = f"""
from mlagents_envs.environment import UnityEnvironment
import os, signal
env = UnityEnvironment({player(simulation())!r}, base_port=0, timeout_wait=60)
env.reset()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=50)
    assert done.returncode == -signal.SIGKILL


# Players that fall silent.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_TERMINATE_TIMEOUT_S", SOON)


@pytest.mark.parametrize(
    ("life", "reason"),
    [
        ("", "no simulation connected .* is running"),
        ("sock = connect()", "no simulation connected"),
        ("sock = connect(); say(HELLO, 0.9)", "is connected, but sent no message"),
        ("sock = connect(); call(HELLO)", "is connected, but sent no message"),
    ],
    ids=["before connecting", "connected", "in hello", "after hello"],
)
def test_a_player_that_stops_before_it_is_ready_runs_out_of_time(player, impatient, life, reason):
    with pytest.raises(UnityTimeOutException, match=reason):
        launch(
            player(f"{PRELUDE}{life}\nos.kill(os.getpid(), signal.SIGSTOP)"),
            timeout_wait=2,
        )


def test_a_player_that_stops_at_play_runs_out_of_time_and_may_go_on(player, impatient):
    with launch(player(simulation())) as env:
        env.reset()
        env._session._timeout_s = SOON
        os.kill(pid_of(env), signal.SIGSTOP)
        for _ in range(2):
            with pytest.raises(UnityTimeOutException, match="sent no message"):
                env.step() if env._session._owes_answer else env.step_receive()
        os.kill(pid_of(env), signal.SIGCONT)
        env._session._timeout_s = PLENTY
        env.step_receive()
        env.step()


@pytest.mark.parametrize("is_stepping", [False, True])
def test_closing_does_not_wait_for_a_player_that_stops(player, impatient, is_stepping):
    env = launch(player(f"{PRELUDE}{OBEDIENT}"))
    env.reset()
    env._session._exit_timeout_s = SOON
    os.kill(pid_of(env), signal.SIGSTOP)
    if is_stepping:
        env.step_send()
    env.close()


def test_a_player_that_takes_no_answer_runs_out_of_time(player, impatient):
    # It says that its window is shut before it says that it is ready.
    code = f"""
sock = connect()
call(HELLO)
sock.sendall({settings(window=0)!r})
say(READY)
signal.pause()
"""
    with launch(player(PRELUDE + code), timeout_wait=2) as env:
        with pytest.raises(UnityTimeOutException):
            env.reset()


# Peers that send what they should not, or slowly.


@contextlib.contextmanager
def connected(server: RpcCommunicator, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), 30) as sock:
        sock.sendall(said)
        yield sock


@pytest.fixture
def server(nothing_is_left: None) -> Iterator[RpcCommunicator]:
    with RpcCommunicator(timeout_wait=SOON) as communicator:
        yield communicator


@contextlib.contextmanager
def saying(sock: socket.socket, pieces: Iterable[bytes]) -> Iterator[None]:
    """Say one piece after the other, without haste, and read away what comes meanwhile."""
    stop = threading.Event()

    def run() -> None:
        with contextlib.suppress(OSError):
            for piece in pieces:
                sock.sendall(piece)
                while select.select([sock], [], [], 0.0005)[0] and sock.recv(65_536):
                    pass
                if stop.is_set():
                    return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize(
    ("at_once", "slowly", "reason"),
    [
        (peer.PREFACE, peer.frame(peer.SETTINGS, payload=bytes(60_000)), "no simulation connected"),
        (GREETING, request(bytes(60_000)), "sent no message"),
    ],
    ids=["greeting", "message"],
)
def test_a_peer_that_says_one_byte_at_a_time_meets_the_deadline(server, at_once, slowly, reason):
    with connected(server, at_once) as sock, saying(sock, one_by_one(slowly)):
        with pytest.raises(UnityTimeOutException, match=reason):
            server.receive(SOON)


def test_a_message_that_takes_many_deadlines_is_kept_together(server):
    with connected(server, GREETING) as sock:
        n_deadlines = 0
        with saying(sock, one_by_one(request(bytes(range(250))))):
            while True:
                try:
                    message = server.receive(0.02)
                    break
                except UnityTimeOutException:
                    n_deadlines += 1
    assert message == bytes(range(250))
    assert n_deadlines > 0


@contextlib.contextmanager
def flooding(sock: socket.socket, said: bytes) -> Iterator[None]:
    """Talk on and on, faster than it can be listened to, from another process."""
    program = f"""
import socket, threading
sock = socket.socket(fileno={sock.fileno()})
def read():
    while sock.recv(2**20):
        pass
threading.Thread(target=read, daemon=True).start()
sock.sendall({said!r})
ping = {peer.frame(peer.PING, 0, 0, bytes(8))!r} * 3000
try:
    while True:
        sock.sendall(ping)
except OSError:
    pass
"""
    with subprocess.Popen([sys.executable, "-c", program], pass_fds=[sock.fileno()]) as process:
        yield
        process.kill()


def test_a_peer_that_talks_on_but_takes_no_answer_meets_the_deadline(server):
    with connected(server) as sock:
        with flooding(sock, peer.PREFACE + settings(window=0) + request(b"abc")):
            assert server.receive(PLENTY) == b"abc"
            with pytest.raises(UnityTimeOutException):
                server.send(b"answer")


def test_a_peer_that_takes_one_byte_of_the_answer_at_a_time_meets_the_deadline(server):
    with connected(server, peer.PREFACE + settings(window=0) + request(b"abc")) as sock:
        assert server.receive(PLENTY) == b"abc"
        with saying(sock, itertools.repeat(window_update(1, 1))):
            with pytest.raises(UnityTimeOutException):
                server.send(bytes(2**20))


def test_a_trainer_that_talks_on_but_does_not_answer_meets_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with RpcClient(listener.getsockname()[1], host="127.0.0.1") as client:
            sock, _ = listener.accept()
            with sock, flooding(sock, settings()), pytest.raises(UnityTimeOutException):
                client.call(b"question", 2 * SOON)


def test_a_peer_that_has_no_more_to_say_is_answered_before_it_has_hung_up(server):
    with connected(server, GREETING + request(b"abc")) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert server.receive(PLENTY) == b"abc"
        server.send(b"last words")
        with pytest.raises(UnityCommunicatorStoppedException):
            server.receive(PLENTY)
        answer = b""
        while piece := sock.recv(65_536):
            answer += piece
    assert b"last words" in answer and peer.TRAILERS in answer


@pytest.mark.parametrize("said", [b"", request(b"abc")[:-1], request(b"abc")])
def test_a_connection_that_is_reset_ends_the_session(server, said):
    with connected(server, GREETING + said) as sock:
        with contextlib.suppress(UnityTimeOutException):
            server.receive(SOON)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        with pytest.raises(UnityCommunicatorStoppedException):
            server.receive(PLENTY)


def vanish(sock: socket.socket) -> None:
    """Forget a connection without a word to the other end, as a machine does that loses power."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError:
        pytest.skip("needs the right to administer the network")
    sock.close()


def test_a_peer_that_vanished_is_missed_at_the_deadline_and_noticed_when_answered(server):
    with connected(server, GREETING + request(b"abc")) as sock:
        assert server.receive(PLENTY) == b"abc"
        vanish(sock)
        server.send(b"answer")
        with pytest.raises(UnityCommunicatorStoppedException):
            server.receive(PLENTY)


def test_a_peer_that_vanished_before_it_asked_is_missed_at_the_deadline(server):
    with connected(server, GREETING) as sock:
        with pytest.raises(UnityTimeOutException):
            server.receive(SOON)
        vanish(sock)
        with pytest.raises(UnityTimeOutException):
            server.receive(SOON)


STRANGERS = {
    "silent": b"",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("160301006c010000680303") + bytes(100),
    "ssh": b"SSH-2.0-OpenSSH_9.9\r\n",
    "http2 of another kind": peer.PREFACE + b"\xff" * 40,
    "random": random.Random(0).randbytes(3000),
}


def test_strangers_before_the_player_do_it_no_harm(player):
    code = f"""
strangers = [connect() for _ in range({len(STRANGERS)})]
for sock, said in zip(strangers, {list(STRANGERS.values())!r}):
    sock.sendall(said)
"""
    with launch(player(PRELUDE + code + OBEDIENT)) as env:
        env.reset()
        env.step()


def test_strangers_during_play_are_turned_away_and_the_player_undisturbed(player):
    with launch(player(simulation())) as env:
        here = CATALOG["3DBall"].make(seed=0)
        env.reset()
        here.reset()
        port = env._session.communicator.port
        (name,) = env.behavior_specs
        for said in STRANGERS.values():
            with socket.create_connection(("127.0.0.1", port), 10) as sock:
                sock.sendall(said)
                env.step()
                here.step()
            theirs, ours = env.get_steps(name)[0], here.get_steps(name)[0]
            np.testing.assert_array_equal(theirs.obs[0], ours.obs[0])
        with contextlib.closing(RpcClient(port)) as other:
            other.connect(10)
            env.step()
            with pytest.raises(
                UnityCommunicatorStoppedException, match="may be connected to another program"
            ):
                other.call(HELLO, 10)
        env.step()


def test_who_calls_while_the_trainer_is_busy_is_refused_when_it_looks_up(server):
    with RpcClient(server.port, host="127.0.0.1") as first:
        with ThreadPoolExecutor(2) as callers, contextlib.ExitStack() as stack:
            answer = callers.submit(first.call, b"one", PLENTY)
            assert server.receive(PLENTY) == b"one"
            # The trainer is learning now and looks at nothing. More call than the system queues.
            second = stack.enter_context(RpcClient(server.port, host="127.0.0.1"))
            refused = callers.submit(second.call, HELLO, PLENTY)
            for _ in range(3 * rpc_communicator._BACKLOG):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", server.port))
            with pytest.raises(FutureTimeoutError):
                refused.result(SOON)
            server.send(b"answer")
            assert answer.result(PLENTY) == b"answer"
            for number in range(4 * rpc_communicator._BACKLOG):
                question = b"%d" % number
                answer = callers.submit(first.call, question, PLENTY)
                assert server.receive(PLENTY) == question
                server.send(b"answer to " + question)
                assert answer.result(PLENTY) == b"answer to " + question
            with pytest.raises(
                UnityCommunicatorStoppedException, match="may be connected to another program"
            ):
                refused.result(PLENTY)


# Many sessions.


class Playing(threading.Thread):
    """Plays one session after the other, at the ports it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.played: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run(self) -> None:
        while port := self.ports.get():
            with RpcClient(port, host="127.0.0.1") as client:
                client.call(HELLO)
                client.call(READY)
                with contextlib.suppress(UnityCommunicatorStoppedException):
                    while True:
                        client.call(STEP)
            self.played.put(port)


def test_a_thousand_sessions_leave_no_descriptor_and_no_memory(nothing_is_left, caplog):
    caplog.set_level(logging.ERROR, "mlagents_envs")  # what is logged is kept
    player = Playing()
    player.start()

    def play(n_sessions: int) -> tuple[int, int]:
        for _ in range(n_sessions):
            communicator = RpcCommunicator()
            communicator.open()
            player.ports.put(communicator.port)
            with UnityEnvironment(communicator=communicator) as env:
                env.reset()
                env.step()
            player.played.get(timeout=PLENTY)  # the player's end is closed too
        gc.collect()
        # What Python holds: what the system's allocator keeps for later depends on the threads.
        return len(descriptors()), tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        descriptors_before, bytes_before = play(200)
        descriptors_after, bytes_after = play(1000)
    finally:
        tracemalloc.stop()
        player.ports.put(None)
        player.join(30)
    assert descriptors_after <= descriptors_before
    # A communicator that was kept, closed, would make 3 kB for each session.
    assert bytes_after - bytes_before < 1000 * 100
