"""Registry of environments by name.

from mlagents_envs.registry import default_registry
env = default_registry["3DBall"].make()
"""

from mlagents_envs.registry.base_registry_entry import BaseRegistryEntry
from mlagents_envs.registry.build_registry_entry import BuildRegistryEntry, LocalRegistryEntry
from mlagents_envs.registry.remote_registry_entry import RemoteRegistryEntry
from mlagents_envs.registry.unity_env_registry import ENTRY_POINT_GROUP, UnityEnvRegistry

default_registry = UnityEnvRegistry(ENTRY_POINT_GROUP)
"""Registry with the environments of installed packages, and those that you register."""

__all__ = [
    "BaseRegistryEntry",
    "BuildRegistryEntry",
    "LocalRegistryEntry",
    "RemoteRegistryEntry",
    "UnityEnvRegistry",
    "default_registry",
]
