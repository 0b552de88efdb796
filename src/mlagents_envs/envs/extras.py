"""Packages that only some wrappers need."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlagents_envs.programs import install_command


@contextmanager
def needs(package: str, *, extra: str) -> Iterator[None]:
    """Say what to install if the imports in the `with` block lack a package.

    Args:
        package: As it is imported.
        extra: Of this distribution, with which the package is installed.
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
