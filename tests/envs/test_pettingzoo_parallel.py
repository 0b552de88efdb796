import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test import parallel_api_test, parallel_seed_test

from document_examples import run_examples
from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_envs.envs import pettingzoo_env_factory
from mlagents_envs.envs.pettingzoo_env_factory import PettingZooEnvFactory
from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.registry import BaseRegistryEntry, LocalRegistryEntry, default_registry
from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel
from mlagents_sim.examples.ball_3d import Ball3D
from served import served
from skirmish_environment import (
    GROUP,
    GROUP_REWARD,
    SCOUT,
    SPECS,
    TANK,
    Moment,
    SkirmishEnvironment,
)

BALL = "3DBall?team=0"

SCOUT_1, SCOUT_2 = f"{SCOUT}?agent_id=1", f"{SCOUT}?agent_id=2"
TANK_3 = f"{TANK}?agent_id=3"
NO_ACTION = {SCOUT: 0, TANK: {"continuous": np.zeros(1, np.float32), "discrete": np.zeros(2, int)}}


def started(env):
    """Return a wrapper of `env` after a reset, and what it showed."""
    wrapper = UnityParallelEnv(env)
    observations, infos = wrapper.reset()
    return wrapper, observations, infos


def only_scouts(*moments):
    """Make a script of scouts alone from (who asks, who has ended)."""
    return SkirmishEnvironment(
        [Moment({SCOUT: asking}, {SCOUT: ended}) for asking, ended in moments],
        {SCOUT: SPECS[SCOUT]},
    )


def play(env, n_steps):
    """Step with no actions; return what the last step returned."""
    return [env.step({}) for _ in range(n_steps)][-1]


@pytest.mark.parametrize("name", ["Basic", "3DBall"])
def test_worlds_pass_the_checks_of_pettingzoo(name):
    parallel_api_test(UnityParallelEnv(default_registry[name].make, seed=1), num_cycles=200)
    parallel_seed_test(lambda: UnityParallelEnv(default_registry[name].make), num_cycles=50)


def test_masks_deaths_and_groups_pass_the_checks_of_pettingzoo():
    parallel_api_test(UnityParallelEnv(SkirmishEnvironment(), seed=1), num_cycles=50)


def test_agents_are_named_by_behavior_and_id_and_known_before_the_first_reset():
    env = UnityParallelEnv(SkirmishEnvironment())
    assert env.possible_agents == [SCOUT_1, SCOUT_2, TANK_3]
    assert env.agents == []
    assert env.max_num_agents == 3
    _, infos = env.reset()
    assert env.agents == env.possible_agents
    assert infos[TANK_3] == {
        "behavior_name": TANK,
        "agent_id": 3,
        "group_id": GROUP,
        "group_reward": GROUP_REWARD,
        "decides": True,
    }


def test_spaces_say_what_agents_see_and_do():
    env = UnityParallelEnv(SkirmishEnvironment())
    radar = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    camera = spaces.Box(0.0, 1.0, (1, 2, 3), np.float32)

    def choices(size):
        return spaces.Box(0, 1, (size,), np.int8)

    assert env.observation_space(SCOUT_1) == spaces.Dict(
        {"observation": radar, "action_mask": choices(3)}
    )
    assert env.action_space(SCOUT_1) == spaces.Discrete(3)
    assert env.observation_space(TANK_3) == spaces.Dict(
        {
            "observation": spaces.Dict({"radar": radar, "camera": camera}),
            "action_mask": spaces.Tuple([choices(2), choices(3)]),
        }
    )
    assert env.action_space(TANK_3) == spaces.Dict(
        {
            "continuous": spaces.Box(-1.0, 1.0, (1,), np.float32),
            "discrete": spaces.MultiDiscrete([2, 3]),
        }
    )
    assert env.action_space(SCOUT_1) is not env.action_space(SCOUT_2)
    observations, _ = env.reset()
    assert all(env.observation_space(agent).contains(observations[agent]) for agent in env.agents)


