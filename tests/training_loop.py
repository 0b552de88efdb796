"""Trains one behavior of one environment, without the command line around it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.cli_args import parse_command_line
from mlagents.trainers.learning.meter import N_RETURNS
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES, TrainerType
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.load import load_run_options
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents_envs.base_env import BaseEnv, BehaviorId


def make_trainer(
    env: BaseEnv | EnvManager,
    settings: BehaviorSettings,
    *,
    trainer_type: TrainerType | None = None,
    **arguments: Any,
) -> Trainer:
    """Make a trainer for the only behavior of `env`, which was reset before."""
    ((behavior, spec),) = env.behavior_specs.items()
    name = BehaviorId.parse(behavior).name
    defaults: dict[str, Any] = {
        "stats": StatsReporter(name, []),
        "device": torch.device("cpu"),
        "seed": 0,
        "inference": False,
        "torch_settings": TorchSettings(),
        "on_summary": lambda step: None,
        "on_checkpoint": lambda: None,
    }
    trainer_type = trainer_type or TRAINER_TYPES[settings.trainer_type]
    return Trainer(trainer_type, name, spec, settings, **(defaults | arguments))


def train_while(condition: Callable[[], bool], trainer: Trainer, env: BaseEnv) -> None:
    """Reset `env`, then take decisions while `condition` holds."""
    rollout = Rollout(SimpleEnvManager(env), lambda player, behavior: trainer.seat)
    rollout.reset()
    while condition():
        rollout.advance()
        trainer.advance()
        for entropy in rollout.answer().values():
            trainer.stats.add_stat("Policy/Entropy", entropy)


def roll(trainer: Trainer, env: BaseEnv, n_decisions: int) -> None:
    """Reset `env`, then take this many decisions."""
    left = iter(range(n_decisions))
    train_while(lambda: next(left, None) is not None, trainer, env)


def published(name: str, algorithm: str = "ppo") -> BehaviorSettings:
    """Return the settings with which a world is trained, from the configurations of the package."""
    file = Path(__file__).parents[1] / "config" / algorithm / f"{name}.yaml"
    return load_run_options(parse_command_line([str(file)])).behavior_settings(name)


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
        if len(trainer.meter.recent_returns) < N_RETURNS or trainer.mean_reward is None:
            return False
        return trainer.mean_reward >= reward

    end = max_steps or settings.max_steps
    train_while(lambda: trainer.step < end and not reached(), trainer, env)
    assert reached(), f"mean reward {trainer.mean_reward} at step {trainer.step}, not {reward}"
    return trainer


def note_steps(optimizer: Any, rates: list[float]) -> None:
    """Add the learning rate of every step to a list, also of those that the library takes."""
    step, advance = optimizer.step, getattr(optimizer, "advance", None)

    def noted() -> None:
        rates.append(optimizer.param_groups[0]["lr"])
        step()

    def noted_ahead(n_steps: int) -> None:
        rates.extend([optimizer.param_groups[0]["lr"]] * n_steps)
        advance(n_steps)

    optimizer.step = noted
    if advance is not None:
        optimizer.advance = noted_ahead
