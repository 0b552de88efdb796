"""Frames by hand: what tests say to our end of the wire, and how they read its answer."""

import struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH = b"/communicator_objects.UnityToExternalProto/Exchange"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY = range(8)
WINDOW_UPDATE, CONTINUATION = 8, 9

ACK = END_STREAM = 0x01
END_HEADERS = 0x04
PADDED = 0x08
HAS_PRIORITY = 0x20

# :method POST, :scheme http, :path as a literal
REQUEST_HEADERS = b"\x83\x86\x04" + bytes([len(PATH)]) + PATH
# :status 200, then grpc-status 0 as a literal
RESPONSE_HEADERS = b"\x88"
TRAILERS = b"\x00\x0bgrpc-status\x010"


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def parse_frames(data: bytes) -> list[Frame]:
    frames = []
    while data:
        length = int.from_bytes(data[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", data[3:9])
        assert len(data) >= 9 + length
        frames.append(Frame(kind, flags, stream, data[9 : 9 + length]))
        data = data[9 + length :]
    return frames


def settings(**values: int) -> bytes:
    """A SETTINGS frame of `header_table`, `push`, `streams`, `window`, `frame` and their values."""
    numbers = {"header_table": 1, "push": 2, "streams": 3, "window": 4, "frame": 5}
    return frame(
        SETTINGS,
        payload=b"".join(struct.pack(">HI", numbers[name], values[name]) for name in values),
    )


def window_update(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, stream=stream, payload=struct.pack(">I", increment))


def grpc_message(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


def request(message: bytes, stream: int = 1) -> bytes:
    """A whole call as the simplest client would send it, in frames of at most 16 KiB."""
    body = grpc_message(message)
    pieces = [body[at : at + 16384] for at in range(0, len(body), 16384)]
    return (
        frame(HEADERS, END_HEADERS, stream, REQUEST_HEADERS)
        + b"".join(frame(DATA, 0, stream, piece) for piece in pieces[:-1])
        + frame(DATA, END_STREAM, stream, pieces[-1])
    )


def response(message: bytes, stream: int = 1) -> bytes:
    """A whole small answer as the simplest server would send it."""
    return (
        frame(HEADERS, END_HEADERS, stream, RESPONSE_HEADERS)
        + frame(DATA, 0, stream, grpc_message(message))
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS)
    )
