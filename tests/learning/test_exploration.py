"""Signals that pay for what is new find a reward that chance does not."""

from typing import Any

import pytest

from corridor_environment import CorridorEnvironment
from mlagents.trainers.settings.behavior import BehaviorSettings
from training_loop import assert_reaches

SMALL = {"hidden_units": 32, "num_layers": 1}
SOLVED = 0.9


PPO = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 64,
        "buffer_size": 512,
        "learning_rate": 3e-3,
        "learning_rate_schedule": "constant",
        "beta": 0.01,
    },
}
SAC = {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 64,
        "buffer_size": 40_000,
        "learning_rate": 3e-3,
        "tau": 0.02,
        "steps_per_update": 8,
        "init_entcoef": 0.1,
    },
}


def train(reward: float, trainer_type: dict[str, Any], signals: dict[str, Any], seed: int) -> None:
    """Train in a corridor until the mean reward is `reward`; fail if it never is."""
    common = {
        "max_steps": 40_000,
        "time_horizon": 20,
        "network_settings": SMALL,
        "reward_signals": {"extrinsic": {}} | signals,
    }
    settings = BehaviorSettings.model_validate(trainer_type | common)
    env = CorridorEnvironment(length=10, episode_steps=20)
    assert_reaches(reward, env, settings, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("trainer_type", "signals"),
    [
        (PPO, {"curiosity": {"strength": 0.1, "learning_rate": 1e-3, "network_settings": SMALL}}),
        (PPO, {"rnd": {"strength": 0.1, "learning_rate": 3e-3, "network_settings": SMALL}}),
        (SAC, {"curiosity": {"gamma": 0.9, "learning_rate": 3e-4, "network_settings": SMALL}}),
    ],
    ids=["ppo, curiosity", "ppo, rnd", "sac, curiosity"],
)
def test_what_is_new_leads_to_the_reward(
    trainer_type: dict[str, Any], signals: dict[str, Any], seed: int
) -> None:
    train(SOLVED, trainer_type, signals, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trainer_type", [PPO, SAC], ids=["ppo", "sac"])
def test_the_tasks_reward_alone_is_not_found(trainer_type: dict[str, Any], seed: int) -> None:
    with pytest.raises(AssertionError, match="mean reward"):
        train(0.1, trainer_type, {}, seed)
