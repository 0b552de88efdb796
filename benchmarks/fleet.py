"""Measures rollout workers: how collecting scales, what it costs, and how fast a worker returns.

    python benchmarks/fleet.py scale --workers 1 2 16      players that only sleep
    python benchmarks/fleet.py overhead                    collections of 6,000 steps of 3DBall
    python benchmarks/fleet.py kill --trials 50            SIGKILL at random moments

`--cluster ADDRESS` measures the actors of a Ray cluster instead of processes.
"""

import argparse
import random
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from mlagents.trainers.fleet.fleet import Fleet, LocalFleet
from mlagents.trainers.fleet.messages import Harvest
from mlagents.trainers.fleet.processes import ProcessWorkers
from mlagents.trainers.fleet.ray_actors import RayWorkers
from mlagents.trainers.fleet.remote import RemoteFleet
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES
from mlagents.trainers.players.environments import env_manager_maker
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.run.interrupt import Interrupt
from mlagents.trainers.settings.run_options import RunOptions, TorchSettings
from mlagents_envs.base_env import ActionTuple, BehaviorId
from mlagents_sim.examples.ball_3d import Ball3D

SLEEP_S = 0.002


class Sleeping(Ball3D):
    """3DBall whose step sleeps instead of computing; agents report the same again."""

    def step(self) -> None:
        """Sleep."""
        time.sleep(SLEEP_S)

    def step_send(self) -> None:
        """Do nothing until `step_receive`."""

    def step_receive(self) -> None:
        """Sleep."""
        time.sleep(SLEEP_S)

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        """Ignore actions."""


class Timed(RemoteFleet):
    """Adds up the time that collections took within the worker."""

    collecting_s = 0.0

    def _take_in(self, worker: Any, harvest: Harvest) -> None:
        self.collecting_s += harvest.seconds
        super()._take_in(worker, harvest)


class Bench:
    """A fleet and a trainer that only counts: its updates take no time."""

    def __init__(self, env: str, n_workers: int | None, n_steps: int, address: str | None) -> None:
        self.folder = TemporaryDirectory()
        options = RunOptions.model_validate(
            {
                "default_settings": {
                    "trainer_type": "ppo",
                    "hyperparameters": {"buffer_size": n_steps, "batch_size": 64},
                    "summary_freq": 10**9,
                    "checkpoint_interval": 10**9,
                    "max_steps": 10**9,
                },
                "env_settings": {"env_path": env, "seed": 1, "max_lifetime_restarts": -1}
                | {"restarts_rate_limit_n": -1},
                "cluster": {"workers": n_workers, "address": address},
            }
        )
        self.fleet: Fleet
        if n_workers is None:
            make = env_manager_maker(options, log_folder=Path(self.folder.name))
            self.fleet = LocalFleet(make())
        else:
            self.workers = ProcessWorkers() if address is None else RayWorkers(options.cluster)
            sources = (str(Path(__file__).parent),)
            self.fleet = Timed(options, self.workers, log_folder=self.folder.name, sources=sources)
        self.trainer: Trainer | None = None
        self.options = options
        self.fleet.open(
            enter=self.enter,
            seat_of=lambda player, behavior: self.enter(behavior).seat,
            waiting=Interrupt().waiting,
            watches_episodes=False,
        )
        self.fleet.reset()
        for behavior in self.fleet.behavior_specs:
            self.enter(behavior)

    def enter(self, behavior: str) -> Trainer:
        """Return the trainer of the only behavior."""
        if self.trainer is None:
            name = BehaviorId.parse(behavior).name
            settings = self.options.behavior_settings(name)
            self.trainer = Trainer(
                TRAINER_TYPES["ppo"],
                name,
                self.fleet.behavior_specs[behavior],
                settings,
                stats=StatsReporter(name, []),
                device=torch.device("cpu"),
                seed=1,
                inference=False,
                torch_settings=TorchSettings(),
                on_summary=lambda step: None,
                on_checkpoint=lambda: None,
                collect=self.fleet.collect,
            )
            self.trainer.learner.learn = self.learn  # type: ignore[method-assign]
            self.n_learned = 0
        return self.trainer

    def learn(self, segments: Any, **_: int) -> int:
        """Count steps instead of learning from them."""
        if segments is not None:
            self.n_learned += segments.n_steps
        return 0

    def collect(self) -> float:
        """Collect experience for one update; return the seconds that it took."""
        began_s, before = time.perf_counter(), self.n_learned
        while self.n_learned == before:
            self.fleet.advance()
            assert self.trainer is not None
            self.trainer.advance()
            self.fleet.answer()
        return time.perf_counter() - began_s

    def close(self) -> None:
        """End the workers."""
        self.fleet.close()
        self.folder.cleanup()


def scale(counts: list[int], address: str | None, seconds: float) -> None:
    print(f"{'workers':>8} {'steps/s':>10} {'ratio':>7} {'CPU of head':>12}")
    first = 0.0
    for n_workers in counts:
        bench = Bench("fleet:Sleeping", n_workers, 1200 * n_workers, address)
        bench.collect()
        began_s, cpu_s, before = time.perf_counter(), time.process_time(), bench.n_learned
        while time.perf_counter() - began_s < seconds:
            bench.collect()
        elapsed_s = time.perf_counter() - began_s
        rate = (bench.n_learned - before) / elapsed_s
        cpu = (time.process_time() - cpu_s) / elapsed_s
        first = first or rate / n_workers
        print(f"{n_workers:>8} {rate:>10,.0f} {rate / first:>6.2f}x {cpu:>11.1%}", flush=True)
        bench.close()


def overhead(address: str | None) -> None:
    """Print the time that a collection takes beyond the acting in its worker."""
    bench = Bench("3DBall", 1, 6000, address)
    assert isinstance(bench.fleet, Timed)
    beyond = []
    for _ in range(60):
        before_s = bench.fleet.collecting_s
        beyond.append(bench.collect() - (bench.fleet.collecting_s - before_s))
    best, median = np.percentile(beyond[5:], [10, 50]) * 1000
    print(f"a collection of 6,000 steps: {median:.2f} ms beyond acting, {best:.2f} at best 10 %")
    bench.close()


def kill(trials: int) -> None:
    rng, bench = random.Random(1), Bench("3DBall", 2, 6000, None)
    normal = statistics.median(bench.collect() for _ in range(5))
    delays = []
    for _ in range(trials):
        assert isinstance(bench.workers, ProcessWorkers)
        before, victim = bench.n_learned, rng.randrange(2)
        process = bench.workers._processes[victim].process
        timer = threading.Timer(rng.random() * normal, process.kill)
        timer.start()
        delays.append(bench.collect())
        timer.join()
        delays[-1] += bench.collect()
        assert bench.n_learned > before
    delays.sort()
    print(
        f"{trials} workers killed; two collections took {statistics.median(delays):.2f} s, at most "
        f"{delays[-1]:.2f} s, instead of {2 * normal:.2f} s"
    )
    bench.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["scale", "overhead", "kill"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 16])
    parser.add_argument("--cluster")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--trials", type=int, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "scale":
        scale(arguments.workers, arguments.cluster, arguments.seconds)
    elif arguments.what == "overhead":
        overhead(arguments.cluster)
    else:
        kill(arguments.trials)


if __name__ == "__main__":
    main()
