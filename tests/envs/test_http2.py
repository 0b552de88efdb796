"""The HTTP/2 endpoint, fed with frames made by hand and by its own other role."""

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import http2_peer as peer
from http2_peer import Frame, frame, parse_frames, request, response, settings, window_update
from mlagents_envs.http2 import (
    CALL_TRANSITIONS,
    MAX_CONTROL_BYTES,
    MAX_FRAME_BYTES,
    RECEIVE_WINDOW_BYTES,
    Call,
    ClientConnection,
    Ended,
    ErrorCode,
    Event,
    Message,
    ProtocolError,
    ServerConnection,
)

HELLO = peer.PREFACE + settings()


def new_server(greeting: bytes = HELLO, **limits: int) -> ServerConnection:
    """A server that has been greeted, with nothing left to say."""
    server = ServerConnection(**limits)
    server.receive_data(greeting)
    server.bytes_to_send()
    return server


def new_client(greeting: bytes | None = None, **limits: int) -> ClientConnection:
    """A client that has been greeted, with nothing left to say."""
    client = ClientConnection("localhost:1", **limits)
    client.receive_data(settings() if greeting is None else greeting)
    client.bytes_to_send()
    return client


def calling_client(message: bytes = b"hi") -> ClientConnection:
    """A client whose first call waits for its answer."""
    client = new_client()
    client.request(message)
    client.bytes_to_send()
    return client


def body(frames: list[Frame]) -> bytes:
    return b"".join(each.payload for each in frames if each.kind == peer.DATA)


def exchange(client: ClientConnection, server: ServerConnection) -> tuple[list, list]:
    """Carry bytes both ways until both have said all; return the events of both."""
    at_client, at_server = [], []
    for _ in range(100_000):
        to_server, to_client = client.bytes_to_send(), server.bytes_to_send()
        if not to_server and not to_client:
            return at_client, at_server
        at_server += server.receive_data(to_server)
        at_client += client.receive_data(to_client)
    raise AssertionError("the two never fall silent")


# -- the server --


def test_server_keeps_silent_until_it_is_greeted():
    server = ServerConnection()
    server.receive_data(peer.PREFACE[:-1])
    assert server.bytes_to_send() == b""
    assert not server.established
    server.receive_data(peer.PREFACE[-1:] + settings())
    greeting = parse_frames(server.bytes_to_send())
    assert [(each.kind, each.flags, each.stream) for each in greeting] == [
        (peer.SETTINGS, 0, 0),
        (peer.WINDOW_UPDATE, 0, 0),
        (peer.SETTINGS, peer.ACK, 0),
    ]
    announced = dict(struct.iter_unpack(">HI", greeting[0].payload))
    assert announced == {3: 1, 4: RECEIVE_WINDOW_BYTES, 5: MAX_FRAME_BYTES, 6: 16_384}
    assert int.from_bytes(greeting[1].payload, "big") == RECEIVE_WINDOW_BYTES - 65_535
    assert server.established


def test_one_call_byte_by_byte():
    server = new_server()
    assert server.receive_data(request(b"question")) == [Message(b"question")]
    assert server.awaits_response
    server.respond(b"answer")
    assert server.bytes_to_send() == (
        # :status 200 and content-type, behind the table size update of the first header block
        frame(
            peer.HEADERS,
            peer.END_HEADERS,
            1,
            b"\x20\x88\x00\x0ccontent-type\x10application/grpc",
        )
        + frame(peer.DATA, 0, 1, b"\x00\x00\x00\x00\x06answer")
        + frame(peer.HEADERS, peer.END_HEADERS | peer.END_STREAM, 1, b"\x00\x0bgrpc-status\x010")
    )
    assert not server.awaits_response


def test_only_the_first_header_block_updates_the_table_size():
    server = new_server()
    for stream in (1, 3):
        server.receive_data(request(b"", stream))
        server.respond(b"")
        first = parse_frames(server.bytes_to_send())[0]
        assert first.payload.startswith(b"\x20\x88" if stream == 1 else b"\x88")


def test_response_without_a_call_is_a_mistake_of_ours():
    server = new_server()
    with pytest.raises(RuntimeError, match="no call"):
        server.respond(b"")
    server.receive_data(request(b""))
    server.respond(b"")
    with pytest.raises(RuntimeError, match="no call"):
        server.respond(b"")


