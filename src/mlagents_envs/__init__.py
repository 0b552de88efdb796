"""Environments of ML-Agents: `BaseEnv`, `UnityEnvironment`, the wire protocol, and wrappers.

Importing the package itself loads no dependencies. Import from its modules, mostly
`mlagents_envs.base_env` and `mlagents_envs.environment`.
"""

__version__ = "2.0.0.dev0"
