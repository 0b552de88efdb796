"""Floors of Food Collector: agents, food and lasers in many areas at once.

Arrays and letters are those of `planar`; M is the number of agents of an area.
"""

from functools import cached_property
from itertools import combinations, permutations

import numpy as np
from numpy.typing import ArrayLike

from mlagents_envs.scene import Scene
from mlagents_sim import floor_plan, native_planar
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.native_planar import FixedArrays
from mlagents_sim.planar import Bodies, Body
from mlagents_sim.plane import Array, Indices, Mask, X, dot, in_frame, way_to_point
from mlagents_sim.rays import Rays, enter_boxes, radius_at_edge
from mlagents_sim.world import World

FOODS = 50
GOOD = np.arange(FOODS) < FOODS // 2
"""Which of the pieces of food in an area are good."""

WALLS_M, WALL_THICKNESS_M = 50.0, 1.0
START_M = 45.0
AGENT_HALF_M = 0.5
AGENT_SCALES = 0.5, 5.0
"""Limits of the factor by which an agent's size is multiplied."""
AGENT_KG, FOOD_KG = 10.0, 5.0
AGENT_DRAG = 0.5
GRAVITY_M_S2 = 9.81
START_HEIGHT_M = 1.5
"""Height of an agent's center above the floor when its episode begins."""
FOOD_RADIUS_M = 0.75
TOUCH_M = 0.02
BUMP = FOOD_KG / (AGENT_KG + FOOD_KG)
"""Fraction of the speed toward food that an agent loses to it."""
FALL_STEPS = 34
"""Steps that food takes to drop from 3 m. Agents cannot observe or eat falling food."""

TURN_RAD = np.radians(6.0)
PUSH_M_S = np.array([2.0, 1.0])
"""Full push in a step, without and with shooting."""
SPEED_BY_SHOOTING = np.array([1.0, 0.75])
"""Fraction of the speed that remains after a step, without and with shooting."""
FAST_M2_S2 = 5.0**2
"""Squared speed, falls included, above which an agent loses speed."""
SPEED_BY_FAST = np.array([1.0, 0.95])
"""Fraction of the speed that remains after a step, below and above `FAST_M2_S2`."""
LASER_M, LASER_RADIUS_M = 25.0, 2.0
FROZEN_STEPS = 201
"""Steps from the hit to the step in which an agent pushes again, after 4 s."""

STRAIGHT_AHEAD = np.array([[0.0], [1.0]])
_NONE = np.zeros(0, np.intp)


Eaten = tuple[Indices, Indices, Indices]
"""(n,) areas, (n,) rows and (n,) pieces: which agents ate which food."""


