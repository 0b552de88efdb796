"""How many exchanges a second one process manages with several players at once.

    python benchmarks/players.py

Every player is a process of its own that answers at once: a step of 12 agents with 8 floats each,
whose 2 actions it does not read. One thread steps them all through `step_send` and `step_receive`,
whichever has answered. "busy" is the share of a core that this takes: the rate over the rate that a
whole core would reach at the same processor time per exchange.
"""

import argparse
import selectors
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

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


def play(port: int) -> None:
    hello = SimulationHello(handshake.API_VERSION, handshake.PACKAGE_VERSION, Capabilities.all())
    first, message = step_message(announces=True), step_message(announces=False)
    with RpcClient(port) as client, suppress(UnityCommunicatorStoppedException):
        client.connect(10.0)
        client.call(handshake.encode_simulation_hello(hello))
        client.call(handshake.encode_ready())
        client.call(first)
        while True:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--mlagents-port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.mlagents_port:
        play(arguments.mlagents_port)
        return
    print("players  exchanges/s  CPU per exchange  busy")
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory()))
        player = folder / "player"
        player.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
        player.chmod(0o755)
        players: list[UnityEnvironment] = []
        for n_players in (1, 2, 4, 8):
            while len(players) < n_players:
                env = UnityEnvironment(str(player), worker_id=len(players), base_port=0)
                players.append(resources.enter_context(env))
                env.reset()
            measure(players, 0.5)
            rate, cpu_s = measure(players, arguments.seconds)
            print(f"{n_players:7}  {rate:11,.0f}  {1e6 * cpu_s:13.0f} us  {rate * cpu_s:4.2f}")


if __name__ == "__main__":
    main()
