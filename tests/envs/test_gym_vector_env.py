"""All agents of a behavior as a vector environment."""

import logging
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guess_environment import GuessEnvironment
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityActionException
from mlagents_envs.registry import default_registry
from scripted_environment import CONTINUOUS, Asks, Ends, ScriptedEnvironment

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AutoresetMode  # noqa: E402
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics  # noqa: E402

from mlagents_envs.envs.unity_vector_env import UnityGymException, UnityVectorEnv  # noqa: E402

DISCRETE = BehaviorSpec([ObservationSpec.vector(1, "number")], ActionSpec(0, (2, 3)))


def make(*messages, spec=CONTINUOUS, **options):
    scripted = ScriptedEnvironment(messages, spec=spec)
    return scripted, UnityVectorEnv(scripted, **options)


def actions(*values):
    return np.array(values, np.float32)[:, None]


def test_agents_that_all_ask_fill_their_slots():
    scripted, envs = make(
        [Asks(7, 0.7), Asks(3, 0.3)],
        [Asks(7, 1.7, reward=0.5), Asks(3, 1.3, reward=0.25)],
    )
    assert envs.num_envs == 2
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, infos = envs.reset()
    np.testing.assert_allclose(observations, [[0.7], [0.3]])
    assert infos["agent_id"].tolist() == [7, 3]
    assert infos["acting"].all()

    observations, rewards, terminated, truncated, infos = envs.step(actions(0.1, -0.5))
    np.testing.assert_allclose(observations, [[1.7], [1.3]])
    np.testing.assert_allclose(rewards, [0.5, 0.25])
    assert not terminated.any()
    assert not truncated.any()
    assert "final_obs" not in infos
    np.testing.assert_allclose([*scripted.told[0].values()], [[0.1], [-0.5]])


def test_agents_keep_their_slots_in_whatever_order_they_ask():
    scripted, envs = make(
        [Asks(7, 0.7), Asks(3, 0.3)],
        [Asks(3, 1.3, reward=3.0), Asks(7, 1.7, reward=7.0)],
        [Asks(3, 2.3, reward=4.0)],
        [Asks(7, 3.7, reward=9.0), Asks(3, 3.3)],
    )
    envs.reset()
    observations, rewards, *_ = envs.step(actions(0.0, 0.0))
    np.testing.assert_allclose(observations, [[1.7], [1.3]])
    np.testing.assert_allclose(rewards, [7.0, 3.0])

    observations, rewards, _, _, infos = envs.step(actions(0.1, 0.2))
    np.testing.assert_allclose([scripted.told[-1][7], scripted.told[-1][3]], [[0.1], [0.2]])
    np.testing.assert_allclose(observations, [[1.7], [2.3]])  # 7 did not ask
    np.testing.assert_allclose(rewards, [0.0, 4.0])
    assert infos["acting"].tolist() == [False, True]

    _, rewards, _, _, infos = envs.step(actions(0.3, 0.4))
    assert [*scripted.told[-1]] == [3]
    np.testing.assert_allclose(rewards, [9.0, 0.0])
    assert infos["acting"].all()


def test_who_ends_and_asks_in_one_message_begins_in_the_same_step():
    _, envs = make(
        [Asks(0, 0.1), Asks(1, 0.2)],
        [
            Ends(1, 0.9, reward=-1.0),
            Asks(0, 0.3, reward=0.5),
            Asks(1, 0.0, reward=8.0),
        ],
    )
    envs.reset()
    observations, rewards, terminated, truncated, infos = envs.step(actions(0, 0))
    np.testing.assert_allclose(observations, [[0.3], [0.0]])
    np.testing.assert_allclose(rewards, [0.5, -1.0])  # the 8 follows from no action
    assert terminated.tolist() == [False, True]
    assert not truncated.any()
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [False, True]
    assert infos["final_obs"][0] is None
    np.testing.assert_allclose(infos["final_obs"][1], [0.9])
    assert infos["final_info"]["agent_id"].tolist() == [-1, 1]


