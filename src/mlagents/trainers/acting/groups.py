"""`Groups`: the groups of agents, and the rewards of each group.

A simulation identifies a group by an id above 0. Ids are unique within one behavior of one player
and may be reused after a group has ended. Each group therefore gets a unique number.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import AgentId, DecisionSteps, GroupId, TerminalSteps

Key = tuple[int, Hashable, GroupId]
"""Player, behavior with its team, and id of a group."""

NO_GROUP = 0
"""Id of agents that are not in a group."""

_UNKNOWN = -1
"""Group id of a lane whose agent has not reported yet."""


class Groups:
    """Groups of the agents in a collector's lanes.

    A group begins with its first member and ends when its last member leaves. An agent without a
    group gets a unique negative number.

    Attributes:
        number: (lanes,) number of each agent's group.
        problems: Messages about wrongly ended episodes, at most one of each kind.
    """

    def __init__(self) -> None:
        self.number = np.zeros(0, np.int64)
        self.problems: list[str] = []
        self._id = np.zeros(0, np.int64)
        """(lanes,) group id in the agent's last report."""
        self._return_before = np.zeros(0, np.float64)
        """(lanes,) return of the group when the agent joined, minus the agent's own `earned`."""
        self._current: dict[Key, int] = {}
        self._members: dict[int, dict[int, None]] = {}
        """Lanes of the members of each group, in the order in which they joined."""
        self._key: dict[int, Key] = {}
        self._n_groups = 0
        self._n_alone = 0
        self._has_told: set[str] = set()

    def extend(self, n_lanes: int) -> None:
        """Make room for more lanes."""
        more = n_lanes - len(self.number)
        self.number = np.append(self.number, np.zeros(more, np.int64))
        self._id = np.append(self._id, np.full(more, _UNKNOWN, np.int64))
        self._return_before = np.append(self._return_before, np.zeros(more))

    def changed(self, lanes: NDArray[np.int64], ids: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the rows of agents that are new or in another group than in their last report."""
        return np.flatnonzero(self._id[lanes] != ids)

    def join(
        self,
        player: int,
        behavior: Hashable,
        lanes: NDArray[np.int64],
        ids: NDArray[np.integer],
        earned: NDArray[np.float64],
    ) -> None:
        """Move agents from their previous groups into their current ones.

        Args:
            player: Number of the player.
            behavior: Behavior of the agents, with its team.
            lanes: (N,) lanes of the agents.
            ids: (N,) group ids of the agents.
            earned: (lanes,) group rewards that each agent has received so far.
        """
        for lane, group_id in zip(lanes.tolist(), ids.tolist(), strict=True):
            self.leave(lane, earned)
            self._id[lane] = group_id
            self._return_before[lane] = -earned[lane]
            if group_id == NO_GROUP:
                self._n_alone += 1
                self.number[lane] = -self._n_alone
                continue
            key = player, behavior, group_id
            number = self._current.get(key)
            if number is None:
                number = self._current[key] = self._n_groups
                self._n_groups += 1
                self._members[number] = {}
                self._key[number] = key
            elif members := self._members[number]:
                oldest = next(iter(members))
                self._return_before[lane] += self._return_before[oldest] + earned[oldest]
            self._members[number][lane] = None
            self.number[lane] = number

    def leave(self, lane: int, earned: NDArray[np.float64]) -> float | None:
        """Take an agent out of its group.

        Args:
            lane: Lane of the agent.
            earned: (lanes,) group rewards that each agent has received so far.

        Returns:
            The group's return if the agent was its last member, otherwise None.
        """
        number = int(self.number[lane])
        members = self._members.get(number, {}) if self._id[lane] > NO_GROUP else {}
        self._id[lane] = _UNKNOWN
        if lane not in members:
            return None
        del members[lane]
        if members:
            return None
        del self._members[number]
        del self._current[self._key.pop(number)]
        return float(self._return_before[lane] + earned[lane])

    def inspect(
        self,
        lane_of: dict[AgentId, int],
        decisions: DecisionSteps,
        terminals: TerminalSteps,
    ) -> None:
        """Detect members whose episodes end although the episode of their group continues.

        Args:
            lane_of: Lanes of the agents by their ids, before the terminal steps are processed.
            decisions: Agents whose episodes continue or begin.
            terminals: Agents whose episodes ended.
        """
        if len(self._has_told) == 2:
            return
        ending = {a: lane_of[a] for a in terminals.agent_id.tolist() if a in lane_of}
        lanes = set(ending.values())
        asking = set(decisions.agent_id.tolist())
        is_interrupted = dict(
            zip(terminals.agent_id.tolist(), terminals.interrupted.tolist(), strict=True)
        )
        for agent, lane in ending.items():
            group_id = int(self._id[lane])
            members = self._members.get(int(self.number[lane]), {}) if group_id > NO_GROUP else {}
            if members.keys() <= lanes:
                continue
            if agent in asking:
                self._tell(
                    "ended",
                    f"agent {agent} of group {group_id} ended its episode and began another while "
                    "its group continued. It counts as a new member. To end the episode of a "
                    "group, call EndGroupEpisode. If a member leaves early, disable its agent.",
                )
            elif is_interrupted[agent]:
                self._tell(
                    "interrupted",
                    f"agent {agent} of group {group_id} was interrupted while its group continued. "
                    "Set Max Step of agents in groups to 0, and call GroupEpisodeInterrupted when "
                    "the group's time limit is reached.",
                )

    def _tell(self, kind: str, problem: str) -> None:
        if kind not in self._has_told:
            self._has_told.add(kind)
            self.problems.append(problem)


class SplitGroups:
    """Detects groups whose members belong to different behaviors or teams."""

    def __init__(self) -> None:
        self._told: set[tuple[str, ...]] = set()

    def find(self, steps: Sequence[tuple[str, DecisionSteps]]) -> str | None:
        """Return a description of the first such group, once for each set of behaviors.

        Args:
            steps: Behaviors of one player, each with its decision steps.
        """
        if len(steps) < 2:
            return None
        behaviors_of: dict[GroupId, list[str]] = {}
        for behavior, decisions in steps:
            if decisions.group_id.any():
                for group_id in set(decisions.group_id.tolist()) - {NO_GROUP}:
                    behaviors_of.setdefault(group_id, []).append(behavior)
        for group_id, behaviors in behaviors_of.items():
            if len(behaviors) > 1 and tuple(behaviors) not in self._told:
                self._told.add(tuple(behaviors))
                return (
                    f"group {group_id} has agents of {' and '.join(map(repr, behaviors))}. Each "
                    "behavior and team is trained as a separate group, without the other members. "
                    "Give each group agents of one behavior and one team."
                )
        return None
