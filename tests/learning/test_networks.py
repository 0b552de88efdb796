"""PPO learns from every kind of observation, with every kind of action, with and without memory."""

from typing import Any

import pytest

from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from seeds import seeds
from tasks import Task
from training_loop import assert_reaches

CONTINUOUS = ActionSpec.create_continuous(1)
DISCRETE = ActionSpec.create_discrete((2, 2))
MASKED = ActionSpec.create_discrete((3,))
HYBRID = ActionSpec.create_hybrid(1, (3,))
MEMORY = {"memory": {"memory_size": 32, "sequence_length": 4}}


def settings(max_steps: int, network: dict[str, Any], **hyperparameters: Any) -> BehaviorSettings:
    return BehaviorSettings.model_validate(
        {
            "trainer_type": "ppo",
            "max_steps": max_steps,
            "time_horizon": 6,
            "hyperparameters": {
                "batch_size": 64,
                "buffer_size": 512,
                "learning_rate": 3e-3,
                **hyperparameters,
            },
            "network_settings": {"hidden_units": 32, "num_layers": 1, **network},
        }
    )


# Episodes have four steps, worth 1 each at best. Who knows nothing gets 0.5 for a branch or for
# the mean of continuous actions, 0 for both at once: 2 or 0 an episode.


@pytest.mark.slow
@seeds(0, 1, 2)
@pytest.mark.parametrize(
    ("shown", "actions", "network", "max_steps", "solved"),
    [
        ("vector", DISCRETE, {}, 8_000, 3.2),
        ("image", CONTINUOUS, {"vis_encode_type": "simple"}, 10_000, 2.7),
        ("8 bit image", MASKED, {"vis_encode_type": "match3"}, 6_000, 3.4),
        ("entities", HYBRID, {}, 10_000, 1.5),
        ("entities", MASKED, {}, 12_000, 3.0),
        ("goal", CONTINUOUS, {"goal_conditioning_type": "hyper"}, 12_000, 2.6),
        ("goal", HYBRID, {"goal_conditioning_type": "none"}, 15_000, 2.3),
    ],
)
def test_learns_from_what_it_sees(
    shown: str,
    actions: ActionSpec,
    network: dict[str, Any],
    max_steps: int,
    solved: float,
    seed: int,
) -> None:
    env = Task(shown, actions, seed=seed)
    assert_reaches(solved, env, settings(max_steps, network), seed=seed)
    assert env.forbidden_actions == 0


# Shown at the first step only: without memory 1 and three times as above, 2.5 or 1 at best.


@pytest.mark.slow
@seeds(0, 1, 2)
@pytest.mark.parametrize(
    ("shown", "actions", "network", "shared", "max_steps", "solved"),
    [
        ("vector", CONTINUOUS, {}, False, 15_000, 2.9),
        ("vector", MASKED, {}, True, 12_000, 3.2),
        ("8 bit image", HYBRID, {"vis_encode_type": "fully_connected"}, False, 15_000, 1.8),
        ("goal", MASKED, {}, False, 15_000, 3.0),
    ],
)
def test_remembers_what_it_saw(
    shown: str,
    actions: ActionSpec,
    network: dict[str, Any],
    shared: bool,
    max_steps: int,
    solved: float,
    seed: int,
) -> None:
    env = Task(shown, actions, recall=True, seed=seed)
    with_memory = settings(max_steps, network | MEMORY, shared_critic=shared)
    assert_reaches(solved, env, with_memory, seed=seed)
    assert env.forbidden_actions == 0
