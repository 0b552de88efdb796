"""`Connection`: base class of both ends of an HTTP/2 connection.

It implements frames, settings, flow control, and the two bodies of the one open call.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from io import BytesIO
from typing import ClassVar, NamedTuple

from mlagents_envs import hpack
from mlagents_envs.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    GOAWAY,
    GOAWAY_HEAD,
    HAS_PRIORITY,
    HEADERS,
    INITIAL_FRAME_BYTES,
    INITIAL_WINDOW_BYTES,
    INITIAL_WINDOW_SIZE,
    LARGEST_FRAME_BYTES,
    LARGEST_STREAM,
    LARGEST_WINDOW,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    NUMBER,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    ProtocolError,
    code_name,
    frame,
    require_length,
    without_padding,
)

DEFAULT_MAX_MESSAGE_BYTES = 64 * 2**20

# Limits announced to the peer. On a loopback, a window of this size never blocks the peer.
RECEIVE_WINDOW_BYTES = 16 * 2**20
MAX_FRAME_BYTES = 2**20
MAX_HEADER_BYTES = 16 * 2**10

# Limit of unsent acknowledgements, window updates and resets. One read of 64 KiB of the smallest
# frames cannot request more than this.
MAX_CONTROL_BYTES = 128 * 2**10

_MESSAGE_PREFIX = struct.Struct(">BI")  # compressed or not, length
_MESSAGE_PREFIX_BYTES = 5


class Message(NamedTuple):
    """Complete message of the peer: the request at the server, the response at the client."""

    data: bytes | memoryview


class Ended(NamedTuple):
    """End of a call by the peer, which canceled or refused it, or is closing the connection."""

    reason: str


Event = Message | Ended


class Call(IntEnum):
    """State of the one call, the same for both roles."""

    IDLE = 0
    """No call is open."""
    HEADERS = 1
    """The headers of the peer's half are expected."""
    BODY = 2
    """The peer's message is arriving."""
    ANSWERING = 3
    """The peer's half is complete."""


class CallEvent(IntEnum):
    """Event that changes the state of the one call."""

    OPENED = 0
    """We or the peer opened the call."""
    FIELDS = 1
    """HEADERS arrived that do not end the stream."""
    DATA = 2
    """DATA arrived."""
    END = 3
    """The last frame of the peer's half arrived."""
    OVER = 4
    """The call was answered, canceled or refused."""


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
"""State that follows each event. Any other event is a protocol error."""