def test_messages_in_which_nobody_asks_are_gathered_into_one_step():
    scripted, envs = make(
        [Asks(0, 0.1), Asks(1, 0.2), Asks(2, 0.3)],
        [Ends(2, 0.8, reward=1.0)],
        [Ends(0, 0.9, reward=2.0, interrupted=True), Ends(2, 0.7, reward=5.0)],
        [Asks(0, 0.0), Asks(1, 0.4, reward=3.0), Asks(2, 0.5)],
    )
    envs.reset()
    observations, rewards, terminated, truncated, infos = envs.step(actions(0, 0, 0))
    # The second end of agent 2 is of an episode in which it never asked.
    np.testing.assert_allclose(rewards, [2.0, 3.0, 1.0])
    assert terminated.tolist() == [False, False, True]
    assert truncated.tolist() == [True, False, False]
    np.testing.assert_allclose(observations, [[0.0], [0.4], [0.5]])
    np.testing.assert_allclose(infos["final_obs"][0], [0.9])
    np.testing.assert_allclose(infos["final_obs"][2], [0.8])
    assert len(scripted.told) == 3


def test_who_comes_back_later_is_not_acting_meanwhile():
    scripted, envs = make(
        [Asks(0, 0.1), Asks(1, 0.2)],
        [Ends(0, 0.9, reward=1.0), Asks(1, 0.3)],
        [Asks(5, 0.0, reward=4.0), Asks(1, 0.4, reward=0.5)],
        [Asks(5, 0.6, reward=0.25), Asks(1, 0.5)],
    )
    envs.reset()
    observations, rewards, terminated, _, infos = envs.step(actions(0, 0))
    np.testing.assert_allclose(observations, [[0.9], [0.3]])
    assert terminated.tolist() == [True, False]
    assert infos["acting"].tolist() == [False, True]

    observations, rewards, terminated, _, infos = envs.step(actions(0.7, 0.8))
    assert scripted.told[-1].keys() == {1}
    np.testing.assert_allclose(observations, [[0.0], [0.4]])
    np.testing.assert_allclose(rewards, [0.0, 0.5])
    assert not terminated.any()
    assert infos["agent_id"].tolist() == [5, 1]
    assert infos["acting"].all()

    _, rewards, *_ = envs.step(actions(0.7, 0.8))
    np.testing.assert_allclose(rewards, [0.25, 0.0])


def test_who_returns_gets_its_slot_back_before_a_newcomer_gets_it():
    _, envs = make(
        [Asks(0, 0.0), Asks(1, 0.1)],
        [Ends(0, 0.9), Ends(1, 0.9), Asks(2, 0.2), Asks(0, 0.3)],
    )
    envs.reset()
    observations, _, _, _, infos = envs.step(actions(0, 0))
    np.testing.assert_allclose(observations, [[0.3], [0.2]])
    assert infos["agent_id"].tolist() == [0, 2]


def test_agents_without_a_slot_act_on_zeros_until_there_is_one(caplog):
    scripted, envs = make(
        [Asks(0, 0.0)],
        [Asks(4, 0.4), Asks(0, 0.1)],
        [Asks(4, 0.5)],
        [Asks(4, 0.6), Ends(0, 0.9)],
        [Asks(4, 0.7)],
    )
    envs.reset()
    with caplog.at_level(logging.WARNING):
        observations, *_ = envs.step(actions(0.5))
        np.testing.assert_allclose(observations, [[0.1]])
        observations, _, terminated, _, infos = envs.step(actions(0.5))
    assert scripted.told == [{0: [0.5]}, {4: [0.0], 0: [0.5]}, {4: [0.0]}]
    # Only agent 4 asked in between, so the step went on to where agent 0 ended.
    assert terminated.tolist() == [True]
    assert infos["agent_id"].tolist() == [4]
    np.testing.assert_allclose(observations, [[0.6]])
    assert len(caplog.records) == 1
    assert "agents_per_env" in caplog.text


