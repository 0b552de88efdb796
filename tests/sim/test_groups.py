"""Groups in the worlds' base: group rewards, members that leave, ends and interruptions."""

import numpy as np
import pytest

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from mlagents_envs.envs.unity_parallel_env import UnityParallelEnv
from mlagents_envs.testing import check_env
from mlagents_sim.world import World
from served import served

RED, BLUE = "Crew?team=0", "Crew?team=1"
WAIT, LEAVE, PAY, WIN = range(4)


class Crews(World):
    """Two teams of two agents in each area, which do at once what they are told.

    Agents observe how many steps their episode has run. An agent that leaves may be paid no more.
    """

    behavior_names = (RED, BLUE)
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(1, "age")], ActionSpec.create_discrete((4,))
    )
    agents_per_area = 4
    decision_period_steps = 2
    max_steps = 9

    def __init__(self, **options):
        super().__init__(**options)
        self.behavior[:] = np.arange(self.n_agents) % 4 // 2
        self.group[:] = 1 + np.arange(self.n_agents) // 2
        self.age = np.zeros(self.n_agents)
        self.doing = np.zeros(self.n_agents, np.intp)

    def begin(self, agents):
        self.age[agents] = self.rng.integers(0, 1000, len(self.age[agents])) / 1e6

    def observe(self, agents):
        return [self.age[agents, None].astype(np.float32)]

    def command(self, agents, action):
        self.doing[agents] = action.discrete[:, 0]

    def act(self):
        self.age += 1.0
        self.reward += 0.25
        self.reward_group(np.unique(self.group[self.doing == PAY]), 1.0)
        self.leave(((self.doing == LEAVE) & self.is_present).nonzero()[0])
        winners = (self.doing == WIN) & self.is_present
        areas = np.unique(winners.nonzero()[0] // 4)
        self.reward_group(np.unique(self.group[winners]), 5.0)
        self.end_group(np.concatenate([1 + 2 * areas, 2 + 2 * areas]))

    def render(self):
        return np.zeros((1, 1, 3), np.uint8)


def tell(env, red: list[int], blue: list[int]) -> None:
    """Set the actions of the agents that ask, then step."""
    for name, actions in ((RED, red), (BLUE, blue)):
        env.set_actions(name, ActionTuple(discrete=np.reshape(actions, (-1, 1))))
    env.step()


def test_worlds_of_groups_keep_the_contract():
    check_env(Crews, steps=80)
    check_env(lambda seed: Crews(seed=seed, num_areas=3), steps=80)


def test_only_members_that_are_present_get_the_group_reward():
    env = Crews()
    env.reset()
    assert env.get_steps(BLUE)[0].group_id.tolist() == [2, 2]
    tell(env, [LEAVE, WAIT], [WAIT, WAIT])
    # The step between two decisions: nobody asks, but an agent ended.
    decisions, terminals = env.get_steps(RED)
    assert (len(decisions), terminals.agent_id.tolist()) == (0, [0])
    assert terminals.group_id.tolist() == [1]
    assert not terminals.interrupted[0]
    assert terminals.reward.tolist() == [0.25]
    env.step()
    assert env.get_steps(RED)[0].agent_id.tolist() == [1]
    tell(env, [PAY], [PAY, WAIT])
    (red, _), (blue, _) = env.get_steps(RED), env.get_steps(BLUE)
    assert red.group_reward.tolist() == [2.0]  # two steps of the same action
    assert blue.group_reward.tolist() == [2.0, 2.0]
    assert red.reward.tolist() == [0.5]


def test_the_end_of_a_group_brings_back_those_that_left_as_new_agents():
    env = Crews(num_areas=2)
    env.reset()
    tell(env, [LEAVE, WAIT, WAIT, WAIT], [WAIT] * 4)
    env.step()
    tell(env, [WIN, WAIT, WAIT], [WAIT] * 4)
    (_, red), (_, blue) = env.get_steps(RED), env.get_steps(BLUE)
    assert red.agent_id.tolist() == [1]  # the other has ended before
    assert red.group_reward.tolist() == [5.0]
    assert blue.agent_id.tolist() == [2, 3]
    assert blue.group_reward.tolist() == [0.0, 0.0]
    assert not blue.interrupted.any()
    env.step()
    decisions, _ = env.get_steps(RED)
    assert decisions.agent_id.tolist() == [8, 1, 4, 5]
    assert decisions.reward[0] == 0.25  # of the step since its return


def test_the_time_limit_interrupts_the_members_that_are_left():
    env = Crews()
    env.reset()
    tell(env, [LEAVE, WAIT], [LEAVE, LEAVE])
    assert env.get_steps(BLUE)[1].agent_id.tolist() == [2, 3]
    while not len(env.get_steps(RED)[1]) or env.step_count < 3:
        env.step()
    assert env.step_count == 9
    _, red = env.get_steps(RED)
    assert (red.agent_id.tolist(), red.interrupted.tolist()) == ([1], [True])
    assert not len(env.get_steps(BLUE)[1])
    env.step()
    assert len(env.get_steps(BLUE)[0]) == 2


def test_time_passes_while_every_agent_has_left():
    env = Crews()
    env.reset()
    tell(env, [LEAVE, LEAVE], [LEAVE, LEAVE])
    env.step()
    assert env.step_count == 10  # all have been brought back by the time limit of 9
    assert env.get_steps(RED)[0].agent_id.tolist() == [4, 5]


def test_a_reset_brings_back_those_that_left():
    env = Crews()
    env.reset()
    tell(env, [LEAVE, WAIT], [WAIT, WAIT])
    env.reset()
    assert env.get_steps(RED)[0].agent_id.tolist() == [4, 1]
    assert env.get_steps(RED)[0].reward.tolist() == [0.0, 0.25]


def test_groups_are_the_same_on_the_wire():
    here, there = Crews(num_areas=2), Crews(num_areas=2)
    rng = np.random.default_rng(1)
    with served(there) as env:
        for each in (here, env):
            each.reset()
        for _ in range(60):
            for name in (RED, BLUE):
                for ours, theirs in zip(here.get_steps(name), env.get_steps(name), strict=True):
                    np.testing.assert_array_equal(ours.agent_id, theirs.agent_id)
                    np.testing.assert_array_equal(ours.group_id, theirs.group_id)
                    np.testing.assert_array_equal(ours.group_reward, theirs.group_reward)
                ended, ended_there = here.get_steps(name)[1], env.get_steps(name)[1]
                np.testing.assert_array_equal(ended.interrupted, ended_there.interrupted)
                actions = rng.integers(0, 4, (len(here.get_steps(name)[0]), 1))
                for each in (here, env):
                    each.set_actions(name, ActionTuple(discrete=actions))
            for each in (here, env):
                each.step()


def test_pettingzoo_shows_both_teams_and_those_that_leave_early():
    env = UnityParallelEnv(Crews())
    env.reset(seed=1)
    red, other_red, blue, other_blue = env.possible_agents
    assert red.startswith(RED) and blue.startswith(BLUE)
    actions = {red: LEAVE, other_red: WAIT, blue: WAIT, other_blue: WAIT}
    _, rewards, terminations, _, infos = env.step(actions)
    assert terminations == {red: True, other_red: False, blue: False, other_blue: False}
    assert infos[red]["group_id"] == 1
    assert rewards[red] == 0.25
    assert env.agents == [other_red, blue, other_blue]
    env.step(dict.fromkeys(env.agents, WAIT))
    _, rewards, terminations, truncations, _ = env.step({other_red: WIN})
    assert all(terminations.values()) and not any(truncations.values())
    assert rewards == {other_red: 5.25, blue: 0.25, other_blue: 0.25}
    env.reset()
    assert env.agents == [red, other_red, blue, other_blue]


class Mixed(Crews):
    """Crews in which members of both teams share a group."""

    def __init__(self, **options):
        super().__init__(**options)
        self.group[:] = 1


class Unpaid(Crews):
    """Crews without groups that get group rewards all the same."""

    def __init__(self, **options):
        super().__init__(**options)
        self.group[:] = 0

    def act(self):
        self.group_reward += 1.0


class Negative(Crews):
    """Crews with an impossible group."""

    def __init__(self, **options):
        super().__init__(**options)
        self.group[:] = -1

    def act(self):
        self.age += 1.0


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Mixed, "group 1 has members of 'Crew.team=0' and of 'Crew.team=1'"),
        (Unpaid, "agents without a group have a group reward"),
        (Negative, "group_id has negative numbers"),
    ],
)
def test_check_env_names_what_is_wrong_with_groups(kind: type[World], message: str):
    with pytest.raises(AssertionError, match=message):
        check_env(kind, steps=30)


class Roles(Crews):
    """Crews of which the teams see and do other things: blue agents see twice as many numbers."""

    behavior_names = ()
    specs_by_name = {  # noqa: RUF012
        RED: Crews.behavior_spec,
        BLUE: BehaviorSpec([ObservationSpec.vector(2, "age")], ActionSpec.create_hybrid(1, (4, 2))),
    }

    def observe(self, agents):
        (age,) = super().observe(agents)
        assert len(set(self.behavior[agents].tolist())) == 1
        return [np.repeat(age, 1 + self.behavior[agents][0], axis=1)]


def test_behaviors_may_differ_in_what_they_see_and_do():
    check_env(Roles, steps=60)
    env = Roles()
    env.reset()
    assert env.get_steps(BLUE)[0].obs[0].shape == (2, 2)
    assert [mask.shape for mask in env.get_steps(BLUE)[0].action_mask] == [(2, 4), (2, 2)]
