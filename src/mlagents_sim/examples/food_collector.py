"""Food Collector: gather good food, leave bad food, freeze the others."""

from collections.abc import Mapping
from itertools import combinations, permutations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_sim import top_view
from mlagents_sim.planar import (
    Array,
    Bodies,
    Body,
    Mask,
    X,
    dot,
    gap_to_point,
    in_frame,
    number,
    way_to_point,
)
from mlagents_sim.rays import Rays, enter_boxes, radius_at_edge
from mlagents_sim.sensors import GridSensor, Marks, RaySensor
from mlagents_sim.top_view import TopView
from mlagents_sim.world import Agents, World

FOODS = 50
GOOD = np.arange(FOODS) < FOODS // 2
"""Which of the pieces of food in an area are good."""

GOOD_TAG, AGENT_TAG, WALL_TAG, BAD_TAG, FROZEN_TAG = range(5)
GRID = GridSensor(n_cells=40, cell_m=1.0, n_tags=5)
GRID_HALF_HEIGHT_M = 0.01
ACTIONS = ActionSpec.create_hybrid(3, (2,))
RAYS = RaySensor(per_side=3, max_degrees=70.0, length=50.0, n_tags=5)
RAY_RADIUS_M = 0.5

WALLS_M, WALL_THICKNESS_M = 50.0, 1.0
START_M = 45.0
AGENT_HALF_M = 0.5
AGENT_SCALES = 0.5, 5.0
"""Least and most that an agent's size is multiplied by."""
AGENT_DRAG = 0.5
GRAVITY_M_S2 = 9.81
START_HEIGHT_M = 1.5
"""Height of an agent's centre above the floor when its episode begins."""
FOOD_RADIUS_M = 0.75
TOUCH_M = 0.02
BUMP = 5.0 / (10.0 + 5.0)
"""Part of the speed towards food that an agent loses to it, by their masses."""
FALL_STEPS = 34
"""Steps that a piece of food takes to drop from 3 m, of which nobody sees or eats it."""

TURN_RAD = np.radians(6.0)
PUSH_M_S = np.array([2.0, 1.0])
"""Of who does not shoot and of who does."""
SPEED_BY_SHOOTING = np.array([1.0, 0.75])
"""Part of their speed that they keep in every step."""
FAST_M2_S2 = number(5.0**2)
SPEED_BY_FAST = np.array([1.0, 0.95])
"""An agent whose squared speed, that of its fall included, is above the first keeps less."""
LASER_M, LASER_RADIUS_M = 25.0, 2.0
LASER, ZERO, DIAGONAL = number(LASER_M), number(0.0), number(np.sqrt(2.0))
FROZEN_STEPS = 201
"""Steps from the one in which an agent is hit to that in which it pushes again, after 4 s."""

STRAIGHT_AHEAD = np.array([[0.0], [1.0]])
SIDES = np.array([[-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0]])
"""(2, 4) directions of the walls."""


