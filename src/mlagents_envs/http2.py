"""The frames of one gRPC method over plain-text HTTP/2, both roles, without a socket.

Bytes that came from the peer go into `receive_data`, events come out, and `bytes_to_send` has
what to write to the peer now:

    simulation                                trainer
    ClientConnection                          ServerConnection
        request(message)   ── bytes ──►           receive_data(...) -> [Message(...)]
        receive_data(...)  ◄── bytes ──           respond(message)
            -> [Message(...)]

One unary call is open at a time, as the protocol has it (wire protocol, section 2.1). That makes
this much smaller than a general HTTP/2: one stream to keep account of; any other is refused.
Frames are those of RFC 9113, calls those of gRPC over HTTP/2. `CALL_TRANSITIONS` has the states of
the one call:

    IDLE ──OPENED──► HEADERS ──FIELDS──► BODY ──END──► ANSWERING ──OVER──► IDLE

A message that arrives in one piece is handed over as a view of the bytes that were read. Pieces of
a longer one are copied once, as they arrive.

What a peer can make us hold is bounded: one frame, one header block, one message, and answers to
its control frames. Whatever breaks the protocol or a limit raises `ProtocolError`; a GOAWAY
waits in `bytes_to_send` then, and the connection is of no further use.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from io import BytesIO
from typing import ClassVar, NamedTuple
from urllib.parse import unquote_to_bytes

from mlagents_envs import hpack

METHOD = b"/communicator_objects.UnityToExternalProto/Exchange"
DEFAULT_MAX_MESSAGE_BYTES = 64 * 2**20

# What we announce to the peer. Windows this wide never make it wait for us on a loopback.
RECEIVE_WINDOW_BYTES = 16 * 2**20
MAX_FRAME_BYTES = 2**20
MAX_HEADER_BYTES = 16 * 2**10

# Acknowledgements, window updates and refusals that may wait unsent: more than one read of 64 KiB
# of the smallest frames can ask for.
MAX_CONTROL_BYTES = 128 * 2**10

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_LARGEST_WINDOW = 2**31 - 1
_LARGEST_STREAM = 2**31 - 1
_INITIAL_WINDOW_BYTES = 65_535
_INITIAL_FRAME_BYTES = 16_384
_LARGEST_FRAME_BYTES = 2**24 - 1

# Frame types and flags (RFC 9113, section 6).
_DATA, _HEADERS, _PRIORITY, _RST_STREAM, _SETTINGS, _PUSH_PROMISE, _PING, _GOAWAY = range(8)
_WINDOW_UPDATE, _CONTINUATION = 8, 9
_ACK = _END_STREAM = 0x01
_END_HEADERS = 0x04
_PADDED = 0x08
_HAS_PRIORITY = 0x20

# Settings (RFC 9113, section 6.5.2).
_ENABLE_PUSH = 2
_MAX_CONCURRENT_STREAMS = 3
_INITIAL_WINDOW_SIZE = 4
_MAX_FRAME_SIZE = 5
_MAX_HEADER_LIST_SIZE = 6

_FRAME_HEADER = struct.Struct(">IBI")  # length (24 bits) and type (8) as one number, flags, stream
_FRAME_HEADER_BYTES = 9
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")
_GOAWAY_HEAD = struct.Struct(">II")
_MESSAGE_PREFIX = struct.Struct(">BI")  # compressed or not, length
_MESSAGE_PREFIX_BYTES = 5

_GRPC_STATUSES = (
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
    "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED "
    "INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED"
).split()


class ErrorCode(IntEnum):
    """Why a stream or a connection ended (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ProtocolError(Exception):
    """The peer broke the protocol or a limit.

    Args:
        reason: Readable description of the violation.
        code: Error code sent to the peer in the GOAWAY frame.
    """

    def __init__(self, reason: str, code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Message(NamedTuple):
    """The peer's message is here whole: the request at the server, the response at the client."""

    data: bytes | memoryview


class Ended(NamedTuple):
    """The peer will not go on: it cancelled or refused the call, or it is going away."""

    reason: str


Event = Message | Ended


class Call(IntEnum):
    """State of the one call, seen from either end."""

    IDLE = 0
    """No call is open."""
    HEADERS = 1
    """The headers of the peer's half are due."""
    BODY = 2
    """The peer's message is arriving."""
    ANSWERING = 3
    """The peer's half is over."""


class CallEvent(IntEnum):
    """What changes the state of the one call."""

    OPENED = 0
    """We or the peer opened it."""
    FIELDS = 1
    """HEADERS came, and more follows."""
    DATA = 2
    """DATA came."""
    END = 3
    """The last frame of the peer's half came."""
    OVER = 4
    """It was answered, cancelled or refused."""


CALL_TRANSITIONS: dict[Call, dict[CallEvent, Call]] = {
    Call.IDLE: {CallEvent.OPENED: Call.HEADERS},
    Call.HEADERS: {
        CallEvent.FIELDS: Call.BODY,
        CallEvent.END: Call.ANSWERING,
        CallEvent.OVER: Call.IDLE,
    },
    Call.BODY: {
        CallEvent.DATA: Call.BODY,
        CallEvent.END: Call.ANSWERING,
        CallEvent.OVER: Call.IDLE,
    },
    Call.ANSWERING: {CallEvent.OVER: Call.IDLE},
}
"""The state that follows each event. What is not in the table is refused."""


class _Connection(ABC):
    """What both roles share: frames, settings, flow control and the one stream's two bodies."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self.established = False
        """Whether the peer has introduced itself as one that speaks HTTP/2."""
        self._error: ProtocolError | None = None
        self._events: list[Event] = []

        self._out: list[bytes | memoryview] = []
        self._control_bytes = 0

        # A preface, frame header or frame that is not whole yet, and its size as far as known.
        self._buffer = bytearray()
        self._needed = 0
        self._expected_preface = b""

        # The DATA frame being read: bytes still to come, and whether they are of the open call.
        self._data_left = 0
        self._data_counts = False
        self._data_ends = False  # the peer's half ends with it

        # A header block that goes on in CONTINUATION frames: its stream, flags and bytes so far.
        self._block: tuple[int, int, bytearray] | None = None
        self._decoder = hpack.Decoder(MAX_HEADER_BYTES)
        # We never use a dynamic table of our own, so one update, saying that its size is 0, keeps
        # us right whatever size the peer allows (RFC 7541, section 4.2).
        self._table_size_update = b"\x20"

        self._call = Call.IDLE
        self._stream = 0  # of the open call; 0 when none is
        self._last_stream = 0

        self._prefix = b""  # of the peer's message
        self._whole = memoryview(b"")  # the message without its prefix, if it came in one piece
        self._inbox = BytesIO()  # the message as it arrives, if it comes in several
        self._inbox_size = 0  # announced by the prefix
        self._receive_window = RECEIVE_WINDOW_BYTES
        self._stream_receive_window = RECEIVE_WINDOW_BYTES

        self._outbox = memoryview(b"")  # what the windows did not let out yet of our message
        self._send_window = _INITIAL_WINDOW_BYTES
        self._stream_send_window = _INITIAL_WINDOW_BYTES
        self._peer_stream_window = _INITIAL_WINDOW_BYTES
        self._peer_frame_bytes = _INITIAL_FRAME_BYTES

    # -- what the owner calls --

    def receive_data(self, data: bytes) -> list[Event]:
        """Take in what the peer sent, cut anywhere, and return what it amounts to.

        Raises:
            ProtocolError: The peer broke the protocol or a limit, now or before.
        """
        if self._error is not None:
            raise self._error
        self._events = []
        try:
            at = self._finish_buffered(data) if self._buffer else 0
            if not self._buffer:
                at = self._read_frames(data, at)
        except ProtocolError as error:
            self._error = error
            self._say_goodbye(error.code)
            raise
        if at < len(data):
            self._buffer += memoryview(data)[at:]
        return self._events

    def bytes_to_send(self) -> bytes:
        """Remove and return what can be written to the peer now."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        self._control_bytes = 0
        return data

    @property
    def sending(self) -> bool:
        """Whether part of our message waits until the peer opens its windows."""
        return len(self._outbox) > 0

    def close(self) -> None:
        """Say goodbye to a peer that has introduced itself."""
        if self.established and self._error is None:
            self._say_goodbye(ErrorCode.NO_ERROR)

    # -- what differs between the roles --

    _ROLE_SETTING: ClassVar[tuple[int, int]]
    _PEER_HALF: ClassVar[str]

    @abstractmethod
    def _on_fields(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        """Take the header fields of a stream, which ends with them or not."""

    @abstractmethod
    def _on_end(self) -> None:
        """Act on the end of the peer's half of the call, which ended with a DATA frame."""

    @abstractmethod
    def _on_goodbye(self, last_stream: int, reason: str) -> None:
        """Act on a GOAWAY."""

    @abstractmethod
    def _send_data(self, frame: bytes | memoryview, last: bool) -> None:
        """Send one frame's worth of our message, and what follows the last."""

    def _reject_message(self, status: int, reason: str) -> None:
        """Raise because of the peer's message; `status` is what gRPC calls the matter."""
        raise ProtocolError(reason)

    # -- frames in --

    def _finish_buffered(self, data: bytes) -> int:
        """Complete what is not whole yet, act on it, and return how much of `data` that took."""
        at = 0
        while self._buffer and at < len(data):
            missing = self._needed - len(self._buffer)
            self._buffer += data[at : at + missing]
            at = min(at + missing, len(data))
            if len(self._buffer) == self._needed:
                whole = bytes(self._buffer)
                self._buffer.clear()
                self._buffer += whole[self._read_frames(whole, 0) :]
        return at

    def _read_preface(self, data: bytes) -> int:
        preface = self._expected_preface
        head = data[: len(preface)]
        if not preface.startswith(head):
            raise ProtocolError(f"expected the preface of HTTP/2, got {head!r}")
        if len(head) < len(preface):
            self._needed = len(preface)
            return 0
        self._expected_preface = b""
        self._introduce()
        return len(head)

    def _read_frames(self, data: bytes, at: int) -> int:
        """Act on whole frames, and on pieces of DATA, from `at` on; return where that ends."""
        if self._expected_preface:  # nothing came before it
            at = self._read_preface(data)
            if self._expected_preface:
                return at
        view = memoryview(data)
        end = len(data)
        while True:
            if self._data_left:
                piece = view[at : at + self._data_left]
                at += len(piece)
                self._add_data(piece)
            payload_at = at + _FRAME_HEADER_BYTES
            if payload_at > end:
                self._needed = _FRAME_HEADER_BYTES
                return at
            word, flags, stream = _FRAME_HEADER.unpack_from(data, at)
            length, kind, stream = word >> 8, word & 0xFF, stream & _LARGEST_STREAM
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(
                    f"frame of {length} bytes, more than {MAX_FRAME_BYTES}",
                    ErrorCode.FRAME_SIZE_ERROR,
                )
            if kind == _DATA and not flags & _PADDED:
                at = payload_at
                self._check_order(kind, flags, stream)
                self._begin_data(flags, stream, length)
                if not length:
                    self._add_data(view[at:at])
                continue
            if payload_at + length > end:
                self._needed = _FRAME_HEADER_BYTES + length
                return at
            at = payload_at + length
            self._check_order(kind, flags, stream)
            handler = _HANDLERS.get(kind)
            if handler is not None:  # unknown types are extensions, to be ignored
                handler(self, flags, stream, data[payload_at:at])

    def _check_order(self, kind: int, flags: int, stream: int) -> None:
        if not self.established:
            if kind != _SETTINGS or flags & _ACK:
                raise ProtocolError(f"the first frame is of type {kind}, not SETTINGS")
            self.established = True
        if self._block is not None and (kind != _CONTINUATION or stream != self._block[0]):
            raise ProtocolError("header block interrupted by another frame")

    def _begin_data(self, flags: int, stream: int, size: int) -> None:
        """Take in the header of a DATA frame."""
        self._receive_window -= size
        if self._receive_window < 0:
            raise ProtocolError("more DATA than our window allows", ErrorCode.FLOW_CONTROL_ERROR)
        if self._receive_window < RECEIVE_WINDOW_BYTES // 2:
            self._send_window_update(0, RECEIVE_WINDOW_BYTES - self._receive_window)
            self._receive_window = RECEIVE_WINDOW_BYTES
        self._data_left = size
        self._data_ends = bool(flags & _END_STREAM)
        self._data_counts = self._is_open(stream, "DATA")
        if not self._data_counts:
            return
        self._advance_call(CallEvent.DATA)
        self._stream_receive_window -= size
        if self._stream_receive_window < 0:
            raise ProtocolError("more DATA than our window allows", ErrorCode.FLOW_CONTROL_ERROR)
        if self._stream_receive_window < RECEIVE_WINDOW_BYTES // 2 and not self._data_ends:
            self._send_window_update(stream, RECEIVE_WINDOW_BYTES - self._stream_receive_window)
            self._stream_receive_window = RECEIVE_WINDOW_BYTES

    def _add_data(self, piece: memoryview) -> None:
        """Take in a piece of the payload of a DATA frame."""
        self._data_left -= len(piece)
        if not self._data_counts:
            return
        if len(self._prefix) < _MESSAGE_PREFIX_BYTES:
            piece = self._read_prefix(piece)
        if self._n_held + len(piece) > self._inbox_size:
            raise ProtocolError("a call of one message has more bytes than that message")
        if len(piece) == self._inbox_size:
            self._whole = piece
        else:
            self._inbox.write(piece)
        if self._data_ends and not self._data_left:
            self._advance_call(CallEvent.END)
            self._on_end()

    def _read_prefix(self, piece: memoryview) -> memoryview:
        """Take in the prefix of the message; return what follows it."""
        missing = _MESSAGE_PREFIX_BYTES - len(self._prefix)
        self._prefix += piece[:missing]
        if len(self._prefix) == _MESSAGE_PREFIX_BYTES:
            compressed, self._inbox_size = _MESSAGE_PREFIX.unpack(self._prefix)
            if compressed:
                self._reject_message(12, "the message is compressed; compression was not agreed")
            if self._inbox_size > self._max_message_bytes:
                self._reject_message(
                    8,
                    f"message of {self._inbox_size} bytes, more than {self._max_message_bytes} "
                    "(max_message_bytes)",
                )
        return piece[missing:]

    @property
    def _n_held(self) -> int:
        """Number of bytes of the message that have arrived."""
        return len(self._whole) + self._inbox.tell()

    def _on_padded_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._begin_data(flags, stream, len(payload))
        self._data_left = 0
        if self._data_counts:
            content = memoryview(_without_padding(payload))
            self._data_left = len(content)
            self._add_data(content)

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0:
            raise ProtocolError("HEADERS on stream 0")
        if flags & _PADDED:
            payload = _without_padding(payload)
        if flags & _HAS_PRIORITY:
            if len(payload) < 5:
                raise ProtocolError("HEADERS too short for a priority", ErrorCode.FRAME_SIZE_ERROR)
            payload = payload[5:]
        self._add_to_block(stream, flags, bytearray(), payload, complete=flags & _END_HEADERS)

    def _on_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None:
            raise ProtocolError("CONTINUATION of no header block")
        _, first_flags, block = self._block
        self._add_to_block(stream, first_flags, block, payload, complete=flags & _END_HEADERS)

    def _add_to_block(
        self, stream: int, flags: int, block: bytearray, payload: bytes, *, complete: int
    ) -> None:
        block += payload
        if len(block) > MAX_HEADER_BYTES:
            raise ProtocolError(
                f"header block of more than {MAX_HEADER_BYTES} bytes", ErrorCode.ENHANCE_YOUR_CALM
            )
        if not complete:
            self._block = stream, flags, block
            return
        self._block = None
        try:
            fields = self._decoder.decode(bytes(block))
        except ValueError as error:
            raise ProtocolError(f"headers: {error}", ErrorCode.COMPRESSION_ERROR) from error
        self._on_fields(stream, fields, bool(flags & _END_STREAM))

    def _on_priority(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0:
            raise ProtocolError("PRIORITY on stream 0")
        _require_length("PRIORITY", payload, 5)

    def _on_rst_stream(self, flags: int, stream: int, payload: bytes) -> None:
        _require_length("RST_STREAM", payload, 4)
        if self._is_open(stream, "RST_STREAM"):
            self._end_call()
            code = _code_name(_NUMBER.unpack(payload)[0])
            self._events.append(Ended(f"the call was cancelled ({code})"))

    def _on_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != 0:
            raise ProtocolError("SETTINGS on a stream")
        if flags & _ACK:
            _require_length("acknowledgement of SETTINGS", payload, 0)
            return
        if len(payload) % _SETTING.size:
            raise ProtocolError(
                f"SETTINGS of {len(payload)} bytes are not a row of settings",
                ErrorCode.FRAME_SIZE_ERROR,
            )
        for setting, value in _SETTING.iter_unpack(payload):
            self._apply_setting(setting, value)
        self._send_control(_frame(_SETTINGS, _ACK, 0))
        self._send_outbox()

    def _apply_setting(self, setting: int, value: int) -> None:
        if setting == _INITIAL_WINDOW_SIZE:
            if value > _LARGEST_WINDOW:
                raise ProtocolError(f"initial window of {value}", ErrorCode.FLOW_CONTROL_ERROR)
            if self._stream:
                # May turn the window of the open stream negative; RFC 9113, section 6.9.2.
                self._stream_send_window += value - self._peer_stream_window
                if self._stream_send_window > _LARGEST_WINDOW:
                    raise ProtocolError("stream window too wide", ErrorCode.FLOW_CONTROL_ERROR)
            self._peer_stream_window = value
        elif setting == _MAX_FRAME_SIZE:
            if not _INITIAL_FRAME_BYTES <= value <= _LARGEST_FRAME_BYTES:
                raise ProtocolError(f"frame size of {value}")
            self._peer_frame_bytes = value
        elif setting == _ENABLE_PUSH and value > 1:
            raise ProtocolError(f"ENABLE_PUSH of {value}")

    def _on_push_promise(self, flags: int, stream: int, payload: bytes) -> None:
        raise ProtocolError("PUSH_PROMISE, which is switched off")

    def _on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != 0:
            raise ProtocolError("PING on a stream")
        _require_length("PING", payload, 8)
        if not flags & _ACK:
            self._send_control(_frame(_PING, _ACK, 0, payload))

    def _on_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != 0:
            raise ProtocolError("GOAWAY on a stream")
        if len(payload) < _GOAWAY_HEAD.size:
            raise ProtocolError("GOAWAY too short", ErrorCode.FRAME_SIZE_ERROR)
        last_stream, code = _GOAWAY_HEAD.unpack_from(payload)
        detail = payload[_GOAWAY_HEAD.size :][:200].decode("utf-8", "replace")
        reason = f"it went away ({_code_name(code)}{detail and ': '}{detail})"
        self._on_goodbye(last_stream & _LARGEST_STREAM, reason)

    def _on_window_update(self, flags: int, stream: int, payload: bytes) -> None:
        _require_length("WINDOW_UPDATE", payload, 4)
        increment = _NUMBER.unpack(payload)[0] & _LARGEST_WINDOW
        if increment == 0:
            raise ProtocolError("WINDOW_UPDATE by 0")
        if stream == 0:
            self._send_window += increment
        elif self._is_open(stream, "WINDOW_UPDATE"):
            self._stream_send_window += increment
        if max(self._send_window, self._stream_send_window) > _LARGEST_WINDOW:
            raise ProtocolError("window too wide", ErrorCode.FLOW_CONTROL_ERROR)
        self._send_outbox()

    def _is_open(self, stream: int, what: str) -> bool:
        """Whether a frame is for the open call, or comes late for a call that is over.

        Raises:
            ProtocolError: It is for a stream that was never opened.
        """
        if stream % 2 == 0 or stream > self._last_stream:
            raise ProtocolError(f"{what} on stream {stream}, which was never opened")
        return stream == self._stream

    # -- the one call --

    def _advance_call(self, event: CallEvent) -> None:
        """Put the call into the state that follows.

        Raises:
            ProtocolError: The peer sent what is not allowed now.
        """
        after = CALL_TRANSITIONS[self._call].get(event)
        if after is None:
            if event is CallEvent.DATA:
                raise ProtocolError("DATA outside of its message", ErrorCode.STREAM_CLOSED)
            raise ProtocolError(f"HEADERS inside a {self._PEER_HALF}")
        self._call = after

    def _begin_call(self, stream: int) -> None:
        self._advance_call(CallEvent.OPENED)
        self._stream = self._last_stream = stream
        self._stream_receive_window = RECEIVE_WINDOW_BYTES
        self._stream_send_window = self._peer_stream_window

    def _end_call(self) -> None:
        self._advance_call(CallEvent.OVER)
        self._stream = 0
        self._outbox = memoryview(b"")
        if self._prefix:
            self._clear_inbox()

    def _clear_inbox(self) -> None:
        self._prefix, self._whole, self._inbox_size = b"", memoryview(b""), 0
        if self._inbox.tell():
            self._inbox = BytesIO()

    def _take_message(self) -> bytes | memoryview:
        """Return the message that came, which must be whole."""
        size = self._n_held
        if len(self._prefix) < _MESSAGE_PREFIX_BYTES or size < self._inbox_size:
            raise ProtocolError(f"a call ended {len(self._prefix) + size} bytes into its message")
        # `getvalue` does not copy, because nothing is written to the inbox any more.
        message = self._whole or self._inbox.getvalue()
        self._clear_inbox()
        return message

    # -- frames out --

    def _introduce(self) -> None:
        """Announce our limits."""
        settings = (
            self._ROLE_SETTING,
            (_INITIAL_WINDOW_SIZE, RECEIVE_WINDOW_BYTES),
            (_MAX_FRAME_SIZE, MAX_FRAME_BYTES),
            (_MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES),
        )
        payload = b"".join(_SETTING.pack(setting, value) for setting, value in settings)
        self._send_control(_frame(_SETTINGS, 0, 0, payload))
        self._send_window_update(0, RECEIVE_WINDOW_BYTES - _INITIAL_WINDOW_BYTES)

    def _send_control(self, frame: bytes) -> None:
        self._control_bytes += len(frame)
        if self._control_bytes > MAX_CONTROL_BYTES:
            raise ProtocolError(
                "asks for more answers than it reads", code=ErrorCode.ENHANCE_YOUR_CALM
            )
        self._out.append(frame)

    def _send_window_update(self, stream: int, increment: int) -> None:
        self._send_control(_frame(_WINDOW_UPDATE, 0, stream, _NUMBER.pack(increment)))

    def _send_reset(self, stream: int, code: ErrorCode) -> None:
        self._send_control(_frame(_RST_STREAM, 0, stream, _NUMBER.pack(code)))

    def _say_goodbye(self, code: ErrorCode) -> None:
        self._out.append(_frame(_GOAWAY, 0, 0, _GOAWAY_HEAD.pack(self._last_stream, code)))

    def _send_headers(self, stream: int, block: bytes, flags: int = 0) -> None:
        block = self._table_size_update + block
        self._table_size_update = b""
        self._out.append(_frame(_HEADERS, flags | _END_HEADERS, stream, block))

    def _send_message(self, message: bytes) -> None:
        self._outbox = memoryview(_MESSAGE_PREFIX.pack(0, len(message)) + message)
        self._send_outbox()

    def _send_outbox(self) -> None:
        """Send as much of our message as the windows allow."""
        while self._outbox:
            size = min(
                len(self._outbox),
                self._send_window,
                self._stream_send_window,
                self._peer_frame_bytes,
            )
            if size <= 0:
                return
            self._send_window -= size
            self._stream_send_window -= size
            frame, self._outbox = self._outbox[:size], self._outbox[size:]
            self._send_data(frame, last=not self._outbox)


class ServerConnection(_Connection):
    """The trainer's end: a request comes in, its response goes out.

    Args:
        max_message_bytes: Largest request accepted. gRPC's own default of 4 MiB is too small for
            many cameras.
    """

    _ROLE_SETTING = (_MAX_CONCURRENT_STREAMS, 1)
    _PEER_HALF = "call"
    _RESPONSE = hpack.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
    _TRAILERS = hpack.encode([(b"grpc-status", b"0")])

    def __init__(self, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        super().__init__(max_message_bytes)
        self._expected_preface = _PREFACE

    @property
    def awaits_response(self) -> bool:
        """Whether a request has come that is not answered yet."""
        return self._call is Call.ANSWERING and not self._outbox

    def respond(self, message: bytes) -> None:
        """Answer the open call."""
        if not self.awaits_response:
            raise RuntimeError("no call waits for a response")
        self._send_headers(self._stream, self._RESPONSE)
        self._send_message(message)

    def _send_data(self, frame: bytes | memoryview, last: bool) -> None:
        self._out += (_frame_header(_DATA, 0, self._stream, len(frame)), frame)
        if last:
            self._send_headers(self._stream, self._TRAILERS, _END_STREAM)
            self._end_call()

    def _on_fields(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        if stream == self._stream:
            self._advance_call(CallEvent.END if end else CallEvent.FIELDS)
            self._on_end()
        elif stream % 2 == 0:
            raise ProtocolError(f"a call on stream {stream}; a client's streams are odd")
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
            self._refuse_call(12, f"the only method here is {METHOD.decode()}")
        elif end:
            self._on_end()

    def _refuse_call(self, status: int, reason: str) -> None:
        """End the open call with an error, whatever the client still has to send."""
        block = hpack.encode(
            [
                (b":status", b"200"),
                (b"content-type", b"application/grpc"),
                (b"grpc-status", b"%d" % status),
                (b"grpc-message", reason.encode()),
            ]
        )
        stream = self._stream
        self._send_headers(stream, block, _END_STREAM)
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


class ClientConnection(_Connection):
    """The simulation's end: a request goes out, its response comes in.

    Args:
        authority: Host and port called.
        max_message_bytes: Largest response accepted.
    """

    _ROLE_SETTING = (_ENABLE_PUSH, 0)
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
        self._out.append(_PREFACE)
        self._introduce()

    def request(self, message: bytes) -> None:
        """Begin a call."""
        if self._call is not Call.IDLE:
            raise RuntimeError("a call is open already")
        stream = self._last_stream + 2 if self._last_stream else 1
        if stream > _LARGEST_STREAM:
            raise RuntimeError("all 2**30 calls of this connection are used up: connect again")
        self._begin_call(stream)
        self._send_headers(stream, self._request)
        self._send_message(message)

    def _send_data(self, frame: bytes | memoryview, last: bool) -> None:
        flags = _END_STREAM if last else 0
        self._out += (_frame_header(_DATA, flags, self._stream, len(frame)), frame)

    def _on_fields(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        if not self._is_open(stream, "HEADERS"):
            return
        if self._call is Call.HEADERS and fields.get(b":status") != b"200":
            status = fields.get(b":status", b"none").decode("ascii", "replace")
            self._give_up(f"it answered with HTTP status {status}, not as a gRPC server")
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
        """End the call; tell a server that answered before it read the whole request."""
        if self._outbox:
            self._send_reset(self._stream, ErrorCode.CANCEL)
        self._end_call()


_HANDLERS: dict[int, Callable[[_Connection, int, int, bytes], None]] = {
    _DATA: _Connection._on_padded_data,
    _HEADERS: _Connection._on_headers,
    _PRIORITY: _Connection._on_priority,
    _RST_STREAM: _Connection._on_rst_stream,
    _SETTINGS: _Connection._on_settings,
    _PUSH_PROMISE: _Connection._on_push_promise,
    _PING: _Connection._on_ping,
    _GOAWAY: _Connection._on_goaway,
    _WINDOW_UPDATE: _Connection._on_window_update,
    _CONTINUATION: _Connection._on_continuation,
}


def _frame_header(kind: int, flags: int, stream: int, length: int) -> bytes:
    return _FRAME_HEADER.pack(length << 8 | kind, flags, stream)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _frame_header(kind, flags, stream, len(payload)) + payload


def _without_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("more padding than the frame has room for")
    return payload[1 : len(payload) - payload[0]]


def _require_length(what: str, payload: bytes, length: int) -> None:
    if len(payload) != length:
        raise ProtocolError(
            f"{what} of {len(payload)} bytes, must have {length}", ErrorCode.FRAME_SIZE_ERROR
        )


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _describe_failure(trailers: dict[bytes, bytes]) -> str:
    status = trailers.get(b"grpc-status", b"missing").decode("ascii", "replace")
    if status.isdecimal() and int(status) < len(_GRPC_STATUSES):
        status = _GRPC_STATUSES[int(status)]
    detail = unquote_to_bytes(trailers.get(b"grpc-message", b"")).decode("utf-8", "replace")
    return f"the call failed with gRPC status {status}{detail and ': '}{detail}"
