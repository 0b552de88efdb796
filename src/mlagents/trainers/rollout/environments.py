"""What `--env` means: from its text to a function that makes the environment of a worker."""

import difflib
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.launcher import find_executable
from mlagents_envs.registry import default_registry
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel

EnvironmentMaker = Callable[[int], BaseEnv]
"""Makes the environment of a worker, counted from 0."""


def environment_maker(
    options: RunOptions, *, seed: int, parameters: dict[str, float], log_folder: Path
) -> EnvironmentMaker:
    """Find out what kind of environment `--env` names.

    In this order: nothing (the Unity Editor), `module:function`, an executable, a registered name.

    Args:
        options: Of the run.
        seed: Of the run; worker k is seeded with `seed + k`.
        parameters: Values of environment parameters, set before the first reset.
        log_folder: Where players log.

    Raises:
        TrainerConfigError: It names nothing; the text lists what is near.
    """
    name = options.env_settings.env_path
    if name is not None and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        factory = _import_factory(name)
    elif name is None or (executable := _find_executable(name)) is not None:
        return _player_maker(
            options,
            executable=None if name is None else str(executable),
            seed=seed,
            parameters=parameters,
            log_folder=log_folder,
        )
    elif name in default_registry:
        factory = default_registry[name].make
    else:
        raise TrainerConfigError(_unknown(name))

    def make(worker: int) -> BaseEnv:
        return call_factory(
            factory,
            worker_id=worker,
            seed=seed + worker,
            num_areas=options.env_settings.num_areas,
            parameters=parameters,
        )

    return make


def call_factory(factory: Callable[..., Any], **offered: Any) -> BaseEnv:
    """Call an environment factory with those of the offered keywords that it takes.

    Raises:
        TrainerConfigError: What it returns is not a `BaseEnv`.
    """
    takes = inspect.signature(factory).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values()):
        offered = {name: value for name, value in offered.items() if name in takes}
    env = factory(**offered)
    if not isinstance(env, BaseEnv):
        raise TrainerConfigError(
            f"--env: {factory!r} returned a {type(env).__name__}, not a mlagents_envs.BaseEnv."
        )
    return env


def _import_factory(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise TrainerConfigError(
            f"--env {name}: {error}. The module must be importable: installed, or on PYTHONPATH."
        ) from error
    try:
        factory: Callable[..., Any] = getattr(module, function_name)
    except AttributeError:
        near = difflib.get_close_matches(function_name, dir(module))
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise TrainerConfigError(
            f"--env {name}: module {module_name} has no {function_name}{hint}"
        ) from None
    return factory


def _find_executable(name: str) -> Path | None:
    raise NotImplementedError


def _unknown(name: str) -> str:
    known = sorted(default_registry)
    near = difflib.get_close_matches(name, known, cutoff=0.4)
    return (
        f"--env {name}: no executable of that name, and no registered environment. "
        f"{'Did you mean ' + ' or '.join(near) + '? ' if near else ''}"
        f"Registered: {', '.join(known)}. Otherwise give the path of a build, or module:function."
    )
