"""Steps and reward with each option that needs fewer steps, and with the defaults of ML-Agents.

The tasks and the measures of PPO are those of `losses.py`, and SAC learns 3DBall. Every run appends
a line to a file. Started again, the script does the runs that the file lacks. Runs go on seed by
seed, so the table can be printed at any time:

    PYTHONPATH=tests:benchmarks python benchmarks/options.py RESULTS [--seeds 5] [--table]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from losses import CONFIGURATIONS, Run, measure, summary, tasks, with_hyperparameters
from threadpoolctl import threadpool_limits

from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents_envs.factories import find_factory

OF_PPO: dict[str, dict[str, Any]] = {
    "defaults": {},
    "`legacy_defaults`": {"policy_head_gain": 1.0},
    "`normalize_values`": {"normalize_values": True},
    "`target_kl: 0.02`": {"target_kl": 0.02},
    "`learning_rate_schedule: adaptive`": {"learning_rate_schedule": "adaptive"},
    "`normalize_advantages: minibatch`": {"normalize_advantages": "minibatch"},
}
OF_SAC: dict[str, dict[str, Any]] = {
    "defaults": {},
    "`critic_norm: layer`": {"critic_norm": "layer"},
    "`n_step: 3`": {"n_step": 3},
}
OF_3DBALL_SAC = {"learning_rate": 1e-3, "batch_size": 128, "buffer_size": 50_000} | {
    "buffer_init_steps": 1200,
    "steps_per_update": 6,
}
"""More and larger gradient steps than the published configuration has."""
SAC_3DBALL, GOAL_OF_SAC = "3DBall, SAC", 60.0


def sac_3dball() -> BehaviorSettings:
    options = load_run_options(parse_command_line([str(CONFIGURATIONS.parent / "sac/3DBall.yaml")]))
    settings = options.behavior_settings("3DBall").model_copy(update={"max_steps": 30_000})
    return with_hyperparameters(settings, OF_3DBALL_SAC)


def run(name: str, written: dict[str, Any], seed: int) -> Run:
    if name == SAC_3DBALL:
        settings = with_hyperparameters(sac_3dball(), written)
        return measure(find_factory("3DBall"), settings, goal=GOAL_OF_SAC, seed=seed)
    task = tasks()[name]
    settings = with_hyperparameters(task.settings, written)
    return measure(task.make, settings, goal=task.goal, seed=seed)


def main() -> None:
    names = ["Basic", "CartPole", "3DBall", SAC_3DBALL, "SmallWallJump", "Guess, 12 continuous"]
    names.append("Guess, 6 continuous and 3 branches")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="file of finished runs")
    parser.add_argument("--tasks", nargs="+", choices=names, default=names)
    parser.add_argument("--options", nargs="+", help="options to measure (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each task with each option")
    parser.add_argument("--table", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)

    done: dict[tuple[str, str, int], Run] = {}
    if arguments.results.exists():
        for line in arguments.results.read_text().splitlines():
            task, option, seed, steps, reward = json.loads(line)
            done[task, option, seed] = Run(steps, reward)
    for seed in range(1, arguments.seeds + 1):
        for name in arguments.tasks:
            for option, written in (OF_SAC if name == SAC_3DBALL else OF_PPO).items():
                is_wanted = not arguments.options or option.strip("`") in arguments.options
                if arguments.table or not is_wanted or (name, option, seed) in done:
                    continue
                found = done[name, option, seed] = run(name, written, seed)
                with arguments.results.open("a") as file:
                    file.write(json.dumps([name, option, seed, *found]) + "\n")

    print(
        f"| Task | Option | Thousand steps to the goal | Reached it | Mean reward |\n|{'---|' * 5}"
    )
    for name in arguments.tasks:
        steps = (sac_3dball() if name == SAC_3DBALL else tasks()[name].settings).max_steps
        for option in OF_SAC if name == SAC_3DBALL else OF_PPO:
            runs = [found for key, found in done.items() if key[:2] == (name, option)]
            if runs:
                print(f"| {name} | {option} | {summary(runs, max_steps=steps)} |")


if __name__ == "__main__":
    main()
