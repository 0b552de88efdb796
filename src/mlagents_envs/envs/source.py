"""`EnvSource`: an environment that `reset` can seed, if a function to make it was given."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.checked_env import checked, is_environment, missing_in
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

EnvMaker = Callable[..., BaseEnv]
"""Function that makes an environment; takes the keyword `seed`, a 31-bit number."""

MAX_SILENT_STEPS = 10_000
"""Steps after which a wrapper gives up if none of its agents asks for an action or ends."""


def no_options(options: Mapping[str, Any]) -> str:
    """Return an error text: `reset` takes no options, and where to set parameters instead."""
    return (
        f"reset(options={dict(options)!r:.100}): this environment takes no options. Environment "
        "parameters are set through an EnvironmentParametersChannel, or where the environment is "
        "made."
    )


class EnvSource:
    """The environment of a wrapper: given, or made by a function from a seed.

    A `BaseEnv` takes its seed when it is made. If a function was given, `reset` with a seed makes
    a new environment. If an environment was given, `reset` cannot seed it and logs a warning.

    Args:
        env: Environment, or function that makes one.
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
                f"expected an environment, or a function that makes one, got {env!r:.80}. A "
                f"BaseEnv has {', '.join(missing_in(env))}; this object does not."
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
        """Close an environment that was made here; an environment that was given stays open."""
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
                    "reset(seed=%d) does not seed this environment: its seed was set when it was "
                    "made. Pass a function that makes it instead, for example "
                    'lambda seed: UnityEnvironment("build", seed=seed).',
                    seed,
                )
        self.env.reset()
