"""3DBallHard: 3DBall with stacked observations instead of velocities."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, ObservationSpec
from mlagents_sim.examples.ball_3d import POSITION, Ball3D, X, Z
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.world import Agents

FRAMES = 9
OFFSET = ObservationSpec.vector(3, "ObservableAttribute:Ball3DHardAgent.PositionDelta")
TILT = ObservationSpec.vector(2, "ObservableAttribute:Ball3DHardAgent.Rotation")


class Ball3DHard(Ball3D):
    """Twelve balls, each on a cube of 5 m that its agent turns, without observed velocities.

    Observations, of the last 9 decisions, oldest first; zeros for those before the episode:
        27 numbers: position of the ball relative to the cube, in meters (x, y, z);
        18 numbers: z and x of the cube's quaternion.
    Parameters: as 3DBall, but `scale` and `mass` are read once, before the first episode.

    Actions, decisions, reward, ends, interruptions and the reward of a good policy are those of
    3DBall.
    """

    behavior_name = "3DBallHard?team=0"
    behavior_spec = BehaviorSpec(
        [stacked(OFFSET, FRAMES), stacked(TILT, FRAMES)], ActionSpec.create_continuous(2)
    )

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._offsets = FrameStack(OFFSET, FRAMES, self.n_agents)
        self._tilts = FrameStack(TILT, FRAMES, self.n_agents)
        self._is_sized = False

    def begin(self, agents: Agents) -> None:
        """Begin as in 3DBall, with cleared frames."""
        super().begin(agents)
        self._offsets.clear(agents)
        self._tilts.clear(agents)

    def size_balls(self, agents: Agents) -> None:
        """Size the balls before the first episode, which all agents begin together."""
        if not self._is_sized:
            super().size_balls(agents)
            self._is_sized = True

    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return the observations that the class describes."""
        offset = self.ball[POSITION][:, agents].T.astype(np.float32)
        tilt = self.cube[[Z, X]][:, agents].T.astype(np.float32)
        return [self._offsets.add(agents, offset), self._tilts.add(agents, tilt)]
