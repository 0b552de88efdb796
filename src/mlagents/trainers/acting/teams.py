"""`TeamSeat`: divides the agents of one team among policies, and collects the results of games."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlagents.games import GameResult, Side
from mlagents.trainers.acting.memories import Memories
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Seat, Share
from mlagents.trainers.acting.roster import LATEST, Roster, RosterMemories
from mlagents.trainers.acting.script import ScriptedPolicy
from mlagents_envs.base_env import AgentId, DecisionSteps, TerminalSteps

LEARNER = -2
"""Number of the current policy, for agents that it learns from."""
SCRIPT = -3
"""Number of a scripted opponent."""


class Opponents(NamedTuple):
    """Policies for the agents of a behavior that the trainer does not learn from.

    Attributes:
        roster: Snapshots, by number.
        policy: Policy that acts with the snapshots of the roster.
        script: Scripted opponent, if there is one.
        exploiters: Seats of exploiters, by the numbers of their policies. The league changes this
            mapping.
    """

    roster: Roster
    policy: ActingPolicy
    script: ScriptedPolicy | None
    exploiters: Mapping[int, Seat] = MappingProxyType({})


class Limits(NamedTuple):
    """Numbers of steps until self-play may save a snapshot, or change opponents or the team.

    Attributes:
        n_learned: Number of steps that the trainer learns from.
        n_opposed: Number of decisions of opponents.
    """

    n_learned: int
    n_opposed: int


class Lineup(NamedTuple):
    """Choices of self-play for one team of one behavior.

    Attributes:
        opponents: Policies for the agents that the trainer does not learn from.
        who_begins: Function from a player to the number of the policy for its new episodes: the
            number of a snapshot, `LEARNER`, `LATEST` or `SCRIPT`.
        learns: Function that returns whether it is the team's turn to learn.
        limits: Function that returns the current limits of self-play.
    """

    opponents: Opponents
    who_begins: Callable[[int], int]
    learns: Callable[[], bool]
    limits: Callable[[], Limits]


class Team(Protocol):
    """Interface of self-play to a team, whose agents act in this process or in workers.

    Attributes:
        n_decisions: Number of decisions for agents of the team so far.
    """

    n_decisions: int

    @property
    def present(self) -> set[int]:
        """Numbers of the policies in all unfinished episodes."""

    def take_results(self, player: int) -> list[GameResult]:
        """Return the results of games that ended in the last report of a player, once."""

    def swap(self) -> None:
        """Continue all episodes with the policies for new episodes."""


class TeamSeat:
    """Seats of the agents of one team of one behavior.

    An agent keeps its policy for a whole episode, unless `swap` is called. All members of a group
    have the same policy.

    Args:
        learner: Seat of agents that the trainer learns from.
        roster_seat_of: Function that returns the seat of agents that act with snapshots. It gets a
            function from a player and ids of agents to the numbers of their snapshots.
        script: Seat of a scripted opponent, if there is one.
        exploiters: Seats of exploiters; see `Opponents`.
        who_begins: Function from a player to the number of the policy for its new episodes; see
            `Lineup`.

    Attributes:
        n_decisions: Number of decisions for agents of the team so far.
    """

    def __init__(
        self,
        learner: Seat,
        roster_seat_of: Callable[[Callable[[int, Sequence[AgentId]], list[int]]], Seat],
        script: Seat | None,
        exploiters: Mapping[int, Seat] = MappingProxyType({}),
        *,
        who_begins: Callable[[int], int],
    ) -> None:
        self.n_decisions = 0
        self._learner = learner
        self._roster = roster_seat_of(
            lambda player, agents: self._sides[player].policies_of(agents)
        )
        self._script = script
        self._exploiters = exploiters
        self._who_begins = who_begins
        self._sides: dict[int, Side] = {}

    @staticmethod
    def of(learner: Seat, opponents: Opponents, who_begins: Callable[[int], int]) -> "TeamSeat":
        """Return the seats of a team whose agents act with these policies."""
        roster, policy, script, exploiters = opponents
        return TeamSeat(
            learner,
            lambda numbers_of: Seat(policy, RosterMemories(roster.memory_size, numbers_of)),
            None if script is None else Seat(script, Memories()),
            exploiters,
            who_begins=who_begins,
        )

    def shares(
        self, player: int, decisions: DecisionSteps, terminals: TerminalSteps
    ) -> list[Share]:
        """Divide the report of a player among the seats of its agents."""
        self.n_decisions += len(decisions)
        side = self._sides.setdefault(player, Side())
        ended = [self._kind(LEARNER if who is None else who) for who in side.end(terminals)]
        acting = [self._kind(who) for who in side.act(decisions, self._who_begins(player))]
        kinds = {*acting, *ended}
        if len(kinds) < 2:
            (kind,) = kinds or {LEARNER}
            return [Share(self._seat(kind), None, decisions, terminals)]
        shares = []
        for kind in sorted(kinds):
            rows = np.flatnonzero(np.array(acting) == kind)
            ends = np.flatnonzero(np.array(ended) == kind)
            shares.append(
                Share(self._seat(kind), rows, _some(decisions, rows), _some_ends(terminals, ends))
            )
        return shares

    def take_results(self, player: int) -> list[GameResult]:
        """Remove and return the results of games that ended in the last report of a player."""
        side = self._sides.get(player)
        if side is None:
            return []
        results, side.results = side.results, []
        return results

    def swap(self) -> None:
        """Replace the policies in unfinished episodes by the policies for new episodes."""
        for player, side in self._sides.items():
            side.swap(self._who_begins(player))

    def forget(self, player: int) -> None:
        """Drop the unfinished episodes of a player."""
        self._sides.pop(player, None)

    @property
    def present(self) -> set[int]:
        """Numbers of the policies in all unfinished episodes."""
        return {who for side in self._sides.values() for who in side.present}

    def _seat(self, kind: int) -> Seat:
        if kind == LEARNER:
            return self._learner
        if kind == SCRIPT and self._script is not None:
            return self._script
        return self._exploiters.get(kind, self._roster)

    def _kind(self, who: int) -> int:
        """Return the same number for policies that share a seat: `LATEST` for all snapshots."""
        return who if who in (LEARNER, SCRIPT) or who in self._exploiters else LATEST


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
