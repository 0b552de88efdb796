"""The base class of the worlds: who asks, who ends, what is pending, in Unity's order."""

from collections.abc import Mapping

import numpy as np
import pytest

from document_examples import examples_of
from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.testing import check_env
from mlagents_sim import world
from mlagents_sim.examples.ball_3d import Ball3D
from mlagents_sim.examples.wall_jump import WallJump
from mlagents_sim.world import World

NAME = "Walkers?team=0"


class Walkers(World):
    """Two agents an area walk along a line by their action each step, and end beyond `goal`.

    The observation is the place and the action in force; the reward is 1 per step, added.
    """

    behavior_name = NAME
    behavior_spec = BehaviorSpec([ObservationSpec.vector(2, "place")], ActionSpec(1, (2,)))
    agents_per_area = 2
    decision_period_steps = 3
    max_steps = 8
    default_parameters = {"goal": 100.0, "start": 0.0}  # noqa: RUF012

    def __init__(self, **options):
        super().__init__(**options)
        self.place = np.zeros(self.n_agents)
        self.speed = np.zeros(self.n_agents)
        self.sets_reward = False

    def begin(self, agents):
        n = len(self.agent_id[agents])
        self.place[agents] = self.parameters.draw("start", n) + self.rng.integers(0, 1000, n) / 1e6

    def observe(self, agents):
        return [np.stack([self.place[agents], self.speed[agents]], 1).astype(np.float32)]

    def command(self, agents, action):
        self.speed[agents] = action.continuous[:, 0]

    def act(self):
        self.place += self.speed
        if self.sets_reward:
            self.reward[:] = 1.0
        else:
            self.reward += 1.0
        self.end(np.flatnonzero(self.place > self.parameters["goal"]))

    def render(self):
        return np.zeros((1, 1, 3), np.uint8)


def walk(env: World, speeds: list[float]) -> None:
    """Set the agents' speeds, then step."""
    continuous = np.array(speeds)[:, None]
    env.set_actions(NAME, ActionTuple(continuous, np.zeros((len(speeds), 1))))
    env.step()


def test_walkers_keep_the_contract():
    check_env(Walkers, steps=60)


def test_a_world_that_shows_nothing_cannot_be_drawn():
    with pytest.raises(UnityEnvironmentException, match=r"Walkers .*scene\(\).*render\(\)"):
        World.render(Walkers())


class Crowd(Walkers):
    """Walkers who change between two behaviors, with agent 0 in the second at first."""

    behavior_names = ("Slow?team=0", "Fast?team=0")

    def begin(self, agents):
        super().begin(agents)
        if isinstance(agents, slice):
            self.behavior[:] = 0
            self.behavior[0] = 1
        else:
            self.behavior[agents] = 1 - self.behavior[agents]


def test_worlds_of_several_behaviors_keep_the_contract():
    check_env(Crowd, steps=60)


def test_agents_end_under_one_behavior_and_begin_under_another():
    env = Crowd(num_areas=2, parameters={"goal": 5.0})
    env.reset()
    slow, fast = env.behavior_names
    assert list(env.behavior_specs) == [slow, fast]

    def ids() -> list[list[int]]:
        return [steps.agent_id.tolist() for name in (slow, fast) for steps in env.get_steps(name)]

    assert ids() == [[1, 2, 3], [], [0], []]
    no_branch = np.zeros((3, 1))
    env.set_actions(slow, ActionTuple(np.array([[0.0], [2.0], [0.0]]), no_branch))
    env.set_actions(fast, ActionTuple(np.array([[1.0]]), no_branch[:1]))
    env.step()
    # In the third step agent 2 is beyond 5, and all are asked.
    assert ids() == [[1, 3], [2], [0, 2], []]
    decisions, _ = env.get_steps(fast)
    np.testing.assert_allclose(decisions.obs[0], [[3, 1], [0, 0]], atol=0.01)
    assert decisions.reward.tolist() == [3.0, 0.0]
    env.set_action_for_agent(fast, 2, ActionTuple(np.array([[3.0]]), no_branch[:1]))
    with pytest.raises(IndexError, match=r"agent 2 did not request .* \[1, 3\]"):
        env.set_action_for_agent(slow, 2, ActionTuple(np.array([[3.0]]), no_branch[:1]))
    with pytest.raises(UnityActionException, match="unknown behavior 'Swift"):
        env.set_actions("Swift?team=0", ActionTuple(np.array([[3.0]]), no_branch[:1]))
    with pytest.raises(KeyError, match="unknown behavior 'Swift"):
        env.get_steps("Swift?team=0")
    env.step()
    assert ids() == [[], [], [], [2]]  # beyond 5 in the second step
    env.step()
    assert ids() == [[1, 2, 3], [], [0], []]


