"""Films: pictures of a world, one after another, into a file. At most a few are held at a time.

with open_film(Path("play.gif"), fps=10) as film:
    film.add(world.render())
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from mlagents.extras import needed_to_play

if TYPE_CHECKING:
    from PIL.Image import Image

Picture = NDArray[np.uint8]
"""(H, W, 3): red, green, blue."""

SUFFIXES = (".gif", ".mp4", ".png")
MAX_FPS = 100
"""A GIF counts hundredths of a second."""

_SHEET_SIDE = 3


class Film(ABC):
    """A film that is being written. Closing completes the file; without a picture it is empty.

    Args:
        size: (width, height) of every picture in pixels; None leaves them as they are.
    """

    def __init__(self, size: tuple[int, int] | None) -> None:
        self._size = size
        self._is_closed = False

    def add(self, picture: Picture) -> None:
        """Append a picture; all must be of one size.

        Raises:
            OSError: The disk is full.
        """
        if self._size is not None and self._size != (picture.shape[1], picture.shape[0]):
            picture = np.asarray(_image(picture).resize(self._size))
        self._add(picture)

    def close(self) -> None:
        """Write what is not written yet. Calling it again does nothing.

        Raises:
            OSError: The disk is full.
        """
        if not self._is_closed:
            self._is_closed = True
            self._finish()

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

    def __init__(self, file: BinaryIO, *, fps: float, size: tuple[int, int] | None) -> None:
        super().__init__(size)
        self._file = file
        self._hundredths_per_picture = 100 / fps
        self._n_pictures = 0

    def _add(self, picture: Picture) -> None:
        from PIL import GifImagePlugin

        if self._n_pictures == 0:
            height, width = picture.shape[:2]
            screen = width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\0\0\0"
            forever = b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"
            self._file.write(b"GIF89a" + screen + forever)
        # Whole hundredths of a second, such that the sum is right.
        begin, end = (
            round(n * self._hundredths_per_picture)
            for n in (self._n_pictures, self._n_pictures + 1)
        )
        frame = GifImagePlugin.getdata(
            _image(picture).quantize(), duration=10 * (end - begin), include_color_table=True
        )
        self._file.write(b"".join(frame))
        self._n_pictures += 1

    def _finish(self) -> None:
        with self._file as file:
            if self._n_pictures:
                file.write(b";")


class _Mp4(Film):
    """H.264, as browsers play it."""

    def __init__(self, path: Path, *, fps: float, size: tuple[int, int] | None) -> None:
        super().__init__(size)
        self._path = path
        self._fps = fps
        self._writer: Generator[None, bytes | None, None] | None = None

    def _add(self, picture: Picture) -> None:
        # Colors are stored for two by two pixels: an odd row or column is cut off.
        height, width = (length // 2 * 2 for length in picture.shape[:2])
        if self._writer is None:
            from imageio_ffmpeg import write_frames

            self._writer = write_frames(
                str(self._path), (width, height), fps=self._fps, macro_block_size=2
            )
            self._writer.send(None)
        try:
            self._writer.send(picture[:height, :width].tobytes())
        except OSError as error:  # with much text about ffmpeg, which has said on its own why
            raise OSError(f"{self._path} cannot be written: ffmpeg has ended") from error

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _ContactSheet(Film):
    """One picture of three by three, evenly spaced from the first to the last."""

    def __init__(self, file: BinaryIO, *, size: tuple[int, int] | None) -> None:
        super().__init__(size)
        self._file = file
        self._kept: list[Picture] = []  # every `_stride`-th
        self._stride = 1
        self._n_pictures = 0
        self._last: Picture | None = None

    def _add(self, picture: Picture) -> None:
        self._last = picture
        if self._n_pictures % self._stride == 0:
            self._kept.append(picture)
        if len(self._kept) == 4 * _SHEET_SIDE**2:
            del self._kept[1::2]
            self._stride *= 2
        self._n_pictures += 1

    def _finish(self) -> None:
        with self._file as file:
            if self._last is None:
                return
            pictures = self._kept
            if (self._n_pictures - 1) % self._stride:
                pictures = [*pictures, self._last]
            n_chosen = min(len(pictures), _SHEET_SIDE**2)
            chosen = [pictures[round(i)] for i in np.linspace(0, len(pictures) - 1, n_chosen)]
            columns = min(n_chosen, _SHEET_SIDE)
            height, width, _ = self._last.shape
            sheet = np.full(
                (math.ceil(n_chosen / columns), columns, height, width, 3), 255, np.uint8
            )
            for place, picture in enumerate(chosen):
                sheet[divmod(place, columns)] = picture
            rows = sheet.swapaxes(1, 2).reshape(-1, columns * width, 3)
            _image(rows).save(file, "png")


def open_film(path: Path, *, fps: float, size: tuple[int, int] | None = None) -> Film:
    """Begin a film.

    Args:
        path: Of the file, which is replaced: `.gif` or `.mp4` for a moving picture, `.png` for
            nine of its pictures side by side.
        fps: Pictures per second, at most `MAX_FPS`.
        size: (width, height) of every picture in pixels; None leaves them as the world draws them.

    Raises:
        ValueError: The suffix is another.
        OSError: The file cannot be written.
        ModuleNotFoundError: A package of the extra `play` is missing.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{str(path)!r} is no film: expected a name in {', '.join(SUFFIXES)}")
    with needed_to_play():  # now, rather than with the first picture
        import_module("PIL")
        if path.suffix == ".mp4":
            import_module("imageio_ffmpeg")
    file = path.open("wb")
    if path.suffix == ".gif":
        return _Gif(file, fps=fps, size=size)
    if path.suffix == ".png":
        return _ContactSheet(file, size=size)
    file.close()  # it can be written, and ffmpeg does that
    return _Mp4(path, fps=fps, size=size)


def _image(picture: Picture) -> "Image":
    from PIL import Image

    return Image.fromarray(picture)
