"""Dungeon Escape: by hand, and with a policy trained in Unity."""

from collections.abc import Callable

import numpy as np
import pytest

from mlagents_envs.base_env import ActionTuple, DecisionSteps
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.testing import check_env
from mlagents_sim.examples.dungeon_escape import (
    DRAGON,
    DRAGON_HEADING,
    DRAGON_START,
    PORTAL,
    DungeonEscape,
)
from mlagents_sim.plane import X, Z
from seeds import NIGHTLY
from shared_data import ROOT, require

NAME = DungeonEscape.behavior_name
NOTHING, FORWARD, BACK, TURN_RIGHT, TURN_LEFT, LEFT, RIGHT = range(7)
WALL, AGENT, DRAGON_TAG, KEY, LOCK, PORTAL_TAG, NO_TAG, DISTANCE = range(8)


def started(**options) -> DungeonEscape:
    """Make a world whose agents stand side by side at z = -8 and look ahead; dragons wait."""
    env = DungeonEscape(**options)
    env.reset()
    env.bodies.stand()
    env.bodies.heading[:, :DRAGON] = [[[0.0]], [[1.0]]]
    env.bodies.position[:, :DRAGON] = np.array([[-2.0, 0.0, 2.0], [-8.0] * 3])[..., None]
    env.dragon_m_s[:] = 0.0
    return env


def decide(env: DungeonEscape, **of_agents: int) -> None:
    """Step until the next decision; the agents that are named, a0 for example, act."""
    decisions, _ = env.get_steps(NAME)
    actions = [of_agents.get(f"a{agent}", NOTHING) for agent in decisions.agent_id.tolist()]
    env.set_actions(NAME, ActionTuple(discrete=np.reshape(actions, (-1, 1))))
    env.step()


def newest_rays(env: DungeonEscape, row: int) -> np.ndarray:
    """Return the newest rays of an agent: (15, 8)."""
    return env.get_steps(NAME)[0].obs[1][row].reshape(3, 15, 8)[-1]


@pytest.mark.parametrize("num_areas", [pytest.param(1, marks=NIGHTLY), 2])
def test_dungeon_escape_keeps_the_contract(num_areas: int):
    check_env(lambda seed: DungeonEscape(seed=seed, num_areas=num_areas), steps=30)


