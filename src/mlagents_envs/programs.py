"""Commands for messages to the user, which work in the shell that started this program.

The virtual environment may not be activated in that shell. If the shell finds another program of
the same name, or none, a command begins with the path of the program in this environment.
"""

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISTRIBUTION = "mlagents-next"

_MODULES = {
    "mlagents-learn": "mlagents.trainers.learn",
    "mlagents-play": "mlagents.playing.play",
    "mlagents-search": "mlagents.search.command",
    "mlagents-sim": "mlagents_sim",
    "tensorboard": "tensorboard.main",
}
"""Modules for `python -m`, for programs that are not installed as scripts."""

_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^]]*)\])?\s*(?P<version>[^;]*?)\s*(?:;(?P<marker>.*))?"
)


def find_program(name: str) -> str | None:
    """Return the path of a program that is installed with this Python; None if there is none."""
    return shutil.which(name, path=sysconfig.get_path("scripts"))


def program(name: str) -> list[str]:
    """Return the words that run a program of this environment in the user's shell.

    Args:
        name: Name of a program of this project, or `tensorboard`.
    """
    own = find_program(name)
    return [*python(), "-m", _MODULES[name]] if own is None else [_typed(own, name)]


def python() -> list[str]:
    """Return the word that runs this Python in the user's shell."""
    return [_typed(sys.executable, "python")]


def command(*words: str) -> str:
    """Return the words of a command as one line, quoted for the shell of this system."""
    if os.name != "nt":
        return shlex.join(words)
    # list2cmdline does not quote the characters that the shell uses for redirection.
    return " ".join(
        f'"{word}"' if re.search(r"[<>|&^]", word) else subprocess.list2cmdline([word])
        for word in words
    )


def install_command(extra: str) -> str:
    """Return the command that installs the missing requirements of an extra of this distribution.

    It lists the packages instead of the extra, so that it works whether the distribution was
    installed from a checkout, from a folder or as a wheel.
    """
    try:
        needed = dict(_requirements(extra))
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return pip_install(f".[{extra}]")
    missing = [requirement for name, requirement in needed.items() if not _is_installed(name)]
    return pip_install(*(missing or needed.values()))


@contextmanager
def needed_extra(extra: str, *, by: str = "this") -> Iterator[None]:
    """Raise an error with installation advice if imports in the `with` block fail.

    Args:
        extra: Extra of this distribution that installs the packages.
        by: What needs them, for the message.

    Raises:
        ModuleNotFoundError: A package is missing. The message contains the command to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{by} needs the package {error.name}. Install it: {install_command(extra)}",
            name=error.name,
        ) from error


def pip_install(*requirements: str) -> str:
    """Return the command that installs packages into this environment."""
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return command("uv", "pip", "install", "--python", sys.executable, *requirements)
    return command(*python(), "-m", "pip", "install", *requirements)


def _typed(path: str, name: str) -> str:
    """Return a program's name if the shell finds the program by this name, else its path."""
    found = shutil.which(name)
    if found is not None and _place(found) == _place(path):
        return name
    try:
        relative = Path(path).relative_to(Path.cwd())
    except (OSError, ValueError):
        return path
    return str(relative) if len(relative.parts) > 1 else path


def _place(path: str) -> tuple[Path, str]:
    """Return the resolved folder, and the name; the Python of a virtual environment is a link."""
    return Path(path).absolute().parent.resolve(), Path(path).stem


def _requirements(extra: str) -> Iterator[tuple[str, str]]:
    """Yield name and requirement of each package of an extra, and of extras that it includes."""
    for line in importlib.metadata.requires(DISTRIBUTION) or ():
        found = _REQUIREMENT.fullmatch(line)
        if found is None or not re.search(
            rf"""extra\s*==\s*["']{re.escape(extra)}["']""", found["marker"] or ""
        ):
            continue
        if found["name"] == DISTRIBUTION:
            for other in (found["extras"] or "").split(","):
                yield from _requirements(other.strip())
        else:
            extras = f"[{found['extras']}]" if found["extras"] else ""
            yield found["name"], f"{found['name']}{extras}{found['version']}"


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
