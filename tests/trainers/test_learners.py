"""Several learners of a run, as a person uses them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.learn import main
from mlagents.trainers.learning.process_group import LearnerError
from mlagents.trainers.run.learners import (
    Place,
    _require_same_settings,
    place_of,
    require_for_several,
    torchrun_place,
)
from mlagents.trainers.settings.run_options import RunOptions

ENVIRONMENT = "guess_environment:GuessEnvironment"
TESTS = Path(__file__).parents[1]
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "ppo": {"batch_size": 64, "buffer_size": 256, "learning_rate": 3e-3},
    "sac": {"batch_size": 32, "buffer_size": 500, "steps_per_update": 16, "learning_rate": 3e-3},
}


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def configure(
    trainer_type: str = "ppo", *, of_run: dict[str, Any] | None = None, **written: Any
) -> None:
    behavior = {
        "trainer_type": trainer_type,
        "hyperparameters": HYPERPARAMETERS[trainer_type],
        "network_settings": {"hidden_units": 16, "num_layers": 1, "normalize": True},
        "max_steps": 1500,
        "time_horizon": 8,
        "summary_freq": 500,
        "checkpoint_interval": 500,
    }
    settings = {"behaviors": {"Guess": behavior | written}, **(of_run or {})}
    Path("guess.yaml").write_text(yaml.safe_dump(settings))


def arguments(*more: str, run_id: str = "first") -> list[str]:
    named = ["--env", ENVIRONMENT, "--run-id", run_id, "--seed", "5"]
    return ["guess.yaml", *named, "--learners", "2", *more]


def checkpoint(run_id: str = "first") -> dict[str, Any]:
    state: dict[str, Any] = torch.load(Path("results", run_id, "Guess", "checkpoint.pt"))
    return state


def weights(run_id: str) -> list[torch.Tensor]:
    return list(checkpoint(run_id)["Policy"].values())


@pytest.mark.slow
def test_two_learners_write_one_run_and_do_so_again_to_the_bit() -> None:
    configure()
    for run_id in ("first", "second"):
        assert main(arguments(run_id=run_id)) == 0
    for one, other in zip(weights("first"), weights("second"), strict=True):
        assert torch.equal(one, other)
    run = Path("results", "first")
    assert {path.name for path in run.iterdir()} == {
        *("Guess", "Guess.onnx", "configuration.yaml", "run_logs", "stats.jsonl", "training.png")
    }
    assert len(list(run.glob("Guess/events*"))) == 1
    # Steps and episodes are those of both: 8 agents each, 4 steps an episode.
    assert 1500 <= checkpoint()["global_step"] <= 1500 + 256
    events = EventAccumulator(str(run / "Guess"))
    events.Reload()
    steps = [event.step for event in events.Scalars("Environment/Cumulative Reward")]
    assert steps == [500, 1000, 1500]
    saved = yaml.safe_load((run / "configuration.yaml").read_text())
    assert saved["torch_settings"]["learners"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("then", "in_words"), [("1", "1"), ("3", "3")], ids=["one", "three"])
def test_a_run_is_resumed_with_any_number_of_learners(then: str, in_words: str) -> None:
    configure("ppo")
    assert main(arguments()) == 0
    before = checkpoint()["global_step"]
    configure("ppo", max_steps=2500)
    named = ["--env", ENVIRONMENT, "--run-id", "first", "--seed", "5"]
    assert main(["guess.yaml", *named, "--resume", "--learners", then]) == 0
    assert before < 2500 <= checkpoint()["global_step"]


@pytest.mark.slow
def test_evaluations_of_the_first_learner_end_all_and_change_nothing() -> None:
    configure()
    assert main(arguments(run_id="plain")) == 0
    evaluated = {"every": 700, "episodes": 6, "deterministic": True}
    configure(of_run={"evaluation": evaluated})
    assert main(arguments(run_id="evaluated")) == 0
    for one, other in zip(weights("plain"), weights("evaluated"), strict=True):
        assert torch.equal(one, other)
    assert Path("results", "evaluated", "Guess", "best.pt").exists()
    configure(of_run={"evaluation": evaluated | {"stop_at_reward": -1000.0}})
    assert main(arguments(run_id="ended")) == 0
    assert 700 <= checkpoint("ended")["global_step"] < 1500


@pytest.mark.slow
def test_callbacks_run_in_the_first_learner_and_end_all(working_directory: Path) -> None:
    working_directory.joinpath("following.py").write_text(
        "import os\n"
        "from mlagents.trainers.callbacks import Callback\n"
        "class Follows(Callback):\n"
        "    def on_summary(self, summary, run):\n"
        "        with open('seen.txt', 'a') as file:\n"
        "            print(os.getpid(), summary.step, file=file)\n"
        "        run.save()\n"
        "        if summary.step == 1000:\n"
        "            run.stop('enough')\n"
    )
    configure(of_run={"callbacks": ["following:Follows"]})
    assert main(arguments()) == 0
    seen = [line.split() for line in Path("seen.txt").read_text().splitlines()]
    assert [(int(pid), int(step)) for pid, step in seen] == [
        (os.getpid(), 500),
        (os.getpid(), 1000),
    ]
    assert 1000 <= checkpoint()["global_step"] < 1500


@pytest.mark.slow
@pytest.mark.parametrize("threaded", [False, True])
def test_sac_learns_with_two_learners(threaded: bool) -> None:
    configure("sac", threaded=threaded)
    assert main(arguments()) == 0
    assert checkpoint()["global_step"] >= 1500


def start(*more: str) -> "subprocess.Popen[str]":
    """Start a long run of two learners; return it when both have learned something."""
    configure(max_steps=10_000_000, summary_freq=200)
    process = subprocess.Popen(
        [sys.executable, "-m", "mlagents.trainers.learn", *arguments(*more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Step: 400" in line:
            return process
    raise AssertionError(f"it ended with {process.wait()}")


def learner_of(process: "subprocess.Popen[str]") -> int:
    """Return the process number of the other learner."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == process.pid and "local_learner" in path.joinpath("cmdline").read_text():
                return int(path.name)
        except OSError:
            continue  # it has ended meanwhile
    raise AssertionError("there is no other learner")


