from contextlib import closing

import numpy as np
import pytest

from demonstrations import arrays_of
from document_examples import run_examples
from guess_environment import GuessEnvironment
from mlagents_envs.base_env import ActionSpec, ActionTuple
from mlagents_envs.demonstration_file import read_demonstration
from mlagents_envs.demonstration_recorder import DemonstrationRecorder
from mlagents_envs.exception import (
    UnityActionException,
    UnityDemonstrationException,
    UnityEnvironmentException,
    UnityNonFiniteException,
)
from mlagents_envs.registry import default_registry
from mlagents_envs.side_channel.environment_parameters_channel import ParameterReceiver
from mlagents_envs.side_channel.stats_side_channel import StatsSource
from mlagents_envs.testing import check_env
from mlagents_sim import recorder
from skirmish_environment import (
    GROUP,
    GROUP_REWARD,
    SCOUT,
    SPECS,
    TANK,
    Moment,
    SkirmishEnvironment,
)

BASIC, RIGHT = "Basic?team=0", 2


def test_the_former_import_path_still_works():
    assert recorder.DemonstrationRecorder is DemonstrationRecorder


# Scout 1 ends in the third step, scout 2 goes on.
SCOUTS = (
    Moment({SCOUT: [1, 2]}),
    Moment({SCOUT: [1, 2]}),
    Moment({SCOUT: [2]}, {SCOUT: {1: True}}),
)


def scouts(path):
    return DemonstrationRecorder(SkirmishEnvironment(SCOUTS, {SCOUT: SPECS[SCOUT]}), path)


def choose(env, *choices):
    """Let the scouts that ask choose, and step."""
    env.set_actions(SCOUT, ActionTuple(discrete=np.array([choices]).T))
    env.step()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "play.demo"


@pytest.mark.parametrize("name", ["Basic", "3DBall"])
def test_a_recorder_keeps_the_contract_of_environments(name, path):
    def make(seed):
        return DemonstrationRecorder(default_registry[name].make(seed=seed), path)

    check_env(make, is_random=name != "Basic")


def test_an_episode_of_basic_by_hand(path):
    with closing(DemonstrationRecorder(default_registry["Basic"].make(), path)) as env:
        env.reset()
        for _ in range(7):
            env.set_actions(BASIC, ActionTuple(discrete=np.array([[RIGHT]])))
            env.step()
    demonstration = read_demonstration(path)
    records = demonstration.records
    assert demonstration.behavior_name == BASIC
    assert demonstration.spec == env.behavior_specs[BASIC]
    # Seven steps from cell 10 to 17, and the end.
    assert records.obs[0].argmax(axis=1).tolist() == [*range(10, 18)]
    assert records.action.discrete[:7, 0].tolist() == [RIGHT] * 7
    np.testing.assert_allclose(records.reward, [0.0, *[-0.01] * 6, 0.99], atol=1e-6)
    assert records.done.tolist() == [*[False] * 7, True]
    assert not records.interrupted.any()
    assert demonstration.metadata.name == "play"


def test_agents_that_play_at_the_same_time_are_written_one_after_the_other(path):
    with closing(scouts(path)) as env:
        env.reset()
        choose(env, 0, 1)
        choose(env, 2, 0)
        choose(env, 1)
    records = read_demonstration(path).records
    # Scout 1 ended; the script began again, where scout 2 asked for the last time.
    assert records.agent_id.tolist() == [1, 1, 1, 2, 2, 2, 2]
    assert records.obs[0][:, 1].tolist() == [0, 1, 2, 0, 1, 2, 0]  # moments of the script
    assert records.done.tolist() == [False, False, True, False, False, False, True]
    assert records.interrupted.tolist() == records.done.tolist()
    assert records.reward.tolist() == records.obs[0][:, 1].tolist()
    actions = records.action.discrete[:, 0]
    assert actions[~records.done].tolist() == [0, 2, 1, 0, 1]
    assert records.action_mask[0].tolist() == [[False, False, False]] * 3 + [
        [False, False, True]
    ] * 3 + [[False, False, False]]


