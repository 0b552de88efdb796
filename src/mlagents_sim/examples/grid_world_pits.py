"""GridWorldPits: walk to a goal past pits, seen from above; the older GridWorld."""

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_sim.examples.grid_world import HEIGHT, MOVES, PLUS, WIDTH, GridWorld
from mlagents_sim.world import Agents


class GridWorldPits(GridWorld):
    """Nine agents, each on a grid of its own with a goal and a pit.

    Observation: a picture, (3, 64, 84), of 8 bit, as in GridWorld. Goals are green pluses, pits are
        red crosses.
    Action: one branch of 5: stay, up, down, left, right. A move out of the grid is masked and
        does nothing.
    Decisions: every step.
    Reward: -0.01 per step; instead +1 for walking into a goal, -1 for a pit.
    Ends: at any goal or pit.
    Interrupts: after 100 steps.
    Parameters: `gridSize` 5, in cells; `numGoals` 1; `numObstacles` 1. Of fractions, the whole part
        counts. Episodes that begin from now on obey them.
    Start: goals, pits and agent in random cells, no two in one.
    A good policy reaches 0.8.

    Source: example environments, section 2, task 3, older variant. Its picture is that of today.
    """

    behavior_name = "GridWorldPits?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.image((3, HEIGHT, WIDTH), "CameraSensor")],
        ActionSpec.create_discrete((len(MOVES),)),
    )
    default_parameters: ClassVar[Mapping[str, float]] = {
        "gridSize": 5.0,
        "numGoals": 1.0,
        "numObstacles": 1.0,
    }
    counts: ClassVar[tuple[str, str]] = ("numGoals", "numObstacles")

    def begin(self, agents: Agents) -> None:
        """Put goals, pits and agents into different cells."""
        super().begin(agents)
        self.requested[agents] = PLUS

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observation that the class describes."""
        return super().observe(agents)[:1]
