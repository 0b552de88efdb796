"""What `--env` means: from its text to a function that makes the environment of a worker."""

import difflib
import functools
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.parameters import ConstantParameters
from mlagents.trainers.settings.run_options import EngineSettings, RunOptions
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.launcher import find_executable
from mlagents_envs.registry import default_registry
from mlagents_envs.registry.remote_registry_entry import RemoteRegistryEntry
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel

EnvironmentMaker = Callable[[int], BaseEnv]
"""Makes the environment of a worker, counted from 0."""


def environment_maker(options: RunOptions, *, log_folder: Path) -> EnvironmentMaker:
    """Find out what `--env` names.

    Nothing is the Unity Editor; else, in this order: `gym:<id>` for a Gymnasium environment,
    `module:function`, an executable, a registered name. So a build of one's own is never mistaken
    for a world of the same name.

    Args:
        options: Of the run, with its seed drawn; worker k is seeded with that plus k.
        log_folder: Where players log.

    Raises:
        TrainerConfigError: It names nothing; the text lists what is near.
        UnityEnvironmentException: It is a path, and there is nothing to execute.
    """
    name = options.env_settings.env_path
    if name is None:
        return _player_maker(options, UnityEnvironment)  # which listens for the Editor
    if name.startswith("gym:"):
        return _factory_maker(options, _gymnasium_factory(name))
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        return _factory_maker(options, _import_factory(name))
    try:
        find_executable(name)
    except UnityEnvironmentException:
        if name in default_registry:
            entry = default_registry[name]
            if isinstance(entry, RemoteRegistryEntry):
                return _player_maker(options, entry.make, log_folder)
            return _factory_maker(options, entry.make)
        if Path(name).name != name or Path(name).exists():
            raise  # a path: what is wrong with the file is the better answer
        raise TrainerConfigError(_unknown(name)) from None
    return _player_maker(options, functools.partial(UnityEnvironment, name), log_folder)


def _player_maker(
    options: RunOptions, start: Callable[..., BaseEnv], log_folder: Path | None = None
) -> EnvironmentMaker:
    """Make what `start` makes of the arguments of `UnityEnvironment`.

    Args:
        options: Of the run.
        start: Takes all of them but the file's name.
        log_folder: Where players log; None for the Editor, which has a log and a port of its own.
    """
    environment, engine = options.env_settings, options.engine_settings

    def make(worker: int) -> BaseEnv:
        engine_channel = EngineConfigurationChannel()
        engine_channel.set_configuration(_engine_config(engine))
        parameters_channel = EnvironmentParametersChannel()
        for name, value in _constants(options).items():
            parameters_channel.set_float_parameter(name, value)
        return start(
            worker_id=worker,
            base_port=None if log_folder is None else environment.base_port,
            seed=environment.seed + worker,
            no_graphics=engine.no_graphics,
            no_graphics_monitor=engine.no_graphics_monitor,
            timeout_wait=environment.timeout_wait,
            additional_args=list(environment.env_args or ()),
            side_channels=[engine_channel, parameters_channel],
            log_folder=None if log_folder is None else str(log_folder.absolute()),
            num_areas=environment.num_areas,
        )

    return make


def _factory_maker(options: RunOptions, factory: Callable[..., Any]) -> EnvironmentMaker:
    environment = options.env_settings

    def make(worker: int) -> BaseEnv:
        return call_factory(
            factory,
            worker_id=worker,
            seed=environment.seed + worker,
            num_areas=environment.num_areas,
            parameters=_constants(options),
        )

    return make


def call_factory(factory: Callable[..., Any], **offered: Any) -> BaseEnv:
    """Call an environment factory with those of the offered keywords that it takes.

    Raises:
        TrainerConfigError: It wants something else, or does not return a `BaseEnv`.
    """
    try:
        signature = inspect.signature(factory)
        if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            offered = {key: offered[key] for key in signature.parameters if key in offered}
        signature.bind(**offered)
    except (TypeError, ValueError) as error:
        raise TrainerConfigError(
            f"--env: {factory!r} cannot be called: {error}. It may take worker_id, seed, num_areas "
            "and parameters, by name, and nothing else without a default."
        ) from error
    env = factory(**offered)
    if not isinstance(env, BaseEnv):
        raise TrainerConfigError(
            f"--env: {factory!r} returned a {type(env).__name__}; a mlagents_envs.base_env.BaseEnv "
            "is needed."
        )
    return env


def _constants(options: RunOptions) -> dict[str, float]:
    """Return the environment parameters that are constants."""
    first_values = {
        name: parameter.curriculum[0].value.sampler_parameters
        for name, parameter in (options.environment_parameters or {}).items()
    }
    return {
        name: sampler.value
        for name, sampler in first_values.items()
        if isinstance(sampler, ConstantParameters)
    }


def _engine_config(engine: EngineSettings) -> EngineConfig:
    return EngineConfig(
        width=engine.width,
        height=engine.height,
        quality_level=engine.quality_level,
        time_scale=engine.time_scale,
        target_frame_rate=engine.target_frame_rate,
        capture_frame_rate=engine.capture_frame_rate,
    )


def _import_factory(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TrainerConfigError(
            f"--env {name}: {error}. The module must be importable: installed, or on PYTHONPATH."
        ) from error
    factory: Callable[..., Any] | None = getattr(module, function_name, None)
    if factory is None:
        near = difflib.get_close_matches(function_name, dir(module))
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise TrainerConfigError(
            f"--env {name}: module {module_name} has no {function_name}.{hint}"
        )
    return factory


def _gymnasium_factory(name: str) -> Callable[..., Any]:
    try:
        from mlagents_envs.envs.from_gymnasium import make_from_gymnasium
    except ModuleNotFoundError as error:
        raise TrainerConfigError(f"--env {name}: {error}") from error
    return functools.partial(make_from_gymnasium, name.removeprefix("gym:"))


def _unknown(name: str) -> str:
    known = sorted(default_registry)
    near = difflib.get_close_matches(name, known, cutoff=0.4)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"--env {name}: there is no executable and no registered environment of that name.{hint} "
        f"Registered: {', '.join(known)}. Otherwise give the path of a build, module:function, "
        "or gym: and the id of a Gymnasium environment."
    )
