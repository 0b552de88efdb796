"""Measures rollout workers: how collecting scales, what it costs, and how fast a worker returns.

    python benchmarks/fleet.py scale --workers 1 2 16      players that only sleep
    python benchmarks/fleet.py plan --workers 1 2 4 8      the same with a learner that takes time
    python benchmarks/fleet.py head --workers 10 100 1000  the head alone, with simulated workers
    python benchmarks/fleet.py overhead                    collections of 6,000 steps of 3DBall
    python benchmarks/fleet.py kill --trials 50            SIGKILL at random moments

`--sleep-ms` sets how long a step of a sleeping player takes. `--cluster ADDRESS` measures the
actors of a Ray cluster instead of processes.
"""

import argparse
import heapq
import os
import pickle
import random
import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from mlagents.trainers.acting.collector import Activity
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.data.snapshot import DenseSnapshot
from mlagents.trainers.fleet.fleet import Fleet, LocalFleet
from mlagents.trainers.fleet.messages import Gathered, Harvest, Setup
from mlagents.trainers.fleet.processes import ProcessWorkers
from mlagents.trainers.fleet.ray_actors import RayWorkers
from mlagents.trainers.fleet.remote import RemoteFleet
from mlagents.trainers.fleet.workers import Reply, Workers
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES
from mlagents.trainers.players.environments import env_manager_maker
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.run.interrupt import Interrupt
from mlagents.trainers.settings.run_options import RunOptions, TorchSettings
from mlagents_envs.base_env import ActionTuple, BehaviorId
from mlagents_sim.examples.ball_3d import Ball3D

SLEEP = "FLEET_SLEEP_S"
"""Variable with the time that a step takes, for players in other processes."""


class Sleeping(Ball3D):
    """3DBall whose step sleeps instead of computing; agents report the same again."""

    def step(self) -> None:
        """Sleep."""
        time.sleep(float(os.environ[SLEEP]))

    def step_send(self) -> None:
        """Do nothing until `step_receive`."""

    def step_receive(self) -> None:
        """Sleep."""
        time.sleep(float(os.environ[SLEEP]))

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        """Ignore actions."""


class Timed(RemoteFleet):
    """Adds up the time that collections took within the worker, and notes when they arrived."""

    collecting_s = 0.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.arrived_s: dict[int, float] = {}
        """Time of the last arrival, by the number of the worker's process."""

    def _take_in(self, worker: Any, harvest: Harvest) -> None:
        self.collecting_s += harvest.seconds
        self.arrived_s[worker.life] = time.perf_counter()
        super()._take_in(worker, harvest)


