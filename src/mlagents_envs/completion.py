"""`--print-completion`: what a shell needs to complete the arguments of a command.

The script that it prints is complete in itself. While the user types, the shell runs no Python.
"""

import argparse
from typing import Any

from mlagents_envs.programs import install_command

SHELLS = ("bash", "zsh", "fish", "powershell")

_FILES = {"PATH", "FILE", "CONFIG", "[BEHAVIOR=]PATH"}
_FOLDERS = {"FOLDER"}


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the flag `--print-completion` to the parser of a command."""
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        default=argparse.SUPPRESS,
        help="print a script that completes the arguments of this command in a shell, and exit",
    )


class _PrintCompletion(argparse.Action):
    """Does what `--print-completion` says."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        shell: Any,
        _flag: str | None = None,
    ) -> None:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error(
                f"--print-completion needs the package shtab. Install it: "
                f"{install_command('completion')}"
            )
        for action in parser._actions:
            metavar = str(action.metavar)
            if "--env" in action.option_strings:
                action.choices = _environments()
            elif metavar in _FILES or "config" in action.dest:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif metavar in _FOLDERS or action.dest.endswith("_dir"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell=shell))
        parser.exit()


def _environments() -> list[str]:
    """Return the names that `--env` knows."""
    from mlagents_envs.registry import default_registry

    return sorted(default_registry)
