"""`EnvSource`: an environment that can begin anew from a seed, if somebody told how to make it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.checked_env import checked, is_environment, missing_in
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

EnvMaker = Callable[..., BaseEnv]
"""Makes an environment; takes the keyword `seed`, a number of 31 bits."""

MAX_SILENT_STEPS = 10_000
"""How often a wrapper steps an environment on in which none of its agents asks or ends."""


def no_options(options: Mapping[str, Any]) -> str:
    """Say that `reset` takes no options, and where what they are used for is set instead."""
    return (
        f"reset(options={dict(options)!r:.100}): this environment takes no options. Environment "
        "parameters are set through an EnvironmentParametersChannel, or where the environment is "
        "made."
    )


class EnvSource:
    """What a wrapper steps: an environment, or a function that makes one from a seed.

    A `BaseEnv` takes its seed when it is made. So `reset` with a seed makes another where a
    function was given, and cannot do what it is asked where an environment was given.

    Args:
        env: The environment, or the function.
        seed: For the function; random if None.

    Attributes:
        env: The environment of now.
    """

    def __init__(self, env: BaseEnv | EnvMaker, seed: int | None = None) -> None:
        self._make: EnvMaker | None = None
        if is_environment(env):
            self.env = checked(env)
        elif callable(env):
            self._make = env
            if seed is None:
                seed = int(np.random.SeedSequence().generate_state(1)[0])
            self.env = self._made(seed)
        else:
            raise UnityEnvironmentException(
                f"expected an environment, or a function that makes one, got {env!r:.80}. A "
                f"BaseEnv has {', '.join(missing_in(env))}; this has not."
            )
        self._has_warned = False

    def _made(self, seed: int) -> BaseEnv:
        assert self._make is not None
        env = self._make(seed=seed % 2**31)
        if not is_environment(env):
            raise UnityEnvironmentException(
                f"{self._make!r} made a {type(env).__name__}, which is not a BaseEnv: it lacks "
                f"{', '.join(missing_in(env))}"
            )
        return checked(env)

    def close_if_made(self) -> None:
        """Close what this made itself; an environment that was given stays open."""
        if self._make is not None:
            self.env.close()

    def reset(self, seed: int | None) -> None:
        """Begin all episodes anew, everything as it is under this seed if there is one."""
        if seed is not None:
            if self._make is not None:
                self.env.close()
                self.env = self._made(seed)
            elif not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "reset(seed=%d) does not seed this environment: it got its seed when it was "
                    "made. Pass a function that makes it instead, for example "
                    'lambda seed: UnityEnvironment("build", seed=seed).',
                    seed,
                )
        self.env.reset()
