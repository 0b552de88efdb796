"""Registered environments as `gymnasium.make("mlagents/<name>-v0")` and `gymnasium.make_vec`."""

import functools
import math
from contextlib import closing
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from mlagents_envs.base_env import BaseEnv
from mlagents_envs.envs.unity_gym_env import UnityToGymWrapper
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv
from mlagents_envs.logging_util import get_logger
from mlagents_envs.registry import default_registry

logger = get_logger(__name__)

NAMESPACE = "mlagents"


def register_environments() -> None:
    """Register every name of `default_registry` in Gymnasium as `mlagents/<name>-v0`.

    Call it again after you have registered your own environments. Names that are already registered
    are skipped. Names that do not form a valid id are skipped with a warning.
    """
    for identifier, entry in default_registry.items():
        env_id = f"{NAMESPACE}/{identifier}-v0"
        if env_id in gymnasium.registry:
            continue
        try:
            gymnasium.register(
                env_id,
                entry_point=f"{__name__}:make_env",
                vector_entry_point=f"{__name__}:make_vector_env",
                reward_threshold=entry.expected_reward,
                kwargs={"identifier": identifier},
            )
        except gymnasium.error.Error as error:
            logger.warning("%r was not registered in Gymnasium: %s", identifier, error)


def make_env(
    identifier: str,
    *,
    uint8_visual: bool = False,
    flatten_branched: bool = False,
    allow_multiple_obs: bool = False,
    action_space_seed: int | None = None,
    render_mode: str | None = None,
    behavior_name: str | None = None,
    **arguments: Any,
) -> UnityToGymWrapper:
    """Create an environment of one agent of a registered environment; other agents stay idle.

    `UnityToGymWrapper` documents the arguments from `uint8_visual` to `behavior_name`.

    Args:
        identifier: Name of the environment in `default_registry`.
        uint8_visual: Whether images are uint8.
        flatten_branched: Whether several discrete branches become a single one.
        allow_multiple_obs: Whether the observation is a tuple of all observations.
        action_space_seed: Seed of `action_space.sample()`.
        render_mode: Render mode, `rgb_array` or None.
        behavior_name: Behavior of the agent.
        arguments: Arguments for the environment itself, for example `parameters`.
    """
    return UnityToGymWrapper(
        functools.partial(default_registry[identifier].make, **arguments),
        uint8_visual,
        flatten_branched,
        allow_multiple_obs,
        action_space_seed,
        render_mode=render_mode,
        ignore_other_agents=True,
        behavior_name=behavior_name,
    )


def make_vector_env(
    num_envs: int,
    identifier: str,
    *,
    behavior_name: str | None = None,
    flatten_obs: bool = False,
    uint8_visual: bool = False,
    flatten_branched: bool = False,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    **arguments: Any,
) -> UnityVectorEnv:
    """Create a vector environment of `num_envs` agents of a registered environment.

    The scene has as many areas as these agents need. Agents beyond `num_envs` stay idle.
    `UnityVectorEnv` documents the arguments from `behavior_name` to `autoreset_mode`.

    Args:
        num_envs: Number of agents to control.
        identifier: Name of the environment in `default_registry`.
        behavior_name: Behavior of the agents.
        flatten_obs: Whether all observations become one vector.
        uint8_visual: Whether images are uint8.
        flatten_branched: Whether several discrete branches become a single one.
        render_mode: Render mode, `rgb_array` or None.
        autoreset_mode: Step in which the next episode begins.
        arguments: Arguments for the environment itself, for example `parameters`. Without
            `num_areas`, the number of areas is determined from a trial environment.
    """
    make = functools.partial(default_registry[identifier].make, **arguments)
    if "num_areas" not in arguments:
        with closing(make(num_areas=1)) as area:
            make.keywords["num_areas"] = math.ceil(num_envs / _count_agents(area, behavior_name))
    return UnityVectorEnv(
        make,
        behavior_name=behavior_name,
        agents_per_env=num_envs,
        flatten_obs=flatten_obs,
        uint8_visual=uint8_visual,
        flatten_branched=flatten_branched,
        render_mode=render_mode,
        autoreset_mode=autoreset_mode,
    )


def _count_agents(env: BaseEnv, behavior_name: str | None) -> int:
    with closing(UnityVectorEnv(env, behavior_name=behavior_name)) as agents:
        return agents.num_envs
