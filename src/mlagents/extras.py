"""Packages that only acting with a finished policy needs."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlagents_envs.programs import install_command


@contextmanager
def needed_to_play() -> Iterator[None]:
    """Say what to install if the imports in the `with` block lack a package.

    Raises:
        ModuleNotFoundError: One is missing; the text has the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs the package {error.name}. Install it: {install_command('play')}",
            name=error.name,
        ) from error
