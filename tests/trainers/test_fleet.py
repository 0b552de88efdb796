"""Rollout workers against agents that act in the process that learns."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from actors import behavior
from fleets import (
    KillsANode,
    KillsAWorker,
    KillsAWorkerThatHasAnswered,
    assert_equal,
    ray_cluster,
)
from mlagents.trainers.acting.collector import Activity
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.fleet.experience import RemoteExperience
from mlagents.trainers.fleet.handle import WorkerHandle
from mlagents.trainers.fleet.messages import Failure, Gathered, Setup
from mlagents.trainers.fleet.places import numbered
from mlagents.trainers.fleet.ray_actors import RayWorkers
from mlagents.trainers.fleet.worker import RolloutWorker
from mlagents.trainers.learn import run_training
from mlagents.trainers.run.interrupt import Interrupted
from mlagents.trainers.settings.run_options import ClusterSettings, RunOptions
from mlagents_envs.exception import UnityEnvironmentException
from processes import children, lists_children
from steps import make_segments

PPO = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 240},
    "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
    "max_steps": 900,
    "time_horizon": 7,
    "summary_freq": 200,
    "checkpoint_interval": 400,
}
SAC = PPO | {
    "trainer_type": "sac",
    "hyperparameters": {"batch_size": 16, "buffer_size": 500, "buffer_init_steps": 100},
    "max_steps": 400,
}
POCA = PPO | {"trainer_type": "poca"}
MEMORY = PPO | {
    "network_settings": {
        "hidden_units": 8,
        "num_layers": 1,
        "memory": {"memory_size": 4, "sequence_length": 4},
    },
}
GUESS = "guess_environment:GuessEnvironment"


@pytest.fixture(autouse=True)
def in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def options(run_id: str, workers: int | None = None, **written: Any) -> RunOptions:
    environment = {"env_path": GUESS, "seed": 3, **written.pop("env_settings", {})}
    cluster = {"workers": workers, **written.pop("cluster", {})}
    return RunOptions.model_validate(
        {
            "default_settings": written.pop("behavior", PPO),
            "env_settings": environment,
            "checkpoint_settings": {"run_id": run_id, **written.pop("checkpoint_settings", {})},
            "cluster": cluster,
            **written,
        }
    )


def trained(*arguments: Any, **written: Any) -> dict[str, Any]:
    """Run training; return the last checkpoint of its only behavior."""
    run_options = options(*arguments, **written)
    run_training(run_options)
    (folder,) = Path("results", run_options.checkpoint_settings.run_id).glob("*/checkpoint.pt")
    return torch.load(folder, weights_only=True)


LESSONS = {
    "threshold": {
        "curriculum": [
            {
                "name": "low",
                "completion_criteria": {
                    "behavior": "Guess",
                    "measure": "progress",
                    "threshold": 0.3,
                    "min_lesson_length": 1,
                    "require_reset": True,
                },
                "value": 1.0,
            },
            {"name": "high", "value": 2.0},
        ]
    }
}


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({"behavior": PPO}, id="ppo"),
        pytest.param({"behavior": SAC}, id="sac"),
        pytest.param({"behavior": POCA}, id="poca"),
        pytest.param({"behavior": MEMORY}, id="memory"),
        pytest.param({"environment_parameters": LESSONS}, id="lessons"),
        pytest.param({"behavior": PPO | {"stop_at_reward": -100.0}}, id="stop"),
    ],
)
def test_one_worker_is_the_run_in_one_process(written: dict[str, Any]) -> None:
    assert_equal(trained("workers", 1, **written), trained("here", **written))


def test_two_workers_give_the_same_weights_each_time() -> None:
    first, second = trained("first", 2), trained("second", 2)
    assert_equal(first, second)
    assert not torch.equal(
        *(next(iter(each["Policy"].values())) for each in (first, trained("here")))
    ), "the second worker has players of its own"


def test_a_resumed_worker_continues_the_same_run() -> None:
    part = PPO | {"max_steps": 480}
    for run_id, workers in (("workers", 1), ("here", None)):
        trained(run_id, workers, behavior=part)
    resumed = [
        trained(run_id, workers, checkpoint_settings={"resume": True})
        for run_id, workers in (("workers", 1), ("here", None))
    ]
    assert_equal(*resumed)


def test_off_policy_learners_keep_old_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = []

    def note(self: RemoteExperience) -> None:
        drop_old(self)
        dropped.append(self.n_dropped)

    drop_old = RemoteExperience._drop_old
    monkeypatch.setattr(RemoteExperience, "_drop_old", note)
    trained("async", 2, behavior=SAC, cluster={"mode": "async", "max_staleness": 0})
    assert dropped and not any(dropped)


@pytest.mark.parametrize("behavior", [PPO, SAC, POCA], ids=["ppo", "sac", "poca"])
def test_workers_that_do_not_wait_train_a_behavior(behavior: dict[str, Any]) -> None:
    state = trained("async", 2, behavior=behavior, cluster={"mode": "async"})
    assert state["global_step"] >= behavior["max_steps"]


def steps_of(n_steps: int) -> Segments:
    return make_segments(behavior(1, continuous=1), [n_steps], np.random.default_rng(0))


def gathered(version: int, segments: Segments | None) -> Gathered:
    activity = Activity.concatenate([])
    return Gathered(activity, 0, 0, 0, [], [], version, {}, segments)


def test_old_steps_are_dropped_and_counted() -> None:
    experience = RemoteExperience(lambda: None, max_staleness=1)
    experience.version = 5
    for worker, version in enumerate((3, 4, 5)):
        experience.add(worker, gathered(version, steps_of(10 + worker)))
    segments = experience.take(at_least=20)
    assert segments is not None and segments.length.tolist() == [11, 12]
    assert experience.n_dropped == 10
    assert experience.take(at_least=1) is None


def test_steps_that_came_with_an_answer_wait_for_the_update_and_survive_their_worker() -> None:
    activity = Activity.concatenate([])
    cut = steps_of(10), activity._replace(n_steps=4)
    fetched = []
    experience = RemoteExperience(lambda: fetched.append(True), max_staleness=None)
    experience.add(0, gathered(0, None)._replace(n_held=6, n_unfinished=4, cut=cut))
    assert (experience.n_held, experience.n_unfinished, experience.held_by(0)) == (6, 4, 10)
    assert experience.activity().n_steps == 0, "cutting counts when an update needs the steps"
    experience.add(1, gathered(0, None)._replace(n_held=1))
    assert [experience.has_to_send(worker) for worker in (0, 1, 2)] == [False, True, False]
    experience.lose(1)
    experience.lose(0)
    assert (experience.n_held, experience.n_unfinished, experience.held_by(0)) == (10, 0, 0)
    assert experience.activity().n_steps == 4
    segments = experience.take(at_least=10)
    assert fetched and segments is not None and segments.n_steps == 10


def test_episodes_and_groups_of_workers_have_their_own_numbers() -> None:
    segments = replace(steps_of(3), episode=np.array([7]), group=np.array([2]))
    alone = replace(segments, group=np.array([-2]))
    assert numbered(segments, 0) is segments
    first, second = (numbered(segments, life) for life in (1, 2))
    assert len({int(s.episode[0]) for s in (segments, first, second)}) == 3
    assert len({int(s.group[0]) for s in (segments, first, second)}) == 3
    assert numbered(alone, 1).group[0] < 0


def test_staleness_is_corrected_above_one_version() -> None:
    cluster = {"mode": "async", "max_staleness": 3}
    state = trained("async", 2, cluster=cluster)
    assert state["global_step"] >= PPO["max_steps"]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"env_settings": {"env_path": None}}, r"cluster.workers\s+needs env_path"),
        (
            {
                "behaviors": {"A": POCA},
                "cluster": {"mode": "async", "max_staleness": 2},
            },
            r"max_staleness\s+above 1 works with sac, and with ppo",
        ),
    ],
)
def test_runs_that_workers_cannot_act_for_are_refused(written: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        options("run", 2, **written)


def test_an_address_without_workers_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"address\s+needs cluster\.workers"):
        options("run", None, cluster={"address": "auto"})


def test_a_worker_of_another_version_is_refused() -> None:
    setup = Setup(options("run", 1), 0, 0, "logs", (), "0.1")
    with pytest.raises(UnityTrainerException, match=r"the head runs mlagents-next 0\.1, but"):
        RolloutWorker(setup)


def test_a_newer_policy_is_not_replaced_by_an_older_one() -> None:
    worker = RolloutWorker.__new__(RolloutWorker)  # `__init__` takes over the process's log
    worker._mail, worker._has_mail = {}, threading.Condition()
    worker.renew({"Guess": (2, b"newer")})
    worker.renew({"Guess": (1, b"older"), "Other": (1, b"first")})
    assert worker._mail == {"Guess": (2, b"newer"), "Other": (1, b"first")}


def test_without_ray_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TrainerConfigError, match=r"needs Ray.*mlagents-next\[cluster\]"):
        RayWorkers(ClusterSettings(workers=1, address="auto"))


def test_an_address_where_no_process_listens_is_refused() -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(TrainerConfigError, match="no Ray cluster answers there"):
        RayWorkers(ClusterSettings(workers=1, address=f"127.0.0.1:{port}"))


def test_auto_without_a_cluster_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)  # as `ray start` of a cluster that has ended
    with pytest.raises(TrainerConfigError, match=r"is 'auto' \(.*\), but no Ray cluster answers"):
        RayWorkers(ClusterSettings(workers=1, address="auto"))


class SilentRay(ModuleType):
    """Ray that connects to a process that does not answer."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.ends = threading.Event()

    def is_initialized(self) -> bool:
        return False

    def init(self, **_: object) -> None:
        self.ends.wait()


