"""Finds and starts builds, under the names that scripts for ML-Agents use; see `launcher`."""

import subprocess
import sys
from collections.abc import Sequence

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.launcher import find_executable, start_process


def get_platform() -> str:
    """Return the name of this platform, as in `sys.platform`."""
    return sys.platform


def validate_environment_path(env_path: str) -> str | None:
    """Return the path of a build's executable, None where there is none that may be executed.

    Args:
        env_path: Its path, with or without the suffix that builds have on this platform.
    """
    try:
        return str(find_executable(env_path))
    except UnityEnvironmentException:
        return None


def launch_executable(file_name: str, args: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a build in a session of its own; what it prints is thrown away.

    Args:
        file_name: Its path, with or without the suffix that builds have on this platform.
        args: Its arguments.

    Raises:
        UnityEnvironmentException: There is no such executable, or it cannot be started.
    """
    return start_process([str(find_executable(file_name)), *args], output=subprocess.DEVNULL)