def test_observations_and_masks_are_those_of_the_agent():
    _, observations, _ = started(SkirmishEnvironment())
    np.testing.assert_array_equal(observations[SCOUT_2]["observation"], [2, 0])
    np.testing.assert_array_equal(observations[SCOUT_1]["action_mask"], [1, 1, 1])
    np.testing.assert_array_equal(observations[SCOUT_2]["action_mask"], [1, 1, 0])
    tank = observations[TANK_3]["observation"]
    np.testing.assert_array_equal(tank["radar"], [3, 0])
    np.testing.assert_array_equal(tank["camera"], np.full((1, 2, 3), 0.2, np.float32))


def test_images_may_be_bytes():
    env = UnityParallelEnv(SkirmishEnvironment(), uint8_visual=True)
    observations, _ = env.reset()
    camera = observations[TANK_3]["observation"]["camera"]
    np.testing.assert_array_equal(camera, np.full((1, 2, 3), 51, np.uint8))  # 0.2 * 255
    assert env.observation_space(TANK_3).contains(observations[TANK_3])


def test_observations_without_names_are_numbered():
    unnamed = BehaviorSpec(
        [ObservationSpec.vector(2, ""), ObservationSpec.vector(3, "")], ActionSpec(1, ())
    )
    simulation = SkirmishEnvironment([Moment({SCOUT: [1]})], {SCOUT: unnamed})
    env, observations, _ = started(simulation)
    assert observations[SCOUT_1].keys() == {"obs_0", "obs_1"}
    assert env.observation_space(SCOUT_1).contains(observations[SCOUT_1])


def test_a_hybrid_action_is_sampled_under_a_mask_of_its_branches():
    env, *_ = started(SkirmishEnvironment([Moment({TANK: [4]})]))
    space = env.action_space(f"{TANK}?agent_id=4")
    mask = (np.array([1, 0], np.int8), np.array([0, 1, 0], np.int8))
    for _ in range(20):
        action = space.sample(mask)
        assert space.contains(action)
        assert action["discrete"].tolist() == [0, 1]


def test_every_agent_does_what_it_is_told():
    simulation = SkirmishEnvironment()
    env, *_ = started(simulation)
    tank = {"continuous": np.array([-0.25]), "discrete": np.array([1, 2])}
    env.step({SCOUT_2: 1, TANK_3: tank, SCOUT_1: np.int64(2)})
    assert simulation.told == [
        {SCOUT: {1: ([], [2]), 2: ([], [1])}, TANK: {3: ([-0.25], [1, 2])}},
    ]


def test_continuous_actions_keep_all_their_fractions():
    spec = BehaviorSpec([ObservationSpec.vector(2, "radar")], ActionSpec.create_continuous(3))
    simulation = SkirmishEnvironment([Moment({SCOUT: [0, 1]})], {SCOUT: spec})
    env, *_ = started(simulation)
    assert env.action_space(f"{SCOUT}?agent_id=0") == spaces.Box(-1.0, 1.0, (3,), np.float32)
    env.step({f"{SCOUT}?agent_id=1": np.array([0.5, -0.125, 0.75], np.float32)})
    assert simulation.told == [{SCOUT: {0: ([0.0] * 3, []), 1: ([0.5, -0.125, 0.75], [])}}]


def test_several_branches_keep_all_their_choices():
    spec = BehaviorSpec([ObservationSpec.vector(2, "radar")], ActionSpec.create_discrete((2, 5)))
    simulation = SkirmishEnvironment([Moment({SCOUT: [0]})], {SCOUT: spec})
    env, *_ = started(simulation)
    env.step({f"{SCOUT}?agent_id=0": [1, 4]})
    assert simulation.told == [{SCOUT: {0: ([], [1, 4])}}]


