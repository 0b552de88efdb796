"""Small games of two teams: rock, paper, scissors, an ambush, and pong on a line."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)
from mlagents_envs.local_env import LocalEnv, Report

FloatArray = NDArray[np.float32]


class Duel(LocalEnv):
    """Two agents play in each of N areas: agents 0 to N - 1, and the others against them.

    Args:
        spec: Observations and actions of both sides.
        names: Behaviors of the two sides, with their teams.
        num_areas: Number of areas.
        seed: Seed of the games.
        groups: Whether each agent is in a group of its own, and rewards go to the group.
        interrupts: Whether games are interrupted at their end.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        names: Sequence[BehaviorName] = ("Duel?team=0", "Duel?team=1"),
        *,
        num_areas: int = 8,
        seed: int = 0,
        groups: bool = False,
        interrupts: bool = False,
    ) -> None:
        super().__init__()
        self.names = names
        self.n = num_areas
        self.rng = np.random.default_rng(seed)
        self.groups = groups
        self.interrupts = interrupts
        self.announce(dict.fromkeys(names, spec))

    def restart(self) -> Mapping[BehaviorName, Report]:
        self.begin(np.arange(self.n))
        return self._reports(np.zeros(0, np.int64), np.zeros(self.n, np.float32), None)

    def advance(self) -> Mapping[BehaviorName, Report]:
        actions = [self.take_actions(name) for name in self.names]
        # `reward` is that of the first side; the other side's is the negative.
        reward, over = self.play(*actions)
        ended = np.flatnonzero(over)
        last = [self.observe(side) for side in (0, 1)]
        self.begin(ended)
        return self._reports(ended, reward, last)

    def close(self) -> None:
        pass

    def begin(self, areas: NDArray[np.int64]) -> None:
        """Begin games."""

    def observe(self, side: int) -> FloatArray:
        """Return (N, size) what the agents of a side see."""
        raise NotImplementedError

    def play(self, one: ActionTuple, other: ActionTuple) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the first side's rewards (N,), and which games are over (N,)."""
        raise NotImplementedError

    def _reports(
        self, ended: NDArray[np.int64], reward: FloatArray, last: list[FloatArray] | None
    ) -> dict[BehaviorName, Report]:
        reports = {}
        for side, name in enumerate(self.names):
            sign = 1.0 - 2.0 * side
            ids = np.arange(self.n) + side * self.n
            paid = sign * reward
            continuing = paid.copy()
            continuing[ended] = 0.0
            decisions = DecisionSteps.of(
                [self.observe(side)],
                **self._paid(continuing, ids),
                agent_id=ids,
                masks=[np.zeros((self.n, 3), np.bool_)],
            )
            terminals = None
            if len(ended) and last is not None:
                terminals = TerminalSteps.of(
                    [last[side][ended]],
                    **self._paid(paid[ended], ids[ended]),
                    agent_id=ids[ended],
                    interrupted=np.full(len(ended), self.interrupts),
                )
            reports[name] = Report(decisions, terminals)
        return reports

    def _paid(self, reward: FloatArray, ids: NDArray[np.int64]) -> dict[str, Any]:
        if self.groups:
            return {"reward": np.zeros_like(reward), "groups": (ids + 1, reward)}
        return {"reward": reward}


class RockPaperScissors(Duel):
    """One throw is one episode."""

    def __init__(self, **arguments: Any) -> None:
        spec = BehaviorSpec([ObservationSpec.vector(1, "one")], ActionSpec.create_discrete((3,)))
        super().__init__(spec, **arguments)

    def observe(self, side: int) -> FloatArray:
        return np.ones((self.n, 1), np.float32)

    def play(self, one: ActionTuple, other: ActionTuple) -> tuple[FloatArray, NDArray[np.bool_]]:
        ahead = (one.discrete[:, 0] - other.discrete[:, 0]) % 3  # 1: paper over rock, and so on
        reward = np.array([0.0, 1.0, -1.0], np.float32)[ahead]
        return reward, np.ones(self.n, np.bool_)


