"""One environment in this process: what it reports is looked at as if it came by wire."""

import numpy as np
import pytest

from guess_environment import GuessEnvironment
from mlagents.trainers.rollout.simple_env_manager import SimpleEnvManager
from mlagents_envs.base_env import DecisionSteps
from mlagents_envs.exception import UnityNonFiniteException, UnityObservationException


def reported(**changes: object) -> None:
    """Let a manager receive the first report of an environment, with these fields changed."""
    env = GuessEnvironment(n_agents=3)
    manager = SimpleEnvManager(env)
    manager.reset()
    decisions, terminals = env.get_steps(env.BEHAVIOR)
    env.get_steps = lambda name: (changed(decisions, changes), terminals)
    manager.receive()


def changed(steps: DecisionSteps, changes: dict[str, object]) -> DecisionSteps:
    fields = ("obs", "reward", "agent_id", "action_mask", "group_id", "group_reward")
    return DecisionSteps(**{name: getattr(steps, name) for name in fields} | changes)


def test_what_fits_is_received() -> None:
    reported()


@pytest.mark.parametrize("field", ["reward", "group_reward"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reward_that_is_no_number_is_refused(field: str, value: float) -> None:
    rewards = np.array([0.0, value, 0.0], np.float32)
    with pytest.raises(UnityNonFiniteException, match=r"'Guess\?team=0': agent 1 has the reward"):
        reported(**{field: rewards})


@pytest.mark.parametrize(
    "obs",
    [
        [np.zeros((3, 1), np.float32)],
        [np.zeros((3, 1), np.float32), np.zeros((3, 3), np.float32)],
        [np.zeros((2, 1), np.float32), np.zeros((2, 2), np.float32)],
    ],
)
def test_observations_are_of_the_shape_specified(obs: list[np.ndarray]) -> None:
    with pytest.raises(
        UnityObservationException, match=r"those specified are \[\(3, 1\), \(3, 2\)"
    ):
        reported(obs=obs)