def test_the_reward_is_the_agents_and_its_groups():
    env, *_ = started(SkirmishEnvironment())
    _, rewards, *_, infos = env.step({})
    assert rewards == {SCOUT_1: 1.0, SCOUT_2: 1.0, TANK_3: 1.0 + GROUP_REWARD}
    assert infos[TANK_3]["group_reward"] == GROUP_REWARD


def test_who_is_terminated_is_not_truncated_and_the_other_way_round():
    env, *_ = started(SkirmishEnvironment())
    observations, rewards, terminated, truncated, infos = play(env, 2)
    assert terminated == {SCOUT_1: True, SCOUT_2: False, TANK_3: False}
    assert not any(truncated.values())
    assert rewards[SCOUT_1] == 2.0
    assert infos[SCOUT_1]["interrupted"] is False
    np.testing.assert_array_equal(observations[SCOUT_1]["observation"], [1, 2])
    _, _, terminated, truncated, infos = env.step({})
    assert terminated == {SCOUT_2: False, TANK_3: False}
    assert truncated == {SCOUT_2: False, TANK_3: True}
    assert infos[TANK_3]["interrupted"] is True


def test_who_has_ended_stays_away_until_the_reset_and_does_nothing():
    simulation = SkirmishEnvironment()
    env, *_ = started(simulation)
    play(env, 2)
    assert env.agents == [SCOUT_2, TANK_3]
    env.step({SCOUT_2: 1})
    assert simulation.told[-1][SCOUT] == {1: ([], [0]), 2: ([], [1])}
    assert env.agents == [SCOUT_2]
    *_, infos = env.step({})
    assert env.agents == []
    assert infos.keys() == {SCOUT_2}
    env.reset()
    assert env.agents == env.possible_agents == [SCOUT_1, SCOUT_2, TANK_3]


def test_an_agent_of_which_nothing_is_new_keeps_its_observation():
    env, *_ = started(SkirmishEnvironment())
    seen, *_ = env.step({})
    observations, rewards, *_, infos = env.step({})
    assert observations[TANK_3] is seen[TANK_3]
    assert rewards[TANK_3] == infos[TANK_3]["group_reward"] == 0.0
    assert not infos[TANK_3]["decides"]
    assert infos[SCOUT_2]["decides"]


def test_who_takes_the_place_of_one_that_ended_waits_for_the_reset():
    simulation = only_scouts(([0, 1], {}), ([1, 2], {0: False}), ([1, 2], {}))
    env, *_ = started(simulation)
    play(env, 2)
    assert env.agents == [SCOUT_1]
    assert env.possible_agents == [f"{SCOUT}?agent_id=0", SCOUT_1]


def test_new_ids_after_a_reset_take_the_names_that_are_there():
    # In Basic an agent comes back under a new id.
    env = UnityParallelEnv(default_registry["Basic"].make)
    agent = "Basic?team=0?agent_id=0"
    for expected_id in range(3):
        _, infos = env.reset()
        assert env.agents == env.possible_agents == [agent]
        assert infos[agent]["agent_id"] == expected_id
        while env.agents:
            env.step({agent: 2})


def test_who_appears_beside_all_others_gets_a_new_name():
    env, *_ = started(only_scouts(([1], {}), ([1, 2], {}), ([2], {1: False}), ([2], {2: False})))
    env.action_space(SCOUT_1).seed(0)
    observations, *_ = env.step({})
    assert env.agents == env.possible_agents == [SCOUT_1, SCOUT_2]
    np.testing.assert_array_equal(observations[SCOUT_2]["observation"], [2, 1])
    assert env.observation_space(SCOUT_2).contains(observations[SCOUT_2])
    play(env, 2)
    assert env.agents == []
    env.reset()
    assert env.agents == [SCOUT_1]
    assert env.possible_agents == [SCOUT_1, SCOUT_2]


