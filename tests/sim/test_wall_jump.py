"""Wall Jump, by hand, and with those who know how to get over."""

import math

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_envs.testing import check_env
from mlagents_sim.examples.wall_jump import BigWallJump, SmallWallJump, WallJump
from mlagents_sim.examples.wall_jump_scene import AGENT, BLOCK, GOAL_AT
from mlagents_sim.plane import X, Z, in_frame
from worlds import Policy, at_random, play, set_discrete

WALK, JUMP = (1, 0, 0, 0), (0, 0, 0, 1)
STAY = (0, 0, 0, 0)
WALL_TAG, GOAL_TAG, BLOCK_TAG, NO_TAG, DISTANCE = range(5)


def started(world=BigWallJump, **options):
    """Make a world whose agents stand at (0, -8) and look ahead, the block aside at (-7, -7)."""
    env = world(**options)
    env.reset()
    put(env, (0.0, -8.0), (-7.0, -7.0))
    return env


def put(env, agent: tuple[float, float], block: tuple[float, float], height: float = 0.95) -> None:
    """Put all agents and blocks somewhere, at rest."""
    env.bodies.position[:, AGENT] = np.reshape(agent, (2, 1))
    env.bodies.position[:, BLOCK] = np.reshape(block, (2, 1))
    env.bodies.velocity[:] = 0.0
    env.bodies.heading[:, AGENT] = [[0.0], [1.0]]
    env.platforms.standing.height_m[:] = height
    env.platforms.standing.climb[:] = 0.0
    env.bodies.reach = env.bodies.extent()
    env.platforms.standing.look_down()