@given(
    messages=st.lists(st.binary(max_size=300) | st.just(b"x" * 40_000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 2_000), max_size=40),
)
def test_bytes_may_be_cut_anywhere(messages, cuts):
    server = ServerConnection()
    arrived = []
    for number, message in enumerate(messages):
        data = (HELLO if number == 0 else b"") + request(message, 2 * number + 1)
        for at, to in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
            arrived += server.receive_data(data[at:to])
        server.respond(b"")
    assert arrived == [Message(message) for message in messages]


def test_one_byte_at_a_time():
    server = ServerConnection()
    events = []
    for byte in HELLO + request(b"question"):
        events += server.receive_data(bytes([byte]))
    assert events == [Message(b"question")]


def test_padding_and_priority_are_stripped_and_header_blocks_joined():
    server = new_server()
    headers = b"\x03" + b"\x80\x00\x00\x00\xff" + peer.REQUEST_HEADERS[:10] + b"\x00\x00\x00"
    flags = peer.PADDED | peer.HAS_PRIORITY
    assert not server.receive_data(
        frame(peer.HEADERS, flags, 1, headers)
        + frame(peer.CONTINUATION, 0, 1, peer.REQUEST_HEADERS[10:20])
        + frame(peer.CONTINUATION, peer.END_HEADERS, 1, peer.REQUEST_HEADERS[20:])
        + frame(peer.DATA, peer.PADDED, 1, b"\x02" + b"\x00\x00\x00\x00\x03a" + b"\x00\x00")
        + frame(peer.DATA, peer.PADDED, 1, b"\x00")
    )
    assert server.receive_data(
        frame(peer.DATA, peer.END_STREAM | peer.PADDED, 1, b"\x04bc" + bytes(4))
    ) == [Message(b"abc")]


def test_request_may_end_with_trailers():
    server = new_server()
    whole = frame(peer.HEADERS, peer.END_HEADERS, 1, peer.REQUEST_HEADERS) + frame(
        peer.DATA, 0, 1, peer.grpc_message(b"abc")
    )
    assert server.receive_data(whole) == []
    trailers = frame(peer.HEADERS, peer.END_HEADERS | peer.END_STREAM, 1, b"\x00\x01a\x01b")
    assert server.receive_data(trailers) == [Message(b"abc")]


def test_ping_and_settings_are_answered_and_answers_are_not():
    server = new_server()
    server.receive_data(frame(peer.PING, 0, 0, b"12345678") + settings(window=1))
    assert parse_frames(server.bytes_to_send()) == [
        (peer.PING, peer.ACK, 0, b"12345678"),
        (peer.SETTINGS, peer.ACK, 0, b""),
    ]
    server.receive_data(frame(peer.PING, peer.ACK, 0, b"12345678") + frame(peer.SETTINGS, peer.ACK))
    assert server.bytes_to_send() == b""


def test_what_is_not_known_or_not_needed_is_ignored():
    server = new_server()
    assert not server.receive_data(
        frame(0x77, 0xFF, 5, b"an extension")
        + frame(peer.SETTINGS, 0, 0, struct.pack(">HI", 0x99, 7))
        + frame(peer.PRIORITY, 0, 9, bytes(5))
    )
    assert server.receive_data(request(b"abc")) == [Message(b"abc")]


def test_second_call_is_refused_and_the_first_goes_on():
    server = new_server()
    whole = request(b"first")
    headers_end = 9 + len(peer.REQUEST_HEADERS)
    server.receive_data(whole[:headers_end])
    assert server.receive_data(request(b"second", stream=3)) == []
    assert parse_frames(server.bytes_to_send()) == [
        (peer.RST_STREAM, 0, 3, struct.pack(">I", ErrorCode.REFUSED_STREAM))
    ]
    assert server.receive_data(whole[headers_end:]) == [Message(b"first")]
    assert server.receive_data(request(b"third", stream=5)) == []
    server.bytes_to_send()
    server.respond(b"answer")
    assert body(parse_frames(server.bytes_to_send())) == peer.grpc_message(b"answer")
    assert server.receive_data(request(b"fourth", stream=7)) == [Message(b"fourth")]