def test_a_reset_cuts_episodes_off_where_agents_asked_last(path):
    with closing(scouts(path)) as env:
        env.reset()
        choose(env, 0, 1)
        env.reset()
        choose(env, 0, 1)
    records = read_demonstration(path).records
    assert records.agent_id.tolist() == [1, 1, 2, 2] * 2
    assert records.done.tolist() == records.interrupted.tolist() == [False, True] * 4


def test_who_does_not_ask_when_it_is_cut_off_ends_with_its_last_decision(path):
    script = (Moment({SCOUT: [1, 2]}), Moment({SCOUT: [1, 2]}), Moment({SCOUT: [2]}))
    simulation = SkirmishEnvironment(script, {SCOUT: SPECS[SCOUT]})
    with closing(DemonstrationRecorder(simulation, path)) as env:
        env.reset()
        choose(env, 1, 0)
        choose(env, 2, 0)
    records = read_demonstration(path).records
    assert records.agent_id.tolist() == [1, 1, 2, 2, 2]
    assert records.obs[0][:, 1].tolist() == [0, 1, 0, 1, 2]
    assert records.action.discrete[0, 0] == 1


def test_episodes_in_which_nothing_was_done_are_left_out(path):
    with closing(scouts(path)) as env:
        env.reset()
        env.reset()
    assert not path.exists()


def test_who_was_told_nothing_does_nothing(path):
    with closing(scouts(path)) as env:
        env.reset()
        env.set_action_for_agent(SCOUT, 2, ActionTuple(discrete=np.array([[1]])))
        env.step()
        env.step()
    records = read_demonstration(path).records
    first = {agent: records.action.discrete[records.agent_id == agent][0, 0] for agent in (1, 2)}
    assert first == {1: 0, 2: 1}


