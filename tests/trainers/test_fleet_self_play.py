"""Self-play whose agents act in rollout workers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fleets import KillsAWorker, assert_equal
from mlagents.trainers.learn import run_training
from mlagents.trainers.settings.run_options import RunOptions

SETTINGS: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 64},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "time_horizon": 16,
    "summary_freq": 128,
    "checkpoint_interval": 200,
    "max_steps": 700,
}
SELF_PLAY = {"save_steps": 64, "team_change": 192, "swap_steps": 32, "window": 3}
SAC = {
    "trainer_type": "sac",
    "hyperparameters": {"batch_size": 16, "buffer_size": 256, "buffer_init_steps": 32},
    "max_steps": 300,
}
MEMORY = {
    "network_settings": {
        "hidden_units": 8,
        "num_layers": 1,
        "memory": {"memory_size": 4, "sequence_length": 4},
    }
}
LESSONS = {
    "speed": {
        "curriculum": [
            {
                "name": "low",
                "completion_criteria": {
                    "behavior": "Duel",
                    "measure": "win_rate",
                    "threshold": 0.3,
                    "min_lesson_length": 10,
                },
                "value": 1.0,
            },
            {"name": "high", "value": 2.0},
        ]
    }
}


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trained(
    run_id: str,
    workers: int | None,
    *,
    env: str = "duels:LinePong",
    self_play: dict[str, Any] | None = None,
    of_behavior: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    resume: bool = False,
    **written: Any,
) -> dict[str, Any]:
    """Run training; return the last checkpoints of all behaviors, and the exported policies."""
    behavior = SETTINGS | {"self_play": SELF_PLAY | (self_play or {})} | (of_behavior or {})
    options = {
        "default_settings": behavior,
        "env_settings": {"env_path": env, "seed": 3},
        "checkpoint_settings": {"run_id": run_id, "resume": resume},
        "cluster": {"workers": workers, **(cluster or {})},
        **written,
    }
    run_training(RunOptions.model_validate(options))
    folders = sorted(Path("results", run_id).glob("*/checkpoint.pt"))
    assert folders
    return {path.parent.name: torch.load(path, weights_only=True) for path in folders}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({}, id="symmetric"),
        pytest.param({"env": "duels:asymmetric"}, id="asymmetric"),
        pytest.param({"of_behavior": SAC}, id="sac"),
        pytest.param({"of_behavior": MEMORY}, id="memory"),
        pytest.param(
            {"self_play": {"swap_at": "step", "learn_from_both": False, "swap_steps": 20}},
            id="at once",
        ),
        pytest.param({"self_play": {"opponents": "pfsp", "window": 2}}, id="pfsp"),
        pytest.param(
            {"self_play": {"opponent": "duels:chase", "opponent_ratio": 0.5}}, id="script"
        ),
        pytest.param({"environment_parameters": LESSONS}, id="lessons"),
        pytest.param(
            {"env": "duels:in_groups", "of_behavior": {"trainer_type": "poca"}}, id="poca"
        ),
    ],
)
def test_one_worker_is_the_run_in_one_process(written: dict[str, Any]) -> None:
    of_worker, here = trained("worker", 1, **written), trained("here", None, **written)
    for each in here.values():
        assert len(each["self_play"]["window"]) > 1, "snapshots were saved"
        assert each["self_play"]["league"]["version"] > 4, "games were played"
    assert_equal(of_worker, here)


def test_a_resumed_worker_continues_the_same_run() -> None:
    for run_id, workers in (("worker", 1), ("here", None)):
        trained(run_id, workers, of_behavior={"max_steps": 400})
    assert_equal(
        trained("worker", 1, resume=True),
        trained("here", None, resume=True),
    )


def test_two_workers_give_the_same_run_each_time() -> None:
    first, second = trained("first", 2), trained("second", 2)
    assert_equal(first, second)
    state = first["Duel"]["self_play"]
    assert state["league"]["version"] > 20
    assert [kept["number"] for kept in state["window"]][-1] >= 5


@pytest.mark.parametrize("of_behavior", [{}, SAC], ids=["ppo", "sac"])
def test_workers_that_do_not_wait_play_against_snapshots(of_behavior: dict[str, Any]) -> None:
    state = trained("async", 2, of_behavior=of_behavior, cluster={"mode": "async"})["Duel"]
    assert state["global_step"] >= (SETTINGS | of_behavior)["max_steps"]
    assert len(state["self_play"]["window"]) == 3
    assert state["self_play"]["league"]["version"] > 4


def test_a_worker_that_is_killed_gets_its_opponents_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlagents.trainers.fleet.remote.RemoteFleet", KillsAWorker)
    state = trained("run", 2, self_play={"play_against_latest_model_ratio": 0.0})["Duel"]
    assert state["global_step"] >= SETTINGS["max_steps"]
    assert capsys.readouterr().out.count("Worker 1 acts again.") == 1
