"""Random groups whose members come, go and decide, noted agent by agent.

`GroupWorld` reports to a collector as a simulation would, and keeps for every step what MA-POCA
learns from: who was there, what they saw and did, and what they were paid.
"""

from dataclasses import dataclass, field

import numpy as np

from mlagents.trainers.acting.collector import Collector
from mlagents.trainers.data.decision import Decision
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    TerminalSteps,
)

SPEC = BehaviorSpec([ObservationSpec.vector(3, "vector")], ActionSpec.create_hybrid(2, (3, 2)))


@dataclass(eq=False)
class Step:
    """A step of an agent, from its observation until its next report."""

    obs: np.ndarray
    tick: int
    continuous: np.ndarray = field(default_factory=lambda: np.zeros(2, np.float32))
    discrete: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int32))
    reward: float = 0.0
    """What the agent, its group and its mates received."""
    is_closed: bool = False
    mates: list["Step"] = field(default_factory=list)
    """The last steps of all other members when the agent decided."""
    after: list["Step"] = field(default_factory=list)
    """The last steps of all members after the agent's last step; empty if the task ended all."""


@dataclass(eq=False)
class Member:
    id: int
    group: int
    life: int
    """Number of the group among those of its id; a group ends with its last member."""
    steps: list[Step] = field(default_factory=list)


class GroupWorld:
    """Some groups of one behavior in one player.

    Args:
        rng: Source of everything.
        player: Number of the player.
        behavior: Behavior of the agents, with their team.
        first_id: Smallest id of an agent.
        in_step: Whether all members decide in every report.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        player: int = 0,
        behavior: str = "Room?team=0",
        first_id: int = 0,
        *,
        in_step: bool = True,
    ) -> None:
        self.rng = rng
        self.player = player
        self.behavior = behavior
        self.in_step = in_step
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.returns: list[float] = []
        self._first_id = first_id
        self._tick = 0
        self._earned: dict[int, float] = {}
        self._lives = dict.fromkeys(range(3), 0)

    def report(self, collector: Collector) -> None:
        """Let time pass for one report, and record the decisions of those that ask."""
        rng, before = self.rng, list(self.members)
        self._tick += 1
        ended = {m: rng.random() < 0.5 for m in before if rng.random() < 0.15}
        for group in {m.group for m in before}:
            if rng.random() < 0.1:
                kind = rng.random() < 0.5
                ended |= {m: kind for m in before if m.group == group}
        stays = [m for m in before if m not in ended]
        asks = [m for m in stays if self.in_step or rng.random() < 0.5]
        of_group = {group: float(rng.normal()) for group in {m.group for m in before}}
        of_group[0] = 0.0

        own = {m: float(np.float32(rng.normal())) for m in (*ended, *asks)}
        for m in own:
            m.steps[-1].is_closed = True
            m.steps[-1].reward += own[m] + of_group[m.group]
            for mate in self._mates(m):
                if mate.steps[-1].tick < self._tick:
                    mate.steps[-1].reward += own[m]
        for group in {m.group for m in before} - {0}:
            self._earned[group] = self._earned.get(group, 0.0) + of_group[group]
            if all(m in ended for m in before if m.group == group):
                self.returns.append(self._earned.pop(group))
                self._lives[group] += 1

        self.members = stays
        last = {m: Step(self._obs(), self._tick) for m in ended}
        free = [i for i in range(self._first_id, self._first_id + 8) if i not in self._ids()]
        rng.shuffle(free)
        for agent in free[: rng.integers(0, 3) if before else 4]:
            group = int(rng.integers(0, 3))
            if sum(m.group == group for m in self.members) < 5 or group == 0:
                self.members.append(Member(agent, group, self._lives[group]))
        joined = [m for m in self.members if not m.steps]
        for m in (*asks, *joined):
            m.steps.append(Step(self._obs(), self._tick))
        self._note_what_follows(before, ended, last)

        asking = [*asks, *joined]
        rewards = [own.get(m, 0.0) for m in asking], [of_group.get(m.group, 0.0) for m in asking]
        rewards[1][len(asks) :] = [0.0] * len(joined)
        decisions = DecisionSteps.of(
            [np.array([m.steps[-1].obs for m in asking], "f4").reshape(-1, 3)],
            rewards[0],
            [m.id for m in asking],
            groups=([m.group for m in asking], rewards[1]),
        )
        terminals = TerminalSteps.of(
            [np.array([last[m].obs for m in ended], "f4").reshape(-1, 3)],
            [own[m] for m in ended],
            [m.id for m in ended],
            list(ended.values()),
            groups=([m.group for m in ended], [of_group[m.group] for m in ended]),
        )
        lanes = collector.observe(self.player, decisions, terminals, behavior=self.behavior)
        self.decide = lambda: self._decide(collector, lanes, asking)

    def _decide(self, collector: Collector, lanes: np.ndarray, asking: list[Member]) -> None:
        n, rng = len(asking), self.rng
        continuous = rng.normal(size=(n, 2)).astype("f4")
        discrete = rng.integers(0, (3, 2), (n, 2)).astype("i4")
        log_probs = rng.normal(size=(n, 4)).astype("f4")
        decision = Decision(
            ActionTuple(continuous, discrete),
            continuous,
            discrete,
            log_probs,
            0.0,
            np.zeros((n, collector.memory(lanes).shape[1]), "f4"),
        )
        collector.record(lanes, np.zeros((n, 5), np.bool_), decision)
        for row, m in enumerate(asking):
            m.steps[-1].continuous, m.steps[-1].discrete = continuous[row], discrete[row]

    def _note_what_follows(
        self, before: list[Member], ended: dict[Member, bool], last: dict[Member, Step]
    ) -> None:
        """Note for each new step who is there, and for each ended agent who is left."""
        for m in self.members:
            if m.steps[-1].tick == self._tick:
                m.steps[-1].mates = [mate.steps[-1] for mate in self._mates(m)]
        for m, is_interrupted in ended.items():
            remaining = [mate.steps[-1] for mate in self._mates(m)]
            together = [last[x] for x in ended if x is m or (x.group == m.group != 0)]
            cut_short = [step for x, step in last.items() if ended[x] and step in together]
            if is_interrupted:
                m.steps[-1].after = remaining + cut_short
            else:
                m.steps[-1].after = remaining or cut_short
            self.gone.append(m)

    def _mates(self, member: Member) -> list[Member]:
        if member.group == 0:
            return []
        group = member.group, member.life
        return [m for m in self.members if m is not member and (m.group, m.life) == group]

    def _ids(self) -> set[int]:
        return {m.id for m in self.members}

    def _obs(self) -> np.ndarray:
        return self.rng.normal(size=3).astype("f4")