def test_unknown_method_is_refused_and_the_next_call_served():
    server = new_server()
    headers = b"\x83\x86\x04\x06/other"
    assert not server.receive_data(frame(peer.HEADERS, peer.END_HEADERS, 1, headers))
    refusal = parse_frames(server.bytes_to_send())
    assert [each.kind for each in refusal] == [peer.HEADERS, peer.RST_STREAM]
    assert refusal[0].flags == peer.END_HEADERS | peer.END_STREAM
    assert b"grpc-status\x0212" in refusal[0].payload
    assert peer.PATH in refusal[0].payload
    # What was under way for the refused call is read away.
    late = frame(peer.DATA, peer.END_STREAM, 1, peer.grpc_message(b"late"))
    assert not server.receive_data(late)
    assert server.receive_data(request(b"abc", stream=3)) == [Message(b"abc")]


@pytest.mark.parametrize("ending", ["cancel", "goaway", "calm"])
def test_end_of_the_session(ending):
    server = new_server()
    server.receive_data(request(b"abc"))
    data, reason = {
        "cancel": (frame(peer.RST_STREAM, 0, 1, struct.pack(">I", 8)), "cancelled (CANCEL)"),
        "goaway": (frame(peer.GOAWAY, 0, 0, bytes(8)), "closed the connection (NO_ERROR)"),
        "calm": (
            frame(peer.GOAWAY, 0, 0, struct.pack(">II", 0, 77) + b"pings\xff"),
            "closed the connection (error 77: pings\N{REPLACEMENT CHARACTER})",
        ),
    }[ending]
    (event,) = server.receive_data(data)
    assert isinstance(event, Ended)
    assert reason in event.reason


def test_goodbye_is_said_to_whom_was_greeted():
    server = ServerConnection()
    server.close()
    assert server.bytes_to_send() == b""
    server = new_server()
    server.receive_data(request(b""))
    server.close()
    goodbye = (peer.GOAWAY, 0, 0, struct.pack(">II", 1, ErrorCode.NO_ERROR))
    assert parse_frames(server.bytes_to_send()) == [goodbye]


# -- flow control --


def test_response_waits_for_both_windows():
    # The message is 5 + 20 bytes. 10 fit into the stream's window, 8 more after an update,
    # the last 7 when the connection, cut down to 18, is opened too.
    server = new_server(peer.PREFACE + settings(window=65_535))
    server.receive_data(request(b""))
    server.respond(bytes(65_535 - 5 - 18))
    server.bytes_to_send()
    server.receive_data(settings(window=10) + request(b"", stream=3))
    server.respond(b"x" * 20)
    assert len(body(parse_frames(server.bytes_to_send()))) == 10
    assert server.sending
    server.receive_data(window_update(3, 100))
    assert len(body(parse_frames(server.bytes_to_send()))) == 8
    assert server.sending
    server.receive_data(window_update(0, 100))
    frames = parse_frames(server.bytes_to_send())
    assert len(body(frames)) == 7
    assert frames[-1].flags == peer.END_HEADERS | peer.END_STREAM
    assert not server.sending


def test_window_of_an_open_call_may_turn_negative():
    # 100 of 105 bytes are sent when the window shrinks from 100 to 40, which leaves -60. An
    # update by 62 makes it 2.
    server = new_server(peer.PREFACE + settings(window=100))
    server.receive_data(request(b""))
    server.respond(bytes(100))
    assert len(body(parse_frames(server.bytes_to_send()))) == 100
    server.receive_data(settings(window=40))
    assert body(parse_frames(server.bytes_to_send())) == b""
    server.receive_data(window_update(1, 62))
    assert len(body(parse_frames(server.bytes_to_send()))) == 2
    server.receive_data(settings(window=43))
    assert len(body(parse_frames(server.bytes_to_send()))) == 3
    assert not server.sending


def test_cancelled_call_sends_no_more():
    server = new_server(peer.PREFACE + settings(window=10))
    server.receive_data(request(b""))
    server.respond(bytes(100))
    server.bytes_to_send()
    server.receive_data(frame(peer.RST_STREAM, 0, 1, bytes(4)) + window_update(0, 1000))
    assert not server.sending
    assert server.bytes_to_send() == b""


