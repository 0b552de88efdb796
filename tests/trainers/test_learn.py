"""`mlagents-learn` as a person uses it, on a task that takes a second."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.learn import main, run_training
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.run.interrupt import SIGNALS
from mlagents.trainers.settings.load import load_run_options
from mlagents_envs.environment import UnityEnvironment

CONFIGURATION = """
behaviors:
  Guess:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 512, learning_rate: 3.0e-3}
    network_settings: {hidden_units: 16, num_layers: 1, normalize: true}
    max_steps: 3000
    time_horizon: 8
    summary_freq: 1000
    checkpoint_interval: 1000
"""
ENVIRONMENT = "guess_environment:GuessEnvironment"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a short run, to be copied."""
    folder = tmp_path_factory.mktemp("learned")
    configuration = folder / "guess.yaml"
    configuration.write_text(CONFIGURATION.replace("max_steps: 3000", "max_steps: 600"))
    arguments = ["--env", ENVIRONMENT, "--results-dir", str(folder / "results"), "--seed", "5"]
    assert main([str(configuration), *arguments, "--run-id", "first"]) == 0
    return folder / "results"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("guess.yaml").write_text(CONFIGURATION)
    return tmp_path


def learn(*arguments: str, run_id: str = "first") -> int:
    return main(["guess.yaml", "--env", ENVIRONMENT, "--run-id", run_id, "--seed", "5", *arguments])


def checkpoint(run_id: str = "first") -> dict:
    return torch.load(Path("results", run_id, "Guess", "checkpoint.pt"), weights_only=True)


def scalars(run_id: str = "first") -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(Path("results", run_id, "Guess")))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_a_run_leaves_what_users_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert learn() == 0

    run = Path("results/first")
    assert {path.name for path in run.iterdir()} == {
        "Guess",
        "Guess.onnx",
        "configuration.yaml",
        "run_logs",
        "stats.jsonl",
        "training.png",
    }
    onnx.checker.check_model(onnx.load(run / "Guess.onnx"))
    status = json.loads((run / "run_logs/training_status.json").read_text())
    steps = [entry["steps"] for entry in status["Guess"]["checkpoints"]]
    assert steps == [992, 1984, 2976, 3008], "before each thousandth step, and at the end"
    assert status["Guess"]["final_checkpoint"]["steps"] == steps[-1] == checkpoint()["global_step"]
    for step in steps:
        assert (run / f"Guess/Guess-{step}.pt").exists()
        assert (run / f"Guess/Guess-{step}.onnx").exists()
    timers = json.loads((run / "run_logs/timers.json").read_text())
    assert timers["name"] == "root"
    assert "Guess.Environment.CumulativeReward.mean" in timers["gauges"]
    assert (
        timers["metadata"].items()
        >= {
            "communication_protocol_version": "1.5.0",
            "pytorch_version": torch.__version__,
        }.items()
    )
    assert yaml.safe_load((run / "configuration.yaml").read_text())["env_settings"]["seed"] == 5
    assert {
        "Environment/Cumulative Reward",
        "Environment/Episode Length",
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Policy/Beta",
        "Policy/Entropy",
        "Policy/Epsilon",
        "Policy/Extrinsic Reward",
        "Policy/Extrinsic Value Estimate",
        "Policy/Learning Rate",
    } == scalars().keys()
    assert [step for step, _ in scalars()["Environment/Cumulative Reward"]] == [1000, 2000, 3000]
    # Episodes last four decisions, which is three from decision to decision.
    assert {value for _, value in scalars()["Environment/Episode Length"]} == {3.0}

    log = capsys.readouterr().out
    assert "[INFO] Guess. Step: 1000. Time Elapsed: " in log
    assert ". Mean Reward: " in log and ". Std of Reward: " in log and ". Training." in log
    assert "model   results/first/Guess.onnx" in log


