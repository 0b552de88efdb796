"""`Collector`: collects the agents' steps and decisions into segments.

Every live agent has a *lane*: one row of preallocated arrays (lanes, time horizon, ...). A step
writes the lanes of all agents at once. When an agent's episode ends or its lane is full, the
content of the lane becomes a finished segment.

A step is written in three parts. `observe` opens it with the agent's observations, `record` adds
the decision, and the next `observe` closes it with the reward that followed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.columns import Columns, Rows
from mlagents.trainers.acting.groups import Groups
from mlagents.trainers.acting.memories import Lanes, Memories
from mlagents.trainers.data.decision import Decision
from mlagents.trainers.data.segments import OpenSteps, Segments
from mlagents_envs.base_env import (
    AgentId,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)

_NONE = np.zeros(0, np.int64)


class Activity(NamedTuple):
    """Steps and ended episodes of agents since the last call of `Collector.activity`.

    Attributes:
        n_steps: Number of steps in finished segments.
        episode_return: (E,) sum of the agent's own rewards in each ended episode.
        episode_group_return: (E,) sum of the group rewards in each ended episode.
        episode_length: (E,) number of steps of each ended episode.
        has_group_reward: Whether any group reward was not 0.
        group_return: (G,) sum of the group rewards of each group whose last member's episode ended.
            Empty if groups are not collected.
    """

    n_steps: int
    episode_return: NDArray[np.float64]
    episode_group_return: NDArray[np.float64]
    episode_length: NDArray[np.int64]
    has_group_reward: bool
    group_return: NDArray[np.float64]

    @staticmethod
    def concatenate(parts: Sequence["Activity"]) -> "Activity":
        """Concatenate activities; an empty sequence gives an empty activity."""
        return Activity(
            sum(each.n_steps for each in parts),
            np.concatenate([np.zeros(0), *(each.episode_return for each in parts)]),
            np.concatenate([np.zeros(0), *(each.episode_group_return for each in parts)]),
            np.concatenate([np.zeros(0, np.int64), *(each.episode_length for each in parts)]),
            any(each.has_group_reward for each in parts),
            np.concatenate([np.zeros(0), *(each.group_return for each in parts)]),
        )


_NOTHING = Activity.concatenate([])


class Needs(NamedTuple):
    """Requirements of a learner for a collector, in this process or elsewhere.

    Attributes:
        time_horizon: Longest segment, in steps.
        memory_size: Size of each agent's memory.
        sequence_length: Number of steps in the sequences that segments are cut into; None for
            whole segments.
        n_expected: Number of steps in an update; 0 if the learner takes finished segments at any
            time.
        with_groups: Whether segments contain the groups of agents.
    """

    time_horizon: int
    memory_size: int = 0
    sequence_length: int | None = None
    n_expected: int = 0
    with_groups: bool = False


class Experience(Protocol):
    """Experience of the agents of a behavior, collected in this process or elsewhere."""

    @property
    def n_held(self) -> int:
        """Number of steps in finished segments that have not been taken yet."""

    @property
    def n_unfinished(self) -> int:
        """Number of closed steps in unfinished segments."""

    @property
    def n_vanished(self) -> int:
        """Number of agents that have vanished so far."""

    @property
    def problems(self) -> list[str]:
        """Messages about wrongly ended episodes in groups, which the caller removes."""

    def activity(self) -> Activity:
        """Return the activity of agents since the last call."""

    def take(self, *, at_least: int = 0) -> Segments | None:
        """Remove and return finished segments; see `Collector.take`."""


class _Ends(NamedTuple):
    """Properties of S finished segments, as in `Segments`."""

    length: NDArray[np.int64]
    last_obs: list[NDArray[Any]]
    last_memory: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    interrupted: NDArray[np.bool_]
    episode: NDArray[np.int64]
    last_tick: NDArray[np.int64]
    group: NDArray[np.int64]


class Collector(Memories):
    """Collects the experience of all agents of a behavior, in all players.

    Finished segments are written to the arrays that the update reads. Between an agent's lane and a
    minibatch, an observation is copied once.

    If an agent vanishes, its closed steps become a finished segment, as with `cut`. Its open step
    is dropped, because the reward is unknown.

    Args:
        spec: Observations and actions of the behavior.
        time_horizon: Longest segment, in steps.
        memory_size: Size of each agent's memory.
        sequence_length: Number of steps in the sequences that segments are cut into. Memory is
            stored at the start of each sequence. By default, a segment is one sequence.
        n_expected: Expected number of steps in `take`, used to allocate arrays.
        with_groups: Whether segments contain `tick`, `last_tick`, `group` and `open_steps`, and
            activity contains the returns of groups.

    Attributes:
        groups: Groups of the agents; None if groups are not collected.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        *,
        time_horizon: int,
        memory_size: int = 0,
        sequence_length: int | None = None,
        n_expected: int = 0,
        with_groups: bool = False,
    ) -> None:
        super().__init__(memory_size)
        self._horizon = time_horizon
        self._sequence = sequence_length or time_horizon
        n_sequences = -(-time_horizon // self._sequence)
        self._columns = Columns.empty(
            spec, time_horizon, n_sequences, memory_size, with_ticks=with_groups
        )
        self.groups = Groups() if with_groups else None
        self._group_returns: list[float] = []
        # Spare rows, because many episodes may end together. Unwritten rows take up no memory.
        self._n_expected = n_expected + n_expected // 16
        self._episodes = 0
        self._rows = Rows(self._n_expected, self._columns.per_step())
        self._memory_rows = Rows(0, [self._columns.memory])
        self._ends: list[_Ends] = []
        self._activities: list[Activity] = []

    def observe(
        self,
        player: int,
        decisions: DecisionSteps,
        terminals: TerminalSteps,
        *,
        behavior: BehaviorName = "",
    ) -> Lanes:
        """Close the open steps of a player's agents and open new ones; see `Memories.observe`."""
        lane_of = self._lane_of.setdefault(player, {})
        tick = self._reports.get(player, 0) + 1
        if len(terminals):
            if self.groups is not None:
                self.groups.inspect(lane_of, decisions, terminals)
            self._end(lane_of, terminals, tick)
        lanes = self._lanes(player, decisions)
        columns = self._columns
        rows = np.flatnonzero(columns.is_open[lanes])
        joining = _NONE
        if self.groups is not None:
            joining = self.groups.changed(lanes, decisions.group_id)
        if len(rows):
            full = self._close(lanes[rows], decisions, rows)
            if len(joining):  # a segment belongs to one group
                full = np.union1d(full, np.flatnonzero(np.isin(rows, joining)))
            if len(full):
                rows, full = rows[full], lanes[rows[full]]
                last_obs = [batch[rows] for batch in decisions.obs]
                self._cut(full, last_obs, self.memory(full), np.full(len(full), tick))
        if self.groups is not None:
            if len(joining):
                ids = decisions.group_id[joining]
                earned = columns.episode_group_return
                self.groups.join(player, behavior, lanes[joining], ids, earned)
            columns.tick[lanes, columns.length[lanes]] = tick
        at = lanes, columns.length[lanes]
        for column, batch in zip(columns.obs, decisions.obs, strict=True):
            column[at] = batch
        columns.is_open[lanes] = True
        columns.remembered_before[lanes] = self._remembered[lanes]
        self._keep_memory(lanes)
        return lanes

    def record(self, lanes: Lanes, action_mask: NDArray[np.bool_], decision: Decision) -> None:
        """Add action masks and decisions of N agents to the steps that `observe` opened."""
        super().record(lanes, action_mask, decision)
        columns = self._columns
        at = lanes, columns.length[lanes]
        columns.continuous[at] = decision.continuous
        columns.discrete[at] = decision.discrete
        columns.log_probs[at] = decision.log_probs
        columns.action_mask[at] = action_mask

    @property
    def problems(self) -> list[str]:
        """Messages about wrongly ended episodes in groups, which the caller removes."""
        return [] if self.groups is None else self.groups.problems

    @property
    def n_held(self) -> int:
        """Number of steps in finished segments that have not been taken yet."""
        return self._rows.n_rows

    @property
    def n_unfinished(self) -> int:
        """Number of closed steps in unfinished segments."""
        return int(self._columns.length.sum())

    def take(self, *, at_least: int = 0) -> Segments | None:
        """Remove and return the finished segments; None if there are none or too few steps.

        Args:
            at_least: Smallest number of steps to return. If finished and unfinished segments
                together have enough steps, unfinished segments are cut and returned too; their
                episodes continue. With 0, nothing is cut.
        """
        if at_least and self.n_held + self.n_unfinished < at_least:
            return None
        if at_least:
            self.cut()
        if not self._ends:
            return None
        rows, ends = self._rows, _joined(self._ends)
        (memory,) = self._memory_rows
        self._rows, self._ends = Rows(self._n_expected, self._columns.per_step()), []
        self._memory_rows = Rows(0, [self._columns.memory])
        *before_reward, reward, group_reward = rows
        tick = _NONE if self.groups is None else before_reward.pop()
        *obs, continuous, discrete, log_probs, action_mask = before_reward
        return Segments(
            obs=obs,
            continuous=continuous,
            discrete=discrete,
            log_probs=log_probs,
            action_mask=action_mask,
            memory=memory,
            reward=reward,
            group_reward=group_reward,
            tick=tick,
            open_steps=self._open_steps(),
            **ends._asdict(),
        )

    def _open_steps(self) -> OpenSteps | None:
        if self.groups is None:
            return None
        columns = self._columns
        lanes = np.flatnonzero(columns.is_open)
        at = lanes, columns.length[lanes]
        return OpenSteps(
            [column[at] for column in columns.obs],
            columns.continuous[at],
            columns.discrete[at],
            columns.tick[at],
            self.groups.number[lanes],
            columns.episode[lanes],
        )

    def activity(self) -> Activity:
        """Return the activity of agents since the last call, including segments not taken yet."""
        if not (self._activities or self._group_returns):
            return _NOTHING
        activity = Activity.concatenate(self._activities)
        group_return = np.array(self._group_returns, np.float64)
        self._activities, self._group_returns = [], []
        return activity._replace(group_return=group_return)

    def cut(self) -> None:
        """Finish all segments now; their episodes continue, and open steps stay open.

        After a cut between `observe` and `record`, the lanes contain no decisions, except those of
        agents that have not reported since.
        """
        self._finish_as_they_are(np.flatnonzero(self._columns.length))
        self._columns.release()

    def _finish_as_they_are(self, lanes: Lanes) -> None:
        """Finish the closed steps of lanes as segments, and move each open step to the front."""
        columns = self._columns
        lanes = lanes[columns.length[lanes] > 0]
        at = lanes, columns.length[lanes]
        if len(lanes):
            last_obs = [column[at] for column in columns.obs]
            last_tick = _NONE if self.groups is None else columns.tick[at]
            self._cut(lanes, last_obs, columns.remembered_before[lanes], last_tick)
        for column in columns.before_reward():
            column[lanes, 0] = column[at]
        self._keep_memory(lanes)

    def _give_up(self, lanes: Lanes) -> None:
        self._finish_as_they_are(lanes)
        super()._give_up(lanes)

    def _keep_memory(self, lanes: Lanes) -> None:
        """Store the memories of agents whose open step begins a sequence."""
        columns = self._columns
        if not columns.remembered_before.size:
            return
        sequence, step = np.divmod(columns.length[lanes], self._sequence)
        starts = step == 0
        begun = lanes[starts]
        columns.memory[begun, sequence[starts]] = columns.remembered_before[begun]

    def _begin(self) -> int:
        lane = super()._begin()
        self._columns.episode[lane] = self._episodes
        self._episodes += 1
        return lane

    def _extend(self, n_lanes: int) -> None:
        super()._extend(n_lanes)
        self._columns.extend(n_lanes)
        if self.groups is not None:
            self.groups.extend(n_lanes)

    def _release(self, lane: int) -> None:
        super()._release(lane)
        columns = self._columns
        if self.groups is not None:
            self.groups.leave(lane, columns.episode_group_return)
        columns.length[lane] = columns.episode_length[lane] = 0
        columns.episode_return[lane] = columns.episode_group_return[lane] = 0.0
        columns.is_open[lane] = False

    def _close(
        self, lanes: Lanes, steps: DecisionSteps | TerminalSteps, rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Write the rewards of `rows` of `steps`; return indices of `lanes` that are full."""
        columns = self._columns
        length = columns.length[lanes]
        reward, group_reward = steps.reward[rows], steps.group_reward[rows]
        columns.reward[lanes, length] = reward
        columns.group_reward[lanes, length] = group_reward
        columns.episode_return[lanes] += reward
        columns.episode_group_return[lanes] += group_reward
        columns.episode_length[lanes] += 1
        length += 1
        columns.length[lanes] = length
        return np.flatnonzero(length == self._horizon)

    def _end(self, lane_of: dict[AgentId, int], terminals: TerminalSteps, tick: int) -> None:
        """Finish the segments of agents whose episode ended, if they ever acted."""
        ended = [
            (row, lane)
            for row, agent in enumerate(terminals.agent_id.tolist())
            if (lane := lane_of.pop(agent, None)) is not None
        ]
        if not ended:
            return
        rows, lanes = (np.array(part, np.int64) for part in zip(*ended, strict=True))
        self._close(lanes, terminals, rows)
        interrupted = terminals.interrupted[rows]
        last_obs = [batch[rows] for batch in terminals.obs]
        last_tick = np.full(len(lanes), tick)
        self._finish(lanes, last_obs, self.memory(lanes), ~interrupted, interrupted, last_tick)
        for lane in lanes.tolist():
            if self.groups is not None:
                of_group = self.groups.leave(lane, self._columns.episode_group_return)
                self._group_returns += [] if of_group is None else [of_group]
            self._release(lane)

    def _cut(
        self,
        lanes: Lanes,
        last_obs: list[NDArray[Any]],
        last_memory: NDArray[np.float32],
        last_tick: NDArray[np.int64],
    ) -> None:
        """Finish the segments of lanes whose episodes continue."""
        continues = np.zeros(len(lanes), np.bool_)
        self._finish(lanes, last_obs, last_memory, continues, continues, last_tick)
        self._columns.length[lanes] = 0

    def _finish(
        self,
        lanes: Lanes,
        last_obs: list[NDArray[Any]],
        last_memory: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        interrupted: NDArray[np.bool_],
        last_tick: NDArray[np.int64],
    ) -> None:
        columns = self._columns
        length = columns.length[lanes]
        first = self._rows.n_rows
        spans = list(zip(lanes.tolist(), length.tolist(), strict=True))
        self._rows.append(spans, columns.per_step())
        n_sequences = -(-length // self._sequence)
        self._memory_rows.append(
            list(zip(lanes.tolist(), n_sequences.tolist(), strict=True)), [columns.memory]
        )
        in_groups = self.groups is not None
        self._ends.append(
            _Ends(
                length,
                last_obs,
                last_memory,
                terminated,
                interrupted,
                columns.episode[lanes],
                last_tick if in_groups else _NONE,
                _NONE if self.groups is None else self.groups.number[lanes],
            )
        )
        *_, group_reward = self._rows
        ended = lanes[terminated | interrupted]
        self._activities.append(
            Activity(
                int(length.sum()),
                columns.episode_return[ended],
                columns.episode_group_return[ended],
                columns.episode_length[ended],
                bool(group_reward[first:].any()),
                np.zeros(0),
            )
        )


def _joined(parts: list[_Ends]) -> _Ends:
    """Concatenate the ends of several batches of segments."""
    if len(parts) == 1:
        return parts[0]
    length, last_obs, *others = zip(*parts, strict=True)
    return _Ends(
        np.concatenate(length),
        [np.concatenate(batches) for batches in zip(*last_obs, strict=True)],
        *(np.concatenate(column) for column in others),
    )
