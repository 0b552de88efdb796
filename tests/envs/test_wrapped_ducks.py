"""Every wrapper takes what only has the methods of a `BaseEnv` and reports plain lists."""

from typing import Any

import numpy as np
import pytest

from duck_environment import BEHAVIOR, LISTS, N_AGENTS, DuckEnvironment, DuckOfLists
from mlagents_envs.exception import UnityEnvironmentException
from scripted_environment import Asks, ScriptedEnvironment

pytest.importorskip("gymnasium")

from mlagents_envs.envs.unity_gym_env import UnityGymException, UnityToGymWrapper
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv

ACTIONS = np.full((N_AGENTS, 1), 0.5, np.float32)


def scripted() -> ScriptedEnvironment:
    return ScriptedEnvironment([[Asks(0, 0.5)]] * 9)


def test_as_a_single_gymnasium_environment() -> None:
    duck = DuckEnvironment(LISTS)
    env = UnityToGymWrapper(duck, ignore_other_agents=True, allow_multiple_obs=True)
    env.reset()
    ended = False
    for _ in range(4):
        (seen,), reward, ended, _, _ = env.step(ACTIONS[0])
    assert seen in env.observation_space[0] and reward == 1.0 and ended
    env.close()
    assert duck.is_closed


@pytest.mark.parametrize("given", [DuckEnvironment(LISTS), DuckOfLists])
def test_as_a_vector_environment(given: Any) -> None:
    envs = UnityVectorEnv(given, flatten_obs=True)
    envs.reset()
    for n in range(1, 10):
        observations, rewards, terminated, _, _ = envs.step(ACTIONS)
        assert observations.shape == (N_AGENTS, 3) and observations.dtype == np.float32
        assert rewards.tolist() == [1.0] * N_AGENTS
        assert terminated.all() == (n % 5 == 4)
    envs.close()


def test_for_stable_baselines() -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO

    from mlagents_envs.envs.sb3 import SB3VecEnv

    envs = SB3VecEnv(UnityVectorEnv(DuckOfLists, flatten_obs=True))
    PPO("MlpPolicy", envs, n_steps=8, batch_size=24, seed=1, device="cpu").learn(24)


@pytest.mark.parametrize("kind", ["unity_parallel_env", "unity_aec_env"])
def test_as_a_pettingzoo_environment(kind: str) -> None:
    pytest.importorskip("pettingzoo")
    from mlagents_envs.envs.unity_aec_env import UnityAECEnv
    from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv

    if kind == "unity_aec_env":
        env = UnityAECEnv(DuckEnvironment(LISTS))
        env.reset()
        total = 0.0
        for agent in env.agent_iter():
            _, reward, terminated, truncated, _ = env.last()
            total += reward
            env.step(None if terminated or truncated else env.action_space(agent).sample())
        assert total == 4.0 * N_AGENTS
        return
    parallel = UnityParallelEnv(DuckOfLists)
    parallel.reset()
    for _ in range(4):
        observations, rewards, ended, _, _ = parallel.step({a: ACTIONS[0] for a in parallel.agents})
    assert set(observations[f"{BEHAVIOR}?agent_id=0"]) == {"state", "other"}
    assert set(rewards.values()) == {1.0} and all(ended.values())


def test_what_is_not_an_environment_is_refused() -> None:
    with pytest.raises(UnityEnvironmentException, match="a BaseEnv, or a function that creates"):
        UnityVectorEnv(7)  # type: ignore[arg-type]
    with pytest.raises(
        UnityEnvironmentException, match=r"returned a int.*lacks behavior_specs, reset"
    ):
        UnityVectorEnv(lambda seed: 7)  # type: ignore[arg-type,return-value]


def test_options_of_a_reset_are_refused() -> None:
    for env in (UnityToGymWrapper(scripted()), UnityVectorEnv(scripted())):
        env.reset(options={})
        with pytest.raises(UnityGymException, match=r"reset\(options=\{'speed': 2\}\).*no options"):
            env.reset(options={"speed": 2})


def test_options_for_stable_baselines_are_refused() -> None:
    pytest.importorskip("stable_baselines3")
    from mlagents_envs.envs.sb3 import SB3VecEnv

    envs = SB3VecEnv(UnityVectorEnv(scripted()))
    envs.set_options({"speed": 2})
    with pytest.raises(UnityGymException, match="speed"):
        envs.reset()


@pytest.mark.parametrize("kind", ["UnityParallelEnv", "UnityAECEnv"])
def test_options_of_pettingzoo_are_warned_of(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pettingzoo")
    from mlagents_envs.envs import unity_aec_env, unity_parallel_env

    make = getattr(unity_aec_env, kind, None) or getattr(unity_parallel_env, kind)
    env = make(scripted())
    env.reset()
    assert "options" not in capsys.readouterr().out
    env.reset(options={"speed": 2})
    env.reset(options={"speed": 2})
    assert capsys.readouterr().out.count("reset(options={'speed': 2})") == 1