class SimulatedWorkers(Workers):
    """Workers without processes: each answers when it would have collected its steps.

    The head does all that it does with real workers, and reads as many bytes.

    Args:
        steps_per_s: Steps that one worker makes in a second.
    """

    def __init__(self, steps_per_s: float) -> None:
        self._steps_per_s = steps_per_s
        self._free_s: dict[int, float] = {}
        self._due: list[tuple[float, int, bytes]] = []
        self._answers: dict[tuple[int, bool], bytes] = {}
        local = SimpleEnvManager(Ball3D())
        local.reset()
        self._specs = dict(local.behavior_specs)
        ((self._behavior, self._spec),) = self._specs.items()

    def start(self, setup: Setup) -> None:
        """Begin with a worker that has collected nothing."""
        self._free_s[setup.worker] = 0.0

    def call(self, worker: int, method: str, *arguments: Any) -> None:
        """Take an order, the only call that a head makes here."""
        (order,) = arguments
        pickle.dumps(order, pickle.HIGHEST_PROTOCOL)
        now_s = time.perf_counter()
        if order.targets is None:
            self._due.append((now_s, worker, pickle.dumps(self._harvest(self._specs, {}))))
            return
        (target,) = order.targets.values()
        n_steps = target.made if target.held is None else target.held
        due_s = max(now_s, self._free_s[worker]) + n_steps / self._steps_per_s
        self._free_s[worker] = due_s
        heapq.heappush(self._due, (due_s, worker, self._answer(n_steps, target.ships == "cut")))

    def renew(self, workers: Any, renewals: Any) -> None:
        """Copy the policy once for each worker."""
        for _ in workers:
            bytes(bytearray(b"".join(pickled for _, pickled in renewals.values())))

    def wait(self, timeout_s: float | None = None) -> list[Reply]:
        """Sleep until an answer is due; return all that are."""
        due_s, _, _ = self._due[0]
        time.sleep(max(0.0, due_s - time.perf_counter()))
        replies, now_s = [], time.perf_counter()
        while self._due and self._due[0][0] <= now_s:
            _, worker, answer = heapq.heappop(self._due)
            replies.append(Reply(worker, pickle.loads(answer)))
        return replies

    def close(self) -> None:
        """Nothing runs."""

    def _answer(self, n_steps: int, is_async: bool) -> bytes:
        answer = self._answers.get((n_steps, is_async))
        if answer is None:
            segments = self._segments(n_steps)
            activity = Activity.concatenate([])._replace(n_steps=n_steps)
            state = np.random.default_rng(0).bit_generator.state
            gathered = Gathered(activity, 0, 0, 0, [], [], 10**9, state, segments)
            if not is_async:
                cut = segments, Activity.concatenate([])
                gathered = gathered._replace(n_held=n_steps, segments=None, cut=cut)
            name = BehaviorId.parse(self._behavior).name
            answer = pickle.dumps(self._harvest({}, {name: gathered}), pickle.HIGHEST_PROTOCOL)
            self._answers[n_steps, is_async] = answer
        return answer

    def _harvest(self, specs: Any, gathered: Any) -> Harvest:
        return Harvest(specs, gathered, {0: {}}, [], 0.0, {}, [])

    def _segments(self, n_steps: int) -> Segments:
        """Return one segment of that many steps."""
        spec, ends = self._spec, np.zeros(1, np.bool_)
        n_actions = spec.action_spec.continuous_size
        return Segments(
            obs=[np.zeros((n_steps, *each.shape), np.float32) for each in spec.observation_specs],
            continuous=np.zeros((n_steps, n_actions), np.float32),
            discrete=np.zeros((n_steps, 0), np.int32),
            log_probs=np.zeros((n_steps, n_actions), np.float32),
            action_mask=np.zeros((n_steps, 0), np.bool_),
            memory=np.zeros((1, 0), np.float32),
            reward=np.zeros(n_steps, np.float32),
            group_reward=np.zeros(n_steps, np.float32),
            length=np.array([n_steps]),
            last_obs=[np.zeros((1, *each.shape), np.float32) for each in spec.observation_specs],
            last_memory=np.zeros((1, 0), np.float32),
            terminated=ends,
            interrupted=ends,
            episode=np.zeros(1, np.int64),
            last_tick=np.zeros(0, np.int64),
            group=np.zeros(1, np.int64),
            tick=np.zeros(0, np.int64),
            open_steps=None,
        )


class Bench:
    """A fleet and a trainer that only counts.

    Args:
        env: Environment.
        n_workers: Number of workers; None to act in this process.
        n_steps: Number of steps of an update.
        address: Address of a Ray cluster; None for processes.
        network: Settings of the policy's network.
        mode: `sync` or `async`.
        learns: Number of steps that an update learns from in a second, by sleeping.
        workers: Workers; by default processes, or actors of the cluster.
    """

    def __init__(
        self,
        env: str,
        n_workers: int | None,
        n_steps: int,
        address: str | None = None,
        *,
        network: dict[str, int] | None = None,
        mode: str = "sync",
        learns: float = float("inf"),
        workers: Workers | None = None,
    ) -> None:
        self.learns = learns
        self.folder = TemporaryDirectory()
        options = RunOptions.model_validate(
            {
                "default_settings": {
                    "trainer_type": "ppo",
                    "hyperparameters": {"buffer_size": n_steps, "batch_size": 64},
                    "network_settings": network or {},
                    "summary_freq": 10**9,
                    "checkpoint_interval": 10**9,
                    "max_steps": 10**9,
                },
                "env_settings": {"env_path": env, "seed": 1, "max_lifetime_restarts": -1}
                | {"restarts_rate_limit_n": -1},
                "cluster": {"workers": n_workers, "address": address, "mode": mode},
            }
        )
        self.fleet: Fleet
        if n_workers is None:
            make = env_manager_maker(options, log_folder=Path(self.folder.name))
            self.fleet = LocalFleet(make())
        else:
            if workers is None:
                workers = ProcessWorkers() if address is None else RayWorkers(options.cluster)
            self.workers = workers
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
        """Count steps, and sleep as long as learning from them would take."""
        if segments is not None:
            self.n_learned += segments.n_steps
            assert self.trainer is not None
            policy = self.trainer.policy
            if isinstance(policy.snapshot, DenseSnapshot):
                policy.snapshot = policy.snapshot._replace()  # another one, which is sent
            time.sleep(segments.n_steps / self.learns)
        return 0

    def cpu_of_workers_s(self) -> float:
        """Return the CPU time of all worker processes, in s; 0 if they are not processes."""
        if not isinstance(self.workers, ProcessWorkers):
            return 0.0
        running_ns = 0
        for process, _ in self.workers._processes.values():
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                running_ns += int((thread / "schedstat").read_text().split()[0])
        return running_ns / 1e9

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


