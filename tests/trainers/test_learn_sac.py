"""`mlagents-learn` with SAC, as a person uses it."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlagents.trainers.learn import main

CONFIGURATION = """
behaviors:
  Guess:
    trainer_type: sac
    hyperparameters:
      batch_size: 32
      buffer_size: 600
      steps_per_update: 16
      save_replay_buffer: true
    network_settings: {hidden_units: 8, num_layers: 1, normalize: true}
    max_steps: 1000
    summary_freq: 500
    checkpoint_interval: 500
"""
RUN = Path("results/first")
BUFFER = RUN / "Guess" / "last_replay_buffer.npz"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("guess.yaml").write_text(CONFIGURATION)


def learn(*arguments: str) -> int:
    environment = ["--env", "guess_environment:GuessEnvironment", "--seed", "5"]
    return main(["guess.yaml", *environment, "--run-id", "first", *arguments])


def test_a_run_leaves_what_users_know() -> None:
    assert learn() == 0

    checkpoint = torch.load(RUN / "Guess" / "checkpoint.pt", weights_only=True)
    assert checkpoint.keys() >= {
        "Policy",
        "Optimizer:q_network",
        "Optimizer:value_network",
        "Optimizer:target_network",
        "Optimizer:entropy_coefficients",
    }
    events = EventAccumulator(str(RUN / "Guess"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "Environment/Cumulative Reward",
        "Environment/Episode Length",
        "Losses/Policy Loss",
        "Losses/Q1 Loss",
        "Losses/Q2 Loss",
        "Losses/Value Loss",
        "Policy/Continuous Entropy Coeff",
        "Policy/Discrete Entropy Coeff",
        "Policy/Entropy",
        "Policy/Extrinsic Reward",
        "Policy/Extrinsic Value",
        "Policy/Learning Rate",
    }
    session = onnxruntime.InferenceSession(RUN / "Guess.onnx")
    obs = {f"obs_{i}": np.full((50, size), 9, np.float32) for i, size in enumerate((1, 2))}
    (actions,) = session.run(
        ["continuous_actions"], obs | {"action_masks": np.ones((50, 3), np.float32)}
    )
    assert np.abs(actions).max() <= 1


def test_a_resumed_run_goes_on_with_its_replay_buffer(capsys: pytest.CaptureFixture[str]) -> None:
    learn()
    assert BUFFER.is_file()
    capsys.readouterr()
    text = Path("guess.yaml").read_text().replace("max_steps: 1000", "max_steps: 1500")
    Path("guess.yaml").write_text(text)

    assert learn("--resume") == 0

    log = capsys.readouterr().out
    assert "Loaded 600 experiences of Guess" in log
    assert "Resuming Guess at step 1024." in log
    checkpoint = torch.load(RUN / "Guess" / "checkpoint.pt", weights_only=True)
    assert checkpoint["global_step"] >= 1500


def test_a_replay_buffer_that_is_broken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    learn()
    BUFFER.write_bytes(b"nothing")
    assert learn("--resume") == 1
    log = capsys.readouterr().out
    assert f"[ERROR] replay buffer {BUFFER} cannot be loaded" in log and "Traceback" not in log


def test_a_replay_buffer_that_is_gone_is_begun_anew(capsys: pytest.CaptureFixture[str]) -> None:
    learn()
    BUFFER.unlink()
    capsys.readouterr()
    text = Path("guess.yaml").read_text().replace("max_steps: 1000", "max_steps: 1200")
    Path("guess.yaml").write_text(text)
    assert learn("--resume") == 0
    assert f"{BUFFER} is missing" in capsys.readouterr().out
