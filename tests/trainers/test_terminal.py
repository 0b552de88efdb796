"""What a person sees of a run in a terminal of 100 columns."""

import os
import sys
from pathlib import Path

import pytest

if os.name == "nt":
    pytest.skip("has no pseudo-terminals", allow_module_level=True)

from terminal import Session

BELOW_A_TABLE = """
import signal, socket
from rich.console import Console
from mlagents.trainers.reporting.progress import ProgressTable
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.run.interrupt import Interrupt
from mlagents_envs.logging_util import get_logger

class Trainer:
    name, step, settings = "A" * 20, 1_250_000, BehaviorSettings(max_steps=5_000_000)
    mean_reward, mean_group_reward, has_learned = 3.25, None, False

logger = get_logger("mlagents.terminal")
woken, waker = socket.socketpair()
waker.setblocking(False)
signal.set_wakeup_fd(waker.fileno())
with Interrupt() as interrupt, ProgressTable() as table:
    interrupt.is_below_table = table.is_shown
    logger.info("before")
    table.update([Trainer()])
    woken.recv(1)  # an update, which the signal does not break off
    print("finished")
    logger.info("after")
"""


def test_control_c_tears_no_row_of_the_table() -> None:
    session = Session([sys.executable, "-c", BELOW_A_TABLE])
    session.wait_for("1,250,000 of 5,000,000")
    session.type(b"\x03")
    session.wait_for("Finishing the current step or update; interrupt again to stop at once.")
    assert session.end() == 0
    assert [line for line in session.screen.lines if line] == [
        "[INFO] before",
        "finished",
        "[INFO] after",
    ]


@pytest.mark.slow
def test_a_run_fits_into_100_columns_and_ends_in_whole_lines(tmp_path: Path) -> None:
    learn = [sys.executable, "-m", "mlagents.trainers.learn"]
    session = Session([*learn, "--env", "3DBall", "--run-id", "a", "--seed", "1"], cwd=tmp_path)
    session.wait_for("Step: 12000")
    session.wait_for("(last 100)")
    session.type(b"\x03")
    assert session.end() == 0
    lines = [line for line in session.screen.lines if line]
    print("\n".join(lines))
    assert not session.screen.wrapped
    assert all(line.startswith(("[INFO] ", "  ")) for line in lines)
    assert len(lines) < 35, "no page of settings"
    summary = next(line for line in lines if "Step: 12000" in line)
    assert "Mean Reward: " in summary and "Std of Reward: " in summary
    assert "[INFO] Interrupted: saving." in lines
    assert "  to resume:" in lines


@pytest.mark.slow
def test_all_settings_are_shown_if_asked_for(tmp_path: Path) -> None:
    learn = [sys.executable, "-m", "mlagents.trainers.learn"]
    command = [*learn, "--env", "Basic", "--run-id", "a", "--verbose", "--seed", "1"]
    session = Session(command, cwd=tmp_path)
    session.wait_for("checkpoint_interval:")
    session.wait_for("(last 100)")
    session.type(b"\x03")
    assert session.end() == 0