class Connection(ABC):
    """Base class of both roles: frames, settings, flow control and the bodies of the one stream."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self.established = False
        """Whether the peer has sent its first SETTINGS frame, and so speaks HTTP/2."""
        self._error: ProtocolError | None = None
        self._events: list[Event] = []

        self._out: list[bytes | memoryview] = []
        self._control_bytes = 0

        # An incomplete preface, frame header or frame, and its size as far as it is known.
        self._buffer = bytearray()
        self._needed = 0
        self._expected_preface = b""

        # The current DATA frame: missing bytes, and whether it belongs to the open call.
        self._data_left = 0
        self._data_counts = False
        self._data_ends = False  # whether it ends the peer's half

        # An incomplete header block: its stream, flags and bytes so far.
        self._block: tuple[int, int, bytearray] | None = None
        self._decoder = hpack.Decoder(MAX_HEADER_BYTES)
        # Our encoder does not use the dynamic table. One update that sets its size to 0 is valid
        # whatever size the peer allows (RFC 7541, section 4.2).
        self._table_size_update = b"\x20"

        self._call = Call.IDLE
        self._stream = 0  # stream of the open call; 0 if no call is open
        self._last_stream = 0

        self._prefix = b""  # prefix of the peer's message
        self._whole = memoryview(b"")  # the message without prefix, if it arrived in one piece
        self._inbox = BytesIO()  # the part that has arrived, if it arrives in several pieces
        self._inbox_size = 0  # size of the message, from the prefix
        self._receive_window = RECEIVE_WINDOW_BYTES
        self._stream_receive_window = RECEIVE_WINDOW_BYTES

        self._outbox = memoryview(b"")  # part of our message that waits for larger windows
        self._send_window = INITIAL_WINDOW_BYTES
        self._stream_send_window = INITIAL_WINDOW_BYTES
        self._peer_stream_window = INITIAL_WINDOW_BYTES
        self._peer_frame_bytes = INITIAL_FRAME_BYTES

    # -- interface for the owner --

    def receive_data(self, data: bytes) -> list[Event]:
        """Process bytes from the peer, split at any point, and return the resulting events.

        Raises:
            ProtocolError: The peer broke the protocol or a limit, now or earlier.
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
        """Remove and return the bytes to write to the peer now."""
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        self._control_bytes = 0
        return data

    @property
    def sending(self) -> bool:
        """Whether part of our message waits for a window update of the peer."""
        return len(self._outbox) > 0

    def close(self) -> None:
        """Queue a GOAWAY frame, if the peer speaks HTTP/2."""
        if self.established and self._error is None:
            self._say_goodbye(ErrorCode.NO_ERROR)

    # -- differences between the roles --

    _ROLE_SETTING: ClassVar[tuple[int, int]]
    _PEER_HALF: ClassVar[str]

    @abstractmethod
    def _on_fields(self, stream: int, fields: dict[bytes, bytes], end: bool) -> None:
        """Handle the header fields of a stream; `end` tells whether the stream ends with them."""

    @abstractmethod
    def _on_end(self) -> None:
        """Handle the end of the peer's half of the call with a DATA frame."""

    @abstractmethod
    def _on_goodbye(self, last_stream: int, reason: str) -> None:
        """Handle a GOAWAY frame."""

    @abstractmethod
    def _send_data(self, frame: bytes | memoryview, last: bool) -> None:
        """Send a part of our message as one frame, and the trailers, if any, after the last."""

    def _reject_message(self, status: int, reason: str) -> None:
        """Raise an error about the peer's message; `status` is its gRPC status code."""
        raise ProtocolError(reason)

    # -- frames in --

    def _finish_buffered(self, data: bytes) -> int:
        """Complete and process the incomplete frame; return the number of bytes of `data` used."""
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
        """Process frames, and pieces of DATA frames, from `at` on; return the end position."""
        if self._expected_preface:  # it is the first thing that a client sends
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
            payload_at = at + FRAME_HEADER_BYTES
            if payload_at > end:
                self._needed = FRAME_HEADER_BYTES
                return at
            word, flags, stream = FRAME_HEADER.unpack_from(data, at)
            length, kind, stream = word >> 8, word & 0xFF, stream & LARGEST_STREAM
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(
                    f"frame of {length} bytes, more than {MAX_FRAME_BYTES}",
                    ErrorCode.FRAME_SIZE_ERROR,
                )
            if kind == DATA and not flags & PADDED:
                at = payload_at
                self._check_order(kind, flags, stream)
                self._begin_data(flags, stream, length)
                if not length:
                    self._add_data(view[at:at])
                continue
            if payload_at + length > end:
                self._needed = FRAME_HEADER_BYTES + length
                return at
            at = payload_at + length
            self._check_order(kind, flags, stream)
            handler = _HANDLERS.get(kind)
            if handler is not None:  # frames of unknown types must be ignored (RFC 9113, 5.5)
                handler(self, flags, stream, data[payload_at:at])

    def _check_order(self, kind: int, flags: int, stream: int) -> None:
        if not self.established:
            if kind != SETTINGS or flags & ACK:
                raise ProtocolError(f"expected SETTINGS as the first frame, got type {kind}")
            self.established = True
        if self._block is not None and (kind != CONTINUATION or stream != self._block[0]):
            raise ProtocolError("header block interrupted by another frame")

    def _begin_data(self, flags: int, stream: int, size: int) -> None:
        """Process the header of a DATA frame."""
        self._receive_window -= size
        if self._receive_window < 0:
            raise ProtocolError("more DATA than our window allows", ErrorCode.FLOW_CONTROL_ERROR)
        if self._receive_window < RECEIVE_WINDOW_BYTES // 2:
            self._send_window_update(0, RECEIVE_WINDOW_BYTES - self._receive_window)
            self._receive_window = RECEIVE_WINDOW_BYTES
        self._data_left = size
        self._data_ends = bool(flags & END_STREAM)
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
        """Process a piece of the payload of a DATA frame."""
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
        """Process the prefix of the message; return the bytes after it."""
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
            content = memoryview(without_padding(payload))
            self._data_left = len(content)
            self._add_data(content)

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0:
            raise ProtocolError("HEADERS on stream 0")
        if flags & PADDED:
            payload = without_padding(payload)
        if flags & HAS_PRIORITY:
            if len(payload) < 5:
                raise ProtocolError("HEADERS too short for a priority", ErrorCode.FRAME_SIZE_ERROR)
            payload = payload[5:]
        self._add_to_block(stream, flags, bytearray(), payload, complete=flags & END_HEADERS)

    def _on_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None:
            raise ProtocolError("CONTINUATION without a header block")
        _, first_flags, block = self._block
        self._add_to_block(stream, first_flags, block, payload, complete=flags & END_HEADERS)

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
        self._on_fields(stream, fields, bool(flags & END_STREAM))

    def _on_priority(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0:
            raise ProtocolError("PRIORITY on stream 0")
        require_length("PRIORITY", payload, 5)

    def _on_rst_stream(self, flags: int, stream: int, payload: bytes) -> None:
        require_length("RST_STREAM", payload, 4)
        if self._is_open(stream, "RST_STREAM"):
            self._end_call()
            code = code_name(NUMBER.unpack(payload)[0])
            self._events.append(Ended(f"the call was cancelled ({code})"))

    def _on_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != 0:
            raise ProtocolError("SETTINGS on a stream")
        if flags & ACK:
            require_length("acknowledgement of SETTINGS", payload, 0)
            return
        if len(payload) % SETTING.size:
            raise ProtocolError(
                f"SETTINGS of {len(payload)} bytes, not a multiple of {SETTING.size}",
                ErrorCode.FRAME_SIZE_ERROR,
            )
        for setting, value in SETTING.iter_unpack(payload):
            self._apply_setting(setting, value)
        self._send_control(frame(SETTINGS, ACK, 0))
        self._send_outbox()

    def _apply_setting(self, setting: int, value: int) -> None:
        if setting == INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ProtocolError(f"initial window of {value}", ErrorCode.FLOW_CONTROL_ERROR)
            if self._stream:
                # The window of the open stream may become negative (RFC 9113, section 6.9.2).
                self._stream_send_window += value - self._peer_stream_window
                if self._stream_send_window > LARGEST_WINDOW:
                    raise ProtocolError("stream window too large", ErrorCode.FLOW_CONTROL_ERROR)
            self._peer_stream_window = value
        elif setting == MAX_FRAME_SIZE:
            if not INITIAL_FRAME_BYTES <= value <= LARGEST_FRAME_BYTES:
                raise ProtocolError(f"frame size of {value}")
            self._peer_frame_bytes = value
        elif setting == ENABLE_PUSH and value > 1:
            raise ProtocolError(f"ENABLE_PUSH of {value}")

    def _on_push_promise(self, flags: int, stream: int, payload: bytes) -> None:
        raise ProtocolError("PUSH_PROMISE, although push is disabled")

    def _on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != 0:
            raise ProtocolError("PING on a stream")
        require_length("PING", payload, 8)
        if not flags & ACK:
            self._send_control(frame(PING, ACK, 0, payload))

    def _on_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        if stream != 0:
            raise ProtocolError("GOAWAY on a stream")
        if len(payload) < GOAWAY_HEAD.size:
            raise ProtocolError("GOAWAY too short", ErrorCode.FRAME_SIZE_ERROR)
        last_stream, code = GOAWAY_HEAD.unpack_from(payload)
        detail = payload[GOAWAY_HEAD.size :][:200].decode("utf-8", "replace")
        reason = f"it closed the connection ({code_name(code)}{detail and ': '}{detail})"
        self._on_goodbye(last_stream & LARGEST_STREAM, reason)

    def _on_window_update(self, flags: int, stream: int, payload: bytes) -> None:
        require_length("WINDOW_UPDATE", payload, 4)
        increment = NUMBER.unpack(payload)[0] & LARGEST_WINDOW
        if increment == 0:
            raise ProtocolError("WINDOW_UPDATE by 0")
        if stream == 0:
            self._send_window += increment
        elif self._is_open(stream, "WINDOW_UPDATE"):
            self._stream_send_window += increment
        if max(self._send_window, self._stream_send_window) > LARGEST_WINDOW:
            raise ProtocolError("window too large", ErrorCode.FLOW_CONTROL_ERROR)
        self._send_outbox()

    def _is_open(self, stream: int, what: str) -> bool:
        """Return True for a frame of the open call, False for a late frame of an earlier call.

        Raises:
            ProtocolError: The stream was never opened.
        """
        if stream % 2 == 0 or stream > self._last_stream:
            raise ProtocolError(f"{what} on stream {stream}, which was never opened")
        return stream == self._stream

    # -- the one call --

    def _advance_call(self, event: CallEvent) -> None:
        """Move the call to its next state.

        Raises:
            ProtocolError: The peer sent a frame that the current state does not allow.
        """
        after = CALL_TRANSITIONS[self._call].get(event)
        if after is None:
            if event is CallEvent.DATA:
                raise ProtocolError("DATA outside of a message", ErrorCode.STREAM_CLOSED)
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
        """Return the received message, and check that it is complete."""
        size = self._n_held
        if len(self._prefix) < _MESSAGE_PREFIX_BYTES or size < self._inbox_size:
            raise ProtocolError(f"a call ended {len(self._prefix) + size} bytes into its message")
        # `getvalue` does not copy unless the inbox is written to again.
        message = self._whole or self._inbox.getvalue()
        self._clear_inbox()
        return message

    # -- frames out --

    def _introduce(self) -> None:
        """Announce our limits."""
        settings = (
            self._ROLE_SETTING,
            (INITIAL_WINDOW_SIZE, RECEIVE_WINDOW_BYTES),
            (MAX_FRAME_SIZE, MAX_FRAME_BYTES),
            (MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES),
        )
        payload = b"".join(SETTING.pack(setting, value) for setting, value in settings)
        self._send_control(frame(SETTINGS, 0, 0, payload))
        self._send_window_update(0, RECEIVE_WINDOW_BYTES - INITIAL_WINDOW_BYTES)

    def _send_control(self, frame: bytes) -> None:
        self._control_bytes += len(frame)
        if self._control_bytes > MAX_CONTROL_BYTES:
            raise ProtocolError(
                f"more than {MAX_CONTROL_BYTES} bytes of answers that the peer does not read",
                code=ErrorCode.ENHANCE_YOUR_CALM,
            )
        self._out.append(frame)

    def _send_window_update(self, stream: int, increment: int) -> None:
        self._send_control(frame(WINDOW_UPDATE, 0, stream, NUMBER.pack(increment)))

    def _send_reset(self, stream: int, code: ErrorCode) -> None:
        self._send_control(frame(RST_STREAM, 0, stream, NUMBER.pack(code)))

    def _say_goodbye(self, code: ErrorCode) -> None:
        self._out.append(frame(GOAWAY, 0, 0, GOAWAY_HEAD.pack(self._last_stream, code)))

    def _send_headers(self, stream: int, block: bytes, flags: int = 0) -> None:
        block = self._table_size_update + block
        self._table_size_update = b""
        self._out.append(frame(HEADERS, flags | END_HEADERS, stream, block))

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


_HANDLERS: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    DATA: Connection._on_padded_data,
    HEADERS: Connection._on_headers,
    PRIORITY: Connection._on_priority,
    RST_STREAM: Connection._on_rst_stream,
    SETTINGS: Connection._on_settings,
    PUSH_PROMISE: Connection._on_push_promise,
    PING: Connection._on_ping,
    GOAWAY: Connection._on_goaway,
    WINDOW_UPDATE: Connection._on_window_update,
    CONTINUATION: Connection._on_continuation,
}
