"""Time of PPO's minibatches, by the native library, by PyTorch, and in a plain loop of torch.

The loop is written for one network and one loss. It has no memory, no other observations, no reward
streams and no schedules: its advantage is their cost. All three take turns on one thread, and their
time includes values and advantages. Seconds are CPU time, so that other programs on the machine
have little effect. `MLAGENTS_NATIVE` chooses the instruction set of the library.

    python benchmarks/update.py [--rounds 5]
"""

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable
from ctypes import CDLL

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.data.segments import Segments
from mlagents.trainers.fast.native_ppo import PART, FastPPO, NativePPO
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

HORIZON = 64
CPU = torch.device("cpu")

SIZES = [
    (8, 2, 64, 2, 64),
    (8, 2, 128, 2, 64),
    (48, 12, 128, 2, 64),
    (8, 2, 128, 2, 1024),
    (8, 2, 256, 2, 64),
    (48, 12, 256, 3, 1024),
    (48, 12, 512, 2, 64),
    (48, 12, 512, 3, 1024),
]
"""Observed numbers, actions, hidden units, layers, and rows of a minibatch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median is shown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    functions = PART.load()
    print(f"native library: {PART.instructions or PART.reason}")
    print(f"{'':26}{'microseconds per minibatch':>36}{'times as fast as the loop':>30}")
    print(f"{'network, minibatch':26}{'native':>12}{'PyTorch':>12}{'loop':>12}", end="")
    print(f"{'native':>16}{'PyTorch':>14}")
    for n_observed, n_actions, hidden_units, num_layers, batch_size in SIZES:
        segments = experience(max(2048, 4 * batch_size), n_observed, n_actions)
        settings = BehaviorSettings.model_validate(
            {
                "trainer_type": "ppo",
                "hyperparameters": {
                    "batch_size": batch_size,
                    "buffer_size": segments.n_steps,
                    "learning_rate_schedule": "constant",
                },
                "network_settings": {"hidden_units": hidden_units, "num_layers": num_layers},
            }
        )
        ours = None if functions is None else ppo_update(segments, settings, functions)
        updates = [ours, ppo_update(segments, settings, None), plain_update(segments, settings)]
        times = [
            [math.nan if update is None else seconds(update) for update in updates]
            for _ in range(1 + arguments.rounds)
        ][1:]
        n_minibatches = 3 * (segments.n_steps // batch_size)
        native, pytorch, loop = (
            1e6 * statistics.median(column) / n_minibatches for column in zip(*times, strict=True)
        )
        title = f"{n_observed}-{hidden_units}x{num_layers}-{n_actions}, {batch_size}"
        print(f"{title:26}{native:12,.0f}{pytorch:12,.0f}{loop:12,.0f}", end="")
        print(f"{loop / native:15.1f}x{loop / pytorch:13.1f}x", flush=True)


def seconds(update: Callable[[], object]) -> float:
    begun_s = time.process_time()
    update()
    return time.process_time() - begun_s


def experience(n_steps: int, n_observed: int, n_actions: int) -> Segments:
    """Make random experience in segments of the time horizon."""
    rng = np.random.default_rng(0)
    n_segments = n_steps // HORIZON
    never = np.zeros(n_segments, np.bool_)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    return Segments(
        obs=[normal(n_steps, n_observed)],
        continuous=normal(n_steps, n_actions),
        discrete=np.zeros((n_steps, 0), np.int32),
        log_probs=-1.4 + 0.1 * normal(n_steps, n_actions),
        action_mask=np.zeros((n_steps, 0), np.bool_),
        memory=np.zeros((n_steps, 0), np.float32),
        reward=normal(n_steps),
        group_reward=np.zeros(n_steps, np.float32),
        length=np.full(n_segments, HORIZON),
        last_obs=[normal(n_segments, n_observed)],
        last_memory=np.zeros((n_segments, 0), np.float32),
        terminated=never,
        interrupted=never,
        episode=np.arange(n_segments),
    )


def ppo_update(
    segments: Segments, settings: BehaviorSettings, functions: CDLL | None
) -> Callable[[], object]:
    """Return an update of PPO, by the native library or, without its functions, by PyTorch."""
    spec = BehaviorSpec(
        [ObservationSpec.vector(segments.obs[0].shape[1], "vector")],
        ActionSpec.create_continuous(segments.continuous.shape[1]),
    )
    ppo = FastPPO(spec, settings, device=CPU, seed=0)
    ppo.native = None if functions is None else NativePPO(ppo, functions)
    rewards = ppo.score(segments)
    return lambda: ppo.update(segments, rewards, step=0)


def plain_update(segments: Segments, settings: BehaviorSettings) -> Callable[[], object]:
    """Return PPO's update, written as briefly as possible in torch."""
    network, hyperparameters = settings.network_settings, settings.hyperparameters
    n_observed, n_actions = segments.obs[0].shape[1], segments.continuous.shape[1]

    def layers(n_out: int) -> nn.Sequential:
        sizes = [n_observed, *[network.hidden_units] * network.num_layers]
        hidden = [
            layer
            for n_in, width in itertools.pairwise(sizes)
            for layer in (nn.Linear(n_in, width), nn.SiLU())
        ]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], n_out))

    actor, critic, log_std = layers(n_actions), layers(1), nn.Parameter(torch.zeros(n_actions))
    parameters = [*actor.parameters(), *critic.parameters(), log_std]
    optimizer = torch.optim.Adam(parameters, lr=3e-4, fused=True)
    obs, actions, old_log_probs, rewards, last_obs = (
        torch.from_numpy(array)
        for array in (
            *(segments.obs[0], segments.continuous, segments.log_probs),
            *(segments.reward, segments.last_obs[0]),
        )
    )

    def advantages_and_returns() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            values, bootstrap = critic(obs).view(-1, HORIZON), critic(last_obs)
        following = torch.cat([values[:, 1:], bootstrap], dim=1)
        deltas = (rewards.view(-1, HORIZON) + 0.99 * following - values).numpy()
        advantages, carried = np.empty_like(deltas), 0.0
        for t in reversed(range(HORIZON)):
            advantages[:, t] = carried = deltas[:, t] + 0.99 * 0.95 * carried
        result = torch.from_numpy(advantages).view(-1, 1)
        returns = result + values.view(-1, 1)
        return (result - result.mean()) / result.std(), returns

    def update() -> None:
        advantages, returns = advantages_and_returns()
        for _ in range(3):
            for rows in torch.randperm(len(obs)).split(hyperparameters.batch_size):
                seen, advantage = obs[rows], advantages[rows]
                z = (actions[rows] - actor(seen)) * torch.exp(-log_std)
                log_probs = -0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi)
                ratio = torch.exp(log_probs - old_log_probs[rows])
                gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                entropy = (log_std + 0.5 * math.log(2 * math.pi * math.e)).mean()
                value_loss = nn.functional.mse_loss(critic(seen), returns[rows])
                loss = -gain.mean() + 0.5 * value_loss - 5e-3 * entropy
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    return update


if __name__ == "__main__":
    main()
