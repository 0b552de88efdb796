"""Agents that are not learned from keep their lanes and memories until they end or vanish."""

from collections.abc import Sequence

import numpy as np

from mlagents.trainers.acting.memories import Lanes, Memories
from mlagents.trainers.data.decision import Decision
from mlagents_envs.base_env import ActionTuple, DecisionSteps, TerminalSteps

NO_MASK = np.zeros((1, 0), np.bool_)


def observe(memories: Memories, player: int, deciding: Sequence[int], *ended: int) -> Lanes:
    n_asking, n_ended = len(deciding), len(ended)
    decisions = DecisionSteps.of([np.zeros((n_asking, 1), "f4")], np.zeros(n_asking), deciding)
    never = np.zeros(n_ended, np.bool_)
    terminals = TerminalSteps.of([np.zeros((n_ended, 1), "f4")], np.zeros(n_ended), ended, never)
    return memories.observe(player, decisions, terminals)


def remember(memories: Memories, lanes: Lanes, number: float) -> None:
    none, n = np.zeros((len(lanes), 0), np.float32), len(lanes)
    memory = np.full((n, 2), number, np.float32)
    action = ActionTuple(none, none.astype(np.int32))
    memories.record(lanes, NO_MASK, Decision(action, none, action.discrete, none, 0.0, memory))


def test_an_agent_remembers_until_its_episode_ends() -> None:
    memories = Memories(2)
    lanes = observe(memories, 0, [7, 8])
    remember(memories, lanes, 5.0)
    assert memories.memory(observe(memories, 0, [7, 8])).tolist() == [[5.0, 5.0]] * 2
    # Agent 7 ends and begins again in one report; agent 9 ends without having acted.
    assert memories.memory(observe(memories, 0, [7, 8], 7, 9)).tolist() == [[0.0, 0.0], [5.0, 5.0]]


def test_an_agent_without_memory_has_none() -> None:
    memories = Memories()
    assert memories.memory(observe(memories, 0, [7])).shape == (1, 0)


def test_the_lanes_of_ended_episodes_are_used_again() -> None:
    memories = Memories(2)
    used = {int(observe(memories, 0, [agent], agent - 1)[0]) for agent in range(1000)}
    assert len(used) <= 16 and memories.n_vanished == 0


def test_a_player_that_begins_again_forgets_its_agents_alone() -> None:
    memories = Memories(2)
    for player in (0, 1):
        remember(memories, observe(memories, player, [7]), 5.0)
    memories.forget(0)
    memories.forget(2)  # a player without agents
    assert memories.memory(observe(memories, 0, [7])).tolist() == [[0.0, 0.0]]
    assert memories.memory(observe(memories, 1, [7])).tolist() == [[5.0, 5.0]]


def crowd_after(n_missed: int) -> Memories:
    """Return the memories after an agent has missed so many reports and a crowd needs lanes."""
    memories = Memories(2)
    remember(memories, observe(memories, 0, [7]), 5.0)
    for _ in range(n_missed - 1):
        observe(memories, 0, [])
    observe(memories, 0, range(100, 200))
    return memories


def test_an_agent_may_miss_200_reports_of_its_player() -> None:
    memories = crowd_after(200)
    assert memories.n_vanished == 0
    assert memories.memory(observe(memories, 0, [7])).tolist() == [[5.0, 5.0]]


def test_an_agent_that_missed_more_has_vanished_if_lanes_run_out() -> None:
    memories = crowd_after(201)
    assert memories.n_vanished == 1
    assert memories.memory(observe(memories, 0, [7])).tolist() == [[0.0, 0.0]]


def test_the_reports_of_another_player_make_no_agent_vanish() -> None:
    memories = Memories(2)
    observe(memories, 0, [7])
    for _ in range(300):
        observe(memories, 1, [8])
    observe(memories, 0, range(100, 200))
    assert memories.n_vanished == 0


def lanes_after(n_vanished: int, n_beginning: int) -> int:
    """Return the number of lanes after some of 16 agents vanished and others began."""
    memories = Memories(2)
    observe(memories, 0, range(16))
    assert len(memories._remembered) == 16
    for _ in range(300):
        observe(memories, 0, range(n_vanished, 16))
    observe(memories, 0, [*range(n_vanished, 16), *range(100, 100 + n_beginning)])
    assert memories.n_vanished == n_vanished
    return len(memories._remembered)


def test_lanes_are_added_when_few_are_left() -> None:
    assert lanes_after(n_vanished=16, n_beginning=16) == 16, "all can be used again"
    assert lanes_after(n_vanished=5, n_beginning=1) == 16, "more than a quarter is free"
    assert lanes_after(n_vanished=4, n_beginning=1) == 32, "no more than a quarter is free"