def test_a_run_that_reached_its_reward_is_not_resumed_to_stop_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert learn("--stop-at-reward=-9") == 0
    log = capsys.readouterr().out
    assert "ended by stop_at_reward: -9" in log
    _, _, advice = log.partition("to resume, without --stop-at-reward:\n")
    resumed, _, _ = advice.partition("\n")
    assert resumed.endswith("--resume") and "--stop-at-reward" not in advice
    stopped_at = checkpoint()["global_step"]
    assert stopped_at < 1500

    assert learn("--resume") == 0
    assert checkpoint()["global_step"] > 3000
    assert "  to train longer, after raising max_steps:\n" in capsys.readouterr().out


def test_a_used_run_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    learn()
    capsys.readouterr()

    assert learn() == 1

    log = capsys.readouterr().out
    assert "--resume" in log and "--force" in log and "Traceback" not in log


def test_force_starts_over() -> None:
    learn()
    before = checkpoint()

    assert learn("--force", "--seed", "6") == 0

    assert checkpoint()["global_step"] == before["global_step"]
    assert not torch.equal(
        checkpoint()["Policy"]["heads.log_std"], before["Policy"]["heads.log_std"]
    )
    assert list(Path("results").glob("first-backup-*"))


def test_resume_goes_on_at_the_step_and_curve_where_it_stopped() -> None:
    learn()
    stopped = checkpoint()
    rewards = scalars()["Environment/Cumulative Reward"]
    Path("guess.yaml").write_text(CONFIGURATION.replace("max_steps: 3000", "max_steps: 5000"))

    assert learn("--resume") == 0

    resumed = scalars()["Environment/Cumulative Reward"]
    assert resumed[: len(rewards)] == rewards
    assert [step for step, _ in resumed] == [1000, 2000, 3000, 4000, 5000]
    assert resumed[3][1] > rewards[0][1] + 0.3, "what was learned is there from the start"
    assert checkpoint()["global_step"] > stopped["global_step"]
    count = "body.observations.encoders.0.normalizer.count"
    assert checkpoint()["Policy"][count] > stopped["Policy"][count] > 2500


def test_a_run_is_resumed_with_its_own_behaviors_only(capsys: pytest.CaptureFixture[str]) -> None:
    learn()
    before = Path("results/first/configuration.yaml").read_text()
    Path("walk.yaml").write_text("behaviors: {Basic: {trainer_type: ppo, max_steps: 1000}}")

    assert main(["walk.yaml", "--env", "Basic", "--run-id", "first", "--resume"]) == 1

    text = " ".join(capsys.readouterr().out.split())
    assert "first is a run of Guess, but the environment has Basic. Resume it in its own" in text
    assert Path("results/first/configuration.yaml").read_text() == before
    assert not Path("results/first/Basic").exists()


def test_a_run_that_goes_on_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(Path("results/first")).opened(resume=False, force=False, inference=False):
        assert learn("--force") == 1
    assert "another run uses results/first" in " ".join(capsys.readouterr().out.split())
    assert learn() == 0


def test_resuming_a_finished_run_says_so_and_changes_no_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learn()
    before = {path: path.stat().st_mtime_ns for path in Path("results/first/Guess").glob("*t")}
    curves = scalars()

    assert learn("--resume") == 0

    assert "Guess has reached max_steps (3000)" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in Path("results/first/Guess").glob("*t")} == before
    assert scalars() == curves


def test_a_stopped_run_goes_on_in_one_way_only() -> None:
    # The environment begins anew and so does the buffer; all else is where it was.
    learn()
    shutil.copytree("results/first", "results/second")
    Path("guess.yaml").write_text(CONFIGURATION.replace("max_steps: 3000", "max_steps: 6000"))

    for run_id in ("first", "second"):
        assert learn("--resume", run_id=run_id) == 0

    assert scalars("first") == scalars("second")
    first, second = checkpoint("first"), checkpoint("second")
    for key, value in first["Policy"].items():
        torch.testing.assert_close(second["Policy"][key], value, rtol=0, atol=0)
    assert first["random_states"]["samples"] == second["random_states"]["samples"]


def test_a_threaded_run_learns_as_well() -> None:
    Path("guess.yaml").write_text(
        CONFIGURATION.replace("max_steps: 3000", "max_steps: 8000\n    threaded: true")
    )

    assert learn() == 0

    rewards = scalars()["Environment/Cumulative Reward"]
    assert rewards[-1][1] > rewards[0][1] + 0.5
    timers = json.loads(Path("results/first/run_logs/timers.json").read_text())
    updates = timers["children"]["trainer_threads"]["children"]["update"]["count"]
    assert updates == 8000 // 512