TINY = {"hidden_units": 8, "num_layers": 1}


def scale(counts: list[int], address: str | None, seconds: float) -> None:
    """Print how many steps workers with sleeping players collect, and who computes."""
    print(f"{'workers':>8} {'steps/s':>10} {'ratio':>7} {'CPU of head':>12} {'of workers':>11}")
    first = 0.0
    for n_workers in counts:
        bench = Bench("fleet:Sleeping", n_workers, 1200 * n_workers, address, network=TINY)
        bench.collect()
        began_s, before = time.perf_counter(), bench.n_learned
        cpu_s, of_workers_s = time.process_time(), bench.cpu_of_workers_s()
        while time.perf_counter() - began_s < seconds:
            bench.collect()
        elapsed_s = time.perf_counter() - began_s
        rate = (bench.n_learned - before) / elapsed_s
        cpu = (time.process_time() - cpu_s) / elapsed_s
        of_workers = (bench.cpu_of_workers_s() - of_workers_s) / elapsed_s
        first = first or rate / n_workers
        print(
            f"{n_workers:>8} {rate:>10,.0f} {rate / first:>6.2f}x {cpu:>11.1%} {of_workers:>10.0%}",
            flush=True,
        )
        bench.close()


def plan(counts: list[int], seconds: float, learns: float) -> None:
    """Compare steps per second with the formula of docs/cluster.md."""
    print(f"a learner of {learns:,.0f} steps/s")
    print(f"{'workers':>8} {'mode':>6} {'steps/s':>10} {'formula':>10} {'ratio':>7}")
    alone = 0.0
    for n_workers in counts:
        for mode in ("sync", "async"):
            n_steps = 1200 * n_workers
            speed = float("inf") if not alone else learns
            bench = Bench(
                "fleet:Sleeping", n_workers, n_steps, network=TINY, mode=mode, learns=speed
            )
            bench.collect()
            if not alone:  # the first measures what one worker makes without a learner
                alone = rate_of(bench, seconds)
                bench.learns = learns
            rate, acting = rate_of(bench, seconds), n_workers * alone
            formula = min(acting, learns)
            if mode == "sync":
                formula = acting * learns / (acting + learns)
            print(
                f"{n_workers:>8} {mode:>6} {rate:>10,.0f} {formula:>10,.0f} {rate / formula:>7.2f}",
                flush=True,
            )
            bench.close()


def head(counts: list[int], seconds: float, learns: float) -> None:
    """Compare the head with the formula for many workers of 1,000 steps/s, which are simulated."""
    alone, each = 1000.0, 200
    print(f"workers of {alone:,.0f} steps/s, a learner of {learns:,.0f} steps/s")
    print(f"{'workers':>8} {'mode':>6} {'steps/s':>10} {'formula':>10} {'CPU of head':>12}")
    for n_workers in counts:
        for mode in ("sync", "async"):
            n_steps = each * n_workers
            simulated = SimulatedWorkers(alone)
            bench = Bench("3DBall", n_workers, n_steps, mode=mode, learns=learns, workers=simulated)
            bench.collect()
            cpu_s, began_s = time.process_time(), time.perf_counter()
            rate, acting = rate_of(bench, seconds), n_workers * alone
            cpu = (time.process_time() - cpu_s) / (time.perf_counter() - began_s)
            formula = acting * learns / (acting + learns) if mode == "sync" else min(acting, learns)
            print(
                f"{n_workers:>8} {mode:>6} {rate:>10,.0f} {formula:>10,.0f} {cpu:>12.1%}",
                flush=True,
            )
            bench.close()


