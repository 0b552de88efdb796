"""Groups: their numbers, their returns, and what is said about unusual ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from group_world import SPEC, GroupWorld
from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.acting.groups import SplitGroups
from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.data.decision import Decision
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps
from sacrifice_environment import SacrificeEnvironment
from scripted_environment import Asks, Ends, ScriptedEnvironment
from training_loop import make_trainer, train_while

A = "Room?team=0"


class Room:
    """One player's agents, by (agent, group), in a collector."""

    def __init__(self, **options: Any) -> None:
        self.collector = Collector(SPEC, time_horizon=20, with_groups=True, **options)

    def report(
        self,
        asks: Sequence[tuple[int, int]],
        ends: Sequence[tuple[int, int]] = (),
        *,
        group_reward: float = 0.0,
        interrupted: bool = False,
        behavior: str = A,
        player: int = 0,
    ) -> None:
        def columns(who: Sequence[tuple[int, int]]) -> dict[str, Any]:
            return {
                "obs": [np.zeros((len(who), 3), "f4")],
                "reward": np.zeros(len(who)),
                "agent_id": [agent for agent, _ in who],
                "groups": ([group for _, group in who], np.full(len(who), group_reward)),
            }

        decisions = DecisionSteps.of(**columns(asks))
        terminals = TerminalSteps.of(**columns(ends), interrupted=interrupted)
        lanes = self.collector.observe(player, decisions, terminals, behavior=behavior)
        n = len(asks)
        continuous, discrete = np.zeros((n, 2), "f4"), np.zeros((n, 2), "i4")
        log_probs, memory = np.zeros((n, 4), "f4"), np.zeros((n, 0), "f4")
        action = ActionTuple(continuous, discrete)
        decision = Decision(action, continuous, discrete, log_probs, 0.0, memory)
        self.collector.record(lanes, np.zeros((n, 5), np.bool_), decision)

    def take(self) -> Segments:
        segments = self.collector.take(at_least=1)
        assert segments is not None
        return segments

    @property
    def problems(self) -> list[str]:
        assert self.collector.groups is not None
        return self.collector.groups.problems


def test_a_group_has_a_number_of_its_own_life() -> None:
    room = Room()
    room.report([(1, 7), (2, 7), (3, 8)])
    room.report([(2, 7), (3, 8), (4, 7)], ends=[(1, 7)])  # 4 joins 2
    room.report([(1, 7), (3, 8)], ends=[(2, 7), (4, 7)])  # the id comes back
    room.report([(1, 7), (3, 8)])
    segments = room.take()
    # Segments of 1, then of 2 and 4, then of 3 and of the new 1.
    of_one, of_two, of_four, *others = segments.group.tolist()
    assert of_one == of_two == of_four
    assert len({of_one, *others}) == 3


def test_agents_without_a_group_are_alone() -> None:
    room = Room()
    room.report([(1, 0), (2, 0)])
    room.report([(1, 0), (2, 0)])
    first, second = room.take().group.tolist()
    assert first != second
    assert max(first, second) < 0


def test_teams_behaviors_and_players_have_their_own_groups() -> None:
    room = Room()
    for _ in range(2):
        room.report([(1, 7)])
        room.report([(2, 7)], behavior="Room?team=1")
        room.report([(1, 7)], player=1)
    assert len(set(room.take().group.tolist())) == 3


def test_an_agent_that_changes_its_group_begins_another_segment() -> None:
    room = Room()
    room.report([(1, 7), (2, 8)])
    room.report([(1, 7), (2, 8)])
    room.report([(1, 8), (2, 8)])
    room.report([(1, 8), (2, 8)])
    segments = room.take()
    assert sorted(segments.length.tolist()) == [1, 2, 3]
    of_length = dict(zip(segments.length.tolist(), segments.group.tolist(), strict=True))
    assert of_length[1] == of_length[3] != of_length[2]
    assert len(set(segments.episode.tolist())) == 2


def test_a_group_is_paid_once_and_when_it_is_over() -> None:
    room = Room()
    room.report([(1, 7), (2, 7), (3, 0)])
    room.report([(2, 7)], ends=[(1, 7)], group_reward=1.0)
    assert not len(room.collector.activity().group_return)
    room.report([(2, 7), (4, 7)], group_reward=2.0)  # 4 has not been there for the first 3
    room.report([], ends=[(4, 7), (2, 7)], group_reward=4.0)
    assert room.collector.activity().group_return.tolist() == [7.0]
    assert not len(room.collector.activity().group_return)


def test_a_reward_that_was_told_is_not_told_again() -> None:
    room = Room()
    for group_reward in (1.0, 0.0):
        room.report([(1, 7)])
        room.report([], ends=[(1, 7)], group_reward=group_reward)
        assert room.collector.activity().has_group_reward == bool(group_reward)


def test_returns_of_random_groups_are_those_that_were_paid() -> None:
    world = GroupWorld(np.random.default_rng(0))
    collector = Collector(SPEC, time_horizon=5, with_groups=True)
    for _ in range(200):
        world.report(collector)
        world.decide()
    assert len(world.returns) > 20
    np.testing.assert_allclose(
        sorted(collector.activity().group_return), sorted(world.returns), atol=1e-4
    )


