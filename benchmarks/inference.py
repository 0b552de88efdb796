"""Cost of a decision, compared with the bare network that it uses.

A decision is all of `Policy.act`: normalized observations through the network, a sample, its
log-probability, and the check that all numbers are finite. The bare network is only the matrix
products, swish and the means of 8 actions. It is written once in torch and once in NumPy, as
efficiently as possible, with every array made beforehand. The script uses one thread and measures
microseconds of CPU time, so that other programs on the machine have little effect.

    python benchmarks/inference.py [--rounds 15]
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mlagents.torch_utils import set_threads
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.snapshots import snapshot_of
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

N_OBSERVED, N_ACTIONS = 48, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="rounds; the median is shown")
    arguments = parser.parse_args()
    set_threads(1)

    print(f"{'network':12}{'agents':>8}{'decision':>10}{'torch':>8}{'NumPy':>8}   us, and ratios")
    for num_layers, hidden_units in ((2, 128), (2, 256), (3, 512)):
        for n_agents in (1, 12, 100, 1000):
            calls = decision_and_bare_networks(num_layers, hidden_units, n_agents)
            n_calls = max(3, int(5e7 / (n_agents * num_layers * hidden_units**2)))
            rounds = [
                [microseconds(call, n_calls) for call in calls] for _ in range(arguments.rounds)
            ]
            ours, in_torch, in_numpy = map(statistics.median, zip(*rounds, strict=True))
            print(
                f"{f'{num_layers} x {hidden_units}':12}{n_agents:8}{ours:10,.0f}{in_torch:8,.0f}"
                f"{in_numpy:8,.0f}{ours / in_torch:8.2f}x{ours / in_numpy:6.2f}x"
            )


def microseconds(call: Callable[[], object], n_calls: int) -> float:
    begun_s = time.process_time()
    for _ in range(n_calls):
        call()
    return (time.process_time() - begun_s) / n_calls * 1e6


def decision_and_bare_networks(
    num_layers: int, hidden_units: int, n_agents: int
) -> tuple[Callable[[], object], Callable[[], object], Callable[[], object]]:
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((n_agents, N_OBSERVED), np.float32)
    spec = BehaviorSpec(
        [ObservationSpec.vector(N_OBSERVED, "vector")], ActionSpec.create_continuous(N_ACTIONS)
    )
    settings = NetworkSettings(normalize=True, hidden_units=hidden_units, num_layers=num_layers)
    actor = Actor(spec, settings)
    policy = ActingPolicy(snapshot_of(actor), spec.action_spec, deterministic=False, rng=rng)
    mask = np.zeros((n_agents, 0), np.bool_)
    layers = [layer for layer in actor.body.dense if isinstance(layer, nn.Linear)]
    assert actor.heads.mean is not None

    seen, network = torch.from_numpy(obs), nn.Sequential(actor.body.dense, actor.heads.mean)

    @torch.inference_mode()
    def in_torch() -> object:
        return network(seen)

    weights = [
        (np.ascontiguousarray(layer.weight.detach().numpy().T), layer.bias.detach().numpy())
        for layer in (*layers, actor.heads.mean)
    ]
    sizes = [len(bias) for _, bias in weights]
    outputs = [np.empty((n_agents, size), np.float32) for size in sizes]
    scratch = np.empty((n_agents, hidden_units), np.float32)

    def in_numpy() -> NDArray[np.float32]:
        x = obs
        for (weight, bias), out in itertools.islice(zip(weights, outputs, strict=True), num_layers):
            np.matmul(x, weight, out=out)
            np.add(out, bias, out=out)
            np.negative(out, out=scratch)
            np.exp(scratch, out=scratch)
            np.add(scratch, 1, out=scratch)
            np.divide(out, scratch, out=out)
            x = out
        np.matmul(x, weights[-1][0], out=outputs[-1])
        return np.add(outputs[-1], weights[-1][1], out=outputs[-1])

    np.testing.assert_allclose(in_numpy(), network(seen).detach().numpy(), rtol=1e-3, atol=1e-4)
    return (lambda: policy.act([obs], mask)), in_torch, in_numpy


if __name__ == "__main__":
    main()