def test_frames_are_no_longer_than_the_peer_takes():
    for limit in (16_384, 20_000):
        server = new_server(peer.PREFACE + settings(window=10**6, frame=limit))
        server.receive_data(request(b""))
        server.respond(bytes(50_000))
        sizes = [len(each.payload) for each in parse_frames(server.bytes_to_send())]
        assert sizes[1:-1] == [limit] * (50_005 // limit) + [50_005 % limit]


def test_receive_windows_are_given_back():
    # The peer's account of our windows: it must never run dry, nor overflow, over many times
    # what the windows hold.
    server = new_server()
    piece = bytes(MAX_FRAME_BYTES)
    windows = {0: RECEIVE_WINDOW_BYTES}
    for stream in (1, 3):
        windows[stream] = RECEIVE_WINDOW_BYTES
        server.receive_data(frame(peer.HEADERS, peer.END_HEADERS, stream, peer.REQUEST_HEADERS))
        prefix = struct.pack(">BI", 0, 40 * len(piece))
        server.receive_data(frame(peer.DATA, 0, stream, prefix))
        windows[0] -= 5
        windows[stream] -= 5
        for number in range(40):
            flags = peer.END_STREAM if number == 39 else 0
            events = server.receive_data(frame(peer.DATA, flags, stream, piece))
            for each in parse_frames(server.bytes_to_send()):
                assert each.kind == peer.WINDOW_UPDATE
                windows[each.stream] += int.from_bytes(each.payload, "big")
            for each in (0, stream):
                windows[each] -= len(piece)
                assert len(piece) <= windows[each] <= RECEIVE_WINDOW_BYTES
        assert len(events[0].data) == 40 * len(piece)
        server.respond(b"")
        server.bytes_to_send()


@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=3),
    at_client=st.tuples(st.integers(1, 70_000), st.integers(16_384, 30_000)),
    at_server=st.tuples(st.integers(1, 70_000), st.integers(16_384, 30_000)),
    data=st.data(),
)
def test_both_roles_agree_whatever_the_windows(sizes, at_client, at_server, data):
    client, server = ClientConnection("localhost:1"), ServerConnection()
    exchange(client, server)
    # Each is told of windows and frame sizes that are not the other's; so the test, as a peer
    # that reads slowly, has to give those windows back.
    client.receive_data(settings(window=at_client[0], frame=at_client[1]))
    server.receive_data(settings(window=at_server[0], frame=at_server[1]))
    for number, size in enumerate(sizes):
        stream = 2 * number + 1
        message = data.draw(st.binary(min_size=1, max_size=5)) * size
        for end, other in ((client, server), (server, client)):
            if end is client:
                client.request(message)
            else:
                server.respond(message)
            arrived = []
            for _ in range(100_000):
                arrived += other.receive_data(end.bytes_to_send())
                end.receive_data(other.bytes_to_send())
                if not end.sending:
                    break
                end.receive_data(
                    window_update(stream, data.draw(st.integers(1000, 90_000), label="update"))
                )
            arrived += other.receive_data(end.bytes_to_send())
            assert arrived == [Message(message)]


# -- the client --


def test_client_calls_again_and_again():
    client, server = ClientConnection("localhost:1"), ServerConnection()
    for message in (b"", b"one", bytes(300_000), b"three"):
        client.request(message)
        assert exchange(client, server) == ([], [Message(message)])
        server.respond(message[::-1])
        assert exchange(client, server) == ([Message(message[::-1])], [])


def test_client_introduces_itself_at_once():
    client = ClientConnection("localhost:1")
    said = client.bytes_to_send()
    assert said.startswith(peer.PREFACE)
    greeting = parse_frames(said[len(peer.PREFACE) :])
    assert [each.kind for each in greeting] == [peer.SETTINGS, peer.WINDOW_UPDATE]
    assert dict(struct.iter_unpack(">HI", greeting[0].payload))[2] == 0  # no push


def test_one_call_of_the_client():
    client = new_client()
    client.request(b"question")
    headers, data = parse_frames(client.bytes_to_send())
    assert headers[:3] == (peer.HEADERS, peer.END_HEADERS, 1)
    assert b"\x05:path" + bytes([len(peer.PATH)]) + peer.PATH in headers.payload
    assert b"\x0a:authority\x0blocalhost:1" in headers.payload
    assert data == (peer.DATA, peer.END_STREAM, 1, peer.grpc_message(b"question"))
    with pytest.raises(RuntimeError, match="already open"):
        client.request(b"")
    assert client.receive_data(response(b"answer")) == [Message(b"answer")]
    client.request(b"")
    assert parse_frames(client.bytes_to_send())[0].stream == 3


