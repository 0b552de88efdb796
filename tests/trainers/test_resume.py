"""A run that is stopped and resumed gives what one that was not stopped gives, to the last bit.

Episodes that are running at the stop are lost, so the task is one whose episodes all end there and
that is as it was when it begins anew.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mlagents.trainers.learn import main
from mlagents_envs.base_env import ActionSpec
from tasks import Task

HALF, WHOLE = 256, 512
"""Steps of the first run, and of both. Eight agents end an episode together after 32 steps, so
both are ends of episodes and, for PPO, of a buffer."""

SMALL = {"hidden_units": 8, "num_layers": 1, "normalize": True}
MEMORY = SMALL | {"memory": {"memory_size": 8, "sequence_length": 4}}
PPO = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 32,
        "buffer_size": 128,
        "learning_rate": 3e-3,
        "learning_rate_schedule": "constant",
    },
}
SAC = {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 32,
        "buffer_size": 400,
        "learning_rate": 3e-3,
        "steps_per_update": 8,
        "reward_signal_steps_per_update": 12,
        "save_replay_buffer": True,
    },
}
SIGNALS = {
    "extrinsic": {},
    "curiosity": {"network_settings": SMALL},
    "rnd": {"network_settings": SMALL},
}


class SameEpisodes(Task):
    """Shows the same numbers in every episode."""

    def __init__(self) -> None:
        super().__init__("vector", ActionSpec.create_hybrid(1, (3,)))

    def _look(self) -> None:
        if self._begins:
            self._rng = np.random.default_rng(0)
        super()._look()


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def learn(behavior: dict[str, Any], run_id: str, max_steps: int, *arguments: str) -> None:
    written = {"time_horizon": 3, "summary_freq": 128} | behavior | {"max_steps": max_steps}
    Path("guess.yaml").write_text(yaml.safe_dump({"behaviors": {"Guess": written}}))
    environment = ["--env", "trainers.test_resume:SameEpisodes", "--seed", "5"]
    assert main(["guess.yaml", *environment, "--run-id", run_id, *arguments]) == 0


def checkpoint(run_id: str) -> dict[str, Any]:
    return torch.load(Path("results", run_id, "Guess/checkpoint.pt"), weights_only=True)


def curves(run_id: str) -> dict[str, dict[int, float]]:
    """Value by step of every tag, without the first summary after the stop.

    That one lacks what the stopped run measured after its last summary.
    """
    events = EventAccumulator(str(Path("results", run_id, "Guess")))
    events.Reload()
    return {
        tag: {e.step: e.value for e in events.Scalars(tag) if e.step != HALF + 128}
        for tag in events.Tags()["scalars"]
    }


@pytest.mark.parametrize(
    "behavior",
    [
        PPO | {"network_settings": SMALL},
        PPO | {"network_settings": MEMORY, "reward_signals": SIGNALS},
        SAC | {"network_settings": SMALL},
        SAC | {"network_settings": MEMORY, "reward_signals": SIGNALS},
    ],
    ids=["ppo", "ppo, memory, signals", "sac", "sac, memory, signals"],
)
def test_a_resumed_run_gives_the_same_curve_as_one_that_was_not_stopped(
    behavior: dict[str, Any],
) -> None:
    learn(behavior, "whole", WHOLE)
    learn(behavior, "halves", HALF)
    assert checkpoint("halves")["global_step"] == HALF
    learn(behavior, "halves", WHOLE, "--resume")

    assert curves("halves") == curves("whole")
    assert len(curves("whole")["Policy/Extrinsic Reward"]) == WHOLE / 128 - 1
    halves, whole = checkpoint("halves"), checkpoint("whole")
    assert halves.pop("random_states")["samples"] == whole.pop("random_states")["samples"]
    assert halves.pop("settings") == whole.pop("settings")
    torch.testing.assert_close(halves, whole, rtol=0, atol=0)
