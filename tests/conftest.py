"""What holds for all tests."""

import os
from importlib.util import find_spec

from hypothesis import settings

# Before anything imports torch: the networks here are small, and threads only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples in every run, however slow the machine; look for new ones on purpose, with
# `--hypothesis-profile=default`.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Whole files that cannot even be imported without a library that is optional.
has_pettingzoo = find_spec("pettingzoo") is not None
collect_ignore_glob = [] if has_pettingzoo else ["envs/test_pettingzoo_*.py"]


def pytest_report_header() -> list[str]:
    return [] if has_pettingzoo else ["PettingZoo is not installed: its tests are left out"]
