"""Both roles of one gRPC method over plain-text HTTP/2, without a socket.

Pass the bytes from the peer to `receive_data`, which returns events. Write the bytes that
`bytes_to_send` returns to the peer:

    simulation                                trainer
    ClientConnection                          ServerConnection
        request(message)   ── bytes ──►           receive_data(...) -> [Message(...)]
        receive_data(...)  ◄── bytes ──           respond(message)
            -> [Message(...)]

As the protocol requires, one unary call is open at a time. There is thus only one stream, and
others are refused, so this is much smaller than a general HTTP/2 implementation. Frames follow
RFC 9113, calls follow gRPC over HTTP/2. `CALL_TRANSITIONS` has the states of the one call:

    IDLE ──OPENED──► HEADERS ──FIELDS──► BODY ──END──► ANSWERING ──OVER──► IDLE

A message that arrives in one piece is returned as a view of the bytes that were read. The pieces of
a longer one are copied once, as they arrive.

The memory that a peer can occupy is limited: one frame, one header block, one message, and answers
to its control frames. If the peer breaks the protocol or a limit, `ProtocolError` is raised. Then
`bytes_to_send` returns a GOAWAY frame, and the connection cannot be used any more.
"""

from urllib.parse import unquote_to_bytes

from mlagents_envs import hpack
from mlagents_envs.http2_connection import (
    CALL_TRANSITIONS,
    DEFAULT_MAX_MESSAGE_BYTES,
    MAX_CONTROL_BYTES,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    RECEIVE_WINDOW_BYTES,
    Call,
    CallEvent,
    Connection,
    Ended,
    Event,
    Message,
)
from mlagents_envs.http2_frames import (
    DATA,
    ENABLE_PUSH,
    END_STREAM,
    LARGEST_STREAM,
    MAX_CONCURRENT_STREAMS,
    PREFACE,
    ErrorCode,
    ProtocolError,
    frame_header,
)

__all__ = [
    "CALL_TRANSITIONS",
    "DEFAULT_MAX_MESSAGE_BYTES",
    "MAX_CONTROL_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "METHOD",
    "RECEIVE_WINDOW_BYTES",
    "Call",
    "CallEvent",
    "ClientConnection",
    "Ended",
    "ErrorCode",
    "Event",
    "Message",
    "ProtocolError",
    "ServerConnection",
]

METHOD = b"/communicator_objects.UnityToExternalProto/Exchange"
_GRPC_STATUSES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
    "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED "
    "INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()


