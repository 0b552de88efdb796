"""Bouncer: when it decides, how it flies, what it is paid for, by hand."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.bouncer import Bouncer, X, Y, Z
from worlds import at_random, play

NAME = Bouncer.behavior_name


def landed(**options) -> Bouncer:
    """Make a world whose agents decide for the first time, with targets out of reach."""
    env = Bouncer(**options)
    env.reset()
    assert len(env.get_steps(NAME)[0]) == env.n_agents  # all fall from the same height
    env.target[:] = [0.0, 100.0, 0.0]
    return env


def act(env: Bouncer, *values: float) -> None:
    """Let all agents that ask do the same, and step."""
    n = len(env.get_steps(NAME)[0])
    env.set_actions(NAME, ActionTuple(continuous=np.tile(values, (n, 1)).astype(np.float32)))
    env.step()


@pytest.mark.parametrize("num_areas", [1, 2])
def test_bouncer_keeps_the_contract(num_areas: int):
    check_env(lambda seed: Bouncer(seed=seed, num_areas=num_areas), steps=60)


def test_the_scene_is_as_published():
    env = Bouncer()
    assert env.n_agents == 18
    assert env.behavior_spec.observation_specs[0].shape == (18,)
    assert env.behavior_spec.action_spec.continuous_size == 3


def test_agents_decide_first_where_they_touch_down():
    # They fall from 2 m, by 0.02² 19.62 n (n + 1) / 2 in n steps: after 15 steps they are at
    # 1.0582 m and after 16 at 0.9326 m, where the ground is within 0.51 m.
    env = landed()
    assert env.step_count == 16
    np.testing.assert_allclose(env.place[:, Y], 2.0 - 0.0004 * 19.62 * 136.0)
    np.testing.assert_array_equal(env.velocity, 0.0)
    assert (np.abs(env.place[:, [X, Z]]) <= 5.0).all() and np.abs(env.place).max() > 4.0
    seen = env.get_steps(NAME)[0].obs[0].reshape(18, 3, 6)
    np.testing.assert_array_equal(seen[:, :2], 0.0)
    np.testing.assert_allclose(seen[:, 2, :3], env.place, rtol=1e-6)
    target = seen[:, 2, 3:]
    assert (np.abs(target[:, [X, Z]]) <= 5.0).all()
    assert (target[:, Y] >= 2.0).all() and (target[:, Y] <= 7.0).all()


def test_a_jump_goes_as_the_action_says():
    # Up by 15 m/s and to the right by 5 m/s, from 0.9326 m: they come within 0.51 m of the ground
    # in step n when 0.9326 + 0.3 n - 0.007848 n (n + 1) / 2 <= 1.01, after 76 steps.
    env = landed()
    env.place[:, [X, Z]] = 0.0
    act(env, 0.5, 0.0, -2.0)
    assert env.step_count == 16 + 76
    np.testing.assert_allclose(env.place[:, X], 5.0 * 76 * 0.02)
    np.testing.assert_allclose(env.place[:, Z], -10.0 * 76 * 0.02)
    decisions, terminals = env.get_steps(NAME)
    assert (len(decisions), len(terminals)) == (18, 0)
    # -0.05 (0.25 + 0 + 1) / 3: the action is clipped.
    np.testing.assert_allclose(decisions.reward, -0.05 * 1.25 / 3.0, rtol=1e-6)
    frames = decisions.obs[0].reshape(18, 3, 6)
    np.testing.assert_allclose(frames[:, 2, :3], env.place, rtol=1e-6)
    assert frames[:, 1].any()


@pytest.mark.parametrize(("y", "steps"), [(-1.0, 50), (1.0, 101)])
def test_jumps_are_10_to_20_m_s_high(y: float, steps: int):
    env = landed()
    act(env, 0.0, y, 0.0)
    assert env.step_count == 16 + steps


def test_agents_decide_each_at_its_own_time():
    env = landed()
    jumps = np.linspace(-1.0, 1.0, 18)
    action = np.stack([np.zeros(18), jumps, np.zeros(18)], axis=1).astype(np.float32)
    env.set_actions(NAME, ActionTuple(continuous=action))
    asked = []
    while len(asked) < 18:
        env.step()
        decisions = env.get_steps(NAME)[0]
        asked += decisions.agent_id.tolist()
        env.set_actions(NAME, ActionTuple(continuous=np.ones((len(decisions), 3), np.float32)))
    assert asked == list(range(18))


def test_a_catch_pays_and_moves_the_target():
    env = landed()
    env.place[:, [X, Z]] = 0.0
    env.target[4] = env.place[4] + [0.0, 3.0, 0.0]
    act(env, 0.0, -1.0, 0.0)
    reward = env.get_steps(NAME)[0].reward
    cost = -0.05 / 3.0
    np.testing.assert_allclose(np.delete(reward, 4), cost, rtol=1e-6)
    caught = round(float(reward[4] - cost))
    assert caught >= 1 and reward[4] == pytest.approx(caught + cost)
    assert not np.allclose(env.target[4], [0.0, env.place[4, Y] + 3.0, 0.0])


def test_the_target_is_as_large_as_its_parameter_says():
    for scale, half in ((0.5, 0.5), (1.5, 1.5)):
        env = landed(parameters={"target_scale": scale})
        env.target[:] = env.place
        env.target[:, X] += half + 0.5 - 0.01
        assert env._events(env.place, env._cooldown)[0].all()
        env.target[:] += [0.02, 0.0, 0.0]
        assert not env._events(env.place, env._cooldown)[0].any()


def test_leaving_the_arena_costs_and_ends():
    env = landed()
    env.place[:, [X, Z]] = 0.0
    env.place[6, X] = 15.0
    act(env, 1.0, 0.0, 0.0)
    decisions, terminals = env.get_steps(NAME)
    assert len(decisions) == 0
    assert terminals.agent_id.tolist() == [6]
    np.testing.assert_allclose(terminals.reward, -1.0 - 0.05 / 3.0, rtol=1e-6)
    assert not terminals.interrupted[0]
    assert 19.0 < terminals.obs[0][0, 12] < 19.3


def test_the_20th_touchdown_ends_without_a_penalty():
    env = landed()
    for _ in range(18):
        act(env, 0.0, 0.0, 0.0)
        assert len(env.get_steps(NAME)[1]) == 0
    act(env, 0.0, 0.0, 0.0)
    decisions, terminals = env.get_steps(NAME)
    assert (len(decisions), len(terminals)) == (0, 18)
    np.testing.assert_array_equal(terminals.reward, 0.0)
    assert not terminals.interrupted.any()


@pytest.mark.parametrize(("name", "value"), [("target_scale", 0.2), ("target_scale", 2.0)])
def test_parameters_beyond_their_ranges_are_refused(name: str, value: float):
    with pytest.raises(UnityEnvironmentException, match=f"{name}.*expected at least"):
        Bouncer(parameters={name: value})


def test_gravity_is_honored():
    env = landed(parameters={"gravity": 9.81})
    act(env, 0.0, -1.0, 0.0)
    assert env.step_count > 16 + 76


def test_one_that_aims_scores():
    """Jump so as to be where the target is, on the way up or down."""
    env = Bouncer(seed=1)

    def policy(decisions: DecisionSteps) -> ActionTuple:
        place, target = decisions.obs[0][:, 12:15], decisions.obs[0][:, 15:]
        up = 16.0
        rise = target[:, Y] - place[:, Y]
        time_s = (up + np.sqrt(np.maximum(up * up - 2.0 * 19.62 * rise, 0.0))) / 19.62
        aside = (target - place)[:, [X, Z]] / time_s[:, None] / 10.0
        way = np.stack(
            [aside[:, 0], np.full(len(rise), 2.0 * up / 10.0 - 3.0), aside[:, 1]], axis=1
        )
        return ActionTuple(continuous=way.astype(np.float32))

    assert play(env, policy, episodes=36).returns.mean() > 15.0


@pytest.mark.parametrize("num_areas", [1, 2])
def test_several_steps_at_once_are_the_same_as_single_steps(num_areas: int):
    at_once, singly = (Bouncer(seed=5, num_areas=num_areas) for _ in range(2))
    watched = []
    singly.step_watcher = lambda: watched.append(singly.step_count)
    policies = [at_random(env) for env in (at_once, singly)]
    n_ended = n_flown = 0
    for env in (at_once, singly):
        env.reset()
    for _ in range(1000):
        before = at_once.step_count
        for env, policy in zip((at_once, singly), policies, strict=True):
            decisions, _ = env.get_steps(NAME)
            if len(decisions):
                env.set_actions(NAME, policy(decisions))
            env.step()
        one, other = at_once.get_steps(NAME), singly.get_steps(NAME)
        for steps, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(steps.agent_id, expected.agent_id)
            np.testing.assert_array_equal(steps.reward, expected.reward)
            np.testing.assert_array_equal(steps.obs[0], expected.obs[0])
        for name in ("place", "velocity", "target", "touchdowns_left", "_cooldown"):
            np.testing.assert_array_equal(getattr(at_once, name), getattr(singly, name))
        assert at_once.step_count == singly.step_count
        n_flown += at_once.step_count - before > 1
        n_ended += len(one[1])
    assert n_ended > 20 and n_flown > 200
    assert watched == list(range(1, singly.step_count + 1))
