"""Registry entries of builds, on this machine or on the network."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.launcher import find_executable
from mlagents_envs.registry.base_registry_entry import BaseRegistryEntry


class BuildRegistryEntry(BaseRegistryEntry):
    """Registry entry of a build, which runs as a `UnityEnvironment`.

    Args:
        identifier: Name of the environment, unique within a registry.
        expected_reward: Mean reward per episode that a good policy reaches; None if unknown.
        description: Description of the environment, in a sentence or two.
        additional_args: More arguments for the player, after those passed to `make`.
    """

    def __init__(
        self,
        identifier: str,
        expected_reward: float | None = None,
        description: str | None = None,
        additional_args: Sequence[str] | None = None,
    ) -> None:
        super().__init__(identifier, expected_reward, description)
        self._additional_args = list(additional_args or ())

    @abstractmethod
    def fetch(self) -> Path:
        """Return the build's executable on this machine.

        Raises:
            UnityEnvironmentException: The executable does not exist.
        """

    def make(self, **kwargs: Any) -> UnityEnvironment:
        """Start the build.

        Args:
            kwargs: Arguments of `UnityEnvironment`. A `file_name` is ignored; without a
                `base_port`, any free port is used.

        Raises:
            The errors of `fetch` and `UnityEnvironment`.
        """
        kwargs.pop("file_name", None)
        additional_args = [*(kwargs.pop("additional_args", None) or ()), *self._additional_args]
        kwargs = {"base_port": 0, **kwargs}
        return UnityEnvironment(str(self.fetch()), additional_args=additional_args, **kwargs)


class LocalRegistryEntry(BuildRegistryEntry):
    """Registry entry of a build on this machine.

        default_registry.register(LocalRegistryEntry("Maze", "builds/Maze"))

    Args:
        identifier: Name of the environment, unique within a registry.
        file_name: Path of the build, with or without the platform's suffix.
        expected_reward: Mean reward per episode that a good policy reaches; None if unknown.
        description: Description of the environment, in a sentence or two.
        additional_args: More arguments for the player, after those passed to `make`.
    """

    def __init__(
        self,
        identifier: str,
        file_name: str,
        expected_reward: float | None = None,
        description: str | None = None,
        additional_args: Sequence[str] | None = None,
    ) -> None:
        super().__init__(identifier, expected_reward, description, additional_args)
        self._file_name = file_name

    def fetch(self) -> Path:
        """Return the build's executable.

        Raises:
            UnityEnvironmentException: The executable does not exist or is not executable.
        """
        return find_executable(self._file_name)
