"""Training in a process of its own that something happens to, and what must be left then.

A trial starts `mlagents-learn` on a world that a player serves, lets something happen at a random
moment, looks at everything that is left, and resumes the run.
"""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import onnx
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.settings.load import load_run_options
from processes import children

SRC = Path(__file__).parents[1] / "src"
WORLDS = "3DBall", "Basic"
PATIENCE_S = 90
PLAYER_TIMEOUT_S = 2
STEPS_AFTER_RESUMING = 600

CONFIGURATION = """
behaviors:
  {world}:
    trainer_type: ppo
    hyperparameters: {{batch_size: 64, buffer_size: 512}}
    network_settings: {{hidden_units: 32, num_layers: 1, normalize: true}}
    max_steps: {max_steps}
    time_horizon: 16
    summary_freq: 200
    checkpoint_interval: 200
    keep_checkpoints: 3
    threaded: {threaded}
"""


class Trial(NamedTuple):
    """What is to happen.

    Attributes:
        fault: A key of `FAULTS`.
        world: What is trained in.
        threaded: Whether the behavior learns in a thread of its own.
        n_players: How many players serve the world.
        delay_s: From when the run has begun to when it happens.
        seed: Of the run, and of what else is left to chance.
    """

    fault: str
    world: str
    threaded: bool
    n_players: int
    delay_s: float
    seed: int

    @classmethod
    def draw(cls, fault: str, seed: int, *, n_players: int = 1) -> "Trial":
        rng = random.Random(seed)
        delay_s = rng.uniform(0.0, 3.0)
        return cls(fault, rng.choice(WORLDS), rng.random() < 0.5, n_players, delay_s, seed)


class Outcome(NamedTuple):
    """How a trial went.

    Attributes:
        status: Exit status of the run, negative for a signal.
        saved_before: Step of the newest checkpoint before it happened, 0 where there was none.
        resumed_at: The step the run went on from.
    """

    status: int
    saved_before: int
    resumed_at: int


class Run:
    """`mlagents-learn` in a process of its own."""

    def __init__(self, trial: Trial, folder: Path, *arguments: str, max_steps: int) -> None:
        self.folder = folder / "results" / "run"
        self.world = trial.world
        configuration = folder / "survive.yaml"
        configuration.write_text(
            CONFIGURATION.format(
                world=trial.world, max_steps=max_steps, threaded=str(trial.threaded).lower()
            )
        )
        self._log = folder / "log.txt"
        command = [sys.executable, "-m", "mlagents.trainers.learn", str(configuration)]
        command += ["--results-dir", str(self.folder.parent), "--run-id", self.folder.name]
        command += ["--seed", str(trial.seed), "--timeout-wait", str(PLAYER_TIMEOUT_S)]
        command += ["--num-envs", str(trial.n_players), "--base-port", "0", *arguments]
        command += ["--env", str(Path(sys.executable).with_name("mlagents-sim"))]
        environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONUNBUFFERED", None)  # so that output waits in buffers, as usual
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--env-args", trial.world],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._players: set[tuple[int, str]] = set()
        self._ports: set[int] = set()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"ended before {what}:\n{self.log}"
            assert time.monotonic() < give_up_s, f"waited in vain for {what}:\n{self.log}"
            time.sleep(0.02)

    def wait_until_it_trains(self) -> None:
        self.wait_until((self.folder / "run_logs/training_status.json").exists, "it trained")
        self._note_what_it_started()
        assert self._players, "no player was started"

    def _note_what_it_started(self) -> None:
        self._players |= {
            (pid, start) for pid in children(self.process.pid) if (start := started(pid))
        }
        self._ports |= listening_ports(self.process.pid)

    def player(self, rng: random.Random) -> int:
        return rng.choice(sorted(self._players))[0]

    def saved_step(self) -> int:
        """Step of the newest checkpoint the status lists, 0 without one."""
        status = json.loads((self.folder / "run_logs/training_status.json").read_text())
        entries = status.get(self.world, {}).get("checkpoints", [])
        return max((entry["steps"] for entry in entries), default=0)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end; return the exit status."""
        return self.process.wait(timeout_s)

    def end(self, timeout_s: float) -> int:
        """Wait for the end, and bring it about in good order if it does not come by itself."""
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._note_what_it_started()
            self.process.send_signal(signal.SIGTERM)
            return self.wait()

    def check_that_nothing_lives(self) -> None:
        give_up_s = time.monotonic() + 20
        while left := {pid for pid, start in self._players if started(pid) == start}:
            assert time.monotonic() < give_up_s, f"players {left} are left"
            time.sleep(0.05)
        assert not self._ports & listening_ports(), "a port is still listened on"

    def close(self) -> None:
        """End what a failed trial has left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid, start in self._players:
            if started(pid) == start:
                os.kill(pid, signal.SIGKILL)


def kill_trainer(run: Run, rng: random.Random) -> int:
    run.process.kill()
    return run.wait()


def kill_player(run: Run, rng: random.Random) -> int:
    os.kill(run.player(rng), signal.SIGKILL)
    return run.end(timeout_s=10)


def stop_player(run: Run, rng: random.Random) -> int:
    os.kill(run.player(rng), signal.SIGSTOP)
    return run.end(timeout_s=PLAYER_TIMEOUT_S + 15)


