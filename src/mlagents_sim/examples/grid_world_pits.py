"""GridWorldPits: walk to a goal past pits, seen from above; an older version of GridWorld."""

from collections.abc import Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_sim.examples.grid_world import HEIGHT, MOVES, PLUS, WIDTH, GridWorld
from mlagents_sim.world import Agents


class GridWorldPits(GridWorld):
    """Nine agents, each on its own grid with a goal and a pit.

    Observation: an image, (3, 64, 84), 8-bit, as in GridWorld. Goals are green pluses, and pits are
        red crosses.
    Action: one branch of 5: stay, up, down, left, right. A move out of the grid is masked and
        does nothing.
    Decisions: every step.
    Reward: -0.01 per step; instead +1 for walking into a goal, -1 for a pit.
    Ends: at any goal or pit.
    Interrupts: after 100 steps.
    Parameters: `gridSize` 5, in cells; `numGoals` 1; `numObstacles` 1. Values are rounded down and
        apply to episodes that begin later.
    Start: goals, pits and agent in different random cells.
    A good policy reaches 0.8.

    The image looks like that of the current GridWorld.
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
