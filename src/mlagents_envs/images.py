"""Encoding and decoding of PNG images, and the order of their axes.

An image of C channels is sent as concatenated PNG files of three channels each:

    compressed ──split──► files ──decoder──► (H, W, 3) each ──mapping──► (C, H, W)

The size in a file's header is compared with the announced shape before the file is decoded. The
decoder library is imported with the first image. `docs/protocol.md` describes the format.
"""

import io
import os
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import FloatArray, scale_8_bit
from mlagents_envs.cpus import n_cpus
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
    UnityObservationException,
)
from mlagents_envs.programs import install_command

Pixels = NDArray[np.uint8]

_Axis = TypeVar("_Axis")

CHANNELS_PER_FILE = 3
"""Number of channels per file; every file is decoded as RGB."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK_HEAD = struct.Struct(">I4s")  # length, kind
_CHUNK_OVERHEAD = 12  # head and checksum
_IMAGE_HEADER = struct.Struct(">IIBBBBB")  # width, height, depth, color, and three that are 0
_RGB = 2

# For smaller images, decoders spend most of their time holding the global interpreter lock.
_MIN_PIXELS_FOR_THREADS = 2**12


def to_channel_first(axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Return axes (H, W, C) as (C, H, W)."""
    return axes[-1:] + axes[:-1]