def test_first_step_is_a_reset_and_everyone_asks():
    env = Walkers(num_areas=2)
    env.step()
    decisions, terminals = env.get_steps(NAME)
    assert decisions.agent_id.tolist() == [0, 1, 2, 3]
    assert decisions.reward.tolist() == [0.0] * 4
    assert [mask.tolist() for mask in decisions.action_mask] == [[[False, False]] * 4]
    assert len(terminals) == 0


def test_actions_hold_until_the_next_decision_and_rewards_add_up():
    env = Walkers()
    env.reset()
    walk(env, [1.0, 2.0])
    decisions, _ = env.get_steps(NAME)
    np.testing.assert_allclose(decisions.obs[0], [[3, 1], [6, 2]], atol=0.01)
    assert decisions.reward.tolist() == [3.0, 3.0]


def test_a_reward_that_is_set_overwrites_what_accrued():
    env = Walkers()
    env.sets_reward = True
    env.reset()
    walk(env, [0.0, 0.0])
    assert env.get_steps(NAME)[0].reward.tolist() == [1.0, 1.0]


def test_agents_without_an_action_get_zeros():
    env = Walkers()
    env.reset()
    walk(env, [1.0, 1.0])
    env.step()
    np.testing.assert_allclose(env.get_steps(NAME)[0].obs[0], [[3, 0], [3, 0]], atol=0.01)


def test_an_end_between_decisions_travels_alone_and_stops_the_agent():
    env = Walkers(parameters={"goal": 5.5})
    env.reset()
    walk(env, [3.0, 0.0])  # beyond 5.5 after the second of three steps

    decisions, terminals = env.get_steps(NAME)
    assert len(decisions) == 0
    assert decisions.action_mask is None
    assert terminals.agent_id.tolist() == [0]
    assert terminals.interrupted.tolist() == [False]
    assert terminals.reward.tolist() == [2.0]
    np.testing.assert_allclose(terminals.obs[0], [[6, 3]], atol=0.01)

    env.step()
    decisions, terminals = env.get_steps(NAME)
    assert len(terminals) == 0
    # The first agent stands at its new start: its old action died with the episode.
    np.testing.assert_allclose(decisions.obs[0], [[0, 0], [0, 0]], atol=0.01)
    assert decisions.reward.tolist() == [1.0, 3.0]


def test_an_end_just_before_decisions_comes_together_with_the_next_episode():
    env = Walkers(parameters={"goal": 8.5})
    env.reset()
    walk(env, [3.0, 0.0])  # beyond 8.5 after the third of three steps
    decisions, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [0]
    assert terminals.reward.tolist() == [3.0]
    assert decisions.agent_id.tolist() == [0, 1]
    assert decisions.reward.tolist() == [0.0, 3.0]


def test_ends_of_several_steps_come_in_several_reports():
    env = Walkers(parameters={"goal": 5.5})
    env.reset()
    walk(env, [6.0, 3.0])
    assert env.get_steps(NAME)[1].agent_id.tolist() == [0]
    env.step()
    assert env.get_steps(NAME)[1].agent_id.tolist() == [1]
    env.step()
    assert len(env.get_steps(NAME)[0]) == 2