def test_a_process_that_does_not_answer_is_waited_for_until_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = SilentRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    settings = ClusterSettings(workers=1, address="ray://a:1", start_timeout_s=1)
    with pytest.raises(TrainerConfigError, match=r"did not answer within 1 s"):
        RayWorkers(settings)
    ray.ends.set()


def test_an_error_of_a_worker_names_it_and_its_node() -> None:
    worker = WorkerHandle(3, RunOptions().env_settings)
    failure = Failure(UnityEnvironmentException("no executable"), "trace", "node 10.0.0.7")
    with pytest.raises(UnityEnvironmentException, match=r"^worker 3 on node 10\.0\.0\.7: no exec"):
        worker.result(failure)


@pytest.mark.slow
@pytest.mark.parametrize("is_running", [False, True])
def test_a_run_keeps_its_handler_of_signals_in_a_cluster(
    is_running: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    received: list[int] = []
    with ray_cluster() if is_running else nullcontext() as cluster:
        before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
        try:
            address = cluster.address if is_running else "local"
            workers = RayWorkers(ClusterSettings(workers=1, address=address))
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                workers.close()
        finally:
            signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]
    assert "SIGTERM received" not in capfd.readouterr().err, "Ray's handler says so"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs a signal of its own")
def test_a_signal_interrupts_the_wait_for_a_worker_of_ray() -> None:
    pytest.importorskip("ray")

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    workers = RayWorkers(ClusterSettings(workers=1, address="local"))
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        workers._settings = workers._settings.model_copy(update={"cpus_per_worker": 2})
        workers.start(Setup(options("run", 1), 0, 0, "logs", (), "0.1"))
        workers.call(0, "take", "any")
        for _ in range(5):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(Interrupted):
                workers.wait()
    finally:
        signal.signal(signal.SIGUSR1, before)
        workers.close()


