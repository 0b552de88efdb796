"""Resolve names to builds, or to factories of environments in this process.

factory = find_factory("3DBall")  # a registered name, gym:<id> or module:function
env = call_factory(factory, seed=1)
"""

import functools
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Sequence, Set
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from mlagents_envs.base_env import BaseEnv, HasEightBitImages
from mlagents_envs.checked_env import is_environment, missing_in
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.folder_names import downloaded_folder
from mlagents_envs.launcher import find_executable
from mlagents_envs.registry import BuildRegistryEntry, UnityEnvRegistry, default_registry
from mlagents_envs.suggestions import did_you_mean

EnvironmentFactory = Callable[..., Any]
"""Function or class that creates a `BaseEnv` from some of the keywords of `call_factory`."""

GYMNASIUM = "gym:"


def is_factory_name(name: str) -> bool:
    """Return whether a name has the form `gym:<id>` or `module:function`."""
    return name.startswith(GYMNASIUM) or bool(re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name))


def find_build(name: str) -> Callable[..., UnityEnvironment] | None:
    """Find the function that starts a build.

    An executable takes precedence over a registered name, so that your own build is never mistaken
    for a world of the same name. A registered build is downloaded if it is not in the cache.

    Returns:
        Function that takes the arguments of `UnityEnvironment`, except the executable; None if the
        name does not refer to a build.

    Raises:
        UnityEnvironmentException: The name is a path without an executable, or a registered build
            cannot be downloaded.
    """
    if is_factory_name(name):
        return None
    try:
        find_executable(name)
    except UnityEnvironmentException:
        if name in default_registry:
            entry = default_registry[name]
            if isinstance(entry, BuildRegistryEntry):
                entry.fetch()
                return entry.make
        elif Path(name).name != name or Path(name).exists():
            raise  # a path, so the error about the file helps more than "not a registered name"
        return None
    return functools.partial(UnityEnvironment, name)


def find_factory(
    name: str,
    *,
    registry: UnityEnvRegistry = default_registry,
    results: Collection[Path] = (),
) -> EnvironmentFactory:
    """Find the factory of an environment.

    The working folder is appended to `sys.path`, so that all later imports search it last. Modules
    in folders of results, or downloaded from the Hub, are refused.

    Args:
        name: `gym:` and the id of a Gymnasium environment, `module:function`, or a registered name.
        registry: Registry of names.
        results: Folders of results, from which no module is imported.

    Raises:
        UnityEnvironmentException: No environment has this name (the message lists similar names),
            or the module is refused.
    """
    _GUARD.close(results)
    if name.startswith(GYMNASIUM):
        return _gymnasium_factory(name)
    if is_factory_name(name):
        return _import_factory(name)
    if name in registry:
        return registry[name].make
    known = sorted(registry)
    near = did_you_mean(name, known, n=3, cutoff=0.4) or f". Registered: {', '.join(known)}."
    raise UnityEnvironmentException(
        f"no environment is registered as {name!r}{near} You can also use module:function, or gym: "
        "and the id of a Gymnasium environment."
    )


def call_factory(
    factory: EnvironmentFactory, *, keep_8_bit_images: bool = False, **offered: Any
) -> BaseEnv:
    """Call an environment factory with the offered keywords that it accepts.

    A function with `**kwargs` gets every keyword except `worker_id`, which it must name. A class
    whose constructor has `**kwargs` also gets the keywords that its base classes accept.

    Args:
        factory: Function or class that creates the environment.
        keep_8_bit_images: Whether worlds and adapters return 8-bit images as uint8 instead of
            float32 from 0 to 1, which takes four times the memory.
        offered: Offered keywords and their values.

    Raises:
        UnityEnvironmentException: The factory requires other arguments, is abstract, rejects its
            arguments, ends the program, or does not return a `BaseEnv`.
    """
    given = arguments_for(factory, **offered)
    try:
        env = factory(**given)
    except SystemExit as error:
        raise UnityEnvironmentException(
            f"{factory!r} ended the program (SystemExit: {error}). An environment factory must "
            "not call sys.exit(); raise an error instead."
        ) from error
    except TypeError as error:
        arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise UnityEnvironmentException(
            f"{factory!r} was called with {arguments or 'no arguments'} and failed: {error} "
            f"({at.filename}, line {at.lineno})"
        ) from error
    if not is_environment(env):
        raise UnityEnvironmentException(
            f"{factory!r} returned a {type(env).__name__}: expected a "
            "mlagents_envs.base_env.BaseEnv, or an object with its methods. Missing: "
            f"{', '.join(missing_in(env))}."
        )
    made: BaseEnv = env
    if keep_8_bit_images and isinstance(made, HasEightBitImages):
        made.keep_8_bit_images()
    return made