def test_the_scene_is_as_published():
    env = DungeonEscape()
    assert env.n_agents == 36
    assert env.group.tolist() == [1 + k // 3 for k in range(36)]
    specs = env.behavior_spec.observation_specs
    assert [spec.shape for spec in specs] == [(10,), (360,), (1,)]
    assert [spec.name for spec in specs] == sorted(spec.name for spec in specs)


def test_agents_begin_with_room_around_them():
    env = DungeonEscape(num_areas=20, seed=3)
    env.reset()
    place = env.bodies.position[:, :3]
    assert np.abs(place).max() <= 6.25
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (np.abs(place[:, one] - place[:, other]).max(axis=0) > 3.0).all()
    assert (env.bodies.position[:, DRAGON] == DRAGON_START[:, None]).all()


def test_what_the_rays_see_by_hand():
    env = started()
    decide(env)
    # The middle agent, 16 m behind the dragon, whose front corner of 30.6 degrees is nearest.
    rays = newest_rays(env, 1)
    assert rays[0, DRAGON_TAG] == 1.0
    np.testing.assert_allclose(rays[0, DISTANCE] * 40.0, 16 - 0.75 * 1.37 - 0.5, atol=0.25)
    # The left agent looks past the dragon: the wall, a sphere of 0.5 from it, and the door to its
    # right, 1.5 m wide to either side.
    rays = newest_rays(env, 0)
    assert rays[0, WALL] == 1.0
    np.testing.assert_allclose(rays[0, DISTANCE] * 40.0, 20.0, rtol=1e-5)
    env.bodies.position[X, 0] = -1.8  # 0.3 beside the door: 0.4 before it, at its corner
    decide(env)
    rays = newest_rays(env, 0)
    assert rays[0, LOCK] == 1.0
    np.testing.assert_allclose(rays[0, DISTANCE] * 40.0, 12.07 + 8 - 0.4, rtol=1e-5)


def test_mates_columns_and_portal_are_seen():
    env = started()
    env.bodies.position[:, 0] = [[-4.5], [-8.0]]  # before a column, whose base is 0.845 wide
    env.bodies.position[:, 1] = [[6.5], [-6.5]]
    env.bodies.heading[:, 1] = np.sqrt(0.5) * np.array([[1.0], [-1.0]])  # to the portal
    decide(env)
    # The base is 0.18 m high, where a sphere of 0.5 m is 0.384 m wide.
    column, portal = newest_rays(env, 0)[0], newest_rays(env, 1)[0]
    assert column[WALL] == 1.0
    np.testing.assert_allclose(column[DISTANCE] * 40, 4.0 - 0.845 - 0.384187, rtol=1e-5)
    assert portal[PORTAL_TAG] == 1.0
    np.testing.assert_allclose(portal[DISTANCE] * 40, np.hypot(5.08, 5.09) - 0.75 - 0.5, rtol=1e-4)
    env.bodies.position[:, 2] = [[6.5], [-3.5]]
    env.bodies.heading[:, 2] = [[0.0], [-1.0]]
    decide(env)
    mate = newest_rays(env, 2)[0]
    assert mate[AGENT] == 1.0
    np.testing.assert_allclose(mate[DISTANCE] * 40, 3.0 - np.sqrt(0.5) - 0.5, rtol=1e-4)


def meet_dragon(env: DungeonEscape, member: int) -> None:
    """Put an agent of every area close to the dragon and let it run into it."""
    env.bodies.position[:, member] = [[0.0], [6.2]]
    decide(env, **{f"a{k}": FORWARD for k in range(member, env.n_agents, 3)})


def test_the_agent_that_slays_the_dragon_dies_and_leaves_a_tombstone():
    env = started(num_areas=2)
    meet_dragon(env, 1)
    assert env.is_slain.all() and env.has_dropped.all()
    slayers = list(range(1, env.n_agents, 3))
    while not len(env.get_steps(NAME)[0]):
        env.step()
    assert not set(slayers) & set(env.get_steps(NAME)[0].agent_id.tolist())
    assert not env.is_present[1] and env.is_present[0]
    # Mates see a key where the dragon was, and a wall that the tombstone is.
    env.bodies.position[:, 0] = [[4.0], [8.0]]
    env.bodies.heading[:, 0] = [[-1.0], [0.0]]
    env.bodies.position[:, 2] = [[0.0], [2.0]]
    decide(env)
    assert newest_rays(env, 0)[0, KEY] == 1.0
    assert newest_rays(env, 1)[0, WALL] == 1.0
    assert newest_rays(env, 1)[0, DISTANCE] * 40 < 5.0


def test_the_agent_that_dies_is_reported_once_and_without_an_interruption():
    env = started()
    env.bodies.position[:, 1] = [[0.0], [6.2]]
    decisions, _ = env.get_steps(NAME)
    env.set_actions(NAME, ActionTuple(discrete=np.full((len(decisions), 1), FORWARD)))
    env.step()
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == list(range(1, 36, 3))
    assert terminals.group_id.tolist() == list(range(1, 13))
    assert not terminals.interrupted.any()
    assert not terminals.group_reward.any()


def take_key(env: DungeonEscape, member: int) -> None:
    env.bodies.position[:, member] = DRAGON_START[:, None]
    decide(env)


def test_the_door_opens_for_the_agent_with_the_key_alone():
    env = started()
    meet_dragon(env, 0)
    take_key(env, 1)
    assert (env.carrier == 1).all() and not env.has_dropped.any()
    assert env.get_steps(NAME)[0].obs[2][:2, 0].tolist() == [1.0, 0.0]
    env.bodies.position[:, 2] = [[0.0], [11.56]]  # the agent without the key, at the door
    decide(env)
    assert not len(env.get_steps(NAME)[1])
    env.bodies.position[:, 2] = [[0.0], [0.0]]
    env.bodies.position[:, 1] = [[0.0], [11.56]]
    decide(env)
    _, terminals = env.get_steps(NAME)
    assert len(terminals) == 24  # those alive
    assert set(terminals.group_reward.tolist()) == {1.0}
    assert not terminals.interrupted.any()
    while not len(env.get_steps(NAME)[0]):
        env.step()
    assert len(env.get_steps(NAME)[0]) == 36


def put_into_portal(env: DungeonEscape, *members: int) -> None:
    for member in members:
        env.bodies.position[:, member] = PORTAL[:, None] - [[1.0], [-1.0]]
    decide(env)


def test_an_agent_in_the_portal_is_lost_and_the_last_one_ends_the_group():
    env = started()
    put_into_portal(env, 0)
    assert env.get_steps(NAME)[1].agent_id.tolist() == list(range(0, 36, 3))
    assert env.is_present.sum() == 24
    put_into_portal(env, 1)
    assert env.is_present.sum() == 12
    put_into_portal(env, 2)
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == list(range(2, 36, 3))
    assert not terminals.group_reward.any() and not terminals.interrupted.any()
    assert env.is_present.all()


def test_the_key_in_the_portal_ends_the_group():
    env = started()
    meet_dragon(env, 0)
    take_key(env, 1)
    put_into_portal(env, 1)
    assert len(env.get_steps(NAME)[1]) == 24
    assert (env.carrier == -1).all() and not env.is_slain.any()


def test_the_dragon_walks_to_the_portal_and_ends_the_group():
    env = started()
    env.dragon_m_s[:] = 7.0
    steps = 0
    while not len(env.get_steps(NAME)[1]):
        decide(env)
        steps += 1
    # 22.8 m to the middle of the portal, less 0.75 m of it and the dragon's extent that way.
    assert 15 * 0.2 < env.step_count * 0.02 < 22.8 / 7.0
    _, terminals = env.get_steps(NAME)
    assert len(terminals) == 36 and not terminals.group_reward.any()
    np.testing.assert_allclose(np.hypot(*DRAGON_HEADING), 1.0)


def test_if_all_die_nothing_happens_until_the_time_is_up():
    env = started()
    meet_dragon(env, 0)
    put_into_portal(env, 1)
    env.max_steps = 100
    env._next_clock = 100
    # In the first area, the last agent dies too; the others are lost.
    env.leave(np.array([2]))
    env.bodies.position[:, 2, 1:] = PORTAL[:, None] - [[1.0], [-1.0]]
    env.step()
    assert env.get_steps(NAME)[1].agent_id.tolist() == [2, *range(5, 36, 3)]
    while env.step_count < 100:
        env.step()
        assert 0 not in env.get_steps(NAME)[1].group_id - 1
    assert env.is_present[:3].all()  # brought back by the time limit


def test_parameters_that_do_not_exist_are_refused():
    with pytest.raises(UnityEnvironmentException, match="gravity"):
        DungeonEscape(parameters={"gravitation": 9.81})
    with pytest.raises(UnityEnvironmentException, match="finite"):
        DungeonEscape(parameters={"gravity": float("nan")})


def old_unity_policy() -> Callable[[DecisionSteps], ActionTuple]:
    """Return the published policy: all observations in a row, log-probabilities out."""
    onnxruntime = pytest.importorskip("onnxruntime")
    file = require(ROOT / "models" / "DungeonEscape.onnx")
    session, rng = onnxruntime.InferenceSession(file), np.random.default_rng(1)

    def policy(decisions: DecisionSteps) -> ActionTuple:
        masks = np.ones((len(decisions), 7), np.float32)
        inputs = {
            "vector_observation": np.concatenate(decisions.obs, axis=1),
            "action_masks": masks,
        }
        (log_probabilities,) = session.run(["action"], inputs)
        drawn = log_probabilities + rng.gumbel(size=log_probabilities.shape)
        return ActionTuple(discrete=drawn.argmax(axis=1)[:, None])

    return policy


def test_a_policy_trained_in_unity_escapes():
    policy, env = old_unity_policy(), DungeonEscape(seed=5)
    env.reset()
    outcomes: list[float] = []
    running: dict[int, float] = {}
    while len(outcomes) < 100:
        decisions, terminals = env.get_steps(NAME)
        for steps in (decisions, terminals):
            for group, reward in zip(steps.group_id.tolist(), steps.group_reward, strict=True):
                running[group] = max(running.get(group, 0.0), float(reward))
        # Groups that ended are those whose members have all begun again.
        for group in set(terminals.group_id.tolist()):
            if env.is_present[3 * group - 3 : 3 * group].all():
                outcomes.append(running.pop(group))
        if len(decisions):
            env.set_actions(NAME, policy(decisions))
        env.step()
    assert np.mean(outcomes) >= 0.95


def test_the_picture_shows_dragon_and_key():
    env = started()
    before = env.render()
    assert before.dtype == np.uint8 and before.shape[2] == 3
    env.is_slain[0] = True
    assert (env.render() != before).any()
    env.bodies.position[Z, 0, 0] += 3.0
    assert (env.render() != before).any()
