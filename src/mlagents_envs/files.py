"""Files that are whole or not there, and names that a folder may have.

A file is written beside the place where it will stand, then renamed.
"""

import errno
import os
import re
import sys
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
            raise naming(path, error) from error

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
            raise naming(self._path, error) from error
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
        raise naming(path, error) from error
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


def naming(path: Path, error: OSError) -> OSError:
    """Return the error such that it names `path`: what comes from a full disk names no file."""
    if error.errno is None:
        return OSError(f"{path}: {error}")
    return OSError(error.errno, error.strerror, str(path))


_LONGEST_NAME_BYTES = 200
"""Most systems allow 255; the names of files begin with that of their folder and go on."""

_NOT_ON_WINDOWS = re.compile(
    r'[<>:"|?*]|\.$|(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?$', re.IGNORECASE
)
"""Characters, endings and names that Windows gives another meaning."""


def folder_name_problem(name: str, *, platform: str = sys.platform) -> str:
    """Say why a text from outside cannot be the name of one folder; empty if it can.

    Args:
        name: The text.
        platform: As in `sys.platform`.
    """
    if not name or name != name.strip():
        return "it is empty, or begins or ends with a space"
    if "/" in name or "\\" in name:
        return "it contains a slash, so it would lead to another folder"
    if name.startswith("."):
        return "it begins with a dot"
    if not name.isprintable():
        return "it contains a character that cannot be printed"
    if len(name.encode()) > _LONGEST_NAME_BYTES:
        return f"it is {len(name.encode())} bytes long, and at most {_LONGEST_NAME_BYTES} fit"
    if platform == "win32" and _NOT_ON_WINDOWS.search(name):
        return "Windows does not allow such a name"
    return ""


DOWNLOADED = ".mlagents-downloaded"
"""Name of the file that marks a folder as one that somebody else wrote."""


def downloaded_folder(path: Path) -> Path | None:
    """Return the folder of a download that is a path or holds it, None if there is none."""
    place = path.resolve()
    for folder in (place, *place.parents):
        if (folder / DOWNLOADED).exists():
            return folder
    return None
