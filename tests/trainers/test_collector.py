import gc
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from actors import image_8_bit
from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.acting.memories import Lanes
from mlagents.trainers.data.decision import Decision
from mlagents.trainers.data.segments import Segments
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)

SPEC = BehaviorSpec(
    [
        ObservationSpec.vector(2, "vector"),
        ObservationSpec((1, 2, 3), (DimensionProperty.NONE,) * 3, ObservationType.DEFAULT, "image"),
    ],
    ActionSpec(2, (3, 2)),
)
MEMORY_SIZE = 2


class Source:
    """Gives every number it is asked for a new value, so that none can be mistaken for another."""

    def __init__(self) -> None:
        self._next = 1

    def numbers(self, *shape: int) -> NDArray[np.float32]:
        n_numbers = int(np.prod(shape))
        first, self._next = self._next, self._next + n_numbers
        return np.arange(first, first + n_numbers, dtype=np.float32).reshape(shape)

    def decisions(self, agents: Sequence[int]) -> DecisionSteps:
        n_agents = len(agents)
        return DecisionSteps(
            obs=[self.numbers(n_agents, *o.shape) for o in SPEC.observation_specs],
            reward=self.numbers(n_agents),
            agent_id=np.array(agents, np.int32),
            action_mask=None,
            group_id=np.zeros(n_agents, np.int32),
            group_reward=self.numbers(n_agents),
        )

    def terminals(self, ends: dict[int, bool]) -> TerminalSteps:
        n_agents = len(ends)
        return TerminalSteps(
            obs=[self.numbers(n_agents, *o.shape) for o in SPEC.observation_specs],
            reward=self.numbers(n_agents),
            interrupted=np.array(list(ends.values()), np.bool_),
            agent_id=np.array(list(ends), np.int32),
            group_id=np.zeros(n_agents, np.int32),
            group_reward=self.numbers(n_agents),
        )

    def decision(self, n_agents: int) -> tuple[NDArray[np.bool_], Decision]:
        continuous, discrete = self.numbers(n_agents, 2), self.numbers(n_agents, 2).astype(np.int32)
        return self.numbers(n_agents, 5) % 3 == 0, Decision(
            ActionTuple(continuous / 3, discrete),
            continuous,
            discrete,
            log_probs=self.numbers(n_agents, 4),
            entropy=0.0,
            memory=self.numbers(n_agents, MEMORY_SIZE),
        )


def scribble(steps: DecisionSteps | TerminalSteps) -> None:
    """Overwrite a message, as an environment might that uses its arrays again."""
    for array in (*steps.obs, steps.reward, steps.group_reward):
        array.fill(np.nan)


# ------------------------------------------------------------------------------------ the reference


@dataclass
class Step:
    obs: list[NDArray[Any]]
    memory: NDArray[Any]
    """What the agent remembered before it."""
    chosen: list[NDArray[Any]] = field(default_factory=list)
    rewards: tuple[float, float] = (0.0, 0.0)


@dataclass
class Agent:
    episode: int
    open: Step
    steps: list[Step] = field(default_factory=list)
    """Of the present segment, all closed."""
    episode_return: float = 0.0
    group_return: float = 0.0
    episode_length: int = 0
    memory: NDArray[Any] = field(default_factory=lambda: np.zeros(MEMORY_SIZE, np.float32))
    """What it remembers now."""

    def close(self, reward: float, group_reward: float) -> None:
        self.open.rewards = reward, group_reward
        self.steps.append(self.open)
        self.episode_return += reward
        self.group_return += group_reward
        self.episode_length += 1


class Piece(NamedTuple):
    """One segment."""

    episode: int
    ended: tuple[bool, bool]
    rows: list[list[NDArray[Any]]]
    """What each step holds: observations, what was chosen, rewards."""
    memories: list[NDArray[Any]]
    """What was remembered before each sequence."""
    last: list[NDArray[Any]]
    """What was observed, and remembered, after the last step."""


