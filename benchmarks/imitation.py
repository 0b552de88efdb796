"""Rewards of policies that learned from play recorded in Unity, by the pairing of its actions.

Every demonstration is read twice. One reading pairs each action with the observation at which it
was taken. The other pairs it with the next observation, which is in the same record of Unity's
file. Policies learn from both with the same settings and seeds, are exported, and play the world.

    OMP_NUM_THREADS=1 python benchmarks/imitation.py DEMONSTRATIONS [--task Hallway-clone]

DEMONSTRATIONS is a folder that holds ExpertFood.demo, ExpertHallway.demo, ExpertPushBlock.demo and
Expert3DBall.demo of Unity's toolkit.
"""

import argparse
import logging
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlagents.playing.game import Game
from mlagents.policy import Policy
from mlagents_envs.base_env import BehaviorName, BehaviorSpec
from mlagents_envs.demonstration_file import (
    ActionPlacement,
    read_demonstration,
    write_demonstration,
)
from mlagents_envs.factories import call_factory, find_factory
from mlagents_envs.logging_util import set_log_level

EVALUATION_SEED = 10_000
DEMO = "expert.demo"


@dataclass(frozen=True)
class Task:
    """A task: its world, its demonstrations and its settings.

    Attributes:
        world: The environment, which is also the behavior.
        demonstration: Name of the file.
        settings: The behavior's settings.
        areas: Copies of the world in which the policy is evaluated.
        episodes: Number of episodes of the evaluation.
    """

    world: str
    demonstration: str
    settings: dict[str, Any]
    areas: int = 4
    episodes: int = 200


def clone(n_steps: int, **network: Any) -> dict[str, Any]:
    """Return the settings of behavioral cloning, without an environment."""
    return {
        "trainer_type": "bc",
        "hyperparameters": {
            "batch_size": 128,
            "buffer_size": 2560,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "linear",
            "held_out": 0.0,
        },
        "network_settings": {"hidden_units": 128, "num_layers": 2, "normalize": True} | network,
        "max_steps": n_steps,
        "behavioral_cloning": {"demo_path": DEMO},
    }


def ppo(n_steps: int, **changes: Any) -> dict[str, Any]:
    """Return the settings of PPO with demonstrations."""
    return {
        "trainer_type": "ppo",
        "hyperparameters": {
            "batch_size": 128,
            "buffer_size": 2048,
            "learning_rate": 3e-4,
            "beta": 0.01,
        },
        "network_settings": {"hidden_units": 128, "num_layers": 2},
        "max_steps": n_steps,
        "time_horizon": 64,
    } | changes


GAIL = {"demo_path": DEMO, "use_actions": True, "network_settings": {"hidden_units": 128}}
ONLY_GAIL = {"extrinsic": {"strength": 0.0}, "gail": GAIL | {"strength": 0.1}}

TASKS = {
    "FoodCollector-clone": Task(
        "FoodCollector", "ExpertFood.demo", clone(150_000), areas=4, episodes=20
    ),
    "Hallway-clone": Task("Hallway", "ExpertHallway.demo", clone(150_000)),
    "Hallway-clone-memory": Task(
        "Hallway",
        "ExpertHallway.demo",
        clone(150_000, memory={"memory_size": 128, "sequence_length": 64}),
    ),
    "PushBlock-clone": Task("PushBlock", "ExpertPushBlock.demo", clone(150_000)),
    "3DBall-clone": Task("3DBall", "Expert3DBall.demo", clone(150_000), areas=1, episodes=24),
    "PushBlock-gail": Task(
        "PushBlock",
        "ExpertPushBlock.demo",
        ppo(60_000, reward_signals=ONLY_GAIL),
    ),
    "FoodCollector-gail": Task(
        "FoodCollector",
        "ExpertFood.demo",
        ppo(60_000, reward_signals=ONLY_GAIL),
        areas=4,
        episodes=20,
    ),
    "PushBlock-ppo+clone": Task(
        "PushBlock",
        "ExpertPushBlock.demo",
        ppo(60_000, behavioral_cloning={"demo_path": DEMO, "steps": 30_000}),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("demonstrations", type=Path, help="folder of the .demo files")
    parser.add_argument("--task", choices=TASKS, action="append", help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each pairing")
    arguments = parser.parse_args()
    set_log_level(logging.WARNING)

    print(f"{'task':24}{'action beside':30}{'mean':>9}   each seed")
    for name in arguments.task or TASKS:
        task = TASKS[name]
        file = arguments.demonstrations / task.demonstration
        is_unitys = read_demonstration(file).action_placement is ActionPlacement.NEXT_RECORD
        pairings: dict[str, ActionPlacement | None] = {"its own observation": None}
        if is_unitys:
            pairings["the observation after"] = ActionPlacement.SAME_RECORD
        for pairing, placement in pairings.items():
            rewards = [train(task, file, placement, seed) for seed in range(1, arguments.seeds + 1)]
            each = ", ".join(f"{reward:.3f}" for reward in rewards)
            print(f"{name:24}{pairing:30}{statistics.mean(rewards):9.3f}   {each}", flush=True)


def train(task: Task, file: Path, placement: ActionPlacement | None, seed: int) -> float:
    """Learn from a demonstration; return the mean reward of the policy's episodes."""
    options = {
        "behaviors": {task.world: task.settings | {"summary_freq": 10_000}},
        "torch_settings": {"threads": 1, "device": "cpu"},
        "env_settings": {"seed": seed},
    }
    if task.settings["trainer_type"] != "bc":
        options["env_settings"] |= {"env_path": task.world, "num_areas": task.areas}
    demonstration = read_demonstration(file, action_placement=placement)
    with tempfile.TemporaryDirectory() as folder:
        write_demonstration(
            Path(folder, DEMO),
            demonstration.behavior_name,
            demonstration.spec,
            demonstration.records,
        )
        Path(folder, "task.yaml").write_text(yaml.safe_dump(options))
        command = [sys.executable, "-m", "mlagents.trainers.learn", "task.yaml", "--run-id=clone"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return play(task, Path(folder, "results", "clone", f"{task.world}.onnx"))


def play(task: Task, model: Path) -> float:
    """Return the mean reward of the first episodes that a policy plays."""
    factory = find_factory(task.world)
    env = call_factory(
        factory, worker_id=0, seed=EVALUATION_SEED, num_areas=task.areas, parameters={}
    )
    env.reset()

    def make_actor(name: BehaviorName, spec: BehaviorSpec) -> Policy:
        policy = Policy.load(model, seed=EVALUATION_SEED)
        policy.check(spec, name)
        return policy

    game = Game(env, make_actor, n_episodes=task.episodes)
    for _ in game.play():
        pass
    (tally,) = game.tallies.values()
    return statistics.mean(episode.reward for episode in tally.episodes)


if __name__ == "__main__":
    main()
