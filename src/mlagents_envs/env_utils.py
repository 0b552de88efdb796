"""Functions of `launcher` under the names that scripts for ML-Agents use."""

import subprocess
import sys
from collections.abc import Sequence

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.launcher import find_executable, start_process


def get_platform() -> str:
    """Return the name of this platform, as in `sys.platform`."""
    return sys.platform


def validate_environment_path(env_path: str) -> str | None:
    """Return the path of a build's executable; None if it does not exist or is not executable.

    Args:
        env_path: Path of the build, with or without the platform's suffix.
    """
    try:
        return str(find_executable(env_path))
    except UnityEnvironmentException:
        return None


def launch_executable(file_name: str, args: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a build in a new session, and discard its output.

    Args:
        file_name: Path of the build, with or without the platform's suffix.
        args: Arguments of the build.

    Raises:
        UnityEnvironmentException: The executable does not exist or cannot be started.
    """
    return start_process([str(find_executable(file_name)), *args], output=subprocess.DEVNULL)
