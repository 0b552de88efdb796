"""Hallway, by hand, and with one who knows where to go."""

from collections.abc import Callable

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_envs.demonstration_file import ActionPlacement, read_demonstration
from mlagents_envs.testing import check_env
from mlagents_sim.examples.hallway import AGENT, O_GOAL, SYMBOL, X_GOAL, Hallway
from mlagents_sim.plane import X, Z, in_frame
from shared_data import ROOT, require
from worlds import Policy, at_random, play, set_discrete

NAME = Hallway.behavior_name
NOTHING, FORWARD, BACK, TURN_RIGHT, TURN_LEFT = range(5)


def started(**options) -> Hallway:
    """Make a world whose agents stand in the middle and look ahead, the symbol far behind."""
    env = Hallway(**options)
    env.reset()
    env.bodies.stand()
    env.bodies.position[:, AGENT] = 0.0
    env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    env.bodies.position[:, SYMBOL] = [[0.0], [-20.0]]
    return env


def rays_of(env: Hallway) -> np.ndarray:
    """Return the newest rays of the first agent: (5, 7)."""
    return env.get_steps(NAME)[0].obs[0][0].reshape(3, 5, 7)[-1]


@pytest.mark.parametrize("num_areas", [1, 3])
def test_hallway_keeps_the_contract(num_areas: int):
    check_env(lambda seed: Hallway(seed=seed, num_areas=num_areas), steps=60)


def test_the_scene_is_as_published():
    env = Hallway()
    assert env.n_agents == 16
    specs = env.behavior_spec.observation_specs
    assert [(spec.shape, spec.name) for spec in specs] == [
        ((105,), "StackingSensor_size3_RayPerceptionSensor"),
        ((3,), "StackingSensor_size3_VectorSensor_size1"),
    ]


@pytest.mark.parametrize("is_x", [False, True])
def test_the_symbol_is_seen_by_its_tag(is_x: bool):
    env = started()
    env.is_x[:] = is_x
    env.bodies.position[Z, SYMBOL] = 6.0
    set_discrete(env, NOTHING)
    rays = rays_of(env)
    # Its face is at 5.5, reached by a sphere of 0.5 at 5. At 70 degrees the wall, 9 m aside, is
    # reached after 9 / sin 70.
    np.testing.assert_allclose(rays[0], [0, 0, not is_x, is_x, 0, 0, 5 / 12], rtol=1e-6)
    aside = 9 / np.sin(np.radians(70)) / 12
    np.testing.assert_allclose(rays[3:], [[0, 0, 0, 0, 1, 0, aside]] * 2, rtol=1e-6)


def test_goals_are_met_by_the_lower_part_of_a_ray():
    # A sphere 0.4 m above the edge of a goal meets it with a radius of 0.3 m.
    env = started()
    env.bodies.position[:, AGENT] = [[7.0], [12.0]]
    env.bodies.position[X, O_GOAL], env.bodies.position[X, X_GOAL] = -7.0, 7.0
    set_discrete(env, NOTHING)
    np.testing.assert_allclose(
        rays_of(env)[0], [0, 1, 0, 0, 0, 0, (20.29 - 0.3 - 12) / 12], rtol=1e-6
    )


def test_turning_right_by_three_degrees_a_step():
    env = started()
    for _ in range(5):
        set_discrete(env, TURN_RIGHT)
    np.testing.assert_allclose(env.bodies.heading[:, AGENT, 0], [1.0, 0.0], atol=1e-9)


def test_a_push_moves_against_drag_and_friction():
    # v = (v + 1.5 - 2 * 0.6 * 19.62 * 0.02) (1 - 2 * 0.02): friction is by what presses, less drag.
    env = started()
    env.bodies.velocity[:] = 0.0
    set_discrete(env, FORWARD)
    speed = place = 0.0
    for _ in range(6):
        speed = (speed + 1.5 - 0.47088) * 0.96
        place += speed * 0.02
    np.testing.assert_allclose(env.bodies.position[Z, AGENT], place)


def test_an_agent_falls_and_then_slides_as_recorded_in_unity():
    # Where it began was solved for from what the first rays see. It falls by half a meter for two
    # decisions, without friction. From then on it turns in Unity, by a tenth of a degree a
    # decision, as nothing does here, so the ends of its rays are compared by their median. The
    # action of a decision is in the record after it.
    file = require(ROOT / "demonstrations" / "ExpertHallway.demo")
    recorded = read_demonstration(file, action_placement=ActionPlacement.SAME_RECORD).records
    actions, rays = recorded.action.discrete[:, 0], recorded.obs[0].reshape(-1, 3, 5, 7)[:, -1]
    env = Hallway()
    env.reset()
    yaw = np.radians(197.0592)
    env.bodies.position[:, AGENT, 0] = -1.39886, -12.091
    env.bodies.heading[:, AGENT, 0] = np.sin(yaw), np.cos(yaw)
    env.bodies.position[:, SYMBOL, 0] = 0.0, 5.0
    errors_m = []
    for decision in range(1, 17):
        set_discrete(env, actions[decision])
        errors_m.append(np.abs(rays_of(env) - rays[decision])[:, -1] * 12)
    np.testing.assert_allclose(errors_m[:2], 0.0, atol=1e-3)
    assert np.median(errors_m[8:]) < 0.12
    assert (np.median(errors_m, axis=1) < 0.12).all()


