"""Atomic writes: files are written under a temporary name, then renamed."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


class PendingFile:
    """File that is written under a temporary name and moved to its path by `keep`.

    Until then, an existing file at the path is unchanged.

    Args:
        path: Final path, in an existing folder.
        buffering: Buffering as in `open`; 0 turns it off.

    Attributes:
        temporary: Path until `keep`, for functions that need a path.
        file: Binary file, open for writing.

    Raises:
        OSError: The file cannot be written; the error names `path`.
    """

    def __init__(self, path: Path, *, buffering: int = -1) -> None:
        self._path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            if path.is_dir():
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            self.file: BinaryIO = self.temporary.open("wb", buffering)
        except OSError as error:
            raise with_path(path, error) from error

    def keep(self) -> None:
        """Flush the file and move it to its path.

        Raises:
            OSError: The file cannot be written, for example because the disk is full. The temporary
                file is deleted.
        """
        try:
            with self.file as file:
                file.flush()
                os.fsync(file.fileno())
            self.temporary.replace(self._path)
        except OSError as error:
            raise with_path(self._path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete the file unless it was kept. Calling it again does nothing."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that moves to `path` at the end of the block; readers never see a part of it.

    Raises:
        OSError: The file cannot be written; the error names `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    pending = PendingFile(path)
    try:
        yield pending.file
    except OSError as error:
        raise with_path(path, error) from error
    else:
        pending.keep()
    finally:
        pending.discard()


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`; readers see the old or the new file, never a part of it.

    Raises:
        OSError: The file cannot be written; the error names `path`.
    """
    with written_atomically(path) as file:
        file.write(content)


def with_path(path: Path, error: OSError) -> OSError:
    """Return the error with `path` in it, because the error for a full disk lacks it."""
    if error.errno is None:
        return OSError(f"{path}: {error}")
    return OSError(error.errno, error.strerror, str(path))
