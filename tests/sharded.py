"""What one of several learners computes, to compare processes with threads and with one learner.

As a program, it is a learner in a process of its own:

    python sharded.py STORE RANK SIZE OUTPUT DEVICE BACKEND
"""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from actors import behavior
from group_world import SPEC as GROUPS
from group_world import GroupWorld
from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.algorithms import bc as bc_module
from mlagents.trainers.algorithms import behavioral_cloning as cloning_module
from mlagents.trainers.algorithms import reward_signals as signals_module
from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.algorithms.poca import POCA
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments, cut_into
from mlagents.trainers.fast.sac_by_hand import FastSAC
from mlagents.trainers.learning.process_group import ProcessGroup, dist
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.sharding import Shards
from steps import make_demonstrations, make_segments

SPEC = behavior(5, 2, continuous=2, branches=(3,))
DEMO = {"demo_path": "expert.demo"}
LSTM = {"memory": {"memory_size": 8, "sequence_length": 4}}
N_MINIBATCHES = 20

CASES: dict[str, dict[str, Any]] = {
    "ppo": {"trainer_type": "ppo"},
    "ppo_clipped": {
        "trainer_type": "ppo",
        "hyperparameters": {"normalize_each_signal": True, "max_grad_norm": 0.1},
    },
    "ppo_of_minibatches": {
        "trainer_type": "ppo",
        "hyperparameters": {"normalize_advantages": "minibatch", "normalize_values": True},
    },
    "ppo_until_moved": {
        "trainer_type": "ppo",
        "hyperparameters": {"target_kl": 0.02, "num_epoch": 8},
    },
    "ppo_adaptive": {
        "trainer_type": "ppo",
        "hyperparameters": {"learning_rate_schedule": "adaptive"},
    },
    "lstm_adaptive": {
        "trainer_type": "ppo",
        "network_settings": LSTM,
        "hyperparameters": {"learning_rate_schedule": "adaptive", "normalize_values": True},
    },
    "lstm": {"trainer_type": "ppo", "network_settings": LSTM},
    "curiosity": {"trainer_type": "ppo", "reward_signals": {"extrinsic": {}, "curiosity": {}}},
    "rnd": {"trainer_type": "ppo", "reward_signals": {"extrinsic": {}, "rnd": {}}},
    "gail": {
        "trainer_type": "ppo",
        "reward_signals": {"extrinsic": {}, "gail": DEMO | {"use_vail": True}},
    },
    "cloning": {"trainer_type": "ppo", "behavioral_cloning": DEMO},
    "poca": {"trainer_type": "poca"},
    "poca_of_minibatches": {
        "trainer_type": "poca",
        "hyperparameters": {"normalize_advantages": "minibatch", "normalize_values": True}
        | {"target_kl": 0.02},
    },
    "poca_lstm": {"trainer_type": "poca", "network_settings": LSTM},
    "sac": {"trainer_type": "sac"},
    "sac_lstm": {"trainer_type": "sac", "network_settings": LSTM},
    "sac_curiosity": {"trainer_type": "sac", "reward_signals": {"extrinsic": {}, "curiosity": {}}},
    "bc": {"trainer_type": "bc", "behavioral_cloning": DEMO},
    "bc_lstm": {"trainer_type": "bc", "behavioral_cloning": DEMO, "network_settings": LSTM},
}

Results = dict[str, Tensor]

ALONE_AT_A_TIME = threading.Lock()  # initial weights come from the random generator of all threads


def settings_of(case: str, **overriding: int) -> BehaviorSettings:
    written = CASES[case]
    network = {"hidden_units": 16, "num_layers": 1, "normalize": True}
    hyperparameters = {"batch_size": 16, "buffer_size": 160, "learning_rate": 1e-2}
    return BehaviorSettings.model_validate(
        written
        | {
            "network_settings": network | written.get("network_settings", {}),
            "hyperparameters": hyperparameters | written.get("hyperparameters", {}) | overriding,
        }
    )


def experience_of(algorithm: Algorithm, rank: int) -> Segments:
    """Make experience of one learner; that of each learner has another size."""
    rng = np.random.default_rng(rank)
    if isinstance(algorithm, POCA):
        memory = algorithm.sequence_length and {
            "memory_size": algorithm.snapshot().memory_size,
            "sequence_length": algorithm.sequence_length,
        }
        collector = Collector(GROUPS, time_horizon=5, with_groups=True, **(memory or {}))
        worlds = [GroupWorld(rng, player=player) for player in range(2 + rank)]
        for _ in range(30):
            for world in worlds:
                world.report(collector)
                world.decide()
        segments = collector.take(at_least=1)
        assert segments is not None
        return segments
    segments = make_segments(SPEC, [7, 9, 4 + rank] * 5, rng)
    longest = getattr(algorithm, "sequence_length", None)
    size = algorithm.snapshot().memory_size
    n_sequences = len(cut_into(longest or 1, segments.length))
    return replace(
        segments,
        memory=rng.normal(size=(n_sequences, size)).astype("f4"),
        last_memory=rng.normal(size=(len(segments.length), size)).astype("f4"),
    )


