"""PPO solves a small task with every kind of action."""

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from seeds import seeds
from training_loop import assert_reaches

SETTINGS = BehaviorSettings.model_validate(
    {
        "trainer_type": "ppo",
        "max_steps": 15_000,
        "time_horizon": 8,
        "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": 3e-3},
        "network_settings": {"hidden_units": 32, "num_layers": 1, "normalize": True},
    }
)


def random_reward(spec: ActionSpec) -> float:
    """Mean reward of an episode, four steps, under random actions that obey the masks."""
    env = GuessEnvironment(spec, n_agents=4000)
    env.reset()
    rng = np.random.default_rng(1)
    action = spec.random_action(4000, rng)
    action.discrete[...] = rng.integers(0, 2, action.discrete.shape)
    env.set_actions(env.BEHAVIOR, action)
    env.step()
    return 4 * float(env.get_steps(env.BEHAVIOR)[0].reward.mean())


@pytest.mark.slow
@seeds(0, 1, 2)
@pytest.mark.parametrize(
    ("spec", "solved"),
    [
        (ActionSpec.create_continuous(1), 3.1),
        (ActionSpec.create_discrete((3,)), 3.5),
        (ActionSpec.create_discrete((3, 3)), 3.5),
        (ActionSpec.create_hybrid(2, (3, 3)), 2.5),
    ],
    ids=str,
)
def test_learns_every_kind_of_action(spec: ActionSpec, solved: float, seed: int) -> None:
    env = GuessEnvironment(spec, seed=seed)
    assert solved > random_reward(spec) + 0.5
    assert_reaches(solved, env, SETTINGS, seed=seed)
    assert env.forbidden_actions == 0


@pytest.mark.slow
def test_learns_with_one_body_for_actor_and_critic() -> None:
    written = SETTINGS.model_dump()
    written["hyperparameters"]["shared_critic"] = True
    spec = ActionSpec.create_discrete((3,))
    shared = BehaviorSettings.model_validate(written)
    assert_reaches(3.5, GuessEnvironment(spec), shared, seed=0)
