"""Manifests: YAML files that list environments to download."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.programs import pip_install
from mlagents_envs.registry.download import download, is_http
from mlagents_envs.registry.remote_registry_entry import RemoteRegistryEntry

_MAX_BYTES = 1 << 20
_PLATFORMS = ("linux", "darwin", "win")
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "expected_reward": (int, float),
    "description": (str,),
    **{f"{platform}_url": (str,) for platform in _PLATFORMS},
    **{f"{platform}_sha256": (str,) for platform in _PLATFORMS},
    "additional_args": (list,),
    "tmp_dir": (str,),
}


def read_manifest(path_or_url: str, *, allow_unverified: bool = False) -> list[RemoteRegistryEntry]:
    """Read a manifest.

        environments:
          - Maze:
              expected_reward: 10.0
              description: Find the way out.
              linux_url: https://example.org/maze-linux.zip
              linux_sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

    Args:
        path_or_url: Path of a file, or its HTTP or HTTPS address.
        allow_unverified: Whether to run archives for which the manifest has no SHA-256.

    Raises:
        UnityEnvironmentException: The file cannot be read or is not a manifest, or PyYAML is not
            installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UnityEnvironmentException(
            f"reading a manifest requires PyYAML. Install it: {pip_install('PyYAML')}"
        ) from error
    text = _download(path_or_url) if is_http(path_or_url) else _read(path_or_url)
    try:
        written = yaml.safe_load(text)
        return _entries(written, allow_unverified)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnityEnvironmentException(f"manifest {path_or_url}: {error}") from error


def _download(url: str) -> bytes:
    text = io.BytesIO()
    download(url, text, max_bytes=_MAX_BYTES)
    return text.getvalue()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnityEnvironmentException(f"manifest {path} cannot be read: {error}") from error


def _entries(written: Any, allow_unverified: bool) -> list[RemoteRegistryEntry]:
    listed = written.get("environments") if isinstance(written, dict) else None
    if not isinstance(listed, list):
        raise ValueError("expected a list under the key 'environments'")
    entries = []
    for number, item in enumerate(listed):
        if not isinstance(item, dict) or len(item) != 1:
            raise ValueError(f"environments[{number}]: expected one name with fields below it")
        ((identifier, fields),) = item.items()
        if not isinstance(identifier, str) or not isinstance(fields, dict):
            raise ValueError(f"environments[{number}]: expected one name with fields below it")
        arguments = {name: value for name, value in fields.items() if value is not None}
        for name, value in arguments.items():
            _check(f"environments[{number}] ({identifier})", name, value)
        entries.append(
            RemoteRegistryEntry(
                identifier,
                arguments.pop("expected_reward", None),
                arguments.pop("description", None),
                **arguments,
                allow_unverified=allow_unverified,
            )
        )
    return entries


def _check(where: str, name: Any, value: Any) -> None:
    if name not in _FIELDS:
        raise ValueError(f"{where}: unknown field {name!r}; expected one of {', '.join(_FIELDS)}")
    if not isinstance(value, _FIELDS[name]):
        expected = " or ".join(kind.__name__ for kind in _FIELDS[name])
        raise ValueError(f"{where}: {name} must be {expected}, not {type(value).__name__}")
    if isinstance(value, list) and not all(isinstance(argument, str) for argument in value):
        raise ValueError(f"{where}: additional_args must be a list of str; put numbers in quotes")
