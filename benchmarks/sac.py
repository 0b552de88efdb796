"""Gradient steps per second of our SAC, and of Stable-Baselines3.

Both have networks of the same width and depth, the same minibatches, full replay buffers of the
same kind of experience, and one thread of torch. Seconds are CPU time, so that other programs on
the machine have little effect. `mixed` is ours with `torch_settings.mixed_precision`. `compiled`
also has `torch_settings.compile`, which takes minutes to begin.

The upper bound follows from the arithmetic. Let F be the floating-point operations of one forward
pass of one network over one minibatch: twice the rows times the weights of its layers. The backward
pass costs F for the weights and F for the inputs. One step is

    actor, value network            2 x 3 F     forward and backward
    Q of the recorded actions       2 x 3 F     two networks
    Q of the actor's actions        2 x F + F   backward by the actions, through one network
    target                              F       only forward

16 F in all; Stable-Baselines3 takes 18 F or a little more. `products` is the number of steps per
second if only these products took time. Each is timed as a product of two float32 matrices of the
hidden layers' size, by the faster library of this machine. No program for the same arithmetic is
faster, except with lower precision.

    python benchmarks/sac.py [--rounds 5] [--compile]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import gymnasium
import numpy as np
import torch
from stable_baselines3 import SAC as StableBaselinesSAC
from stable_baselines3.common.logger import Logger

from mlagents.torch_utils import set_threads
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.fast.compute import Compute
from mlagents.trainers.fast.products import prepared_product
from mlagents.trainers.fast.sac_by_hand import FastSAC
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

N_OBSERVED, N_ACTIONS, N_STEPS, HORIZON = 24, 4, 16384, 16
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median is shown")
    parser.add_argument("--compile", action="store_true", help="also measure compiled losses")
    arguments = parser.parse_args()
    set_threads(1)

    ways = {
        "native": TorchSettings(),
        "torch": TorchSettings(dense="torch"),
        "mixed": TorchSettings(mixed_precision=True),
    }
    if arguments.compile:
        ways["compiled"] = TorchSettings(mixed_precision=True, compile=True)
    columns = [*ways, "SB3", "products", *(f"{way}/SB3" for way in (*ways, "products"))]
    print(f"{'network, minibatch':20}" + "".join(f"{column:>13}" for column in columns))
    for hidden_units, num_layers, batch_size, n_updates in (
        (64, 2, 64, 200),
        (128, 2, 128, 150),
        (256, 2, 256, 60),
        (512, 3, 256, 20),
        (512, 3, 1024, 6),
    ):
        settings = BehaviorSettings.model_validate(
            {
                "trainer_type": "sac",
                "hyperparameters": {"batch_size": batch_size, "buffer_size": 2 * N_STEPS},
                "network_settings": {"hidden_units": hidden_units, "num_layers": num_layers},
            }
        )
        updates = [ours(settings, way) for way in ways.values()]
        updates.append(stable_baselines(hidden_units, num_layers, batch_size))
        for update in updates:
            update(5)
        rounds = [
            [
                *(n_updates / seconds(update, n_updates) for update in updates),
                products(hidden_units, num_layers, batch_size),
            ]
            for _ in range(arguments.rounds)
        ]
        *rates, of_sb3, most = (statistics.median(column) for column in zip(*rounds, strict=True))
        title = f"{num_layers} x {hidden_units}, {batch_size}"
        numbers = "".join(f"{rate:13,.0f}" for rate in (*rates, of_sb3, most))
        ratios = "".join(f"{rate / of_sb3:12.1f}x" for rate in (*rates, most))
        print(f"{title:20}{numbers}{ratios}", flush=True)


def products(hidden_units: int, num_layers: int, batch_size: int) -> float:
    """Return the gradient steps per second of the matrix products alone, see above."""
    weights = N_OBSERVED * hidden_units + (num_layers - 1) * hidden_units**2
    n_operations = 16 * 2 * batch_size * weights
    rows, square = torch.ones(batch_size, hidden_units), torch.ones(hidden_units, hidden_units)
    n_products = max(10, int(2e9 / (2 * batch_size * hidden_units**2)))

    into_place = prepared_product(rows, square, torch.empty_like(rows))

    def multiply(n: int) -> None:
        for _ in range(n):
            into_place()

    taken_s = seconds(multiply, n_products)
    rate = n_products * 2 * batch_size * hidden_units**2 / taken_s
    return rate / n_operations


def seconds(update: Callable[[int], object], n_updates: int) -> float:
    begun_s = time.process_time()
    update(n_updates)
    return time.process_time() - begun_s


def ours(settings: BehaviorSettings, way: TorchSettings) -> Callable[[int], object]:
    spec = BehaviorSpec(
        [ObservationSpec.vector(N_OBSERVED, "vector")], ActionSpec.create_continuous(N_ACTIONS)
    )
    replay = Replay(spec, capacity=2 * N_STEPS)
    replay.add(experience())
    sac = FastSAC(spec, settings, device=CPU, seed=0, compute=Compute.of(way, CPU))
    return lambda n_updates: sac.update(replay, n_updates=n_updates, step=0)


def experience() -> Segments:
    """Make random experience."""
    rng = np.random.default_rng(0)
    n_segments = N_STEPS // HORIZON
    never = np.zeros(n_segments, np.bool_)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    return Segments(
        obs=[normal(N_STEPS, N_OBSERVED)],
        continuous=np.tanh(normal(N_STEPS, N_ACTIONS)),
        discrete=np.zeros((N_STEPS, 0), np.int32),
        log_probs=np.zeros((N_STEPS, N_ACTIONS), np.float32),
        action_mask=np.zeros((N_STEPS, 0), np.bool_),
        memory=np.zeros((N_STEPS, 0), np.float32),
        reward=normal(N_STEPS),
        group_reward=np.zeros(N_STEPS, np.float32),
        length=np.full(n_segments, HORIZON),
        last_obs=[normal(n_segments, N_OBSERVED)],
        last_memory=np.zeros((n_segments, 0), np.float32),
        terminated=never,
        interrupted=never,
        episode=np.arange(n_segments),
    )


class Spaces(gymnasium.Env):
    """An environment that only provides its spaces."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (N_OBSERVED,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (N_ACTIONS,), np.float32)


def stable_baselines(
    hidden_units: int, num_layers: int, batch_size: int
) -> Callable[[int], object]:
    model = StableBaselinesSAC(
        "MlpPolicy",
        Spaces(),
        buffer_size=2 * N_STEPS,
        policy_kwargs={
            "net_arch": [hidden_units] * num_layers,
            "activation_fn": torch.nn.SiLU,
        },
        device="cpu",
        seed=0,
    )
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(0)
    for _ in range(N_STEPS):
        obs, next_obs = rng.standard_normal((2, 1, N_OBSERVED), np.float32)
        action = np.tanh(rng.standard_normal((1, N_ACTIONS), np.float32))
        reward = rng.standard_normal(1, np.float32)
        model.replay_buffer.add(obs, next_obs, action, reward, np.zeros(1), [{}])
    return lambda n_updates: model.train(gradient_steps=n_updates, batch_size=batch_size)


if __name__ == "__main__":
    main()
