"""Checks of folder names, and folders that were downloaded."""

import re
import sys
from pathlib import Path

_LONGEST_NAME_BYTES = 200
"""Most systems allow 255; file names begin with the folder name, so they are longer."""

_NOT_ON_WINDOWS = re.compile(
    r'[<>:"|?*]|\.$|(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?$', re.IGNORECASE
)
"""Characters, endings and names that Windows reserves."""


def folder_name_problem(name: str, *, platform: str = sys.platform) -> str:
    """Return the reason why a name cannot be used for a folder; empty if it can.

    Args:
        name: Untrusted name.
        platform: Platform, as in `sys.platform`.
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
        return f"it is {len(name.encode())} bytes long; the limit is {_LONGEST_NAME_BYTES}"
    if platform == "win32" and _NOT_ON_WINDOWS.search(name):
        return "Windows does not allow such a name"
    return ""


DOWNLOADED = ".mlagents-downloaded"
"""Name of the file that marks a folder as downloaded."""


def downloaded_folder(path: Path) -> Path | None:
    """Return the downloaded folder that is or contains a path; None if there is none."""
    place = path.resolve()
    for folder in (place, *place.parents):
        if (folder / DOWNLOADED).exists():
            return folder
    return None
