"""The real gRPC library as the other end of the wire, in both roles."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
from mlagents_envs.rpc_communicator import RpcCommunicator
from mlagents_sim.client import RpcClient

grpc = pytest.importorskip("grpc")

SERVICE = "communicator_objects.UnityToExternalProto"
METHOD = f"/{SERVICE}/Exchange"
PLENTY = 30.0
LARGE = 5 * 2**20
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


# -- grpcio calls us --


@contextmanager
def grpcio_client(port: int, *options: tuple[str, int]) -> Iterator[Callable[..., Future]]:
    """A function that begins a call and returns its future."""
    with grpc.insecure_channel(f"localhost:{port}", options=[*UNLIMITED, *options]) as channel:
        exchange = channel.unary_unary(METHOD)
        yield lambda message: exchange.future(message, timeout=PLENTY)


@pytest.fixture
def server() -> Iterator[RpcCommunicator]:
    with RpcCommunicator() as communicator:
        yield communicator


def serve_once(server: RpcCommunicator, call: Future, answer: bytes) -> tuple[bytes | None, bytes]:
    """Answer one call; return what arrived at either end."""
    question = server.receive(PLENTY)
    server.send(answer)
    return question, call.result(PLENTY)


def serve_no_message_until(server: RpcCommunicator, call: Future) -> None:
    """Let the server do what it does on its own until a call that it refuses is over."""
    for _ in range(1000):
        if call.done():
            return
        with pytest.raises(UnityTimeOutException):
            server.receive(0.02)
    raise AssertionError("the call is not over")


@pytest.mark.parametrize("size", [0, 1, 1000, 16_379, 16_384, 65_535, 100_000, LARGE])
def test_message_of_any_size_there_and_back(server, size):
    message = os.urandom(size)
    with grpcio_client(server.port) as call:
        assert serve_once(server, call(message), message[::-1]) == (message, message[::-1])


def test_many_exchanges(server):
    # Long enough for the connection's windows to be given back several times.
    with grpcio_client(server.port) as call:
        for number in range(300):
            message = number.to_bytes(4, "big") * 50_000
            future = call(message)
            assert server.receive(PLENTY) == message
            server.send(message)
            assert future.result(PLENTY) == message


def test_small_windows_and_frames_of_the_client(server):
    options = ("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)
    with grpcio_client(server.port, *options) as call:
        message = os.urandom(1_000_000)
        assert serve_once(server, call(b""), message) == (b"", message)


def test_keepalive_pings_are_answered_while_the_trainer_thinks(server):
    options = (
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 2000),
        ("grpc.http2.max_pings_without_data", 0),
    )
    with grpcio_client(server.port, *options) as call:
        assert serve_once(server, call(b"one"), b"1") == (b"one", b"1")
        with pytest.raises(UnityTimeOutException):
            server.receive(0.5)
        assert serve_once(server, call(b"two"), b"2") == (b"two", b"2")


def test_client_closes_its_channel(server):
    with grpcio_client(server.port) as call:
        assert serve_once(server, call(b"one"), b"1") == (b"one", b"1")
    with pytest.raises(UnityCommunicatorStoppedException):
        server.receive(PLENTY)


def test_client_cancels_its_call(server):
    with grpcio_client(server.port) as call:
        future = call(b"one")
        assert server.receive(PLENTY) == b"one"
        future.cancel()
        with pytest.raises(UnityCommunicatorStoppedException, match="cancelled"):
            server.receive(PLENTY)


def test_we_close_while_a_call_waits(server):
    with grpcio_client(server.port) as call:
        future = call(b"one")
        assert server.receive(PLENTY) == b"one"
        server.close()
        with pytest.raises(grpc.RpcError) as caught:
            future.result(PLENTY)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_last_answer_arrives_though_we_close_at_once(server):
    with grpcio_client(server.port) as call:
        future = call(b"one")
        assert server.receive(PLENTY) == b"one"
        server.send(b"goodbye")
        server.close()
        assert future.result(PLENTY) == b"goodbye"


def test_other_method_is_unimplemented(server):
    with grpc.insecure_channel(f"localhost:{server.port}") as channel:
        other = channel.unary_unary("/some.Service/Other").future(b"x", timeout=PLENTY)
        serve_no_message_until(server, other)
        with pytest.raises(grpc.RpcError) as caught:
            other.result(PLENTY)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert METHOD in caught.value.details()
        call = channel.unary_unary(METHOD).future(b"one", timeout=PLENTY)
        assert serve_once(server, call, b"1") == (b"one", b"1")


def test_second_call_on_the_channel_waits_for_the_first(server):
    with grpcio_client(server.port) as call:
        assert serve_once(server, call(b"zero"), b"0") == (b"zero", b"0")
        first, second = call(b"one"), call(b"two")
        assert serve_once(server, first, b"1") == (b"one", b"1")
        assert serve_once(server, second, b"2") == (b"two", b"2")


def test_second_client_is_turned_away(server):
    with grpcio_client(server.port) as first:
        assert serve_once(server, first(b"one"), b"1") == (b"one", b"1")
        with grpc.insecure_channel(
            f"localhost:{server.port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            refused = channel.unary_unary(METHOD).future(b"intruder", timeout=PLENTY)
            serve_no_message_until(server, refused)
            with pytest.raises(grpc.RpcError) as caught:
                refused.result(PLENTY)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert serve_once(server, first(b"two"), b"2") == (b"two", b"2")


def test_compressed_message_is_refused(server):
    options = [("grpc.default_compression_algorithm", 2)]
    with grpc.insecure_channel(f"localhost:{server.port}", options=options) as channel:
        call = channel.unary_unary(METHOD).future(bytes(10_000), timeout=PLENTY)
        with pytest.raises(UnityCommunicationException, match="compressed"):
            server.receive(PLENTY)
        with pytest.raises(grpc.RpcError) as caught:
            call.result(PLENTY)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_message_over_the_limit_is_refused():
    with RpcCommunicator(max_message_bytes=1000) as server, grpcio_client(server.port) as call:
        future = call(bytes(1001))
        with pytest.raises(UnityCommunicationException, match="1001 bytes, more than 1000"):
            server.receive(PLENTY)
        with pytest.raises(grpc.RpcError) as caught:
            future.result(PLENTY)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


# -- we call grpcio --


@contextmanager
def grpcio_server(behavior: Callable, *options: tuple[str, int]) -> Iterator[int]:
    """A server of our one method; yields its port."""
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads, options=[*UNLIMITED, *options])
        handlers = {"Exchange": grpc.unary_unary_rpc_method_handler(behavior)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait(PLENTY)


def backwards(message: bytes, context: object) -> bytes:
    return message[::-1]


@pytest.mark.parametrize("size", [0, 1, 1000, 16_379, 16_384, 65_535, 100_000, LARGE])
def test_call_of_any_size(size):
    message = os.urandom(size)
    with grpcio_server(backwards) as port, RpcClient(port, host="127.0.0.1") as client:
        assert client.call(message, PLENTY) == message[::-1]


def test_many_calls():
    with grpcio_server(backwards) as port, RpcClient(port, host="127.0.0.1") as client:
        for number in range(300):
            message = number.to_bytes(4, "little") * 50_000
            assert client.call(message, PLENTY) == message[::-1]


def test_server_sends_keepalive_pings():
    options = (
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 2000),
        ("grpc.http2.max_pings_without_data", 0),
    )
    thinking = threading.Event()

    def slowly(message: bytes, context: object) -> bytes:
        thinking.wait(0.5)
        return message

    with grpcio_server(slowly, *options) as port, RpcClient(port, host="127.0.0.1") as client:
        assert client.call(b"one", PLENTY) == b"one"
        assert client.call(b"two", PLENTY) == b"two"


def test_server_that_fails():
    def fail(message: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: 100 % \N{SNOWMAN}")

    with grpcio_server(fail) as port, RpcClient(port, host="127.0.0.1") as client:
        with pytest.raises(
            UnityCommunicatorStoppedException,
            match="FAILED_PRECONDITION: not today: 100 % \N{SNOWMAN}",
        ):
            client.call(b"", PLENTY)
        with pytest.raises(UnityCommunicationException, match="not connected"):
            client.call(b"", PLENTY)


def test_server_without_our_method():
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with RpcClient(port, host="127.0.0.1") as client:
                with pytest.raises(UnityCommunicatorStoppedException, match="UNIMPLEMENTED"):
                    client.call(b"", PLENTY)
        finally:
            server.stop(None).wait(PLENTY)


def test_server_that_does_not_answer_in_time():
    release = threading.Event()

    def hang(message: bytes, context: object) -> bytes:
        release.wait(PLENTY)
        return b""

    with grpcio_server(hang) as port, RpcClient(port, host="127.0.0.1") as client:
        try:
            with pytest.raises(UnityTimeOutException, match="did not respond in time"):
                client.call(b"", 0.1)
        finally:
            release.set()


def test_server_stops_between_calls():
    with RpcCommunicator() as unused:
        pass
    with grpcio_server(backwards) as port:
        client = RpcClient(port, host="127.0.0.1")
        client.connect(PLENTY)
        assert client.call(b"ab", PLENTY) == b"ba"
    with pytest.raises(UnityCommunicatorStoppedException):
        client.call(b"", PLENTY)
    with pytest.raises(UnityEnvironmentException, match="Start the trainer first"):
        RpcClient(unused.port, host="127.0.0.1").connect(PLENTY)
