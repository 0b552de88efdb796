"""Images: PNG files <-> pixels, and the order of their axes; a decoder loads with the first image.

One agent's image of C channels comes as PNG files back to back, three channels each:

    compressed ──split──► files ──decoder──► (H, W, 3) each ──mapping──► (C, H, W)

Nothing is believed before it was checked against the announced shape: a file says in its first
bytes how large it is, and one that is too large is not decoded. Source: wire protocol, section 3.4.
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
"""Every file is read as RGB."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK_HEAD = struct.Struct(">I4s")  # length, kind
_CHUNK_OVERHEAD = 12  # its head, and a checksum at its end
_IMAGE_HEADER = struct.Struct(">IIBBBBB")  # width, height, depth, color, and three that are 0
_RGB = 2

# Of smaller images, decoders spend most of their time where only one thread can run.
_MIN_PIXELS_FOR_THREADS = 2**12


def to_channel_first(axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Return axes (H, W, C) as (C, H, W)."""
    return axes[-1:] + axes[:-1]


def to_channel_last(axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Return axes (C, H, W) as (H, W, C)."""
    return axes[1:] + axes[:1]


class ImageLayout(Enum):
    """Order in which a simulation announces the axes of images and writes uncompressed ones.

    A compressed image has its channels where the announced shape says.
    """

    CHANNEL_FIRST = 0
    """Announced as (C, H, W) and written in this order."""
    NUMBERS_CHANNEL_LAST = 1
    """Announced as (C, H, W), but written in the order H, W, C."""
    CHANNEL_LAST = 2
    """Announced as (H, W, C) and written in this order."""


class ImageReading(NamedTuple):
    """How the images of one simulation are read: as (C, H, W), unless `keep_channel_last`.

    Attributes:
        layout: Order of their axes on the wire.
        keep_8_bit: Whether compressed images become uint8 rather than float32 in [0, 1].
        keep_channel_last: Whether images announced as (H, W, C) stay so in specs and arrays.
    """

    layout: ImageLayout = ImageLayout.CHANNEL_FIRST
    keep_8_bit: bool = False
    keep_channel_last: bool = False

    def in_spec_order(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        """Put announced sizes or flags of axes in the order of specs."""
        return to_channel_first(axes) if self._turns_announced(axes) else axes

    def announced(self, axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
        """Put sizes or flags of a spec's axes in the order in which they were announced."""
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
    """Corrections that a user wants; see the arguments of `UnityEnvironment`.

    Attributes:
        turn_channel_last: Whether (H, W, C) becomes (C, H, W).
        reorder_uncompressed: Whether images written in another order than announced are corrected.
        keep_8_bit: Whether compressed images become uint8.
    """

    turn_channel_last: bool = True
    reorder_uncompressed: bool = True
    keep_8_bit: bool = False

    def reading(self, layout: ImageLayout) -> ImageReading:
        """Return how to read the images of a simulation with this layout."""
        if layout is ImageLayout.NUMBERS_CHANNEL_LAST and not self.reorder_uncompressed:
            layout = ImageLayout.CHANNEL_FIRST
        is_kept = layout is ImageLayout.CHANNEL_LAST and not self.turn_channel_last
        return ImageReading(layout, self.keep_8_bit, is_kept)


def decode_image(
    compressed: bytes, mapping: Sequence[int], out: NDArray[Any], *, n_frames: int = 1
) -> None:
    """Read one agent's image.

    Without a mapping, surplus channels are dropped, and a single channel is the mean of a file's
    three.

    Args:
        compressed: PNG files back to back.
        mapping: The channel of the image for each channel of the files, negative for none; several
            with one target are averaged. Empty for the order in which they come.
        out: (C, H, W), written to: float32 in [0, 1], or uint8, for which means are rounded.
        n_frames: How many frames, oldest first, a stack of them has; 1 for other images.

    Raises:
        UnityObservationException: Size, channels or mapping do not give the shape of `out`.
        UnityCommunicationException: These are no PNG files, or they are damaged.
        UnityEnvironmentException: No library is installed that decodes them.
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
    """Return the channel of the image for each channel of its files, negative for none."""
    n_decoded = n_files * CHANNELS_PER_FILE
    if not mapping:
        if channels == 1:
            return [0] * CHANNELS_PER_FILE
        if n_decoded < channels:
            raise UnityObservationException(
                f"{n_files} PNG files with {n_decoded} channels; {channels} were announced"
            )
        return [*range(channels), *[-1] * (-channels % CHANNELS_PER_FILE)]
    if len(mapping) != n_decoded:
        raise UnityObservationException(
            f"a mapping of {len(mapping)} channels for {n_files} PNG files with {n_decoded}"
        )
    named = {target for target in mapping if target >= 0}
    if len(named) != channels or max(named, default=-1) != channels - 1:
        raise UnityObservationException(
            f"a mapping to the channels {sorted(named)[:16]}; expected each from 0 to "
            f"{channels - 1}, the number announced"
        )
    return mapping


def _fill_history(files: list[bytes], n_wanted: int, n_frames: int) -> Sequence[bytes | None]:
    """Add None for files that a stack of frames lacks because they are from before the episode.

    For each of those frames, the oldest, Unity's stacking sensor sends a single black file, even
    where a frame has more than three channels and takes several.
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
    """Return how many frames a sensor of this name stacks; 1 for those that do not."""
    match = re.match(r"StackingSensor_size(\d{1,4})_", name, re.ASCII)
    return max(int(match[1]), 1) if match else 1


def count_files(compressed: bytes) -> int:
    """Return at least how many PNG files `decode_image` will find."""
    return compressed.count(_SIGNATURE)


def _split(compressed: bytes) -> list[bytes]:
    """Cut PNG files that lie back to back apart, by walking over their chunks."""
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
            # A second header could announce another size than the one that is checked.
            if (kind == b"IHDR") != is_first or (is_first and length != _IMAGE_HEADER.size):
                raise UnityCommunicationException(f"PNG file {len(files)} is damaged: its header")
        if at > len(compressed):
            raise UnityCommunicationException(f"PNG file {len(files)} is cut short")
        files.append(compressed[start:at])
        start = compressed.find(_SIGNATURE, at)
    if not files:
        raise UnityCommunicationException(
            f"{len(compressed)} bytes are no PNG file: they begin with "
            f"{compressed[: len(_SIGNATURE)].hex(' ')!r}"
        )
    return files


def _decode_png(file: bytes, height: int, width: int) -> Pixels:
    """Return the pixels of a file that must have this size, (H, W, 3)."""
    header = _IMAGE_HEADER.unpack_from(file, len(_SIGNATURE) + _CHUNK_HEAD.size)
    if header[:2] != (width, height):
        raise UnityObservationException(
            f"a PNG file of {header[1]} x {header[0]} pixels (height x width); announced were "
            f"{height} x {width}"
        )
    if header[2] > 8:
        raise UnityCommunicationException(f"a PNG file of {header[2]} bits a channel; at most 8")
    decode = _decoder()
    try:
        pixels = decode(file)
    except Exception as error:  # decoders raise errors of every kind
        raise UnityCommunicationException(f"a damaged PNG file: {error}") from error
    if pixels.shape != (height, width, CHANNELS_PER_FILE):
        raise UnityCommunicationException(f"a damaged PNG file: it has the shape {pixels.shape}")
    return pixels


@cache
def _decoder() -> Callable[[bytes], Pixels]:
    """Return the fastest decoder at hand; each lets other threads run meanwhile."""
    for load in (_load_opencv, _load_pillow):
        try:
            return load()
        except ImportError:
            continue
    raise UnityEnvironmentException(
        "the simulation sends compressed images, and neither Pillow nor OpenCV is installed to "
        f"read them. Install Pillow: {install_command('images')}"
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
    """Write an image as PNG files back to back, as Unity's sensors do: always RGB.

    A single channel becomes gray; of others, three go into each file and what is left stays 0.
    The pixels are stored rather than packed: a machine moves them to itself faster than it
    packs and unpacks them, and they are a quarter of the same numbers as floats.

    Args:
        image: (C, H, W), none of them 0.
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
        # Each row follows a byte that says how it is filtered: 0 for not at all.
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
    """Do `work` for every row, on all processors where that pays.

    Args:
        work: Decodes the image of one row.
        rows: Rows of the batch.
        n_pixels: Height times width of one image.

    Raises:
        As `work`.
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
    """Return the threads of this process: those of its parent do not run after a fork."""
    return ThreadPoolExecutor(max(n_cpus() - 1, 1), f"images-{process_id}")
