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

    outcome = survival.carry_out(trial, tmp_path)

    assert outcome.resumed_at >= outcome.saved_before


def test_results_that_are_not_whole_are_found(tmp_path: Path) -> None:
    trial = survival.Trial("terminated", "Basic", False, 1, 1.0, seed=1)
    survival.carry_out(trial, tmp_path)
    run = tmp_path / "results" / "run"
    newest = run / "Basic" / "checkpoint.pt"
    survival.check_results(run, "Basic")

    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.raises(RuntimeError):
        survival.check_results(run, "Basic")
