"""The algorithm of examples/plugins/a2c, without its package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from guess_environment import GuessEnvironment
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import with_trainer_types
from training_loop import make_trainer, train_while

FILE = Path(__file__).parents[2] / "examples" / "plugins" / "a2c" / "mlagents_a2c.py"


@pytest.fixture
def a2c(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mlagents_a2c", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mlagents_a2c", module)
    spec.loader.exec_module(module)
    return module


def make(a2c: ModuleType, env: GuessEnvironment, **written: object) -> Trainer:
    types = a2c.trainer_types()
    with with_trainer_types({name: each.settings for name, each in types.items()}):
        settings = BehaviorSettings.model_validate(
            {
                "trainer_type": "a2c",
                "hyperparameters": {"buffer_size": 64},
                "network_settings": {"hidden_units": 8, "num_layers": 1},
            }
            | written
        )
    return make_trainer(env, settings, trainer_type=types["a2c"])


SMALL = {"network_settings": {"hidden_units": 8, "num_layers": 1}}


def test_reward_signals_learn_and_are_saved(a2c: ModuleType) -> None:
    env = GuessEnvironment()
    trainer = make(a2c, env, reward_signals={"extrinsic": {}, "curiosity": SMALL, "rnd": SMALL})
    modules = trainer.learner.algorithm.modules()
    learned = ["Policy", "Optimizer:critic", "Module:Curiosity", "Module:RND-pred"]
    before = {}
    for name in learned:
        network = modules[name]
        assert isinstance(network, nn.Module)
        before[name] = nn.utils.parameters_to_vector(network.parameters()).detach().clone()

    left = iter(range(20))
    train_while(lambda: next(left, None) is not None, trainer, env)

    for name in learned:
        network = modules[name]
        assert isinstance(network, nn.Module)
        after = nn.utils.parameters_to_vector(network.parameters())
        assert not torch.equal(after, before[name]), name
    state = trainer.state()
    assert {*learned, "Module:RND-target", "Optimizer:Curiosity", "Optimizer:RND"} <= state.keys()


def test_memory_is_refused_with_its_key(a2c: ModuleType) -> None:
    with pytest.raises(UnityTrainerException, match=r"network_settings\.memory: .*Remove"):
        make(a2c, GuessEnvironment(), network_settings={"memory": {"memory_size": 8}})
