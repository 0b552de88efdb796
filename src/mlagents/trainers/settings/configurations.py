"""The configuration files of this package, and the file that a name on the command line means."""

import re
import textwrap
from importlib.resources import files
from pathlib import Path

from mlagents.trainers.exception import TrainerConfigError
from mlagents_envs.suggestions import did_you_mean

CONFIGURATIONS = Path(str(files("mlagents"))) / "config"
"""Folder of the files: `ppo/3DBall.yaml` and so on."""

_OF_WORLDS = ("ppo", "poca")
"""The subfolders from which a world takes its file, the first one first."""
_TEXT_WIDTH = 90


def find_configuration(file: Path) -> Path:
    """Return the file that a name means.

    It is the user's own where there is one. Otherwise `config/ppo/3DBall.yaml` and
    `ppo/3DBall.yaml` mean the file of this package, in whichever folder they are typed.

    Raises:
        TrainerConfigError: There is no such file; the text lists those that exist.
    """
    if file.exists():
        return file
    parts = file.parts[1:] if file.parts[:1] == (CONFIGURATIONS.name,) else file.parts
    packaged = CONFIGURATIONS.joinpath(*parts)
    if file.is_absolute() or ".." in parts or not packaged.is_file():
        raise TrainerConfigError(_explain_missing(file))
    return packaged


def configuration_of(environment: str) -> Path | None:
    """Return the file of this package that trains an environment, by its registered name.

    It is the file of that name, or else the first that has settings for a behavior of that name.
    """
    paths = [path for each in _OF_WORLDS for path in sorted((CONFIGURATIONS / each).glob("*.yaml"))]
    for path in paths:
        if path.stem == environment:
            return path
    lists_it = re.compile(rf"^  {re.escape(environment)}:", re.MULTILINE)
    return next((path for path in paths if lists_it.search(path.read_text("utf-8"))), None)


def typed_name(path: Path) -> str:
    """Return what to type for a file of this package, such as `config/ppo/3DBall.yaml`."""
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