def test_agents_that_are_all_gone_are_not_waited_for_forever():
    _, envs = make([Asks(0, 0.1)], [Ends(0, 0.2)], *[[]] * 10_000)
    envs.reset()
    with pytest.raises(UnityGymException, match=r"no agent with a slot .* in 10000 steps"):
        envs.step(actions(0.0))
    with pytest.raises(UnityGymException, match="no agent requested an action in 10000 steps"):
        make(*[[]] * 10_001)


def test_slots_to_spare_wait_for_agents():
    _, envs = make([Asks(0, 0.5)], [Asks(0, 0.6), Asks(9, 0.9)], agents_per_env=3)
    observations, infos = envs.reset()
    np.testing.assert_allclose(observations, [[0.5], [0.0], [0.0]])
    assert infos["agent_id"].tolist() == [0, -1, -1]
    assert infos["acting"].tolist() == [True, False, False]
    observations, _, _, _, infos = envs.step(actions(1, 1, 1))
    np.testing.assert_allclose(observations, [[0.6], [0.9], [0.0]])
    assert infos["acting"].tolist() == [True, True, False]


def test_several_environments_stand_one_behind_the_other():
    scripted = [
        ScriptedEnvironment([[Asks(0, 0.0), Asks(1, 0.1)], [Asks(0, 0.2), Asks(1, 0.3)]]),
        ScriptedEnvironment([[Asks(0, 0.5)], [Ends(0, 0.9)], [Asks(0, 0.6)]]),
    ]
    envs = UnityVectorEnv(scripted)
    observations, _ = envs.reset()
    np.testing.assert_allclose(observations, [[0.0], [0.1], [0.5]])
    observations, _, terminated, _, infos = envs.step(actions(0.1, 0.2, 0.3))
    np.testing.assert_allclose(observations, [[0.2], [0.3], [0.6]])
    assert terminated.tolist() == [False, False, True]
    np.testing.assert_allclose(infos["final_obs"][2], [0.9])
    np.testing.assert_allclose(scripted[1].told[0][0], [0.3])
    envs.close()
    envs.close()
    assert [env.closed for env in scripted] == [1, 1]


class SlowEnvironment(ScriptedEnvironment):
    """One whose answer comes through a pipe, when somebody lets it."""

    def __init__(self, script, log, name):
        super().__init__(script)
        self._read, self._write = os.pipe()
        self._log, self._label = log, name

    def step_send(self):
        self._log.append(f"send {self._label}")

    def answer(self):
        os.write(self._write, b".")

    def step_receive(self):
        os.read(self._read, 1)
        self._log.append(f"receive {self._label}")
        self.step()

    def fileno(self):
        return self._read

    def close(self):
        if not self.closed:
            os.close(self._read)
            os.close(self._write)
        super().close()


def test_all_are_sent_before_the_first_answer_is_awaited_and_the_fastest_is_taken_first():
    log = []
    slow, fast = (SlowEnvironment([[Asks(0, 0.0)]] * 2, log, name) for name in ("slow", "fast"))
    here = ScriptedEnvironment([[Asks(0, 0.0)]] * 2)
    envs = UnityVectorEnv([slow, fast, here])
    envs.reset()
    envs.step_async(actions(0, 0, 0))
    assert log == ["send slow", "send fast"]
    fast.answer()
    finish = here.step_receive

    def step_receive_here():
        log.append("receive here")
        finish()

    here.step_receive = step_receive_here
    take = fast.step_receive

    def step_receive_fast():
        take()
        slow.answer()

    fast.step_receive = step_receive_fast
    envs.step_wait()
    assert log[2:] == ["receive here", "receive fast", "receive slow"]
    envs.close()


