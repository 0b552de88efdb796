"""Minibatches of PPO in a second, by one learner and by several that add up their gradients.

Every learner is a process with one thread. One learner computes whole minibatches; several compute
equal shares of minibatches of the same size. They take turns. Seconds are wall time, so other
programs on the machine have much effect: the load is shown.

    python benchmarks/learners.py [--learners 2] [--rounds 5]
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.process_group import ProcessGroup, dist
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.sharding import ALONE
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

HORIZON = 64
N_OBSERVED, N_ACTIONS = 48, 12
SIZES = [(128, 2, 64), (128, 2, 1024), (256, 3, 2048), (512, 3, 2048), (1024, 3, 2048)]
"""Hidden units, layers, and rows of a minibatch."""
N_MINIBATCHES = 8
"""Minibatches in an epoch; there are three epochs in a round."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median is shown")
    arguments = parser.parse_args()
    n = arguments.learners
    print(f"load before: {os.getloadavg()[0]:.1f}")
    print(f"{'network, minibatch':26}{'minibatches/s':>16}{f'{n} learners':>14}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        alone, together = start(1, Path(folder)), start(n, Path(folder))
        for size in SIZES:
            rates: list[tuple[float, float]] = []
            for round_ in range(arguments.rounds + 1):
                of_both = rate(alone, size), rate(together, size)
                if round_:  # the first warms up
                    rates.append(of_both)
            one, several = (statistics.median(each) for each in zip(*rates, strict=True))
            ratio = statistics.median(several / one for one, several in rates)
            name = f"{size[0]} x {size[1]}, {size[2]:,} rows"
            print(f"{name:26}{one:>16.1f}{several:>14.1f}{ratio:>8.2f}", flush=True)
        for connection in (*alone, *together):
            connection.send(None)
    print(f"load after: {os.getloadavg()[0]:.1f}")


def start(n_learners: int, folder: Path) -> list[Connection]:
    """Start learners; return the connections to them."""
    context = multiprocessing.get_context("spawn")
    connections = []
    for rank in range(n_learners):
        here, there = context.Pipe()
        arguments = (rank, n_learners, str(folder / f"store{n_learners}"), there)
        context.Process(target=learner, args=arguments, daemon=True).start()
        connections.append(here)
    return connections


def rate(learners: list[Connection], size: tuple[int, int, int]) -> float:
    """Return the minibatches that the learners process in a second."""
    for connection in learners:
        connection.send(size)
    for connection in learners:
        connection.recv()  # they are ready
    started_s = time.perf_counter()
    for connection in learners:
        connection.send("go")
    for connection in learners:
        connection.recv()
    return 3 * N_MINIBATCHES / (time.perf_counter() - started_s)


def learner(rank: int, n_learners: int, store: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    group = None
    if n_learners > 1:
        files = dist.FileStore(store, n_learners)
        cpu = torch.device("cpu")
        group = ProcessGroup(files, rank=rank, size=n_learners, device=cpu, hostname="127.0.0.1")
    made: dict[tuple[int, int, int], tuple[PPO, Segments]] = {}
    while (size := connection.recv()) is not None:
        if size not in made:
            made[size] = make(size, group)
        ppo, segments = made[size]
        rewards = ppo.score(segments)
        prepared, _ = ppo.prepare(segments, rewards)
        connection.send("ready")
        connection.recv()
        for _ in ppo.descents(prepared, 0.2, 0.01):
            pass
        connection.send("done")


def make(size: tuple[int, int, int], group: ProcessGroup | None) -> tuple[PPO, Segments]:
    hidden_units, num_layers, batch_size = size
    shards = ALONE if group is None else group.shards()
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": batch_size, "buffer_size": 8 * batch_size},
            "network_settings": {"hidden_units": hidden_units, "num_layers": num_layers},
        }
    )
    spec = BehaviorSpec(
        [ObservationSpec.vector(N_OBSERVED, "vector")], ActionSpec.create_continuous(N_ACTIONS)
    )
    ppo = PPO(spec, settings, device=torch.device("cpu"), seed=0, shards=shards)
    rng = np.random.default_rng(shards.rank)
    n_steps = shards.share(batch_size) * N_MINIBATCHES
    length = np.full(n_steps // HORIZON, HORIZON)
    n_segments = len(length)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    return ppo, Segments(
        obs=[normal(n_steps, N_OBSERVED)],
        continuous=normal(n_steps, N_ACTIONS),
        discrete=np.zeros((n_steps, 0), np.int32),
        log_probs=normal(n_steps, N_ACTIONS) - 1.4,
        action_mask=np.zeros((n_steps, 0), np.bool_),
        memory=np.zeros((n_segments, 0), np.float32),
        reward=normal(n_steps),
        group_reward=np.zeros(n_steps, np.float32),
        length=length,
        last_obs=[normal(n_segments, N_OBSERVED)],
        last_memory=np.zeros((n_segments, 0), np.float32),
        terminated=np.zeros(n_segments, np.bool_),
        interrupted=np.zeros(n_segments, np.bool_),
        episode=np.arange(n_segments),
    )


if __name__ == "__main__":
    main()
