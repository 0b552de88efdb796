"""Food Collector: gather good food, avoid bad food and freeze other agents."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, FloatArray
from mlagents_envs.scene import Scene
from mlagents_sim import native_planar
from mlagents_sim.examples.food_floors import (
    FOOD_RADIUS_M,
    GOOD,
    WALL_THICKNESS_M,
    WALLS_M,
    Eaten,
    Floors,
)
from mlagents_sim.native_planar import Pool, address, indices
from mlagents_sim.plane import Indices, X, dot, gap_to_point, in_frame
from mlagents_sim.rays import radius_at_edge
from mlagents_sim.sensors import GridSensor, Marks
from mlagents_sim.world import Agents, World

GOOD_TAG, AGENT_TAG, WALL_TAG, BAD_TAG, FROZEN_TAG = range(5)
GRID = GridSensor(n_cells=40, cell_m=1.0, n_tags=5)
GRID_HALF_HEIGHT_M = 0.01
ACTIONS = ActionSpec.create_hybrid(3, (2,))
SIDES = np.array([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
"""(2, 4) directions of the walls."""


class FoodCollector(World):
    """Task that these worlds share, apart from the observations.

    Attributes:
        floors: Agents, food and lasers of all areas.
        bodies: Agents of every area, M of them.
        food: (2, 50, areas) places of all food, good before bad.
        falling: (50, areas) steps until a piece has come down.
        frozen: (M, areas) steps until an agent thaws.
        is_shooting: (M, areas) whether the last step was spent shooting.
    """

    agents_per_area = 20
    n_members: ClassVar[int] = 5
    """Number of agents on each of the floors of a scene."""
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"agent_scale": 1.0, "laser_length": 1.0}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self.floors = Floors(self.n_agents // self.n_members, self.n_members)
        self.bodies, self.food = self.floors.bodies, self.floors.food
        self.falling, self.frozen = self.floors.falling, self.floors.frozen
        self.is_shooting = self.floors.is_shooting
        # Agents are numbered area by area; (M, areas) arrays have them in columns.
        self._area, self._member = np.divmod(np.arange(self.n_agents), self.n_members)

    def reset(self) -> None:
        """Begin all episodes again, with new food."""
        self._require_open()
        self.floors.scatter_food(self.rng)
        super().reset()

    def begin(self, agents: Agents) -> None:
        """Drop the agents at random places."""
        area, member = self._area[agents], self._member[agents]
        self.floors.put_down(
            area,
            member,
            scale=self.parameters.draw("agent_scale", len(area)),
            laser_length=self.parameters.draw("laser_length", len(area)),
            rng=self.rng,
        )

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        clipped = np.minimum(np.maximum(action.continuous.T, -1.0), 1.0)
        ahead, right, left_turn = clipped.astype(np.float64)
        self.floors.command(
            self._area[agents],
            self._member[agents],
            ahead=ahead,
            right=right,
            left_turn=left_turn,
            shoots=action.discrete[:, 0] == 1,
        )

    def act(self) -> None:
        """Push, turn and shoot."""
        self.floors.act()

    def physics(self) -> None:
        """Move the agents; reward what they eat."""
        self._reward(self.floors.move())

    def run(self, most_steps: int) -> int:
        """Run steps up to one in which food is eaten."""
        n_steps, eaten = self.floors.run(most_steps)
        self.step_count += n_steps
        self._reward(eaten)
        return n_steps

    def _reward(self, eaten: Eaten) -> None:
        """Reward agents for what they ate, and let it come back elsewhere."""
        area, member, food = eaten
        if area.size:
            self.floors.replace(food, area, self.rng)
            eaters = area * self.n_members + member
            np.add.at(self.reward, eaters, np.where(GOOD[food], 1.0, -1.0))

    def scene(self) -> Scene:
        """Return all areas, as `Floors.shown` describes them."""
        return self.floors.shown(self)


class GridFoodCollector(FoodCollector):
    """Agents that gather food in shared areas, and freeze each other with lasers.

    Observation: a grid of 40 x 40 cells of 1 m around the agent, which turns with it: (5, 40, 40),
        1 for the nearest object in a cell, by channel: good food, agent, wall, bad food, frozen
        agent. Rows run from right to left, columns from back to front.
    Actions: 3 continuous, clipped to -1..1: push ahead and push to the right, by up to 2 m/s per
        step; turn left, by up to 6 degrees per step. One branch of 2: nothing, shoot.
    Decisions: every 5 steps of 0.02 s.
    Reward: +1 for good food touched, -1 for bad.
    Ends: never.
    Interrupts: after 5000 steps, that is 1000 decisions. The food stays as it is.
    Parameters: `agent_scale` 1, the size of the agents (0.5 to 5); `laser_length` 1 (0.2 to 7), the
        length of the drawn laser, which does not change its range.
    Start: a random place away from the walls, 1.5 m above the floor, with a random heading in whole
        degrees. An agent falls for half a second, and then slides on the floor.
    A good policy reaches 10 or more.

    A laser with a range of 25 m freezes the first agent that it hits for 4 s. A frozen agent does
    not push, turn or shoot, but it slides and eats. A shooting agent pushes half as much and is
    slower. An agent that runs into food loses a third of its speed to it. The food comes back
    elsewhere, at rest, after a fall of 0.7 s.

    Source: `ExpertFood.demo`, recorded in Unity.
    """

    behavior_name = "GridFoodCollector?team=0"
    behavior_spec = BehaviorSpec([GRID.spec("GridSensor")], ACTIONS)

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._agent_tags = np.zeros(self.frozen.shape, np.int8)
        self._pool = Pool()
        self._shared_grid = native_planar.Grid(
            bodies=self.bodies.shared,
            discs=native_planar.SeenDiscs(
                count=len(GOOD),
                center=self.food,
                hidden=self.falling,
                tags=np.where(GOOD, GOOD_TAG, BAD_TAG).astype(np.int8),
                radius=FOOD_RADIUS_M,
                height_m=FOOD_RADIUS_M,
            ),
            n_cells=GRID.shape[1],
            n_tags=GRID.shape[0],
            wall_tag=WALL_TAG,
            cell_m=GRID.cell_m,
            half_height_m=GRID_HALF_HEIGHT_M,
            walls_m=WALLS_M,
            wall_thickness_m=WALL_THICKNESS_M,
            agent_tags=self._agent_tags,
        )

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        if (functions := self.bodies.functions) is not None:
            self._agent_tags[:] = np.where(self.frozen > 0, FROZEN_TAG, AGENT_TAG)
            which = indices(agents, self.n_agents)
            n = self.n_agents if which is None else len(which)
            seen = self._pool.empty((n, *GRID.shape), np.float32)
            functions.planar_grid(self._shared_grid, address(which), n, address(seen))
            return [seen]
        area, member = self._area[agents], self._member[agents]
        marks = [
            self._food_seen(area, member),
            self._agents_seen(area, member),
            self._walls_seen(area, member),
        ]
        return [GRID.observe(len(area), marks)]

    def _food_seen(self, area: Indices, member: Indices) -> Marks:
        bodies = self.bodies
        apart = self.food[:, :, area] - bodies.position[:, None, member, area]  # (2, foods, n)
        heading = bodies.heading[:, None, member, area]
        place = in_frame(heading, apart)
        below = np.abs(self.floors.heights(area, member) - FOOD_RADIUS_M)
        radius = radius_at_edge(FOOD_RADIUS_M, below - GRID_HALF_HEIGHT_M)
        right, ahead = np.abs(place) < GRID.reach_m + radius
        is_near = right & ahead & (self.falling[:, area] == 0) & (radius > 0.0)
        food, agent = is_near.nonzero()
        place = place[:, food, agent]
        distance = np.sqrt(dot(place, place) + below[agent] ** 2) - FOOD_RADIUS_M
        tag = np.where(GOOD[food], GOOD_TAG, BAD_TAG)
        return GRID.discs(agent, place, radius[agent], tag, distance)

    def _agents_seen(self, area: Indices, member: Indices) -> Marks:
        bodies = self.bodies
        position, own_heading = (
            bodies.position[:, None, member, area],
            bodies.heading[:, None, member, area],
        )
        place = in_frame(own_heading, bodies.position[:, :, area] - position)  # (2, agents, n)
        half = bodies.half[X][:, area]
        right, ahead = np.abs(place) < GRID.reach_m + np.sqrt(2.0) * half
        is_near = right & ahead & (np.arange(self.n_members)[:, None] != member)
        other, agent = is_near.nonzero()
        other_area = area[agent]
        heading = bodies.heading[:, other, other_area]
        half = half[other, agent]
        distance = gap_to_point(
            bodies.position[:, other, other_area], heading, half, position[:, 0, agent]
        )
        tag = np.where(self.frozen[other, other_area] > 0, FROZEN_TAG, AGENT_TAG)
        seen_heading = in_frame(own_heading[:, 0, agent], heading)
        return GRID.squares(agent, place[:, other, agent], seen_heading, half, tag, distance)

    def _walls_seen(self, area: Indices, member: Indices) -> Marks:
        position = self.bodies.position[:, member, area]
        heading = self.bodies.heading[:, member, area]
        distance = WALLS_M - SIDES.T @ position  # (4, n)
        normal = in_frame(heading[:, None], SIDES[:, :, None])  # (2, 4, n)
        return GRID.walls(normal, distance, WALL_THICKNESS_M, WALL_TAG)
