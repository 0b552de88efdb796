"""`BaseRegistryEntry`: an environment with a name, which `make` creates."""

from abc import ABC, abstractmethod
from typing import Any

from mlagents_envs.base_env import BaseEnv


class BaseRegistryEntry(ABC):
    """Name and description of an environment, and a method that creates it.

    Args:
        identifier: Name of the environment, unique within a registry.
        expected_reward: Mean reward per episode that a good policy reaches; None if unknown.
        description: Description of the environment, in a sentence or two.
    """

    only_computes = False
    """Whether the environment computes all the time and never waits, so that running more of them
    than there are cores is not faster."""

    def __init__(
        self,
        identifier: str,
        expected_reward: float | None = None,
        description: str | None = None,
    ) -> None:
        self._identifier = identifier
        self._expected_reward = expected_reward
        self._description = description

    @property
    def identifier(self) -> str:
        """Name of the environment."""
        return self._identifier

    @property
    def expected_reward(self) -> float | None:
        """Mean reward per episode that a good policy reaches; None if unknown."""
        return self._expected_reward

    @property
    def description(self) -> str | None:
        """Description of the environment."""
        return self._description

    @abstractmethod
    def make(self, **kwargs: Any) -> BaseEnv:
        """Create the environment.

        Args:
            kwargs: Arguments of the environment; every environment accepts `seed` and `num_areas`.
        """
