"""The environment side of ML-Agents: vocabulary, wire, `UnityEnvironment` and wrappers.

Importing the package loads nothing heavy; import what you need from its modules, first of all
`mlagents_envs.base_env` and `mlagents_envs.environment`.
"""

__version__ = "2.0.0.dev0"