def test_two_runs_in_one_process_do_not_mix() -> None:
    options = load_run_options(
        parse_command_line(["guess.yaml", "--env", ENVIRONMENT, "--run-id", "a", "--seed", "5"])
    )
    other = options.model_copy(
        update={
            "checkpoint_settings": options.checkpoint_settings.model_copy(update={"run_id": "b"})
        }
    )
    handler = signal.getsignal(signal.SIGINT)

    for each in (options, other):
        run_training(each)

    assert scalars("a") == scalars("b")
    assert signal.getsignal(signal.SIGINT) is handler
    timers = json.loads(Path("results/b/run_logs/timers.json").read_text())
    assert timers["children"]["run_training"]["count"] == 1


def test_resuming_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert learn("--resume", run_id="none") == 1
    assert "there is no run to resume" in capsys.readouterr().out
    assert not Path("results/none").exists()


def test_one_seed_gives_one_run_and_another_seed_another() -> None:
    learn(run_id="a")
    learn(run_id="b")
    learn("--seed", "6", run_id="c")

    a, b, c = (scalars(run_id) for run_id in "abc")
    assert a == b
    assert a["Environment/Cumulative Reward"] != c["Environment/Cumulative Reward"]


def test_initialize_from_takes_weights_and_begins_at_step_zero() -> None:
    learn(run_id="old")

    assert learn("--initialize-from", "old", run_id="new") == 0

    new, old = scalars("new"), scalars("old")
    assert new["Environment/Cumulative Reward"][0][0] == 1000
    assert (
        new["Environment/Cumulative Reward"][0][1]
        > old["Environment/Cumulative Reward"][0][1] + 0.3
    )


def test_runs_of_a_group_begin_from_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    learn(run_id="group/old")
    assert learn("--initialize-from", "group/old", run_id="group/new") == 0
    expected = Path("results/group/old/Guess/checkpoint.pt")
    assert f"Initialized Guess from {expected}." in capsys.readouterr().out


