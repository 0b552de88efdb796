"""Sets a setting by its path in a file, such as `behaviors.3DBall.max_steps`."""

import copy
from collections.abc import Iterator
from typing import Any

from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.reading import Written


def put(written: Written, path: str, value: Any) -> tuple[str, ...]:
    """Set the value at a path, creating missing sections.

    In a list, a number in the path is an index, from 0.

    Args:
        written: Content of a file, changed in place.
        path: Keys, joined by dots. Keys of the file may contain dots, as in names of behaviors.
        value: Value to set. It is copied.

    Returns:
        Keys of the topmost setting that was created or replaced.

    Raises:
        ValueError: The path leads through a value that is not a section, or beyond a list.
    """
    section: Any = written
    keys = list(_keys(written, path))
    owned = len(keys)
    for depth, key in enumerate(keys):
        where = ".".join(keys[:depth])
        if isinstance(section, list):
            if not (key.isdecimal() and int(key) < len(section)):
                raise ValueError(f"{where} is a list of {len(section)}: there is no item {key!r}")
        elif not isinstance(section, dict):
            raise ValueError(f"{where} is {quoted(section)}, not a section")
        at: Any = int(key) if isinstance(section, list) else _own_key(section, key)
        if depth == len(keys) - 1:
            section[at] = copy.deepcopy(value)
        elif isinstance(section, dict) and at not in section:
            owned = min(owned, depth + 1)
            section = section.setdefault(at, {})
        else:
            section = section[at]
    return tuple(keys[:owned])


def _own_key(section: dict[Any, Any], key: str) -> Any:
    """Return a key as it is in the file, where YAML may have read the name as a number."""
    return next((own for own in section if str(own) == key), key)


def _keys(written: Written, path: str) -> Iterator[str]:
    """Split a path at its dots, except at dots within a key of the file, such as a behavior."""
    section: Any = written
    while path:
        own = section if isinstance(section, dict) else {}
        known = [str(key) for key in own if path == str(key) or path.startswith(f"{key}.")]
        key = max(known, key=len, default=path.partition(".")[0])
        yield key
        if isinstance(section, list):
            is_place = key.isdecimal() and int(key) < len(section)
            section = section[int(key)] if is_place else None
        else:
            section = own.get(_own_key(own, key))
        path = path[len(key) + 1 :]
