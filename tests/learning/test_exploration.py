"""Signals that pay for what is new find a reward that chance does not."""

from typing import Any

import pytest

from corridor_environment import CorridorEnvironment
from mlagents.trainers.settings.behavior import BehaviorSettings
from training_loop import assert_reaches

SMALL = {"hidden_units": 32, "num_layers": 1}
SOLVED = 0.9


def settings(signals: dict[str, Any]) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "max_steps": 40_000,
            "time_horizon": 20,
            "hyperparameters": {
                "batch_size": 64,
                "buffer_size": 512,
                "learning_rate": 3e-3,
                "learning_rate_schedule": "constant",
                "beta": 0.01,
            },
            "network_settings": SMALL,
            "reward_signals": {"extrinsic": {}} | signals,
        }
    )


def corridor() -> CorridorEnvironment:
    return CorridorEnvironment(length=10, episode_steps=20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "signals",
    [
        {"curiosity": {"strength": 0.1, "learning_rate": 1e-3, "network_settings": SMALL}},
        {"rnd": {"strength": 0.1, "learning_rate": 3e-3, "network_settings": SMALL}},
    ],
    ids=["curiosity", "rnd"],
)
def test_what_is_new_leads_to_the_reward(signals: dict[str, Any], seed: int) -> None:
    assert_reaches(SOLVED, corridor(), settings(signals), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_tasks_reward_alone_is_not_found(seed: int) -> None:
    with pytest.raises(AssertionError, match="mean reward"):
        assert_reaches(0.1, corridor(), settings({}), seed=seed)