def test_initialize_from_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert learn("--initialize-from", "none") == 1
    assert "there is no checkpoint results/none/Guess/checkpoint.pt" in capsys.readouterr().out
    assert learn() == 0, "what failed does not stand in the way"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("hidden_units: 16", "hidden_units: 8", "network_settings.hidden_units was 16, is 8. Undo"),
        (
            "normalize: true}",
            "normalize: true, memory: {}}",
            "network_settings.memory.memory_size was null, is 128. Undo",
        ),
        (
            "ppo\n    hyperparameters: {batch_size: 64, buffer_size: 512, learning_rate: 3.0e-3}",
            "sac",
            "trainer_type was 'ppo', is 'sac'. Undo",
        ),
        (
            "    max_steps",
            "    reward_signals: {extrinsic: {}, curiosity: {gamma: 0.5}}\n    max_steps",
            "reward_signals was ['extrinsic'], is ['extrinsic', 'curiosity']. Undo",
        ),
    ],
)
def test_a_checkpoint_of_another_network_is_refused_with_what_changed_and_the_ways_on(
    old: str, new: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    learn()
    kept = {path: path.read_bytes() for path in Path("results/first").glob("*.yaml")}
    assert old in CONFIGURATION
    Path("guess.yaml").write_text(CONFIGURATION.replace(old, new))

    assert learn("--resume") == 1

    assert kept and all(path.read_bytes() == text for path, text in kept.items())
    log = capsys.readouterr().out
    assert "--resume: checkpoint results/first/Guess/checkpoint.pt does not fit behavior" in log
    assert f"'Guess': {expected} this change, or begin another run with the layers that" in log
    assert "--run-id NEW --initialize-from first." in log
    assert "Traceback" not in log


def test_a_checkpoint_of_another_environment_or_an_early_one_is_refused_by_its_layers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    learn()
    path = Path("results/first/Guess/checkpoint.pt")
    state = checkpoint()
    bias = state["Policy"]["body.dense.0.bias"]
    state["Policy"]["body.dense.0.bias"] = bias[:3]
    torch.save(state, path)
    assert learn("--resume") == 1
    log = capsys.readouterr().out
    assert "'Guess': Policy has body.dense.0.bias as (3,), not (16,). Its settings are the" in log

    del state["settings"], state["Optimizer:critic"]
    torch.save(state, path)
    assert learn("--resume") == 1
    log = capsys.readouterr().out
    assert "not (16,); it has no Optimizer:critic. Restore the observations, actions," in log


def put(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return what puts a value at a dotted key of a checkpoint."""

    def change(state: dict[str, Any]) -> None:
        *above, last = key.split("/")
        for name in above:
            state = state[name]
        state[last] = value

    return change


BIAS = "Policy/body.dense.0.bias"


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (put("global_step", -5), "its global_step is -5; expected a whole number of steps"),
        (put("global_step", "9"), "its global_step is '9'; expected a whole number"),
        (put("global_step", 1.5), "its global_step is 1.5; expected"),
        (put("global_step", 10**30), "its global_step is 1000000"),
        (put("recent_returns", ["a"]), "its recent_returns are not all finite numbers"),
        (put("recent_returns", [float("nan")]), "its recent_returns are not all finite"),
        (put("recent_group_returns", ["a"]), "its recent_group_returns are not all finite numbers"),
        (put("recent_returns", 5), "its recent_returns has type int; expected list"),
        (put("random_states", [1]), "its random_states has type list; expected dict"),
        (put("random_states/samples", "x"), "another part of the file is damaged or was changed"),
        (put("lessons", 3), "its lessons has type int; expected dict"),
        (put("Policy", 7), "its Policy is not a dictionary of tensors"),
        (put("Optimizer:critic", {"state": {}}), "its Optimizer:critic is not a dictionary of"),
        (put(BIAS, "x"), "its Policy is not a dictionary of tensors"),
        (put(BIAS, torch.zeros(16, dtype=torch.int32)), "bias is of type torch.int32; expected"),
        (put(BIAS, torch.full((16,), torch.nan)), "Policy.body.dense.0.bias contains NaN or"),
    ],
)
def test_a_crafted_checkpoint_is_refused_with_what_is_wrong_in_it(
    change: Callable[[dict[str, Any]], None],
    cause: str,
    learned: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(learned, "results")
    state = checkpoint()
    change(state)
    torch.save(state, "results/first/Guess/checkpoint.pt")
    capsys.readouterr()

    assert learn("--resume") == 1

    log = capsys.readouterr().out
    assert "--resume: checkpoint results/first/Guess/checkpoint.pt" in log and cause in log
    assert "observations or actions have changed" not in log
    assert "to resume " not in log, "it would fail again"


def test_weights_that_are_nan_are_not_begun_with(
    learned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(learned, "results")
    state = checkpoint()
    put(BIAS, torch.full((16,), torch.nan))(state)
    torch.save(state, "results/first/Guess/checkpoint.pt")
    assert learn("--initialize-from", "first", run_id="second") == 1
    assert "Policy.body.dense.0.bias contains NaN or infinite" in capsys.readouterr().out


def test_a_beginning_that_is_no_checkpoint_is_named_by_its_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    init_path = "init_path: guess.yaml\n    max_steps"
    Path("guess.yaml").write_text(CONFIGURATION.replace("max_steps", init_path))
    assert learn() == 1
    log = capsys.readouterr().out
    assert (
        "behaviors.Guess.init_path, for Guess: checkpoint guess.yaml cannot be read: it is" in log
    )
    assert "not a file that a run saved, such as checkpoint.pt (" in log


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("3DBal", "did you mean '3DBall'"),
        ("./missing/build", "missing"),
        ("no_such_module:make", "no_such_module"),
        ("guess_environment:GuesEnvironment", "did you mean 'GuessEnvironment'"),
        ("json:dumps", "missing a required argument"),
        ("platform:node", "returned a str"),
        ("sys:path", "cannot be called"),
    ],
)
def test_a_wrong_env_is_one_clear_error(
    environment: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guess.yaml", "--env", environment, "--run-id", "first"]) == 1

    log = capsys.readouterr().out
    assert "[ERROR]" in log and expected in log and "Traceback" not in log
    assert learn() == 0, "what failed does not stand in the way"


def test_a_typo_in_the_yaml_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("guess.yaml").write_text(CONFIGURATION.replace("batch_size", "bach_size"))

    assert learn() == 1

    log = capsys.readouterr().out
    assert "behaviors.Guess.hyperparameters.bach_size" in log and "batch_size" in log
    assert not Path("results").exists()


def test_a_behavior_nobody_configured_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("guess.yaml").write_text(CONFIGURATION.replace("Guess:", "Gess:"))

    assert learn() == 1

    assert "'Guess'" in capsys.readouterr().out


def test_what_only_has_the_methods_of_an_environment_is_trained_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("guess.yaml").write_text(CONFIGURATION.replace("Guess:", "Duck:"))
    assert learn("--env", "duck_environment:DuckOfLists") == 0
    assert "behavior 'Duck?team=0': agent_id is a list, not int32" in capsys.readouterr().out


def test_a_setting_beyond_memory_is_named_with_its_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("guess.yaml").write_text(CONFIGURATION.replace("horizon: 8", "horizon: 1000000000000000"))
    assert learn() == 1
    log = capsys.readouterr().out
    assert "[ERROR] behaviors.Guess.time_horizon: 1000000000000000 needs at least " in log
    assert " TB (" in log and "to resume" not in log


@pytest.mark.parametrize("kind", ["exit", "raise"])
def test_a_run_whose_environment_fails_says_how_to_resume_it(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("guess.yaml").write_text(CONFIGURATION.replace("Guess:", "Duck:"))
    error: BaseException = ZeroDivisionError("my mistake")
    if kind == "raise":
        monkeypatch.setattr("duck_environment.sys.exit", raising(error))
        with pytest.raises(ZeroDivisionError) as raised:
            learn("--env", "duck_environment:QuittingDuck")
        said = "\n".join(raised.value.__notes__)
    else:
        assert learn("--env", "duck_environment:QuittingDuck") == 1
        said = capsys.readouterr().out
        failure = "[ERROR] QuittingDuck.step() ended the program (SystemExit: no license found)"
        assert said.index("Saved Duck") < said.index(failure) < said.index("to resume")
    assert "mlagents-learn guess.yaml --env duck_environment:QuittingDuck" in said
    assert said.index("to resume") < said.index("--resume")
    saved = torch.load("results/first/Duck/checkpoint.pt", weights_only=True)
    assert saved["global_step"] > 800


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_arguments: object) -> None:
        raise error

    return fail


def test_a_player_that_fails_ends_with_the_error_and_how_to_resume(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TROUBLE", "0 exit 40")
    Path("guess.yaml").write_text(CONFIGURATION.replace("Guess:", "Troubled:"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    arguments = ["--num-envs", "2", "--max-lifetime-restarts", "0"]
    assert learn("--env", "troubled_environment:TroubledEnvironment", *arguments) == 1
    said = capsys.readouterr().out
    noise, error = said.index("the floor gave way"), said.index("[ERROR] player 0 failed")
    assert said.index("Saved Troubled") < noise < error < said.index("to resume")


@pytest.mark.parametrize("environment", [None, "3DBall"])
def test_a_port_in_use_comes_with_its_remedy(
    environment: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        monkeypatch.setattr(UnityEnvironment, "DEFAULT_EDITOR_PORT", port)
        arguments = ["guess.yaml", "--run-id", "first"]
        if environment:
            program = str(Path(sys.executable).with_name("mlagents-sim"))
            arguments += ["--env", program, "--base-port", str(port), "--env-args", environment]
        assert main(arguments) == 1
    said = capsys.readouterr().out
    assert f"Port {port} is used by process" in said
    remedy = "--base-port 0" if environment else "end the program that occupies it"
    assert remedy in said and "worker_id" not in said


INTERRUPTED_IMPORT = """
import importlib.abc, signal, sys

class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from {module} import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("mlagents.trainers.learn", "pydantic"),
        ("mlagents.trainers.learn", "mlagents.trainers.cli_args"),
        ("mlagents.trainers.run_experiment", "mlagents.trainers.cli_args"),
        ("mlagents.playing.play", "mlagents.playing.policy"),
        ("mlagents_sim.__main__", "mlagents_envs.factories"),
    ],
)
def test_ctrl_c_while_a_command_is_imported_leaves_no_traceback(module: str, imported: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT.format(module=module), imported]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Interrupted before the start.\n"