def test_stream_numbers_run_out():
    client = new_client()
    client._last_stream = 2**31 - 1
    with pytest.raises(RuntimeError, match="used up"):
        client.request(b"")


def headers(payload: bytes, *, end: bool = True) -> bytes:
    flags = peer.END_HEADERS | (peer.END_STREAM if end else 0)
    return frame(peer.HEADERS, flags, 1, payload)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (headers(b"\x88\x00\x0bgrpc-status\x0212"), "gRPC status UNIMPLEMENTED"),
        (
            headers(b"\x88\x00\x0bgrpc-status\x018\x00\x0cgrpc-message\x08too%20b\xff"),
            "RESOURCE_EXHAUSTED: too b\N{REPLACEMENT CHARACTER}",
        ),
        (headers(b"\x88\x00\x0bgrpc-status\x0299"), "gRPC status 99"),
        (headers(b"\x88\x00\x0bgrpc-status\x03x\xffy"), "gRPC status x"),
        (headers(b"\x88"), "gRPC status missing"),
        (headers(b"\x8d"), "HTTP status 404"),
        (headers(b"\x00\x01a\x01b"), "HTTP status none"),
        (
            headers(b"\x88", end=False)
            + frame(peer.DATA, peer.END_STREAM, 1, peer.grpc_message(b"abc")),
            "no status",
        ),
        (frame(peer.RST_STREAM, 0, 1, struct.pack(">I", 7)), "cancelled (REFUSED_STREAM)"),
        (frame(peer.GOAWAY, 0, 0, bytes(8)), "closed the connection"),
    ],
)
def test_failed_call_has_a_reason_and_the_next_may_succeed(answer, reason):
    client = calling_client()
    (event,) = client.receive_data(answer)
    assert isinstance(event, Ended)
    assert reason in event.reason
    client.request(b"")
    assert client.receive_data(response(b"abc", stream=3)) == [Message(b"abc")]


def test_goaway_behind_the_open_call_lets_it_finish():
    client = calling_client()
    assert client.receive_data(frame(peer.GOAWAY, 0, 0, struct.pack(">II", 1, 0))) == []
    assert client.receive_data(response(b"abc")) == [Message(b"abc")]


def test_server_may_answer_before_it_has_read_all():
    client = new_client()
    client.request(bytes(100_000))
    client.bytes_to_send()
    assert client.sending
    assert client.receive_data(response(b"enough")) == [Message(b"enough")]
    assert not client.sending
    cancel = (peer.RST_STREAM, 0, 1, struct.pack(">I", ErrorCode.CANCEL))
    assert parse_frames(client.bytes_to_send()) == [cancel]
    # A reset that crosses ours concerns a call that is over.
    assert client.receive_data(frame(peer.RST_STREAM, 0, 1, bytes(4))) == []


# -- a peer that breaks the rules --


def check_broken(
    connection: ServerConnection | ClientConnection,
    data: bytes,
    reason: str,
    code: ErrorCode = ErrorCode.PROTOCOL_ERROR,
) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        connection.receive_data(data)
    assert caught.value.code is code
    goodbye = parse_frames(connection.bytes_to_send())[-1]
    assert goodbye.kind == peer.GOAWAY
    assert struct.unpack(">II", goodbye.payload)[1] == code
    with pytest.raises(ProtocolError, match=reason):
        connection.receive_data(b"")
    connection.close()
    assert connection.bytes_to_send() == b""


