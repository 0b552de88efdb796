"""Final returns of our PPO and SAC, and of Stable-Baselines3 with the same settings.

Ours is `mlagents-learn` and the model that it exports. Stable-Baselines3 plays the same tasks in
its own way, our world through `SB3VecEnv`. Then both act deterministically in the same episodes.
Networks, minibatches, buffers, learning rates, discounts, entropy weights, steps and copies are
equal.

Only the losses differ. Our PPO takes the ratio of every action separately and normalizes the
advantages of the whole buffer, and our SAC has a network for the values of states.

    OMP_NUM_THREADS=1 python benchmarks/peers.py [--task 3DBall-sac] [--seeds 5]
"""

import argparse
import logging
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3
import torch
import yaml
from gymnasium.spaces import Box
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from mlagents.policy import Policy
from mlagents_envs.base_env import ActionTuple, BaseEnv, DecisionSteps, TerminalSteps
from mlagents_envs.envs.sb3 import SB3VecEnv
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv
from mlagents_envs.factories import call_factory, find_factory
from mlagents_envs.logging_util import set_log_level

Act = Callable[[DecisionSteps, TerminalSteps], ActionTuple]

EVALUATION_SEED = 10_000


@dataclass(frozen=True)
class Task:
    """A task that both learn, and its settings.

    Attributes:
        name: Name of the behavior.
        env: Value of `--env`.
        trainer: `ppo` or `sac`.
        steps: Decisions of all agents together.
        areas: Copies of the environment.
        agents: Number of agents in all copies together.
        network: Values of `num_layers` and `hidden_units`.
        hyperparameters: Keys of a configuration file; only PPO's learning rate has a linear
            schedule.
        gamma: Discount per step.
        evaluation_areas: Copies for the evaluation, with one episode of every agent.
    """

    name: str
    env: str
    trainer: str
    steps: int
    areas: int
    agents: int
    network: dict[str, Any]
    hyperparameters: dict[str, Any]
    gamma: float = 0.99
    evaluation_areas: int = 50