def wait_for_end(pid: int) -> None:
    """Wait until a process of another parent has ended, which may stay a zombie."""
    deadline_s = time.monotonic() + 60.0
    while time.monotonic() < deadline_s:
        try:
            if Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still runs")


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.mark.slow
@needs_proc
def test_a_run_saves_and_ends_when_a_learner_is_killed() -> None:
    process = start()
    learner = learner_of(process)
    os.kill(learner, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"learner 1 (process {learner}) was killed by signal 9" in output
    assert "--resume" in output
    assert checkpoint()["global_step"] >= 256


@pytest.mark.slow
@needs_proc
def test_no_learner_outlives_the_run() -> None:
    process = start()
    learner = learner_of(process)
    process.kill()
    process.communicate(timeout=120)
    wait_for_end(learner)


@pytest.mark.slow
@needs_proc
def test_a_signal_to_either_learner_ends_both_in_good_order() -> None:
    for to_first in (True, False):
        process = start("--force")
        learner = learner_of(process)
        os.kill(process.pid if to_first else learner, signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert "Interrupted: saving." in output
        wait_for_end(learner)


@pytest.mark.slow
def test_torchrun_starts_learners() -> None:
    configure()
    command = [
        *(sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", "2", "-m", "mlagents.trainers.learn"),
        *("guess.yaml", "--env", ENVIRONMENT, "--run-id", "first", "--seed", "5"),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("Saved Guess at step") >= 3
    assert finished.stdout.count("2 learners add up their gradients with gloo.") == 1
    assert main(arguments(run_id="second")) == 0
    for one, other in zip(weights("first"), weights("second"), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_the_cause_of_a_failed_learner_is_told_by_the_first(
    capsys: pytest.CaptureFixture[str], working_directory: Path
) -> None:
    # The second learner's environment fails; it is the one whose seed is 5 + 1.
    configure()
    working_directory.joinpath("fragile.py").write_text(
        "from guess_environment import GuessEnvironment\n"
        "def make(seed):\n"
        "    if seed == 6:\n"
        "        raise OSError('the level is missing')\n"
        "    return GuessEnvironment()\n"
    )
    command = arguments()
    command[command.index(ENVIRONMENT)] = "fragile:make"
    assert main(command) == 1
    output = capsys.readouterr().out
    assert "learner 1 has ended" in output and "the level is missing" in output


# -------------------------------------------------------------------------------------- bad input


def test_half_of_the_variables_of_torchrun() -> None:
    with pytest.raises(TrainerConfigError, match=r"RANK, WORLD_SIZE .* MASTER_ADDR, MASTER_PORT"):
        torchrun_place({"RANK": "0", "WORLD_SIZE": "2"})
    whole = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    with pytest.raises(TrainerConfigError, match="RANK is not a number: 'x'"):
        torchrun_place(whole | {"RANK": "x"})
    with pytest.raises(TrainerConfigError, match="RANK must be from 0 to 3"):
        torchrun_place(whole | {"RANK": "4"})
    local = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert torchrun_place(whole | local) == Place(1, 4, 1, 2)
    assert torchrun_place({"MASTER_ADDR": "a"}) is None
    two = RunOptions.model_validate({"torch_settings": {"learners": 2}})
    with pytest.raises(TrainerConfigError, match="is 2, but torchrun started 4"):
        place_of(two, whole)


def test_inference_needs_one_process_whatever_the_file_says() -> None:
    written = {"torch_settings": {"learners": 2}, "checkpoint_settings": {"inference": True}}
    assert place_of(RunOptions.model_validate(written), {}) is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"env_settings": {}}, "there is only one Editor"),
        ({"checkpoint_settings": {"inference": True}}, "torchrun started 4"),
        ({"env_settings": {"env_path": "x", "base_port": 65534}}, "exceeds the last port"),
        (
            {
                "env_settings": {"env_path": "x", "base_port": 65530},
                "evaluation": {"num_envs": 4},
            },
            "4 learners and 4 of evaluations exceeds the last port",
        ),
        (
            {"behaviors": {"B": {"trainer_type": "ppo", "hyperparameters": {"batch_size": 3}}}},
            "behaviors.B.hyperparameters.batch_size is 3, which 4 learners",
        ),
        ({"behaviors": {"B": {"trainer_type": "ppo", "self_play": {}}}}, "self_play"),
        (
            {
                "behaviors": {
                    "B": {"trainer_type": "sac", "hyperparameters": {"save_replay_buffer": True}}
                }
            },
            "save_replay_buffer",
        ),
    ],
    ids=["editor", "inference", "ports", "evaluation", "batch", "self-play", "replay"],
)
def test_what_several_learners_cannot_do(written: dict[str, Any], message: str) -> None:
    options = RunOptions.model_validate({"env_settings": {"env_path": "x"}} | written)
    with pytest.raises(TrainerConfigError, match=message):
        require_for_several(options, 4)


def test_settings_that_differ_are_named_with_both_values() -> None:
    def options(**behavior: Any) -> dict[str, Any]:
        written = {"behaviors": {"B": {"trainer_type": "ppo"} | behavior}}
        return json.loads(json.dumps(RunOptions.model_validate(written).as_dict()))

    with pytest.raises(LearnerError, match=r"0 and 2 .* behaviors.B.max_steps is 500000 and 7\."):
        _require_same_settings(options(), options(max_steps=7), 2)
    elsewhere = options() | {"debug": True}
    _require_same_settings(options(), elsewhere, 1)