class FoodCollector(World):
    """What these worlds share: everything but what agents observe.

    Attributes:
        bodies: The agents of every area, M of them.
        food: (2, 50, areas) places of all food, good before bad.
        falling: (50, areas) steps until it has come down.
        frozen: (M, areas) steps until an agent thaws.
        is_shooting: (M, areas) whether the last step was spent shooting.
    """

    agents_per_area = 20
    n_members: ClassVar[int] = 5
    """Agents on each of the floors of a scene."""
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"agent_scale": 1.0, "laser_length": 1.0}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n_areas = self.n_agents // self.n_members
        agent = Body((AGENT_HALF_M, AGENT_HALF_M), mass=10.0, drag=AGENT_DRAG)
        self.bodies = Bodies(
            n_areas,
            [agent] * self.n_members,
            low=(-WALLS_M, -WALLS_M),
            high=(WALLS_M, WALLS_M),
            pairs=list(combinations(range(self.n_members), 2)),
        )
        self.food = np.zeros((2, FOODS, n_areas))
        self.falling = np.zeros((FOODS, n_areas), np.intp)
        self.frozen = np.zeros((self.n_members, n_areas), np.intp)
        self.is_shooting = np.zeros((self.n_members, n_areas), np.bool_)
        # Agents are numbered area by area; (M, areas) arrays have them in columns.
        self._area, self._member = np.divmod(np.arange(self.n_agents), self.n_members)
        # Of each that may be hit and each that may shoot: where they are in (2, M, areas).
        other, shooter = np.transpose(list(permutations(range(self.n_members), 2)))
        by_axis = np.arange(2)[:, None, None] * self.n_members
        self._other, self._shooter = (
            ((who[:, None] + by_axis) * n_areas + np.arange(n_areas)).reshape(2, -1)
            for who in (other, shooter)
        )
        # Of each agent and each piece of food in its area: where the agent is in (M, areas).
        floors = np.arange(FOODS * n_areas) % n_areas
        self._eater = np.arange(self.n_members)[:, None] * n_areas + floors
        self._touch_m = np.zeros(
            (self.n_members, n_areas)
        )  # distance from an edge to food's centre
        self._laser_m = np.zeros((self.n_members, n_areas))  # as drawn
        self._right = np.zeros((self.n_members, n_areas))  # parts of a push
        self._ahead = np.zeros((self.n_members, n_areas))
        self._turn_rad = np.zeros((self.n_members, n_areas))
        self._shoots = np.zeros((self.n_members, n_areas), np.bool_)

    # The task.

    def reset(self) -> None:
        """Begin all episodes anew, with new food."""
        self._require_open()
        self.food = self.rng.uniform(-START_M, START_M, self.food.shape)
        self.falling[:] = 0
        super().reset()

    def begin(self, agents: Agents) -> None:
        """Put the agents anywhere."""
        area, member = self._area[agents], self._member[agents]
        bodies = self.bodies
        n = len(area)
        bodies.position[:, member, area] = self.rng.uniform(-START_M, START_M, (2, n))
        bodies.velocity[:, member, area] = 0.0
        yaw = np.radians(self.rng.integers(0, 360, n))
        bodies.heading[:, member, area] = np.sin(yaw), np.cos(yaw)
        half = AGENT_HALF_M * np.clip(self.parameters.draw("agent_scale", n), *AGENT_SCALES)
        bodies.half[:, member, area] = half
        bodies.put_down((member, area), gravity=GRAVITY_M_S2, above_m=START_HEIGHT_M - half)
        self._find_touch()
        self._laser_m[member, area] = LASER_M * self.parameters.draw("laser_length", n)
        self.frozen[member, area] = 0
        self.is_shooting[member, area] = False

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Note what to do in each of the coming steps."""
        clipped = np.minimum(np.maximum(action.continuous.T, -1.0), 1.0)
        ahead, right, left_turn = clipped.astype(np.float64)
        self._command(agents, ahead, right, left_turn, action.discrete[:, 0])

    def _command(
        self, agents: Agents, ahead: Array, right: Array, left_turn: Array, shoot: NDArray[np.int32]
    ) -> None:
        """Note how these agents shall push and turn, in parts of the most, and whether to shoot."""
        area, member = self._area[agents], self._member[agents]
        self._right[member, area] = right
        self._ahead[member, area] = ahead
        self._turn_rad[member, area] = -TURN_RAD * left_turn
        self._shoots[member, area] = shoot == 1

    def act(self) -> None:
        """Push where they face, then turn and shoot, except who is frozen."""
        bodies = self.bodies
        self.frozen = np.maximum(self.frozen - 1, 0)
        is_free = self.frozen == 0
        self.is_shooting = self._shoots & is_free
        # Components are taken one by one, so that arrays are of one shape.
        (v_x, v_z), (x, z) = bodies.velocity, bodies.heading
        kept = SPEED_BY_SHOOTING.take(self.is_shooting)
        v_x *= kept
        v_z *= kept
        square = v_x * v_x + v_z * v_z
        if bodies.is_falling:
            bodies.climb *= kept
            square += bodies.climb * bodies.climb
        kept = SPEED_BY_FAST.take(square > FAST_M2_S2)
        v_x *= kept
        v_z *= kept
        if bodies.is_falling:
            bodies.climb *= kept
        strength = PUSH_M_S.take(self.is_shooting) * is_free
        right, ahead = self._right * strength, self._ahead * strength
        v_x += x * ahead + z * right
        v_z += z * ahead - x * right
        angle = self._turn_rad * is_free
        sine, cosine = np.sin(angle), np.cos(angle)
        x[:], z[:] = x * cosine + z * sine, z * cosine - x * sine
        if np.count_nonzero(self.is_shooting):
            self._shoot()

    def physics(self) -> None:
        """Let the agents move and eat."""
        bodies = self.bodies
        was_falling = bodies.is_falling
        bodies.move()
        if was_falling:
            self._find_touch()
        self.falling = np.maximum(self.falling - 1, 0)
        # (agents, foods and areas): areas may be few, and NumPy is slow along a short last axis.
        is_near: Mask = self.falling.reshape(-1) == 0
        for foods, place, reach in zip(self.food, bodies.position, bodies.reach, strict=True):
            apart = np.abs(foods.reshape(-1) - place.reshape(-1)[self._eater])
            is_near = is_near & (apart < (reach + self._touch_m).reshape(-1)[self._eater])
        if not np.count_nonzero(is_near):
            return
        member, food = is_near.nonzero()
        food, area = np.divmod(food, bodies.position.shape[2])
        way = way_to_point(
            bodies.position[:, member, area],
            bodies.heading[:, member, area],
            bodies.half[:, member, area],
            self.food[:, food, area],
        )
        gap = np.hypot(*way)
        is_eaten = gap < self._touch_m[member, area]
        member, food, area = member[is_eaten], food[is_eaten], area[is_eaten]
        np.add.at(self.reward, area * self.n_members + member, np.where(GOOD[food], 1.0, -1.0))
        ahead = way[:, is_eaten] / np.maximum(gap[is_eaten], 1e-9)
        lost = BUMP * np.maximum(dot(bodies.velocity[:, member, area], ahead), 0.0) * ahead
        for velocity, of_it in zip(bodies.velocity, lost, strict=True):
            np.subtract.at(velocity, (member, area), of_it)
        self.food[:, food, area] = self.rng.uniform(-START_M, START_M, (2, len(food)))
        self.falling[food, area] = FALL_STEPS

    def _find_touch(self) -> None:
        """Update the distance at which each agent touches food, by their heights."""
        low, high = self.bodies.above_m, self.bodies.above_m + 2.0 * self.bodies.half[X]
        beyond = np.maximum(low - FOOD_RADIUS_M, FOOD_RADIUS_M - high)
        self._touch_m = TOUCH_M + radius_at_edge(FOOD_RADIUS_M, beyond)

    def _heights(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Array:
        """Return the heights of agents' centres above the floor, (n,)."""
        heights: Array = self.bodies.half[X, member, area] + self.bodies.above_m[member, area]
        return heights

    def _shoot(self) -> None:
        """Freeze whoever is hit first by a laser, unless frozen already."""
        bodies = self.bodies
        # (agents that may be hit and agents that shoot, areas), all pairs in a row
        place = bodies.position.reshape(-1)
        heading = bodies.heading.reshape(-1)[self._shooter]
        right, ahead = in_frame(heading, place[self._other] - place[self._shooter])
        reach = bodies.half.reshape(-1)[self._other[X]] * DIAGONAL + LASER_RADIUS_M
        is_near = (np.abs(right) < reach) & (ahead > ZERO) & (ahead < reach + LASER)
        is_near &= self.is_shooting.reshape(-1)[self._shooter[X]]
        (near,) = is_near.nonzero()
        if near.size == 0:
            return
        n_areas = self.is_shooting.shape[1]
        other, area = np.divmod(self._other[X, near], n_areas)
        member = self._shooter[X, near] // n_areas
        # One sphere for each agent that a shot may hit, seen from that agent.
        position, heading = bodies.position[:, member, area], bodies.heading[:, member, area]
        other_heading = bodies.heading[:, other, area]
        to_agent = enter_boxes(
            in_frame(other_heading, position - bodies.position[:, other, area]),
            in_frame(other_heading, heading),
            bodies.half[:, other, area],
            LASER_RADIUS_M,
        )
        nearest = np.full(self.is_shooting.shape, LASER_M)
        np.minimum.at(nearest, (member, area), to_agent)
        is_hit = (to_agent == nearest[member, area]) & (self.frozen[other, area] == 0)
        if not np.count_nonzero(is_hit):
            return
        other, member, area = other[is_hit], member[is_hit], area[is_hit]
        # Walls and food stop a shot.
        rays = Rays.cast(position[:, is_hit], heading[:, is_hit], STRAIGHT_AHEAD)
        (to_wall,) = rays.to_room((-WALLS_M, -WALLS_M), (WALLS_M, WALLS_M), LASER_RADIUS_M)
        above = np.abs(self._heights(area, member) - FOOD_RADIUS_M)
        together = radius_at_edge(LASER_RADIUS_M + FOOD_RADIUS_M, above)
        to_food = rays.to_discs(self.food[:, :, area], together)[:, 0]
        to_food[self.falling[:, area] > 0] = np.inf
        is_frozen = nearest[member, area] <= np.minimum(to_wall, to_food.min(axis=0))
        self.frozen[other[is_frozen], area[is_frozen]] = FROZEN_STEPS

    def render(self) -> NDArray[np.uint8]:
        """Draw every area from above in a tile of its own, together about (720, 960, 3).

        Good food is green and bad food red; frozen agents are light, lasers orange.
        """
        bodies = self.bodies
        edge = WALLS_M + WALL_THICKNESS_M
        view = TopView(
            bodies.position.shape[2], (-edge, -edge), (edge, edge), background=top_view.WALL
        )
        view.box((0.0, 0.0), (WALLS_M, WALLS_M), top_view.FLOOR)
        shown = np.where(self.falling == 0, self.food, np.nan)
        for food in range(FOODS):
            view.disc(shown[:, food], FOOD_RADIUS_M, top_view.GREEN if GOOD[food] else top_view.RED)
        for agent in range(self.n_members):
            position, heading = bodies.position[:, agent], bodies.heading[:, agent]
            half = bodies.half[X, agent]
            length = np.where(self.is_shooting[agent], self._laser_m[agent], 0.0) / 2.0
            width = np.full_like(length, 0.2)
            view.box(position + heading * length, [width, length], top_view.BLOCK, heading)
            is_frozen = self.frozen[agent] > 0
            view.agent(np.where(is_frozen, np.nan, position), heading, half)
            view.agent(np.where(is_frozen, position, np.nan), heading, half, top_view.GREY)
        return view.picture()


