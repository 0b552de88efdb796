"""GridWorldPits: how it differs from GridWorld."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.grid_world import CROSS, NOWHERE, PLUS
from mlagents_sim.examples.grid_world_pits import GridWorldPits

NAME = GridWorldPits.behavior_name
UP, RIGHT = 1, 4


def test_pits_keep_the_contract():
    check_env(lambda seed: GridWorldPits(seed=seed), steps=60)


def test_there_is_a_picture_and_no_goal_signal():
    (image,) = GridWorldPits.behavior_spec.observation_specs
    assert (image.shape, image.dtype) == ((3, 64, 84), np.uint8)


def test_goals_pay_and_pits_cost():
    env = GridWorldPits(seed=1)
    env.reset()
    env.place[:], env.goal[:], env.kind[:] = (1, 1), [[2, 1], [1, 2]], (PLUS, CROSS)
    action = np.zeros((9, 1))
    action[[3, 4], 0] = RIGHT, UP
    env.set_actions(NAME, ActionTuple(discrete=action))
    env.step()
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [3, 4]
    assert terminals.reward.tolist() == [1.0, -1.0]
    assert not terminals.interrupted.any()


def test_parameters_say_how_many_there_are():
    env = GridWorldPits(seed=1, parameters={"gridSize": 8, "numGoals": 2, "numObstacles": 5})
    env.reset()
    is_there = env.goal[..., 0] != NOWHERE
    assert ((env.kind == PLUS) & is_there).sum(axis=1).tolist() == [2] * 9
    assert ((env.kind == CROSS) & is_there).sum(axis=1).tolist() == [5] * 9


def test_too_many_pits_are_refused():
    env = GridWorldPits(parameters={"numObstacles": 25})
    with pytest.raises(UnityEnvironmentException, match=r"GridWorldPits.*numObstacles 25"):
        env.reset()
