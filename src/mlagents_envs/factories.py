"""What a name stands for: a build to start, or what makes an environment in this process.

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
"""Makes a `BaseEnv` from some of the keywords that `call_factory` offers."""

GYMNASIUM = "gym:"


def is_factory_name(name: str) -> bool:
    """Return whether a name is `gym:<id>` or `module:function`, and nothing else."""
    return name.startswith(GYMNASIUM) or bool(re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name))


def find_build(name: str) -> Callable[..., UnityEnvironment] | None:
    """Find what starts a build; None where a name does not stand for a build.

    An executable goes before a registered name, so that a build of one's own is never mistaken for
    a world of the same name. A registered build is downloaded here, unless it has been before.

    Returns:
        What takes the arguments of `UnityEnvironment`, but for what to execute.

    Raises:
        UnityEnvironmentException: It is a path, and there is nothing to execute; or a registered
            build cannot be downloaded.
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
            raise  # a path: what is wrong with the file is the better answer
        return None
    return functools.partial(UnityEnvironment, name)


def find_factory(
    name: str,
    *,
    registry: UnityEnvRegistry = default_registry,
    results: Collection[Path] = (),
) -> EnvironmentFactory:
    """Find what makes an environment.

    Modules are looked for in the working folder too, after all other places; from then on by the
    whole program. A module that lies among results, or was downloaded from the Hub, is refused.

    Args:
        name: `gym:` and the id of a Gymnasium environment, `module:function`, or a registered name.
        registry: Where names are registered.
        results: Folders of results.

    Raises:
        UnityEnvironmentException: It names nothing, and the text lists what is near; or a module
            that is refused.
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
        f"no environment is registered as {name!r}{near} Otherwise give module:function, or gym: "
        "and the id of a Gymnasium environment."
    )


def call_factory(
    factory: EnvironmentFactory, *, keep_8_bit_images: bool = False, **offered: Any
) -> BaseEnv:
    """Call an environment factory with those of the offered keywords that it takes.

    What takes any keyword (`**kwargs`) gets all but `worker_id`, which is for who names it. A class
    hands such keywords on to the one above it: it gets what that takes.

    Args:
        factory: Makes the environment.
        keep_8_bit_images: Whether worlds and adapters hand out images of 8 bit as uint8, a quarter
            of the memory, rather than as float32 from 0 to 1.
        offered: Keywords, by name.

    Raises:
        UnityEnvironmentException: It wants something else, is abstract, takes amiss what it gets,
            or does not return a `BaseEnv`.
    """
    given = arguments_for(factory, **offered)
    try:
        env = factory(**given)
    except SystemExit as error:
        raise UnityEnvironmentException(
            f"{factory!r} ended the program (SystemExit: {error}). What makes an environment must "
            "not call sys.exit(); let it raise an error."
        ) from error
    except TypeError as error:
        arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise UnityEnvironmentException(
            f"{factory!r} was called with {arguments or 'nothing'}: {error} "
            f"({at.filename}, line {at.lineno})"
        ) from error
    if not is_environment(env):
        raise UnityEnvironmentException(
            f"{factory!r} returned a {type(env).__name__}; a mlagents_envs.base_env.BaseEnv is "
            f"needed, or what has its methods. It lacks {', '.join(missing_in(env))}."
        )
    made: BaseEnv = env
    if keep_8_bit_images and isinstance(made, HasEightBitImages):
        made.keep_8_bit_images()
    return made


def arguments_for(factory: EnvironmentFactory, **offered: Any) -> dict[str, Any]:
    """Return those of the offered keywords that `call_factory` calls a factory with.

    Raises:
        UnityEnvironmentException: It is not a function, wants something else, or is abstract.
    """
    try:
        taken = _taken_by(factory, offered.keys())
        given = {key: value for key, value in offered.items() if key in taken}
        inspect.signature(factory).bind(**given)
    except (TypeError, ValueError) as error:
        raise UnityEnvironmentException(
            f"{factory!r} cannot be called: {error}. It may take {', '.join(offered)}, by name, "
            "and nothing else without a default."
        ) from error
    missing = sorted(getattr(factory, "__abstractmethods__", ()))
    if missing:
        raise UnityEnvironmentException(f"{factory!r} is abstract: it lacks {', '.join(missing)}.")
    return given


def _taken_by(factory: EnvironmentFactory, offered: Set[str]) -> Set[str]:
    """Return which of the offered keywords to call a factory with."""
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
    """Let imports look there last, so that no file in it takes the place of another module."""
    folder = os.getcwd()
    if not {"", folder} & set(sys.path):
        sys.path.append(folder)
    if _GUARD not in sys.meta_path:
        sys.meta_path.insert(0, _GUARD)


class _RefusedModule(UnityEnvironmentException, ImportError):
    """A module lies where nothing is imported from."""


class _ResultsGuard(MetaPathFinder):
    """Refuses modules from folders that hold results or downloads; leaves all others alone.

    Without it, a file in `results/walker` would be the module `results.walker.file`.
    """

    def __init__(self) -> None:
        self._results: set[Path] = set()

    def close(self, folders: Collection[Path]) -> None:
        """Refuse modules from these folders too, but for one that the working folder lies in."""
        here = Path.cwd()
        self._results |= {
            folder for each in folders if not here.is_relative_to(folder := each.resolve())
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, so that the usual finders go on, or raise."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None:
            return None
        folders = set(spec.submodule_search_locations or ())
        if spec.has_location and spec.origin is not None:
            folders.add(os.path.dirname(spec.origin))
        for folder in folders:
            if refused := self._refused_around(folder):
                raise _RefusedModule(
                    f"module {fullname} is not imported: it lies in {refused}, which holds results "
                    "or was downloaded, and nothing there may run. If you trust it, copy it to "
                    "another folder."
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
    _look_in_working_folder()  # gym:module:Name-v0 imports one
    return functools.partial(make_from_gymnasium, name.removeprefix(GYMNASIUM))
