"""What holds for all tests."""

import os
import random
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.fixture(autouse=True)
def own_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the modules that a test imports from temporary folders, and its changes of the path.

    Else a later test that writes a module of the same name would import the earlier one.
    """
    folder, path, before = tmp_path_factory.getbasetemp(), sys.path[:], set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and folder in Path(file).parents:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def own_seed() -> None:
    """Give each test the same random numbers, whichever tests ran before it in its process."""
    random.seed(0)
    np.random.seed(0)  # for code that draws from the global generator
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.fixture
def hangup_is_not_ignored() -> Iterator[None]:
    """Receive SIGHUP, in started processes too, even if the tests run with `nohup`."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def pytest_report_header() -> list[str]:
    return [] if has_pettingzoo else ["PettingZoo is not installed: its tests are left out"]


WAITING = set(
    """
    test_environment test_faults test_grpcio_peer test_interrupt test_launcher test_learners
    test_player test_player_features test_rpc_communicator test_subprocess_env_manager
    test_survival test_viewers
    """.split()
)
"""Files whose tests wait for other processes, sockets and deadlines.

With several workers they run one after the other, so that they never wait for one another.
"""


LONGEST = ["test_first_hour", "test_worlds", "test_gymnasium", "test_survival"]
"""Files with the slow tests that take longest, which begin first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow tests first, so that the workers have quick ones left to end together with."""

    def turn(item: pytest.Item) -> int:
        if item.get_closest_marker("slow") is None:
            return len(LONGEST) + 1
        return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, which may be missing
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of `WAITING` together; `--dist loadgroup` fails to, as of pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class WaitingTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_waiting = Path(nodeid.partition("::")[0]).stem in WAITING
            return "waiting" if is_waiting else nodeid

    return WaitingTogether(config, log)
