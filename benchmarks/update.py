"""Minibatch updates per second of PPO, and of a loop written for one network and one loss.

The loop has no memory, no other observations, no reward streams and no schedules: its advantage is
their cost. Both use one thread of torch. Seconds are CPU time, so that other programs on the
machine have little effect.

    python benchmarks/update.py [--rounds 5]
"""

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec

N_OBSERVED, N_ACTIONS, HORIZON = 48, 12, 64
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median is shown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print(f"{'network, minibatch':24}{'PPO':>10}{'plain loop':>14}{'PPO takes':>12}   updates/s")
    for hidden_units, num_layers, batch_size in ((128, 2, 64), (512, 3, 1024)):
        segments = experience(max(2048, 4 * batch_size))
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
        n_minibatches = 3 * (segments.n_steps // batch_size)
        ours, plain = ppo_update(segments, settings), plain_update(segments, settings)
        ours(), plain()
        times = [(seconds(ours), seconds(plain)) for _ in range(arguments.rounds)]
        of_ours, of_plain = (statistics.median(column) for column in zip(*times, strict=True))
        title = f"{num_layers} x {hidden_units}, {batch_size}"
        print(
            f"{title:24}{n_minibatches / of_ours:10,.0f}{n_minibatches / of_plain:14,.0f}"
            f"{of_ours / of_plain:11.2f}x"
        )


def seconds(update: Callable[[], object]) -> float:
    begun_s = time.process_time()
    update()
    return time.process_time() - begun_s


def experience(n_steps: int) -> Segments:
    """Make random experience in segments of the time horizon."""
    rng = np.random.default_rng(0)
    n_segments = n_steps // HORIZON
    never = np.zeros(n_segments, np.bool_)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    return Segments(
        obs=[normal(n_steps, N_OBSERVED)],
        continuous=normal(n_steps, N_ACTIONS),
        discrete=np.zeros((n_steps, 0), np.int32),
        log_probs=-1.4 + 0.1 * normal(n_steps, N_ACTIONS),
        action_mask=np.zeros((n_steps, 0), np.bool_),
        memory=np.zeros((n_steps, 0), np.float32),
        reward=normal(n_steps),
        group_reward=np.zeros(n_steps, np.float32),
        length=np.full(n_segments, HORIZON),
        last_obs=[normal(n_segments, N_OBSERVED)],
        last_memory=np.zeros((n_segments, 0), np.float32),
        terminated=never,
        interrupted=never,
        episode=np.arange(n_segments),
        episode_return=np.zeros(n_segments),
        episode_length=np.full(n_segments, HORIZON),
    )


def ppo_update(segments: Segments, settings: BehaviorSettings) -> Callable[[], object]:
    spec = BehaviorSpec(
        [ObservationSpec.vector(N_OBSERVED, "vector")], ActionSpec.create_continuous(N_ACTIONS)
    )
    ppo = PPO(spec, settings, device=CPU, seed=0)
    rewards = ppo.score(segments)
    return lambda: ppo.update(segments, rewards, step=0)


def plain_update(segments: Segments, settings: BehaviorSettings) -> Callable[[], object]:
    """Return PPO's update, written as briefly as possible in torch."""
    network, hyperparameters = settings.network_settings, settings.hyperparameters

    def layers(n_out: int) -> nn.Sequential:
        sizes = [N_OBSERVED, *[network.hidden_units] * network.num_layers]
        hidden = [
            layer
            for n_in, width in itertools.pairwise(sizes)
            for layer in (nn.Linear(n_in, width), nn.SiLU())
        ]
        return nn.Sequential(*hidden, nn.Linear(sizes[-1], n_out))

    actor, critic, log_std = layers(N_ACTIONS), layers(1), nn.Parameter(torch.zeros(N_ACTIONS))
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
