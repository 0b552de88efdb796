"""Steps and decisions to segments, in columns.

Every live agent has a *lane*: one row of preallocated arrays (lanes, time horizon, ...). A step
writes the lanes of all agents at once. When an agent's episode ends, or its lane is full, the lane
becomes a finished segment and starts again.

A step has two halves: `observe` opens it with what the agent sees, `decide` adds what the policy
chose, and the next `observe` closes it with the reward that followed.
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.decision import Decision
from mlagents.trainers.data.segments import Segments
from mlagents_envs.base_env import AgentId, BehaviorSpec, DecisionSteps, TerminalSteps

Lanes = NDArray[np.int64]


@dataclass(slots=True)
class _Columns:
    """What the lanes hold: first (lanes, time horizon, ...), then (lanes,)."""

    obs: list[NDArray[Any]]
    continuous: NDArray[np.float32]
    discrete: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    action_mask: NDArray[np.bool_]
    memory: NDArray[np.float32]
    """Before the step."""
    reward: NDArray[np.float32]
    group_reward: NDArray[np.float32]

    length: NDArray[np.int64]
    """Closed steps; also the position of the open one."""
    is_open: NDArray[np.bool_]
    """Whether an observation or a decision waits for its reward."""
    reported: NDArray[np.int64]
    """Number of the player's report that the agent was part of last."""
    remembered: NDArray[np.float32]
    """(lanes, memory size) after the last decision."""
    episode: NDArray[np.int64]
    episode_return: NDArray[np.float64]
    episode_length: NDArray[np.int64]

    @classmethod
    def empty(cls, spec: BehaviorSpec, horizon: int, memory_size: int) -> Self:
        """Make columns of no lane."""
        actions, shape = spec.action_spec, (0, horizon)
        n_actions, n_branches = actions.continuous_size, actions.discrete_size
        return cls(
            obs=[np.zeros(shape + o.shape, o.dtype) for o in spec.observation_specs],
            continuous=np.zeros((*shape, n_actions), np.float32),
            discrete=np.zeros((*shape, n_branches), np.int32),
            log_probs=np.zeros((*shape, n_actions + n_branches), np.float32),
            action_mask=np.zeros((*shape, sum(actions.discrete_branches)), np.bool_),
            memory=np.zeros((*shape, memory_size), np.float32),
            reward=np.zeros(shape, np.float32),
            group_reward=np.zeros(shape, np.float32),
            length=np.zeros(0, np.int64),
            is_open=np.zeros(0, np.bool_),
            reported=np.zeros(0, np.int64),
            remembered=np.zeros((0, memory_size), np.float32),
            episode=np.zeros(0, np.int64),
            episode_return=np.zeros(0, np.float64),
            episode_length=np.zeros(0, np.int64),
        )

    def per_step(self) -> list[NDArray[Any]]:
        """Return what the observation and the decision of a step are written to."""
        decided = [self.continuous, self.discrete, self.log_probs, self.action_mask]
        return [*self.obs, self.memory, *decided]

    def extend(self, n_lanes: int) -> None:
        """Make them so many lanes."""
        for name in (field.name for field in fields(self)):
            held = getattr(self, name)
            if name == "obs":
                self.obs = [_extended(column, n_lanes) for column in held]
            else:
                setattr(self, name, _extended(held, n_lanes))

    def release(self) -> None:
        """Give back the room that observations took, but for the first of each lane."""
        for i, column in enumerate(self.obs):
            self.obs[i] = np.zeros(column.shape, column.dtype)
            self.obs[i][:, 0] = column[:, 0]


def _extended(column: NDArray[Any], n_lanes: int) -> NDArray[Any]:
    extended = np.zeros((n_lanes, *column.shape[1:]), column.dtype)  # takes room as it is written
    extended[: len(column)] = column
    return extended


_VANISHED_AFTER = 200
"""Reports of its player that an agent may miss when lanes run out."""


