"""`mlagents-learn` from demonstrations alone."""

import json
import socket
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import shared_data
from actors import behavior
from mlagents.trainers.learn import main
from mlagents.trainers.players.offline import OfflineEnvManager
from mlagents_envs.base_env import ActionSpec
from recorded import record_guesses

CONFIGURATION = """
behaviors:
  Guess:
    trainer_type: bc
    hyperparameters: {{batch_size: 16, buffer_size: 160, learning_rate: 5.0e-3}}
    network_settings: {{hidden_units: 16, num_layers: 1}}
    max_steps: {max_steps}
    summary_freq: 800
    checkpoint_interval: 800
    behavioral_cloning: {{demo_path: expert.demo}}
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    record_guesses(tmp_path / "expert.demo", ActionSpec.create_hybrid(1, (3,)), n_steps=40)
    configure()
    return tmp_path


def configure(*, max_steps: int = 2400) -> None:
    Path("bc.yaml").write_text(CONFIGURATION.format(max_steps=max_steps))


def learn(*arguments: str, run_id: str = "first") -> int:
    return main(["bc.yaml", "--run-id", run_id, "--seed", "5", *arguments])


def checkpoint(run_id: str = "first") -> dict:
    return torch.load(Path("results", run_id, "Guess", "checkpoint.pt"), weights_only=True)


def test_a_run_needs_no_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("nobody is to be waited for")

    monkeypatch.setattr(socket.socket, "listen", refuse)

    assert learn() == 0

    log = capsys.readouterr().out
    assert "environment  none: learns from demonstrations alone" in log
    assert "Learning from expert.demo: 288 steps in 72 episodes, mean reward 4.000" in log
    assert "[INFO] Guess. Step: 1600. Time Elapsed: " in log
    assert ". Held-out Accuracy: " in log and ". Held-out Error: " in log
    status = json.loads(Path("results/first/run_logs/training_status.json").read_text())
    steps = [entry["steps"] for entry in status["Guess"]["checkpoints"]]
    assert steps == [800, 1600, 2400]
    model = onnxruntime.InferenceSession("results/first/Guess.onnx")
    numbers = np.array([[-0.8], [-0.4], [0.4], [0.8]], np.float32)
    outputs = model.run(
        ["deterministic_continuous_actions", "deterministic_discrete_actions"],
        {
            "obs_0": numbers,
            "obs_1": np.zeros((4, 2), np.float32),
            "action_masks": np.ones((4, 3), np.float32),
        },
    )
    np.testing.assert_allclose(outputs[0], numbers, atol=0.35)
    assert outputs[1].ravel().tolist() == [0, 0, 1, 1]


def test_a_resumed_run_ends_where_one_without_a_break_does() -> None:
    learn(run_id="whole")
    configure(max_steps=800)
    learn(run_id="broken")
    configure()
    learn("--resume", run_id="broken")
    for key, value in checkpoint("whole")["Policy"].items():
        torch.testing.assert_close(checkpoint("broken")["Policy"][key], value, rtol=0, atol=0)
    assert checkpoint("broken")["global_step"] == 2400


def test_a_clone_that_is_given_an_environment_plays_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert learn("--env", "guess_environment:GuessEnvironment") == 0
    assert checkpoint()["global_step"] == 2400, "demonstrated steps count, not played ones"
    assert "Mean Reward: " in capsys.readouterr().out


def test_reinforcement_learning_goes_on_from_a_clone(capsys: pytest.CaptureFixture[str]) -> None:
    learn()
    network = "network_settings: {hidden_units: 16, num_layers: 1}"
    Path("ppo.yaml").write_text(f"behaviors: {{Guess: {{max_steps: 100, {network}}}}}")
    arguments = ["--env", "guess_environment:GuessEnvironment", "--initialize-from", "first"]
    assert main(["ppo.yaml", "--run-id", "second", *arguments]) == 0
    log = capsys.readouterr().out
    assert (
        "These start from scratch: Optimizer:critic: " in log
        and "Policy" not in log.split("scratch")[1]
    )


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("behaviors: {A: {trainer_type: bc}}", "behaviors.A.behavioral_cloning: is required for"),
        (
            "behaviors: {A: {trainer_type: bc, behavioral_cloning: {demo_path: a, steps: 9}}}",
            "behaviors.A.behavioral_cloning.steps: does not apply to trainer_type bc",
        ),
        (
            "behaviors: {A: {trainer_type: bc, behavioral_cloning: {demo_path: a}, "
            "reward_signals: {rnd: {}}}}",
            "behaviors.A.reward_signals.rnd: does not apply to trainer_type bc",
        ),
        (
            "behaviors: {A: {trainer_type: bc, behavioral_cloning: {demo_path: a}}}",
            "behaviors.A: demo_path: the file or folder a",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_said(
    written: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bc.yaml").write_text(written)
    assert learn() == 1
    assert says in capsys.readouterr().out
    assert not Path("results").exists()


def test_nobody_is_there() -> None:
    manager = OfflineEnvManager({"A": behavior(2, continuous=1)})
    manager.reset()
    (report,) = manager.receive()
    decisions, terminals = report.steps["A"]
    assert len(decisions) == len(terminals) == 0
    manager.close()


@pytest.mark.slow
def test_push_block_is_cloned(capsys: pytest.CaptureFixture[str]) -> None:
    demo = shared_data.require(shared_data.ROOT / "demonstrations" / "ExpertPushBlock.demo")
    config = Path(__file__).parents[2] / "config" / "imitation" / "PushBlock_bc.yaml"
    Path("bc.yaml").write_text(config.read_text().replace("demos/ExpertPushBlock.demo", str(demo)))
    assert learn() == 0
    accuracies = [
        float(line.split("Held-out Accuracy: ")[1].split(". ")[0])
        for line in capsys.readouterr().out.splitlines()
        if "Held-out Accuracy" in line
    ]
    # Seven choices, of which the commonest is two fifths.
    assert accuracies[-1] > 0.7 > accuracies[0]