def test_masks_say_what_is_allowed():
    forbidden = [[True, False], [False, False, True]]
    _, envs = make([Asks(0, 0.0, forbidden=forbidden), Asks(1, 0.0)], [Asks(1, 0.0)], spec=DISCRETE)
    _, infos = envs.reset()
    np.testing.assert_array_equal(infos["action_mask"], [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    *_, infos = envs.step(np.array([[1, 0], [0, 2]]))
    assert infos["action_mask"].all()


def test_group_rewards_are_told_where_there_are_groups():
    _, envs = make(
        [Asks(0, 0.0, group=2), Asks(1, 0.0)],
        [Asks(0, 0.0, group=2, group_reward=0.5), Asks(1, 0.0)],
        [Ends(0, 0.0, group=2, group_reward=3.0), Asks(1, 0.0)],
    )
    envs.reset()
    *_, infos = envs.step(actions(0, 0))
    assert infos["group_reward"].tolist() == [0.5, 0.0]
    _, rewards, _, _, infos = envs.step(actions(0, 0))
    assert infos["group_reward"].tolist() == [3.0, 0.0]
    assert rewards.tolist() == [0.0, 0.0]


def test_several_observations_are_a_dict_or_side_by_side():
    matrix = ObservationSpec(
        (2, 1), (DimensionProperty.NONE,) * 2, ObservationType.DEFAULT, "matrix"
    )
    spec = BehaviorSpec([ObservationSpec.vector(1, "number"), matrix], ActionSpec(1, ()))
    script = [[Asks(0, 0.0), Asks(1, 0.1)], [Ends(0, 0.5), Asks(0, 0.25), Asks(1, 0.1)]]
    envs = UnityVectorEnv(ScriptedEnvironment(script, spec=spec))
    observations, _ = envs.reset()
    assert envs.observation_space.contains(observations)
    np.testing.assert_allclose(observations["matrix"][:, :, 0], [[0.0, 0.0], [0.1, 0.1]])
    *_, infos = envs.step(actions(0, 0))
    np.testing.assert_allclose(infos["final_obs"][0]["matrix"], [[0.5], [0.5]])

    envs = UnityVectorEnv(ScriptedEnvironment(script, spec=spec), flatten_obs=True)
    observations, _ = envs.reset()
    np.testing.assert_allclose(observations, [[0.0] * 3, [0.1] * 3], rtol=1e-6)
    *_, infos = envs.step(actions(0, 0))
    np.testing.assert_allclose(infos["final_obs"][0], [0.5] * 3)


def test_what_was_handed_out_does_not_change():
    _, envs = make([Asks(0, 0.1)], [Ends(0, 0.9), Asks(0, 0.2, reward=1)], [Asks(0, 0.3, reward=2)])
    held = [*envs.reset()]
    held += envs.step(actions(0))
    first, infos, second, rewards, terminated, _, final = held
    envs.step(actions(0))
    np.testing.assert_allclose([first, second], [[[0.1]], [[0.2]]])
    assert (rewards.tolist(), terminated.tolist()) == ([0.0], [True])
    np.testing.assert_allclose(final["final_obs"][0], [0.9])
    assert infos["acting"].tolist() == [True]


@pytest.mark.parametrize("wrong", [actions(0), actions(0, 0, 0), np.zeros((2, 2))])
def test_actions_of_another_shape_are_refused(wrong):
    _, envs = make([Asks(0, 0.0), Asks(1, 0.0)])
    envs.reset()
    with pytest.raises(UnityActionException, match=r"\(2, 1\)"):
        envs.step(wrong)
    with pytest.raises(UnityActionException, match=r"actions of the space Box\(.*got None"):
        envs.step(None)


def test_mistakes_are_named():
    with pytest.raises(UnityGymException, match="at least one environment"):
        UnityVectorEnv([])
    with pytest.raises(UnityGymException, match=r"'Walker'.*Scripted"):
        make([Asks(0, 0.0)], behavior_name="Walker")
    others = (
        ScriptedEnvironment([[Asks(0, 0.0)]]),
        ScriptedEnvironment([[Asks(0, 0.0)]], spec=DISCRETE),
    )
    with pytest.raises(UnityGymException, match="must have the same specification"):
        UnityVectorEnv([others[0], lambda *, seed: others[1]])
    assert [env.closed for env in others] == [0, 1], "what was given stays open"
    _, envs = make([Asks(0, 0.0)])
    with pytest.raises(UnityGymException, match="reset_mask"):
        envs.reset(options={"reset_mask": np.array([True])})


def test_pictures_are_of_environments():
    envs = UnityVectorEnv(
        [default_registry["Basic"].make() for _ in range(2)], render_mode="rgb_array"
    )
    assert [frame.shape for frame in envs.render()] == [(480, 640, 3)] * 2


@given(
    n_areas=st.integers(1, 3), seed=st.integers(0, 100), name=st.sampled_from(["Basic", "3DBall"])
)
def test_a_world_reports_the_same_with_and_without_the_wrapper(n_areas, seed, name):
    """Per agent id: the sums of rewards and the number of ends, whoever has the slot."""
    make_world = default_registry[name].make
    envs = UnityVectorEnv(make_world(num_areas=n_areas, seed=seed))
    world = make_world(num_areas=n_areas, seed=seed)
    world.reset()  # as the wrapper does to count agents
    world.reset()
    (behavior,) = world.behavior_specs
    _, infos = envs.reset()
    rng = np.random.default_rng(seed)
    spec = envs.behavior_spec.action_spec
    n_ends, total, n_ends_direct, total_direct = 0, 0.0, 0, 0.0
    asked: set[int] = set(world.get_steps(behavior)[0].agent_id.tolist())
    for _ in range(20):
        action = spec.random_action(envs.num_envs, rng)
        row_of = {agent: row for row, agent in enumerate(infos["agent_id"].tolist())}
        gym_action = action.discrete[:, 0] if spec.is_discrete() else action.continuous
        _, rewards, terminated, truncated, infos = envs.step(gym_action)
        total += rewards.sum(dtype=np.float64)
        n_ends += (terminated | truncated).sum()

        decisions, _ = world.get_steps(behavior)
        rows = [row_of[agent] for agent in decisions.agent_id.tolist()]
        world.set_actions(behavior, ActionTuple(action.continuous[rows], action.discrete[rows]))
        while True:
            world.step()
            decisions, terminals = world.get_steps(behavior)
            for agent, reward in zip(terminals.agent_id.tolist(), terminals.reward, strict=True):
                if agent in asked:
                    asked.remove(agent)
                    n_ends_direct += 1
                    total_direct += float(reward)
            for agent, reward in zip(decisions.agent_id.tolist(), decisions.reward, strict=True):
                total_direct += float(reward) if agent in asked else 0.0
            asked |= {*decisions.agent_id.tolist()}
            if len(decisions):
                break
    assert n_ends == n_ends_direct
    assert total == pytest.approx(total_direct, abs=1e-4)


@pytest.mark.parametrize("name", ["Basic", "3DBall"])
def test_a_seed_repeats_everything(name):
    envs = gymnasium.make_vec(f"mlagents_envs.envs:mlagents/{name}-v0", num_envs=14)

    def play(seed):
        rng = np.random.default_rng(0)
        reports = [envs.reset(seed=seed)[0]]
        for _ in range(30):
            envs.action_space.seed(int(rng.integers(1000)))
            observations, rewards, terminated, *_ = envs.step(envs.action_space.sample())
            reports += [observations, rewards, terminated]
        return reports

    for one, other in zip(play(3), play(3), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gymnasiums_wrappers_work_on_it():
    envs = UnityVectorEnv(GuessEnvironment(ActionSpec.create_continuous(1), n_agents=4))
    recorded = RecordEpisodeStatistics(envs)
    recorded.reset()
    for _ in range(4):
        *_, infos = recorded.step(np.zeros((4, 1), np.float32))
    assert infos["episode"]["l"].tolist() == [4] * 4
    listed = DictInfoToList(envs)
    listed.reset()
    for _ in range(4):
        *_, infos = listed.step(np.zeros((4, 1), np.float32))
    assert [info["final_obs"]["number"].shape for info in infos] == [(1,)] * 4


def test_players_on_the_wire_report_what_worlds_in_this_process_do():
    player = str(Path(sys.executable).with_name("mlagents-sim"))
    players, worlds = (
        UnityVectorEnv([make(1), make(2)])
        for make in (
            lambda seed: UnityEnvironment(
                player, base_port=0, seed=seed, additional_args=["3DBall"], timeout_wait=30
            ),
            lambda seed: default_registry["3DBall"].make(seed=seed),
        )
    )
    rng = np.random.default_rng(0)
    try:
        np.testing.assert_array_equal(players.reset()[0], worlds.reset()[0])
        for _ in range(40):
            action = rng.uniform(-1, 1, (24, 2)).astype(np.float32)
            reports = players.step(action), worlds.step(action)
            for one, other in zip(*(report[:4] for report in reports), strict=True):
                np.testing.assert_array_equal(one, other)
            infos, expected = (report[4] for report in reports)
            assert infos.keys() == expected.keys()
            for slot in np.flatnonzero(expected.get("_final_obs", [])):
                np.testing.assert_array_equal(infos["final_obs"][slot], expected["final_obs"][slot])
    finally:
        players.close()


def test_the_next_episode_may_begin_in_the_next_step():
    scripted, envs = make(
        [Asks(0, 0.1), Asks(1, 0.2)],
        [Ends(0, 0.5, reward=2.0, interrupted=True), Asks(0, 0.6, reward=9.0), Asks(1, 0.3)],
        [Asks(0, 0.7, reward=4.0), Asks(1, 0.4, reward=1.0)],
        [Asks(0, 0.8, reward=0.5), Ends(1, 0.9, reward=3.0)],
        autoreset_mode=AutoresetMode.NEXT_STEP,
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert UnityVectorEnv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.reset()

    observations, rewards, terminated, truncated, infos = envs.step(actions(0.1, 0.2))
    np.testing.assert_allclose(observations, [[0.5], [0.3]])  # the last of the episode
    assert rewards.tolist() == [2.0, 0.0]
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [True, False])
    assert infos["acting"].tolist() == [False, True]
    assert "final_obs" not in infos

    observations, rewards, terminated, truncated, infos = envs.step(actions(0.5, 0.5))
    np.testing.assert_allclose(scripted.told[1][0], [0.0])  # the action is ignored
    np.testing.assert_allclose(scripted.told[1][1], [0.5])
    np.testing.assert_allclose(observations, [[0.7], [0.4]])
    assert rewards.tolist() == [0.0, 1.0]
    assert not (terminated | truncated).any()
    assert infos["acting"].all()

    observations, rewards, terminated, _, _ = envs.step(actions(0.25, 0.25))
    np.testing.assert_allclose(scripted.told[2][0], [0.25])
    np.testing.assert_allclose(observations, [[0.8], [0.9]])
    assert rewards.tolist() == [0.5, 3.0]
    assert terminated.tolist() == [False, True]


def test_an_episode_that_ends_while_it_is_put_off_leaves_no_trace():
    _, envs = make(
        [Asks(0, 0.1)],
        [Ends(0, 0.2, reward=1.0), Asks(0, 0.3)],
        [Ends(0, 0.4, reward=5.0), Asks(0, 0.5)],
        [Ends(0, 0.6, reward=7.0), Asks(0, 0.7)],
        autoreset_mode=AutoresetMode.NEXT_STEP,
    )
    envs.reset()
    seen = [envs.step(actions(0.0))[:3] for _ in range(3)]
    np.testing.assert_allclose([obs[0, 0] for obs, _, _ in seen], [0.2, 0.5, 0.6])
    assert [reward[0] for _, reward, _ in seen] == [1.0, 0.0, 7.0]
    assert [bool(ended[0]) for _, _, ended in seen] == [True, False, True]


def test_scenes_cannot_wait_for_a_reset_of_single_agents():
    with pytest.raises(UnityGymException, match="expected SAME_STEP or NEXT_STEP"):
        make([Asks(0, 0.1)], autoreset_mode=AutoresetMode.DISABLED)


def test_gymnasium_makes_vector_environments_of_either_mode():
    envs = gymnasium.make_vec(
        "mlagents_envs.envs:mlagents/3DBall-v0", 3, autoreset_mode=AutoresetMode.NEXT_STEP
    )
    # Its wrappers for observations take environments of this mode only.
    envs = gymnasium.wrappers.vector.NormalizeObservation(envs)
    envs.reset(seed=1)
    assert envs.step(envs.action_space.sample())[0].shape == (3, 8)
    envs.close()
