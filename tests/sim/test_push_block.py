"""Push Block: by hand, with a policy trained in Unity, and against play recorded there."""

import numpy as np
import pytest

from mlagents_envs.demonstration_file import ActionPlacement, read_demonstration
from mlagents_envs.testing import check_env
from mlagents_sim.examples.push_block import AGENT, BLOCK, PushBlock
from mlagents_sim.plane import X, Z
from shared_data import ROOT, require
from worlds import at_random, of_unity, play, set_discrete

NAME = PushBlock.behavior_name
NOTHING, FORWARD, BACK, TURN_RIGHT, TURN_LEFT, LEFT, RIGHT = range(7)
BLOCK_TAG, GOAL_TAG, WALL_TAG, NO_TAG, DISTANCE = range(5)


def started(**options) -> PushBlock:
    """Make a world whose agents stand in the middle and look ahead, the block far behind."""
    env = PushBlock(**options)
    env.reset()
    env.bodies.stand()
    env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    env.bodies.position[:, AGENT] = 0.0
    env.bodies.position[:, BLOCK] = [[9.0], [-5.0]]
    return env


def rays_of(env: PushBlock) -> tuple[np.ndarray, np.ndarray]:
    """Return the newest raised and level rays of the first agent: (7, 5) each."""
    raised, level = env.get_steps(NAME)[0].obs
    return raised[0].reshape(3, 7, 5)[-1], level[0].reshape(3, 7, 5)[-1]


@pytest.mark.parametrize("num_areas", [1, 2])
def test_push_block_keeps_the_contract(num_areas: int):
    check_env(lambda seed: PushBlock(seed=seed, num_areas=num_areas), steps=50)


def test_the_scene_is_as_published():
    env = PushBlock()
    assert env.n_agents == 32
    specs = env.behavior_spec.observation_specs
    assert [(spec.shape, spec.name) for spec in specs] == [
        ((105,), "StackingSensor_size3_OffsetRayPerceptionSensor"),
        ((105,), "StackingSensor_size3_RayPerceptionSensor"),
    ]


def test_what_the_rays_see_by_hand():
    env = started()
    env.bodies.position[:, BLOCK] = [[0.0], [6.0]]
    set_discrete(env, NOTHING)
    raised, level = rays_of(env)
    # Ahead: a block whose face is at 5, touched by a sphere of 0.5 at 4.5. To the right: a wall at
    # 12.5, reached at 12, just within the ray. 30 degrees off ahead a ray passes the block by.
    np.testing.assert_allclose(level[0], [1, 0, 0, 0, 4.5 / 12], rtol=1e-5)
    np.testing.assert_allclose(level[5, [WALL_TAG, DISTANCE]], 1.0, rtol=1e-5)
    np.testing.assert_allclose(level[3], [0, 0, 0, 1, 1])
    # The raised rays graze the upper edge of the wall, too far away, and pass over all else.
    np.testing.assert_allclose(raised, np.tile([0, 0, 0, 1, 1], (7, 1)))


@pytest.mark.parametrize(("gravity", "decisions"), [(24.525, 3), (9.81, 6)])
def test_raised_rays_pass_over_walls_while_the_agent_drops(gravity: float, decisions: int):
    # It drops by half a meter: in 12 steps or in 21, by hand, and then closes 0.8 of what is left
    # in every step, so that after 25 steps it is not down yet, but after 30.
    env = PushBlock(parameters={"gravity": gravity})
    env.reset()
    env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    env.bodies.position[:, AGENT] = [[4.5], [0.0]]
    env.bodies.position[:, BLOCK] = -6.0
    for _ in range(decisions):
        np.testing.assert_allclose(rays_of(env)[0], np.tile([0, 0, 0, 1, 1], (7, 1)))
        set_discrete(env, NOTHING)
    for _ in range(3):
        set_discrete(env, NOTHING)
    # The wall to the right is at 12.5; the sphere touches its edge with its lowest point.
    np.testing.assert_allclose(rays_of(env)[0][5], [0, 0, 1, 0, 8.0 / 12], atol=1e-3)