@pytest.mark.slow
def test_a_worker_that_fits_no_node_is_waited_for_until_a_deadline() -> None:
    pytest.importorskip("ray")
    settings = ClusterSettings(workers=1, address="local", start_timeout_s=60)
    workers = RayWorkers(settings)
    try:
        workers._settings = settings.model_copy(update={"cpus_per_worker": 2, "start_timeout_s": 1})
        workers.start(Setup(options("run", 1), 0, 0, "logs", (), "0.1"))
        workers.call(0, "take", "any")
        with pytest.raises(UnityTrainerException, match=r"worker 0 within 1 s. It needs 2 CPUs on"):
            workers.wait()
    finally:
        workers.close()


@pytest.mark.slow
def test_a_run_goes_on_without_a_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    with ray_cluster() as cluster:
        KillsANode.nodes = cluster.worker_nodes
        monkeypatch.setattr("mlagents.trainers.fleet.remote.RemoteFleet", KillsANode)
        state = trained("run", 2, cluster={"address": cluster.address})
    assert state["global_step"] >= PPO["max_steps"]
    log = capsys.readouterr().out
    assert log.count("has failed; restart 1 of 10.") == 1
    assert "Raylet is terminated" not in log


@pytest.mark.slow
def test_a_worker_of_ray_is_the_run_in_one_process() -> None:
    pytest.importorskip("ray")
    on_ray = trained("ray", 1, cluster={"address": "local"})
    assert_equal(on_ray, trained("here"))


