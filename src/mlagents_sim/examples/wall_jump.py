"""Wall Jump: get over a wall, with the help of a block if the wall is too high to jump."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Control, Scene
from mlagents_sim.examples.wall_jump_scene import (
    AGENT,
    PLATFORM_CENTER,
    RAYS,
    Platforms,
)
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.motion import Motion
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.plane import Array, X, Z
from mlagents_sim.world import Agents

# By action of each branch: ahead (nothing, forward, back), turn (nothing, left, right) and aside
# (nothing, left, right). Pushes are parts of a full one.
FORWARD = np.array([0.0, 1.0, -1.0])
TURN_RAD = np.radians([0.0, -6.0, 6.0])
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)
RIGHT = np.array([0.0, -0.6, 0.6])

PLACE = ObservationSpec.vector(4, "VectorSensor_size4")
PLACE_SCALE_M = 20.0
STACKED = 6
SPEC = BehaviorSpec(
    [
        stacked(RAYS.spec("OffsetRayPerceptionSensor"), STACKED),
        stacked(RAYS.spec("RayPerceptionSensor"), STACKED),
        stacked(PLACE, STACKED),
    ],
    ActionSpec.create_discrete((3, 3, 3, 2)),
)


class _OverWalls(PlanarWorld):
    """Task that these worlds share, apart from the heights of the walls.

    Attributes:
        platforms: Platforms, one for each agent.
        bodies: Agent, block and wall of every platform.
    """

    controls = (
        Control("forward", "W", 0, 1),
        Control("back", "S", 0, 2),
        Control("turn left", "A", 1, 1),
        Control("turn right", "D", 1, 2),
        Control("left", "Q", 2, 1),
        Control("right", "E", 2, 2),
        Control("jump", "Space", 3, 1),
    )
    agents_per_area = 24
    decision_period_steps = 5
    max_steps = 2000
    step_reward = -0.0005

    motion: Motion

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.platforms = Platforms(n)
        self.bodies = self.platforms.bodies
        self.motion = self.platforms.motion
        self._raised, self._level = (FrameStack(RAYS.spec(""), STACKED, n) for _ in range(2))
        self._places = FrameStack(PLACE, STACKED, n)

    @abstractmethod
    def _choose_walls(self, agents: Agents) -> Array:
        """Return (n,) wall heights for new episodes, of which half is above 0.

        If the behavior of an agent depends on the wall, set it.
        """

    def begin(self, agents: Agents) -> None:
        """Put up the wall, the block before it and the agent at the near end."""
        wall_top = self._choose_walls(agents) / 2.0
        gravity = self.parameters.draw("gravity", len(wall_top))
        self.platforms.begin(agents, wall_top=wall_top, gravity=gravity, rng=self.rng)
        for frames in (self._raised, self._level, self._places):
            frames.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        standing = self.platforms.standing
        x, z = self.bodies.position[:, AGENT, agents]
        place = np.empty((len(x), PLACE.shape[0]), np.float32)
        place[:, 0] = (x - PLATFORM_CENTER[X]) / PLACE_SCALE_M
        place[:, 1] = standing.height_m[agents] / PLACE_SCALE_M
        place[:, 2] = (z - PLATFORM_CENTER[Z]) / PLACE_SCALE_M
        place[:, 3] = standing.is_on_ground()[agents]
        return [
            self._raised.add(agents, self.platforms.raised_rays.observe(agents)),
            self._level.add(agents, self.platforms.level_rays.observe(agents)),
            self._places.add(agents, place),
        ]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        ahead, way, aside, jump = action.discrete.T
        self.motion.command(
            agents,
            forward=FORWARD.take(ahead * (aside == 0)),
            right=RIGHT.take(aside),
            sine=TURN_SINE.take(way),
            cosine=TURN_COSINE.take(way),
        )
        self.platforms.standing.wants_to_jump[agents] = jump == 1

    def act(self) -> None:
        """Jump, push and turn; charge for time; end episodes that left the platform."""
        super().act()
        off = self.platforms.off_platform()
        if off.size:
            self.reward[off] = -1.0
            self.end(off)

    def judge(self, n_steps: int) -> None:
        """Reward agents that reached the goal and end their episodes."""
        arrived = self.platforms.in_goal()
        if arrived.size:
            self.reward[arrived] = 1.0
            self.end(arrived)

    def scene(self) -> Scene:
        """Return all platforms: a green goal, a wall, an orange block and a blue agent on each."""
        return self.platforms.shown(self)


class SmallWallJump(_OverWalls):
    """Agents on platforms that must reach the goal behind a low wall or no wall.

    Observations: three sensors, six frames each, oldest first.
        1. 210 numbers: a frame has 7 rays: ahead, then up to 90 degrees to the right and left,
           alternating. They start 2.5 m above the agent's center and rise by 2.5 m over 20 m. A
           ray has 5 numbers: wall, goal, block, nothing, distance divided by length.
        2. 210 numbers: level rays from the agent's center, otherwise as 1.
        3. 24 numbers: a frame is the agent's position relative to the platform's center, right, up
           and ahead, divided by 20 m; and 1 if ground is right below, else 0.
    Actions: four branches: nothing, forward, back; nothing, turn left, turn right; nothing, left,
        right, which override forward and back; nothing, jump. A push adds 3 m/s per step, 1.8 m/s
        sideways, and half as much in the air; a turn is 6 degrees per step. A jump lasts 11 steps
        and rises 2.62 m; it begins only on the ground.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0005 per step; +1 for standing in the goal; -1 if the block leaves the platform, or
        if the agent leaves it and is not above the block. The last two replace the reward since
        the last decision.
    Ends: with a reward of 1 or -1.
    Interrupts: after 2000 steps, that is 400 decisions.
    Parameters: `no_wall_height` 0 m and `small_wall_height` 4 m, of which half, less 0.45 m, is
        above the ground; `gravity` 26.98 m/s2.
    Start: a wall of either height; the agent at the near end, with its previous heading; the block
        at a random place in front of the wall.
    A good policy reaches 0.8 or more.
    """

    behavior_name = "SmallWallJump?team=0"
    behavior_spec = SPEC
    default_parameters: ClassVar[Mapping[str, float]] = {
        "no_wall_height": 0.0,
        "small_wall_height": 4.0,
        "gravity": 26.98,
    }

    def _choose_walls(self, agents: Agents) -> Array:
        n = len(self.agent_id[agents])
        none, small = (self.parameters.draw(f"{kind}_wall_height", n) for kind in ("no", "small"))
        return np.where(self.rng.random(n) < 0.5, none, small)


class BigWallJump(_OverWalls):
    """Agents in front of walls that are too high to jump over, except from the block.

    Observations, actions, decisions, rewards, ends and start are those of `SmallWallJump`.
    Parameters: `big_wall_height` 8 m, of which half, less 0.45 m, is above the ground; `gravity`
        26.98 m/s2.
    A good policy reaches 0.8 or more.
    """

    behavior_name = "BigWallJump?team=0"
    behavior_spec = SPEC
    default_parameters: ClassVar[Mapping[str, float]] = {"big_wall_height": 8.0, "gravity": 26.98}

    def _choose_walls(self, agents: Agents) -> Array:
        return self.parameters.draw("big_wall_height", len(self.agent_id[agents]))


class WallJump(_OverWalls):
    """Agents of `SmallWallJump` and `BigWallJump` in one scene, drawn again for every episode.

    On average, one of five episodes has no wall and one has a low wall, both with the behavior
    `SmallWallJump`. Three have a high wall, with the behavior `BigWallJump`. An episode ends under
    its own behavior, and the agent's next request comes under that of its new episode.

    Everything else is as in these two; the parameters are those of both.
    """

    behavior_names = (SmallWallJump.behavior_name, BigWallJump.behavior_name)
    behavior_spec = SPEC
    default_parameters: ClassVar[Mapping[str, float]] = {
        **SmallWallJump.default_parameters,
        **BigWallJump.default_parameters,
    }

    def _choose_walls(self, agents: Agents) -> Array:
        n = len(self.agent_id[agents])
        kind = self.rng.integers(0, 5, n)
        none, small, big = (
            self.parameters.draw(f"{name}_wall_height", n) for name in ("no", "small", "big")
        )
        is_big = kind > 1
        self.behavior[agents] = is_big
        return np.where(is_big, big, np.where(kind == 1, small, none))
