"""Unpacking of untrusted ZIP archives, limited to one folder and in size."""

import io
import lzma
import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from mlagents_envs.exception import UnityEnvironmentException

MAX_UNPACKED_BYTES = 16 << 30
MAX_ENTRIES = 100_000
_MAX_READ_BYTES = 16 << 20  # limit of the central directory, which is read at once
_MAX_LINK_BYTES = 4096


def unpack(archive: Path, folder: Path) -> dict[str, int]:
    """Unpack a ZIP archive into a new folder.

    Only files that the archive marks as executable become executable. Symbolic links may point
    only within the folder. After an error, the folder may contain a part of the files.

    Returns:
        Size of each file in bytes, by its path below `folder`.

    Raises:
        UnityEnvironmentException: The archive is damaged or too large, or a path in it is outside
            the folder.
    """
    try:
        with _Archive(archive) as file, zipfile.ZipFile(file) as contents:
            return _unpack(contents, folder)
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        OSError,
        RuntimeError,  # encrypted, or an unsupported compression method
        ValueError,
    ) as error:
        raise UnityEnvironmentException(f"the archive cannot be unpacked: {error}") from error


class _Archive(io.FileIO):
    """File that limits the size of a single read, which the archive may set to any number."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_READ_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size} bytes, more than {_MAX_READ_BYTES}")
        return super().read(size) or b""


def _unpack(contents: zipfile.ZipFile, folder: Path) -> dict[str, int]:
    entries = contents.infolist()
    if len(entries) > MAX_ENTRIES:
        raise zipfile.BadZipFile(f"it has {len(entries)} entries, more than {MAX_ENTRIES}")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_UNPACKED_BYTES:
        raise zipfile.BadZipFile(
            f"its unpacked size is {total} bytes, more than {MAX_UNPACKED_BYTES}"
        )
    folder.mkdir()
    sizes: dict[str, int] = {}
    links: list[tuple[Path, str]] = []
    for entry in entries:
        name = _relative_path(entry.filename)
        path = folder / name
        mode = entry.external_attr >> 16
        kind = stat.S_IFMT(mode)
        if entry.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == stat.S_IFLNK:
            if entry.file_size > _MAX_LINK_BYTES:
                raise zipfile.BadZipFile(f"{entry.filename!r} is not a symbolic link")
            links.append((path, os.fsdecode(contents.read(entry))))
        elif kind in (0, stat.S_IFREG):
            with contents.open(entry) as source, open(path, "xb") as target:
                shutil.copyfileobj(source, target)  # reads at most `file_size` bytes
            path.chmod(0o755 if mode & 0o111 else 0o644)
            sizes[str(name)] = entry.file_size
        else:
            raise zipfile.BadZipFile(f"{entry.filename!r} is neither file, folder nor link")
    _make_links(links, folder)
    return sizes


def _relative_path(name: str) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or ":" in name:
        raise zipfile.BadZipFile(f"{name!r} is not a path within the archive")
    return path


def _make_links(links: list[tuple[Path, str]], folder: Path) -> None:
    """Create the links, after all files so that none is written through a link, and check them."""
    for path, target in links:
        path.symlink_to(target)
    root = folder.resolve()
    for path, target in links:
        leads_to = Path(os.path.realpath(path))
        if os.path.isabs(target) or not leads_to.is_relative_to(root):
            raise zipfile.BadZipFile(
                f"the link {path.name!r} points to {target!r}, outside the archive"
            )