SIZE, FLOW, CLOSED = (
    ErrorCode.FRAME_SIZE_ERROR,
    ErrorCode.FLOW_CONTROL_ERROR,
    ErrorCode.STREAM_CLOSED,
)
CALM, COMPRESSION = ErrorCode.ENHANCE_YOUR_CALM, ErrorCode.COMPRESSION_ERROR
BROKEN = ErrorCode.PROTOCOL_ERROR
OPEN = frame(peer.HEADERS, peer.END_HEADERS, 1, peer.REQUEST_HEADERS)
MALFORMED = {
    "push switched on twice": (settings(push=2), "ENABLE_PUSH of 2", BROKEN),
    "data on no stream": (frame(peer.DATA, 0, 0, b""), "DATA on stream 0", BROKEN),
    "data on an idle stream": (frame(peer.DATA, 0, 3, b""), "never opened", BROKEN),
    "data on a stream of ours": (frame(peer.DATA, 0, 2, b""), "never opened", BROKEN),
    "data behind the end": (
        request(b"") + frame(peer.DATA, 0, 1, b""),
        "DATA outside",
        CLOSED,
    ),
    "too much padding": (OPEN + frame(peer.DATA, peer.PADDED, 1, b"\x02ab"[:2]), "padding", BROKEN),
    "padding of nothing": (OPEN + frame(peer.DATA, peer.PADDED, 1, b""), "padding", BROKEN),
    "frame too long": (
        (MAX_FRAME_BYTES + 1).to_bytes(3, "big") + bytes(6),
        "frame of 1048577 bytes",
        SIZE,
    ),
    "headers on no stream": (
        frame(peer.HEADERS, peer.END_HEADERS, 0, peer.REQUEST_HEADERS),
        "HEADERS on stream 0",
        BROKEN,
    ),
    "call on an even stream": (
        frame(peer.HEADERS, peer.END_HEADERS, 2, peer.REQUEST_HEADERS),
        "of a client are odd",
        BROKEN,
    ),
    "headers too short for a priority": (
        frame(peer.HEADERS, peer.END_HEADERS | peer.HAS_PRIORITY, 1, b"1234"),
        "too short for a priority",
        SIZE,
    ),
    "headers inside a call": (OPEN + OPEN, "HEADERS inside a call", BROKEN),
    "headers behind a call": (request(b"") + OPEN, "HEADERS inside a call", BROKEN),
    "headers that do not decode": (
        frame(peer.HEADERS, peer.END_HEADERS, 1, b"\xff"),
        "headers: header block ends inside an integer",
        COMPRESSION,
    ),
    "headers too large": (
        frame(peer.HEADERS, peer.END_HEADERS, 1, bytes(16_385)),
        "header block of more than",
        CALM,
    ),
    "headers too large in pieces": (
        frame(peer.HEADERS, 0, 1, bytes(10_000)) + frame(peer.CONTINUATION, 0, 1, bytes(10_000)),
        "header block of more than",
        CALM,
    ),
    "header block interrupted": (
        frame(peer.HEADERS, 0, 1, b"") + frame(peer.PING, 0, 0, bytes(8)),
        "interrupted",
        BROKEN,
    ),
    "header block of two streams": (
        frame(peer.HEADERS, 0, 1, b"") + frame(peer.CONTINUATION, 0, 3, b""),
        "interrupted",
        BROKEN,
    ),
    "continuation of nothing": (
        frame(peer.CONTINUATION, 0, 1, b""),
        "without a header block",
        BROKEN,
    ),
    "priority on no stream": (frame(peer.PRIORITY, 0, 0, bytes(5)), "stream 0", BROKEN),
    "priority of a wrong size": (frame(peer.PRIORITY, 0, 1, bytes(4)), "PRIORITY of 4", SIZE),
    "reset of a wrong size": (frame(peer.RST_STREAM, 0, 1, bytes(5)), "RST_STREAM of 5", SIZE),
    "reset of an idle stream": (frame(peer.RST_STREAM, 0, 1, bytes(4)), "never opened", BROKEN),
    "settings on a stream": (frame(peer.SETTINGS, 0, 1), "SETTINGS on a stream", BROKEN),
    "settings of a wrong size": (frame(peer.SETTINGS, 0, 0, bytes(7)), "SETTINGS of 7", SIZE),
    "settings acknowledged with more": (
        frame(peer.SETTINGS, peer.ACK, 0, bytes(6)),
        "acknowledgement of SETTINGS of 6",
        SIZE,
    ),
    "window too wide": (settings(window=2**31), "initial window of 2147483648", FLOW),
    "open window grown too wide": (
        OPEN + window_update(1, 2**31 - 1 - 65_535) + settings(window=65_536),
        "too large",
        FLOW,
    ),
    "frames too small": (settings(frame=16_383), "frame size of 16383", BROKEN),
    "frames too large": (settings(frame=2**24), "frame size of 16777216", BROKEN),
    "push": (frame(peer.PUSH_PROMISE, 0, 1, bytes(4)), "PUSH_PROMISE", BROKEN),
    "ping on a stream": (frame(peer.PING, 0, 1, bytes(8)), "PING on a stream", BROKEN),
    "ping of a wrong size": (frame(peer.PING, 0, 0, bytes(7)), "PING of 7", SIZE),
    "goaway on a stream": (frame(peer.GOAWAY, 0, 1, bytes(8)), "GOAWAY on a stream", BROKEN),
    "goaway too short": (frame(peer.GOAWAY, 0, 0, bytes(7)), "GOAWAY too short", SIZE),
    "window update of a wrong size": (
        frame(peer.WINDOW_UPDATE, 0, 0, bytes(3)),
        "WINDOW_UPDATE of 3",
        SIZE,
    ),
    "window update by nothing": (window_update(0, 0), "by 0", BROKEN),
    "window update of an idle stream": (window_update(1, 5), "never opened", BROKEN),
    "connection window grown too wide": (
        window_update(0, 2**31 - 65_535),
        "window too large",
        FLOW,
    ),
    "stream window grown too wide": (
        OPEN + window_update(1, 2**31 - 65_535),
        "window too large",
        FLOW,
    ),
    "no message": (OPEN + frame(peer.DATA, peer.END_STREAM, 1, b""), "ended 0 bytes", BROKEN),
    "no body": (
        frame(peer.HEADERS, peer.END_HEADERS | peer.END_STREAM, 1, peer.REQUEST_HEADERS),
        "ended 0 bytes",
        BROKEN,
    ),
    "half a message": (
        OPEN + frame(peer.DATA, peer.END_STREAM, 1, b"\x00\x00\x00\x00\x05abc"),
        "ended 8 bytes into",
        BROKEN,
    ),
    "two messages": (
        OPEN + frame(peer.DATA, 0, 1, peer.grpc_message(b"abc") * 2),
        "more bytes than that message",
        BROKEN,
    ),
}


