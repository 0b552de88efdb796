"""Number of players that one process keeps busy, and the cost.

    python benchmarks/players.py [exchanges | scaling | waiting | training]

exchanges   Every player answers at once: a step of 12 agents with 8 floats each, whose 2 actions it
            does not read. One thread steps all players through `step_send` and `step_receive`, in
            the order of their answers. "busy" is the used share of a core: the rate divided by the
            rate of a whole core at the same processor time per exchange.
scaling     The same players sleep for 2 ms a step, so the processor has time for many. "of 0.85 k"
            is the rate as a multiple of one player's, divided by 0.85 times the number of players.
waiting     The processor's share while one player takes 50 ms a step.
training    `mlagents-learn` on 3DBall with its published settings, over 300,000 steps: one scene
            and eight in the trainer's process, and eight players.
"""

import argparse
import functools
import logging
import re
import selectors
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np

from mlagents.trainers.players.pool import PlayerPool, RestartBudget
from mlagents_envs import handshake
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.codec import Output, encode_output
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.handshake import Capabilities, SimulationHello
from mlagents_envs.logging_util import set_log_level
from mlagents_sim.client import RpcClient

NAME = "Bench?team=0"
SPEC = BehaviorSpec([ObservationSpec.vector(8, "vector")], ActionSpec.create_continuous(2))
N_AGENTS = 12


def step_message(*, announces: bool) -> bytes:
    numbers = np.random.default_rng(0).normal(size=(N_AGENTS, 8)).astype(np.float32)
    zeros = np.zeros(N_AGENTS, np.int32)
    decisions = DecisionSteps(
        [numbers],
        np.full(N_AGENTS, 0.1, np.float32),
        np.arange(N_AGENTS, dtype=np.int32),
        None,
        zeros,
        zeros.astype(np.float32),
    )
    specs = {NAME: SPEC}
    steps = {NAME: (decisions, TerminalSteps.empty(SPEC))}
    new, known = (specs, {}) if announces else ({}, specs)
    return encode_output(Output(new, steps, b""), known)


def play(port: int, step_ms: float) -> None:
    hello = SimulationHello(handshake.API_VERSION, handshake.PACKAGE_VERSION, Capabilities.all())
    first, message = step_message(announces=True), step_message(announces=False)
    with RpcClient(port) as client, suppress(UnityCommunicatorStoppedException):
        client.connect(10.0)
        client.call(handshake.encode_simulation_hello(hello))
        client.call(handshake.encode_ready())
        client.call(first)
        while True:
            if step_ms:
                time.sleep(step_ms / 1000)
            client.call(message)


def measure(players: list[UnityEnvironment], seconds: float) -> tuple[float, float]:
    """Return exchanges per second, and seconds of processor time per exchange."""
    action = SPEC.action_spec.random_action(N_AGENTS, np.random.default_rng(1))
    n_exchanges, began_s, cpu_s = 0, time.perf_counter(), time.process_time()
    with selectors.DefaultSelector() as selector:
        for env in players:
            selector.register(env.fileno(), selectors.EVENT_READ, env)
            env.set_actions(NAME, action)
            env.step_send()
        while time.perf_counter() - began_s < seconds:
            for key, _ in selector.select():
                env = key.data
                env.step_receive()
                env.set_actions(NAME, action)
                env.step_send()
                n_exchanges += 1
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    for env in players:
        env.step_receive()
    return n_exchanges / took_s, cpu_s / n_exchanges


def exchanges(seconds: float) -> None:
    print("players  exchanges/s  CPU per exchange  busy")
    command = [sys.executable, str(Path(__file__).resolve())]
    with ExitStack() as resources:
        players: list[UnityEnvironment] = []
        for n_players in (1, 2, 4, 8):
            while len(players) < n_players:
                env = UnityEnvironment(command=command, worker_id=len(players), base_port=0)
                players.append(resources.enter_context(env))
                env.reset()
            measure(players, 0.5)
            rate, cpu_s = measure(players, seconds)
            print(f"{n_players:7}  {rate:11,.0f}  {1e6 * cpu_s:13.0f} us  {rate * cpu_s:4.2f}")


def measure_sleepers(n_players: int, seconds: float, *, step_ms: float) -> tuple[float, float]:
    """Return agent-steps per second, and the share of a core that this process took."""
    command = [sys.executable, str(Path(__file__).resolve()), "--step-ms", str(step_ms)]
    manager = PlayerPool(
        lambda worker: UnityEnvironment(
            command=command, worker_id=worker, base_port=0, connect=False
        ),
        n_players,
        timeout_s=60,
        make_budget=functools.partial(
            RestartBudget, max_lifetime=0, rate_limit_n=0, rate_limit_period_s=60
        ),
    )
    with closing(manager):
        manager.reset()
        action = SPEC.action_spec.random_action(N_AGENTS, np.random.default_rng(1))
        n_steps, began_s, cpu_s = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began_s < seconds:
            for report in manager.receive():
                n_steps += N_AGENTS
                manager.send(report.player, {NAME: action})
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    return n_steps / took_s, cpu_s / took_s


def scaling(seconds: float) -> None:
    print("players  agent-steps/s  of 0.85 k  busy")
    of_one = 0.0
    for n_players in (1, 2, 4, 8, 16):
        rate, busy = measure_sleepers(n_players, seconds, step_ms=2.0)
        of_one = of_one or rate
        print(f"{n_players:7}  {rate:13,.0f}  {rate / of_one / n_players / 0.85:9.2f}  {busy:4.2f}")


def waiting(seconds: float) -> None:
    rate, busy = measure_sleepers(1, seconds, step_ms=50.0)
    print(f"one player, {rate / N_AGENTS:.1f} steps/s: {100 * busy:.1f} % of a core")


TRAINING = """
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 12000, beta: 0.001, lambd: 0.99}
    network_settings: {normalize: true}
    max_steps: 300000
    time_horizon: 1000
    summary_freq: 12000
"""


def training(_seconds: float) -> None:
    print("players  areas each  agent-steps/s, updates included")
    with tempfile.TemporaryDirectory() as folder:
        configuration = Path(folder, "ball.yaml")
        configuration.write_text(TRAINING)
        for n_players, n_areas in ((1, 1), (1, 8), (8, 1)):
            rate = measure_training(configuration, n_players, n_areas)
            print(f"{n_players:7}  {n_areas:10}  {rate:13,.0f}")


def measure_training(configuration: Path, n_players: int, n_areas: int) -> float:
    """Return agent-steps per second between the first and the last summary."""
    command = [sys.executable, "-m", "mlagents.trainers.learn", str(configuration)]
    command += ["--env", "3DBall", "--num-envs", str(n_players), "--num-areas", str(n_areas)]
    run = subprocess.run(
        [*command, "--seed", "1", "--force"],
        cwd=configuration.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    summaries = re.findall(r"Step: (\d+)\. Time Elapsed: ([0-9.]+) s", run.stdout)
    (first, began_s), (last, ended_s) = summaries[0], summaries[-1]
    return (int(last) - int(first)) / (float(ended_s) - float(began_s))


def main() -> None:
    parts = {part.__name__: part for part in (exchanges, scaling, waiting, training)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=parts, help="part to run; all by default")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement")
    parser.add_argument("--mlagents-port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--step-ms", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.mlagents_port:
        play(arguments.mlagents_port, arguments.step_ms)
        return
    set_log_level(logging.WARNING)
    for name in [arguments.part] if arguments.part else parts:
        print(f"\n{name}")
        parts[name](arguments.seconds)


if __name__ == "__main__":
    main()
