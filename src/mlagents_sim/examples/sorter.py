"""Sorter: visit numbered tiles in ascending order."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    FloatArray,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.scene import Control, Scene
from mlagents_sim import floor_plan
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.motion import Motion, Ring, Watched
from mlagents_sim.planar import Bodies, Body
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.plane import Z, in_frame
from mlagents_sim.world import Agents

AGENT, WALL, TILE = range(3)
AT_TILE = 1
"""Index of the pair of agent and tile."""

# By action of each branch: ahead (nothing, forward, back), aside (nothing, right, left) and turn
# (nothing, left, right).
FORWARD_M_S = np.array([0.0, 2.0, -2.0])
RIGHT_M_S = np.array([0.0, 2.0, -2.0])
TURN_RAD = np.radians([0.0, -4.0, 4.0])
TURN_SINE, TURN_COSINE = np.sin(TURN_RAD), np.cos(TURN_RAD)

SLOTS = 20
HIGHEST = 20
RADIUS_M = 20.3
TILE_AT_M = 20.5
"""Distance from the middle of the arena to the middle of a tile."""
TILE_HALF = (1.75, 0.76)
HIGHEST_TILE_M = 4.0
"""Height of the tile with the largest number, where it is drawn."""
WALL_HALF = (3.0, 1.0)
"""Half lengths of the piece of wall next to an agent."""
AGENT_HALF_M = 0.5
AGENT_DRAG = 4.0
SCALE_M = 20.0
"""Divisor of observed places."""

_ANGLES = np.arange(SLOTS) * (2 * np.pi / SLOTS)
TILES_AT = np.stack([np.sin(_ANGLES), np.cos(_ANGLES)])
"""(2, slots) unit vectors from the middle."""
TILE_PLACES = TILE_AT_M * TILES_AT.T
"""(slots, 2) middles of the tiles."""
NUMBERS = np.eye(HIGHEST + 1, HIGHEST, dtype=np.float32)
"""One-hot number of a tile by number; zeros for `HIGHEST` and for no tile."""
NUMBERS[0] = 0.0

TILES = ObservationSpec(
    (SLOTS, HIGHEST + 3),
    (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE),
    ObservationType.DEFAULT,
    "BufferSensor",
)
POSE = ObservationSpec.vector(4, "VectorSensor_size4")
STACKED = 2


class Sorter(PlanarWorld):
    """Agents in round arenas that must touch numbered tiles along the wall in ascending order.

    Observations: three sensors.
        1. Up to 20 tiles in ascending order, (20, 23): one-hot number; at 20 and 21 the distance
           from the agent to the tile in x and z, divided by 20 m; at 22 whether the tile was
           visited. The distance overwrites the one-hot entry of number 20. Unused rows are zero.
        2. 10 numbers: three zeros, the quaternion 0, 0, 0, 1, then the agent's velocity in m/s, to
           its right, up and ahead.
        3. 4 numbers in two frames, oldest first: the agent's position (x, z) divided by 20 m, and
           its heading (x, z).
    Actions: three branches of 3: nothing, forward, back; nothing, right, left, which override
        forward and back; nothing, turn left, turn right. A push adds 2 m/s per step, and a turn is
        4 degrees per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0002 per step; +1 for touching the next tile in order, -1 for touching any other tile
        that was not visited yet.
    Ends: when a wrong tile was touched, or all tiles are visited.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Parameters: `num_tiles` 20, the largest number of tiles in an episode (1 to 20); `gravity`
        24.525 m/s2, which presses the agent to the floor, where friction slows it.
    Start: the agent in the middle, at rest, with its previous heading; 1 to `num_tiles` tiles with
        different numbers, at random slots of 20 along the wall.
    A good policy reaches nearly the number of tiles, on average (`num_tiles` + 1) / 2.

    Attributes:
        bodies: Agent of every area, with the piece of wall and the tile that it may touch.
        ring: Tiles by slot, and the tile beside each agent.
        number: (20, N) numbers of the tiles in ascending order, 0 for none.
        slot: (20, N) slots of these tiles.
        n_tiles: (N,) counts of tiles.
        n_visited: (N,) counts of visited tiles, which come first.
    """

    motion: Motion

    behavior_name = "Sorter?team=0"
    behavior_spec = BehaviorSpec(
        [TILES, ObservationSpec.vector(10, "PhysicsBodySensor:Agent"), stacked(POSE, STACKED)],
        ActionSpec.create_discrete((3, 3, 3)),
    )
    controls = (
        Control("forward", "W", 0, 1),
        Control("back", "S", 0, 2),
        Control("right", "E", 1, 1),
        Control("left", "Q", 1, 2),
        Control("turn left", "A", 2, 1),
        Control("turn right", "D", 2, 2),
    )
    agents_per_area = 8
    decision_period_steps = 5
    max_steps = 5000
    step_reward = -1.0 / max_steps
    default_parameters: ClassVar[Mapping[str, float]] = {"num_tiles": 20.0, "gravity": 24.525}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.bodies = Bodies(
            n,
            [
                Body((AGENT_HALF_M, AGENT_HALF_M), mass=10.0, drag=AGENT_DRAG),
                Body(WALL_HALF),
                Body(TILE_HALF),
            ],
            low=(-np.inf, -np.inf),
            high=(np.inf, np.inf),
            pairs=[(AGENT, WALL), (AGENT, TILE)],
        )
        self.number = np.zeros((SLOTS, n), np.intp)
        self.slot = np.zeros((SLOTS, n), np.intp)
        self.n_tiles = np.zeros(n, np.intp)
        self.n_visited = np.zeros(n, np.intp)
        self.ring = Ring(
            self.bodies,
            wall=WALL,
            item=TILE,
            wall_m=RADIUS_M + WALL_HALF[Z],
            item_m=TILE_AT_M,
            slots=TILES_AT,
        )
        self.motion = Motion(
            self.bodies, pushes_first=True, ring=self.ring, watched=Watched(pairs=[AT_TILE])
        )
        self._poses = FrameStack(POSE, STACKED, n)

    def begin(self, agents: Agents) -> None:
        """Put the agents in the middle and tiles around them."""
        n = len(self.agent_id[agents])
        most = np.clip(self.parameters.draw("num_tiles", n), 1, SLOTS).astype(np.intp)
        n_tiles = self.rng.integers(1, most, endpoint=True)
        order = np.arange(SLOTS)[:, None]
        is_tile = order < n_tiles
        numbers, slots = self.rng.permuted(np.tile(order, (2, 1, n)), axis=1)
        number = np.sort(np.where(is_tile, numbers + 1, HIGHEST + 1), axis=0)
        tile_at = np.full((SLOTS, n), -1)
        np.put_along_axis(tile_at, slots, np.where(is_tile, order, -1), axis=0)
        self.number[:, agents] = np.where(is_tile, number, 0)
        self.slot[:, agents] = slots
        self.n_tiles[agents] = n_tiles
        self.n_visited[agents] = 0
        self.ring.items[:, agents] = tile_at
        self._poses.clear(agents)

        self.bodies.position[:, AGENT, agents] = 0.0
        self.bodies.velocity[:, AGENT, agents] = 0.0
        self.bodies.put_down((AGENT, agents), gravity=self.parameters.draw("gravity", n))

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        place = self.bodies.position[:, AGENT, agents]
        heading = self.bodies.heading[:, AGENT, agents]
        n = place.shape[1]
        number, slot = self.number[:, agents].T, self.slot[:, agents].T  # (n, tiles)
        is_tile = number > 0
        tiles = np.empty((n, *TILES.shape), np.float32)
        tiles[..., :HIGHEST] = NUMBERS.take(number, axis=0)
        apart = (TILE_PLACES.take(slot, axis=0) - place.T[:, None]) / SCALE_M
        tiles[..., HIGHEST : HIGHEST + 2] = apart * is_tile[..., None]
        is_visited = np.arange(SLOTS) < self.n_visited[agents, None]
        tiles[..., HIGHEST + 2] = is_visited & is_tile

        body = np.zeros((n, 10), np.float32)
        body[:, 6] = 1.0
        body[:, 7::2] = in_frame(heading, self.bodies.velocity[:, AGENT, agents]).T
        pose = np.concatenate([place / SCALE_M, heading]).T.astype(np.float32)
        return [tiles, body, self._poses.add(agents, pose)]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        ahead, aside, turn = action.discrete.T
        self.motion.command(
            agents,
            forward=np.where(aside == 0, FORWARD_M_S[ahead], 0.0),
            right=RIGHT_M_S[aside],
            sine=TURN_SINE[turn],
            cosine=TURN_COSINE[turn],
        )

    def judge(self, n_steps: int) -> None:
        """Reward the tiles that agents touch."""
        tile = self.ring.near
        at_new = np.flatnonzero(self.bodies.touching[AT_TILE] & (tile >= self.n_visited))
        if at_new.size == 0:
            return
        is_next = tile[at_new] == self.n_visited[at_new]
        self.reward[at_new] += np.where(is_next, 1.0, -1.0)
        self.n_visited[at_new] += is_next
        is_done = self.n_visited[at_new] == self.n_tiles[at_new]
        self.end(at_new[~is_next | is_done])

    def scene(self) -> Scene:
        """Return all arenas. A tile is higher and lighter if its number is; green if visited."""
        edge = TILE_AT_M + 1.0
        plan = FloorPlan(
            self,
            self.n_agents,
            (-edge, -edge),
            (edge, edge),
            floor=floor_plan.WALL,
            top_m=HIGHEST_TILE_M,
        )
        plan.disc("arena", (0.0, 0.0), RADIUS_M, height_m=0.02, color=floor_plan.FLOOR)
        outward = TILES_AT[:, self.slot]  # (2, tiles, N)
        order = np.arange(SLOTS)[:, None]
        brightness = 60 + 9 * self.number[..., None]
        color = np.where(
            (order < self.n_visited)[..., None], floor_plan.GREEN, np.repeat(brightness, 3, axis=2)
        )
        plan.box(
            "tile",
            floor_plan.hidden(outward * TILE_AT_M, order < self.n_tiles),
            TILE_HALF,
            height_m=0.5 + (HIGHEST_TILE_M - 0.5) * self.number / HIGHEST,
            color=color,
            heading=outward,
        )
        plan.agents(
            "agent",
            self.bodies.position[:, AGENT],
            self.bodies.heading[:, AGENT],
            AGENT_HALF_M,
            agents=np.arange(self.n_agents),
            low_m=0.02,
        )
        return plan.scene()