@pytest.mark.parametrize(("is_x", "reward"), [(False, 1.0), (True, -0.1)])
def test_the_goal_pays_by_its_symbol_and_ends(is_x: bool, reward: float):
    env = started()
    env.is_x[:] = is_x
    env.bodies.position[X, O_GOAL], env.bodies.position[X, X_GOAL] = -7.0, 7.0
    env.bodies.position[:, AGENT, 3] = -7.0, 19.78  # 1 cm before the goal of O
    set_discrete(env, NOTHING)
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [3]
    assert terminals.reward.tolist() == [np.float32(reward)]
    assert not terminals.interrupted[0]


def test_steps_are_observed_by_their_limit():
    # They are counted from 1 in every episode, whether it begins with all others or by itself.
    env = started()
    for _ in range(2):
        ended = 0
        for k in range(3):
            steps = env.get_steps(NAME)[0].obs[1]
            np.testing.assert_allclose(steps[:, -1] * 3000, 1 + 6 * k, rtol=1e-6)
            set_discrete(env, NOTHING)
        np.testing.assert_allclose(env.get_steps(NAME)[0].obs[1] * 3000, [[7, 13, 19]] * 16)
        while not ended:
            set_discrete(env, NOTHING)
            ended = len(env.get_steps(NAME)[1])
        last = env.get_steps(NAME)[1].obs[1]
        np.testing.assert_allclose(last * 3000, [[2989, 2995, 3000]] * 16, rtol=1e-6)
        while not len(env.get_steps(NAME)[0]):
            env.step()


def test_starts_are_as_published():
    env = Hallway(num_areas=60, seed=4)
    env.reset()
    agent, symbol, o_goal, x_goal = env.bodies.position.swapaxes(0, 1)
    assert (np.abs(agent[X]) <= 3).all() and (np.abs(agent[Z] + 15) <= 5).all()
    assert (np.abs(symbol[Z]) <= 5).all()
    assert (symbol[X, env.is_x] == 0).all() and symbol[X, ~env.is_x].std() > 1
    assert 0.4 < env.is_x.mean() < 0.6
    np.testing.assert_array_equal(o_goal[X], -x_goal[X])
    assert 0.4 < (o_goal[X] > 0).mean() < 0.6
    assert (o_goal[Z] == 22.29).all()
    # One who knows the symbol knows nothing of the side.
    assert 0.4 < (env.is_x == (o_goal[X] > 0)).mean() < 0.6


def to_goal(env: Hallway, *, of_x: Callable[[], np.ndarray]) -> Policy:
    """Make a policy that goes around the symbol to the goals of X or O."""

    def policy(decisions: DecisionSteps) -> ActionTuple:
        position = env.bodies.position[:, :, decisions.agent_id]
        agent, symbol = position[:, AGENT], position[:, SYMBOL]
        goal = np.where(of_x()[decisions.agent_id], position[:, X_GOAL], position[:, O_GOAL])
        is_before = agent[Z] < symbol[Z] + 1.5
        beside = np.where(symbol[X] > 0, -5.5, 5.5)
        aim = np.where(is_before, [beside, symbol[Z] + 2.0], goal)
        right, ahead = in_frame(env.bodies.heading[:, AGENT, decisions.agent_id], aim - agent)
        aside = np.degrees(np.arctan2(right, ahead))
        turn = np.where(aside > 0, TURN_RIGHT, TURN_LEFT)
        return ActionTuple(discrete=np.where(np.abs(aside) > 12, turn, FORWARD)[:, None])

    return policy


def test_one_who_knows_scores_and_one_who_knows_better_does_not():
    env = Hallway(seed=1)
    right = play(env, to_goal(env, of_x=lambda: env.is_x), episodes=48, max_steps=1500)
    assert right.returns.mean() > 0.8
    env = Hallway(seed=1)
    wrong = play(env, to_goal(env, of_x=lambda: ~env.is_x), episodes=48, max_steps=1500)
    assert -0.3 < wrong.returns.mean() < -0.1


def test_nobody_leaves_the_hall_whatever_they_do():
    env = Hallway(num_areas=8, seed=3)
    policy = at_random(env)
    env.reset()
    for _ in range(200):
        decisions, _ = env.get_steps(NAME)
        if len(decisions):
            env.set_actions(NAME, policy(decisions))
        env.step()
        place = np.abs(env.bodies.position[:, AGENT])
        assert (place < [[9.5], [24.75]]).all()
