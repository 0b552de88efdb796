"""Basic, by hand and against a recording of the original."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.codec import decode_input
from mlagents_envs.testing import check_env
from mlagents_sim.examples.basic import Basic
from shared_data import load_recording

NAME = Basic.behavior_name
STAY, LEFT, RIGHT = 0, 1, 2


def go(env: Basic, *moves: int) -> None:
    env.set_actions(NAME, ActionTuple(discrete=np.array(moves)[:, None]))
    env.step()


@pytest.mark.parametrize("num_areas", [1, 5])
def test_basic_keeps_the_contract(num_areas: int):
    check_env(lambda seed: Basic(seed=seed, num_areas=num_areas), is_random=False)


def test_seven_steps_to_the_right_earn_the_optimum():
    env = Basic()
    env.reset()
    total = 0.0
    for cell in range(11, 17):
        go(env, RIGHT)
        decisions, _ = env.get_steps(NAME)
        assert decisions.obs[0].argmax() == cell
        assert decisions.obs[0].sum() == 1.0
        total += decisions.reward[0]
    go(env, RIGHT)
    decisions, terminals = env.get_steps(NAME)
    assert len(decisions) == 0
    assert terminals.obs[0].argmax() == 17
    assert not terminals.interrupted[0]
    assert total + terminals.reward[0] == pytest.approx(0.93)  # 1 - 7 * 0.01


def test_three_steps_to_the_left_earn_little():
    env = Basic()
    env.reset()
    for _ in range(3):
        go(env, LEFT)
    assert env.get_steps(NAME)[1].reward[0] == pytest.approx(0.1 - 0.01)


def test_the_agent_is_away_for_a_step_and_comes_back_as_another():
    env = Basic(num_areas=2)
    env.reset()
    for _ in range(3):
        go(env, LEFT, STAY)
    # The first agent ended; the second does not wait for it.
    decisions, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [0]
    assert decisions.agent_id.tolist() == [1]
    go(env, STAY)
    decisions, terminals = env.get_steps(NAME)
    assert len(terminals) == 0
    assert decisions.agent_id.tolist() == [2, 1]
    assert decisions.obs[0].argmax(axis=1).tolist() == [10, 10]
    np.testing.assert_allclose(decisions.reward, [0.0, -0.01])


def test_steps_are_those_of_the_recording():
    _, exchanges, recorded = load_recording("4.0.0-basic")
    env = Basic()
    env.reset()
    for number, (_, reply) in enumerate(exchanges[2:-1]):
        decisions, terminals = env.get_steps(NAME)
        found = {
            "decision|agent_id": decisions.agent_id,
            "decision|reward": decisions.reward,
            "decision|obs_0": decisions.obs[0],
            "terminal|agent_id": terminals.agent_id,
            "terminal|reward": terminals.reward,
            "terminal|interrupted": terminals.interrupted,
            "terminal|obs_0": terminals.obs[0],
        }
        for field, array in found.items():
            np.testing.assert_array_equal(array, recorded[f"{number}|{NAME}|{field}"], field)
        actions = decode_input(reply, env.behavior_specs).actions
        if NAME in actions:
            env.set_actions(NAME, actions[NAME])
        env.step()


def test_the_scene_shows_the_agent_in_its_cell():
    env = Basic(num_areas=3)
    env.reset()
    before = env.scene().solids[-1].position
    go(env, STAY, RIGHT, STAY)
    moved = env.scene().solids[-1].position - before
    assert moved.tolist() == [[0.0] * 3, [1.0, 0.0, 0.0], [0.0] * 3]
