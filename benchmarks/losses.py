"""Steps and reward of PPO with the losses of ML-Agents and with each of the alternatives.

Every task is learned once a seed with each loss, in one thread. A run has twenty *summaries*. Each
is the mean return of the episodes that have ended since the previous one. The table has two
columns, as mean and standard deviation over the seeds:

- the thousand steps until a summary reaches the task's goal, or all steps of a run that misses it,
- the mean of all summaries.

Runs are short and schedules end with them, so goals are intermediate. Some tasks come from the
tests:

    PYTHONPATH=tests python benchmarks/losses.py [--tasks 3DBall Basic] [--seeds 5]
"""

import argparse
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_limits

from corridor_environment import CorridorEnvironment
from guess_environment import GuessEnvironment
from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import ActionSpec, BaseEnv
from mlagents_envs.factories import find_factory

CONFIGURATIONS = Path(__file__).parents[1] / "config" / "ppo"
N_SUMMARIES = 20

Losses = Mapping[str, Any]
AS_IN_ML_AGENTS: Losses = {
    "policy_head_gain": 1.0,
    "joint_ratio": False,
    "joint_entropy": False,
    "clip_values": False,
    "normalize_each_signal": False,
    "epsilon_floor": 0.1,
    "beta_floor": 1e-5,
}
RATIO = {"joint_ratio": True}
ENTROPY = {"joint_entropy": True}
BOTH = RATIO | ENTROPY
VALUES = {"clip_values": True}
FLOORS = {"epsilon_floor": 0.0, "beta_floor": 0.0}
SIGNALS = {"normalize_each_signal": True}


class Task(NamedTuple):
    """A task, and the losses that are compared with those of ML-Agents.

    Attributes:
        make: Function that makes the environment for a seed.
        settings: Settings whose schedules end with the run.
        goal: Reward of an intermediate policy.
        losses: Losses that differ in this task.
    """

    make: Callable[..., BaseEnv]
    settings: BehaviorSettings
    goal: float
    losses: list[Losses]


def published(file: str, behavior: str, *, max_steps: int) -> BehaviorSettings:
    options = load_run_options(parse_command_line([str(CONFIGURATIONS / f"{file}.yaml")]))
    return options.behavior_settings(behavior).model_copy(update={"max_steps": max_steps})


def small(
    hyperparameters: dict[str, Any], *, hidden_units: int, num_layers: int, **written: Any
) -> BehaviorSettings:
    network = {"hidden_units": hidden_units, "num_layers": num_layers, "normalize": True}
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": hyperparameters,
            "network_settings": network,
            **written,
        }
    )


def guess(actions: ActionSpec, *, goal: float) -> Task:
    settings = small(
        {"batch_size": 64, "buffer_size": 512, "learning_rate": 3e-3},
        hidden_units=32,
        num_layers=1,
        max_steps=30_000,
        time_horizon=8,
    )
    return Task(partial(GuessEnvironment, actions), settings, goal, [RATIO, ENTROPY, BOTH])


def corridor() -> Task:
    network = {"hidden_units": 32, "num_layers": 1}
    curiosity = {"strength": 0.1, "learning_rate": 1e-3, "network_settings": network}
    settings = small(
        {"batch_size": 64, "buffer_size": 512, "learning_rate": 3e-3, "beta": 0.01},
        hidden_units=32,
        num_layers=1,
        max_steps=25_000,
        time_horizon=20,
        reward_signals={"extrinsic": {}, "curiosity": curiosity},
    )
    # Only the policy's actions are random.
    return Task(
        lambda *, seed: CorridorEnvironment(length=10, episode_steps=20), settings, 0.9, [SIGNALS]
    )