@pytest.mark.parametrize("world_type", [Ball3D, WallJump])
def test_rest_is_what_an_action_of_zeros_tells(world_type: type[World]):
    class Told(world_type):
        rest = World.rest

    def play(env: World) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        env.reset()
        seen, n_ended = [], 0
        for _ in range(400):
            for name, spec in env.behavior_specs.items():
                decisions, terminals = env.get_steps(name)
                seen += [*decisions.obs, *terminals.obs]
                n_ended += len(terminals)
                env.set_actions(name, spec.action_spec.random_action(len(decisions), rng))
            env.step()
        assert n_ended > 20
        return seen

    for one, other in zip(play(world_type()), play(Told()), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_clock_interrupts_each_agent_by_its_own_episode():
    env = Walkers(parameters={"goal": 5.5})
    env.reset()
    walk(env, [3.0, 0.0])  # the first agent ends after step 2, so its next clock ends at 10
    reports = []
    while env.step_count < 12:
        env.step()
        _, terminals = env.get_steps(NAME)
        reports += [
            (env.step_count, agent, terminals[agent].interrupted, terminals[agent].reward)
            for agent in terminals
        ]
    # Decisions were at 6 and 9: rewards since then.
    assert reports == [(8, 1, True, 2.0), (10, 0, True, 1.0)]


def test_clocks_begin_anew_with_a_reset():
    env = Walkers()
    env.reset()
    while env.step_count < 9:  # beyond the first clock, in the next episode
        env.step()
    env.reset()
    while env.step_count < 8:
        env.step()
    assert env.get_steps(NAME)[1].interrupted.tolist() == [True, True]


def test_a_step_may_end_some_and_interrupt_others():
    env = Walkers(parameters={"goal": 7.5})
    env.reset()
    walk(env, [1.0, 0.0])
    walk(env, [1.0, 0.0])
    walk(env, [1.0, 0.0])  # after 8 steps: one beyond 7.5, the other out of time
    _, terminals = env.get_steps(NAME)
    assert terminals.agent_id.tolist() == [0, 1]
    assert terminals.interrupted.tolist() == [False, True]


def test_reset_ends_nothing_and_keeps_pending_rewards():
    env = Walkers(parameters={"goal": 5.5})
    env.reset()
    walk(env, [6.0, 1.0])  # a report after one step, with a reward of 1 pending for the second
    env.reset()
    decisions, terminals = env.get_steps(NAME)
    assert len(terminals) == 0
    assert decisions.agent_id.tolist() == [0, 1]
    assert decisions.reward.tolist() == [0.0, 1.0]


def test_ids_can_be_renewed():
    env = Walkers()
    env.renew_ids(np.array([0]))
    env.reset()
    assert env.get_steps(NAME)[0].agent_id.tolist() == [2, 1]


def test_actions_of_wrong_shape_behavior_or_agent_are_refused():
    env = Walkers()
    env.reset()
    with pytest.raises(UnityActionException, match=r"shape \(2, 1\)"):
        env.set_actions(NAME, ActionTuple(np.zeros((3, 1)), np.zeros((3, 1))))
    with pytest.raises(UnityActionException, match="unknown behavior 'Runners'"):
        env.set_actions("Runners", ActionTuple(np.zeros((2, 1)), np.zeros((2, 1))))
    with pytest.raises(IndexError, match="agent 7"):
        env.set_action_for_agent(NAME, 7, ActionTuple(np.zeros((1, 1)), np.zeros((1, 1))))
    with pytest.raises(KeyError, match="Runners"):
        env.get_steps("Runners")


def test_actions_that_are_no_number_or_no_choice_are_refused():
    env = Walkers()
    env.reset()
    with pytest.raises(UnityActionException, match="NaN"):
        env.set_actions(NAME, ActionTuple(np.full((2, 1), np.nan), np.zeros((2, 1))))
    with pytest.raises(UnityActionException, match=r"below \(2,\), got \[\[0\], \[2\]\]"):
        env.set_actions(NAME, ActionTuple(np.zeros((2, 1)), np.array([[0], [2]])))
    with pytest.raises(UnityActionException, match="got"):
        env.set_action_for_agent(NAME, 0, ActionTuple(np.zeros((1, 1)), np.array([[-1]])))


def test_a_refused_action_leaves_what_was_set_before():
    env = Walkers()
    env.reset()
    env.set_actions(NAME, ActionTuple([[0.25], [0.5]], np.zeros((2, 1))))
    with pytest.raises(UnityActionException, match="NaN"):
        env.set_actions(NAME, ActionTuple(np.full((2, 1), np.nan), np.zeros((2, 1))))
    with pytest.raises(UnityActionException, match="NaN"):
        env.set_action_for_agent(NAME, 0, ActionTuple([[np.nan]], np.zeros((1, 1))))
    env.step()
    np.testing.assert_array_equal(env.get_steps(NAME)[0].obs[0][:, 1], [0.25, 0.5])


def test_a_world_whose_step_failed_begins_anew(monkeypatch: pytest.MonkeyPatch):
    env = Walkers()
    env.reset()
    with monkeypatch.context() as patch:
        patch.setattr(env, "begin", lambda agents: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            for _ in range(env.max_steps):
                env.step()
    env.step()
    decisions, terminals = env.get_steps(NAME)
    assert (len(decisions), len(terminals), env.step_count) == (2, 0, 0)
    clocks = []
    while env.step_count < 2 * env.max_steps:
        env.step()
        if len(env.get_steps(NAME)[1]):
            clocks.append(env.step_count)
    assert clocks == [8, 16]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parameters": {"gaol": 1.0}}, "no environment parameter 'gaol'; did you mean 'goal'"),
        ({"parameters": {"level": 1.0}}, r"no environment parameter 'level'\. It has \['goal', "),
        ({"parameters": {"goal": float("nan")}}, "'goal' is nan"),
        ({"parameters": {"goal": "far"}}, "'goal' is 'far': expected a finite number"),
        ({"parameters": {"goal": None}}, "'goal' is None"),
        ({"num_areas": 0}, "num_areas must be at least 1"),
        ({"num_areas": 1.5}, r"num_areas must be a whole number, got 1\.5"),
        ({"seed": "a"}, "seed must be a whole number, got 'a'"),
    ],
)
def test_wrong_options_are_refused(options: Mapping[str, object], text: str):
    with pytest.raises(UnityEnvironmentException, match=text):
        Walkers(**options)