class Ambush(Duel):
    """Three steps of waiting, ambushing or guarding: actions 0, 1 and 2.

    A side that ambushes in all three steps wins, but loses if the other side guards in the last
    step. A side that guards then, although the other one has never ambushed, loses. All other games
    are drawn. Each side sees the step and how often both have ambushed.
    """

    def __init__(self, **arguments: Any) -> None:
        spec = BehaviorSpec([ObservationSpec.vector(3, "field")], ActionSpec.create_discrete((3,)))
        super().__init__(spec, **arguments)
        self.step_number = np.zeros(self.n, np.int64)
        self.n_ambushes = np.zeros((2, self.n), np.int64)

    def begin(self, areas: NDArray[np.int64]) -> None:
        self.step_number[areas] = 0
        self.n_ambushes[:, areas] = 0

    def observe(self, side: int) -> FloatArray:
        columns = self.step_number, self.n_ambushes[side], self.n_ambushes[1 - side]
        return np.stack(columns, axis=1).astype(np.float32)

    def play(self, one: ActionTuple, other: ActionTuple) -> tuple[FloatArray, NDArray[np.bool_]]:
        actions = np.stack([one.discrete[:, 0], other.discrete[:, 0]])
        self.step_number += 1
        self.n_ambushes += actions == 1
        over = self.step_number == 3
        guards = (actions == 2) & over
        wins = (self.n_ambushes == 3) * np.where(guards[::-1], -1.0, 1.0)
        wins -= guards & (self.n_ambushes[::-1] == 0)
        return (wins[0] - wins[1]).astype(np.float32), over


class LinePong(Duel):
    """A ball flies between two paddles; who misses it loses.

    Both sides see the field from their own end: the ball's place and velocity, and both paddles.
    Paddles move by 0.1 a step and are 0.3 wide; the ball's path may be steeper than they are fast.
    """

    SPEED, REACH, FLIGHT = 0.1, 0.15, 8

    def __init__(self, **arguments: Any) -> None:
        spec = BehaviorSpec([ObservationSpec.vector(6, "field")], ActionSpec.create_discrete((3,)))
        super().__init__(spec, **arguments)
        self.paddle = np.zeros((2, self.n), np.float32)
        self.ball = np.zeros((2, self.n), np.float32)  # along the field, -1 to 1, and across it
        self.velocity = np.zeros((2, self.n), np.float32)

    def begin(self, areas: NDArray[np.int64]) -> None:
        self.paddle[:, areas] = 0.0
        self.ball[:, areas] = 0.0
        self.velocity[0, areas] = self.rng.choice([-1.0, 1.0], len(areas)) / self.FLIGHT
        self.velocity[1, areas] = self.rng.uniform(-0.1, 0.1, len(areas))

    def observe(self, side: int) -> FloatArray:
        sign = 1.0 - 2.0 * side
        columns = [
            sign * self.ball[0],
            self.ball[1],
            sign * self.velocity[0] * self.FLIGHT,
            self.velocity[1] * 10.0,
            self.paddle[side],
            self.paddle[1 - side],
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def play(self, one: ActionTuple, other: ActionTuple) -> tuple[FloatArray, NDArray[np.bool_]]:
        for side, action in enumerate((one, other)):
            self.paddle[side] += self.SPEED * (action.discrete[:, 0] - 1.0)
        np.clip(self.paddle, -1.0, 1.0, out=self.paddle)
        self.ball += self.velocity
        bounces = np.abs(self.ball[1]) > 1.0
        self.velocity[1, bounces] *= -1.0
        np.clip(self.ball[1], -1.0, 1.0, out=self.ball[1])
        reward = np.zeros(self.n, np.float32)
        over = np.zeros(self.n, np.bool_)
        for side, end in ((0, -1.0), (1, 1.0)):
            arrives = self.ball[0] * end >= 0.999
            hit = arrives & (np.abs(self.ball[1] - self.paddle[side]) <= self.REACH)
            missed = arrives & ~hit
            # The place where the ball meets the paddle steers it.
            self.velocity[0, hit] *= -1.0
            place = (self.ball[1, hit] - self.paddle[side, hit]) / self.REACH
            self.velocity[1, hit] = 0.15 * place + self.rng.uniform(-0.02, 0.02, place.shape)
            reward[missed] = -1.0 if side == 0 else 1.0
            over |= missed
        return reward, over


def chase(obs: Sequence[NDArray[Any]], action_mask: NDArray[np.bool_]) -> ActionTuple:
    """Move a paddle of `LinePong` to the ball: a scripted opponent."""
    away = obs[0][:, 1] - obs[0][:, 4]
    move = 1 + np.sign(away) * (np.abs(away) > 0.05)
    return ActionTuple(np.zeros((len(away), 0), np.float32), move[:, None].astype(np.int32))


def always_paper(obs: Sequence[NDArray[Any]], action_mask: NDArray[np.bool_]) -> ActionTuple:
    """Play `RockPaperScissors` in the simplest way."""
    return ActionTuple(np.zeros((len(obs[0]), 0)), np.ones((len(obs[0]), 1)))


def nothing(obs: Sequence[NDArray[Any]], action_mask: NDArray[np.bool_]) -> None:
    """Return no actions: a mistake."""


def asymmetric(seed: int) -> LinePong:
    """Make a game whose sides are different behaviors."""
    return LinePong(names=("Even?team=0", "Odd?team=1"), seed=seed)


def in_groups(seed: int) -> LinePong:
    """Make a game whose agents are in groups."""
    return LinePong(groups=True, seed=seed)
