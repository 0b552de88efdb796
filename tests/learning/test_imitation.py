"""Policies learn from recorded experts, without any reward of the task."""

from pathlib import Path
from typing import Any

import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from recorded import record_guesses
from seeds import seeds
from tasks import Task
from training_loop import assert_reaches

SMALL = {"hidden_units": 32, "num_layers": 1}
NO_REWARD = {"extrinsic": {"strength": 0.0}}
DISCRETE, HYBRID = ActionSpec.create_discrete((3,)), ActionSpec.create_hybrid(1, (3,))
CONTINUOUS = ActionSpec.create_continuous(1)


def settings(max_steps: int, **written: Any) -> BehaviorSettings:
    defaults = {
        "trainer_type": "ppo",
        "max_steps": max_steps,
        "time_horizon": 8,
        "hyperparameters": {"batch_size": 64, "buffer_size": 512, "learning_rate": 3e-3},
        "network_settings": SMALL,
    }
    return BehaviorSettings.model_validate(defaults | written)


# Episodes have four steps, worth 1 each at best; who knows nothing gets 2, for hybrid actions 0.


@pytest.mark.slow
@seeds(0, 1, 2)
@pytest.mark.parametrize(
    ("actions", "use_vail", "solved"),
    [(DISCRETE, False, 3.3), (DISCRETE, True, 3.3), (HYBRID, False, 2.2)],
    ids=["discrete", "discrete, vail", "hybrid"],
)
def test_gail(
    tmp_path: Path, actions: ActionSpec, use_vail: bool, solved: float, seed: int
) -> None:
    demo = record_guesses(tmp_path / "expert.demo", actions, n_steps=60)
    gail = {
        "demo_path": str(demo),
        "gamma": 0.0,  # every step of this task is a task of its own
        "use_actions": True,
        "use_vail": use_vail,
        "learning_rate": 5e-3,
        "network_settings": SMALL,
    }
    env = GuessEnvironment(actions, seed=seed)
    assert_reaches(solved, env, settings(15_000, reward_signals={"gail": gail}), seed=seed)


@pytest.mark.slow
@seeds(0, 1, 2)
@pytest.mark.parametrize(
    ("actions", "solved"),
    [(DISCRETE, 3.5), (HYBRID, 3.0), (CONTINUOUS, 3.2)],
    ids=["discrete", "hybrid", "continuous"],
)
def test_behavioral_cloning(tmp_path: Path, actions: ActionSpec, solved: float, seed: int) -> None:
    demo = record_guesses(tmp_path / "expert.demo", actions, n_steps=60)
    env = GuessEnvironment(actions, seed=seed)
    cloning = {"demo_path": str(demo)}
    cloned = settings(12_000, reward_signals=NO_REWARD, behavioral_cloning=cloning)
    assert_reaches(solved, env, cloned, seed=seed)


@pytest.mark.slow
@seeds(0, 1, 2)
def test_cloning_of_who_remembers(tmp_path: Path, seed: int) -> None:
    # The number is shown at the first of four steps alone: without a memory 2.5 at best.
    demo = record_guesses(
        tmp_path / "expert.demo", DISCRETE, n_steps=80, shown="vector", recall=True
    )
    env = Task("vector", DISCRETE, recall=True, seed=seed)
    cloned = settings(
        15_000,
        reward_signals=NO_REWARD,
        network_settings=SMALL | {"memory": {"memory_size": 32, "sequence_length": 4}},
        behavioral_cloning={"demo_path": str(demo)},
    )
    assert_reaches(3.2, env, cloned, seed=seed)
