"""`PettingZooEnvFactory`: registered environments with the interface of PettingZoo's modules."""

import functools
from typing import Any

from mlagents_envs.envs.source import EnvMaker
from mlagents_envs.envs.unity_aec_env import UnityAECEnv
from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv
from mlagents_envs.registry import BuildRegistryEntry, default_registry
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel


class PettingZooEnvFactory:
    """Factory that creates a registered environment as a PettingZoo `AECEnv` or `ParallelEnv`.

        env = PettingZooEnvFactory("3DBall").parallel_env()

    Args:
        env_id: Name of the environment in `default_registry`.
    """

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    def env(self, seed: int | None = None, **kwargs: Any) -> UnityAECEnv:
        """Create the environment as an `AECEnv`, in which agents act one after the other.

        Args:
            seed: Seed of the environment and of the action spaces; random if None.
            kwargs: Arguments of the registry entry's `make`. Without `side_channels`, a build gets
                the channels for engine, parameters and statistics; see `side_channel`.

        Raises:
            KeyError: No environment of this name is registered.
        """
        return UnityAECEnv(self._maker(kwargs), seed)

    def parallel_env(self, seed: int | None = None, **kwargs: Any) -> UnityParallelEnv:
        """Create the environment as a `ParallelEnv`, in which all agents act at once; see `env`."""
        return UnityParallelEnv(self._maker(kwargs), seed)

    def _maker(self, kwargs: dict[str, Any]) -> EnvMaker:
        entry = default_registry[self.env_id]
        if isinstance(entry, BuildRegistryEntry):  # other entries may not accept the argument
            channels = EngineConfigurationChannel(), EnvironmentParametersChannel()
            side_channels = [*channels, StatsSideChannel()]
            kwargs = {"side_channels": side_channels, **kwargs}
        return functools.partial(entry.make, **kwargs)