class Collector:
    """The experience of all agents of one behavior, whichever player they live in.

    An agent may vanish without an end. Its lane is taken back when lanes run out and it has missed
    many reports of its player. Closed steps are finished then, as by `cut`, and count. Its open
    step is dropped, for its reward never came.

    Args:
        spec: What the behavior observes and does.
        time_horizon: Longest segment, in steps.
        memory_size: Numbers that the policy lets every agent remember.

    Attributes:
        n_vanished: How many agents vanished without an end so far.
    """

    def __init__(self, spec: BehaviorSpec, *, time_horizon: int, memory_size: int = 0) -> None:
        self._horizon = time_horizon
        self._columns = _Columns.empty(spec, time_horizon, memory_size)
        self._free: list[int] = []
        self._lane_of: dict[int, dict[AgentId, int]] = {}
        self._reports: dict[int, int] = {}
        self.n_vanished = 0
        self._episodes = 0
        self._finished: list[Segments] = []

    def observe(self, player: int, decisions: DecisionSteps, terminals: TerminalSteps) -> Lanes:
        """Close the open steps of a player's agents and open the next.

        Args:
            player: Which player; agent ids are unique within one.
            decisions: Agents that go on, or begin.
            terminals: Agents whose episode ended; an id may be in both.

        Returns:
            (N,) the lane of every agent of `decisions`, for `decide`.
        """
        lane_of = self._lane_of.setdefault(player, {})
        self._reports[player] = self._reports.get(player, 0) + 1
        if len(terminals):
            self._end(lane_of, terminals)
        agents = decisions.agent_id.tolist()
        lanes = np.array(
            [
                lane
                if (lane := lane_of.get(agent)) is not None
                else self._begin(player, agent, agents)
                for agent in agents
            ],
            np.int64,
        )
        columns = self._columns
        columns.reported[lanes] = self._reports[player]
        rows = np.flatnonzero(columns.is_open[lanes])
        if len(rows):
            full = self._close(lanes[rows], decisions, rows)
            if len(full):
                rows, full = rows[full], lanes[rows[full]]
                self._cut(full, [batch[rows] for batch in decisions.obs], self.memory(full))
        at = lanes, columns.length[lanes]
        for column, batch in zip(columns.obs, decisions.obs, strict=True):
            column[at] = batch
        columns.memory[at] = columns.remembered[lanes]
        columns.is_open[lanes] = True
        return lanes

    def memory(self, lanes: Lanes) -> NDArray[np.float32]:
        """(N, memory size) what the agents of `observe` remember."""
        return self._columns.remembered[lanes]

    def decide(self, lanes: Lanes, action_mask: NDArray[np.bool_], decision: Decision) -> None:
        """Add to the steps that `observe` opened what N agents were free to do and do."""
        columns = self._columns
        at = lanes, columns.length[lanes]
        columns.continuous[at] = decision.continuous
        columns.discrete[at] = decision.discrete
        columns.log_probs[at] = decision.log_probs
        columns.action_mask[at] = action_mask
        columns.remembered[lanes] = decision.memory

    def cut(self) -> None:
        """Finish all segments as they are; their episodes go on. The open steps stay open.

        Between `observe` and `decide` this leaves nothing behind that an older policy decided,
        but for agents that have not reported since.
        """
        lanes = np.flatnonzero(self._columns.length)
        self._finish_as_they_are(lanes)
        self._columns.release()

    def _finish_as_they_are(self, lanes: Lanes) -> None:
        """Finish the closed steps of lanes that wait for a reward; the open step comes first."""
        columns = self._columns
        lanes = lanes[columns.length[lanes] > 0]
        at = lanes, columns.length[lanes]
        if len(lanes):
            self._cut(lanes, [column[at] for column in columns.obs], columns.memory[at])
        for column in columns.per_step():
            column[lanes, 0] = column[at]

    def forget(self, player: int) -> None:
        """Drop the unfinished segments of a player whose episodes were broken off."""
        for lane in self._lane_of.pop(player, {}).values():
            self._release(lane)

    @property
    def n_unfinished(self) -> int:
        """Closed steps in segments that are not finished."""
        return int(self._columns.length.sum())

    def take(self) -> Segments | None:
        """Hand over the segments finished since the last call, None if there are none."""
        if not self._finished:
            return None
        finished, self._finished = self._finished, []
        return Segments.concatenate(finished)

    def _begin(self, player: int, agent: AgentId, reporting: list[AgentId]) -> int:
        """Give an agent a lane; `reporting` are all agents of the player's report."""
        lane_of = self._lane_of[player]
        if not self._free:
            held = len(self._columns.length)
            present = [lane_of[other] for other in reporting if other in lane_of]
            self._columns.reported[present] = self._reports[player]
            self._take_back()
            if len(self._free) <= held // 4:
                more = max(held, 16)  # double
                self._columns.extend(held + more)
                self._free += reversed(range(held, held + more))
        lane = lane_of[agent] = self._free.pop()
        self._columns.episode[lane] = self._episodes
        self._episodes += 1
        return lane

    def _take_back(self) -> None:
        """Release the lanes of agents that vanished."""
        reported = self._columns.reported.tolist()
        vanished = []
        for player, lane_of in self._lane_of.items():
            oldest = self._reports[player] - _VANISHED_AFTER
            gone = [agent for agent, lane in lane_of.items() if reported[lane] < oldest]
            vanished += [lane_of.pop(agent) for agent in gone]
        self._finish_as_they_are(np.array(vanished, np.int64))
        for lane in vanished:
            self._release(lane)
        self.n_vanished += len(vanished)

    def _release(self, lane: int) -> None:
        columns = self._columns
        columns.length[lane] = columns.episode_length[lane] = 0
        columns.episode_return[lane] = 0.0
        columns.remembered[lane] = 0.0
        columns.is_open[lane] = False
        self._free.append(lane)

    def _close(
        self, lanes: Lanes, steps: DecisionSteps | TerminalSteps, rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Write the rewards of `rows` of `steps`; return which of `lanes` are full now."""
        columns = self._columns
        length = columns.length[lanes]
        reward = steps.reward[rows]
        columns.reward[lanes, length] = reward
        columns.group_reward[lanes, length] = steps.group_reward[rows]
        columns.episode_return[lanes] += reward
        columns.episode_length[lanes] += 1
        length += 1
        columns.length[lanes] = length
        columns.is_open[lanes] = False
        return np.flatnonzero(length == self._horizon)

    def _end(self, lane_of: dict[AgentId, int], terminals: TerminalSteps) -> None:
        """Finish the segments of agents whose episode ended; one that never acted has none."""
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
        self._finish(lanes, last_obs, self.memory(lanes), ~interrupted, interrupted)
        for lane in lanes.tolist():
            self._release(lane)

    def _cut(
        self, lanes: Lanes, last_obs: list[NDArray[Any]], last_memory: NDArray[np.float32]
    ) -> None:
        """Finish the segments of full lanes; their episodes go on."""
        goes_on = np.zeros(len(lanes), np.bool_)
        self._finish(lanes, last_obs, last_memory, goes_on, goes_on)
        self._columns.length[lanes] = 0

    def _finish(
        self,
        lanes: Lanes,
        last_obs: list[NDArray[Any]],
        last_memory: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        interrupted: NDArray[np.bool_],
    ) -> None:
        columns = self._columns
        length = columns.length[lanes]
        spans = list(zip(lanes.tolist(), length.tolist(), strict=True))

        def rows(column: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([column[lane, :n_steps] for lane, n_steps in spans])

        self._finished.append(
            Segments(
                obs=[rows(column) for column in columns.obs],
                continuous=rows(columns.continuous),
                discrete=rows(columns.discrete),
                log_probs=rows(columns.log_probs),
                action_mask=rows(columns.action_mask),
                memory=rows(columns.memory),
                reward=rows(columns.reward),
                group_reward=rows(columns.group_reward),
                length=length,
                last_obs=last_obs,
                last_memory=last_memory,
                terminated=terminated,
                interrupted=interrupted,
                episode=columns.episode[lanes],
                episode_return=columns.episode_return[lanes],
                episode_length=columns.episode_length[lanes],
            )
        )