def learn(case: str, shards: Shards | ProcessGroup, device: str = "cpu") -> Results:
    """Let one learner take about `N_MINIBATCHES` steps; return all that it has learned."""
    if isinstance(shards, ProcessGroup):
        shards = shards.shards()
    settings = settings_of(case)
    types: dict[str, type[Algorithm]] = {"ppo": PPO, "poca": POCA, "sac": FastSAC, "bc": BC}
    algorithm_type = types[settings.trainer_type]
    with ALONE_AT_A_TIME:
        algorithm = algorithm_type(
            GROUPS if algorithm_type is POCA else SPEC,
            settings,
            device=torch.device(device),
            seed=3,
            shards=shards,
        )
    if isinstance(algorithm, BC):
        algorithm.update(16 * N_MINIBATCHES, step=0)
    else:
        segments = experience_of(algorithm, shards.rank)
        if isinstance(algorithm, FastSAC):
            replay = Replay(
                SPEC,
                capacity=400,
                longest=algorithm.sequence_length,
                memory_size=segments.memory.shape[1],
            )
            algorithm.see(segments)
            replay.add(segments)
            algorithm.update(replay, n_updates=N_MINIBATCHES, step=0)
        else:
            assert isinstance(algorithm, PPO | POCA)
            # Two updates, because the statistics of observations change after the first.
            for _ in range(2):
                algorithm.update(segments, algorithm.score(segments), step=0)
    learned = {
        f"{part}.{name}": value.detach().cpu().clone()
        for part, module in algorithm.modules().items()
        if isinstance(module, nn.Module)
        for name, value in module.state_dict().items()
    }
    if isinstance(algorithm, PPO | POCA):
        learned["divergences"] = torch.tensor(algorithm.divergences, dtype=torch.float64)
        learned["learning rate"] = torch.tensor(algorithm.optimizer.param_groups[0]["lr"])
    return learned


def learn_all(
    in_learners: Callable[[Callable[[Any], dict[str, Results]]], Sequence[dict[str, Results]]],
    device: str = "cpu",
) -> list[dict[str, Results]]:
    """Return what each of several learners has learned, by case.

    Args:
        in_learners: Function that calls a function of shards for each learner.
        device: Device to learn on.
    """
    demonstrations = make_demonstrations(SPEC, [20, 12], np.random.default_rng(99))
    with ExitStack() as stack:
        for module in (bc_module, cloning_module, signals_module):
            stack.enter_context(
                mock.patch.object(module, "load_demonstrations", lambda *_: demonstrations)
            )
        return list(in_learners(lambda shards: {c: learn(c, shards, device) for c in CASES}))


class InThread(Shards):
    """One of several learners in threads of one process, which add up in the order of ranks."""

    def __init__(self, rank: int, table: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(table)
        self._table, self._barrier = table, barrier

    def _everyone(self, own: Any) -> list[Any]:
        self._table[self.rank] = own
        self._barrier.wait()
        everyone = list(self._table)
        self._barrier.wait()
        return everyone

    def add(self, numbers: Tensor) -> None:
        first, *others = self._everyone(numbers.clone())
        for other in others:
            first = first + other
        numbers.copy_(first)

    def least(self, n: int) -> int:
        return min(self._everyone(n))


def in_threads(n_learners: int, learner: Callable[[Shards], Any]) -> Sequence[Any]:
    """Return what `learner` returns for each of several learners."""
    table: list[Any] = [None] * n_learners
    results: list[Any] = [None] * n_learners
    errors: list[BaseException] = []
    barrier = threading.Barrier(n_learners)

    def run(rank: int) -> None:
        try:
            results[rank] = learner(InThread(rank, table, barrier))
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n_learners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return results


def main(store: str, rank: str, size: str, output: str, device: str, backend: str) -> None:
    torch.set_num_threads(1)
    group = ProcessGroup(
        dist.FileStore(store, int(size)),
        rank=int(rank),
        size=int(size),
        device=torch.device(device),
        hostname="127.0.0.1",
    )
    if backend == "nccl":
        group.use_nccl()

    (results,) = learn_all(lambda learn_cases: [learn_cases(group)], device)
    torch.save(results, output)
    group.gather("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
