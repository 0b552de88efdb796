"""Runs survive what happens to them; `scripts/survive` does the same more often."""

import sys
from pathlib import Path

import pytest

import survival

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.mark.parametrize("fault", survival.FAULTS)
def test_a_run_leaves_everything_whole_and_is_resumed(fault: str, tmp_path: Path) -> None:
    trial = survival.Trial.draw(fault, seed=list(survival.FAULTS).index(fault))
    trial = trial._replace(delay_s=trial.delay_s / 4)  # at most 0.75 s

    outcome = survival.carry_out(trial, tmp_path)

    assert outcome.resumed_at >= outcome.saved_before
    if fault == "terminated":
        assert_that_damage_is_found(tmp_path / "results" / "run", trial.world)


def assert_that_damage_is_found(run: Path, world: str) -> None:
    newest = run / world / "checkpoint.pt"
    survival.check_results(run, world)

    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.raises(RuntimeError):
        survival.check_results(run, world)