class Reference:
    """What the collector does, agent by agent and step by step."""

    def __init__(self, horizon: int, sequence: int) -> None:
        self.horizon, self.sequence = horizon, sequence
        self.n_steps = 0
        self.ended: list[tuple[float, float, int]] = []
        """Return, return of the group and length of every episode that ended."""
        self.agents: dict[tuple[int, int], Agent] = {}
        self.n_episodes = 0
        self.pieces: list[Piece] = []

    def observe(self, player: int, decisions: DecisionSteps, terminals: TerminalSteps) -> None:
        for agent_id, end in terminals.items():
            if (player, agent_id) in self.agents:
                agent = self.agents.pop((player, agent_id))
                agent.close(end.reward, end.group_reward)
                ended = not end.interrupted, end.interrupted
                self.emit(agent, [*end.obs, agent.memory], ended)
                self.ended.append((agent.episode_return, agent.group_return, agent.episode_length))
        for agent_id, begin in decisions.items():
            obs = [array.copy() for array in begin.obs]
            if (player, agent_id) not in self.agents:
                step = Step(obs, np.zeros(MEMORY_SIZE, np.float32))
                self.agents[player, agent_id] = Agent(self.n_episodes, step)
                self.n_episodes += 1
                continue
            agent = self.agents[player, agent_id]
            agent.close(begin.reward, begin.group_reward)
            agent.open = Step(obs, agent.memory)
            if len(agent.steps) == self.horizon:
                self.emit(agent, [*obs, agent.memory], (False, False))

    def record(
        self, keys: Iterable[tuple[int, int]], mask: NDArray[np.bool_], decision: Decision
    ) -> None:
        for row, key in enumerate(keys):
            chosen = (decision.continuous, decision.discrete, decision.log_probs, mask)
            self.agents[key].open.chosen = [array[row].copy() for array in chosen]
            self.agents[key].memory = decision.memory[row].copy()

    def forget(self, player: int) -> None:
        self.agents = {key: agent for key, agent in self.agents.items() if key[0] != player}

    def cut(self) -> None:
        for agent in self.agents.values():
            if agent.steps:
                self.emit(agent, [*agent.open.obs, agent.open.memory], (False, False))

    def emit(self, agent: Agent, last: list[NDArray[Any]], ended: tuple[bool, bool]) -> None:
        self.pieces.append(
            Piece(
                agent.episode,
                ended,
                [[*step.obs, *step.chosen, *map(np.array, step.rewards)] for step in agent.steps],
                [step.memory for step in agent.steps[:: self.sequence]],
                [array.copy() for array in last],
            )
        )
        self.n_steps += len(agent.steps)
        agent.steps = []