def rate_of(bench: Bench, seconds: float) -> float:
    """Return the steps that a bench learns from in a second."""
    began_s, before = time.perf_counter(), bench.n_learned
    while time.perf_counter() - began_s < seconds:
        bench.collect()
    return (bench.n_learned - before) / (time.perf_counter() - began_s)


def overhead(address: str | None) -> None:
    """Print what a collection costs beyond the acting in its worker."""
    bench, here = Bench("3DBall", 1, 6000, address), Bench("3DBall", None, 6000)
    assert isinstance(bench.fleet, Timed)
    beyond, more_cpu, of_head = [], [], []
    for _ in range(60):
        before_s, cpu_s = bench.fleet.collecting_s, time.process_time()
        of_worker_s = bench.cpu_of_workers_s()
        beyond.append(bench.collect() - (bench.fleet.collecting_s - before_s))
        of_head.append(time.process_time() - cpu_s)
        of_worker_s = bench.cpu_of_workers_s() - of_worker_s
        cpu_s = time.process_time()
        here.collect()
        more_cpu.append(of_head[-1] + of_worker_s - (time.process_time() - cpu_s))
    print("a collection of 6,000 steps, in ms: median, best 10 %")
    for what, seconds in (
        ("time beyond acting", beyond),
        ("CPU of the head", of_head),
        ("CPU of both beyond that of acting here", more_cpu),
    ):
        best, median = np.percentile(seconds[5:], [10, 50]) * 1000
        print(f"{what:>40} {median:6.2f} {best:6.2f}")
    bench.close()
    here.close()


def kill(trials: int) -> None:
    """Kill workers at random moments; print how long the run and the worker took to continue."""
    rng, n_steps = random.Random(1), 6000
    bench = Bench("3DBall", 2, n_steps)
    fleet, workers = bench.fleet, bench.workers
    assert isinstance(fleet, Timed) and isinstance(workers, ProcessWorkers)
    normal_s = statistics.median(bench.collect() for _ in range(5))
    gaps, returns = [], []
    for _ in range(trials):
        before, lives = bench.n_learned, set(fleet.arrived_s)
        process = workers._processes[rng.randrange(2)].process
        killed_s = []

        def end(process: Any = process, killed_s: list[float] = killed_s) -> None:
            killed_s.append(time.perf_counter())
            process.kill()

        timer = threading.Timer(rng.random() * normal_s, end)
        timer.start()
        bench.collect()
        updated_s = time.perf_counter()
        timer.join()
        if updated_s < killed_s[0]:
            bench.collect()
            updated_s = time.perf_counter()
        gaps.append(updated_s - killed_s[0])
        while not (new := fleet.arrived_s.keys() - lives):  # the next collection may have to tell
            bench.collect()
        (life,) = new
        returns.append(fleet.arrived_s[life] - killed_s[0])
        bench.collect()
        n_learned = bench.n_learned - before
        assert n_learned >= 2 * n_steps, f"{n_learned} steps instead of {2 * n_steps}"
    bench.close()
    print(f"{trials} workers killed; a collection takes {normal_s:.2f} s")
    for what, seconds in (
        ("from SIGKILL to the next update", gaps),
        ("from SIGKILL to the answer of the new process", returns),
    ):
        quantiles = " ".join(f"{q:.2f}" for q in np.percentile(seconds, [0, 25, 50, 75, 90, 100]))
        print(f"{what}, in s: least, quartiles, 90 %, most: {quantiles}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["scale", "plan", "head", "overhead", "kill"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 16])
    parser.add_argument("--cluster")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--sleep-ms", type=float, default=2.0)
    parser.add_argument("--learns", type=float, default=20_000.0, help="steps/s of the learner")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ[SLEEP] = str(arguments.sleep_ms / 1000)
    if arguments.what == "scale":
        scale(arguments.workers, arguments.cluster, arguments.seconds)
    elif arguments.what == "plan":
        plan(arguments.workers, arguments.seconds, arguments.learns)
    elif arguments.what == "head":
        head(arguments.workers, arguments.seconds, arguments.learns)
    elif arguments.what == "overhead":
        overhead(arguments.cluster)
    else:
        kill(arguments.trials)


if __name__ == "__main__":
    main()