@pytest.mark.parametrize(("data", "reason", "code"), MALFORMED.values(), ids=MALFORMED.keys())
def test_server_refuses(data, reason, code):
    check_broken(new_server(), data, reason, code)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "expected the preface of HTTP/2, got b'GET / HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "expected the preface"),
        (peer.PREFACE + frame(peer.PING, 0, 0, bytes(8)), "as the first frame, got type 6"),
        (peer.PREFACE + frame(peer.SETTINGS, peer.ACK), "as the first frame, got type 4"),
    ],
)
def test_server_refuses_a_wrong_greeting(data, reason):
    check_broken(ServerConnection(), data, reason)


@pytest.mark.parametrize(
    ("data", "reason", "code"),
    [
        (frame(peer.DATA, 0, 1, b""), "DATA outside", CLOSED),
        (frame(peer.HEADERS, peer.END_HEADERS, 2, b"\x88"), "never opened", BROKEN),
        (frame(peer.HEADERS, peer.END_HEADERS, 3, b"\x88"), "never opened", BROKEN),
        (headers(b"\x88", end=False) * 2, "HEADERS inside a response", BROKEN),
        (headers(peer.RESPONSE_HEADERS + peer.TRAILERS), "ended 0 bytes", BROKEN),
        (
            headers(b"\x88", end=False) + frame(peer.DATA, 0, 1, b"\x01\x00\x00\x00\x00"),
            "compressed",
            BROKEN,
        ),
        (frame(peer.PUSH_PROMISE, 0, 1, bytes(4)), "PUSH_PROMISE", BROKEN),
    ],
)
def test_client_refuses(data, reason, code):
    check_broken(calling_client(), data, reason, code)


@pytest.mark.parametrize(
    ("prefix", "status", "reason"),
    [
        (b"\x00\x00\x00\x03\xe9", b"8", "message of 1001 bytes, more than 1000"),
        (b"\x01\x00\x00\x00\x00", b"12", "compressed"),
    ],
)
def test_caller_is_told_why_its_message_was_refused(prefix, status, reason):
    server = new_server(max_message_bytes=1000)
    with pytest.raises(ProtocolError, match=reason):
        server.receive_data(OPEN + frame(peer.DATA, 0, 1, prefix))
    refusal, reset, goodbye = parse_frames(server.bytes_to_send())
    assert (reset.kind, goodbye.kind) == (peer.RST_STREAM, peer.GOAWAY)
    assert b"grpc-status" + bytes([len(status)]) + status in refusal.payload
    # Our client understands it.
    client = calling_client()
    (event,) = client.receive_data(frame(*refusal))
    assert reason in event.reason


