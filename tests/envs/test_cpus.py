"""As many CPUs as the process may use, and no more than its container is worth."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlagents_envs import cpus


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.setattr(cpus, "CONTROL_GROUPS", tmp_path)
    cpus._quota.cache_clear()
    yield
    cpus._quota.cache_clear()


def test_without_a_limit_there_are_all() -> None:
    assert cpus.n_cpus() == 8


@pytest.mark.parametrize(
    ("limit", "n"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("350000 100000\n", 3),
        ("50000 100000\n", 1),
        ("6400000 100000\n", 8),
        ("nonsense\n", 8),
        ("100000 0\n", 8),
    ],
)
def test_a_container_limits_them(limit: str, n: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    assert cpus.n_cpus() == n


@pytest.mark.parametrize(("quota", "n"), [("-1\n", 8), ("200000\n", 2)])
def test_so_do_older_control_groups(quota: str, n: int, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cpus.n_cpus() == n


def test_systems_without_affinity_count_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert cpus.n_cpus() == 6
