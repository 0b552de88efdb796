"""The adapter for Stable-Baselines3."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_envs.registry import default_registry
from scripted_environment import CONTINUOUS, Asks, Ends, ScriptedEnvironment

pytest.importorskip("gymnasium")
pytest.importorskip("stable_baselines3")

from gymnasium.vector import AutoresetMode
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import VecMonitor

from mlagents_envs.envs.sb3 import SB3VecEnv
from mlagents_envs.envs.spaces import UnityGymException
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv


def make(*messages, spec=CONTINUOUS, **options):
    return SB3VecEnv(UnityVectorEnv(ScriptedEnvironment(messages, spec=spec), **options))


def vectors(action_spec):
    return BehaviorSpec([ObservationSpec.vector(1, "number")], action_spec)


def test_ends_are_told_as_stable_baselines_wants_them():
    envs = make(
        [Asks(0, 0.0), Asks(1, 0.1), Asks(2, 0.2)],
        [
            Ends(0, 0.8, reward=1.0),
            Ends(1, 0.9, reward=2.0, interrupted=True),
            Asks(0, 0.3),
            Asks(1, 0.4),
            Asks(2, 0.5, reward=3.0),
        ],
    )
    np.testing.assert_allclose(envs.reset(), [[0.0], [0.1], [0.2]])
    observations, rewards, dones, infos = envs.step(np.zeros((3, 1), np.float32))
    np.testing.assert_allclose(observations, [[0.3], [0.4], [0.5]])
    np.testing.assert_allclose(rewards, [1.0, 2.0, 3.0])
    assert dones.tolist() == [True, True, False]
    np.testing.assert_allclose(infos[0]["terminal_observation"], [0.8])
    np.testing.assert_allclose(infos[1]["terminal_observation"], [0.9])
    assert [info.get("TimeLimit.truncated") for info in infos] == [False, True, None]


def test_masks_are_a_method_of_every_agent():
    spec = vectors(ActionSpec(0, (2, 3)))
    forbidden = [[True, False], [False, False, True]]
    envs = make([Asks(0, 0.0), Asks(1, 0.0, forbidden=forbidden)], spec=spec)
    assert envs.has_attr("action_masks")
    with pytest.raises(UnityGymException, match="reset"):
        envs.env_method("action_masks")
    envs.reset()
    masks = np.stack(envs.env_method("action_masks"))
    np.testing.assert_array_equal(masks, [[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]])
    (only,) = envs.env_method("action_masks", indices=1)
    np.testing.assert_array_equal(only, masks[1])
    np.testing.assert_array_equal(envs.get_attr("action_masks", indices=[1])[0](), masks[1])


def test_continuous_actions_have_no_masks():
    envs = make([Asks(0, 0.0)])
    envs.reset()
    assert not envs.has_attr("action_masks")
    with pytest.raises(AttributeError):
        envs.env_method("action_masks")


def test_agents_share_what_the_environment_has():
    envs = make([Asks(0, 0.0), Asks(1, 0.0)])
    assert envs.get_attr("behavior_name") == ["Scripted?team=0"] * 2
    assert envs.env_is_wrapped(VecMonitor) == [False, False]
    with pytest.raises(AttributeError):
        envs.get_attr("no_such_thing")
    with pytest.raises(AttributeError, match="'jump'"):
        envs.env_method("jump")
    with pytest.raises(NotImplementedError, match="share one"):
        envs.set_attr("anything", 1)


def test_both_kinds_of_actions_at_once_are_refused():
    with pytest.raises(UnityGymException, match="not both"):
        make([Asks(0, 0.0)], spec=vectors(ActionSpec(1, (2,))))


def test_episodes_that_begin_in_the_next_step_are_refused():
    envs = UnityVectorEnv(
        ScriptedEnvironment([[Asks(0, 0.0)]]), autoreset_mode=AutoresetMode.NEXT_STEP
    )
    with pytest.raises(UnityGymException, match=r"AutoresetMode\.SAME_STEP"):
        SB3VecEnv(envs)


def test_a_seed_set_before_is_used_at_the_next_reset_and_no_other():
    world = default_registry["3DBall"]
    envs = SB3VecEnv(UnityVectorEnv(lambda seed: world.make(seed=seed)))
    envs.seed(3)
    first = envs.reset()
    second = envs.reset()
    envs.seed(3)
    np.testing.assert_array_equal(envs.reset(), first)
    assert not np.array_equal(first, second)
    envs.close()


def test_pictures_are_tiled():
    world = default_registry["Basic"].make()
    envs = SB3VecEnv(UnityVectorEnv(world, render_mode="rgb_array"))
    assert envs.render().shape == (480, 640, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("algorithm", "action_spec", "options"),
    [
        (PPO, ActionSpec(0, (3, 2)), {"n_steps": 8, "batch_size": 8}),
        (DQN, ActionSpec(0, (3, 2)), {"learning_starts": 4, "buffer_size": 64}),
    ],
    ids=["PPO", "DQN"],
)
def test_algorithms_run(algorithm, action_spec, options):
    from guess_environment import GuessEnvironment

    env = GuessEnvironment(action_spec, n_agents=4)
    flatten_branched = algorithm is DQN
    envs = SB3VecEnv(UnityVectorEnv(env, flatten_obs=True, flatten_branched=flatten_branched))
    model = algorithm("MlpPolicy", VecMonitor(envs), device="cpu", seed=None, **options)
    model.learn(64)
    assert {episode["l"] for episode in model.ep_info_buffer} == {4}