def observed(env) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the newest raised rays, level rays, (7, 5), and place of the first agent."""
    raised, level, place = env.get_steps(env.behavior_name)[0].obs
    return raised[0].reshape(6, 7, 5)[-1], level[0].reshape(6, 7, 5)[-1], place[0, -4:]


@pytest.mark.parametrize("world", [SmallWallJump, BigWallJump, WallJump])
def test_all_worlds_keep_the_contract(world):
    check_env(lambda seed: world(seed=seed), steps=40)


def test_the_scene_is_as_published():
    env = SmallWallJump()
    assert env.n_agents == 24
    specs = env.behavior_spec.observation_specs
    assert [(spec.shape, spec.name) for spec in specs] == [
        ((210,), "StackingSensor_size6_OffsetRayPerceptionSensor"),
        ((210,), "StackingSensor_size6_RayPerceptionSensor"),
        ((24,), "StackingSensor_size6_VectorSensor_size4"),
    ]
    assert env.behavior_spec.action_spec.discrete_branches == (3, 3, 3, 2)


def test_observations_by_hand():
    env = started()
    set_discrete(env, *STAY)
    raised, level, place = observed(env)
    # The wall's face is at -2.73, 4.77 m from the sphere's front.
    np.testing.assert_allclose(level[0], [1, 0, 0, 0, 4.77 / 20], rtol=1e-5)
    # The raised sphere starts at 3.45. At the wall, after t of travel, it is h = 3.45 + t / 8 - 4
    # above the edge and has a radius of sqrt(0.25 - h^2) there: t = 5.27 - 0.48, h = 0.05 + ...
    travel = 4.77
    for _ in range(50):
        above = max(3.45 + travel / 8 - 4.0, 0.0)
        travel = 5.27 - math.sqrt(0.25 - above**2)
    np.testing.assert_allclose(raised[0], [1, 0, 0, 0, travel / 20], rtol=1e-4)
    # To the left the block's near side is at x = -5.5, and z = -8 is beside its middle.
    np.testing.assert_allclose(level[6], [0, 0, 1, 0, 5.0 / 20], rtol=1e-5)
    np.testing.assert_allclose(raised[6], [0, 0, 0, 1, 1])
    np.testing.assert_allclose(place, [0.0, 0.95 / 20, -4.0 / 20, 1.0], atol=1e-6)


def test_the_goal_is_seen_from_behind_the_wall():
    env = started()
    put(env, (0.0, 2.93), (-7.0, -7.0))
    set_discrete(env, *STAY)
    raised, level, _ = observed(env)
    for rays in (raised, level):
        np.testing.assert_allclose(rays[5], [0, 1, 0, 0, (4.37 - 0.5) / 20], rtol=1e-5)


def test_a_jump_by_hand():
    # The clock of a jump, in 32-bit floats, is 3e-8 after ten steps of 0.02 s.
    left_s, n_steps = np.float32(0.2), 0
    while left_s > 0.0:
        left_s -= np.float32(0.02)
        n_steps += 1
    assert n_steps == 11
    # So long the climb changes by up to 10 toward 15.54 (2.75 - risen), then by -111 * 0.02; each
    # step, gravity takes 26.98 * 0.02, and drag 0.04 of all. It begins with
    #   climb = (10 - 0.5396) * 0.96 = 9.0820, (9.0820 + 10 - 0.5396) * 0.96 = 17.8007
    #   risen = 9.0820 * 0.02 = 0.1816, 0.1816 + 17.8007 * 0.02 = 0.5377
    expected, risen, climb = [], 0.0, 0.0
    for step in range(22):
        climb += min(15.54 * (2.75 - risen) - climb, 10.0) if step < n_steps else -2.22
        climb = (climb - 0.5396) * 0.96
        risen = max(risen + climb * 0.02, 0.0)
        expected.append(risen)
    np.testing.assert_allclose(expected[:2], [0.1816, 0.5377], atol=1e-4)
    # It ends in the first step that does not aim upward, and lands at the 22nd.
    assert expected.index(max(expected)) == 10
    assert max(expected) == pytest.approx(2.618, abs=1e-3)
    assert min(expected[:-1]) > 0.0 == expected[-1]

    env = started()
    set_discrete(env, *STAY)
    env.platforms.standing.wants_to_jump[:] = True
    heights = []
    for _ in range(25):
        env.act()
        env.physics()
        env.platforms.standing.wants_to_jump[:] = False
        heights.append(env.platforms.standing.height_m[0])
    np.testing.assert_allclose(heights, 0.95 + np.array([*expected, 0.0, 0.0, 0.0]))


def test_nobody_jumps_off_the_air():
    env = started()
    highest = 0.0
    for _ in range(40):
        set_discrete(env, *JUMP)
        highest = max(highest, env.platforms.standing.height_m.max())
    assert highest < 0.95 + 2.75 + 0.6  # a jump may begin up to 0.55 m above the ground


def test_pushes_are_halved_in_the_air():
    env = started()
    env.motion.forward[:] = 1.0
    env.act()
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], 3.0)
    put(env, (0.0, -8.0), (-7.0, -7.0), height=4.0)
    env.act()
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], 1.5)
    np.testing.assert_allclose(env.platforms.standing.climb, -2.22)  # 111 m/s2


def test_a_step_aside_takes_the_place_of_one_ahead():
    env = started()
    set_discrete(env, 1, 0, 2, 0)
    x, z = env.bodies.position[:, AGENT, 0]
    assert x > 0.1
    assert z == pytest.approx(-8.0)


def test_a_step_on_the_ground_by_hand():
    # Drag takes 2 * 0.02 of the agent's speed and of what gravity presses with, which rubs:
    #   v = (v + 3) * 0.96 - 2 * 0.6 * (26.98 * 0.02 * 0.96)
    env = started()
    set_discrete(env, *WALK)
    speed, place = 0.0, -8.0
    for _ in range(5):
        speed = (speed + 3.0) * 0.96 - 0.6216192
        place += speed * 0.02
    np.testing.assert_allclose(env.bodies.position[Z, AGENT, 0], place)


def test_walls_keep_back_who_walks():
    env = started()
    for _ in range(30):
        set_discrete(env, *WALK)
        assert env.bodies.position[Z, AGENT].max() < -2.7
    put(env, (0.0, -8.0), (0.0, -6.0))
    for _ in range(30):
        set_discrete(env, *WALK)
        assert env.bodies.position[Z, BLOCK].max() < -2.73 - 1.2
    assert env.bodies.position[Z, BLOCK].min() > -4.6


def test_a_block_goes_where_there_is_no_wall():
    env = started(SmallWallJump, parameters={"small_wall_height": 0.0})
    put(env, (0.0, -8.0), (0.0, -6.0))
    for _ in range(5):
        set_discrete(env, *WALK)
    assert env.bodies.position[Z, BLOCK].min() > -1.98 + 0.75 + 1.5  # where a wall would end


def test_one_may_stand_on_the_block_and_ride():
    env = started()
    put(env, (0.0, -8.0), (0.0, -8.0), height=3.5)
    for _ in range(10):
        set_discrete(env, *STAY)
    np.testing.assert_allclose(env.platforms.standing.height_m, 3.0)
    # An agent that brakes on the block drags it along. After drag, 3.84 and 0; friction takes
    # 0.62162, as on the ground, and gives 2.5 times that to the block, which has 10 kg of 35.
    env.bodies.velocity[Z, AGENT] = 4.0
    env.act()
    env.physics()
    np.testing.assert_allclose(env.bodies.velocity[Z, :2, 0], [3.21838, 1.55405], atol=1e-5)
    # After drag, 3.08964 and 1.52297; friction, which could end a slip of 3.5 * 0.62162, ends it:
    #   (25 * 3.08964 + 10 * 1.52297) / 35 = 2.64202
    env.act()
    env.physics()
    np.testing.assert_allclose(env.bodies.velocity[Z, :2, 0], 2.64202, atol=1e-5)


def land(env, agent: tuple[float, float], block: tuple[float, float], **options: float) -> None:
    """Put all agents and blocks somewhere with some velocities, and let a step pass."""
    put(env, agent, (-7.0, -7.0), height=options["height"])
    env.bodies.position[:, BLOCK] = np.reshape(block, (2, 1))
    env.platforms.standing.look_down()
    env.platforms.standing.climb[:] = options["climb"]
    env.bodies.velocity[:, AGENT] = [[options.get("v_x", 0.0)], [options["v_z"]]]
    env.bodies.velocity[X, BLOCK] = options.get("block_v_x", 0.0)
    env.act()
    env.physics()
    assert (env.platforms.standing.climb == 0.0).all()


def test_who_lands_rubs_by_its_fall():
    # In the air, (-5 - 2.22 - 0.5396) * 0.96 = -7.44922 is the climb that the ground stops; that
    # takes 2 * 0.6 * 7.44922 = 8.93906 of a speed of 10 * 0.96 = 9.6, and leaves 0.66094.
    env = started()
    land(env, (0.0, -8.0), (-7.0, -7.0), height=1.01, climb=-5.0, v_x=6.0, v_z=8.0)
    np.testing.assert_allclose(env.platforms.standing.height_m, 0.95)
    np.testing.assert_allclose(env.bodies.velocity[X, AGENT], 0.6 * 0.66094, atol=1e-5)
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], 0.8 * 0.66094, atol=1e-5)
    # From then on it rubs by its weight: 0.66094 * 0.96 - 0.62162.
    env.act()
    env.physics()
    np.testing.assert_allclose(np.hypot(*env.bodies.velocity[:, AGENT]), 0.01288, atol=1e-5)


def test_who_has_almost_landed_rubs_by_its_weight_once():
    # It is so near that it counts as on the ground: (-3 - 0.5396) * 0.96 = -3.39802 is stopped,
    # which takes 2 * 0.6 of that, 4.07762, of 4.8 in all.
    env = started()
    land(env, (0.0, -8.0), (-7.0, -7.0), height=0.99, climb=-3.0, v_z=5.0)
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], 0.72238, atol=1e-5)


def test_who_lands_on_the_block_takes_it_along():
    # As on the ground, 8.93906 of a speed of 40 * 0.96 = 38.4; the block gains 2.5 times that.
    env = started()
    land(env, (0.0, -8.0), (0.0, -8.0), height=3.06, climb=-5.0, v_z=40.0)
    np.testing.assert_allclose(env.platforms.standing.height_m, 3.0)
    np.testing.assert_allclose(env.bodies.velocity[Z, AGENT], 29.46094, atol=1e-5)
    np.testing.assert_allclose(env.bodies.velocity[Z, BLOCK], 22.34766, atol=1e-5)
    # A slip of (0 - 0.98, 3.84) is less than 3.5 * 8.93906 and ends. Together:
    #   10 * 0.98 / 35 = 0.28 to the right and 25 * 3.84 / 35 = 2.74286 ahead
    land(env, (0.0, -8.0), (0.0, -8.0), height=3.06, climb=-5.0, v_z=4.0, block_v_x=1.0)
    np.testing.assert_allclose(env.bodies.velocity[X, :2], 0.28, atol=1e-5)
    np.testing.assert_allclose(env.bodies.velocity[Z, :2], 2.74286, atol=1e-5)


def test_who_lands_on_the_wall_leaves_the_block_alone():
    env = started()
    land(env, (0.0, -1.98), (0.0, -8.0), height=4.56, climb=-5.0, v_z=4.0, block_v_x=1.0)
    np.testing.assert_allclose(env.platforms.standing.height_m, 4.5)
    np.testing.assert_allclose(env.bodies.velocity[:, AGENT], 0.0)  # 3.84 is less than 8.93906
    np.testing.assert_allclose(env.bodies.velocity[X, BLOCK], 0.98)
    np.testing.assert_allclose(env.bodies.velocity[Z, BLOCK], 0.0)
    # Nor does it matter that the block is as high as the wall and below the agent, too.
    env = started(parameters={"big_wall_height": 5.0})
    land(env, (0.0, -2.73), (0.0, -4.23), height=3.06, climb=-5.0, v_z=4.0)
    np.testing.assert_allclose(env.platforms.standing.height_m, 3.0)
    np.testing.assert_allclose(env.bodies.velocity[Z, :2], 0.0)


@pytest.mark.parametrize(
    ("agent", "block"),
    [((10.6, -8.0), (0.0, -6.0)), ((0.0, -14.6), (0.0, -6.0)), ((0.0, -8.0), (-10.6, -6.0))],
)
def test_off_the_platform_costs_and_ends(agent: tuple[float, float], block: tuple[float, float]):
    env = started()
    env.bodies.position[:, AGENT, 5] = agent
    env.bodies.position[:, BLOCK, 5] = block
    set_discrete(env, *STAY)
    _, terminals = env.get_steps(env.behavior_name)
    assert terminals.agent_id.tolist() == [5]
    assert terminals.reward.tolist() == [-1.0]
    assert not terminals.interrupted[0]


@pytest.mark.parametrize(
    ("agent_x", "block_x", "height", "is_off"),
    [
        (11.2, 10.0, 3.0, False),  # beyond the edge at 10.5, on the block
        (11.2, 10.0, 5.0, False),  # in the air above it
        (11.6, 10.0, 3.0, True),  # on the block, but not by its center
        (11.2, 10.6, 3.0, True),  # on the block, which is off
        (11.2, 10.0, 2.4, True),  # not above its top
    ],
)
def test_who_is_above_the_block_is_not_off(
    agent_x: float, block_x: float, height: float, is_off: bool
):
    env = started()
    put(env, (agent_x, -8.0), (block_x, -8.0), height)
    set_discrete(env, *STAY)
    _, terminals = env.get_steps(env.behavior_name)
    assert terminals.reward.tolist() == [-1.0] * 24 * is_off


def test_the_goal_pays_those_who_have_ground_below():
    env = started()
    put(env, (6.0, 2.0), (0.0, -7.0), height=3.0)
    env.physics()
    assert (env.reward == 0.0).all()  # in the goal, but in the air
    put(env, (6.0, 2.0), (0.0, -7.0))
    set_discrete(env, *STAY)
    _, terminals = env.get_steps(env.behavior_name)
    assert (terminals.reward == 1.0).all() and len(terminals) == 24
    assert not terminals.interrupted.any()


@pytest.mark.slow
def test_time_runs_out_after_four_hundred_decisions():
    env = SmallWallJump(seed=2)
    still = play(env, lambda decisions: env.behavior_spec.action_spec.empty_action(24), episodes=24)
    np.testing.assert_allclose(still.returns, -1.0, rtol=1e-3)
    assert (still.decisions == 400).all()


def test_walls_are_as_the_parameters_say():
    env = SmallWallJump(num_areas=20)
    env.reset()
    assert set(env.platforms.wall_top.tolist()) == {0.0, 2.0}
    assert 0.4 < (env.platforms.wall_top == 0.0).mean() < 0.6
    env = BigWallJump(parameters={"big_wall_height": 5.0})
    env.reset()
    assert (env.platforms.wall_top == 2.5).all()


def test_every_wall_has_a_height_of_its_own_where_that_is_drawn():
    env = BigWallJump(num_areas=20)
    env.set_uniform_sampler_parameters("big_wall_height", 4.0, 7.0, 1)
    env.reset()
    assert len(set(env.platforms.wall_top.tolist())) == env.n_agents
    assert (env.platforms.wall_top >= 2.0).all() and (env.platforms.wall_top <= 3.5).all()
    before = env.platforms.wall_top.copy()
    env.end(np.array([3]))
    assert np.flatnonzero(env.platforms.wall_top != before).tolist() == [3]


def test_in_one_scene_the_wall_decides_on_the_behavior():
    env = WallJump(num_areas=20, parameters={"small_wall_height": 3.0})
    env.reset()
    tops = {}
    for name, top in (("SmallWallJump?team=0", 0.0), ("BigWallJump?team=0", 4.0)):
        decisions, _ = env.get_steps(name)
        tops[name] = env.platforms.wall_top[decisions.agent_id]
        assert (tops[name] == top).any()
    small, big = tops.values()
    assert len(small) + len(big) == 480
    assert set(small.tolist()) == {0.0, 1.5}
    assert (small == 0.0).sum() / 480 == pytest.approx(1 / 5, abs=0.06)
    assert (big == 4.0).all() and len(big) / 480 == pytest.approx(3 / 5, abs=0.07)


def over_the_wall(env, *, by_block: bool) -> Policy:
    """Make a policy that walks to the goal and jumps at the wall.

    Or else it goes behind the block, pushes it to the wall, jumps on it and from there.
    """

    def policy(decisions: DecisionSteps) -> ActionTuple:
        agents = decisions.agent_id
        place, block = env.bodies.position[:, AGENT, agents], env.bodies.position[:, BLOCK, agents]
        x, z = place
        is_over = z > -1.0
        jumps = (z > -4.2) & ~is_over
        aim = np.stack([np.full(len(x), 6.37), np.zeros(len(x))])
        if by_block:
            is_up = env.platforms.standing.height_m[agents] > 2.8
            is_pushed = block[Z] > -4.4
            is_beside = np.abs(x - block[X]) < 0.6
            is_behind = z < block[Z] - 2.2
            jumps = is_up | is_pushed & is_beside & (z > block[Z] - 3.0) & ~is_over
            aim = np.where(is_behind, [block[X], z], [x, block[Z] - 3.5])
            aim = np.where(is_beside & (is_behind | is_pushed), [block[X], 0.0 * z], aim)
            aim = np.where(is_up, [x, 0.0 * z + 1.0], aim)
        aim = np.where(is_over, GOAL_AT, aim)
        right, ahead = in_frame(env.bodies.heading[:, AGENT, agents], aim - place)
        aside = np.degrees(np.arctan2(right, ahead))
        turn = np.where(np.abs(aside) > 16, np.where(aside > 0, 2, 1), 0)
        speed = np.hypot(*env.bodies.velocity[:, AGENT, agents])
        is_fast = (speed > 3.0 * np.hypot(*(aim - place))) & ~jumps
        walks = (np.abs(aside) < 40) & ~is_fast
        return ActionTuple(discrete=np.stack([walks, turn, 0 * turn, jumps], axis=1))

    return policy


def test_a_low_wall_is_jumped_over():
    env = SmallWallJump(seed=1)
    episodes = play(env, over_the_wall(env, by_block=False), episodes=60, max_steps=2000)
    assert (episodes.returns > 0.9).mean() > 0.7


def test_a_high_wall_is_got_over_by_the_block_alone():
    env = BigWallJump(seed=1)
    episodes = play(env, over_the_wall(env, by_block=True), episodes=30, max_steps=2000)
    assert (episodes.returns > 0.5).mean() > 0.6
    env = BigWallJump(seed=1)
    episodes = play(env, over_the_wall(env, by_block=False), episodes=24, max_steps=2000)
    assert (episodes.returns < 0.0).all()


def test_nothing_breaks_whatever_they_do():
    env = BigWallJump(num_areas=4, seed=3)
    policy = at_random(env)
    env.reset()
    for _ in range(200):
        decisions, _ = env.get_steps(env.behavior_name)
        if len(decisions):
            env.set_actions(env.behavior_name, policy(decisions))
        env.step()
        assert np.isfinite(env.platforms.standing.height_m).all()
        assert (env.platforms.standing.height_m > 0.45).all() and (
            env.platforms.standing.height_m < 10.0
        ).all()
        assert (np.abs(env.bodies.position[:, AGENT]) < 16.0).all()