def terminate(run: Run, rng: random.Random) -> int:
    run.process.send_signal(rng.choice((signal.SIGTERM, signal.SIGINT)))
    status = run.wait()
    assert status == 0, f"exited with {status} after one signal:\n{run.log}"
    return status


def terminate_twice(run: Run, rng: random.Random) -> int:
    run.process.send_signal(signal.SIGTERM)
    time.sleep(rng.uniform(0.0, 0.3))
    run.process.send_signal(signal.SIGTERM)
    status = run.wait()
    # The second may come when all is saved and the first handlers are back.
    assert status in (0, 130, -signal.SIGTERM), f"exited with {status}:\n{run.log}"
    return status


def fill_disk(run: Run, rng: random.Random) -> int:
    """Let no file grow beyond some size, its log included, and perhaps later let them again."""
    run.wait_until(lambda: run.saved_step() > 0, "it had saved")  # so that there is more to lose
    room = rng.choice((0, 2_000))
    no_limit = resource.RLIM_INFINITY
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (room, no_limit))
    time.sleep(rng.uniform(0.5, 2.0))
    is_cleared = rng.random() < 0.5
    if is_cleared:
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (no_limit, no_limit))
    assert run.process.poll() is None, f"a full disk ended the run:\n{run.log}"
    run.process.send_signal(signal.SIGTERM)
    status = run.wait()
    assert status == (0 if is_cleared else 1), f"exited with {status}:\n{run.log}"
    return status


FAULTS: dict[str, Callable[[Run, random.Random], int]] = {
    "trainer killed": kill_trainer,
    "player killed": kill_player,
    "player stopped": stop_player,
    "terminated": terminate,
    "terminated twice": terminate_twice,
    "disk full": fill_disk,
}
"""What can happen, by name: lets it happen to a run that trains, returns how the run ended."""


def carry_out(trial: Trial, folder: Path) -> Outcome:
    """Carry out a trial in an empty folder.

    Raises:
        AssertionError: Something was left that must not be, or something was lost.
    """
    run = Run(trial, folder, max_steps=1_000_000_000)
    try:
        run.wait_until_it_trains()
        time.sleep(trial.delay_s)
        saved_before = run.saved_step()
        status = FAULTS[trial.fault](run, random.Random(trial.seed))
        assert "Traceback" not in run.log, run.log
        run.check_that_nothing_lives()
        check_results(run.folder, trial.world)
        saved = run.saved_step()
        assert saved >= saved_before, f"saved at {saved_before}, then only at {saved}"
    finally:
        run.close()

    resumed = Run(trial, folder, "--resume", max_steps=saved + STEPS_AFTER_RESUMING)
    try:
        assert resumed.wait() == 0, resumed.log
        check_results(resumed.folder, trial.world)
        litter = list(resumed.folder.rglob(".*.tmp"))
        assert not litter, f"left behind: {litter}"
        found = re.findall(r"Resuming .* at step (\d+)|begins at step (0)", resumed.log)
        resumed_at = int("".join(found[-1]))
        assert resumed_at >= saved, f"resumed at {resumed_at}, saved was {saved}"
        assert resumed.saved_step() >= saved + STEPS_AFTER_RESUMING
    finally:
        resumed.close()
    return Outcome(status, saved_before, resumed_at)


def check_results(run: Path, behavior: str) -> None:
    """Read everything a run has written so far.

    Raises:
        AssertionError: Something cannot be read, or does not fit the rest.
    """
    checkpoints = [path for path in run.rglob("*.pt") if not path.name.startswith(".")]
    for path in checkpoints:
        state = torch.load(path, weights_only=True)
        assert {"Policy", "global_step", "random_states"} <= state.keys(), path
    for path in run.rglob("*.onnx"):
        onnx.checker.check_model(onnx.load(path))
    status = json.loads((run / "run_logs/training_status.json").read_text())
    section = status.get(behavior, {})
    entries = section.get("checkpoints", [])
    steps = [entry["steps"] for entry in entries]
    assert steps == sorted(set(steps)) and len(steps) <= 3, f"listed are {steps}"
    for entry in (*entries, *filter(None, [section.get("final_checkpoint")])):
        for name in (entry["file_path"], *entry["auxillary_file_paths"]):
            assert Path(name).exists(), f"{name} is listed and not there"
    if checkpoints:
        newest = torch.load(run / behavior / "checkpoint.pt", weights_only=True)["global_step"]
        assert newest >= max(steps, default=0)
    load_run_options(parse_command_line([str(run / "configuration.yaml")]))
    json.loads((run / "run_logs/timers.json").read_text())
    if (run / behavior).exists():
        events = EventAccumulator(str(run / behavior), purge_orphaned_data=False)
        events.Reload()
        for tag in events.Tags()["scalars"]:
            assert all(event.step % 200 == 0 for event in events.Scalars(tag)), tag


# Linux alone shows these in files.


def started(pid: int) -> str | None:
    """When a process was started, which tells it from a later one; None if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else fields[18]


def listening_ports(pid: int | None = None) -> set[int]:
    """TCP ports that a process, or any, listens on."""
    sockets = None if pid is None else set(_sockets(pid))
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in Path(table).read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = row.split()[:10]
            if state == "0A" and (sockets is None or inode in sockets):
                ports.add(int(address.rpartition(":")[2], 16))
    return ports


def _sockets(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(descriptor)
            if target.startswith("socket:"):
                yield target.removeprefix("socket:[").removesuffix("]")