def test_a_parameter_counts_from_the_next_episode():
    env = Walkers()
    env.reset()
    env.set_parameter("start", 50)
    walk(env, [0.0, 0.0])
    np.testing.assert_allclose(env.get_steps(NAME)[0].obs[0][:, 0], 0, atol=0.01)
    env.reset()
    np.testing.assert_allclose(env.get_steps(NAME)[0].obs[0][:, 0], 50, atol=0.01)


SAMPLERS = {
    "uniform": lambda env: env.set_uniform_sampler_parameters("start", 10.0, 20.0, 3),
    "gaussian": lambda env: env.set_gaussian_sampler_parameters("start", 15.0, 0.5, 3),
    "multirangeuniform": lambda env: env.set_multirangeuniform_sampler_parameters(
        "start", [(10.0, 12.0), (18.0, 20.0)], 3
    ),
}


@pytest.mark.parametrize("set_sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_a_sampled_parameter_is_drawn_for_every_agent_that_begins(set_sampler):
    def starts(seed: int) -> list[np.ndarray]:
        env = Walkers(num_areas=2, seed=seed, parameters={"goal": 21.5})
        set_sampler(env)
        env.reset()
        first = env.place.copy()
        env.set_actions(NAME, ActionTuple(np.array([[50.0], [0], [0], [0]]), np.zeros((4, 1))))
        env.step()  # the first agent ends
        return [first, env.place.copy()]

    first, second = starts(seed=0)
    assert len({*first.round(2), second[0].round(2)}) == 5
    assert ((10.0 < first) & (first < 20.01)).all() and 10.0 < second[0] < 20.01
    np.testing.assert_array_equal(first[1:], second[1:])  # whose episodes go on

    # The sampler has a seed of its own; that of the world moves each agent by up to 0.001.
    np.testing.assert_allclose(starts(seed=1), [first, second], atol=0.002)


def test_unknown_parameters_are_passed_over_with_one_warning_each(caplog):
    env = Walkers()
    for _ in range(2):
        env.set_float_parameter("gaol", 1.0)
        env.set_uniform_sampler_parameters("height", 0.0, 1.0, 0)
    assert [record.message for record in caplog.records] == [
        "Walkers has no environment parameter 'gaol'; did you mean 'goal'? It has "
        "['goal', 'start']. It is ignored.",
        "Walkers has no environment parameter 'height'. It has ['goal', 'start']. It is ignored.",
    ]


def test_statistics_wait_until_they_are_read():
    env = Walkers()
    env.add_stat("Walk/Steps", 3)
    env.add_stat("Walk/Falls", 1.0, StatsAggregationMethod.SUM)
    env.add_stat("Walk/Steps", 5.0)
    env.reset()
    assert env.get_and_reset_stats() == {
        "Walk/Steps": [
            (3.0, StatsAggregationMethod.AVERAGE),
            (5.0, StatsAggregationMethod.AVERAGE),
        ],
        "Walk/Falls": [(1.0, StatsAggregationMethod.SUM)],
    }
    assert env.get_and_reset_stats() == {}
    with pytest.raises(UnityEnvironmentException, match="'Walk/Steps' is nan"):
        env.add_stat("Walk/Steps", float("nan"))


def test_statistics_that_nobody_reads_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(world, "_MAX_UNREAD_VALUES", 3)
    env = Walkers()
    for value in range(5):
        env.add_stat("Walk/Steps", value)
    (values,) = env.get_and_reset_stats().values()
    assert [value for value, _ in values] == [2.0, 3.0, 4.0]


def test_a_negative_seed_is_a_seed():
    # Seeds of 32 bits come over the wire as signed numbers.
    check_env(Walkers, seed=-5, steps=20)


def test_a_negative_seed_is_not_its_positive():
    def first_number(seed: int) -> float:
        return float(Walkers(seed=seed).rng.random())

    assert first_number(-5) != first_number(5)
    assert first_number(-5) == first_number(2**32 - 5)  # the same 32 bits


def test_the_world_of_the_document_does_what_it_says():
    names: dict[str, type[World]] = {}
    (example,) = (text for text in examples_of("overview.md") if "class Corridor" in text)
    exec(example, names)
    make = names["Corridor"]
    check_env(make, is_random=False, steps=20)

    env = make(num_areas=2)
    env.reset()
    total = np.zeros(env.n_agents)
    for _ in range(10):
        env.set_actions("Corridor?team=0", ActionTuple(discrete=np.ones((env.n_agents, 1))))
        env.step()
        decisions, terminals = env.get_steps("Corridor?team=0")
        total += decisions.reward
    np.testing.assert_allclose(total + terminals.reward, 0.9, atol=1e-6)
    assert sum(value for value, _ in env.get_and_reset_stats()["Corridor/Arrived"]) == env.n_agents


def test_closed_worlds_do_not_go_on():
    env = Walkers()
    env.close()
    env.close()
    with pytest.raises(UnityEnvironmentException, match="closed"):
        env.reset()
    with pytest.raises(UnityEnvironmentException, match="closed"):
        env.step()
