"""`needs`: an error with the install command, for packages that only some wrappers need."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlagents_envs.programs import install_command


@contextmanager
def needs(package: str, *, extra: str) -> Iterator[None]:
    """Add the install command to the error if the `with` block imports a missing package.

    Args:
        package: Name under which the package is imported.
        extra: Extra of this distribution that installs the package.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"this part of mlagents_envs.envs requires the package {package}. "
            f"Install it: {install_command(extra)}",
            name=package,
        ) from error
