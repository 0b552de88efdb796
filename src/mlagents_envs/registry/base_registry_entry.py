"""`BaseRegistryEntry`: an environment known by name, made when asked."""

from abc import ABC, abstractmethod
from typing import Any

from mlagents_envs.base_env import BaseEnv


class BaseRegistryEntry(ABC):
    """What a registry knows of an environment before it is made.

    Args:
        identifier: Its name, unique within a registry.
        expected_reward: The mean reward per episode that a good policy reaches; None if unknown.
        description: What it is, in a sentence or two.
    """

    only_computes = False
    """Whether what is made waits for nothing, so that more of them at once than there are cores
    are no faster."""

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
        """The environment's name."""
        return self._identifier

    @property
    def expected_reward(self) -> float | None:
        """The mean reward per episode that a good policy reaches; None if unknown."""
        return self._expected_reward

    @property
    def description(self) -> str | None:
        """What the environment is."""
        return self._description

    @abstractmethod
    def make(self, **kwargs: Any) -> BaseEnv:
        """Make the environment.

        Args:
            kwargs: What the environment takes; `seed` and `num_areas` at least.
        """