def test_the_goal_is_ahead_after_a_half_turn():
    env = started()
    for _ in range(9):
        set_discrete(env, TURN_RIGHT)
    _, level = rays_of(env)
    np.testing.assert_allclose(env.bodies.heading[:, AGENT, 0], [0.0, -1.0], atol=1e-9)
    np.testing.assert_allclose(level[0], [0, 1, 0, 0, 7.85 / 12], rtol=1e-5)
    # 30 degrees to the right of it the goal is 1 / cos 30 times as far; so is it to the left.
    np.testing.assert_allclose(level[1:3, DISTANCE] * 12, 7.85 / np.cos(np.pi / 6), rtol=1e-5)


def test_frames_are_stacked_oldest_first_and_forgotten_at_the_end():
    def seen() -> np.ndarray:
        """Return the frames of every agent: of both sensors, (2, 32, 3, 35)."""
        return np.reshape(env.get_steps(NAME)[0].obs, (2, 32, 3, 35))

    env = PushBlock()
    env.reset()
    first = seen()
    assert (first[:, :, :2] == 0).all() and (first[:, :, 2] != 0).any(axis=2).all()
    set_discrete(env, FORWARD)
    second = seen()
    assert (second[:, :, 0] == 0).all()
    np.testing.assert_array_equal(second[:, :, 1], first[:, :, 2])
    # One block is in the goal a step later, and all are asked again four steps after that.
    env.bodies.position[:, BLOCK, 7] = 3.0, -9.0
    set_discrete(env, NOTHING)
    assert env.get_steps(NAME)[1].agent_id.tolist() == [7]
    env.step()
    third, others = seen(), np.arange(32) != 7
    assert (third[:, 7, :2] == 0).all() and (third[:, 7, 2] != 0).any(axis=1).all()
    np.testing.assert_array_equal(third[:, others, :2], second[:, others, 1:])


@pytest.mark.parametrize(
    ("action", "expected"),
    [(NOTHING, (0, 0)), (FORWARD, (0, 1)), (BACK, (0, -1)), (LEFT, (-0.75, 0)), (RIGHT, (0.75, 0))],
)
def test_pushes_move_as_recorded_in_unity(action: int, expected: tuple[float, float]):
    # From rest 0.7448 m in one decision, then 1.6671 and 2.2749, while the agent drops: recorded
    # in `ExpertPushBlock.demo`, in a scene of ordinary gravity.
    env = PushBlock(parameters={"gravity": 9.81})
    env.reset()
    env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    env.bodies.position[:] = np.reshape([0.0, 9.0, 0.0, -5.0], (2, 2, 1))
    places = []
    for _ in range(3):
        set_discrete(env, action)
        places.append(env.bodies.position[:, AGENT, 0].copy())
    moved = np.diff([np.zeros(2), *places], axis=0)
    np.testing.assert_allclose(moved, np.outer([0.7448, 1.6671, 2.2749], expected), atol=2e-4)


def test_a_push_moves_against_drag_and_friction():
    # Friction is (0 + 0.6) / 2, in two anchors, of what presses: gravity's 24.525 * 0.02 less drag.
    env = started()
    set_discrete(env, FORWARD)
    speed = 0.0
    for _ in range(5):
        speed = (speed + 3.0) * 0.92 - 2 * 0.3 * 24.525 * 0.02 * 0.92
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], speed, rtol=1e-9)


def test_who_rests_is_held_by_static_friction():
    # It is (1 + 0.6) / 2 in the first step, and (0 + 0.6) / 2 in those after it.
    env = started(parameters={"static_friction": 1.0, "dynamic_friction": 0.0})
    set_discrete(env, FORWARD)
    speed = 0.0
    for friction in (0.8, 0.3, 0.3, 0.3, 0.3):
        speed = (speed + 3.0) * 0.92 - 2 * friction * 24.525 * 0.02 * 0.92
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], speed, rtol=1e-9)


def test_a_block_slides_on_against_friction_and_drag():
    env = started()
    env.bodies.velocity[X, BLOCK] = -10.0
    env.physics()
    kept = 10 * 0.99 - 2 * 0.3 * 24.525 * 0.02 * 0.99
    np.testing.assert_allclose(env.bodies.velocity[X, BLOCK], -kept)