def arguments_for(factory: EnvironmentFactory, **offered: Any) -> dict[str, Any]:
    """Return the offered keywords with which `call_factory` calls a factory.

    Raises:
        UnityEnvironmentException: The factory is not callable, requires other arguments, or is
            abstract.
    """
    try:
        taken = _taken_by(factory, offered.keys())
        given = {key: value for key, value in offered.items() if key in taken}
        inspect.signature(factory).bind(**given)
    except (TypeError, ValueError) as error:
        raise UnityEnvironmentException(
            f"{factory!r} cannot be called: {error}. The available keywords are "
            f"{', '.join(offered)}; every other argument needs a default."
        ) from error
    missing = sorted(getattr(factory, "__abstractmethods__", ()))
    if missing:
        raise UnityEnvironmentException(f"{factory!r} is abstract. Implement {', '.join(missing)}.")
    return given


def _taken_by(factory: EnvironmentFactory, offered: Set[str]) -> Set[str]:
    """Return the offered keywords that a factory accepts."""
    signatures = [inspect.signature(factory)]
    if inspect.isclass(factory):
        inits = (vars(base).get("__init__") for base in factory.__mro__[1:-1])
        signatures += [inspect.signature(init) for init in inits if init is not None]
    named: set[str] = set()
    for signature in signatures:
        named |= offered & signature.parameters.keys()
        if not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
            return named
    return named | offered - {"worker_id"}


def _import_factory(name: str) -> EnvironmentFactory:
    module_name, _, function_name = name.partition(":")
    _look_in_working_folder()
    try:
        module = importlib.import_module(module_name)
    except UnityEnvironmentException:
        raise
    except ImportError as error:
        raise UnityEnvironmentException(
            f"{name}: {error}. The module must be importable: in this folder, installed, or on "
            "PYTHONPATH."
        ) from error
    factory: EnvironmentFactory | None = getattr(module, function_name, None)
    if factory is None:
        near = did_you_mean(function_name, dir(module), n=3)
        raise UnityEnvironmentException(
            f"{name}: module {module_name} has no {function_name}{near or '.'}"
        )
    return factory


def _look_in_working_folder() -> None:
    """Search the working folder last, so that no file in it shadows another module."""
    folder = os.getcwd()
    if not {"", folder} & set(sys.path):
        sys.path.append(folder)
    if _GUARD not in sys.meta_path:
        sys.meta_path.insert(0, _GUARD)


class _RefusedModule(UnityEnvironmentException, ImportError):
    """Import of a module from a folder of results or downloads."""


class _ResultsGuard(MetaPathFinder):
    """Finder that refuses modules in folders of results or downloads, and finds no others.

    Without it, a file in `results/walker` would be the module `results.walker.file`.
    """

    def __init__(self) -> None:
        self._results: set[Path] = set()

    def close(self, folders: Collection[Path]) -> None:
        """Refuse modules in these folders too, except in one that contains the working folder."""
        here = Path.cwd()
        self._results |= {
            folder for each in folders if not here.is_relative_to(folder := each.resolve())
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, so that the next finder is asked, or raise if the module is refused."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            return None
        folders = set(spec.submodule_search_locations or ())
        if spec.has_location and spec.origin is not None:
            folders.add(os.path.dirname(spec.origin))
        for folder in folders:
            if refused := self._refused_around(folder):
                raise _RefusedModule(
                    f"module {fullname} was not imported: it is in {refused}, a folder of results "
                    "or of a download, whose code is not run. If you trust it, copy it to another "
                    "folder."
                )
        return None

    def _refused_around(self, folder: str) -> Path | None:
        place = Path(folder).resolve()
        for results in self._results:
            if place.is_relative_to(results):
                return results
        return _download_around(folder)


@functools.cache
def _download_around(folder: str) -> Path | None:
    return downloaded_folder(Path(folder))


_GUARD = _ResultsGuard()


def _gymnasium_factory(name: str) -> EnvironmentFactory:
    try:
        from mlagents_envs.envs.from_gymnasium import make_from_gymnasium
    except ModuleNotFoundError as error:
        raise UnityEnvironmentException(f"{name}: {error}") from error
    _look_in_working_folder()  # because gym:module:Name-v0 imports a module
    return functools.partial(make_from_gymnasium, name.removeprefix(GYMNASIUM))
