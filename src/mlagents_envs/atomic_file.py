"""Files that are whole or not there: written beside where they will stand, then renamed."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


class PendingFile:
    """A file that is being written, and stands at its path once it is kept.

    Until then whatever stands at the path stays as it is.

    Args:
        path: Where it will stand; its folder exists.
        buffering: As for `open`; 0 hands every piece on at once.

    Attributes:
        temporary: Where it is until it is kept, for a program that writes it by name.
        file: Open for writing bytes.

    Raises:
        OSError: It cannot be written there; the error names `path`.
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
        """Let it stand at its path.

        Raises:
            OSError: The disk is full; nothing of the file is left.
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
        """Leave nothing of it, unless it was kept. Calling it again does nothing."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)


@contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that stands at `path` once it is written, so that a reader never finds half.

    Raises:
        OSError: It cannot be written; the error names `path`.
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
    """Put `content` at `path` so that a reader finds the old file or the new one, never half.

    Raises:
        OSError: It cannot be written; the error names `path`.
    """
    with written_atomically(path) as file:
        file.write(content)


def with_path(path: Path, error: OSError) -> OSError:
    """Return the error such that it names `path`: what comes from a full disk names no file."""
    if error.errno is None:
        return OSError(f"{path}: {error}")
    return OSError(error.errno, error.strerror, str(path))