def test_spare_names_let_others_appear_while_possible_agents_stays():
    simulation = only_scouts(([1], {}), ([2], {1: False}), ([5], {2: False}))
    env = UnityParallelEnv(simulation, max_agents={SCOUT: 3})
    names = [SCOUT_1, f"{SCOUT}?agent_id=0", SCOUT_2]
    assert env.possible_agents == names
    env.reset()
    # Scout 2 has a name of its number; scout 5 takes the one that is left.
    env.step({})
    assert env.agents == [SCOUT_2]
    *_, infos = env.step({})
    assert env.agents == [f"{SCOUT}?agent_id=0"]
    assert infos[f"{SCOUT}?agent_id=0"]["agent_id"] == 5
    assert env.possible_agents == names


def test_a_behavior_may_appear_later():
    script = [Moment({SCOUT: [1]}), Moment({SCOUT: [1], TANK: [3]})]
    simulation = SkirmishEnvironment(script, {SCOUT: SPECS[SCOUT]})
    env, *_ = started(simulation)
    assert env.possible_agents == [SCOUT_1]
    simulation.announce({TANK: SPECS[TANK]})
    env.step({})
    assert env.agents == [SCOUT_1, TANK_3]
    env.step({TANK_3: NO_ACTION[TANK]})


def test_steps_of_others_are_passed_over():
    simulation = only_scouts(([1, 2], {}), ([1], {1: False}), ([1], {}), ([2], {}))
    env, *_ = started(simulation)
    env.step({})
    observations, *_ = env.step({SCOUT_2: 1})
    np.testing.assert_array_equal(observations[SCOUT_2]["observation"], [2, 3])
    assert len(simulation.told) == 3


def test_waiting_in_vain_ends_with_an_error():
    env, *_ = started(only_scouts(([1, 2], {}), *[([1], {1: False})] * 20_000))
    env.step({})
    with pytest.raises(UnityEnvironmentException, match=r"none of .*agent_id=2.* requested"):
        env.step({})


@pytest.mark.parametrize(
    ("agent", "action"),
    [
        (SCOUT_1, 3),
        (SCOUT_1, -1),
        (SCOUT_1, 0.5),
        (SCOUT_1, [0, 1]),
        (SCOUT_1, None),
        (TANK_3, 1),
        (TANK_3, {"continuous": np.zeros(1)}),
        (TANK_3, {"continuous": np.zeros(2), "discrete": [0, 0]}),
        (TANK_3, {"continuous": [np.nan], "discrete": [0, 0]}),
        (TANK_3, {"continuous": [0.0], "discrete": [0, 3]}),
        (TANK_3, {"continuous": [0.0], "discrete": [0.5, 1.5]}),
    ],
)
def test_what_is_no_action_of_the_agent_is_refused(agent, action):
    env, *_ = started(SkirmishEnvironment())
    with pytest.raises(UnityActionException, match="expected an action of") as caught:
        env.step({agent: action})
    assert agent in str(caught.value)


def test_only_those_who_take_part_may_act():
    env, *_ = started(SkirmishEnvironment())
    play(env, 2)
    with pytest.raises(UnityActionException, match=r"got actions for .*agent_id=1'"):
        env.step({SCOUT_1: 0})


def test_a_step_needs_an_episode():
    env = UnityParallelEnv(SkirmishEnvironment())
    with pytest.raises(UnityEnvironmentException, match="call reset"):
        env.step({})
    env.reset()
    play(env, 4)
    with pytest.raises(UnityEnvironmentException, match="call reset"):
        env.step({})


def test_max_agents_must_name_a_behavior():
    given, made = Ball3D(), Ball3D()
    for env in (given, lambda *, seed: made):
        with pytest.raises(UnityEnvironmentException, match=r"'Plane'.*3DBall"):
            UnityParallelEnv(env, max_agents={"Plane": 2})
    given.step()
    with pytest.raises(UnityEnvironmentException, match="closed"):
        made.step()


def test_a_seed_gives_the_same_episode_where_a_function_makes_the_environment():
    env = UnityParallelEnv(default_registry["3DBall"].make)
    first, other, again = (env.reset(seed=seed)[0] for seed in (1, 2, 1))
    name = f"{BALL}?agent_id=0"
    np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first[name], other[name])


