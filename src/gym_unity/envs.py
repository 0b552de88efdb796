"""`UnityToGymWrapper` for programs that import it from here: it speaks the API of `gym`.

New programs import `mlagents_envs.envs.unity_gym_env`, whose wrapper is a `gymnasium.Env`.
"""

import warnings
from typing import Any

from mlagents_envs.envs import unity_gym_env
from mlagents_envs.envs.unity_gym_env import ActionFlattener, UnityGymException

__all__ = ["ActionFlattener", "UnityGymException"]


class _UnityToGymWrapper(unity_gym_env.UnityToGymWrapper):
    __doc__ = unity_gym_env.UnityToGymWrapper.__doc__

    def __init__(self, *arguments: Any, legacy_api: bool = True, **keywords: Any) -> None:
        super().__init__(*arguments, legacy_api=legacy_api, **keywords)


_UnityToGymWrapper.__name__ = _UnityToGymWrapper.__qualname__ = "UnityToGymWrapper"


def __getattr__(name: str) -> Any:
    if name != "UnityToGymWrapper":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "gym_unity.envs is deprecated. Import UnityToGymWrapper from "
        "mlagents_envs.envs.unity_gym_env; with legacy_api=True it behaves as here.",
        DeprecationWarning,
        stacklevel=2,
    )
    return _UnityToGymWrapper
