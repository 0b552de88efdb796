"""Trains one behavior of one environment, without the command line around it."""

from collections.abc import Callable
from typing import Any

import torch

from mlagents.trainers.rollout.env_manager import EnvManager
from mlagents.trainers.rollout.simple_env_manager import SimpleEnvManager
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.stats import StatsReporter
from mlagents.trainers.training.trainer import N_RETURNS, Trainer
from mlagents.trainers.training.trainer_types import TRAINER_TYPES
from mlagents_envs.base_env import BaseEnv, BehaviorId


def make_trainer(
    env: BaseEnv | EnvManager, settings: BehaviorSettings, **arguments: Any
) -> Trainer:
    """Make a trainer for the only behavior of `env`, which was reset before."""
    ((behavior, spec),) = env.behavior_specs.items()
    name = BehaviorId.parse(behavior).name
    defaults: dict[str, Any] = {
        "stats": StatsReporter(name, []),
        "device": torch.device("cpu"),
        "seed": 0,
        "inference": False,
        "on_summary": lambda step: None,
        "on_checkpoint": lambda: None,
    }
    return TRAINER_TYPES[settings.trainer_type](name, spec, settings, **(defaults | arguments))


def train_while(condition: Callable[[], bool], trainer: Trainer, env: BaseEnv) -> None:
    """Reset `env`, then take decisions while `condition` holds."""
    manager = SimpleEnvManager(env)
    manager.reset()
    (behavior,) = env.behavior_specs
    while condition():
        (report,) = manager.receive()
        trainer.observe(report.player, *report.steps[behavior])
        trainer.advance()
        manager.send(report.player, {behavior: trainer.decide()[0]})


def assert_reaches(
    reward: float,
    env: BaseEnv,
    settings: BehaviorSettings,
    *,
    seed: int,
    max_steps: int | None = None,
) -> Trainer:
    """Train until the last hundred episodes reach `reward` on average.

    Raises:
        AssertionError: They did not before `max_steps`, or those of the settings, were over.
    """
    env.reset()
    trainer = make_trainer(env, settings, seed=seed)

    def reached() -> bool:
        if len(trainer.recent_returns) < N_RETURNS or trainer.mean_reward is None:
            return False
        return trainer.mean_reward >= reward

    end = max_steps or settings.max_steps
    train_while(lambda: trainer.step < end and not reached(), trainer, env)
    assert reached(), f"mean reward {trainer.mean_reward} at step {trainer.step}, not {reward}"
    return trainer
