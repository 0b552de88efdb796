"""`needs`: an error with install instructions for packages that only some wrappers need."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlagents_envs.programs import install_command


@contextmanager
def needs(package: str, *, extra: str) -> Iterator[None]:
    """Raise an error with the install command if the imports in the `with` block lack a package.

    Args:
        package: Name under which the package is imported.
        extra: Extra of this distribution that installs the package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"this part of mlagents_envs.envs needs the package {package}. "
            f"Install it: {install_command(extra)}",
            name=package,
        ) from error