class Floors(FixedArrays):
    """Agents that push, turn, shoot and eat on the floors of all areas.

    Args:
        n_areas: Number of areas.
        n_members: Number of agents of an area, M.

    Attributes:
        bodies: Agents of every area, M of them.
        food: (2, 50, areas) places of all food, good before bad.
        falling: (50, areas) steps until a piece has come down.
        frozen: (M, areas) steps until an agent thaws.
        is_shooting: (M, areas) whether the last step was spent shooting.
        touch_m: (M, areas) distance from an agent's edge to a touched piece's center.
    """

    def __init__(self, n_areas: int, n_members: int) -> None:
        shape = (n_members, n_areas)
        self.bodies = Bodies(
            n_areas,
            [Body((AGENT_HALF_M, AGENT_HALF_M), mass=AGENT_KG, drag=AGENT_DRAG)] * n_members,
            low=(-WALLS_M, -WALLS_M),
            high=(WALLS_M, WALLS_M),
            pairs=list(combinations(range(n_members), 2)),
        )
        self.food = np.zeros((2, FOODS, n_areas))
        self.falling = np.zeros((FOODS, n_areas), np.int64)
        self.frozen = np.zeros(shape, np.int64)
        self.is_shooting = np.zeros(shape, np.bool_)
        self.touch_m = np.zeros(shape)
        # Of each agent that may be hit and each that may shoot: its place in (2, M, areas).
        other, shooter = np.transpose(list(permutations(range(n_members), 2)))
        by_axis = np.arange(2)[:, None, None] * n_members
        self._other, self._shooter = (
            ((which[:, None] + by_axis) * n_areas + np.arange(n_areas)).reshape(2, -1)
            for which in (other, shooter)
        )
        # Of each agent and each piece of food in its area: the agent's place in (M, areas).
        floors = np.arange(FOODS * n_areas) % n_areas
        self._eater = np.arange(n_members)[:, None] * n_areas + floors
        self._laser_m = np.zeros(shape)  # as drawn
        self._right, self._ahead = np.zeros(shape), np.zeros(shape)  # parts of a full push
        self._sine, self._cosine = np.zeros(shape), np.ones(shape)  # of the turn in a step
        self._shoots = np.zeros(shape, np.bool_)

    @cached_property
    def shared(self) -> native_planar.Forage:
        """The floors, as the native library knows them."""
        n_pairs = len(self.frozen) * self.falling.size  # of agents and food
        self._eaten = np.zeros((n_pairs, 3), np.int64)
        return native_planar.Forage(
            bodies=self.bodies.shared,
            n_foods=FOODS,
            frozen_steps=FROZEN_STEPS,
            walls_m=WALLS_M,
            food_radius_m=FOOD_RADIUS_M,
            touch_m=TOUCH_M,
            bump=BUMP,
            laser_m=LASER_M,
            laser_radius_m=LASER_RADIUS_M,
            push_m_s=PUSH_M_S[0],
            push_shooting_m_s=PUSH_M_S[1],
            kept_shooting=SPEED_BY_SHOOTING[1],
            fast_m2_s2=FAST_M2_S2,
            kept_fast=SPEED_BY_FAST[1],
            food=self.food,
            touch=self.touch_m,
            right=self._right,
            ahead=self._ahead,
            sine=self._sine,
            cosine=self._cosine,
            lost=np.zeros((n_pairs, 2)),
            falling=self.falling,
            frozen=self.frozen,
            eaten=self._eaten,
            is_shooting=self.is_shooting,
            shoots=self._shoots,
        )

    def _eaten_now(self) -> Eaten:
        """Return the food that was eaten, as the native library found it."""
        area, member, food = self._eaten[: self.shared.n_eaten].T.copy()
        return area, member, food

    def scatter_food(self, rng: np.random.Generator) -> None:
        """Put all food at random places."""
        self.food[:] = rng.uniform(-START_M, START_M, self.food.shape)
        self.falling[:] = 0

    def put_down(
        self,
        area: Indices,
        member: Indices,
        *,
        scale: Array,
        laser_length: ArrayLike,
        rng: np.random.Generator,
    ) -> None:
        """Drop n agents at random places, at rest.

        Args:
            area: (n,) areas of the agents.
            member: (n,) rows of the agents.
            scale: (n,) factors of their sizes.
            laser_length: Factor of the drawn lasers' lengths.
            rng: Source of places and headings.
        """
        bodies, at = self.bodies, (member, area)
        n = len(area)
        bodies.position[:, member, area] = rng.uniform(-START_M, START_M, (2, n))
        bodies.velocity[:, member, area] = 0.0
        yaw = np.radians(rng.integers(0, 360, n))
        bodies.heading[:, member, area] = np.sin(yaw), np.cos(yaw)
        half = AGENT_HALF_M * np.clip(scale, *AGENT_SCALES)
        bodies.half[:, member, area] = half
        bodies.put_down(at, gravity=GRAVITY_M_S2, above_m=START_HEIGHT_M - half)
        self.find_touch()
        self._laser_m[at] = np.multiply(LASER_M, laser_length)
        self.frozen[at] = 0
        self.is_shooting[at] = False

    def command(
        self,
        area: Indices,
        member: Indices,
        *,
        ahead: Array,
        right: Array,
        left_turn: Array,
        shoots: Mask,
    ) -> None:
        """Set the actions of n agents in each of the coming steps.

        Args:
            area: (n,) areas of the agents.
            member: (n,) rows of the agents.
            ahead: (n,) pushes ahead, as fractions of a full push.
            right: (n,) pushes to the right, as fractions of a full push.
            left_turn: (n,) turns to the left, as fractions of a full turn of 6 degrees.
            shoots: (n,) whether they shoot.
        """
        self._right[member, area] = right
        self._ahead[member, area] = ahead
        turn_rad = -TURN_RAD * left_turn
        self._sine[member, area], self._cosine[member, area] = np.sin(turn_rad), np.cos(turn_rad)
        self._shoots[member, area] = shoots

    def push_and_turn(self) -> None:
        """Push agents where they face, then turn them, unless they are frozen."""
        bodies = self.bodies
        self.frozen[:] = np.maximum(self.frozen - 1, 0)
        is_free = self.frozen == 0
        np.logical_and(self._shoots, is_free, out=self.is_shooting)
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
        sine = np.where(is_free, self._sine, 0.0)
        cosine = np.where(is_free, self._cosine, 1.0)
        x[:], z[:] = x * cosine + z * sine, z * cosine - x * sine

    def run(self, most_steps: int) -> tuple[int, Eaten]:
        """Run steps up to one in which food is eaten.

        Args:
            most_steps: Largest number of steps.

        Returns:
            The number of steps, and the food that was eaten in the last step.
        """
        eaten: Eaten = _NONE, _NONE, _NONE
        if (functions := self.bodies.functions) is not None:
            n_steps = self.bodies.call(functions.forage_run, self.shared, most_steps)
            return n_steps, self._eaten_now()
        for step in range(most_steps):
            self.push_and_turn()
            self.shoot()
            eaten = self.move()
            if eaten[0].size:
                return step + 1, eaten
        return most_steps, eaten

    def act(self) -> None:
        """Push, turn and shoot: the first part of a step."""
        if (functions := self.bodies.functions) is not None:
            self.bodies.call(functions.forage_act, self.shared)
            return
        self.push_and_turn()
        self.shoot()

    def move(self) -> Eaten:
        """Move the agents, which eat the food that they touch: the second part of a step."""
        bodies = self.bodies
        if bodies.functions is not None:
            bodies.call(bodies.functions.forage_move, self.shared)
            return self._eaten_now()
        was_falling = bodies.is_falling
        bodies.move()
        if was_falling:
            self.find_touch()
        self.falling = np.maximum(self.falling - 1, 0)
        # (agents, foods and areas): areas may be few, and NumPy is slow along a short last axis.
        is_near: Mask = self.falling.reshape(-1) == 0
        for foods, place, reach in zip(self.food, bodies.position, bodies.reach, strict=True):
            apart = np.abs(foods.reshape(-1) - place.reshape(-1)[self._eater])
            is_near = is_near & (apart < (reach + self.touch_m).reshape(-1)[self._eater])
        if not np.count_nonzero(is_near):
            return _NONE, _NONE, _NONE
        member, food = is_near.nonzero()
        food, area = np.divmod(food, bodies.position.shape[2])
        way = way_to_point(
            bodies.position[:, member, area],
            bodies.heading[:, member, area],
            bodies.half[:, member, area],
            self.food[:, food, area],
        )
        gap = np.sqrt(dot(way, way))
        is_eaten = gap < self.touch_m[member, area]
        member, food, area = member[is_eaten], food[is_eaten], area[is_eaten]
        ahead = way[:, is_eaten] / np.maximum(gap[is_eaten], 1e-9)
        lost = BUMP * np.maximum(dot(bodies.velocity[:, member, area], ahead), 0.0) * ahead
        for velocity, of_axis in zip(bodies.velocity, lost, strict=True):
            np.subtract.at(velocity, (member, area), of_axis)
        return area, member, food

    def replace(self, food: Indices, area: Indices, rng: np.random.Generator) -> None:
        """Let n eaten pieces come back elsewhere.

        Args:
            food: (n,) rows of the pieces.
            area: (n,) areas of the pieces.
            rng: Source of the new places.
        """
        self.food[:, food, area] = rng.uniform(-START_M, START_M, (2, len(food)))
        self.falling[food, area] = FALL_STEPS

    def find_touch(self) -> None:
        """Update the distance at which each agent touches food, by their heights."""
        low, high = self.bodies.above_m, self.bodies.above_m + 2.0 * self.bodies.half[X]
        beyond = np.maximum(low - FOOD_RADIUS_M, FOOD_RADIUS_M - high)
        self.touch_m = TOUCH_M + radius_at_edge(FOOD_RADIUS_M, beyond)

    def heights(self, area: Indices, member: Indices) -> Array:
        """Return the heights of agents' centers above the floor, (n,)."""
        heights: Array = self.bodies.half[X, member, area] + self.bodies.above_m[member, area]
        return heights

    def shoot(self) -> None:
        """Freeze the agent that each laser hits first, unless it is frozen already."""
        if not np.count_nonzero(self.is_shooting):
            return
        bodies = self.bodies
        # (agents that may be hit and agents that shoot, areas), all pairs in a row
        place = bodies.position.reshape(-1)
        heading = bodies.heading.reshape(-1)[self._shooter]
        right, ahead = in_frame(heading, place[self._other] - place[self._shooter])
        reach = bodies.half.reshape(-1)[self._other[X]] * np.sqrt(2.0) + LASER_RADIUS_M
        is_near = (np.abs(right) < reach) & (ahead > 0.0) & (ahead < reach + LASER_M)
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
        above = np.abs(self.heights(area, member) - FOOD_RADIUS_M)
        together = radius_at_edge(LASER_RADIUS_M + FOOD_RADIUS_M, above)
        to_food = rays.to_discs(self.food[:, :, area], together)[:, 0]
        to_food[self.falling[:, area] > 0] = np.inf
        is_frozen = nearest[member, area] <= np.minimum(to_wall, to_food.min(axis=0))
        self.frozen[other[is_frozen], area[is_frozen]] = FROZEN_STEPS

    def shown(self, world: World) -> Scene:
        """Return what all floors show.

        Good food is green and bad food red; frozen agents are light, lasers orange.
        """
        bodies = self.bodies
        n_members, n_areas = self.frozen.shape
        edge = (WALLS_M, WALLS_M)
        plan = FloorPlan(world, n_areas, np.negative(edge).tolist(), edge, walls_m=2.0, top_m=4.0)
        plan.ball(
            "food",
            floor_plan.hidden(self.food, self.falling == 0),
            FOOD_RADIUS_M,
            color=np.where(GOOD[:, None, None], floor_plan.GREEN, floor_plan.RED),
        )
        half, heading = bodies.half[X], bodies.heading
        length = self._laser_m / 2.0
        plan.box(
            "laser",
            floor_plan.hidden(bodies.position + heading * length, self.is_shooting),
            np.array([np.full_like(length, 0.2), length]),
            height_m=0.4,
            low_m=half - 0.2,
            heading=heading,
            color=floor_plan.ORANGE,
        )
        plan.agents(
            "agent",
            bodies.position,
            heading,
            half,
            agents=np.arange(n_members * n_areas).reshape(n_areas, n_members).T,
            low_m=bodies.above_m,
            color=np.where((self.frozen > 0)[..., None], floor_plan.GRAY, floor_plan.AGENT),
        )
        return plan.scene()
