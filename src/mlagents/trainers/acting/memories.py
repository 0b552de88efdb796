"""`Memories`: lanes and memories of agents that are not learned from."""

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.columns import extended
from mlagents.trainers.data.decision import Decision
from mlagents_envs.base_env import AgentId, BehaviorName, DecisionSteps, TerminalSteps

Lanes = NDArray[np.int64]

_VANISHED_AFTER = 200
"""Number of reports of its player that an agent may miss before its lane may be reused."""


class Memories:
    """Lanes and memories of agents that are not learned from.

    An agent may vanish without ending its episode. When lanes run out, the lanes of agents that
    have missed many reports of their player are reused.

    Args:
        memory_size: Size of each agent's memory.

    Attributes:
        n_vanished: Number of agents that have vanished so far.
    """

    def __init__(self, memory_size: int = 0) -> None:
        self._remembered = np.zeros((0, memory_size), np.float32)
        """(lanes, memory size) memory after the last decision."""
        self._reported = np.zeros(0, np.int64)
        """(lanes,) number of the player's last report that contained the agent."""
        self._lane_of: dict[int, dict[AgentId, int]] = {}
        self._reports: dict[int, int] = {}
        self._free: list[int] = []
        self.n_vanished = 0

    def observe(
        self,
        player: int,
        decisions: DecisionSteps,
        terminals: TerminalSteps,
        *,
        behavior: BehaviorName = "",
    ) -> Lanes:
        """Process the report of a player.

        Args:
            player: Number of the player. Agent ids are unique within a player.
            decisions: Agents whose episodes continue or begin.
            terminals: Agents whose episodes ended. An id may be in both.
            behavior: Behavior of the agents, with its team. Group ids are unique within it.

        Returns:
            (N,) lane of every agent in `decisions`, for `record`.
        """
        lane_of = self._lane_of.setdefault(player, {})
        for agent in terminals.agent_id.tolist():
            if (lane := lane_of.pop(agent, None)) is not None:
                self._release(lane)
        return self._lanes(player, decisions)

    def memory(self, lanes: Lanes) -> NDArray[np.float32]:
        """Return the memories (N, memory size) of the agents in `lanes`."""
        return self._remembered[lanes]

    def record(self, lanes: Lanes, action_mask: NDArray[np.bool_], decision: Decision) -> None:
        """Add action masks and decisions of N agents to the steps that `observe` opened."""
        self._remembered[lanes] = decision.memory

    def forget(self, player: int) -> None:
        """Drop the unfinished episodes of a player."""
        for lane in self._lane_of.pop(player, {}).values():
            self._release(lane)

    def _lanes(self, player: int, decisions: DecisionSteps) -> Lanes:
        """Return the lanes of the agents in a report; assign lanes to new agents."""
        lane_of = self._lane_of[player]
        report = self._reports[player] = self._reports.get(player, 0) + 1
        agents = decisions.agent_id.tolist()
        beginning = [agent for agent in agents if agent not in lane_of]
        if len(beginning) > len(self._free):
            present = [lane_of[agent] for agent in agents if agent in lane_of]
            self._reported[present] = report
            self._make_room(len(beginning))
        for agent in beginning:
            lane_of[agent] = self._begin()
        lanes = np.array([lane_of[agent] for agent in agents], np.int64)
        self._reported[lanes] = report
        return lanes

    def _begin(self) -> int:
        """Return a free lane for an agent whose episode begins."""
        return self._free.pop()

    def _make_room(self, n_lanes: int) -> None:
        """Make at least `n_lanes` lanes free, including those of vanished agents."""
        vanished = self._take_vanished()
        if vanished:
            self._give_up(np.array(vanished, np.int64))
            self.n_vanished += len(vanished)
        held = len(self._remembered)
        if len(self._free) < n_lanes or len(self._free) <= held // 4:
            n_new = max(held, n_lanes, 16)  # at least double
            self._extend(held + n_new)
            self._free += reversed(range(held, held + n_new))

    def _take_vanished(self) -> list[int]:
        reported = self._reported.tolist()
        vanished: list[int] = []
        for player, lane_of in self._lane_of.items():
            oldest = self._reports.get(player, 0) - _VANISHED_AFTER
            gone = [agent for agent, lane in lane_of.items() if reported[lane] < oldest]
            vanished += [lane_of.pop(agent) for agent in gone]
        return vanished

    def _give_up(self, lanes: Lanes) -> None:
        """Release the lanes of agents that have vanished."""
        for lane in lanes.tolist():
            self._release(lane)

    def _extend(self, n_lanes: int) -> None:
        self._remembered = extended(self._remembered, n_lanes)
        self._reported = extended(self._reported, n_lanes)

    def _release(self, lane: int) -> None:
        self._remembered[lane] = 0.0
        self._free.append(lane)
