"""Basic: walk along a line to the cell that pays best."""

from collections.abc import Mapping

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Control, Scene
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.world import ALL, Agents, World

CELLS = 20
START = 10
SMALL_GOAL, LARGE_GOAL = 7, 17
MOVES = np.array([0, -1, 1])
"""By action: stay, left, right."""

BACKGROUND = (236, 240, 245)
CELL_COLOR = (196, 206, 218)
SMALL_COLOR, LARGE_COLOR = (146, 208, 150), (46, 160, 67)
AGENT_COLOR = (37, 99, 195)


class Basic(World):
    """One agent on a line of cells, with a small reward nearby and a large one farther away.

    Observation: 20 numbers, 1 for the agent's cell and 0 elsewhere.
    Action: one branch of 3: stay, left, right.
    Decisions: every step.
    Reward: -0.01 per step; in addition, +0.1 for reaching cell 7 and +1 for reaching cell 17.
    Ends: at either of these cells.
    Interrupts: never.
    Start: cell 10. There are no random choices and no parameters.
    A good policy reaches 0.93: 1 for seven steps to the right.

    As in Unity, where the scene is loaded again after an episode, the agent is absent for a step
    and returns with a new id.

    Attributes:
        cell: (N,) cells of the agents.
    """

    behavior_name = "Basic?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(CELLS, "Basic")], ActionSpec.create_discrete((len(MOVES),))
    )

    controls = Control("left", "A", 0, 1), Control("right", "D", 0, 2)

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self.cell = np.zeros(self.n_agents, np.intp)
        self._move = np.zeros(self.n_agents, np.intp)
        self._is_away = np.zeros(self.n_agents, np.bool_)

    def begin(self, agents: Agents) -> None:
        """Put the agents in the middle."""
        self.cell[agents] = START
        self._is_away[agents] = False

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        cell = self.cell[agents]
        seen = np.zeros((len(cell), CELLS), np.float32)
        seen[np.arange(len(cell)), cell] = 1.0
        return [seen]

    def requests(self) -> Agents | None:
        """Return the agents that are not absent."""
        if not self._is_away.any():
            return ALL
        here = np.flatnonzero(~self._is_away)
        return here if len(here) else None

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Store the moves."""
        self._move[agents] = MOVES[action.discrete[:, 0]]

    def act(self) -> None:
        """Move the agents; end episodes that reached a goal."""
        is_here = ~self._is_away
        self.cell[is_here] = (self.cell + self._move)[is_here].clip(0, CELLS - 1)
        self.reward[is_here] -= 0.01
        self.reward[self.cell == SMALL_GOAL] += 0.1
        self.reward[self.cell == LARGE_GOAL] += 1.0
        arrived = np.flatnonzero((self.cell == SMALL_GOAL) | (self.cell == LARGE_GOAL))
        self.end(arrived)
        self.renew_ids(arrived)
        self._is_away[:] = False
        self._is_away[arrived] = True

    def scene(self) -> Scene:
        """Return all lines of cells, with green goals and a blue agent."""
        plan = FloorPlan(self, self.n_agents, (0.0, 0.0), (CELLS, 1.0), floor=BACKGROUND, top_m=1.0)
        at = np.array([np.arange(CELLS) + 0.5, np.full(CELLS, 0.5)])
        color = np.tile(CELL_COLOR, (CELLS, 1))
        color[SMALL_GOAL], color[LARGE_GOAL] = SMALL_COLOR, LARGE_COLOR
        plan.box("cell", at, (0.45, 0.45), height_m=0.1, color=color, fixed=True)
        place = np.array([self.cell + 0.5, np.full(self.n_agents, 0.5)])
        plan.ball(
            "agent", place, 0.35, low_m=0.1, color=AGENT_COLOR, agents=np.arange(self.n_agents)
        )
        return plan.scene()
