"""`RemoteRegistryEntry`: a build that is downloaded when it is first used."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.registry.binary_utils import default_cache_folder, local_build
from mlagents_envs.registry.build_registry_entry import BuildRegistryEntry
from mlagents_envs.registry.download import is_http


class RemoteRegistryEntry(BuildRegistryEntry):
    """Registry entry of a build on the network, which is downloaded once.

        entry = RemoteRegistryEntry(
            "Maze", 10.0, "Find the way out.",
            linux_url="https://example.org/maze-linux.zip",
            linux_sha256="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        )
        env = entry.make(seed=1, no_graphics=True)

    Since the downloaded build is executed, the entry needs the SHA-256 of the archive, which
    `sha256sum` prints. To trust the server instead, set `allow_unverified`.

    Args:
        identifier: Name of the environment, unique within a registry.
        expected_reward: Mean reward per episode that a good policy reaches; None if unknown.
        description: Description of the environment, in a sentence or two.
        linux_url: HTTP or HTTPS address of a ZIP archive with the build for Linux.
        darwin_url: Address of the archive for macOS.
        win_url: Address of the archive for Windows.
        additional_args: More arguments for the player, after those passed to `make`.
        tmp_dir: Folder whose subfolder `ml-agents-binaries` stores builds; by default the user's
            cache folder.
        linux_sha256: SHA-256 of the archive for Linux, in hexadecimal.
        darwin_sha256: SHA-256 of the archive for macOS.
        win_sha256: SHA-256 of the archive for Windows.
        allow_unverified: Whether to run an archive for which no SHA-256 is given.

    Raises:
        ValueError: An address is not an HTTP or HTTPS address, or a SHA-256 does not have 64
            hexadecimal digits.
    """

    def __init__(
        self,
        identifier: str,
        expected_reward: float | None,
        description: str | None,
        linux_url: str | None = None,
        darwin_url: str | None = None,
        win_url: str | None = None,
        additional_args: Sequence[str] | None = None,
        tmp_dir: str | None = None,
        *,
        linux_sha256: str | None = None,
        darwin_sha256: str | None = None,
        win_sha256: str | None = None,
        allow_unverified: bool = False,
    ) -> None:
        super().__init__(identifier, expected_reward, description, additional_args)
        self._archives = {
            "linux": (linux_url, linux_sha256),
            "darwin": (darwin_url, darwin_sha256),
            "win": (win_url, win_sha256),
        }
        for name, (url, sha256) in self._archives.items():
            if url is not None and not is_http(url):
                raise ValueError(f"{identifier!r}: {name}_url {url!r} is not an HTTP address")
            if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
                raise ValueError(
                    f"{identifier!r}: {name}_sha256 {sha256!r} is not 64 hexadecimal digits"
                )
        self._tmp_dir = tmp_dir
        self._allow_unverified = allow_unverified

    def fetch(self) -> Path:
        """Return the build's executable, after downloading it if it is not in the cache.

        Raises:
            FileNotFoundError: The entry has no address for this platform.
            UnityEnvironmentException: The entry has no SHA-256 for this platform and
                `allow_unverified` is false; the download fails or its checksum differs; the
                archive cannot be unpacked or contains no build.
        """
        name = {"darwin": "darwin", "win32": "win"}.get(sys.platform, "linux")
        url, sha256 = self._archives[name]
        if url is None:
            raise FileNotFoundError(
                f"{self.identifier!r} has no build for this platform: its {name}_url is missing"
            )
        if sha256 is None and not self._allow_unverified:
            raise UnityEnvironmentException(
                f"{self.identifier!r} was not downloaded: it has no {name}_sha256 to verify {url}. "
                "Add the checksum. To run whatever the server sends, set allow_unverified=True "
                "when you register the entry or its manifest."
            )
        cache = default_cache_folder()
        if self._tmp_dir is not None:
            cache = Path(self._tmp_dir) / cache.name
        return local_build(
            self.identifier, url, sha256=sha256.lower() if sha256 else None, cache=cache
        )
