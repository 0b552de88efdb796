"""Wrappers between the environments of this package and those of Gymnasium and PettingZoo.

Importing this package registers every name of `mlagents_envs.registry.default_registry` in
Gymnasium. The modules of the environments are imported when an environment is created.

    import gymnasium
    import mlagents_envs.envs

    env = gymnasium.make("mlagents/3DBall-v0")
    envs = gymnasium.make_vec("mlagents/3DBall-v0", num_envs=12)

If an id names the package, the import is not needed:
`gymnasium.make("mlagents_envs.envs:mlagents/3DBall-v0")`.

For PettingZoo, the package has a factory for each environment:
`from mlagents_envs.envs import ThreeDBall`; `ThreeDBall.parallel_env()` creates 3DBall.
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

    The factory has the name of the environment. If the name begins with a digit, `Three` replaces
    every 3.
    """
    for env_id in default_registry:
        if name == (env_id.replace("3", "Three") if env_id[0].isdigit() else env_id):
            from mlagents_envs.envs.pettingzoo_env_factory import PettingZooEnvFactory

            return PettingZooEnvFactory(env_id)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
