"""Experience with images takes as much room as the images do, and a tenth of it more at most."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from actors import image_8_bit
from guess_environment import GuessEnvironment
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionSpec
from training_loop import make_trainer, train_while

IMAGE = image_8_bit(3, 84, 84)
IMAGE_BYTES = 3 * 84 * 84
MAY_TAKE = 1.1

LONG, SHORT = 10_000, 50
"""Steps of an episode."""


class Cinema(GuessEnvironment):
    """Shows images of chance."""

    def __init__(self, *, n_agents: int, episode_steps: int) -> None:
        actions = ActionSpec.create_discrete((3,))
        super().__init__(
            actions, n_agents=n_agents, episode_steps=episode_steps, observation_specs=[IMAGE]
        )
        self.keep_8_bit_images()

    def _obs(self) -> list[NDArray[np.uint8]]:
        shape = self._n_agents, *IMAGE.shape
        return [
            np.frombuffer(self._rng.bytes(self._n_agents * IMAGE_BYTES), np.uint8).reshape(shape)
        ]


def n_bytes(arrays: Iterable[Any]) -> int:
    """Add up arrays, whole where parts are shown, and lists of arrays."""
    return sum(
        n_bytes(a) if isinstance(a, list) else (a if a.base is None else a.base).nbytes
        for a in arrays
    )


def of_segments(segments: Segments) -> int:
    arrays = (getattr(segments, field.name) for field in fields(Segments))
    return n_bytes(each for each in arrays if each is not None)  # there are no open steps


def of_replay(replay: Replay) -> int:
    rings = replay._rows, replay._sequences
    return n_bytes(column for ring in rings for column in ring._columns.values())


def settings(trainer_type: str, buffer_size: int) -> BehaviorSettings:
    hyperparameters = {"batch_size": 16, "buffer_size": buffer_size}
    if trainer_type == "sac":
        hyperparameters |= {"buffer_init_steps": 1_000_000}
    return BehaviorSettings.model_validate(
        {
            "trainer_type": trainer_type,
            "time_horizon": 64,
            "hyperparameters": hyperparameters,
            "network_settings": {"hidden_units": 8, "num_layers": 1},
        }
    )


@pytest.mark.parametrize("episode_steps", [LONG, SHORT])
def test_a_buffer_of_fresh_experience(episode_steps: int) -> None:
    env = Cinema(n_agents=4, episode_steps=episode_steps)
    trainer = make_trainer(env, settings("ppo", 400))
    learned_from: list[int] = []

    def learn(segments: Segments, rewards: np.ndarray, *, step: int) -> dict[str, float]:
        assert segments.obs[0].dtype == np.uint8
        learned_from.append(segments.n_steps)
        assert of_segments(segments) <= MAY_TAKE * segments.n_steps * IMAGE_BYTES
        return {}

    trainer.learner.algorithm.update = learn
    train_while(lambda: len(learned_from) < 2, trainer, env)
    assert learned_from == [400, 400]


@pytest.mark.parametrize("episode_steps", [LONG, SHORT])
def test_a_replay_buffer(episode_steps: int) -> None:
    env = Cinema(n_agents=4, episode_steps=episode_steps)
    trainer = make_trainer(env, settings("sac", 600))
    assert isinstance(trainer, Trainer)
    train_while(lambda: trainer.step < 800, trainer, env)
    trainer.state()
    n_steps = trainer.learner.replay.n_sequences
    assert n_steps > 500 and trainer.learner.replay.n_rows == 600
    assert of_replay(trainer.learner.replay) <= MAY_TAKE * n_steps * IMAGE_BYTES
