import numpy as np
import pytest
from pettingzoo.test import api_test, seed_test

from mlagents_envs.envs.unity_aec_env import UnityAECEnv
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.registry import default_registry
from skirmish_environment import SCOUT, SPECS, TANK, Moment, SkirmishEnvironment

SCOUT_1, SCOUT_2 = f"{SCOUT}?agent_id=1", f"{SCOUT}?agent_id=2"
TANK_3 = f"{TANK}?agent_id=3"

# What the checks of PettingZoo say of everything whose names, observations or actions are as ours.
EXPECTED_WARNINGS = (
    "We recommend agents to be named",
    "Observation is not a NumPy array",
    "Action mask is not a NumPy array",
    "Observation space for each agent probably",
    "Action space for each agent probably",
    "Agent's minimum observation space value is -infinity",
    "Agent's maximum observation space value is infinity",
    "The class of observation spaces is different",
    "Agents have different observation space sizes",
)
expects_warnings = pytest.mark.filterwarnings(
    *(f"ignore:{message}:UserWarning" for message in EXPECTED_WARNINGS)
)


def take_turns(env, n_turns):
    """Do nothing for some turns; return whose they were."""
    turns = []
    for _ in range(n_turns):
        agent = env.agent_selection
        turns.append(agent)
        has_ended = env.terminations[agent] or env.truncations[agent]
        nothing = {"continuous": np.zeros(1), "discrete": [0, 0]} if TANK in agent else 0
        env.step(None if has_ended else nothing)
    return turns


def started(env):
    wrapper = UnityAECEnv(env)
    wrapper.reset()
    return wrapper


@expects_warnings
@pytest.mark.parametrize("name", ["Basic", "3DBall"])
def test_worlds_pass_the_checks_of_pettingzoo(name):
    api_test(UnityAECEnv(default_registry[name].make, seed=1), num_cycles=100)
    seed_test(lambda: UnityAECEnv(default_registry[name].make), num_cycles=50)


@expects_warnings
def test_masks_deaths_and_groups_pass_the_checks_of_pettingzoo():
    api_test(UnityAECEnv(SkirmishEnvironment(), seed=1), num_cycles=50)


def test_the_environment_steps_when_everyone_who_asked_has_had_a_turn():
    simulation = SkirmishEnvironment()
    env = started(simulation)
    for agent, action in [(SCOUT_1, 1), (SCOUT_2, 2)]:
        assert env.agent_selection == agent
        env.step(action)
        assert simulation.told == []
    assert env.agent_selection == TANK_3
    env.step({"continuous": np.array([0.5]), "discrete": [1, 2]})
    assert simulation.told == [
        {SCOUT: {1: ([], [1]), 2: ([], [2])}, TANK: {3: ([0.5], [1, 2])}},
    ]
    assert env.rewards == {SCOUT_1: 1.0, SCOUT_2: 1.0, TANK_3: 1.5}
    observation, reward, terminated, truncated, info = env.last()
    np.testing.assert_array_equal(observation["observation"], [1, 1])
    assert (reward, terminated, truncated, info["agent_id"]) == (1.0, False, False, 1)


def test_who_has_ended_has_a_last_turn_and_who_does_not_ask_has_none():
    env = started(SkirmishEnvironment())
    everyone = [SCOUT_1, SCOUT_2, TANK_3]
    assert take_turns(env, 6) == everyone * 2
    assert env.terminations[SCOUT_1]
    assert env.last()[1] == 2.0
    assert take_turns(env, 2) == [SCOUT_1, SCOUT_2]  # the tank does not ask
    assert env.truncations[TANK_3]
    assert not env.terminations[TANK_3]
    assert env.infos[TANK_3]["interrupted"]
    assert take_turns(env, 3) == [TANK_3, SCOUT_2, SCOUT_2]
    assert env.agents == []


def test_rewards_are_summed_between_the_turns_of_an_agent():
    # The tank asks first and fourth, and has 0.5 of its group at every report.
    script = [
        Moment({SCOUT: [1], TANK: [3]}),
        Moment({SCOUT: [1]}),
        Moment({SCOUT: [1]}),
        Moment({SCOUT: [1], TANK: [3]}),
    ]
    env = started(SkirmishEnvironment(script))
    assert take_turns(env, 4) == [SCOUT_1, TANK_3, SCOUT_1, SCOUT_1]
    assert env.last()[1] == 3.0
    assert take_turns(env, 1) == [SCOUT_1]
    assert env.agent_selection == TANK_3
    assert env.last()[1] == 3.5


def test_steps_in_which_nobody_asks_add_up():
    script = [
        Moment({SCOUT: [1, 2]}),
        Moment({}, {SCOUT: {1: False}}),
        Moment({SCOUT: [2]}),
    ]
    env = started(SkirmishEnvironment(script, {SCOUT: SPECS[SCOUT]}))
    assert take_turns(env, 3) == [SCOUT_1, SCOUT_2, SCOUT_1]
    assert env.agent_selection == SCOUT_2
    np.testing.assert_array_equal(env.observe(SCOUT_2)["observation"], [2, 2])
    assert env.last()[1] == 2.0


def test_who_appears_has_turns_from_then_on():
    script = [Moment({SCOUT: [1]}), Moment({SCOUT: [1, 2]})]
    env = started(SkirmishEnvironment(script, {SCOUT: SPECS[SCOUT]}))
    assert take_turns(env, 3) == [SCOUT_1, SCOUT_1, SCOUT_2]


def test_a_reset_forgets_the_episode_before():
    env = started(SkirmishEnvironment())
    take_turns(env, 7)
    env.reset(seed=None, options={})
    assert env.agents == [SCOUT_1, SCOUT_2, TANK_3]
    assert env.agent_selection == SCOUT_1
    assert not any(env.terminations.values())
    assert set(env.rewards.values()) == set(env._cumulative_rewards.values()) == {0}


def test_what_is_no_action_is_refused_and_may_be_put_right():
    simulation = SkirmishEnvironment()
    env = started(simulation)
    with pytest.raises(UnityActionException, match="got 7"):
        env.step(7)
    assert env.agent_selection == SCOUT_1
    env.step(1)
    assert env.agent_selection == SCOUT_2


def test_who_has_ended_can_only_do_nothing():
    env = started(SkirmishEnvironment())
    take_turns(env, 6)
    with pytest.raises(ValueError, match="None"):
        env.step(0)


def test_a_step_needs_an_episode():
    env = UnityAECEnv(SkirmishEnvironment())
    with pytest.raises(UnityEnvironmentException, match="call reset"):
        env.step(0)
    env.reset()
    take_turns(env, 11)
    with pytest.raises(UnityEnvironmentException, match="call reset"):
        env.step(None)