def pieces_of(segments: Segments, sequence: int) -> list[Piece]:
    """Take segments apart."""
    columns = [
        *segments.obs,
        segments.continuous,
        segments.discrete,
        segments.log_probs,
        segments.action_mask,
        segments.reward,
        segments.group_reward,
    ]
    assert {len(column) for column in columns} == {segments.n_steps}
    ends = np.cumsum(segments.length)
    assert ends[-1] == segments.n_steps
    n_sequences = -(-segments.length // sequence)
    assert len(segments.memory) == n_sequences.sum()
    memories = np.split(segments.memory, np.cumsum(n_sequences)[:-1])
    return [
        Piece(
            int(segments.episode[s]),
            (bool(segments.terminated[s]), bool(segments.interrupted[s])),
            [[column[row] for column in columns] for row in range(end - n_steps, end)],
            list(memories[s]),
            [last[s] for last in (*segments.last_obs, segments.last_memory)],
        )
        for s, (n_steps, end) in enumerate(zip(segments.length, ends, strict=True))
    ]


def assert_same_pieces(found: list[Piece], wanted: list[Piece]) -> None:
    found, wanted = (
        sorted(pieces, key=lambda piece: (piece.episode, piece.ended)) for pieces in (found, wanted)
    )
    assert [piece[:2] for piece in found] == [piece[:2] for piece in wanted]
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_equal(left.last, right.last)
        np.testing.assert_equal(left.rows, right.rows)
        np.testing.assert_equal(left.memories, right.memories)


# ----------------------------------------------------------------------------- any course of events


class Message(NamedTuple):
    """What one player reports: who decides, and who ended (interrupted or not)."""

    decisions: list[int]
    terminals: dict[int, bool]


class Round(NamedTuple):
    """Players that report, then perhaps a cut, then one decision."""

    messages: dict[int, Message]
    cut: bool
    forget: int | None = None
    """A player whose episodes are void before this round."""


def play(rounds: Iterable[Round], *, horizon: int, sequence: int) -> None:
    """Run a course of events through collector and reference; all they give must be equal."""
    source, reference = Source(), Reference(horizon, sequence)
    collector = Collector(
        SPEC, time_horizon=horizon, memory_size=MEMORY_SIZE, sequence_length=sequence
    )
    taken: list[Segments] = []
    for messages, cut, forgotten in rounds:
        if forgotten is not None:
            collector.forget(forgotten)
            reference.forget(forgotten)
        keys: list[tuple[int, int]] = []
        lanes: list[Lanes] = [np.zeros(0, np.int64)]
        for player, (agents, ends) in messages.items():
            decisions, terminals = source.decisions(agents), source.terminals(ends)
            reference.observe(player, decisions, terminals)
            lanes.append(collector.observe(player, decisions, terminals))
            keys += [(player, agent) for agent in agents]
            scribble(decisions)
            scribble(terminals)
        if cut:
            collector.cut()
            reference.cut()
        if keys:
            remembered = [reference.agents[key].memory for key in keys]
            np.testing.assert_array_equal(collector.memory(np.concatenate(lanes)), remembered)
        mask, decision = source.decision(len(keys))
        collector.record(np.concatenate(lanes), mask, decision)
        reference.record(keys, mask, decision)
        n_unfinished = sum(len(agent.steps) for agent in reference.agents.values())
        assert collector.n_unfinished == n_unfinished
        segments = collector.take()
        if segments is not None:
            taken.append(segments)
    # Only now: what was taken must not have changed since.
    pieces = [piece for part in taken for piece in pieces_of(part, sequence)]
    assert_same_pieces(pieces, reference.pieces)
    activity = collector.activity()
    assert activity.n_steps == reference.n_steps
    ended = zip(
        activity.episode_return.tolist(),
        activity.episode_group_return.tolist(),
        activity.episode_length.tolist(),
        strict=True,
    )
    assert list(ended) == reference.ended
    assert collector.activity().n_steps == 0, "asked for, it begins again"


agent_ids = st.integers(0, 3)
messages = st.builds(
    Message,
    st.lists(agent_ids, unique=True, max_size=4),
    st.dictionaries(agent_ids, st.booleans(), max_size=2),
)
rounds = st.builds(
    Round,
    messages=st.dictionaries(st.integers(0, 1), messages, min_size=1),
    cut=st.sampled_from([False, False, True]),
    forget=st.sampled_from([None, None, None, 0, 1]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(rounds, max_size=12), st.integers(1, 4), st.integers(1, 5))
def test_any_course_of_events_gives_what_agent_by_agent_bookkeeping_gives(
    course: list[Round], horizon: int, sequence: int
) -> None:
    play(course, horizon=horizon, sequence=sequence)


def test_a_crowd_that_outgrows_its_lanes_keeps_what_it_had() -> None:
    rng = np.random.default_rng(0)

    def message(n_agents: int) -> Message:
        deciding, ending = rng.random(n_agents) < 0.8, rng.random(n_agents) < 0.1
        ends = {int(agent): bool(rng.random() < 0.5) for agent in np.flatnonzero(ending)}
        return Message(np.flatnonzero(deciding).tolist(), ends)

    # From 6 agents to 96 in each of two players: lanes grow several times, with steps in them.
    play(
        [Round({0: message(6 + n), 1: message(6 + n)}, cut=n % 20 == 7) for n in range(0, 90, 3)],
        horizon=5,
        sequence=2,
    )


# ---------------------------------------------------------------------------- the same, one by one


def reported(collector: Collector, source: Source, *agents: int, **ends: bool) -> DecisionSteps:
    """Report one message of player 0, decide for its agents, return what they reported."""
    terminals = source.terminals({int(name.removeprefix("a")): end for name, end in ends.items()})
    decisions = source.decisions(agents)
    lanes = collector.observe(0, decisions, terminals)
    collector.record(lanes, *source.decision(len(agents)))
    return decisions


def take(collector: Collector) -> Segments:
    segments = collector.take()
    assert segments is not None
    return segments


def test_the_reward_of_a_step_is_what_came_with_the_next_report() -> None:
    collector, source = Collector(SPEC, time_horizon=10, memory_size=MEMORY_SIZE), Source()
    first = reported(collector, source, 7)
    second = reported(collector, source, 7)
    assert collector.take() is None
    terminals = source.terminals({7: False})
    collector.observe(0, source.decisions([]), terminals)
    segments = take(collector)
    np.testing.assert_array_equal(segments.length, [2])
    np.testing.assert_array_equal(segments.obs[0], [first.obs[0][0], second.obs[0][0]])
    np.testing.assert_array_equal(segments.reward, [second.reward[0], terminals.reward[0]])
    np.testing.assert_array_equal(segments.last_obs[1], terminals.obs[1])
    assert segments.terminated.tolist() == [True]
    assert segments.interrupted.tolist() == [False]
    assert segments.tick.size == segments.last_tick.size == segments.group.size == 0, "no groups"
    # The reward that came with the first report belongs to nothing the agent did.
    # What came for the group is kept beside it, and is no part of the agent's own return.
    activity = collector.activity()
    assert activity.episode_return == [second.reward[0] + terminals.reward[0]]
    group_return = second.group_reward[0] + terminals.group_reward[0]
    assert activity.episode_group_return == pytest.approx([group_return])
    assert activity.has_group_reward
    np.testing.assert_array_equal(
        segments.group_reward, [second.group_reward[0], terminals.group_reward[0]]
    )
    assert collector.take() is None


def test_a_full_segment_is_cut_and_its_episode_goes_on() -> None:
    collector, source = Collector(SPEC, time_horizon=2, memory_size=MEMORY_SIZE), Source()
    reports = [reported(collector, source, 0) for _ in range(4)]
    reported(collector, source, a0=True)
    segments = take(collector)
    np.testing.assert_array_equal(segments.length, [2, 2])
    np.testing.assert_array_equal(segments.last_obs[0][0], reports[2].obs[0][0])
    np.testing.assert_array_equal(segments.obs[0][2], reports[2].obs[0][0])
    assert segments.ended.tolist() == [False, True]
    assert segments.interrupted.tolist() == [False, True]
    assert segments.episode.tolist() == [0, 0]
    assert collector.activity().episode_length.tolist() == [4]


def test_an_agent_may_end_and_begin_in_one_message() -> None:
    collector, source = Collector(SPEC, time_horizon=10, memory_size=MEMORY_SIZE), Source()
    reported(collector, source, 0)
    reported(collector, source, 0, a0=False)
    assert take(collector).length.tolist() == [1]
    reported(collector, source, a0=False)
    segments = take(collector)
    assert segments.episode.tolist() == [1]
    activity = collector.activity()
    assert activity.episode_length.tolist() == [1, 1]
    assert activity.group_return.size == 0, "there are no groups"


def test_an_agent_that_ends_without_having_acted_leaves_nothing() -> None:
    collector, source = Collector(SPEC, time_horizon=10, memory_size=MEMORY_SIZE), Source()
    reported(collector, source, a3=False)
    assert collector.take() is None


def test_a_cut_hands_over_all_closed_steps_and_keeps_the_open_ones() -> None:
    collector, source = Collector(SPEC, time_horizon=10, memory_size=MEMORY_SIZE), Source()
    reported(collector, source, 0)
    reported(collector, source, 0, 1)
    decisions = source.decisions([1, 0])
    lanes = collector.observe(0, decisions, source.terminals({}))
    collector.cut()
    collector.record(lanes, *source.decision(2))
    segments = take(collector)
    assert sorted(segments.length.tolist()) == [1, 2]
    assert not segments.ended.any()
    assert collector.n_unfinished == 0
    of_0 = int(segments.length.argmax())
    np.testing.assert_array_equal(segments.last_obs[0][of_0], decisions.obs[0][1])
    reported(collector, source, a0=False, a1=False)
    segments = take(collector)
    np.testing.assert_array_equal(segments.length, [1, 1])
    np.testing.assert_array_equal(segments.obs[1], decisions.obs[1][[1, 0]])


def test_a_cut_of_nothing_is_nothing() -> None:
    collector, source = Collector(SPEC, time_horizon=10, memory_size=MEMORY_SIZE), Source()
    collector.cut()
    reported(collector, source, 0)
    collector.cut()
    assert collector.take() is None


def test_images_of_8_bit_stay_so_and_take_no_more_room_than_their_pixels() -> None:
    image = ObservationSpec(
        (3, 40, 40), (DimensionProperty.NONE,) * 3, ObservationType.DEFAULT, "image", np.dtype("u1")
    )
    spec = BehaviorSpec([image], ActionSpec(1, ()))
    collector = Collector(spec, time_horizon=4)
    rng = np.random.default_rng(0)
    shown = rng.integers(256, size=(5, 2, 3, 40, 40), dtype=np.uint8)
    ids, zeros = np.arange(2, dtype=np.int32), np.zeros(2, np.float32)
    for images in shown:
        steps = DecisionSteps([images], zeros, ids, None, ids, zeros)
        lanes = collector.observe(0, steps, TerminalSteps.empty(spec))
        action = np.zeros((2, 1), np.float32), np.zeros((2, 0), np.int32)
        memory = np.zeros((2, 0), np.float32)
        decision = Decision(ActionTuple(*action), *action, action[0], 0.0, memory)
        collector.record(lanes, np.zeros((2, 0), np.bool_), decision)
    segments = take(collector)
    assert segments.obs[0].dtype == segments.last_obs[0].dtype == np.uint8
    np.testing.assert_array_equal(segments.obs[0][:4], shown[:4, 0])
    np.testing.assert_array_equal(segments.last_obs[0], shown[4])
    assert segments.open_steps is None
    kept = [getattr(segments, f.name) for f in fields(Segments) if f.name != "open_steps"]
    n_bytes = sum(sum(a.nbytes for a in k) if isinstance(k, list) else k.nbytes for k in kept)
    n_images = segments.n_steps + len(segments.length)
    assert n_bytes < 1.1 * n_images * image_size(image)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident memory from /proc")
def test_a_cut_gives_back_the_room_of_images() -> None:
    # A lane reserves the whole time horizon, and takes memory as it fills. A cut must free it.
    image = image_8_bit(1, 32, 32)
    spec = BehaviorSpec([image], ActionSpec(1, ()))
    collector = Collector(spec, time_horizon=64)
    ids, zeros = np.arange(2, dtype=np.int32), np.zeros(2, np.float32)
    for step in range(5):
        images = np.full((2, 1, 32, 32), step, np.uint8)
        steps = DecisionSteps([images], zeros, ids, None, ids, zeros)
        collector.observe(0, steps, TerminalSteps.empty(spec))
    filled = weakref.ref(collector._columns.obs[0])
    collector.cut()
    gc.collect()
    assert filled() is None, "the filled lanes are freed"
    (lanes,) = collector._columns.obs
    assert (lanes[:2, 0] == 4).all(), "the open step comes first"
    assert not lanes[:, 1:].any(), "and nothing else was written"
    segments = take(collector)
    assert segments.n_steps == 4 * 2
    assert sorted(segments.obs[0][:, 0, 0, 0].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def image_size(spec: ObservationSpec) -> int:
    return int(np.prod(spec.shape))


def test_steps_are_taken_once_there_are_enough_and_open_segments_are_cut_for_it() -> None:
    collector, source = Collector(SPEC, time_horizon=10, memory_size=MEMORY_SIZE), Source()
    for _ in range(3):
        reported(collector, source, 0, 1)  # two closed steps each
    assert collector.take(at_least=5) is None
    assert collector.n_unfinished == 4, "nothing is cut before there are enough"
    reported(collector, source, 0, 1)
    segments = collector.take(at_least=5)
    assert segments is not None
    assert segments.length.tolist() == [3, 3]
    assert collector.n_unfinished == 0


def test_a_step_is_written_once_between_its_lane_and_what_is_taken() -> None:
    collector = Collector(SPEC, time_horizon=2, memory_size=MEMORY_SIZE, n_expected=32)
    source = Source()
    at_first = [column.ctypes.data for column in collector._rows._columns]
    for _ in range(9):
        reported(collector, source, 0, 1, 2)
    segments = take(collector)
    assert segments.n_steps == 24
    taken = [*segments.obs, segments.continuous, segments.discrete, segments.log_probs]
    assert [column.ctypes.data for column in taken] == at_first[: len(taken)]


def test_the_lanes_of_agents_that_vanish_are_taken_back() -> None:
    source, collector = Source(), Collector(SPEC, time_horizon=4, memory_size=MEMORY_SIZE)
    n_steps = 0
    for report in range(2000):
        # Agent 0 goes on. Each of the others reports twice, so it closes one step, and vanishes.
        agents = [report + 1, report, 0] if report else [1, 0]
        decisions = source.decisions(agents)
        lanes = collector.observe(0, decisions, source.terminals({}))
        assert len(set(lanes.tolist())) == len(agents)
        collector.record(lanes, *source.decision(len(agents)))
        segments = collector.take()
        if segments is not None:
            n_steps += segments.n_steps
            assert not segments.ended.any()
    assert len(collector._columns.length) <= 512
    assert collector.n_vanished > 1000
    # One step of each that vanished, and all of agent 0 but those it has not finished.
    assert n_steps == collector.n_vanished + 1996


def test_an_agent_that_vanishes_before_its_first_reward_leaves_nothing() -> None:
    source, collector = Source(), Collector(SPEC, time_horizon=4, memory_size=MEMORY_SIZE)
    collector.observe(0, source.decisions(range(16)), source.terminals({}))
    for _ in range(300):
        collector.observe(0, source.decisions([]), source.terminals({}))
    collector.observe(0, source.decisions([100]), source.terminals({}))
    assert collector.n_vanished == 16
    assert collector.take() is None


def test_an_agent_that_comes_back_with_new_ones_keeps_its_lane() -> None:
    source, collector = Source(), Collector(SPEC, time_horizon=4, memory_size=MEMORY_SIZE)
    collector.observe(0, source.decisions([7]), source.terminals({}))
    for _ in range(300):
        collector.observe(0, source.decisions([]), source.terminals({}))
    lanes = collector.observe(0, source.decisions([7, *range(100, 200)]), source.terminals({}))
    assert len(set(lanes.tolist())) == 101
    assert collector.n_vanished == 0


def test_agents_that_pause_keep_their_lanes_while_no_others_come() -> None:
    source, collector = Source(), Collector(SPEC, time_horizon=4, memory_size=MEMORY_SIZE)
    first = collector.observe(0, source.decisions(list(range(16))), source.terminals({}))
    for _ in range(1000):
        collector.observe(0, source.decisions([0]), source.terminals({}))
    again = collector.observe(0, source.decisions(list(range(16))), source.terminals({}))
    assert first.tolist() == again.tolist()


def test_segments_that_outgrow_the_room_follow_the_others() -> None:
    # Room for 16 + 1 steps. Ends at 10, then 8 more: nothing of the 7 free rows may stay.
    collector = Collector(SPEC, time_horizon=20, memory_size=MEMORY_SIZE, n_expected=16)
    source = Source()
    observed = []
    for n_steps, agent in ((10, 0), (8, 1)):
        observed += [reported(collector, source, agent).obs for _ in range(n_steps)]
        reported(collector, source, **{f"a{agent}": False})
    segments = take(collector)
    assert segments.length.tolist() == [10, 8]
    for i, batches in enumerate(zip(*observed, strict=True)):
        np.testing.assert_array_equal(segments.obs[i], np.concatenate(batches))
