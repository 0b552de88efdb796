"""3DBallHard, by hand and against recorded steps of the original."""

import numpy as np

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.codec import decode_input
from mlagents_envs.testing import check_env
from mlagents_sim.examples.ball_3d import POSITION, VELOCITY, Y
from mlagents_sim.examples.ball_3d_hard import Ball3DHard
from shared_data import load_recording
from tilted_cubes import tilted_cubes

NAME = Ball3DHard.behavior_name


def hold(env: Ball3DHard) -> None:
    env.set_actions(NAME, ActionTuple(continuous=np.zeros((env.n_agents, 2))))
    env.step()


def test_3dballhard_keeps_the_contract():
    check_env(lambda seed: Ball3DHard(seed=seed, num_areas=2), steps=30)


def test_positions_and_turns_are_stacked_apart_by_hand():
    env = Ball3DHard()
    env.reset()
    env.cube[:] = [[0.1], [0.0], [0.2], [np.sqrt(1 - 0.05)]]
    offsets, turns = env.observe(np.array([3]))  # a second frame, of what was just arranged
    assert (offsets.shape, turns.shape) == ((1, 27), (1, 18))
    frames = offsets.reshape(9, 3)
    assert (frames[:7] == 0.0).all()
    np.testing.assert_allclose(frames[8], env.ball[POSITION, :, 3], rtol=1e-6)
    assert (turns[0, :14] == 0.0).all()
    np.testing.assert_allclose(turns[0, 16:], [0.2, 0.1], rtol=1e-6)  # z, then x


def test_an_end_adds_a_last_frame_and_the_next_episode_remembers_nothing():
    env = Ball3DHard()
    env.reset()
    for _ in range(3):
        hold(env)
    before = env.get_steps(NAME)[0].obs[0][4].reshape(9, 3)
    env.ball[POSITION, :, 4] = [3.5, 1.0, 0.0]
    hold(env)
    _, terminals = env.get_steps(NAME)
    assert (terminals.agent_id.tolist(), terminals.reward.tolist()) == ([4], [-1.0])
    last = terminals.obs[0][0].reshape(9, 3)
    np.testing.assert_array_equal(last[:8], before[1:])
    np.testing.assert_allclose(last[8], [3.5, 1.0, 0.0])
    env.step()
    decisions, _ = env.get_steps(NAME)
    n_frames = (decisions.obs[0].reshape(-1, 9, 3)[:, :, Y] != 0).sum(axis=1)
    assert n_frames[4] == 1
    assert (np.delete(n_frames, 4) == 5).all()


def test_the_size_is_read_once_and_gravity_always():
    env = Ball3DHard(parameters={"scale": 2.0})
    env.reset()
    env.set_parameter("scale", 1.0)
    env.set_parameter("gravity", 20.0)
    env.reset()
    hold(env)
    np.testing.assert_allclose(np.median(env.ball[VELOCITY, Y]), -2.0)  # five steps of 0.02 s
    env.cube[:] = [[0.0], [0.0], [0.0], [1.0]]
    env.ball[:] = 0.0
    env.ball[POSITION, Y] = 4.0
    for _ in range(20):
        hold(env)
    np.testing.assert_allclose(env.ball[POSITION, Y], 2.5 + 1.0, atol=0.02)


def test_frames_are_those_of_the_recording():
    # Begin where the recording begins and turn the cubes by the recorded actions: what is seen, and
    # how it is stacked, must be the recorded, up to the first decision after nine frames.
    meta, exchanges, recorded = load_recording("4.0.0-3dballhard")
    announced = meta["behavior_specs"][NAME]["observation_specs"]
    ours = Ball3DHard.behavior_spec.observation_specs
    assert [(spec["name"], spec["shape"]) for spec in announced] == [
        (spec.name, list(spec.shape)) for spec in ours
    ]
    env = Ball3DHard()
    env.reset()
    env.ball[POSITION] = recorded[f"0|{NAME}|decision|obs_0"][:, -3:].T
    env.cube[:] = tilted_cubes(*recorded[f"0|{NAME}|decision|obs_1"][:, -2:].T)
    for number, (_, reply) in enumerate(exchanges[2:11]):
        if number:
            decisions, _ = env.get_steps(NAME)
            for index, tolerance in enumerate((0.02, 1e-4)):
                ours = decisions.obs[index].reshape(12, 9, -1)
                truth = recorded[f"{number}|{NAME}|decision|obs_{index}"].reshape(12, 9, -1)
                # All but our own first frame, from before the balls were put in their places.
                ours[:, [8 - number]] = truth[:, [8 - number]]
                np.testing.assert_allclose(ours, truth, atol=tolerance)
        env.set_actions(NAME, decode_input(reply, env.behavior_specs).actions[NAME])
        env.step()