def tasks() -> dict[str, Task]:
    return {
        "3DBall": Task(
            find_factory("3DBall"),
            published("3DBall", "3DBall", max_steps=100_000),
            5.0,
            [RATIO, FLOORS],
        ),
        "SmallWallJump": Task(
            find_factory("SmallWallJump"),
            published("WallJump", "SmallWallJump", max_steps=30_000),
            -0.3,
            [RATIO, FLOORS],
        ),
        "Basic": Task(
            find_factory("Basic"),
            published("Basic", "Basic", max_steps=15_000),
            0.5,
            [VALUES, FLOORS],
        ),
        "CartPole": Task(
            partial(find_factory("gym:CartPole-v1"), num_areas=8),
            small(
                {"batch_size": 256, "buffer_size": 2048, "learning_rate": 1e-3, "num_epoch": 6},
                hidden_units=64,
                num_layers=2,
                max_steps=50_000,
                time_horizon=128,
            ),
            300.0,
            [VALUES, FLOORS],
        ),
        "Guess, 12 continuous": guess(ActionSpec.create_continuous(12), goal=2.2),
        "Guess, 6 continuous and 3 branches": guess(
            ActionSpec.create_hybrid(6, (3,) * 3), goal=2.2
        ),
        "Corridor, curiosity": corridor(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=tasks(), default=list(tasks()))
    parser.add_argument("--seeds", type=int, default=5, help="runs of each task with each loss")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)

    print(
        f"| Task | Losses | Thousand steps to the goal | Reached it | Mean reward |\n|{'---|' * 5}"
    )
    for name in arguments.tasks:
        task = tasks()[name]
        for losses in ({}, *task.losses):
            settings = with_hyperparameters(task.settings, {**AS_IN_ML_AGENTS, **losses})
            seeds = range(1, arguments.seeds + 1)
            runs = [measure(task.make, settings, goal=task.goal, seed=seed) for seed in seeds]
            cells = summary(runs, max_steps=task.settings.max_steps)
            print(f"| {name} | {', '.join(losses) or 'as in ML-Agents'} | {cells} |")


class Run(NamedTuple):
    """Result of one run; `steps` is None if it missed the goal."""

    steps: int | None
    reward: float


def measure(
    make: Callable[..., BaseEnv], settings: BehaviorSettings, *, goal: float, seed: int
) -> Run:
    env = make(seed=seed)
    env.reset()
    ((behavior, spec),) = env.behavior_specs.items()
    trainer = Trainer(
        TRAINER_TYPES[settings.trainer_type],
        behavior,
        spec,
        settings,
        stats=StatsReporter(behavior, []),
        device=torch.device("cpu"),
        seed=seed,
        inference=False,
        torch_settings=TorchSettings(),
        on_summary=lambda step: None,
        on_checkpoint=lambda: None,
        n_returns=settings.max_steps,  # all of them
    )
    rollout = Rollout(SimpleEnvManager(env), lambda player, behavior: trainer.seat)
    rollout.reset()
    every = settings.max_steps // N_SUMMARIES
    summaries: list[float] = []
    steps, n_seen, mark = None, 0, every
    while trainer.is_learning:
        rollout.advance()
        trainer.advance()
        rollout.answer()
        if trainer.step < mark:
            continue
        new = list(trainer.meter.recent_returns)[n_seen:]
        n_seen += len(new)
        if new:
            summaries.append(statistics.fmean(new))
            if steps is None and summaries[-1] >= goal:
                steps = mark
        mark += every
    env.close()
    return Run(steps, statistics.fmean(summaries))


def with_hyperparameters(
    settings: BehaviorSettings, written: Mapping[str, Any]
) -> BehaviorSettings:
    before = settings.hyperparameters
    hyperparameters = before.model_validate({**before.model_dump(exclude_unset=True), **written})
    return settings.model_copy(update={"hyperparameters": hyperparameters})


def summary(runs: list[Run], *, max_steps: int) -> str:
    """Return the cells of steps and of reward."""
    steps = [(run.steps or max_steps) / 1000 for run in runs]
    rewards = [run.reward for run in runs]
    n_reached = sum(run.steps is not None for run in runs)
    return (
        f"{statistics.fmean(steps):.1f} ± {deviation(steps):.1f} | {n_reached} of {len(runs)} | "
        f"{statistics.fmean(rewards):.3g} ± {deviation(rewards):.2g}"
    )


def deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
