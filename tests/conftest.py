"""What holds for all tests."""

import os
from importlib.util import find_spec

import pytest
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


WAITING = set(
    """
    test_environment test_faults test_grpcio_peer test_interrupt test_launcher test_player
    test_player_features test_rpc_communicator test_subprocess_env_manager test_survival
    """.split()
)
"""Files whose tests wait for other processes, sockets and deadlines.

With several workers they run one after the other, so that they never wait for one another.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if item.path.stem in WAITING:
                item.add_marker(pytest.mark.xdist_group("waiting"))