def test_a_vanished_agent_leaves_its_group() -> None:
    room = Room()
    room.report([(1, 7), (2, 7)])
    for _ in range(300):
        room.report([(2, 7)])
    for agent in range(3, 40):  # lanes are needed
        room.report([(2, 7), (agent, 0)])
    assert room.collector.n_vanished > 0
    room.report([(1, 7), (2, 7)])
    room.report([], ends=[(1, 7), (2, 7)], group_reward=1.0)
    (of_group,) = room.collector.activity().group_return
    assert of_group == 1.0


def test_a_player_that_begins_again_has_new_groups() -> None:
    room = Room()
    for group_reward in (0.0, 1.0):
        room.report([(1, 7), (2, 7)], group_reward=group_reward)
    room.collector.forget(0)
    room.report([(5, 7)])
    room.report([], ends=[(5, 7)], group_reward=2.0)
    assert room.collector.activity().group_return.tolist() == [2.0]


def test_ends_of_members_that_differ_from_their_group_are_told_once() -> None:
    room = Room()
    room.report([(1, 7), (2, 7)])
    for _ in range(3):
        room.report([(1, 7), (2, 7)], ends=[(1, 7)])
    (problem,) = room.problems
    assert "agent 1 of group 7 ended its episode and began another" in problem
    assert "EndGroupEpisode" in problem
    for _ in range(3):
        room.report([(2, 7)], ends=[(1, 7)], interrupted=True)
        room.report([(1, 7), (2, 7)])
    assert len(room.problems) == 2
    assert "agent 1 of group 7 was interrupted while its group continued" in room.problems[1]


def test_usual_ends_are_not_told() -> None:
    room = Room()
    room.report([(1, 7), (2, 7), (3, 0)])
    room.report([(2, 7), (3, 0)], ends=[(1, 7), (3, 0)])  # one leaves early, one is alone
    room.report([(1, 7), (2, 7)], ends=[(2, 7)], interrupted=True)  # the group is over
    assert not room.problems


def test_a_group_of_several_behaviors_is_told_once() -> None:
    def steps(group: int) -> DecisionSteps:
        return DecisionSteps.of([np.zeros((1, 3), "f4")], [0.0], [1], groups=([group], [0.0]))

    split = SplitGroups()
    assert split.find([("Goalie?team=0", steps(3)), ("Striker?team=0", steps(4))]) is None
    assert split.find([("Goalie?team=0", steps(0)), ("Striker?team=0", steps(0))]) is None
    both = [("Goalie?team=0", steps(3)), ("Striker?team=0", steps(3))]
    problem = split.find(both)
    assert problem is not None
    assert "group 3 has agents of 'Goalie?team=0' and 'Striker?team=0'" in problem
    assert split.find(both) is None


def settings(**written: Any) -> BehaviorSettings:
    defaults = {
        "trainer_type": "poca",
        "max_steps": 2000,
        "time_horizon": 7,
        "hyperparameters": {"batch_size": 32, "buffer_size": 128, "num_epoch": 1},
        "network_settings": {"hidden_units": 8, "num_layers": 1},
    }
    return BehaviorSettings.model_validate(defaults | written)


def test_no_group_at_all_is_told_once_and_learned_from(capsys: pytest.CaptureFixture[str]) -> None:
    script = [[Asks(1, 0.0), Asks(2, 0.5)] for _ in range(300)]
    env = ScriptedEnvironment(script)
    env.reset()
    trainer = make_trainer(env, settings())
    train_while(lambda: trainer.step < 500, trainer, env)
    told = [
        line for line in capsys.readouterr().out.splitlines() if "no agent is in a group" in line
    ]
    assert len(told) == 1 and "as with ppo" in told[0]


def test_rewards_of_groups_need_no_warning_with_poca(capsys: pytest.CaptureFixture[str]) -> None:
    env = SacrificeEnvironment(n_groups=4)
    env.reset()
    trainer = make_trainer(env, settings())
    train_while(lambda: trainer.step < 1000, trainer, env)
    said = capsys.readouterr().out
    assert "group reward" not in said
    assert "no agent is in a group" not in said
    assert trainer.mean_group_reward is not None


def test_rewards_of_groups_count_towards_the_goal() -> None:
    env = SacrificeEnvironment(n_groups=4)
    env.reset()
    trainer = make_trainer(env, settings(stop_at_reward=1.0))
    trainer.meter.remember([0.25] * 100, [0.75] * 99)
    trainer.stop_if_learned()
    assert not trainer.has_learned  # the mean of a hundred groups is not known yet
    trainer.meter.remember([], [0.74])
    trainer.stop_if_learned()
    assert not trainer.has_learned
    trainer.meter.remember([], [0.76])
    trainer.stop_if_learned()
    assert trainer.ended_by == "stop_at_reward: 1"


def test_problems_are_told_with_the_name_of_the_behavior(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = [Asks(1, 0.0, group=3), Asks(2, 0.0, group=3)]
    env = ScriptedEnvironment([both, [*both, Ends(1, 0.0, group=3)], both, both])
    env.reset()
    trainer = make_trainer(env, settings())
    rollout = Rollout(SimpleEnvManager(env), lambda player, behavior: trainer.seat)
    rollout.reset()
    for _ in range(3):
        rollout.advance()
        trainer.advance()
        rollout.answer()
    assert "Scripted: agent 1 of group 3 ended its episode" in capsys.readouterr().out