def test_a_behavior_may_be_late_in_an_environment_made_anew():
    made = []

    def make(seed):
        specs = {SCOUT: SPECS[SCOUT]} if made else SPECS
        simulation = SkirmishEnvironment([Moment({SCOUT: [1], TANK: [3]})], specs)
        made.append(simulation)
        return simulation

    env = UnityParallelEnv(make)
    env.reset(seed=2)
    env.step({SCOUT_1: 1})
    assert env.agents == [SCOUT_1]
    assert env.possible_agents == [SCOUT_1, TANK_3]
    assert [simulation.closed for simulation in made] == [True, False]


def test_the_constructors_seed_is_that_of_the_environment_and_of_the_action_spaces():
    one, same, other = (UnityParallelEnv(default_registry["3DBall"].make, s) for s in (1, 1, 2))
    name, neighbor = f"{BALL}?agent_id=0", f"{BALL}?agent_id=1"
    shown = [env.reset()[0][name] for env in (one, same, other)]
    np.testing.assert_array_equal(shown[0], shown[1])
    assert not np.array_equal(shown[0], shown[2])
    drawn = [env.action_space(name).sample() for env in (one, same, other)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], one.action_space(neighbor).sample())
    one.seed(1)
    np.testing.assert_array_equal(one.action_space(name).sample(), drawn[0])


def test_worlds_draw_themselves_and_others_do_not():
    world = UnityParallelEnv(default_registry["Basic"].make)
    assert world.render_mode == "rgb_array"
    assert world.render().shape == (480, 640, 3)
    other = UnityParallelEnv(SkirmishEnvironment())
    assert other.render_mode is None
    assert other.render() is None


def test_closing_closes_the_environment_and_may_be_repeated():
    simulation = SkirmishEnvironment()
    env, *_ = started(simulation)
    env.close()
    env.close()
    assert simulation.closed
    assert env.agents == []


def test_side_channels_are_at_hand_by_the_names_of_their_classes():
    assert UnityParallelEnv(SkirmishEnvironment()).side_channel == {}
    world = Ball3D()
    channels = [EnvironmentParametersChannel(), EngineConfigurationChannel()]
    with served(world, side_channels=channels) as simulation:
        env = UnityParallelEnv(simulation)
        parameters, engine = channels
        assert env.side_channel == {
            "EnvironmentParametersChannel": parameters,
            "EngineConfigurationChannel": engine,
        }
        env.side_channel["EnvironmentParametersChannel"].set_float_parameter("gravity", 5.0)
        env.reset()
        assert world.parameters["gravity"] == 5.0


class Entry(BaseRegistryEntry):
    """Takes what every entry takes, and nothing else."""

    def make(self, *, seed: int = 0, num_areas: int = 1) -> Ball3D:
        return Ball3D(seed=seed, num_areas=num_areas)


def test_the_factory_gives_builds_alone_channels(monkeypatch):
    made = []
    build = LocalRegistryEntry("Build", "builds/Build")
    monkeypatch.setattr(build, "make", lambda **arguments: made.append(arguments) or Ball3D())
    registry = {"Mine": Entry("Mine"), "Build": build}
    monkeypatch.setattr(pettingzoo_env_factory, "default_registry", registry)

    assert len(PettingZooEnvFactory("Mine").parallel_env(num_areas=2).possible_agents) == 24
    PettingZooEnvFactory("Build").parallel_env(seed=1)
    PettingZooEnvFactory("Build").parallel_env(seed=1, side_channels=[])
    assert [type(channel) for channel in made[0].pop("side_channels")] == [
        EngineConfigurationChannel,
        EnvironmentParametersChannel,
        StatsSideChannel,
    ]
    assert made == [{"seed": 1}, {"seed": 1, "side_channels": []}]


def test_the_examples_of_the_document_run():
    assert run_examples("pettingzoo.md") == 5
