"""Cost of one exchange on the wire, compared with a bare gRPC server that only echoes.

    python benchmarks/wire.py

The client is the gRPC library (grpcio) in this process; the servers run in other processes:

    echo  a grpcio server that returns the bytes it got: the minimal cost of a Python server that
          uses the gRPC library
    ours  RpcCommunicator, which decodes the message into steps and answers with encoded actions

Both get the same messages: a step of a behavior whose agents observe 8 floats and have 2 continuous
actions. Their rounds alternate, so that both run under the same load. "trip" is the time of one
call for the client, "CPU" the processor time that the server's process used for it. Every figure is
the median over the rounds, and so is the ratio of ours to echo within each round.
"""

import argparse
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import grpc
import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.codec import Command, Input, Output, encode_input, encode_output
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.output_decoder import OutputDecoder
from mlagents_envs.rpc_communicator import RpcCommunicator

NAME = "Behavior?team=0"
SPEC = BehaviorSpec(
    [ObservationSpec.vector(8, "VectorSensor_size8")], ActionSpec.create_continuous(2)
)
SERVICE, METHOD = "communicator_objects.UnityToExternalProto", "Exchange"
AGENTS = (12, 100)
WARM_UP = 200
PATIENCE_S = 60.0


def step_message(n_agents: int) -> bytes:
    rng = np.random.default_rng(0)
    decisions = DecisionSteps(
        obs=[rng.random((n_agents, 8), np.float32)],
        reward=rng.random(n_agents, np.float32),
        agent_id=np.arange(n_agents, dtype=np.int32),
        action_mask=None,
        group_id=np.zeros(n_agents, np.int32),
        group_reward=np.zeros(n_agents, np.float32),
    )
    steps = {NAME: (decisions, TerminalSteps.empty(SPEC))}
    return encode_output(Output({}, steps, b""), {NAME: SPEC})


def report_cpu() -> bool:
    """Answer a line on standard input with the processor time so far; False at end of file."""
    if not sys.stdin.buffer.raw.readline():
        return False
    print(time.process_time(), flush=True)
    return True


def serve_echo() -> None:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        echo = grpc.unary_unary_rpc_method_handler(lambda message, context: message)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, {METHOD: echo})]
        )
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        server.start()
        while report_cpu():
            pass
        server.stop(None).wait()


def serve_ours() -> None:
    rng = np.random.default_rng(0)
    actions = {n: SPEC.action_spec.random_action(n, rng) for n in AGENTS}
    specs = {NAME: SPEC}
    decoder = OutputDecoder()
    with RpcCommunicator() as communicator, suppress(UnityCommunicatorStoppedException):
        print(communicator.port, flush=True)
        while True:
            message = communicator.receive(PATIENCE_S, alarm=sys.stdin.fileno())
            if message is None:
                if not report_cpu():
                    return
                continue
            decisions, _ = decoder.decode(message, specs).steps[NAME]
            answer = Input(Command.STEP, {NAME: actions[len(decisions)]}, b"")
            communicator.send(encode_input(answer))


SERVERS = {"echo": serve_echo, "ours": serve_ours}


class Server:
    """A server in another process, and its client."""

    def __init__(self, name: str, resources: ExitStack) -> None:
        self._process = resources.enter_context(
            subprocess.Popen(
                [sys.executable, __file__, "--serve", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        )
        port = int(self._process.stdout.readline())
        channel = resources.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self._call = channel.unary_unary(f"/{SERVICE}/{METHOD}")

    def cpu_s(self) -> float:
        """Return the processor time that the server's process has used."""
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def measure(self, message: bytes, exchanges: int) -> tuple[float, float, float]:
        """Return median trip, its 99th percentile and the server's CPU time, in microseconds."""
        trips = []
        cpu_before = self.cpu_s()
        for _ in range(exchanges):
            before = time.perf_counter()
            self._call(message)
            trips.append(time.perf_counter() - before)
        cpu = (self.cpu_s() - cpu_before) / exchanges
        return tuple(1e6 * s for s in (statistics.median(trips), np.percentile(trips, 99), cpu))


def compare(
    servers: dict[str, Server], message: bytes, rounds: int, exchanges: int
) -> dict[str, np.ndarray]:
    """Return the figures of `Server.measure` of every round, (rounds, 3), by server."""
    for server in servers.values():
        server.measure(message, WARM_UP)
    figures = {name: np.empty((rounds, 3)) for name in servers}
    for number in range(rounds):
        for name, server in servers.items():
            figures[name][number] = server.measure(message, exchanges)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--exchanges", type=int, default=300, help="exchanges per round and server")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        SERVERS[arguments.serve]()
        return
    print("microseconds    |  echo               |  ours               |  ours / echo")
    print("agents   bytes  |  trip    p99    CPU |  trip    p99    CPU |  trip    p99    CPU")
    with ExitStack() as resources:
        servers = {name: Server(name, resources) for name in SERVERS}
        for n_agents in AGENTS:
            message = step_message(n_agents)
            figures = compare(servers, message, arguments.rounds, arguments.exchanges)
            echo, ours = figures["echo"], figures["ours"]
            columns = [
                " ".join(f"{figure:6.0f}" for figure in np.median(each, axis=0))
                for each in (echo, ours)
            ]
            ratios = " ".join(f"{ratio:6.2f}" for ratio in np.median(ours / echo, axis=0))
            print(f"{n_agents:6}  {len(message):6}  |{' |'.join(columns)} |{ratios}")


if __name__ == "__main__":
    main()
