"""Random and mutated bytes into both roles: events or one exception, and bounded memory."""

import random

import pytest

import http2_peer as peer
from http2_peer import frame, grpc_message, settings, window_update
from mlagents_envs.http2 import (
    MAX_CONTROL_BYTES,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    ClientConnection,
    Ended,
    Message,
    ProtocolError,
    ServerConnection,
)

MAX_MESSAGE_BYTES = 1000
INPUTS = 100_000

# What valid conversations are made of; the fuzzer picks, repeats, cuts and changes them.
PIECES = [
    peer.request(b"abc"),
    peer.request(bytes(900), stream=3),
    peer.response(b"abc"),
    frame(peer.HEADERS, 0, 1, peer.REQUEST_HEADERS[:9]),
    frame(peer.CONTINUATION, peer.END_HEADERS, 1, peer.REQUEST_HEADERS[9:]),
    frame(peer.HEADERS, peer.END_HEADERS, 5, b"\x40\x01a\x01b\xbe\x83\x86"),
    frame(peer.HEADERS, peer.END_HEADERS | peer.PADDED | peer.HAS_PRIORITY, 1, bytes(9) + b"\x88"),
    frame(peer.DATA, 0, 1, grpc_message(b"abc")[:6]),
    frame(peer.DATA, peer.END_STREAM | peer.PADDED, 1, b"\x03bcpad"),
    frame(peer.RST_STREAM, 0, 1, bytes(4)),
    frame(peer.PRIORITY, 0, 1, bytes(5)),
    frame(peer.PING, 0, 0, bytes(8)),
    frame(peer.GOAWAY, 0, 0, bytes(8)),
    frame(0x42, 0, 0, b"extension"),
    settings(window=20, frame=20_000),
    settings(header_table=0, window=70_000),
    window_update(0, 1000),
    window_update(1, 1000),
]


def random_input(rng: random.Random, greeting: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.2:
        return greeting + rng.randbytes(rng.randrange(200))
    if kind < 0.4:  # frames well made, of anything
        return greeting + b"".join(
            frame(
                rng.randrange(11),
                rng.choice((0, 1, 4, 5, 8, rng.randrange(256))),
                rng.choice((0, 1, 1, 2, 3, rng.getrandbits(31))),
                rng.randbytes(rng.choice((0, 4, 5, 6, 8, rng.randrange(40)))),
            )
            for _ in range(rng.randrange(1, 6))
        )
    data = bytearray(greeting + b"".join(rng.choices(PIECES, k=rng.randrange(1, 8))))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(data))
        change = rng.random()
        if change < 0.6:
            data[at] = rng.randrange(256)
        elif change < 0.8:
            del data[at : at + rng.randrange(1, 9)]
            data = data or bytearray(b"P")
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


def feed(connection: ServerConnection | ClientConnection, data: bytes, cut: int) -> list:
    """Feed `data` in two parts; return the events and, last, the error if there was one."""
    happened = []
    for part in (data[:cut], data[cut:]):
        try:
            happened += connection.receive_data(part)
        except ProtocolError as error:
            assert error.reason
            return [*happened, error]
        if isinstance(connection, ServerConnection) and connection.awaits_response:
            connection.respond(b"answer" * 10)
        assert len(connection._buffer) <= 9 + MAX_FRAME_BYTES
        assert len(connection._inbox) <= 5 + MAX_MESSAGE_BYTES
        assert connection._block is None or len(connection._block[2]) <= MAX_HEADER_BYTES
        assert sum(map(len, connection._out)) <= MAX_CONTROL_BYTES + 1000
    return happened


@pytest.mark.slow
@pytest.mark.parametrize("role", ["server", "client"])
def test_any_input_gives_events_or_one_exception(role):
    rng = random.Random(f"http2 {role}")
    counts = {Message: 0, Ended: 0, ProtocolError: 0}
    for _ in range(INPUTS):
        connection: ServerConnection | ClientConnection
        if role == "server":
            connection = ServerConnection(MAX_MESSAGE_BYTES)
            greeting = peer.PREFACE + settings()
        else:
            connection = ClientConnection("localhost:1", MAX_MESSAGE_BYTES)
            connection.request(b"question")
            greeting = settings()
        data = random_input(rng, greeting)
        for each in feed(connection, data, rng.randrange(len(data) + 1)):
            counts[type(each)] += 1
    # The inputs reach all of it: whole messages, ends and errors, each many times.
    assert min(counts.values()) > INPUTS // 100, counts