class GridFoodCollector(FoodCollector):
    """Agents that share areas with food, good and bad, and with each other.

    Observation: a grid of 40 x 40 cells of 1 m around the agent, which turns with it: (5, 40, 40),
        1 for the nearest thing in a cell, by channel: good food, agent, wall, bad food, frozen
        agent. Rows run from right to left, columns from back to ahead.
    Actions: 3 continuous, clipped to -1..1: push ahead, push to the right, by 2 m/s each step; turn
        left, by 6 degrees. One branch of 2: nothing, shoot.
    Decisions: every 5 steps of 0.02 s.
    Reward: +1 for good food touched, -1 for bad.
    Ends: never.
    Interrupts: after 5000 steps, that is 1000 decisions. The food stays as it is.
    Parameters: `agent_scale` 1, size of the agents, at least 0.5 and at most 5; `laser_length` 1
        (0.2 to 7), by which the laser is drawn longer, but reaches no farther.
    Start: anywhere but near the walls, looking anywhere, to a whole degree, 1.5 m above the floor.
        An agent falls for half a second, and slides on the floor from then on.
    A good policy reaches 10 and more.

    A laser of 25 m freezes the agent that it hits first, for 4 s: a frozen agent neither pushes
    nor turns nor shoots, but slides and eats. Who shoots pushes half as much and is slower. Food
    costs who runs into it a third of that speed, and comes back somewhere else, at rest, after a
    fall of 0.7 s.

    Source: example environments, section 2, task 10, and `ExpertFood.demo`, recorded in Unity.
    """

    behavior_name = "GridFoodCollector?team=0"
    behavior_spec = BehaviorSpec([GRID.spec("GridSensor")], ACTIONS)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return what the class describes."""
        area, member = self._area[agents], self._member[agents]
        marks = [
            self._food_seen(area, member),
            self._agents_seen(area, member),
            self._walls_seen(area, member),
        ]
        return [GRID.observe(len(area), marks)]

    def _food_seen(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Marks:
        bodies = self.bodies
        apart = self.food[:, :, area] - bodies.position[:, None, member, area]  # (2, foods, n)
        heading = bodies.heading[:, None, member, area]
        place = in_frame(heading, apart)
        below = np.abs(self._heights(area, member) - FOOD_RADIUS_M)
        radius = radius_at_edge(FOOD_RADIUS_M, below - GRID_HALF_HEIGHT_M)
        right, ahead = np.abs(place) < GRID.reach_m + radius
        is_near = right & ahead & (self.falling[:, area] == 0) & (radius > 0.0)
        food, agent = is_near.nonzero()
        place = place[:, food, agent]
        distance = np.sqrt(dot(place, place) + below[agent] ** 2) - FOOD_RADIUS_M
        tag = np.where(GOOD[food], GOOD_TAG, BAD_TAG)
        return GRID.discs(agent, place, radius[agent], tag, distance)

    def _agents_seen(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Marks:
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

    def _walls_seen(self, area: NDArray[np.intp], member: NDArray[np.intp]) -> Marks:
        position = self.bodies.position[:, member, area]
        heading = self.bodies.heading[:, member, area]
        distance = WALLS_M - SIDES.T @ position  # (4, n)
        normal = in_frame(heading[:, None], SIDES[:, :, None])  # (2, 4, n)
        return GRID.walls(normal, distance, WALL_THICKNESS_M, WALL_TAG)


class RayFoodCollector(FoodCollector):
    """Agents as those of `GridFoodCollector`, who see by rays and choose among few actions.

    Observations: two sensors.
        1. 49 numbers: 7 rays, straight ahead and up to 70 degrees to the right and left, by turns.
           A ray is 50 m long, times `agent_scale`, and has 7 numbers: good food, agent, wall, bad
           food, frozen agent, nothing, distance by length.
        2. 4 numbers: velocity to the right and ahead in m/s; 1 if frozen, 1 if shooting, else 0.
    Actions: four branches: nothing, forward, back; nothing, right, left, which takes the place of
        forward and back; nothing, turn left, turn right; nothing, shoot.
    All else is as in `GridFoodCollector`.

    Source: example environments, section 2, task 10. Unity's scenes have it no more.
    """

    behavior_name = "FoodCollector?team=0"
    behavior_spec = BehaviorSpec(
        [RAYS.spec("RayPerceptionSensor"), ObservationSpec.vector(4, "VectorSensor_size4")],
        ActionSpec.create_discrete((3, 3, 3, 2)),
    )

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return what the class describes."""
        area, member = self._area[agents], self._member[agents]
        bodies = self.bodies
        heading = bodies.heading[:, member, area]
        # Rays are as large as the agent: by its measure, everything else is smaller.
        scale = bodies.half[X, member, area] / AGENT_HALF_M
        position = bodies.position[:, member, area] / scale
        rays = Rays.cast(position, heading, RAYS.directions)
        above = np.abs(self._heights(area, member) - FOOD_RADIUS_M) / scale
        together = radius_at_edge(RAY_RADIUS_M + FOOD_RADIUS_M / scale, above)
        to_food = rays.to_discs(self.food[:, :, area] / scale, together)  # (foods, rays, n)
        food, agent = self.falling[:, area].nonzero()
        to_food[food, :, agent] = np.inf
        walls = np.broadcast_to(WALLS_M / scale, (2, len(scale)))
        travels = [
            rays.to_room(-walls, walls, RAY_RADIUS_M),
            to_food[GOOD].min(axis=0),
            to_food[~GOOD].min(axis=0),
        ]
        # All agents of the area, as seen along the same rays.
        n = len(area)
        seen = rays.seen_from(bodies.position[:, :, area] / scale, bodies.heading[:, :, area])
        halves = (bodies.half[:, :, area] / scale).reshape(2, 1, -1)
        (to_agents,) = seen.to_boxes(np.zeros((2, 1, 1)), halves, RAY_RADIUS_M)
        to_agents = to_agents.reshape(-1, self.n_members, n)
        to_agents[:, member, np.arange(n)] = np.inf  # itself
        is_frozen = self.frozen[:, area] > 0
        travels += [
            np.where(is_so, to_agents, np.inf).min(axis=1) for is_so in (~is_frozen, is_frozen)
        ]
        tags = [WALL_TAG, GOOD_TAG, BAD_TAG, AGENT_TAG, FROZEN_TAG]
        own = np.empty((len(area), 4), np.float32)
        own[:, :2] = in_frame(heading, bodies.velocity[:, member, area]).T
        own[:, 2] = self.frozen[member, area] > 0
        own[:, 3] = self.is_shooting[member, area]
        return [RAYS.observe(travels, tags), own]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Note what to do in each of the coming steps."""
        ahead, right, turn, shoot = action.discrete.T
        ways = np.array([0.0, 1.0, -1.0])
        self._command(
            agents, np.where(right == 0, ways[ahead], 0.0), ways[right], ways[turn], shoot
        )