def test_largest_message_is_accepted():
    server = new_server(max_message_bytes=1000)
    assert server.receive_data(request(bytes(1000))) == [Message(bytes(1000))]


def test_more_data_than_the_connection_window():
    server = new_server()
    server._receive_window = 10
    server.receive_data(OPEN)
    check_broken(
        server, frame(peer.DATA, 0, 1, bytes(11)), "more DATA than", ErrorCode.FLOW_CONTROL_ERROR
    )


def test_more_data_than_the_stream_window():
    server = new_server()
    server.receive_data(OPEN)
    server._stream_receive_window = 10
    check_broken(
        server, frame(peer.DATA, 0, 1, bytes(11)), "more DATA than", ErrorCode.FLOW_CONTROL_ERROR
    )


@pytest.mark.parametrize(
    "asking",
    [
        frame(peer.PING, 0, 0, bytes(8)),
        settings(),
        b"".join(request(b"", stream) for stream in range(3, 30_003, 2)),
    ],
    ids=["pings", "settings", "refused calls"],
)
def test_answers_nobody_reads_do_not_pile_up(asking):
    server = new_server()
    server.receive_data(OPEN)
    with pytest.raises(ProtocolError, match="answers that the peer does not read"):
        for _ in range(100_000):
            server.receive_data(asking)
    assert len(server.bytes_to_send()) <= MAX_CONTROL_BYTES + 100


def test_empty_frames_leave_nothing_behind():
    server = new_server()
    server.receive_data(OPEN)
    flood = frame(peer.DATA, 0, 1, b"") + frame(peer.PRIORITY, 0, 5, bytes(5))
    for _ in range(5_000):
        assert server.receive_data(flood) == []
    assert server.bytes_to_send() == b""
    assert len(server._inbox.getvalue()) == len(server._buffer) == 0


def copied_bytes(run: Callable[[], object]) -> int:
    """Return how much `run` allocates at most at any one time."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("frame_bytes", [16_384, MAX_FRAME_BYTES])
def test_a_message_is_copied_once_however_it_is_cut(frame_bytes):
    # Frames and reads end at different places, so nearly every frame is cut by a read.
    message = bytes(range(256)) * 32 * 1024  # 8 MiB
    body = peer.grpc_message(message)
    pieces = [body[at : at + frame_bytes] for at in range(0, len(body), frame_bytes)]
    sent = OPEN + b"".join(frame(peer.DATA, 0, 1, piece) for piece in pieces)
    sent += frame(peer.DATA, peer.END_STREAM, 1, b"")
    reads = [sent[at : at + 65_536] for at in range(0, len(sent), 65_536)]
    server = new_server()
    events: list[Event] = []

    def receive() -> None:
        for read in reads:
            events.extend(server.receive_data(read))

    # The buffer that grows has at most an eighth to spare.
    assert copied_bytes(receive) < 1.2 * len(message)
    assert events == [Message(message)]


def test_the_states_of_a_call():
    server, client = new_server(), new_client()
    assert (server._call, client._call) == (Call.IDLE, Call.IDLE)
    client.request(b"question")
    assert client._call is Call.HEADERS
    data = client.bytes_to_send()
    server.receive_data(data[:-1])
    assert server._call is Call.BODY
    assert server.receive_data(data[-1:]) == [Message(b"question")]
    assert server._call is Call.ANSWERING
    server.respond(b"answer")
    assert server._call is Call.IDLE
    answer = server.bytes_to_send()
    client.receive_data(answer[:-1])  # the trailers are not whole
    assert client._call is Call.BODY
    assert client.receive_data(answer[-1:]) == [Message(b"answer")]
    assert client._call is Call.IDLE


def test_every_state_can_be_reached_and_left():
    reached = {after for row in CALL_TRANSITIONS.values() for after in row.values()}
    assert reached == set(Call) == CALL_TRANSITIONS.keys()
    assert all(CALL_TRANSITIONS.values())
