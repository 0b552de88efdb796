"""Gymnasium at both ends: its tasks for our trainer, our worlds for other people's trainers."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlagents.trainers.learn import main
from mlagents_envs.programs import install_command

pytest.importorskip("gymnasium")

EXAMPLES = Path(__file__).parents[2] / "examples"

CARTPOLE = """
behaviors:
  CartPole-v1:
    trainer_type: ppo
    hyperparameters: {batch_size: 256, buffer_size: 2048, learning_rate: 1.0e-3, num_epoch: 6}
    network_settings: {hidden_units: 64, num_layers: 2}
    max_steps: 100000
    time_horizon: 128
    summary_freq: 10000
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cartpole.yaml").write_text(CARTPOLE)


def learn(environment: str, *arguments: str) -> int:
    return main(["cartpole.yaml", "--env", environment, "--seed", "1", *arguments])


@pytest.mark.slow
def test_mlagents_learn_solves_cartpole() -> None:
    assert learn("gym:CartPole-v1", "--num-areas", "8", "--run-id", "first") == 0

    status = json.loads(Path("results/first/run_logs/training_status.json").read_text())
    rewards = [checkpoint["reward"] for checkpoint in status["CartPole-v1"]["checkpoints"]]
    assert rewards[-1] >= 400.0
    assert Path("results/first/CartPole-v1.onnx").is_file()


def test_an_id_that_does_not_exist_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert learn("gym:CartPoll-v1") == 1

    log = capsys.readouterr().out
    assert "[ERROR] Gymnasium cannot create 'CartPoll-v1'" in log and "CartPole" in log


def test_without_gymnasium_the_error_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("mlagents_envs.envs")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gymnasium", None)

    assert learn("gym:CartPole-v1") == 1

    assert install_command("gym") in capsys.readouterr().out


def last_mean_reward(example: str, *arguments: str) -> float:
    """Run a program of `examples/` and return the last mean reward that it prints."""
    code = (
        f"import runpy, sys, torch; sys.argv = {[example, *arguments]!r}; torch.set_num_threads(2);"
        f"runpy.run_path({str(EXAMPLES / example)!r}, run_name='__main__');"
        "print('threads', torch.get_num_threads())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("threads 1\n"), "more threads make small networks slower"
    rewards = re.findall(r"mean reward[a-z0-9 ]*:? +(-?[\d.]+)", done.stdout)
    return float(rewards[-1])


def every_length(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test until 3DBall is played better on every submission, and to the end every night."""
    to_the_end = pytest.param(400_000, 80.0, marks=pytest.mark.nightly)
    lengths = pytest.mark.parametrize(("steps", "solved"), [(98_304, 6.0), to_the_end])
    return pytest.mark.slow(lengths(test))  # random play reaches 1.5


@every_length
def test_ppo_of_stable_baselines_learns_3dball(steps: int, solved: float) -> None:
    pytest.importorskip("stable_baselines3")
    assert last_mean_reward("stable_baselines3_ppo.py", "--steps", str(steps)) >= solved


@every_length
def test_ppo_in_one_file_learns_3dball(steps: int, solved: float) -> None:
    assert last_mean_reward("cleanrl_style_ppo.py", "--total-steps", str(steps)) >= solved


@pytest.mark.slow
def test_ppo_in_one_file_learns_basic() -> None:
    basic = ["--env", "mlagents/Basic-v0", "--num-envs", "16", "--num-steps", "64"]
    assert last_mean_reward("cleanrl_style_ppo.py", *basic, "--total-steps", "40000") >= 0.92
