"""`TeamSeat`: the policies that act for the agents of one team, and the ends of its games."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.rollout import Seat, Share
from mlagents.trainers.acting.roster import LATEST
from mlagents_envs.base_env import AgentId, DecisionSteps, GroupId, TerminalSteps

LEARNER = -2
"""Number of the present policy in agents that are learned from."""
SCRIPT = -3
"""Number of a scripted opponent."""

_VANISHED_AFTER = 200
"""Number of its player's reports that an agent may miss before it is forgotten."""


class Game(NamedTuple):
    """An ended game of one agent, or of one group of agents.

    Attributes:
        who: Number of the snapshot, or `LEARNER`, `LATEST` or `SCRIPT`.
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


@dataclass
class _Player:
    """Agents of the team in one player.

    Attributes:
        agents: Agents whose episodes run.
        groups: Number of members, and number of the policy, of each group.
        games: Games that ended in the last report.
    """

    agents: dict[AgentId, _Present] = field(default_factory=dict)
    groups: dict[GroupId, list[int]] = field(default_factory=dict)
    games: list[Game] = field(default_factory=list)
    report: int = 0
    pruned_to: int = 0


class TeamSeat:
    """Seats of the agents of one team of one behavior.

    The policy that begins an episode of an agent also ends it, unless `swap` is called. All members
    of a group have the same policy.

    Args:
        learner: Seat of agents that are learned from.
        roster_seat_of: Function that returns the seat of agents that act by snapshots. It gets a
            function from a player and ids of agents to the numbers of their snapshots.
        script: Seat of a scripted opponent, if there is one.
        who_begins: Function from a player to the number of the policy for episodes that begin
            there: that of a snapshot, or `LEARNER`, `LATEST` or `SCRIPT`.

    Attributes:
        n_decisions: Number of decisions for agents of the team so far.
    """

    def __init__(
        self,
        learner: Seat,
        roster_seat_of: Callable[[Callable[[int, Sequence[AgentId]], list[int]]], Seat],
        script: Seat | None,
        *,
        who_begins: Callable[[int], int],
    ) -> None:
        self.n_decisions = 0
        self._learner = learner
        self._roster = roster_seat_of(self._numbers)
        self._script = script
        self._who_begins = who_begins
        self._players: dict[int, _Player] = {}

    def shares(
        self, player: int, decisions: DecisionSteps, terminals: TerminalSteps
    ) -> list[Share]:
        """Divide the report of a player among the seats of its agents."""
        self.n_decisions += len(decisions)
        present = self._players.setdefault(player, _Player())
        present.report += 1
        ended = self._end(present, terminals)
        acting = self._act(present, decisions, self._who_begins(player))
        kinds = set(map(_kind, acting)) | set(map(_kind, ended))
        if len(kinds) < 2:
            (kind,) = kinds or {LEARNER}
            return [Share(self._seat(kind), None, decisions, terminals)]
        of_decisions = np.array([_kind(who) for who in acting], np.int64)
        of_terminals = np.array([_kind(who) for who in ended], np.int64)
        shares = []
        for kind in sorted(kinds):
            rows = np.flatnonzero(of_decisions == kind)
            ends = np.flatnonzero(of_terminals == kind)
            shares.append(
                Share(self._seat(kind), rows, _some(decisions, rows), _some_ends(terminals, ends))
            )
        return shares

    def take_games(self, player: int) -> list[Game]:
        """Return the games that ended in the last report of a player, once."""
        present = self._players.get(player)
        if present is None:
            return []
        games, present.games = present.games, []
        return games

    def swap(self) -> None:
        """Continue all episodes with the policies for new ones."""
        for player, present in self._players.items():
            who = self._who_begins(player)
            for agent in present.agents.values():
                agent.who = who
            for group in present.groups.values():
                group[1] = who

    def forget(self, player: int) -> None:
        """Drop the unfinished episodes of a player."""
        self._players.pop(player, None)

    def present(self) -> Iterable[int]:
        """Return the numbers of the policies in all unfinished episodes."""
        return {a.who for present in self._players.values() for a in present.agents.values()}

    def _seat(self, kind: int) -> Seat:
        if kind == LEARNER:
            return self._learner
        if kind == SCRIPT and self._script is not None:
            return self._script
        return self._roster

    def _numbers(self, player: int, agents: Sequence[AgentId]) -> list[int]:
        present = self._players[player].agents
        return [present[agent].who for agent in agents]

    def _end(self, present: _Player, terminals: TerminalSteps) -> list[int]:
        """Remove agents whose episodes ended, and note ended games.

        Returns:
            Number of the policy of each agent.
        """
        ended: list[int] = []
        last_rows: dict[GroupId, list[int]] = {}
        """Rows of the members that ended now, by group."""
        for row, agent_id in enumerate(terminals.agent_id.tolist()):
            agent = present.agents.pop(agent_id, None)
            if agent is None:  # it never acted
                ended.append(LEARNER)
                continue
            ended.append(agent.who)
            if not agent.group:
                present.games.append(Game(agent.who, _score(terminals, [row])))
                continue
            last_rows.setdefault(agent.group, []).append(row)
            group = present.groups[agent.group]
            group[0] -= 1
            if group[0] == 0:
                del present.groups[agent.group]
                rows = last_rows.pop(agent.group)
                present.games.append(Game(agent.who, _score(terminals, rows)))
        return ended

    def _act(self, present: _Player, decisions: DecisionSteps, beginning: int) -> list[int]:
        """Add agents whose episodes begin; return the number of each agent's policy."""
        agents, acting = present.agents, []
        for agent_id, group in zip(
            decisions.agent_id.tolist(), decisions.group_id.tolist(), strict=True
        ):
            agent = agents.get(agent_id)
            if agent is None or agent.group != group:
                agent = _join(present, agent_id, group, beginning)
            agent.report = present.report
            acting.append(agent.who)
        if len(agents) > 2 * present.pruned_to + 64:
            self._prune(present)
        return acting

    def _prune(self, present: _Player) -> None:
        """Forget agents that vanished without an end."""
        oldest = present.report - _VANISHED_AFTER
        for agent_id in [i for i, agent in present.agents.items() if agent.report < oldest]:
            _leave(present, present.agents.pop(agent_id).group)
        present.pruned_to = len(present.agents)


