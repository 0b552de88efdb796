"""`UnityEnvRegistry`: environments by name, including those of installed packages."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points

from mlagents_envs.logging_util import get_logger
from mlagents_envs.registry.base_registry_entry import BaseRegistryEntry
from mlagents_envs.registry.manifest import read_manifest
from mlagents_envs.suggestions import did_you_mean

logger = get_logger(__name__)

ENTRY_POINT_GROUP = "mlagents.environments"


class UnityEnvRegistry(Mapping[str, BaseRegistryEntry]):
    """Mapping from identifiers to entries, whose method `make` creates the environment.

        env = default_registry["3DBall"].make(seed=1)

    A package provides environments through an entry point, which names a function that takes no
    arguments and returns `BaseRegistryEntry` objects. Entry points are loaded at the first lookup.
    If one fails, it is logged and skipped. An entry that you register takes precedence over a
    package's entry with the same identifier.

    The network is used only if a manifest with an HTTP address is registered, and then only at
    the next lookup.

    Args:
        entry_point_group: Group of the entry points to load; None to load none.
    """

    def __init__(self, entry_point_group: str | None = None) -> None:
        self._entry_point_group = entry_point_group
        self._entries: dict[str, BaseRegistryEntry] = {}
        self._to_register: list[Callable[[], Iterable[BaseRegistryEntry]]] = []

    def register(self, new_entry: BaseRegistryEntry) -> None:
        """Add an entry. It replaces an existing entry with the same identifier."""
        self._to_register.append(lambda: [new_entry])

    def register_from_yaml(self, path_to_yaml: str, *, allow_unverified: bool = False) -> None:
        """Add the entries of a manifest; see `register`.

        The manifest is read at the next lookup. If it cannot be read, every lookup raises
        `UnityEnvironmentException` until it can.

        Args:
            path_to_yaml: Path of a YAML file, or its HTTP or HTTPS address.
            allow_unverified: Whether to run archives for which the manifest has no SHA-256.
        """
        self._to_register.append(
            functools.partial(read_manifest, path_to_yaml, allow_unverified=allow_unverified)
        )

    def clear(self) -> None:
        """Remove all entries, including those of installed packages."""
        self._entry_point_group = None
        self._to_register.clear()
        self._entries.clear()

    def __getitem__(self, identifier: str) -> BaseRegistryEntry:
        self._catch_up()
        try:
            return self._entries[identifier]
        except KeyError:
            known = sorted(self._entries)
            raise KeyError(
                f"no environment is registered as {identifier!r}"
                f"{did_you_mean(identifier, known, n=3, cutoff=0.4) or f'; registered: {known}'}"
            ) from None

    def __len__(self) -> int:
        self._catch_up()
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        self._catch_up()
        return iter(self._entries)

    def _catch_up(self) -> None:
        """Load the entry points once, then add all pending entries in order."""
        if self._entry_point_group is not None:
            group, self._entry_point_group = self._entry_point_group, None
            for entry_point in entry_points(group=group):
                for entry in _load(entry_point):
                    self._entries.setdefault(entry.identifier, entry)
        while self._to_register:
            for entry in self._to_register[0]():
                self._entries[entry.identifier] = entry
            del self._to_register[0]


def _load(entry_point: EntryPoint) -> list[BaseRegistryEntry]:
    """Return the entries of an entry point; if it fails, log a warning and return none."""
    try:
        offered = list(entry_point.load()())
        strangers = [entry for entry in offered if not isinstance(entry, BaseRegistryEntry)]
        if strangers:
            raise TypeError(f"{strangers[0]!r} is not a BaseRegistryEntry")
    except Exception as error:
        logger.warning(
            "The environments of the entry point %s (%s) are skipped: %s: %s",
            entry_point.name,
            entry_point.value,
            type(error).__name__,
            error,
        )
        return []
    return offered
