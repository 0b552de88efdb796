"""`EnvSource`: the environment of a wrapper, which `reset` can seed if it is a function."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.checked_env import checked, is_environment, missing_in
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

EnvMaker = Callable[..., BaseEnv]
"""Function that creates an environment from the keyword `seed`, a 31-bit number."""

MAX_SILENT_STEPS = 10_000
"""Steps after which wrappers raise an error if no agent requests an action or ends its episode."""


def no_options(options: Mapping[str, Any]) -> str:
    """Return an error message for options, which says how to set parameters instead."""
    return (
        f"reset(options={dict(options)!r:.100}): this environment has no options. Set environment "
        "parameters through an EnvironmentParametersChannel, or when you create the environment."
    )


class EnvSource:
    """Environment of a wrapper, or function that creates it from a seed.

    A `BaseEnv` gets its seed when it is created. With a function, `reset` with a seed therefore
    creates a new environment. Without a function, `reset` cannot seed it and logs a warning.

    Args:
        env: Environment, or function that creates one and takes the keyword `seed`.
        seed: Seed for the function; random if None.

    Attributes:
        env: Current environment.
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
                f"expected a BaseEnv, or a function that creates one, got {env!r:.80}. It lacks "
                f"{', '.join(missing_in(env))}."
            )
        self._has_warned = False

    def _made(self, seed: int) -> BaseEnv:
        assert self._make is not None
        env = self._make(seed=seed % 2**31)
        if not is_environment(env):
            raise UnityEnvironmentException(
                f"{self._make!r} returned a {type(env).__name__}, expected a BaseEnv. It lacks "
                f"{', '.join(missing_in(env))}."
            )
        return checked(env)

    def close_if_made(self) -> None:
        """Close the environment if a function created it; otherwise the caller closes it."""
        if self._make is not None:
            self.env.close()

    def reset(self, seed: int | None) -> None:
        """Begin a new episode for every agent; with a seed, in a new environment if possible."""
        if seed is not None:
            if self._make is not None:
                self.env.close()
                self.env = self._made(seed)
            elif not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "reset(seed=%d) does not seed this environment, whose seed was set when it was "
                    "created. Pass a function that creates it instead, for example "
                    'lambda seed: UnityEnvironment("build", seed=seed).',
                    seed,
                )
        self.env.reset()
