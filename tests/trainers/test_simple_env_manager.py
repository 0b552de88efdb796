"""One environment in this process: what it reports is looked at as if it came by wire."""

import numpy as np
import pytest

from duck_environment import BEHAVIOR, N_AGENTS, DuckEnvironment, DuckOfLists
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityNonFiniteException, UnityObservationException


def test_what_only_has_the_methods_of_an_environment_is_played() -> None:
    env = DuckOfLists()
    manager = SimpleEnvManager(env)
    manager.reset()
    (report,) = manager.receive()
    decisions, terminals = report.steps[BEHAVIOR]
    assert decisions.reward.dtype == np.float32 and not len(terminals)

    action = ActionTuple(np.ones((N_AGENTS, 1)))
    manager.send(0, {BEHAVIOR: action})
    manager.receive()
    assert env.actions == [action]
    manager.close()
    assert env.is_closed


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"reward": np.zeros(N_AGENTS + 1, np.float32)}, UnityObservationException),
        ({"reward": np.full(N_AGENTS, np.nan, np.float32)}, UnityNonFiniteException),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    changes: dict[str, np.ndarray], error: type[Exception]
) -> None:
    manager = SimpleEnvManager(DuckEnvironment(changes))
    manager.reset()
    with pytest.raises(error, match=r"'Duck\?team=0'.*reward"):
        manager.receive()
