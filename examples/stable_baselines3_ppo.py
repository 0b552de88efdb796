"""Train 3DBall with PPO of Stable-Baselines3.

    pip install ".[sb3]"    # in the folder of the project
    python examples/stable_baselines3_ppo.py

All agents of the scene play side by side, so that one step of the algorithm takes a decision for
each of them. For a Unity build put `UnityEnvironment("builds/3DBall")` in the world's place.
"""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from mlagents_envs.envs.sb3 import SB3VecEnv
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv
from mlagents_envs.registry import default_registry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400_000, help="decisions of all agents")
    parser.add_argument("--areas", type=int, default=4, help="copies of the scene (12 agents each)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # small networks are slower with more
    world = default_registry["3DBall"]
    envs = VecMonitor(
        SB3VecEnv(UnityVectorEnv(lambda seed: world.make(seed=seed, num_areas=arguments.areas)))
    )
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=256,
        batch_size=1024,
        n_epochs=6,
        learning_rate=1e-3,
        gamma=0.99,
        gae_lambda=0.95,
        policy_kwargs={"net_arch": [128, 128], "log_std_init": -0.5},
        seed=arguments.seed,
        device="cpu",
        verbose=1,
    )
    model.learn(arguments.steps, log_interval=4)
    envs.close()

    returns = [episode["r"] for episode in model.ep_info_buffer]
    print(f"mean reward of the last {len(returns)} episodes: {sum(returns) / len(returns):.1f}")


if __name__ == "__main__":
    main()
