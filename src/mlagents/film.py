"""Films: pictures of a world, one after another, into a file. At most a few are held at a time.

with open_film(Path("play.gif"), fps=10) as film:
    film.add(world.render())
"""

import io
import math
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from mlagents.extras import needed_to_play
from mlagents_envs.files import PendingFile, naming

if TYPE_CHECKING:
    from PIL.Image import Image

Picture = NDArray[np.uint8]
"""(H, W, 3): red, green, blue."""

SUFFIXES = (".gif", ".mp4", ".png")
MAX_FPS = 100
"""A GIF counts hundredths of a second."""

_SHEET_SIDE = 3


class Film(ABC):
    """A film that is being written. Closing gives the file its name; without a picture is no file.

    Args:
        path: Of the file. What is there stays until the film is whole.
        size: (width, height) of every picture in pixels; None leaves them as they are.

    Raises:
        OSError: No file can be written there.
    """

    def __init__(self, path: Path, *, size: tuple[int, int] | None) -> None:
        self._path = path
        self._pending = PendingFile(path)
        self._size = size
        self._n_added = self._n_shown = 0
        self._stride = 1  # every so many pictures one is shown
        self._is_closed = False

    def add(self, picture: Picture) -> None:
        """Append a picture; all must be of one size.

        Raises:
            OSError: The disk is full; nothing of the film is left.
        """
        self.shoot(lambda: picture)

    def shoot(self, draw: Callable[[], Picture]) -> None:
        """Append the picture that `draw` returns, which is not asked for those that are left out.

        Raises:
            OSError: As for `add`.
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
            raise naming(self._path, error) from error
        self._n_shown += 1

    def close(self) -> None:
        """Write what is not written yet. Calling it again does nothing.

        Raises:
            OSError: As for `add`.
        """
        if self._is_closed:
            return
        try:
            if self._n_shown:
                self._finish()
                self._pending.keep()
        except OSError as error:
            raise naming(self._path, error) from error
        finally:
            self._discard()

    def _discard(self) -> None:
        """Leave nothing of the film, unless it is whole."""
        self._is_closed = True
        self._pending.discard()

    @abstractmethod
    def _add(self, picture: Picture) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Gif(Film):
    """An animation that repeats, with a palette of 256 colors for every picture.

    Pillow writes only animations that it holds as a whole, so it makes the frames and the file
    around them is put together here (GIF89a).
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
        # Whole hundredths of a second, such that the sum is right.
        begin, end = (
            round(n * self._hundredths_per_picture) for n in (self._n_shown, self._n_shown + 1)
        )
        frame = GifImagePlugin.getdata(
            _image(picture).quantize(), duration=10 * (end - begin), include_color_table=True
        )
        self._pending.file.write(b"".join(frame))

    def _finish(self) -> None:
        self._pending.file.write(b";")


class _Mp4(Film):
    """H.264, as browsers play it."""

    def __init__(self, path: Path, *, fps: float, size: tuple[int, int] | None) -> None:
        super().__init__(path, size=size)
        self._fps = fps
        self._ffmpeg: subprocess.Popen[bytes] | None = None

    def _add(self, picture: Picture) -> None:
        # Colors are stored for two by two pixels: an odd row or column is cut off.
        height, width = (length // 2 * 2 for length in picture.shape[:2])
        if self._ffmpeg is None:
            self._ffmpeg = self._start(width, height)
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(picture[:height, :width].tobytes())
        except BrokenPipeError:
            self._finish()  # raises what ffmpeg says
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
            start_new_session=True,  # Ctrl-C ends play, and the film is finished
        )

    def _finish(self) -> None:
        if self._ffmpeg is not None:
            _, said = self._ffmpeg.communicate()
            if self._ffmpeg.returncode:
                first_line = said.decode(errors="replace").strip().partition("\n")[0]
                reason = first_line.rpartition("] ")[2]  # without which part of it speaks
                raise OSError(f"ffmpeg: {reason or f'ended with {self._ffmpeg.returncode}'}")

    def _discard(self) -> None:
        if self._ffmpeg is not None and self._ffmpeg.poll() is None:
            self._ffmpeg.kill()
            self._ffmpeg.communicate()
        super()._discard()


class _ContactSheet(Film):
    """One picture of three by three, evenly spaced from the first to the last, or nearly."""

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
        # Written to a file by Pillow itself, a full disk would be "encoder error -2".
        png = io.BytesIO()
        _image(rows).save(png, "png")
        self._pending.file.write(png.getbuffer())


def open_film(path: Path, *, fps: float, size: tuple[int, int] | None = None) -> Film:
    """Begin a film.

    Args:
        path: Of the file, which is replaced when the film is whole: `.gif` or `.mp4` for a moving
            picture, `.png` for nine of its pictures side by side.
        fps: Pictures per second, at most `MAX_FPS`.
        size: (width, height) of every picture in pixels; None leaves them as the world draws them.

    Raises:
        ValueError: The suffix is another.
        OSError: The file cannot be written.
        ModuleNotFoundError: A package of the extra `play` is missing.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{str(path)!r} is no film: expected a name in {', '.join(SUFFIXES)}")
    with needed_to_play():  # now, rather than with the first picture
        import_module("PIL")
        if suffix == ".mp4":
            import_module("imageio_ffmpeg")
    if suffix == ".gif":
        return _Gif(path, fps=fps, size=size)
    if suffix == ".png":
        return _ContactSheet(path, size=size)
    return _Mp4(path, fps=fps, size=size)


def _image(picture: Picture) -> "Image":
    from PIL import Image

    return Image.fromarray(picture)