PPO: dict[str, Any] = {
    "learning_rate": 1e-3,
    "epsilon_schedule": "constant",
    "beta_schedule": "constant",
    "beta": 0.0,
    "epsilon": 0.2,
    "max_grad_norm": 0.5,
}
TASKS = {
    "CartPole-ppo": Task(
        name="CartPole-v1",
        env="gym:CartPole-v1",
        trainer="ppo",
        steps=80_000,
        areas=8,
        agents=8,
        network={"num_layers": 2, "hidden_units": 64},
        hyperparameters=PPO
        | {"buffer_size": 2048, "batch_size": 256, "num_epoch": 6, "lambd": 0.95},
    ),
    "Pendulum-ppo": Task(
        name="Pendulum-v1",
        env="gym:Pendulum-v1",
        trainer="ppo",
        steps=80_000,
        areas=4,
        agents=4,
        network={"num_layers": 2, "hidden_units": 64},
        hyperparameters=PPO
        | {"buffer_size": 4096, "batch_size": 128, "num_epoch": 10, "lambd": 0.95},
        gamma=0.9,
    ),
    "Pendulum-sac": Task(
        name="Pendulum-v1",
        env="gym:Pendulum-v1",
        trainer="sac",
        steps=5_000,
        areas=1,
        agents=1,
        network={"num_layers": 2, "hidden_units": 64},
        hyperparameters={
            "learning_rate": 1e-3,
            "batch_size": 128,
            "buffer_size": 20_000,
            "buffer_init_steps": 500,
            "steps_per_update": 1,
        },
    ),
    "3DBall-ppo": Task(
        name="3DBall",
        env="3DBall",
        trainer="ppo",
        steps=200_000,
        areas=1,
        agents=12,
        network={"num_layers": 2, "hidden_units": 128},
        hyperparameters=PPO
        | {"buffer_size": 6000, "batch_size": 250, "num_epoch": 6, "lambd": 0.95},
        evaluation_areas=4,
    ),
    "3DBall-sac": Task(
        name="3DBall",
        env="3DBall",
        trainer="sac",
        steps=48_000,
        areas=1,
        agents=12,
        network={"num_layers": 2, "hidden_units": 64},
        hyperparameters={
            "learning_rate": 1e-3,
            "batch_size": 128,
            "buffer_size": 50_000,
            "buffer_init_steps": 1200,
            "steps_per_update": 6,
        },
        evaluation_areas=4,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, action="append", help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each side")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    set_log_level(logging.WARNING)

    for name in arguments.task or TASKS:
        task = TASKS[name]
        for side, train in ("ours", ours), ("SB3", stable_baselines):
            returns = [evaluate(task, train(task, seed)) for seed in range(1, arguments.seeds + 1)]
            mean, spread = statistics.mean(returns), statistics.pstdev(returns)
            each = ", ".join(f"{found:.1f}" for found in returns)
            print(f"{name:14}{side:6}{mean:9.1f} ± {spread:5.1f}   ({each})", flush=True)


def make_env(task: Task, *, seed: int, areas: int) -> BaseEnv:
    factory = find_factory(task.env)
    return call_factory(factory, worker_id=0, seed=seed, num_areas=areas, parameters={})


def evaluate(task: Task, act: Act) -> float:
    """Return the mean return of the first episode of every agent."""
    env = make_env(task, seed=EVALUATION_SEED, areas=task.evaluation_areas)
    env.reset()
    (behavior,) = env.behavior_specs
    decisions, terminals = env.get_steps(behavior)
    total = np.zeros(len(decisions))
    goes_on = np.ones(len(decisions), np.bool_)
    row_of = {agent: row for row, agent in enumerate(decisions.agent_id.tolist())}
    while goes_on.any():
        env.set_actions(behavior, act(decisions, terminals))
        env.step()
        decisions, terminals = env.get_steps(behavior)
        for steps in terminals, decisions:
            rows = np.array([row_of[agent] for agent in steps.agent_id.tolist()], np.int64)
            total[rows] += np.where(goes_on[rows], steps.reward, 0.0)
            if steps is terminals:
                goes_on[rows] = False
    env.close()
    return float(total.mean())


def ours(task: Task, seed: int) -> Act:
    behavior = {
        "trainer_type": task.trainer,
        "hyperparameters": task.hyperparameters,
        "network_settings": task.network,
        "reward_signals": {"extrinsic": {"gamma": task.gamma}},
        "max_steps": task.steps,
        "time_horizon": task.hyperparameters["buffer_size"],
        "summary_freq": task.steps,
        "checkpoint_interval": 10 * task.steps,
    }
    options = {
        "behaviors": {task.name: behavior},
        "env_settings": {"env_path": task.env, "seed": seed, "num_areas": task.areas},
        "torch_settings": {"threads": 1, "device": "cpu"},
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "task.yaml").write_text(yaml.safe_dump(options))
        command = [sys.executable, "-m", "mlagents.trainers.learn", "task.yaml", "--run-id=peer"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        model = Path(folder, "results", "peer", f"{task.name}.onnx")
        return Policy.load(model, deterministic=True).act


def stable_baselines(task: Task, seed: int) -> Act:
    envs = stable_baselines_envs(task)
    space, s = envs.action_space, task.hyperparameters
    networks: dict[str, Any] = {
        "net_arch": [task.network["hidden_units"]] * task.network["num_layers"],
        "activation_fn": torch.nn.SiLU,
    }
    common = {"batch_size": s["batch_size"], "gamma": task.gamma, "seed": seed, "device": "cpu"}
    model: BaseAlgorithm
    if task.trainer == "ppo":
        if isinstance(space, Box):  # ours begins with a deviation of a third of the range
            networks["log_std_init"] = math.log(space.high[0] / 3)
        model = stable_baselines3.PPO(
            "MlpPolicy",
            envs,
            learning_rate=lambda left: s["learning_rate"] * left,
            n_steps=s["buffer_size"] // task.agents,
            n_epochs=s["num_epoch"],
            gae_lambda=s["lambd"],
            clip_range=s["epsilon"],
            ent_coef=s["beta"],
            max_grad_norm=s["max_grad_norm"],
            policy_kwargs=networks,
            **common,
        )
    else:
        model = stable_baselines3.SAC(
            "MlpPolicy",
            envs,
            learning_rate=s["learning_rate"],
            buffer_size=s["buffer_size"],
            learning_starts=s["buffer_init_steps"],
            gradient_steps=round(task.agents / s["steps_per_update"]),
            policy_kwargs=networks,
            **common,
        )
    model.learn(task.steps)
    envs.close()

    def act(decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        actions, _ = model.predict(decisions.obs[0], deterministic=True)
        if isinstance(space, Box):
            return ActionTuple(continuous=actions / space.high)
        return ActionTuple(discrete=actions[:, None].astype(np.int32))

    return act


def stable_baselines_envs(task: Task) -> VecEnv:
    gymnasium_id = task.env.removeprefix("gym:")
    if gymnasium_id != task.env:
        return make_vec_env(gymnasium_id, task.areas)
    return SB3VecEnv(UnityVectorEnv(lambda seed: make_env(task, seed=seed, areas=task.areas)))


if __name__ == "__main__":
    main()
