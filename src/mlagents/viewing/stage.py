"""`Stage`: hands the newest state of an environment from the thread that steps it to a page.

stepping thread ─► stage.offer(...) ─► newest `Moment` ─► stage.take() ─► page's thread

The stepping thread never waits. It copies the state only if the page asked for it.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.scene import HasScene, Scene

PLAY_SHARE = 0.05
"""Part of the stepping thread's time that copies may take; slow scenes are shown less often."""
TRAINING_SHARE = 0.008
"""Such a part while training, where all of watching costs about 2 %."""

Steps = Mapping[BehaviorName, tuple[DecisionSteps, TerminalSteps]]
Probabilities = Mapping[BehaviorName, list[NDArray[np.float32]]]


class Moment(NamedTuple):
    """State of an environment between a report and its answer. Nothing of it changes later.

    Attributes:
        specs: Specifications of all behaviors.
        steps: Steps that the agents reported.
        actions: Actions that answer them, for the behaviors that act.
        probabilities: One (N, choices) array for each branch, for the policies that tell.
        scene: Solids and poses, if the environment describes them.
        picture: (H, W, 3) picture, if the environment only draws.
        reward: Reward of the followed agent's running episode so far.
        n_reports: Number of reports so far.
    """

    specs: Mapping[BehaviorName, BehaviorSpec]
    steps: Steps
    actions: Mapping[BehaviorName, ActionTuple]
    probabilities: Probabilities
    scene: Scene | None
    picture: NDArray[np.uint8] | None
    reward: float
    n_reports: int

    def agent_ids(self) -> list[AgentId]:
        """Return the ids of all agents, in the order of their indices."""
        if self.scene is not None:
            ids: list[AgentId] = self.scene.agent_id.tolist()
            return ids
        return sorted(
            {agent for both in self.steps.values() for steps in both for agent in steps.agent_id}
        )


class Stage:
    """Holds at most one moment, the newest that was asked for.

    Args:
        share: Part of the time that copies may take.
        clock: Function that returns this time, in seconds: wall time, or the CPU time of the
            stepping thread.

    Attributes:
        is_watched: Whether a browser watches. If not, `offer` returns at once.
        followed: Index of the agent whose reward is added up.
    """

    def __init__(
        self, *, share: float = PLAY_SHARE, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._share, self._clock = share, clock
        self.is_watched = False
        self.followed = 0
        self._wanted_at_s = -math.inf
        self._newest: Moment | None = None
        self._arrival = threading.Condition()
        self._followed_id: AgentId | None = None
        self._row = 0
        self._reward = 0.0
        self._n_reports = 0

    def offer(
        self,
        env: object,
        specs: Mapping[BehaviorName, BehaviorSpec],
        steps: Steps,
        actions: Mapping[BehaviorName, ActionTuple],
        probabilities: Callable[[], Probabilities] = dict,
    ) -> None:
        """Tell a report and its answer, before the next step. Call it in the stepping thread.

        Args:
            env: Environment that reported, to be looked at: its `scene` or its `render`.
            specs: Specifications of all behaviors.
            steps: Steps that the agents reported.
            actions: Actions that answer them.
            probabilities: Function that returns one (N, choices) array for each branch, for the
                policies that tell; called only if the page asked.
        """
        if not self.is_watched:
            return
        self._n_reports += 1
        self._add_rewards(steps)
        now_s = self._clock()
        if self._newest is not None or now_s < self._wanted_at_s:
            return
        scene = env.scene() if isinstance(env, HasScene) else None
        picture = None
        if scene is None and (render := getattr(env, "render", None)) is not None:
            picture = render()
        moment = Moment(
            specs,
            steps,
            actions,
            probabilities(),
            scene,
            picture,
            self._reward,
            self._n_reports,
        )
        ids = moment.agent_ids()
        followed = ids[self.followed] if self.followed < len(ids) else None
        if followed != self._followed_id:
            self._followed_id, self._reward = followed, 0.0
        took_s = self._clock() - now_s
        with self._arrival:
            self._newest = moment
            self._wanted_at_s = now_s + took_s / self._share
            self._arrival.notify_all()

    def take(self, timeout_s: float) -> Moment | None:
        """Return the newest moment and ask for another; None if none came in time."""
        with self._arrival:
            self._arrival.wait_for(lambda: self._newest is not None, timeout_s)
            moment, self._newest = self._newest, None
        return moment

    def _add_rewards(self, steps: Steps) -> None:
        """Add what the followed agent got; begin again at 0 with its next episode."""
        for decisions, terminals in steps.values():
            if len(terminals) and self._row_in(terminals) is not None:
                self._reward = 0.0
            if len(decisions) and (row := self._row_in(decisions)) is not None:
                self._reward += float(decisions.reward[row] + decisions.group_reward[row])

    def _row_in(self, steps: DecisionSteps | TerminalSteps) -> int | None:
        """Return the row of the followed agent; most often that of the last report."""
        ids = steps.agent_id
        if self._row >= len(ids) or ids[self._row] != self._followed_id:
            rows = np.flatnonzero(ids == self._followed_id)
            if not rows.size:
                return None
            self._row = int(rows[0])
        return self._row