def test_a_wrong_flag_exits_with_two() -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["guess.yaml", "--no-such-flag"])
    assert exit_.value.code == 2


def spawn(*arguments: str) -> subprocess.Popen[str]:
    """Start a run of this checkout in a process of its own."""
    command = [sys.executable, "-m", "mlagents.trainers.learn", "guess.yaml", "--env", ENVIRONMENT]
    tests = Path(__file__).parents[1]
    return subprocess.Popen(
        [*command, "--run-id", "first", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent / "src")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def spawn_endless() -> subprocess.Popen[str]:
    """Start a run that takes long; return when it has saved a checkpoint."""
    Path("guess.yaml").write_text(CONFIGURATION.replace("max_steps: 3000", "max_steps: 1000000"))
    process = spawn()
    give_up_s = time.monotonic() + 60
    while not Path("results/first/Guess/checkpoint.pt").exists():
        if process.poll() is not None or time.monotonic() > give_up_s:
            process.kill()
            pytest.fail(process.communicate()[0])
        time.sleep(0.05)
    return process


@pytest.mark.slow
@pytest.mark.usefixtures("hangup_is_not_ignored")
@pytest.mark.parametrize("signal_number", SIGNALS)
def test_an_interrupted_run_saves_and_exits_with_zero(signal_number: int) -> None:
    process = spawn_endless()

    process.send_signal(signal_number)
    log = process.communicate(timeout=30)[0]

    assert process.returncode == 0, log
    assert "Traceback" not in log
    saved = checkpoint()["global_step"]
    assert f"Guess-{saved}.pt" in {path.name for path in Path("results/first/Guess").iterdir()}
    assert Path("results/first/Guess.onnx").exists()
    assert Path("results/first/run_logs/timers.json").exists()


@pytest.mark.parametrize(("n_signals", "status"), [(1, 0), (2, 130)])
def test_one_signal_in_an_update_finishes_it_and_two_end_at_once(
    n_signals: int, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    finished = []
    update = PPO.update

    def interrupted(*arguments: Any, **options: Any) -> dict[str, float]:
        for _ in range(n_signals):
            signal.raise_signal(signal.SIGINT)
        results = update(*arguments, **options)
        finished.append(options["step"])
        return results

    monkeypatch.setattr(PPO, "update", interrupted)

    assert learn() == status

    out, err = capfd.readouterr()
    assert "interrupt again" in err and "Traceback" not in out + err
    if n_signals == 1:
        assert finished == [512] and checkpoint()["global_step"] == 512
        assert Path("results/first/Guess.onnx").exists()
    else:
        assert not finished and "Stopped at once" in out
        assert not list(Path("results/first").rglob("*.pt"))


@pytest.mark.slow
def test_a_killed_run_resumes_from_its_last_checkpoint() -> None:
    process = spawn_endless()

    process.kill()
    process.communicate(timeout=30)

    killed_at = checkpoint()["global_step"]
    assert killed_at >= 900
    Path("guess.yaml").write_text(
        CONFIGURATION.replace("max_steps: 3000", f"max_steps: {killed_at + 1000}")
    )
    assert learn("--resume") == 0
    assert checkpoint()["global_step"] >= killed_at + 1000


@pytest.mark.slow
def test_inference_acts_and_writes_nothing() -> None:
    learn()
    before = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")}

    process = spawn("--resume", "--inference")
    assert process.stdout is not None
    line = next(line for line in process.stdout if "Mean Reward" in line)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    assert "Not Training" in line
    assert process.returncode == 0
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")} == before
