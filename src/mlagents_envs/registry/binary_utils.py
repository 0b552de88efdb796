"""Cache of builds from the network, which are downloaded once, verified and unpacked.

    <cache>/3DBall-<hash>.lock             locked by the process that reads or downloads
    <cache>/3DBall-<hash>.part/            the download; always removed at the end
    <cache>/3DBall-<hash>/build/...        the build
    <cache>/3DBall-<hash>/contents.json    size of each of its files, in bytes

The hash covers the address and the checksum, so each version has its own folder. A finished folder
is moved into place by a rename, so it is either complete or absent.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.registry.download import download
from mlagents_envs.registry.unpack import unpack

logger = get_logger(__name__)

MAX_DOWNLOAD_BYTES = 8 << 30
_BUILD = "build"
_CONTENTS = "contents.json"
_ARCHIVE = "archive.zip"
_UNPACKED = "unpacked"


def default_cache_folder(platform: str = sys.platform) -> Path:
    """Return the folder for the user's builds on a platform, named as in `sys.platform`."""
    home = Path.home()
    if platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"
    elif platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    return Path(base) / "ml-agents-binaries"


def local_build(
    identifier: str,
    url: str,
    *,
    sha256: str | None,
    cache: Path,
    platform: str = sys.platform,
) -> Path:
    """Return the executable of a build, after downloading it if it is not in the cache.

    If several processes request the same build at the same time, only one downloads it.

    Args:
        identifier: Name of the environment.
        url: Address of a ZIP archive.
        sha256: SHA-256 of the archive, in hexadecimal; None accepts any archive.
        cache: Folder of the builds. It must belong to the user or to root, because its contents
            are executed.
        platform: Platform of the build, as in `sys.platform`.

    Raises:
        UnityEnvironmentException: The download fails, the checksum differs, the archive cannot be
            unpacked or contains no executable, or the cache cannot be used.
    """
    key = hashlib.sha256(f"{url}\n{sha256}".encode()).hexdigest()[:16]
    folder = cache / f"{re.sub(r'[^A-Za-z0-9_-]', '_', identifier)[:50]}-{key}"
    try:
        _make_own_folder(cache)
        with _locked(folder.with_suffix(".lock")):
            if not _is_whole(folder):
                _fetch(url, sha256, folder, platform)
            return find_build(folder / _BUILD, platform=platform)
    except OSError as error:
        raise UnityEnvironmentException(
            f"the build of {identifier!r} cannot be stored in {cache}: {error}"
        ) from error


def find_build(folder: Path, *, platform: str = sys.platform) -> Path:
    """Return the executable in an unpacked build; if there are several, the one nearest the top.

    Args:
        folder: Folder to search, including its subfolders.
        platform: Platform of the build, as in `sys.platform`. On "darwin", the executable is the
            folder that ends in `.app`.

    Raises:
        UnityEnvironmentException: The folder contains no executable.
    """
    suffix = {"darwin": ".app", "win32": ".exe"}.get(platform, ".x86_64")
    found = [
        path
        for path in folder.rglob(f"*{suffix}")
        if path.is_dir() == (platform == "darwin") and not path.name.startswith("UnityCrashHandler")
    ]
    if not found:
        raise UnityEnvironmentException(
            f"the archive contains no build for this platform: expected a file ending in {suffix}, "
            f"got {sorted(path.name for path in folder.iterdir())[:5]} at its top"
        )
    return min(found, key=lambda path: (len(path.parts), path))


def _fetch(url: str, sha256: str | None, folder: Path, platform: str) -> None:
    """Download and unpack a build, and move it into place once it is complete."""
    part = folder.with_suffix(".part")
    for leftover in (folder, part):
        if leftover.exists():
            logger.warning("%s is incomplete and is removed.", leftover)
            shutil.rmtree(leftover)
    part.mkdir()
    try:
        archive = part / _ARCHIVE
        logger.info("Downloading %s", url)
        with open(archive, "wb") as file:
            found = download(url, file, max_bytes=MAX_DOWNLOAD_BYTES)
        if sha256 is None:
            logger.warning("%s is not checked against a SHA-256 checksum.", url)
        elif found != sha256:
            raise UnityEnvironmentException(
                f"{url} has the SHA-256 {found}, expected {sha256}. If the archive was updated, "
                "update the checksum."
            )
        unpacked = part / _UNPACKED
        unpacked.mkdir()
        sizes = unpack(archive, unpacked / _BUILD)
        _allow_execution(find_build(unpacked / _BUILD, platform=platform))
        (unpacked / _CONTENTS).write_text(json.dumps(sizes), encoding="utf-8")
        unpacked.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _allow_execution(build: Path) -> None:
    """Make a build executable; archives made on Windows do not store that permission."""
    programs = build.glob("Contents/MacOS/*") if build.is_dir() else [build]
    for program in programs:
        program.chmod(0o755)


def _is_whole(folder: Path) -> bool:
    """Return whether all files of a finished build exist and have their recorded size."""
    try:
        sizes = json.loads((folder / _CONTENTS).read_text(encoding="utf-8"))
        build = folder / _BUILD
        return all((build / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _make_own_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.platform != "win32" and folder.stat().st_uid not in (0, os.geteuid()):
        raise PermissionError(
            "it belongs to another user, who could replace what is executed from it; choose "
            "another folder with tmp_dir"
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the system releases it when the process ends."""
    with open(path, "ab") as file:
        _lock(file)
        yield


if sys.platform == "win32":
    import msvcrt

    def _lock(file: BinaryIO) -> None:
        file.seek(0)
        while True:
            with contextlib.suppress(OSError):  # still locked after ten seconds
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return
else:
    import fcntl

    def _lock(file: BinaryIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("Waiting for another process that uses %s", file.name)
            fcntl.flock(file, fcntl.LOCK_EX)
