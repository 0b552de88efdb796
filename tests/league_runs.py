"""Runs of self-play in small games, for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from duels import Duel
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.reporting.stats import StatsSummary, StatsWriter
from mlagents.trainers.run.checkpoints import RunFolder
from mlagents.trainers.run.controller import Controller
from mlagents.trainers.run.interrupt import Interrupt
from mlagents.trainers.settings.run_options import RunOptions

SETTINGS: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 64},
    "network_settings": {"hidden_units": 8, "num_layers": 1},
    "time_horizon": 16,
    "summary_freq": 128,
    "checkpoint_interval": 256,
    "max_steps": 512,
}
SAC = {
    "trainer_type": "sac",
    "hyperparameters": {"batch_size": 16, "buffer_size": 256, "buffer_init_steps": 32},
}
SELF_PLAY = {"save_steps": 64, "team_change": 192, "swap_steps": 32, "window": 3}
ASYMMETRIC = ("Even?team=0", "Odd?team=1")


class Summaries(StatsWriter):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, dict[str, StatsSummary]]] = []

    def write_stats(self, category: str, values: Any, step: int) -> None:
        self.seen.append((category, step, dict(values)))


def options(self_play: dict[str, Any] | None = None, **written: Any) -> RunOptions:
    of_behavior = SETTINGS | {"self_play": SELF_PLAY | (self_play or {})}
    of_behavior |= written.pop("settings", {})
    return RunOptions.model_validate(
        {"default_settings": of_behavior, "env_settings": {"seed": 1}, **written}
    ).with_seed(1)


def make_run(
    folder: Path, env: Duel, run_options: RunOptions | None = None, **arguments: Any
) -> Controller:
    (folder / "run_logs").mkdir(parents=True, exist_ok=True)
    return Controller(
        run_options or options(),
        SimpleEnvManager(env),
        RunFolder(folder),
        writers=arguments.pop("writers", []),
        device=torch.device("cpu"),
        interrupt=Interrupt(),
        **arguments,
    )


def step_until(run: Controller, condition: Callable[[], bool]) -> None:
    """Begin a run and step it while it neither saves nor ends by itself."""
    run._fleet.reset()
    while not condition():
        run._advance()


def begin_with_biases(run: Controller, biases: list[float]) -> Trainer:
    """Begin a run of one behavior, whose policy and first snapshot prefer some actions.

    Args:
        run: The run.
        biases: Number added to the logit of each action.

    Returns:
        Trainer of the behavior.
    """
    run._fleet.reset()
    trainer = run._trainer_of("Duel?team=0")
    with torch.no_grad():
        trainer.learner.algorithm.actor.heads.logits.bias += torch.tensor(biases)
    trainer.policy.snapshot = trainer.learner.algorithm.snapshot()
    run._league._members["Duel"].window[0].snapshot = trainer.policy.snapshot
    return trainer
