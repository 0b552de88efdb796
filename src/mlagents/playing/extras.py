"""Error message for missing packages of the extra `play`."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlagents_envs.programs import install_command


@contextmanager
def needed_to_play() -> Iterator[None]:
    """Raise an error with installation advice if imports in the `with` block fail.

    Raises:
        ModuleNotFoundError: A package is missing. The message contains the command to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs the package {error.name}. Install it: {install_command('play')}",
            name=error.name,
        ) from error
