"""The published scores of the worlds, from the published settings."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from mlagents.trainers.export.export import export_onnx
from mlagents_envs.base_env import ActionTuple
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.registry import default_registry
from seeds import seeds
from training_loop import assert_reaches, published

pytestmark = pytest.mark.slow


@pytest.mark.nightly
@seeds(1, 2, 3)
@pytest.mark.parametrize("name", ["3DBall", "3DBallHard"])
def test_3dball_reaches_95_in_half_of_its_steps(name: str, seed: int) -> None:
    env = default_registry[name].make(seed=seed)
    assert_reaches(95.0, env, published(name), seed=seed, max_steps=300_000)


def test_3dballhard_is_half_learned() -> None:
    env = default_registry["3DBallHard"].make(seed=1)
    assert_reaches(40.0, env, published("3DBallHard"), seed=1, max_steps=150_000)


@seeds(1, 2, 3)
def test_basic_reaches_its_optimum(seed: int) -> None:
    env = default_registry["Basic"].make(seed=seed)
    assert_reaches(0.92, env, published("Basic"), seed=seed, max_steps=100_000)


@pytest.mark.parametrize("reward", [40.0, pytest.param(95.0, marks=pytest.mark.nightly)])
def test_3dball_is_learned_over_the_wire_and_its_export_plays_as_well(reward: float) -> None:
    player = str(Path(sys.executable).with_name("mlagents-sim"))
    with UnityEnvironment(player, base_port=0, seed=1, additional_args=["3DBall"]) as env:
        trainer = assert_reaches(reward, env, published("3DBall"), seed=1, max_steps=300_000)

    sampled, deterministic = play(
        export_onnx(trainer.learner.algorithm.network.actor, trainer.spec)
    )
    # The export is the newest policy, the mean is of the hundred episodes before it.
    assert sampled >= trainer.mean_reward - 5
    assert deterministic >= reward


def play(model: bytes) -> tuple[float, float]:
    """Return the mean return of 96 episodes of 3DBall, sampled and deterministic."""
    onnxruntime.set_seed(1)
    session = onnxruntime.InferenceSession(model)

    def mean_return(output: str) -> float:
        env = default_registry["3DBall"].make(seed=7, num_areas=4)
        env.reset()
        (behavior,) = env.behavior_specs
        returns = np.zeros(48)
        finished: list[float] = []
        while len(finished) < 96:
            decisions, terminals = env.get_steps(behavior)
            np.add.at(returns, terminals.agent_id, terminals.reward)
            finished += returns[terminals.agent_id].tolist()
            returns[terminals.agent_id] = 0.0
            np.add.at(returns, decisions.agent_id, decisions.reward)
            if len(decisions):
                (actions,) = session.run([output], {"obs_0": decisions.obs[0]})
                env.set_actions(behavior, ActionTuple(continuous=actions))
            env.step()
        return float(np.mean(finished))

    return mean_return("continuous_actions"), mean_return("deterministic_continuous_actions")
