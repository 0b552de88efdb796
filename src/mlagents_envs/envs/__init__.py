"""Environments of this package in Gymnasium and PettingZoo, and theirs in this package.

Importing the package makes every name of `mlagents_envs.registry.default_registry` known to
Gymnasium; the environments themselves are imported when they are made.

    import gymnasium
    import mlagents_envs.envs

    env = gymnasium.make("mlagents/3DBall-v0")
    envs = gymnasium.make_vec("mlagents/3DBall-v0", num_envs=12)

An id may name the package to import, and then needs no import of its own:
`gymnasium.make("mlagents_envs.envs:mlagents/3DBall-v0")`.

For PettingZoo the package has a factory per name, as in
`from mlagents_envs.envs import ThreeDBall`; `ThreeDBall.parallel_env()` makes 3DBall.
"""

from typing import Any

from mlagents_envs.envs.extras import needs
from mlagents_envs.registry import default_registry

with needs("gymnasium", extra="gym"):
    from mlagents_envs.envs.registration import register_environments

__all__ = ["register_environments"]

register_environments()


def __getattr__(name: str) -> Any:
    """Return the `PettingZooEnvFactory` of a registered environment.

    It is called as the environment, with `Three` for every 3 if that begins with a digit.
    """
    for env_id in default_registry:
        if name == (env_id.replace("3", "Three") if env_id[0].isdigit() else env_id):
            from mlagents_envs.envs.pettingzoo_env_factory import PettingZooEnvFactory

            return PettingZooEnvFactory(env_id)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
