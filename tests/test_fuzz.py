"""A part of what `scripts/fuzz` does, the same in every run."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz_targets import TARGETS

SCRIPT = Path(__file__).parents[1] / "scripts" / "fuzz"

MANY_ELSEWHERE = {"http2-server", "http2-client", "messages"}
"""Of these there are tests with more inputs, which look closer."""


def check(name: str, n_inputs: int, seed: int) -> None:
    target, rng = TARGETS[name](), random.Random(seed)
    accepted = sum(target.check(target.generate(rng)) for _ in range(n_inputs))
    # Inputs get far: some are read, and not all.
    assert n_inputs // 100 < accepted < n_inputs


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_random_inputs_are_accepted_or_refused(name: str):
    check(name, 500, seed=0)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in MANY_ELSEWHERE])
def test_many_random_inputs_are_accepted_or_refused(name: str):
    check(name, 10_000, seed=1)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("data", [b"", b"\0", bytes(100), b"\xff" * 100])
def test_the_plainest_inputs_are_accepted_or_refused(name: str, data: bytes):
    TARGETS[name]().check(data)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_script_feeds_a_target_and_feeds_one_input_again(tmp_path: Path):
    arguments = ["--target", "side-channels", "--failures", str(tmp_path / "failures")]
    done = run_python(str(SCRIPT), "--minutes", "0.005", "--seed", "1", *arguments)
    assert done.returncode == 0, done.stderr
    assert "seed 1" in done.stdout and "no failure" in done.stdout
    (tmp_path / "input").write_bytes(b"garbage")
    again = run_python(str(SCRIPT), "--input", str(tmp_path / "input"), *arguments)
    assert (again.returncode, again.stdout) == (0, "refused\n")


def test_the_script_saves_the_input_that_fails(tmp_path: Path):
    program = f"""
import pathlib, runpy, sys
sys.path.insert(0, {str(SCRIPT.parents[1] / "tests")!r})
from fuzz_targets import Target
script = runpy.run_path({str(SCRIPT)!r})
target = Target(lambda rng: rng.randbytes(3), lambda data: 1 / (data[0] > 99))
sys.exit(script["feed_at_random"]("broken", target, 50, 1, pathlib.Path({str(tmp_path)!r})))
"""
    done = run_python("-c", program)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    (saved,) = tmp_path.iterdir()
    assert saved.read_bytes()[0] <= 99
    assert str(saved) in done.stdout and "seed 1" in done.stdout
