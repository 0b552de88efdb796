"""Where the programs start: one that lacks a package says in a line how to install it."""

import importlib
import sys

from mlagents_envs.interrupts import ends_quietly
from mlagents_envs.programs import install_command

_OWN = ("mlagents", "mlagents_envs")


def learn() -> int:
    """Run `mlagents-learn`; return its exit status."""
    return _run("mlagents-learn", "mlagents.trainers.learn", extra="train")


def search() -> int:
    """Run `mlagents-search`; return its exit status."""
    return _run("mlagents-search", "mlagents.search.command", extra="search")


def run_experiment() -> int:
    """Run `mlagents-run-experiment`; return its exit status."""
    return _run("mlagents-run-experiment", "mlagents.trainers.run_experiment", extra="train")


def push_to_hf() -> int:
    """Run `mlagents-push-to-hf`; return its exit status."""
    return _run("mlagents-push-to-hf", "mlagents.utils.push_to_hf", extra="hub")


def load_from_hf() -> int:
    """Run `mlagents-load-from-hf`; return its exit status."""
    return _run("mlagents-load-from-hf", "mlagents.utils.load_from_hf", extra="hub")


def _run(program: str, module: str, *, extra: str) -> int:
    try:
        with ends_quietly():
            main = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN:
            raise
        print(
            f"{program} needs the package {error.name}. Install what it needs:\n"
            f"    {install_command(extra)}",
            file=sys.stderr,
        )
        return 1
    status: int = main()
    return status
