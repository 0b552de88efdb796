"""`Rollout`: decides for the agents of all players."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.acting.groups import SplitGroups
from mlagents.trainers.acting.memories import Lanes, Memories
from mlagents.trainers.data.decision import Decision
from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorName,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.logging_util import get_logger
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class Policy(Protocol):
    """Decides for agents: an `ActingPolicy` or a `ScriptedPolicy`."""

    spec: ActionSpec

    def act(
        self,
        obs: Sequence[NDArray[Any]],
        action_mask: NDArray[np.bool_],
        memory: NDArray[np.float32] | None = None,
    ) -> Decision:
        """Decide for N agents; see `ActingPolicy.act`."""


class Seat(NamedTuple):
    """Policy and memories of the agents of one behavior in one player.

    Seats may share a policy, which then decides for all their agents together. They may also share
    a collector.

    Attributes:
        policy: Policy that decides for the agents.
        memories: Memories of the agents. A `Collector` if their steps are learned from.
    """

    policy: Policy
    memories: Memories


class Share(NamedTuple):
    """The part of a report that goes to one seat.

    Attributes:
        seat: Seat of the agents.
        rows: (N,) rows of the report's decision steps; None for all.
        decisions: Decision steps of N agents.
        terminals: Terminal steps of the seat's agents.
    """

    seat: Seat
    rows: NDArray[np.int64] | None
    decisions: DecisionSteps
    terminals: TerminalSteps


class SharedSeat(Protocol):
    """Seats that share the agents of one behavior in one player."""

    def shares(
        self, player: int, decisions: DecisionSteps, terminals: TerminalSteps
    ) -> Sequence[Share]:
        """Divide the report of a player among seats. Each row belongs to one share."""

    def forget(self, player: int) -> None:
        """Drop the unfinished episodes of a player."""


class _Request(NamedTuple):
    """Agents of one behavior of one player that wait for a decision."""

    player: int
    behavior: BehaviorName
    memories: Memories
    lanes: Lanes
    decisions: DecisionSteps
    rows: NDArray[np.int64] | None


_Part = tuple[NDArray[np.int64] | None, ActionTuple]
"""Actions of the agents in some rows of a report; None for all rows."""


class Rollout:
    """Receives the reports of players and answers each one with actions.

    Args:
        manager: Manager of the players.
        seat_of: Function that returns the seat or the shared seats of a behavior in a player.
        waiting: Function that creates the context manager entered while waiting for players.
    """

    def __init__(
        self,
        manager: EnvManager,
        seat_of: Callable[[int, BehaviorName], Seat | SharedSeat],
        *,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._manager = manager
        self._seat_of = seat_of
        self._waiting = waiting
        self._memories: set[Memories] = set()
        """Memories of all seats used so far."""
        self._shared: set[SharedSeat] = set()
        """All shared seats used so far."""
        self._asking: list[int] = []
        """Players whose reports have not been answered yet."""
        self._requests: dict[Policy, list[_Request]] = {}
        self._split_groups = SplitGroups()

    def reset(self) -> None:
        """Restart all episodes of all players; drop unanswered reports."""
        with self._waiting():
            self._manager.reset()
        for player in self._asking:
            self._forget(player)
        self._asking.clear()
        self._requests.clear()

    def advance(self) -> list[PlayerSteps]:
        """Wait for reports of players; store their steps and return them."""
        with self._waiting():
            reports = self._manager.receive()
        for report in reports:
            if report.is_new:
                self._forget(report.player)
            self._asking.append(report.player)
            in_groups: list[tuple[BehaviorName, DecisionSteps]] = []
            for behavior, (decisions, terminals) in report.steps.items():
                for share in self._shares(report.player, behavior, decisions, terminals):
                    policy, memories = share.seat
                    self._memories.add(memories)
                    if isinstance(memories, Collector) and memories.groups is not None:
                        in_groups.append((behavior, share.decisions))
                    lanes = memories.observe(
                        report.player, share.decisions, share.terminals, behavior=behavior
                    )
                    request = _Request(
                        report.player, behavior, memories, lanes, share.decisions, share.rows
                    )
                    self._requests.setdefault(policy, []).append(request)
            if problem := self._split_groups.find(in_groups):
                logger.warning(problem)
        return reports

    def answer(self) -> dict[Policy, float]:
        """Decide for all agents that request a decision, and send the actions to their players.

        Returns:
            Mean entropy of the action distributions, in nats, by policy.
        """
        entropies: dict[Policy, float] = {}
        actions: dict[int, dict[BehaviorName, list[_Part]]] = {p: {} for p in self._asking}
        for policy, requests in self._requests.items():
            sizes = [len(request.lanes) for request in requests]
            if not sum(sizes):
                parts = [policy.spec.empty_action(0) for _ in requests]
            else:
                action, entropies[policy] = _decide(policy, requests)
                parts = _split(action, sizes)
            for request, part in zip(requests, parts, strict=True):
                of_player = actions[request.player]
                of_player.setdefault(request.behavior, []).append((request.rows, part))
        self._asking.clear()
        self._requests.clear()
        for player, of_player in actions.items():
            self._manager.send(player, {name: _merged(of) for name, of in of_player.items()})
        return entropies

    def _shares(
        self,
        player: int,
        behavior: BehaviorName,
        decisions: DecisionSteps,
        terminals: TerminalSteps,
    ) -> Sequence[Share]:
        seat = self._seat_of(player, behavior)
        if isinstance(seat, Seat):
            return [Share(seat, None, decisions, terminals)]
        self._shared.add(seat)
        return seat.shares(player, decisions, terminals)

    def _forget(self, player: int) -> None:
        for memories in self._memories:
            memories.forget(player)
        for seat in self._shared:
            seat.forget(player)


def _decide(policy: Policy, requests: Sequence[_Request]) -> tuple[ActionTuple, float]:
    """Decide for the agents of all requests together, and record the decisions.

    Returns:
        Actions of all agents, and the mean entropy in nats.
    """
    obs = [
        _joined(list(batches))
        for batches in zip(*(request.decisions.obs for request in requests), strict=True)
    ]
    masks = [_mask(request.decisions, policy.spec) for request in requests]
    memory = _joined([request.memories.memory(request.lanes) for request in requests])
    with hierarchical_timer("Policy.act"):
        decision = policy.act(obs, _joined(masks), memory)
    start = 0
    for request, mask in zip(requests, masks, strict=True):
        rows = slice(start, start := start + len(mask))
        request.memories.record(request.lanes, mask, decision.of(rows))
    return decision.action, decision.entropy


def _mask(decisions: DecisionSteps, spec: ActionSpec) -> NDArray[np.bool_]:
    """Return (N, sum of branches), True where an action is not allowed."""
    if decisions.action_mask:
        return np.concatenate(decisions.action_mask, axis=1)
    return np.zeros((len(decisions), sum(spec.discrete_branches)), np.bool_)


def _split(action: ActionTuple, sizes: Sequence[int]) -> list[ActionTuple]:
    if len(sizes) == 1:
        return [action]
    ends = np.cumsum(sizes)[:-1]
    parts = np.split(action.continuous, ends), np.split(action.discrete, ends)
    return [ActionTuple(*rows) for rows in zip(*parts, strict=True)]


def _merged(parts: Sequence[_Part]) -> ActionTuple:
    """Return the actions of all agents of a report, in the order of its rows."""
    (rows, first), *_ = parts
    if rows is None:
        return first
    n_agents = sum(len(part.discrete) for _, part in parts)
    continuous = np.empty((n_agents, first.continuous.shape[1]), np.float32)
    discrete = np.empty((n_agents, first.discrete.shape[1]), np.int32)
    for rows, part in parts:
        continuous[rows], discrete[rows] = part.continuous, part.discrete
    return ActionTuple(continuous, discrete)


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
