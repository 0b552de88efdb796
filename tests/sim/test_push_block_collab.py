"""Cooperative Push Block: by hand, and against play recorded with Unity's physics."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.push_block_collab import AGENTS, BLOCKS, SIZES_M, PushBlockCollab
from mlagents_sim.plane import X, Z
from mlagents_sim.turning import Box, TurningBoxes
from seeds import NIGHTLY
from shared_data import ROOT, require

NAME = PushBlockCollab.behavior_name
NOTHING, FORWARD, BACK, TURN_RIGHT, TURN_LEFT, LEFT, RIGHT = range(7)
WALL, AGENT, GOAL, SMALL, LARGE, VERY_LARGE = range(6)


def started(**options) -> PushBlockCollab:
    """Make a world whose agents stand at x = -4, 0, 4 in the middle, and whose blocks are behind.

    The blocks are in a row at z = 10, none of which an agent that looks back to the goal sees.
    """
    env = PushBlockCollab(**options)
    env.reset()
    boxes = env.boxes
    boxes.heading[:] = [[[0.0]], [[1.0]]]
    boxes.heading[Z, AGENTS] = -1.0
    boxes.position[X] = np.array([-9.5, -7.0, -5.0, -3.0, 0.0, 4.0, -4.0, 0.0, 4.0])[:, None]
    boxes.position[Z] = np.array([10.0] * 6 + [0.0] * 3)[:, None]
    return env


def decide(env: PushBlockCollab, *actions: int) -> None:
    """Step until the next report; the agents of every room do the given actions, or nothing."""
    rows = np.zeros((env.n_agents // 3, 3), np.int32)
    rows[:, : len(actions)] = actions
    env.set_actions(NAME, ActionTuple(discrete=rows.reshape(-1, 1)))
    env.step()


@pytest.mark.parametrize("num_areas", [pytest.param(1, marks=NIGHTLY), 2])
def test_push_block_collab_keeps_the_contract(num_areas: int):
    check_env(lambda seed: PushBlockCollab(seed=seed, num_areas=num_areas), steps=30)


def test_the_scene_is_as_published():
    env = PushBlockCollab()
    assert env.n_agents == 12
    assert env.group.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    grid, body = env.behavior_spec.observation_specs
    assert (grid.shape, body.shape) == ((6, 20, 20), (10,))
    assert sorted([grid.name, body.name]) == [grid.name, body.name]
    assert sorted(SIZES_M.tolist()) == [1, 1, 2, 2, 3, 3]


def test_bodies_begin_inside_and_apart():
    env = PushBlockCollab(num_areas=10, seed=4)
    env.reset()
    place = env.boxes.position
    assert np.abs(place).max() <= 6.25
    distance = np.hypot(*(place[:, :, None] - place[:, None]))
    assert (distance[np.triu_indices(9, 1)] > 1.4).all()
    assert env.boxes.is_solid.all()


def test_what_the_grid_sees_by_hand():
    env = started()
    env.boxes.position[:, :BLOCKS] = 5.0
    env.boxes.position[:, 2] = [[4.0], [-3.0]]  # a small block before the third agent
    env.boxes.position[:, 5] = [[0.0], [-5.0]]  # a very large one before the second
    decide(env)
    # Rows run from the right to the left of an agent, columns away from it; each looks to z < 0.
    first, second, third = env.get_steps(NAME)[0].obs[0][:3]
    # The second agent: a block from 3.5 to 6.5 m ahead and 1.5 m to either side.
    at = np.argwhere(second[VERY_LARGE])
    assert at.min(axis=0).tolist() == [8, 3] and at.max(axis=0).tolist() == [11, 6]
    # The goal begins 8.35 m ahead, and ends at the wall, 12.5 m ahead, which is 1 m thick.
    assert second[GOAL, 5, 8:13].all() and not second[GOAL, 5, :8].any()
    assert second[WALL, 5, 13] == 1.0 and not second[WALL, 5, :12].any()
    # Mates 4 m to either side, level with it: half of them is behind the grid.
    at = np.argwhere(second[AGENT])
    assert sorted(set(at[:, 0].tolist())) == [5, 6, 13, 14]
    assert set(at[:, 1].tolist()) == {0}
    # The third agent, at x = 4, has a small block 3 m ahead, and x < 0 to its right.
    at = np.argwhere(third[SMALL])
    assert at.min(axis=0).tolist() == [9, 2] and at.max(axis=0).tolist() == [10, 3]
    assert third[VERY_LARGE].any() and first[VERY_LARGE].any()
    # Beyond the corners of the room there is nothing.
    assert not third[:, :, 14:].any()
    # The wall at x = 12.5 is 8.5 m to the left of the third agent.
    assert third[WALL, 18, :8].all()


def test_velocity_is_seen_from_the_agent():
    env = started()
    env.boxes.velocity[:, AGENTS] = [[[1.0]], [[-5.0]]]
    body = env.observe(slice(None))[1][0]
    np.testing.assert_allclose(body, [-1.0, 0, 5.0, 0, 0, 0, 0, 0, 0, 1])


@pytest.mark.parametrize(("block", "reward"), [(2, 1.0), (0, 2.0), (4, 3.0)])
def test_blocks_in_the_goal_are_paid_by_their_size_and_vanish(block: int, reward: float):
    env = started()
    env.boxes.position[:, block, 0] = 0.0, -8.36 + SIZES_M[block] / 2
    decide(env)
    rewards = env.get_steps(NAME)[0].group_reward
    np.testing.assert_allclose(rewards[:3], reward - 0.0005, rtol=1e-4)
    np.testing.assert_allclose(rewards[3:], -0.0005, rtol=1e-4)
    assert not env.get_steps(NAME)[0].reward.any()
    assert not env.boxes.is_solid[block, 0] and env.boxes.is_solid.sum() == 9 * 4 - 1
    decide(env)
    np.testing.assert_allclose(env.get_steps(NAME)[0].group_reward, -0.0005, rtol=1e-4)


def test_the_group_ends_when_all_blocks_are_in_the_goal():
    env = started()
    env.boxes.is_solid[1:BLOCKS, 1] = False
    env.boxes.position[:, 0, 1] = 0.0, -8.0
    decide(env)
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [3, 4, 5]
    assert not terminals.interrupted.any()
    np.testing.assert_allclose(terminals.group_reward, 2.0 - 0.0001, rtol=1e-5)
    assert env.boxes.is_solid.all()


def test_time_interrupts_the_group():
    env = started()
    env.max_steps = 20
    env.reset()
    for _ in range(4):
        decide(env)
    _, terminals = env.get_steps(NAME)
    assert len(terminals) == 12 and terminals.interrupted.all()


def test_parameters_that_do_not_exist_are_refused():
    with pytest.raises(UnityEnvironmentException, match="gravity"):
        PushBlockCollab(parameters={"block_scale": 2.0})


def test_the_picture_shows_blocks():
    env = started()
    before = env.render()
    env.boxes.is_solid[0, 0] = False
    assert (env.render() != before).any()


# Recorded play.


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("kind", ["steps", "decisions"])
def test_recorded_pushing_goes_as_in_unity(kind: str):
    # Every decision is played from the recorded state before it. In the recordings the goal does
    # not take blocks, so only the boxes are played.
    recorded = np.load(require(ROOT / "physics" / f"pushblockcollab_random_{kind}.npz"))
    states = np.concatenate([recorded["state0"][:, None], recorded["state"]], axis=1)
    states = states[:, ::5] if kind == "steps" else states
    now, then = (states[:, k : states.shape[1] - 1 + k].reshape(-1, 9, 13) for k in range(2))
    env = PushBlockCollab(num_areas=-(-len(now) // 4))
    env.reset()
    boxes, n = env.boxes, len(now)
    boxes.is_solid[:, n:] = False
    boxes.position[..., :n] = now[..., [0, 2]].T
    boxes.velocity[..., :n] = now[..., [7, 9]].T
    boxes.spin[:BLOCKS, :n] = now[:, :BLOCKS, 11].T
    yaw = 2.0 * np.arctan2(now[..., 4], now[..., 6]).T
    boxes.heading[..., :n] = np.sin(yaw), np.cos(yaw)
    actions = recorded["actions"][..., 0].reshape(-1, 1).astype(np.int32)
    env.command(np.arange(3 * n), ActionTuple(discrete=actions))
    touched = np.zeros((9, n), np.bool_)
    for _ in range(5):
        env.act()
        for contact in boxes._contacts():
            (a, b), areas = contact._at
            for one in (a, b):
                is_box = (one < 9) & (areas < n)
                touched[one[is_box], areas[is_box]] = True
        boxes.move()
    error = np.hypot(*(boxes.position[..., :n] - then[..., [0, 2]].T))
    for which in (slice(0, BLOCKS), AGENTS):
        free, met = error[which][~touched[which]], error[which][touched[which]]
        assert np.median(free) <= 0.0001 and np.quantile(free, 0.95) <= 0.01
        assert np.median(met) <= 0.005 and np.quantile(met, 0.9) <= 0.05
    turned = (
        np.arctan2(*boxes.heading[:, :BLOCKS, :n])
        - 2.0 * np.arctan2(then[:, :BLOCKS, 4], then[:, :BLOCKS, 6]).T
    )
    off = np.abs(np.degrees(np.angle(np.exp(1j * turned))))[touched[:BLOCKS]]
    assert np.median(off) <= 0.1 and np.quantile(off, 0.9) <= 1.0


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("n_agents", [1, 2, 3])
@pytest.mark.parametrize(
    ("size", "edge_m", "mass"),
    [("small", 1.0, 10.0), ("large", 2.0, 100.0), ("verylarge", 3.0, 150.0)],
)
def test_blocks_pushed_head_on_go_as_in_unity(size: str, edge_m: float, mass: float, n_agents: int):
    # After about 4 s, agents and small blocks run over the edge of the recorded ground and fall:
    # their height decreases. Speeds are compared while all stand on it.
    recorded = np.load(require(ROOT / "physics" / "pushblock_head_on.npz"))[f"{size}_{n_agents}"]
    block = Box((edge_m / 2, edge_m / 2), mass, 0.5, 0.05)
    agent = Box((0.5, 0.5), 10.0, 4.0, turns=False)
    boxes = TurningBoxes(
        1, [block, *[agent] * n_agents], low=(-1e3, -1e3), high=(1e3, 1e3), gravity=14.715
    )
    boxes.position[:, :, 0] = recorded[0][:, [0, 2]].T
    boxes.velocity[:, :, 0] = recorded[0][:, [7, 9]].T
    is_standing = (recorded[:, :, 1] > recorded[0, :, 1] - 0.01).all(axis=1)
    last = len(recorded) if is_standing.all() else int(is_standing.argmin())
    assert last > 150
    for _ in range(1, last):
        boxes.velocity[Z, 1:] += 3.0
        boxes.move()
    speed = np.hypot(*recorded[last - 1, 0, [7, 9]])
    ours = np.hypot(*boxes.velocity[:, 0, 0])
    if speed < 0.01:
        assert ours < 0.01
    else:
        assert ours == pytest.approx(speed, rel=0.1)