def test_landing_takes_speed():
    # Dropped by 0.02 m and 1 mm at 4 m/s, the agent is within a contact's gap in the next step: its
    # fall is (-4 - 0.4905) 0.92 = -4.13126, and closing 0.8 of 1 mm may be no faster than 0.04.
    env = started()
    env.bodies.above_m[AGENT] = 0.001
    env.bodies.climb[AGENT] = -4.0
    env.bodies.is_falling = True
    env.bodies.velocity[Z, AGENT] = 5.0
    env.physics()
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], 5 * 0.92 - 0.6 * (4.13126 - 0.04))
    np.testing.assert_allclose(env.bodies.above_m[AGENT], 0.0002)


def test_the_block_in_the_goal_pays_and_ends():
    env = started()
    env.bodies.position[:, BLOCK, 7] = 3.0, -7.34  # its face is 1 cm from the goal
    set_discrete(env, NOTHING)
    decisions, terminals = env.get_steps(NAME)
    assert len(decisions) == 0
    assert terminals.agent_id.tolist() == [7]
    assert terminals.reward[0] == pytest.approx(5.0 - 0.0002)
    assert not terminals.interrupted[0]
    env.step()
    # The others pay for five steps, the one that began anew for four.
    assert env.get_steps(NAME)[0].reward[[0, 7]] == pytest.approx([-0.001, -0.0008])


@pytest.mark.slow
def test_time_runs_out_after_a_thousand_decisions():
    env = PushBlock(num_areas=1, seed=2)
    still = play(env, lambda decisions: env.behavior_spec.action_spec.empty_action(32), episodes=32)
    np.testing.assert_allclose(still.returns, -1.0, rtol=1e-3)
    assert (still.decisions == 1000).all()
    assert env.get_steps(NAME)[1].interrupted.all()


def test_starts_are_spread_and_free():
    env = PushBlock(num_areas=20, seed=1)
    env.reset()
    agent, block = env.bodies.position.swapaxes(0, 1)
    for place in (agent, block):
        assert (np.abs(place) <= 6.25).all()
        assert place[Z].min() > -8.35 + 2.5
        assert (place.std(axis=1) > 3.0).all()
    # The agent is put down last, 2.5 m or more off the block, which reaches 1 m to every side.
    assert np.abs(agent - block).max(axis=0).min() > 3.5


@pytest.mark.parametrize(("scale", "half_m"), [(100.0, 2.0), (0.0, 0.25)])
def test_a_block_leaves_room_and_can_be_seen_whatever_is_asked(scale: float, half_m: float):
    env = PushBlock(parameters={"block_scale": scale}, seed=1)
    env.reset()
    assert (env.bodies.half[:, BLOCK] == half_m).all()


def test_parameters_count_from_the_next_episode():
    env = PushBlock(parameters={"block_scale": 4.0, "block_drag": 10.0, "dynamic_friction": 0.4})
    env.reset()
    assert (env.bodies.half[:, BLOCK] == 2.0).all()
    env.bodies.stand()
    env.bodies.velocity[X] = 3.0
    env.bodies.position[:] = [[[0.0], [5.0]], [[0.0], [0.0]]]
    env.physics()
    # Friction is (0.6 + 0.4) / 2, twice; drag leaves 0.92 of the agent's speed, 0.8 of the block's.
    kept = np.array([0.92, 0.8]) * (3.0 - 2 * 0.5 * 24.525 * 0.02)
    np.testing.assert_allclose(env.bodies.velocity[X, :, 0], kept)


def test_nobody_leaves_the_room_whatever_they_do():
    env = PushBlock(num_areas=4, seed=3)
    policy = at_random(env)
    env.reset()
    for _ in range(300):
        decisions, _ = env.get_steps(NAME)
        if len(decisions):
            env.set_actions(NAME, policy(decisions))
        env.step()
        # As in Unity, a step may carry the fast into a wall, which pushes them out again.
        assert (np.abs(env.bodies.position) + env.bodies.extent() < 12.5 + 0.7).all()
        assert env.bodies.position[Z].min() > -8.35 - 0.7