def test_a_step_in_two_phases_is_recorded_as_one(path, tmp_path):
    whole = tmp_path / "whole.demo"
    for file, in_two_phases in ((path, True), (whole, False)):
        with closing(DemonstrationRecorder(default_registry["3DBall"].make(seed=1), file)) as env:
            rng = np.random.default_rng(0)
            env.step_receive()  # the first step is a reset
            for _ in range(40):
                (name,) = env.behavior_specs
                decisions, _ = env.get_steps(name)
                spec = env.behavior_specs[name].action_spec
                env.set_actions(name, spec.random_action(len(decisions), rng))
                if in_two_phases:
                    env.step_send()
                    assert env.fileno() is None
                    env.step_receive()
                else:
                    env.step()
    for one, other in zip(
        *(arrays_of(read_demonstration(file).records) for file in (path, whole)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_arrays_of_actions_may_be_used_again(path):
    action = ActionTuple(discrete=np.array([[1], [1]]))
    with closing(scouts(path)) as env:
        env.reset()
        env.set_actions(SCOUT, action)
        env.step()
        action.discrete[:] = 2
        env.set_actions(SCOUT, action)
        env.step()
    records = read_demonstration(path).records
    assert records.action.discrete[~records.done, 0].tolist() == [1, 2, 1, 2]


def test_rewards_add_up_to_those_of_the_play(path):
    world = GuessEnvironment(ActionSpec.create_hybrid(1, (3,)), n_agents=4, episode_steps=5)
    total = 0.0
    with closing(DemonstrationRecorder(world, path)) as env:
        env.reset()
        rng = np.random.default_rng(0)
        for _ in range(10):
            env.set_actions(world.BEHAVIOR, world.spec.action_spec.random_action(4, rng))
            env.step()
            total += sum(steps.reward.sum() for steps in env.get_steps(world.BEHAVIOR))
    demonstration = read_demonstration(path)
    records = demonstration.records
    np.testing.assert_allclose(records.reward.sum(), total, rtol=1e-5)
    assert records.done.sum() == 8
    # The end of the recording counts as one more.
    assert demonstration.metadata.number_episodes == 9
    # Odd agents' episodes are cut by a clock.
    assert (
        records.interrupted[records.done].tolist()
        == (records.agent_id[records.done] % 2 == 1).tolist()
    )
    assert all(mask[~records.done][:, 2].all() for mask in records.action_mask)


def test_one_of_several_behaviors_is_recorded(path):
    simulation = SkirmishEnvironment()
    with closing(DemonstrationRecorder(simulation, path, behavior_name=TANK, name="tanks")) as env:
        env.reset()
        told = ActionTuple(np.array([[0.25]]), np.array([[1, 2]]))
        for _ in range(3):
            if len(env.get_steps(TANK)[0]):
                env.set_actions(TANK, told)
            env.set_actions(
                SCOUT, ActionTuple(discrete=np.zeros((len(env.get_steps(SCOUT)[0]), 1)))
            )
            env.step()
    assert simulation.closed
    demonstration = read_demonstration(path)
    assert demonstration.metadata.name == "tanks"
    records = demonstration.records
    # It asked at 0 and 1, and was interrupted at 3.
    assert records.obs[0].tolist() == [[3, 0], [3, 1], [3, 3]]
    assert records.obs[1].shape == (3, 1, 2, 3)
    assert records.action.continuous[:2].tolist() == [[0.25]] * 2
    assert records.action.discrete[:2].tolist() == [[1, 2]] * 2
    assert records.interrupted.tolist() == [False, False, True]
    assert records.group_id.tolist() == [GROUP] * 3
    assert records.group_reward.tolist() == [GROUP_REWARD] * 3


def test_which_of_several_behaviors_must_be_said(path):
    env = DemonstrationRecorder(SkirmishEnvironment(), path)
    with pytest.raises(UnityEnvironmentException, match="behavior_name"):
        env.reset()


def test_a_behavior_is_recorded_from_when_it_appears(path):
    script = [Moment({SCOUT: [1], TANK: [3]})]
    simulation = SkirmishEnvironment(script, {SCOUT: SPECS[SCOUT]})
    with closing(DemonstrationRecorder(simulation, path, behavior_name=TANK)) as env:
        env.reset()
        env.set_actions(SCOUT, ActionTuple(discrete=np.zeros((1, 1))))
        simulation.announce({TANK: SPECS[TANK]})
        env.step()
        env.step()
    assert len(read_demonstration(path).records.done) == 2


def test_what_cannot_be_recorded_costs_its_own_episode_alone(path):
    # Three agents end in every step; in the second one agent 1 then observes a NaN.
    class World(GuessEnvironment):
        is_wrong = False

        def get_steps(self, behavior_name):
            decisions, terminals = super().get_steps(behavior_name)
            if self.is_wrong:
                terminals.obs[0][1] = np.nan
            return decisions, terminals

    world = World(ActionSpec.create_continuous(1), n_agents=3, episode_steps=1)
    with closing(DemonstrationRecorder(world, path)) as env:
        env.reset()
        env.step()
        world.is_wrong = True
        with pytest.raises(UnityNonFiniteException, match=r"agent 1 has nan .* its observation"):
            env.step()
        world.is_wrong = False
        env.step()
    records = read_demonstration(path).records
    assert records.agent_id[records.done].tolist() == [0, 1, 2, 0, 2, 0, 1, 2]


def test_a_nan_at_the_end_does_not_cost_the_file(path):
    simulation = SkirmishEnvironment(SCOUTS, {SCOUT: SPECS[SCOUT]})
    env = DemonstrationRecorder(simulation, path)
    env.reset()
    choose(env, 0, 1)
    choose(env, 2, 0)
    env.get_steps(SCOUT)[0].obs[0][0, 1] = np.nan  # of scout 2, which goes on
    with pytest.raises(
        UnityNonFiniteException, match=r"agent 2 has nan .* its observation 'radar'"
    ):
        env.close()
    assert simulation.closed
    assert read_demonstration(path).records.agent_id.tolist() == [1, 1, 1]


def test_a_full_disk_does_not_cost_what_was_written_before(path, tmp_path):
    resource = pytest.importorskip("resource", reason="the system cannot limit file sizes")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    env = scouts(path)
    env.reset()
    choose(env, 0, 1)
    choose(env, 2, 0)
    (temporary,) = tmp_path.iterdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (temporary.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*/play\.demo'"):
            env.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == [path]
    assert read_demonstration(path).records.agent_id.tolist() == [1, 1, 1]


def test_pictures_parameters_and_statistics_are_passed_on(path):
    world = default_registry["3DBall"].make(seed=1)
    with closing(DemonstrationRecorder(world, path)) as env:
        assert isinstance(env, ParameterReceiver) and isinstance(env, StatsSource)
        env.set_float_parameter("scale", 2.0)
        env.reset()
        assert env.render().shape == world.render().shape
        assert env.decision_period_steps == 5
        assert env.get_and_reset_stats() == {}
    bare = scouts(path)
    assert not isinstance(bare, ParameterReceiver) and not isinstance(bare, StatsSource)
    assert not hasattr(bare, "render")


def test_actions_that_do_not_fit_are_refused_and_not_recorded(path):
    with closing(scouts(path)) as env:
        env.reset()
        with pytest.raises(UnityActionException):
            env.set_actions(SCOUT, ActionTuple(discrete=np.zeros((3, 1))))
        choose(env, 1, 1)
    records = read_demonstration(path).records
    assert records.action.discrete[~records.done, 0].tolist() == [1, 1]


def test_where_no_demonstration_can_be_written_is_said_before_anything_is_played(tmp_path):
    with pytest.raises(UnityDemonstrationException, match=r"must end in \.demo"):
        scouts(tmp_path / "play.txt")
    with pytest.raises(FileNotFoundError, match=r"'[^']*/nowhere/play\.demo'"):
        scouts(tmp_path / "nowhere" / "play.demo")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "recorded"), [("Tank", TANK), (TANK, TANK), ("Scout", SCOUT)])
def test_a_behavior_is_named_with_or_without_its_team(name, recorded, path):
    with closing(DemonstrationRecorder(SkirmishEnvironment(), path, behavior_name=name)) as env:
        env.reset()
        env.step()
    assert read_demonstration(path).behavior_name == recorded


def test_of_two_teams_one_must_be_said(path):
    specs = {"Scout?team=0": SPECS[SCOUT], "Scout?team=1": SPECS[SCOUT]}
    simulation = SkirmishEnvironment([Moment({name: [1] for name in specs})], specs)
    env = DemonstrationRecorder(simulation, path, behavior_name="Scout")
    with pytest.raises(UnityEnvironmentException, match=r"'Scout\?team=0', 'Scout\?team=1'"):
        env.reset()


def test_a_behavior_that_is_not_there_is_told_of_at_the_beginning_and_at_the_end(path, capsys):
    env = DemonstrationRecorder(SkirmishEnvironment(), path, behavior_name="Tnak")
    env.reset()
    env.step()
    why = f"this environment does not have the behavior 'Tnak'; it has {SCOUT}, {TANK}."
    assert capsys.readouterr().out == f"[WARNING] Nothing is recorded yet: {why}\n"
    env.close()
    env.close()
    assert capsys.readouterr().out == f"[WARNING] {path} was not written: {why}\n"
    assert not path.exists()


def test_the_examples_of_the_document_run(tmp_path, monkeypatch):
    # The first reads what the second records, and the third writes it again.
    monkeypatch.chdir(tmp_path)
    play = DemonstrationRecorder(default_registry["Basic"].make(), "expert.demo")
    with closing(play):
        for _ in range(3):
            play.step()
    assert run_examples("demonstrations.md") == 3
    expert = read_demonstration("expert.demo")
    assert expert.behavior_name == "3DBall?team=0"
    # Nobody drops the ball in 200 decisions.
    assert expert.metadata.number_episodes == 12 + 1


def test_only_chosen_agents_are_recorded(tmp_path):
    env = default_registry["3DBall"].make(seed=0)
    path = tmp_path / "one.demo"
    with closing(
        DemonstrationRecorder(env, path, is_recorded=lambda agent: agent == 3)
    ) as recorder:
        recorder.reset()
        for _ in range(4):
            recorder.step()
    records = read_demonstration(path).records
    assert set(records.agent_id.tolist()) <= {0, 3}
    assert len(records.reward) == 5
