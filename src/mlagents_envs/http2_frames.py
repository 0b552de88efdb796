"""Layout of HTTP/2 frames (RFC 9113), and errors of a peer that violates it."""

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LARGEST_WINDOW = 2**31 - 1
LARGEST_STREAM = 2**31 - 1
INITIAL_WINDOW_BYTES = 65_535
INITIAL_FRAME_BYTES = 16_384
LARGEST_FRAME_BYTES = 2**24 - 1

# Frame types and flags (RFC 9113, section 6).
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = range(8)
WINDOW_UPDATE, CONTINUATION = 8, 9
ACK = END_STREAM = 0x01
END_HEADERS = 0x04
PADDED = 0x08
HAS_PRIORITY = 0x20

# Settings (RFC 9113, section 6.5.2).
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

FRAME_HEADER = struct.Struct(">IBI")  # length (24 bits) and type (8) as one number, flags, stream
FRAME_HEADER_BYTES = 9
SETTING = struct.Struct(">HI")
NUMBER = struct.Struct(">I")
GOAWAY_HEAD = struct.Struct(">II")


class ErrorCode(IntEnum):
    """Reason for the end of a stream or connection (RFC 9113, section 7)."""

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


def frame_header(kind: int, flags: int, stream: int, length: int) -> bytes:
    """Return the header of a frame of `length` bytes."""
    return FRAME_HEADER.pack(length << 8 | kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return frame_header(kind, flags, stream, len(payload)) + payload


def without_padding(payload: bytes) -> bytes:
    """Return the content of a padded frame.

    Raises:
        ProtocolError: The padding is longer than the payload.
    """
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("padding longer than the frame")
    return payload[1 : len(payload) - payload[0]]


def require_length(what: str, payload: bytes, length: int) -> None:
    """Check the length of a frame of fixed length.

    Raises:
        ProtocolError: The length differs.
    """
    if len(payload) != length:
        raise ProtocolError(
            f"{what} of {len(payload)} bytes, expected {length}", ErrorCode.FRAME_SIZE_ERROR
        )


def code_name(code: int) -> str:
    """Return the name of an error code, for messages."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
