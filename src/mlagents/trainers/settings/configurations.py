"""Finds configuration files: the user's own, and those of this package."""

import re
import textwrap
from importlib.resources import files
from pathlib import Path

from mlagents.trainers.exception import TrainerConfigError
from mlagents_envs.suggestions import did_you_mean

CONFIGURATIONS = Path(str(files("mlagents"))) / "config"
"""Folder of this package's configuration files, such as `ppo/3DBall.yaml`."""

_OF_WORLDS = ("ppo", "poca")
"""Subfolders to search for the configuration of a world, in order."""
_TEXT_WIDTH = 90


def find_configuration(file: Path) -> Path:
    """Return the configuration file for a path on the command line.

    If the path does not exist, `config/ppo/3DBall.yaml` and `ppo/3DBall.yaml` are the file of this
    package, whatever the working directory is.

    Raises:
        TrainerConfigError: There is no such file. The message lists the existing files.
    """
    if file.exists():
        return file
    parts = file.parts[1:] if file.parts[:1] == (CONFIGURATIONS.name,) else file.parts
    packaged = CONFIGURATIONS.joinpath(*parts)
    if file.is_absolute() or ".." in parts or not packaged.is_file():
        raise TrainerConfigError(_explain_missing(file))
    return packaged


def configuration_of(environment: str) -> Path | None:
    """Return this package's configuration for an environment, by its registered name.

    It is the file of that name, or else the first file with settings for a behavior of that name.
    """
    paths = [path for each in _OF_WORLDS for path in sorted((CONFIGURATIONS / each).glob("*.yaml"))]
    for path in paths:
        if path.stem == environment:
            return path
    lists_it = re.compile(rf"^  {re.escape(environment)}:", re.MULTILINE)
    return next((path for path in paths if lists_it.search(path.read_text("utf-8"))), None)


def typed_name(path: Path) -> str:
    """Return the name of a file of this package on the command line: `config/ppo/3DBall.yaml`."""
    return path.relative_to(CONFIGURATIONS.parent).as_posix()


def _explain_missing(file: Path) -> str:
    beside = sorted(path.name for path in file.parent.glob("*.y*ml"))
    packaged = sorted(CONFIGURATIONS.glob("*/*.yaml"))
    own = {str(file.parent / name): name for name in beside}
    hint = did_you_mean(file.name, beside) or did_you_mean(
        file.as_posix(), [*own, *map(typed_name, packaged)]
    )
    if hint:
        return f"{file}: this configuration file does not exist{hint}"
    lines = [f"{file}: this configuration file does not exist."]
    if beside:
        lines.append(_listed(f"In {file.parent.absolute()}", beside))
    for folder in sorted(path for path in CONFIGURATIONS.iterdir() if path.is_dir()):
        names = sorted(path.name for path in folder.glob("*.yaml"))
        lines.append(_listed(f"In this package, {typed_name(folder)}/", names))
    return "\n".join(lines)


def _listed(where: str, names: list[str]) -> str:
    return textwrap.fill(
        f"{where}: {', '.join(names)}",
        _TEXT_WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