class ServerConnection(Connection):
    """Trainer's end of the connection, which receives requests and sends responses.

    Args:
        max_message_bytes: Size of the largest request to accept. gRPC's default of 4 MiB is too
            small for many cameras.
    """

    _ROLE_SETTING = (MAX_CONCURRENT_STREAMS, 1)
    _PEER_HALF = "call"
    _RESPONSE = hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
    _TRAILERS = hpack.encode([(b"grpc-status", b"0")])

    def __init__(self, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        super().__init__(max_message_bytes)
        self._expected_preface = PREFACE

    @property
    def awaits_response(self) -> bool:
        """Whether a request has arrived that is not answered yet."""
        return self._call is Call.ANSWERING and not self._outbox

    def respond(self, message: bytes) -> None:
        """Answer the open call."""
        if not self.awaits_response:
            raise RuntimeError("no call waits for a response")
        self._send_headers(self._stream, self._RESPONSE)
        self._send_message(message)

    def _send_data(self, frame: bytes | memoryview, last: bool) -> None:
        self._out += (frame_header(DATA, 0, self._stream, len(frame)), frame)
        if last:
            self._send_headers(self._stream, self._TRAILERS, END_STREAM)
            self._end_call()

    def _on_fields(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        if stream == self._stream:
            self._advance_call(CallEvent.END if end else CallEvent.FIELDS)
            self._on_end()
        elif stream % 2 == 0:
            raise ProtocolError(f"call on stream {stream}; the streams of a client are odd")
        elif stream > self._last_stream:
            self._on_call(stream, fields, end)

    def _on_call(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        if self._call is not Call.IDLE:
            self._last_stream = stream
            self._send_reset(stream, ErrorCode.REFUSED_STREAM)
            return
        self._begin_call(stream)
        self._advance_call(CallEvent.END if end else CallEvent.FIELDS)
        if fields.get(b":path") != METHOD:
            self._refuse_call(12, f"the only method of this server is {METHOD.decode()}")
        elif end:
            self._on_end()

    def _refuse_call(self, status: int, reason: str) -> None:
        """End the open call with an error, even if the client has not sent everything."""
        block = hpack.encode(
            [
                (b":status", b"200"),
                (b"content-type", b"application/grpc"),
                (b"grpc-status", b"%d" % status),
                (b"grpc-message", reason.encode()),
            ]
        )
        stream = self._stream
        self._send_headers(stream, block, END_STREAM)
        if self._call is not Call.ANSWERING:
            self._send_reset(stream, ErrorCode.NO_ERROR)
        self._end_call()

    def _reject_message(self, status: int, reason: str) -> None:
        self._refuse_call(status, reason)
        super()._reject_message(status, reason)

    def _on_end(self) -> None:
        self._events.append(Message(self._take_message()))

    def _on_goodbye(self, last_stream: int, reason: str) -> None:
        self._events.append(Ended(reason))


class ClientConnection(Connection):
    """Simulation's end of the connection, which sends requests and receives responses.

    Args:
        authority: Host and port of the server.
        max_message_bytes: Size of the largest response to accept.
    """

    _ROLE_SETTING = (ENABLE_PUSH, 0)
    _PEER_HALF = "response"

    def __init__(self, authority: str, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        super().__init__(max_message_bytes)
        self._request = hpack.encode(
            [
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", METHOD),
                (b":authority", authority.encode()),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
            ]
        )
        self._out.append(PREFACE)
        self._introduce()

    def request(self, message: bytes) -> None:
        """Begin a call."""
        if self._call is not Call.IDLE:
            raise RuntimeError("a call is already open")
        stream = self._last_stream + 2 if self._last_stream else 1
        if stream > LARGEST_STREAM:
            raise RuntimeError("all 2**30 calls of this connection are used up: connect again")
        self._begin_call(stream)
        self._send_headers(stream, self._request)
        self._send_message(message)

    def _send_data(self, frame: bytes | memoryview, last: bool) -> None:
        flags = END_STREAM if last else 0
        self._out += (frame_header(DATA, flags, self._stream, len(frame)), frame)

    def _on_fields(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        if not self._is_open(stream, "HEADERS"):
            return
        if self._call is Call.HEADERS and fields.get(b":status") != b"200":
            status = fields.get(b":status", b"none").decode("ascii", "replace")
            self._give_up(f"it answered with HTTP status {status}, so it is not a gRPC server")
            return
        self._advance_call(CallEvent.END if end else CallEvent.FIELDS)
        if not end:
            return
        if fields.get(b"grpc-status") == b"0":
            message = self._take_message()
            self._cancel_rest()
            self._events.append(Message(message))
        else:
            self._give_up(_describe_failure(fields))

    def _on_end(self) -> None:
        self._give_up("the response has no status")

    def _on_goodbye(self, last_stream: int, reason: str) -> None:
        if self._stream > last_stream:
            self._end_call()
            self._events.append(Ended(reason))

    def _give_up(self, reason: str) -> None:
        self._cancel_rest()
        self._events.append(Ended(reason))

    def _cancel_rest(self) -> None:
        """End the call; cancel the rest of the request if the server answered before reading it."""
        if self._outbox:
            self._send_reset(self._stream, ErrorCode.CANCEL)
        self._end_call()


def _describe_failure(trailers: dict[bytes, bytes]) -> str:
    status = trailers.get(b"grpc-status", b"missing").decode("ascii", "replace")
    if status.isdecimal() and int(status) < len(_GRPC_STATUSES):
        status = _GRPC_STATUSES[int(status)]
    detail = unquote_to_bytes(trailers.get(b"grpc-message", b"")).decode("utf-8", "replace")
    return f"the call failed with gRPC status {status}{detail and ': '}{detail}"