@lists_children
def test_a_run_leaves_no_processes() -> None:
    before = children()
    trained("run", 2)
    after = children() - before
    assert all("resource_tracker" in Path(f"/proc/{p}/cmdline").read_text() for p in after)


def test_a_killed_worker_is_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlagents.trainers.fleet.remote.RemoteFleet", KillsAWorker)
    state = trained("run", 2)
    assert state["global_step"] >= PPO["max_steps"]
    log = capsys.readouterr().out
    assert log.count("The process of worker 1 was ended by SIGKILL; restart 1 of 10.") == 1
    assert log.count("Worker 1 acts again.") == 1


def test_a_worker_may_end_between_its_answer_and_the_update(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mlagents.trainers.fleet.remote.RemoteFleet", KillsAWorkerThatHasAnswered)
    state = trained("run", 2)
    assert state["global_step"] >= PPO["max_steps"]
    assert capsys.readouterr().out.count("The process of worker 1 was ended by SIGKILL") == 1


def test_a_worker_without_restarts_left_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlagents.trainers.fleet.remote.RemoteFleet", KillsAWorker)
    with pytest.raises(Exception, match=r"worker 1 was ended by SIGKILL and is not restarted"):
        trained("run", 2, env_settings={"max_lifetime_restarts": 0})


def test_an_error_of_an_environment_names_the_worker(tmp_path: Path) -> None:
    (tmp_path / "broken_part.py").write_text(
        "def make():\n    raise RuntimeError('no 13th part')\n"
    )
    with pytest.raises(RuntimeError, match="no 13th part") as caught:
        trained("run", 2, env_settings={"env_path": "broken_part:make"})
    assert "In worker" in "".join(caught.value.__notes__)


HEAD = """
import sys
from mlagents.trainers.learn import main
sys.exit(main(sys.argv[1:]))
"""


@lists_children
def test_workers_end_when_the_head_is_killed(tmp_path: Path) -> None:
    arguments = ["--env", GUESS, "--run-id", "run", "--workers", "2", "--seed", "1"]
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-u", "-c", HEAD, *arguments],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        text=True,
    ) as head:
        assert head.stdout is not None
        for line in head.stdout:
            if "rollout workers began" in line:
                break
        workers = children(head.pid)
        assert len(workers) >= 2
        head.kill()
        head.wait()
        until_s = time.monotonic() + 20
        while any(map(is_alive, workers)):  # nothing tells when an orphan ends
            assert time.monotonic() < until_s
            time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
