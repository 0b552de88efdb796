"""PNG files written and read without a library: what decoders are compared with."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content)) + kind + content + zlib.crc32(kind + content).to_bytes(4)


def header(width: int, height: int, depth: int = 8, color: int = 2) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))


def png(*chunks: bytes) -> bytes:
    return SIGNATURE + b"".join(chunks) + chunk(b"IEND")


def rgb_png(pixels: NDArray[np.uint8]) -> bytes:
    """Write (H, W, 3) pixels, every row filtered by another of the five filters."""
    height, width, _ = pixels.shape
    rows = [b""]
    above = np.zeros(width * 3, np.int32)
    for y, row in enumerate(pixels.reshape(height, -1).astype(np.int32)):
        left = np.concatenate([np.zeros(3, np.int32), row[:-3]])
        corner = np.concatenate([np.zeros(3, np.int32), above[:-3]])
        guesses = (0, left, above, (left + above) // 2, paeth(left, above, corner))
        rows.append(bytes([y % 5]) + ((row - guesses[y % 5]) % 256).astype(np.uint8).tobytes())
        above = row
    return png(header(width, height), chunk(b"IDAT", zlib.compress(b"".join(rows))))


def paeth(left, above, corner):
    distances = [abs(left + above - corner - one) for one in (left, above, corner)]
    closest = np.argmin(distances, axis=0)
    return np.choose(closest, [left, above, corner])


def chunks_of(file: bytes, at: int = len(SIGNATURE)) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield kind, content and end of every chunk of the file that begins before `at`."""
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", file, at)
        at += 12 + length
        yield kind, file[at - 4 - length : at - 4], at


def read_rgb(file: bytes) -> tuple[NDArray[np.uint8], bytes]:
    """Return the (H, W, 3) pixels of an 8-bit RGB file, and what follows it."""
    chunks = list(chunks_of(file))
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, color, rest) == (8, 2, [0, 0, 0])
    packed = b"".join(content for kind, content, _ in chunks if kind == b"IDAT")
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).astype(np.int32)
    lines = lines.reshape(height, 1 + width * 3)
    pixels = np.zeros((height + 1, width + 1, 3), np.int32)  # with a black row and column before
    for y in range(height):
        kind, line = lines[y, 0], lines[y, 1:].reshape(width, 3)
        for x in range(width):
            left, above, corner = pixels[y + 1, x], pixels[y, x + 1], pixels[y, x]
            guess = (0, left, above, (left + above) // 2, paeth(left, above, corner))[kind]
            pixels[y + 1, x + 1] = (line[x] + guess) % 256
    return pixels[1:, 1:].astype(np.uint8), file[chunks[-1][2] :]
