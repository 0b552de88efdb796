"""The processes that a process has started, as Linux lists them in files."""

import os
from pathlib import Path

import pytest

lists_children = pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(),
    reason="this system does not list the children of a process",
)


def children(pid: int | None = None) -> set[int]:
    """Return the processes that one, or this one, has started and nobody has waited for."""
    tasks = Path(f"/proc/{pid or os.getpid()}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}
