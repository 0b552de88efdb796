"""Crawler: by hand, against play recorded in Unity, and with a policy trained there."""

from pathlib import Path

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_envs.testing import check_env
from mlagents_sim.examples.crawler import Crawler
from shared_data import ROOT, require
from worlds import Policy, at_random, play

NAME = Crawler.behavior_name
RECORDED_SPEEDS = (2.0157, 14.7156, 13.6983, 6.7733, 1.164, 4.4466, 2.8439, 5.7073, 7.6088, 12.4861)


def continuous_policy(path: Path) -> Policy:
    """Make a policy of continuous actions from a file that Unity could run."""
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_seed(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)

    def policy(decisions: DecisionSteps) -> ActionTuple:
        inputs = {f"obs_{i}": batch for i, batch in enumerate(decisions.obs)}
        (actions,) = session.run(["continuous_actions"], inputs)
        return ActionTuple(continuous=actions)

    return policy


def test_crawler_keeps_the_contract():
    check_env(lambda seed: Crawler(seed=seed), steps=40)


def test_the_scene_is_as_published():
    env = Crawler()
    assert env.n_agents == 10
    specs = env.behavior_spec.observation_specs
    assert [spec.shape for spec in specs] == [(126,), (32,)]
    assert env.behavior_spec.action_spec.continuous_size == 20
    assert sum(body.mass for body in env.creature.bodies) == 32.0


def test_actions_reach_from_the_lowest_to_the_highest_angle():
    env = Crawler(seed=1)
    env.reset()
    high = np.zeros((10, 20), np.float32)
    high[:, [0, 1, 8]], high[:, 12] = 1.0, 2.0  # beyond 1 counts as 1
    env.set_actions(NAME, ActionTuple(continuous=high))
    env.step()
    joints = [joint.child for joint in env.creature.joints]
    degrees = env._degrees[0]
    np.testing.assert_allclose(degrees[joints.index("leg0")], [0.0, 20.0, 0.0])
    np.testing.assert_allclose(degrees[joints.index("leg1")], [-30.0, 0.0, 0.0])
    np.testing.assert_allclose(degrees[joints.index("foreleg0")], [150.0, 0.0, 0.0])
    np.testing.assert_allclose(env.given_strength[0], [1.0] + [0.5] * 7)
    model = env.creatures.model
    of_leg0 = model.order.tolist().index(joints.index("leg0"))
    assert env.creatures.max_force[0, of_leg0] == 20000.0


def test_reward_is_speed_match_times_facing():
    env = Crawler(seed=1)
    env.reset()
    env.goal_speed[:] = 2.0
    ahead = env.frame_forward
    for speed, match in ((2.0, 1.0), (1.0, (1 - 0.25) ** 2), (0.0, 0.0), (9.0, 0.0)):
        env.creatures.velocity[:] = speed * ahead[:, None]
        facing = np.einsum("nk,nk->n", env.forward(0), ahead)
        np.testing.assert_allclose(env.judge(), match * (facing + 1) / 2, atol=1e-9)


def test_a_body_or_leg_on_the_ground_ends_the_episode():
    env = Crawler(seed=1)
    env.reset()
    env.creatures.state[3, :, 1] -= 1.9
    env.set_actions(NAME, env.behavior_spec.action_spec.empty_action(10))
    env.step()
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [3]
    assert terminals.reward.tolist() == [-1.0]
    assert not terminals.interrupted.any()
    assert env.creatures.position[3, 0, 1] > 2.0  # begun again


def test_a_touched_target_appears_elsewhere():
    env = Crawler(seed=1)
    env.reset()
    before = env.target.copy()
    env.target[4] = env.creatures.position[4, 2] * [1, 0, 1] + [0, 2.0, 0]
    env.set_actions(NAME, env.behavior_spec.action_spec.empty_action(10))
    env.step()
    assert np.linalg.norm(env.target - before, axis=1).argmax() == 4
    assert (env.target == before).all(axis=1).sum() == 9
    assert env.target[4, 1] == 1.0
    assert np.linalg.norm(env.target[4]) < 41.0


def test_bodies_that_diverge_interrupt_the_episode_and_are_counted(caplog):
    env = Crawler(seed=1)
    env.reset()
    step = env.creatures.step

    def diverge() -> None:
        step()
        if env.step_count % 5 == 3:
            env.creatures.state[2, 1, 7:10] = np.nan
            env.creatures.state[5, 3, 7:10] = 1e7

    env.creatures.step = diverge  # type: ignore[method-assign]
    for _ in range(2):
        env.set_actions(NAME, env.behavior_spec.action_spec.empty_action(10))
        env.step()
        _, terminals = env.get_steps(NAME)
        assert sorted(terminals.agent_id.tolist()) == [2, 5]
        assert terminals.interrupted.all()
        assert all(np.isfinite(batch).all() for batch in terminals.obs)
        assert np.isfinite(terminals.reward).all()
        while not len(env.get_steps(NAME)[0]):
            env.step()
    assert env.n_diverged == 4
    assert len(env.get_and_reset_stats()["Physics/Diverged"]) == 4
    assert len([r for r in caplog.records if "diverged" in r.getMessage()]) <= 1


def test_observations_are_those_recorded():
    data = np.load(require(ROOT / "physics" / "crawler_unity_policy.npz"))
    recorded, state = data["ep0_obs_first50"], data["ep0_state"].astype(np.float64)
    env = Crawler(seed=1)
    env.reset()
    env.goal_speed[:] = data["summary"][0, 0]
    largest = []
    for k, action in enumerate(data["ep0_action"][:49]):
        env.creatures.state[0], env.target[0] = state[k], data["ep0_target"][k]
        if k == 0:
            env._turn_frames(slice(None))
            seen = np.concatenate([batch[0] for batch in env.observe(slice(None))])
            np.testing.assert_allclose(seen, recorded[0], atol=1e-6)
        env.command(slice(None), ActionTuple(continuous=np.tile(action, (10, 1))))
        for _ in range(5):
            env.act()
            env.physics()
        seen = np.concatenate([batch[0] for batch in env.observe(slice(None))])
        largest.append(np.abs(seen - recorded[k + 1])[:63].max())
    assert np.median(largest) < 0.01
    assert max(largest) < 0.05


def test_random_play_scores_little():
    env = Crawler(seed=1)
    episodes = play(env, at_random(env), episodes=20)
    assert -1.0 <= episodes.returns.mean() < 30.0


@pytest.mark.slow
@pytest.mark.parametrize(("speeds", "least"), [("recorded", 2600.0), ("random", 2300.0)])
def test_a_policy_trained_in_unity_runs_here(speeds: str, least: float):
    policy = continuous_policy(require(ROOT / "models" / "Crawler.onnx"))
    env = Crawler(seed=1, num_areas=6)
    if speeds == "recorded":
        begin = env.begin

        def begin_as_recorded(agents):
            begin(agents)
            env.goal_speed[agents] = np.tile(RECORDED_SPEEDS, 6)[agents]

        env.begin = begin_as_recorded  # type: ignore[method-assign]
    episodes = play(env, policy, episodes=60)
    assert np.mean(episodes.returns) > least
    assert np.mean(episodes.decisions < 1000) <= 0.05
