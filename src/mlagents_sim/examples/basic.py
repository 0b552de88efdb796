"""Basic: walk along a line to the cell that pays best."""

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_sim.world import ALL, Agents, World, WorldOptions

CELLS = 20
START = 10
SMALL_GOAL, LARGE_GOAL = 7, 17
MOVES = np.array([0, -1, 1])


class Basic(World):
    """One agent on a line of cells, with a small reward near by and a large one farther off.

    Observation: 20 numbers, 1 at the agent's cell and 0 elsewhere.
    Action: one branch; 0 stays, 1 goes left, 2 goes right.
    Reward: -0.01 per decision; +0.1 on reaching cell 7, +1 on reaching cell 17.
    Ends: at either of these cells. Nothing interrupts an episode.
    Start: cell 10. There is no randomness and no parameter.
    A good policy reaches 0.93: seven steps to the right.

    As in Unity the scene is loaded anew after an episode: the agent is away for a step and comes
    back under a new id. Source: example environments, section 2, task 1.
    """

    behavior_name = "Basic?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(CELLS, "Basic")], ActionSpec.create_discrete((3,))
    )
