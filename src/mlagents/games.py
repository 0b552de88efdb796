"""`Side`: the agents of one side of a game during their episodes, and the results of its games."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlagents_envs.base_env import AgentId, DecisionSteps, GroupId, TerminalSteps

_VANISHED_AFTER = 200
"""Number of reports that an agent may miss before it is forgotten."""


class GameResult(NamedTuple):
    """Result of a game of one agent, or of one group of agents.

    Attributes:
        who: Number of the policy that played it.
        score: 1 for a win, 0.5 for a draw, 0 for a loss; None if the game was interrupted.
    """

    who: int
    score: float | None


@dataclass(slots=True)
class _Present:
    """An agent during its episode."""

    who: int
    group: GroupId
    report: int


class Side:
    """Agents of one behavior in one environment, each with the number of its policy.

    An agent without a group plays a game in each episode. A group plays one game, which ends with
    its last member. All members of a group have the same policy.

    Attributes:
        results: Results of games that ended in the last report.
    """

    def __init__(self) -> None:
        self.results: list[GameResult] = []
        self._agents: dict[AgentId, _Present] = {}
        self._groups: dict[GroupId, list[int]] = {}
        """Number of members, and number of the policy, of each group."""
        self._report = 0
        self._pruned_to = 0

    def end(self, terminals: TerminalSteps) -> list[int | None]:
        """Remove agents whose episodes ended, and set `results`.

        Returns:
            Number of the policy of each agent; None for an agent that never acted.
        """
        self._report += 1
        self.results = []
        ended: list[int | None] = []
        last_rows: dict[GroupId, list[int]] = {}
        """Rows of the members that ended now, by group."""
        for row, agent_id in enumerate(terminals.agent_id.tolist()):
            agent = self._agents.pop(agent_id, None)
            ended.append(None if agent is None else agent.who)
            if agent is None:
                continue
            if not agent.group:
                self.results.append(GameResult(agent.who, _score(terminals, [row])))
                continue
            rows = last_rows.setdefault(agent.group, [])
            rows.append(row)
            if self._leave(agent.group):
                self.results.append(GameResult(agent.who, _score(terminals, rows)))
                del last_rows[agent.group]
        return ended

    def act(self, decisions: DecisionSteps, beginning: int) -> list[int]:
        """Add agents whose episodes begin; return the number of each agent's policy.

        Args:
            decisions: Agents that request a decision.
            beginning: Number of the policy for agents and groups that begin.
        """
        acting = []
        for agent_id, group in zip(
            decisions.agent_id.tolist(), decisions.group_id.tolist(), strict=True
        ):
            agent = self._agents.get(agent_id)
            if agent is None or agent.group != group:
                agent = self._join(agent_id, group, beginning)
            agent.report = self._report
            acting.append(agent.who)
        if len(self._agents) > 2 * self._pruned_to + 64:
            self._prune()
        return acting

    def swap(self, who: int) -> None:
        """Continue all episodes with another policy."""
        for agent in self._agents.values():
            agent.who = who
        for group in self._groups.values():
            group[1] = who

    def policies_of(self, agents: Sequence[AgentId]) -> list[int]:
        """Return the numbers of the policies of present agents."""
        return [self._agents[agent].who for agent in agents]

    @property
    def present(self) -> set[int]:
        """Numbers of the policies in unfinished episodes."""
        return {agent.who for agent in self._agents.values()}

    def _join(self, agent_id: AgentId, group: GroupId, beginning: int) -> _Present:
        """Add an agent to its group; an agent that was present before keeps its policy."""
        before = self._agents.get(agent_id)
        who = beginning if before is None else before.who
        if before is not None and before.group:
            self._leave(before.group)
        if group:
            members = self._groups.setdefault(group, [0, who])
            members[0] += 1
            who = members[1] if before is None else who
        agent = self._agents[agent_id] = _Present(who, group, self._report)
        return agent

    def _leave(self, group: GroupId) -> bool:
        """Remove a member of a group; return whether it was the last."""
        self._groups[group][0] -= 1
        is_last = self._groups[group][0] == 0
        if is_last:
            del self._groups[group]
        return is_last

    def _prune(self) -> None:
        """Forget agents that vanished without an end of their episode."""
        oldest = self._report - _VANISHED_AFTER
        for agent_id in [i for i, agent in self._agents.items() if agent.report < oldest]:
            if group := self._agents.pop(agent_id).group:
                self._leave(group)
        self._pruned_to = len(self._agents)


def paired(
    ours: Sequence[GameResult], theirs: Sequence[GameResult]
) -> list[tuple[GameResult, GameResult]]:
    """Return the results of both sides of games that ended in the same report.

    Reports do not say who played whom. Areas report in the same order for both sides, so games are
    paired in order. If one side has more agents without a group, several share an opponent.
    """
    n_games = max(len(ours), len(theirs)) if ours and theirs else 0
    return [
        (ours[k * len(ours) // n_games], theirs[k * len(theirs) // n_games]) for k in range(n_games)
    ]


def _score(terminals: TerminalSteps, rows: list[int]) -> float | None:
    """Return the score of a game: the sign of its last reward, as ML-Agents defines it."""
    if terminals.interrupted[rows].any():
        return None
    reward = float(terminals.reward[rows].mean() + terminals.group_reward[rows].mean())
    return 0.5 * (1.0 + float(np.sign(reward)))