def to_channel_last(axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Return axes (C, H, W) as (H, W, C)."""
    return axes[1:] + axes[:1]


class ImageLayout(Enum):
    """Order in which a simulation announces the axes of images and writes uncompressed ones.

    Compressed images always have the announced order.
    """

    CHANNEL_FIRST = 0
    """Announced as (C, H, W) and written in this order."""
    NUMBERS_CHANNEL_LAST = 1
    """Announced as (C, H, W), but written in the order H, W, C."""
    CHANNEL_LAST = 2
    """Announced as (H, W, C) and written in this order."""


class ImageReading(NamedTuple):
    """Image format of one simulation, and of the arrays that its images are decoded to.

    Attributes:
        layout: Order of the axes on the wire.
        keep_8_bit: Whether compressed images become uint8 instead of float32 in [0, 1].
        keep_channel_last: Whether images announced as (H, W, C) keep this order in specifications
            and arrays. Otherwise all images become (C, H, W).
    """

    layout: ImageLayout = ImageLayout.CHANNEL_FIRST
    keep_8_bit: bool = False
    keep_channel_last: bool = False

    def in_spec_order(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        """Return announced sizes or flags of axes in the order of specifications."""
        return to_channel_first(axes) if self._turns_announced(axes) else axes

    def announced(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        """Return sizes or flags of a specification's axes in the announced order."""
        return to_channel_last(axes) if self._turns_announced(axes) else axes

    def _turns_announced(self, axes: tuple[_Axis, ...]) -> bool:
        is_channel_last = self.layout is ImageLayout.CHANNEL_LAST and len(axes) == 3
        return is_channel_last and not self.keep_channel_last

    def channel_first(self, numbers: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """Return uncompressed images, (N, numbers as written), as (N, C, H, W) of this shape."""
        if self.layout is ImageLayout.CHANNEL_FIRST:
            return numbers.reshape(len(numbers), *shape)
        written = numbers.reshape(len(numbers), *to_channel_last(shape))
        return written.transpose(0, *to_channel_first((1, 2, 3)))


class ImageOptions(NamedTuple):
    """Options of the user for decoding images; see the arguments of `UnityEnvironment`.

    Attributes:
        turn_channel_last: Whether (H, W, C) becomes (C, H, W).
        reorder_uncompressed: Whether images written in another order than announced are corrected.
        keep_8_bit: Whether compressed images become uint8 instead of float32 in [0, 1].
    """

    turn_channel_last: bool = True
    reorder_uncompressed: bool = True
    keep_8_bit: bool = False

    def reading(self, layout: ImageLayout) -> ImageReading:
        """Return the image format for a simulation with this layout."""
        if layout is ImageLayout.NUMBERS_CHANNEL_LAST and not self.reorder_uncompressed:
            layout = ImageLayout.CHANNEL_FIRST
        is_kept = layout is ImageLayout.CHANNEL_LAST and not self.turn_channel_last
        return ImageReading(layout, self.keep_8_bit, is_kept)


def decode_image(
    compressed: bytes, mapping: Sequence[int], out: NDArray[Any], *, n_frames: int = 1
) -> None:
    """Decode the image of one agent into an array.

    Without a mapping, channels are copied in order and surplus ones are dropped; an image of one
    channel is the mean of the file's three.

    Args:
        compressed: Concatenated PNG files.
        mapping: Channel of the image for each channel of the files, negative to drop it. Channels
            of the files with the same target are averaged. Empty if there is no mapping.
        out: (C, H, W) array for the result: float32 in [0, 1], or uint8, for which means are
            rounded.
        n_frames: Number of stacked frames, oldest first; 1 for an image that is not stacked.

    Raises:
        UnityObservationException: The size of the files, the number of channels, or the mapping
            does not match the shape of `out`.
        UnityCommunicationException: The bytes are not PNG files, or a file is damaged.
        UnityEnvironmentException: No library that decodes PNG files is installed.
    """
    channels, height, width = out.shape
    files = _fill_history(_split(compressed), len(mapping) // CHANNELS_PER_FILE, n_frames)
    targets = _targets(mapping, len(files), channels)
    n_sources = np.bincount([target for target in targets if target >= 0], minlength=channels)
    is_averaged = n_sources.max(initial=0) > 1
    keeps_8_bit = out.dtype == np.uint8
    sums = np.zeros(out.shape if is_averaged else 0, np.float32)
    if None in files:
        out[...] = 0
    for number, file in enumerate(files):
        wanted = targets[number * CHANNELS_PER_FILE : (number + 1) * CHANNELS_PER_FILE]
        if file is None or max(wanted, default=-1) < 0:
            continue
        pixels = _decode_png(file, height, width)
        for channel, target in enumerate(wanted):
            if target < 0:
                continue
            if is_averaged:
                sums[target] += pixels[..., channel]
            elif keeps_8_bit:
                out[target] = pixels[..., channel]
            else:
                scale_8_bit(pixels[..., channel], out=out[target])
    if is_averaged:
        sums /= n_sources.astype(np.float32)[:, None, None]
        out[...] = np.rint(sums) if keeps_8_bit else scale_8_bit(sums, out=sums)


def _targets(mapping: Sequence[int], n_files: int, channels: int) -> Sequence[int]:
    """Return the channel of the image for each channel of its files, negative to drop it."""
    n_decoded = n_files * CHANNELS_PER_FILE
    if not mapping:
        if channels == 1:
            return [0] * CHANNELS_PER_FILE
        if n_decoded < channels:
            raise UnityObservationException(
                f"expected {channels} channels, got {n_decoded} in {n_files} PNG files"
            )
        return [*range(channels), *[-1] * (-channels % CHANNELS_PER_FILE)]
    if len(mapping) != n_decoded:
        raise UnityObservationException(
            f"expected a mapping of {n_decoded} channels for {n_files} PNG files, got "
            f"{len(mapping)}"
        )
    named = {target for target in mapping if target >= 0}
    if len(named) != channels or max(named, default=-1) != channels - 1:
        raise UnityObservationException(
            f"the mapping has the channels {sorted(named)[:16]}; expected each from 0 to "
            f"{channels - 1}, as announced"
        )
    return mapping


def _fill_history(files: list[bytes], n_wanted: int, n_frames: int) -> Sequence[bytes | None]:
    """Insert None for the missing files of stacked frames from before the episode.

    For each such frame (the oldest), Unity's stacking sensor sends a single black file, even if a
    frame has more than three channels and takes several files.
    """
    files_per_frame, rest = divmod(n_wanted, n_frames)
    n_lacking = n_wanted - len(files)
    if files_per_frame < 2 or rest or n_lacking <= 0 or n_lacking % (files_per_frame - 1):
        return files
    n_before = n_lacking // (files_per_frame - 1)
    if n_before >= n_frames:
        return files
    lacking = [None] * (files_per_frame - 1)
    filled: list[bytes | None] = []
    for file in files[:n_before]:
        filled += [file, *lacking]
    return filled + files[n_before:]


def stacked_frames(name: str) -> int:
    """Return the number of frames that a sensor of this name stacks; 1 without stacking."""
    match = re.match(r"StackingSensor_size(\d{1,4})_", name, re.ASCII)
    return max(int(match[1]), 1) if match else 1


def count_files(compressed: bytes) -> int:
    """Return an upper bound of the number of PNG files that `decode_image` finds."""
    return compressed.count(_SIGNATURE)


def _split(compressed: bytes) -> list[bytes]:
    """Split concatenated PNG files by walking through their chunks."""
    files: list[bytes] = []
    start = 0 if compressed.startswith(_SIGNATURE) else -1
    while start >= 0:
        at = start + len(_SIGNATURE)
        kind = b""
        while kind != b"IEND":
            is_first = not kind
            if at + _CHUNK_OVERHEAD > len(compressed):
                raise UnityCommunicationException(f"PNG file {len(files)} is cut short")
            length, kind = _CHUNK_HEAD.unpack_from(compressed, at)
            at += _CHUNK_OVERHEAD + length
            # A second header could contain another size than the one that is checked.
            if (kind == b"IHDR") != is_first or (is_first and length != _IMAGE_HEADER.size):
                raise UnityCommunicationException(f"PNG file {len(files)} has a damaged header")
        if at > len(compressed):
            raise UnityCommunicationException(f"PNG file {len(files)} is cut short")
        files.append(compressed[start:at])
        start = compressed.find(_SIGNATURE, at)
    if not files:
        raise UnityCommunicationException(
            f"{len(compressed)} bytes are not a PNG file: they begin with "
            f"{compressed[: len(_SIGNATURE)].hex(' ')!r}"
        )
    return files


def _decode_png(file: bytes, height: int, width: int) -> Pixels:
    """Return the pixels of a file, (H, W, 3), and check their size."""
    header = _IMAGE_HEADER.unpack_from(file, len(_SIGNATURE) + _CHUNK_HEAD.size)
    if header[:2] != (width, height):
        raise UnityObservationException(
            f"expected a PNG file of {height} x {width} pixels (height x width), as announced; got "
            f"{header[1]} x {header[0]}"
        )
    if header[2] > 8:
        raise UnityCommunicationException(
            f"expected a PNG file of at most 8 bits per channel, got {header[2]} bits"
        )
    decode = _decoder()
    try:
        pixels = decode(file)
    except Exception as error:  # decoders raise errors of every kind
        raise UnityCommunicationException(f"damaged PNG file: {error}") from error
    if pixels.shape != (height, width, CHANNELS_PER_FILE):
        raise UnityCommunicationException(f"damaged PNG file: its shape is {pixels.shape}")
    return pixels


@cache
def _decoder() -> Callable[[bytes], Pixels]:
    """Return the fastest installed decoder; each releases the global interpreter lock."""
    for load in (_load_opencv, _load_pillow):
        try:
            return load()
        except ImportError:
            continue
    raise UnityEnvironmentException(
        "the simulation sends compressed images, but neither Pillow nor OpenCV is installed to "
        f"decode them. Install Pillow: {install_command('images')}"
    )


def _load_opencv() -> Callable[[bytes], Pixels]:
    cv2 = import_module("cv2")
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION

    def decode(file: bytes) -> Pixels:
        bgr = cv2.imdecode(np.frombuffer(file, np.uint8), flags)
        if bgr is None:
            raise ValueError("OpenCV cannot read it")
        rgb: Pixels = bgr[..., ::-1]
        return rgb

    return decode


def _load_pillow() -> Callable[[bytes], Pixels]:
    image_module = import_module("PIL.Image")

    def decode(file: bytes) -> Pixels:
        with image_module.open(io.BytesIO(file), formats=("PNG",)) as image:
            return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))

    return decode


def encode_image(image: Pixels) -> bytes:
    """Encode an image as concatenated RGB PNG files, as Unity's sensors do.

    A single channel is written as gray. Otherwise each file has three channels, and unused channels
    of the last one are 0. The pixels are not compressed: on one machine, sending them is faster
    than compressing them, and they already take a quarter of the bytes of floats.

    Args:
        image: (C, H, W) array with at least one pixel and channel.
    """
    channels, height, width = image.shape
    if channels == 1:
        image = np.repeat(image, CHANNELS_PER_FILE, axis=0)
    header = _chunk(b"IHDR", _IMAGE_HEADER.pack(width, height, 8, _RGB, 0, 0, 0))
    files = []
    for first in range(0, channels, CHANNELS_PER_FILE):
        planes = image[first : first + CHANNELS_PER_FILE]
        pixels = np.zeros((height, width, CHANNELS_PER_FILE), np.uint8)
        pixels[..., : len(planes)] = planes.transpose(to_channel_last((0, 1, 2)))
        # Each row begins with the number of its filter; 0 is none.
        rows = np.zeros((height, 1 + width * CHANNELS_PER_FILE), np.uint8)
        rows[:, 1:] = pixels.reshape(height, -1)
        files += [
            _SIGNATURE,
            header,
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 0)),
            _chunk(b"IEND", b""),
        ]
    return b"".join(files)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return _CHUNK_HEAD.pack(len(content), kind) + content + checksum.to_bytes(4)


def for_each_image(work: Callable[[int], None], rows: Sequence[int], *, n_pixels: int) -> None:
    """Call `work` for every row, in several threads if the images are large enough.

    Args:
        work: Function that decodes the image of one row.
        rows: Rows of the batch.
        n_pixels: Number of pixels of one image, height times width.

    Raises:
        The first error of `work`.
    """
    is_worth_it = n_pixels >= _MIN_PIXELS_FOR_THREADS and len(rows) > 1
    n_shares = min(n_cpus(), len(rows)) if is_worth_it else 1

    def do(first: int) -> None:
        for row in rows[first::n_shares]:
            work(row)

    others = [_threads(os.getpid()).submit(do, first) for first in range(1, n_shares)]
    try:
        do(0)
    finally:
        errors = [other.exception() for other in others]
    for error in errors:
        if error is not None:
            raise error


@cache
def _threads(process_id: int) -> ThreadPoolExecutor:
    """Return the thread pool of this process; after a fork, the parent's threads do not run."""
    return ThreadPoolExecutor(max(n_cpus() - 1, 1), f"images-{process_id}")
