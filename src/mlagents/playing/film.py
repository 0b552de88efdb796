"""Films: pictures of an environment in a file, with only a few pictures in memory at a time.

with open_film(Path("play.gif"), fps=10) as film:
    film.add(world.render())
"""

import io
import math
import subprocess
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.atomic_file import PendingFile, with_path
from mlagents_envs.closing import Closing
from mlagents_envs.programs import needed_extra

if TYPE_CHECKING:
    from PIL.Image import Image

Picture = NDArray[np.uint8]
"""(H, W, 3): red, green, blue."""

SUFFIXES = (".gif", ".mp4", ".png", ".webp")
MAX_FPS = 100
"""Largest frame rate; a GIF stores durations in hundredths of a second."""

_SHEET_SIDE = 3
_QUALITY = 80
"""Quality of the pictures of a WebP film, from 0 to 100."""
_RIFF_HEADER = 12


class Film(Closing):
    """A film being written. `close` moves it to its path; a film without pictures is not written.

    Args:
        path: Path of the file. An existing file is kept until the film is complete.
        size: (width, height) of every picture in pixels, or None to keep the pictures' own size.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path, *, size: tuple[int, int] | None) -> None:
        self._path = path
        self._pending = PendingFile(path)
        self._size = size
        self._n_added = self._n_shown = 0
        self._stride = 1  # one of every `_stride` pictures is shown
        self._is_closed = False

    def add(self, picture: Picture) -> None:
        """Append a picture; all pictures must have the same size.

        Raises:
            OSError: The disk is full. The incomplete film is deleted.
        """
        self.shoot(lambda: picture)

    def shoot(self, draw: Callable[[], Picture]) -> None:
        """Append the picture that `draw` returns; `draw` is not called for pictures left out.

        Raises:
            OSError: The disk is full. The incomplete film is deleted.
        """
        self._n_added += 1
        if (self._n_added - 1) % self._stride:
            return
        picture = draw()
        if self._size is not None and self._size != (picture.shape[1], picture.shape[0]):
            picture = np.asarray(_image(picture).resize(self._size))
        try:
            self._add(picture)
        except OSError as error:
            self._discard()
            raise with_path(self._path, error) from error
        self._n_shown += 1

    def close(self) -> None:
        """Complete the file. Calling it again does nothing.

        Raises:
            OSError: The disk is full. The incomplete film is deleted.
        """
        if self._is_closed:
            return
        try:
            if self._n_shown:
                self._finish()
                self._pending.keep()
        except OSError as error:
            raise with_path(self._path, error) from error
        finally:
            self._discard()

    def _discard(self) -> None:
        """Delete the temporary file, unless the film is complete."""
        self._is_closed = True
        self._pending.discard()

    @abstractmethod
    def _add(self, picture: Picture) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...


class _Gif(Film):
    """A repeating animation with a palette of 256 colors for every picture.

    Pillow can only write animations that are completely in memory. So Pillow encodes single frames,
    and this class writes the file structure around them (GIF89a).
    """

    def __init__(self, path: Path, *, fps: float, size: tuple[int, int] | None) -> None:
        super().__init__(path, size=size)
        self._hundredths_per_picture = 100 / fps

    def _add(self, picture: Picture) -> None:
        from PIL import GifImagePlugin

        if self._n_shown == 0:
            height, width = picture.shape[:2]
            screen = width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\0\0\0"
            forever = b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
            self._pending.file.write(b"GIF89a" + screen + forever)
        # Durations are whole hundredths of a second, rounded so that their sum is correct.
        begin, end = (
            round(n * self._hundredths_per_picture) for n in (self._n_shown, self._n_shown + 1)
        )
        frame = GifImagePlugin.getdata(
            _image(picture).quantize(), duration=10 * (end - begin), include_color_table=True
        )
        self._pending.file.write(b"".join(frame))

    def _finish(self) -> None:
        self._pending.file.write(b";")


class _WebP(Film):
    """A repeating animation of many colors.

    Pillow can only write animations that are completely in memory. So Pillow encodes single frames,
    and this class writes the file structure around them (RIFF). After the first
    picture, only the rectangle that has changed is stored.
    """

    def __init__(self, path: Path, *, fps: float, size: tuple[int, int] | None) -> None:
        super().__init__(path, size=size)
        self._ms_per_picture = 1000.0 / fps
        self._canvas: Picture | None = None

    def _add(self, picture: Picture) -> None:
        height, width = picture.shape[:2]
        top, bottom, left, right = 0, height, 0, width
        if self._canvas is None:
            flags = 0b10.to_bytes(4, "little")  # has an animation
            canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
            self._pending.file.write(b"RIFF\0\0\0\0WEBP" + _chunk(b"VP8X", flags + canvas))
            self._pending.file.write(_chunk(b"ANIM", bytes(6)))  # no background; repeats forever
        else:
            is_changed = (picture != self._canvas).any(axis=2)
            rows, columns = is_changed.any(axis=1).nonzero()[0], is_changed.any(axis=0).nonzero()[0]
            if rows.size:  # the format requires even offsets
                top, bottom = rows[0] // 2 * 2, rows[-1] + 1
                left, right = columns[0] // 2 * 2, columns[-1] + 1
            else:
                bottom = right = 1
        self._canvas = picture
        # Durations are whole milliseconds, rounded so that their sum is correct.
        begin, end = (round(n * self._ms_per_picture) for n in (self._n_shown, self._n_shown + 1))
        encoded = io.BytesIO()
        _image(picture[top:bottom, left:right]).save(encoded, "webp", quality=_QUALITY, method=2)
        numbers = (left // 2, top // 2, right - left - 1, bottom - top - 1, end - begin)
        frame = b"".join(int(number).to_bytes(3, "little") for number in numbers)
        no_blending = b"\2"
        self._pending.file.write(
            _chunk(b"ANMF", frame + no_blending + encoded.getvalue()[_RIFF_HEADER:])
        )

    def _finish(self) -> None:
        file = self._pending.file
        size = file.tell()
        file.seek(4)
        file.write((size - 8).to_bytes(4, "little"))
        file.seek(size)


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + len(content).to_bytes(4, "little") + content + bytes(len(content) % 2)


class _Mp4(Film):
    """H.264 video that browsers can play."""

    def __init__(self, path: Path, *, fps: float, size: tuple[int, int] | None) -> None:
        super().__init__(path, size=size)
        self._fps = fps
        self._ffmpeg: subprocess.Popen[bytes] | None = None

    def _add(self, picture: Picture) -> None:
        # Colors are stored for blocks of 2 x 2 pixels, so an odd row or column is cut off.
        height, width = (length // 2 * 2 for length in picture.shape[:2])
        if self._ffmpeg is None:
            self._ffmpeg = self._start(width, height)
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(picture[:height, :width].tobytes())
        except BrokenPipeError:
            self._finish()  # raises ffmpeg's error
            raise

    def _start(self, width: int, height: int) -> subprocess.Popen[bytes]:
        from imageio_ffmpeg import get_ffmpeg_exe

        rate = str(Fraction(self._fps).limit_denominator())
        pictures = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", rate]
        film = ["-f", "mp4", "-pix_fmt", "yuv420p", str(self._pending.temporary)]
        return subprocess.Popen(
            [get_ffmpeg_exe(), "-y", "-v", "error", *pictures, "-i", "-", *film],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so Ctrl-C ends play but not ffmpeg, and the film is completed
        )

    def _finish(self) -> None:
        if self._ffmpeg is not None:
            _, said = self._ffmpeg.communicate()
            if self._ffmpeg.returncode:
                first_line = said.decode(errors="replace").strip().partition("\n")[0]
                reason = first_line.rpartition("] ")[2]  # without "[component @ address]"
                raise OSError(f"ffmpeg: {reason or f'exit status {self._ffmpeg.returncode}'}")

    def _discard(self) -> None:
        if self._ffmpeg is not None and self._ffmpeg.poll() is None:
            self._ffmpeg.kill()
            self._ffmpeg.communicate()
        super()._discard()


class _ContactSheet(Film):
    """One image of 3 x 3 pictures, spaced about evenly from the first to the last."""

    def __init__(self, path: Path, *, size: tuple[int, int] | None) -> None:
        super().__init__(path, size=size)
        self._kept: list[Picture] = []

    def _add(self, picture: Picture) -> None:
        self._kept.append(picture)
        if len(self._kept) == 4 * _SHEET_SIDE**2:
            del self._kept[1::2]
            self._stride *= 2

    def _finish(self) -> None:
        n_chosen = min(len(self._kept), _SHEET_SIDE**2)
        chosen = [self._kept[round(i)] for i in np.linspace(0, len(self._kept) - 1, n_chosen)]
        columns = min(n_chosen, _SHEET_SIDE)
        height, width, _ = chosen[0].shape
        sheet = np.full((math.ceil(n_chosen / columns), columns, height, width, 3), 255, np.uint8)
        for place, picture in enumerate(chosen):
            sheet[divmod(place, columns)] = picture
        rows = sheet.swapaxes(1, 2).reshape(-1, columns * width, 3)
        # If Pillow wrote to the file itself, a full disk would raise "encoder error -2".
        png = io.BytesIO()
        _image(rows).save(png, "png")
        self._pending.file.write(png.getbuffer())


def open_film(path: Path, *, fps: float, size: tuple[int, int] | None = None) -> Film:
    """Return a new film to add pictures to.

    Args:
        path: Path of the file: `.gif`, `.mp4` or `.webp` for a moving picture, `.png` for nine of
            its pictures side by side. An existing file is replaced when the film is complete.
        fps: Pictures per second, at most `MAX_FPS`.
        size: (width, height) of every picture in pixels, or None for the size the world draws.

    Raises:
        ValueError: The suffix is not supported.
        OSError: The file cannot be written.
        ModuleNotFoundError: A package of the extra `play` is missing.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{str(path)!r} is not a film: expected a name in {', '.join(SUFFIXES)}")
    with needed_extra("play"):  # fail now, not at the first picture
        import_module("PIL")
        if suffix == ".mp4":
            import_module("imageio_ffmpeg")
    if suffix == ".gif":
        return _Gif(path, fps=fps, size=size)
    if suffix == ".webp":
        return _WebP(path, fps=fps, size=size)
    if suffix == ".png":
        return _ContactSheet(path, size=size)
    return _Mp4(path, fps=fps, size=size)


def _image(picture: Picture) -> "Image":
    from PIL import Image

    return Image.fromarray(picture)
