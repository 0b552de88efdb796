"""MA-POCA solves a task in which one agent has to leave before the group is paid."""

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from sacrifice_environment import SacrificeEnvironment
from seeds import seeds
from training_loop import assert_reaches, make_trainer, train_while


def mean_return(trainer_type: str, *, seed: int, max_steps: int) -> float:
    """Return the mean reward of the last hundred groups after training."""
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "max_steps": 100_000,
            "hyperparameters": {
                "batch_size": 256,
                "buffer_size": 2048,
                "learning_rate": 3e-3,
                "learning_rate_schedule": "constant",
                "beta": 0.01,
            },
            "network_settings": {"hidden_units": 32, "num_layers": 1},
        }
    )
    env = SacrificeEnvironment()
    env.reset()
    trainer = make_trainer(env, settings, seed=seed)
    train_while(lambda: trainer.step < max_steps, trainer, env)
    if trainer_type == "poca":
        counted = list(trainer.meter.recent_group_returns)
        assert counted[-100:] == env.returns[-100:], "each group is counted once"
    return float(np.mean(env.returns[-100:]))


@pytest.mark.slow
@seeds(0, 1, 2, 3, 4)
def test_an_agent_leaves_so_that_its_mate_is_paid_later(seed: int) -> None:
    assert mean_return("poca", seed=seed, max_steps=60_000) >= 0.95


@pytest.mark.slow
@seeds(0, 1, 2)
@pytest.mark.parametrize(
    ("spec", "solved"),
    [
        (ActionSpec.create_continuous(1), 3.1),
        (ActionSpec.create_discrete((3, 3)), 3.5),
        (ActionSpec.create_hybrid(2, (3, 3)), 2.5),
    ],
    ids=str,
)
def test_agents_alone_learn_as_soon_as_with_ppo(spec: ActionSpec, solved: float, seed: int) -> None:
    # The settings, goals and steps are those of PPO in `test_ppo.py`.
    settings = BehaviorSettings.model_validate(
        {
            "trainer_type": "poca",
            "max_steps": 15_000,
            "time_horizon": 8,
            "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": 3e-3},
            "network_settings": {"hidden_units": 32, "num_layers": 1, "normalize": True},
        }
    )
    assert_reaches(solved, GuessEnvironment(spec, seed=seed), settings, seed=seed)


@pytest.mark.slow
@pytest.mark.nightly
def test_without_posthumous_credit_no_agent_leaves() -> None:
    assert mean_return("ppo", seed=0, max_steps=60_000) <= 0.6