@pytest.mark.slow
def test_the_policy_trained_in_unity_scores_as_there():
    policy = of_unity(require(ROOT / "models" / "PushBlock.onnx"))
    assert play(PushBlock(seed=5), policy, episodes=200).returns.mean() >= 4.95


@pytest.mark.parametrize(
    ("first", "agent", "yaw_degrees", "block"),
    [
        (40, (2.35398, 5.84782), 140, (-1.85902, -1.65496)),
        (71, (5.29716, 2.51575), 220, (-4.94451, 5.48124)),
        (1167, (-5.30293, 4.06575), 180, (1.19291, -1.78320)),
        (1488, (2.47746, 0.64802), 180, (-3.74612, -4.26202)),
        (1591, (0.74289, 0.17655), 200, (-5.14642, -0.67352)),
    ],
)
def test_recorded_episodes_go_as_in_unity(
    first: int, agent: tuple[float, float], yaw_degrees: float, block: tuple[float, float]
):
    # Where they began was solved for from what the first rays see. They were recorded in a scene
    # of ordinary gravity, with the friction of ours; up to 23 decisions of pushing, turning,
    # striking the block, sliding along it and into the goal are reproduced to a millimeter or two.
    file = require(ROOT / "demonstrations" / "ExpertPushBlock.demo")
    # As the file has it, an action lies beside the observation that followed it.
    recorded = read_demonstration(file, action_placement=ActionPlacement.SAME_RECORD).records
    last = first + int(np.argmax(recorded.done[first:]))
    actions, rays = recorded.action.discrete[:, 0], recorded.obs[1].reshape(-1, 3, 7, 5)[:, -1]
    env = PushBlock(parameters={"gravity": 9.81})
    env.reset()
    env.bodies.position[:, AGENT, 0], env.bodies.position[:, BLOCK, 0] = agent, block
    yaw = np.radians(yaw_degrees)
    env.bodies.heading[:, AGENT, 0] = np.sin(yaw), np.cos(yaw)
    for record in range(first, last + 1):
        set_discrete(env, int(actions[record]))
        decisions, terminals = env.get_steps(NAME)
        while not len(decisions) and 0 not in terminals.agent_id:
            env.step()  # another agent came to its end
            decisions, terminals = env.get_steps(NAME)
        if record < last:
            seen = decisions.obs[1][0].reshape(3, 7, 5)[-1]
            # A ray that grazes an edge may see either side of it.
            is_near = np.abs(seen - rays[record]).max(axis=1) < 0.003 / 12
            assert is_near.sum() >= 6
    assert 0 in terminals.agent_id, "the block is in the goal when it was"


@pytest.mark.slow
def test_trained_play_looks_like_recorded_play():
    # A person played the recording, so only the gross likeness counts.
    recorded = read_demonstration(require(ROOT / "demonstrations" / "ExpertPushBlock.demo")).records
    lengths = np.diff(np.flatnonzero(recorded.done))
    env = PushBlock(seed=5)
    policy = of_unity(require(ROOT / "models" / "PushBlock.onnx"))
    raised, level = [], []

    def watched(decisions):
        raised.append(decisions.obs[0].reshape(-1, 3, 7, 5)[:, -1])
        level.append(decisions.obs[1].reshape(-1, 3, 7, 5)[:, -1])
        return policy(decisions)

    ours = play(env, watched, episodes=200)
    assert np.median(ours.decisions) == pytest.approx(np.median(lengths), rel=0.4)
    for sensor, seen in zip(recorded.obs, (raised, level), strict=True):
        theirs = sensor.reshape(-1, 3, 7, 5)[:, -1].mean(axis=(0, 1))
        np.testing.assert_allclose(np.concatenate(seen).mean(axis=(0, 1)), theirs, atol=0.1)


def test_the_picture_shows_what_moves():
    env = started()
    before = env.render()
    env.bodies.position[X, AGENT, 0] += 3.0
    assert (env.render() != before).any()
