"""Agent-steps per second of training 3DBall at its standard settings.

Prints rollout alone (the policy acts and does not learn), and rollout and update together. Both are
measured with 12 and with 96 agents in this process, and with 12 agents of a player in another
process.

    python benchmarks/training.py [--steps 120000] [--rounds 3]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from mlagents.torch_utils import set_threads
from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import BaseEnv
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.registry import default_registry

CONFIGURATION = Path(__file__).parents[1] / "config" / "ppo" / "3DBall.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=120_000, help="agent-steps of each measurement"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of measurements; the median is shown"
    )
    arguments = parser.parse_args()
    set_threads()
    settings = load_run_options(parse_command_line([str(CONFIGURATION)])).behavior_settings(
        "3DBall"
    )

    print(f"{'':34}{'rollout':>10}{'rollout and update':>20}   agent-steps/s")
    for title, environment in (
        ("12 agents, in this process", in_process(num_areas=1)),
        ("96 agents, in this process", in_process(num_areas=8)),
        ("12 agents, over the wire", over_the_wire()),
    ):
        with environment as env:
            rates = [
                statistics.median(
                    measure(env, settings, n_steps=arguments.steps, learn=learn)
                    for _ in range(arguments.rounds)
                )
                for learn in (False, True)
            ]
        print(f"{title:34}{rates[0]:10,.0f}{rates[1]:20,.0f}")


def measure(env: BaseEnv, settings: BehaviorSettings, *, n_steps: int, learn: bool) -> float:
    """Return agent-steps per second, after a warm-up of one buffer."""
    (behavior,) = env.behavior_specs
    trainer = Trainer(
        TRAINER_TYPES["ppo"],
        "3DBall",
        env.behavior_specs[behavior],
        settings.model_copy(update={"max_steps": 10 * n_steps}),
        stats=StatsReporter("3DBall", []),
        device=torch.device("cpu"),
        seed=0,
        inference=not learn,
        torch_settings=TorchSettings(),
        on_summary=lambda step: None,
        on_checkpoint=lambda: None,
    )
    rollout = Rollout(SimpleEnvManager(env), lambda player, behavior: trainer.seat)
    rollout.reset()
    n_decisions, begun_s, warm_up = 0, 0.0, 12_000
    while n_decisions < warm_up + n_steps:
        if not begun_s and n_decisions >= warm_up:
            begun_s, warm_up = time.perf_counter(), n_decisions
        (report,) = rollout.advance()
        trainer.advance()
        rollout.answer()
        n_decisions += len(report.steps[behavior][0])
    return (n_decisions - warm_up) / (time.perf_counter() - begun_s)


@contextmanager
def in_process(*, num_areas: int) -> Iterator[BaseEnv]:
    env = default_registry["3DBall"].make(seed=0, num_areas=num_areas)
    env.reset()
    yield env
    env.close()


@contextmanager
def over_the_wire() -> Iterator[BaseEnv]:
    player = str(Path(sys.executable).with_name("mlagents-sim"))
    with UnityEnvironment(player, base_port=0, additional_args=["3DBall"]) as env:
        env.reset()
        yield env


if __name__ == "__main__":
    main()