def _kind(who: int) -> int:
    """Return a number that is the same for all policies that share a seat."""
    return who if who in (LEARNER, SCRIPT) else LATEST


def _join(present: _Player, agent_id: AgentId, group: GroupId, beginning: int) -> _Present:
    """Add an agent to its group; an agent that was present before keeps its policy."""
    before = present.agents.get(agent_id)
    who = beginning if before is None else before.who
    if before is not None:
        _leave(present, before.group)
    if group:
        members = present.groups.setdefault(group, [0, who])
        members[0] += 1
        who = members[1] if before is None else who
    agent = present.agents[agent_id] = _Present(who, group, present.report)
    return agent


def _leave(present: _Player, group: GroupId) -> None:
    """Remove a member from a group without an end of its episode."""
    if group:
        present.groups[group][0] -= 1
        if present.groups[group][0] == 0:
            del present.groups[group]


def _score(terminals: TerminalSteps, rows: list[int]) -> float | None:
    """Return the score of a game by the sign of its last reward, as the original counts it."""
    if terminals.interrupted[rows].any():
        return None
    reward = float(terminals.reward[rows].mean() + terminals.group_reward[rows].mean())
    return 0.5 * (1.0 + np.sign(reward))


def _some(decisions: DecisionSteps, rows: NDArray[np.int64]) -> DecisionSteps:
    masks = decisions.action_mask
    return DecisionSteps(
        [batch[rows] for batch in decisions.obs],
        decisions.reward[rows],
        decisions.agent_id[rows],
        None if masks is None else [mask[rows] for mask in masks],
        decisions.group_id[rows],
        decisions.group_reward[rows],
    )


def _some_ends(terminals: TerminalSteps, rows: NDArray[np.int64]) -> TerminalSteps:
    return TerminalSteps(
        [batch[rows] for batch in terminals.obs],
        terminals.reward[rows],
        terminals.interrupted[rows],
        terminals.agent_id[rows],
        terminals.group_id[rows],
        terminals.group_reward[rows],
    )
