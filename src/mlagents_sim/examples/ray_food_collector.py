"""Food Collector for agents that see by rays: gather good food, leave bad food."""

import numpy as np

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_sim.examples.food_collector import (
    AGENT_TAG,
    BAD_TAG,
    FROZEN_TAG,
    GOOD_TAG,
    WALL_TAG,
    FoodCollector,
)
from mlagents_sim.examples.food_floors import AGENT_HALF_M, FOOD_RADIUS_M, GOOD, WALLS_M
from mlagents_sim.planar import X, in_frame
from mlagents_sim.rays import Rays, radius_at_edge
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import Agents

RAYS = RaySensor(per_side=3, max_degrees=70.0, length=50.0, n_tags=5)
RAY_RADIUS_M = 0.5


class RayFoodCollector(FoodCollector):
    """Agents as those of `GridFoodCollector`, which see by rays and choose among few actions.

    Observations: two sensors.
        1. 49 numbers: 7 rays, straight ahead and up to 70 degrees to the right and left, by turns.
           A ray is 50 m long, times `agent_scale`, and has 7 numbers: good food, agent, wall, bad
           food, frozen agent, nothing, distance by length.
        2. 4 numbers: velocity to the right and ahead in m/s; 1 if frozen, 1 if shooting, else 0.
    Actions: four branches: nothing, forward, back; nothing, right, left, which takes the place of
        forward and back; nothing, turn left, turn right; nothing, shoot.
    All else is as in `GridFoodCollector`.

    Source: example environments, section 2, task 10. Unity's scenes no longer contain it.
    """

    behavior_name = "FoodCollector?team=0"
    behavior_spec = BehaviorSpec(
        [RAYS.spec("RayPerceptionSensor"), ObservationSpec.vector(4, "VectorSensor_size4")],
        ActionSpec.create_discrete((3, 3, 3, 2)),
    )

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        area, member = self._area[agents], self._member[agents]
        bodies = self.bodies
        heading = bodies.heading[:, member, area]
        # Rays are as large as the agent: by its measure, everything else is smaller.
        scale = bodies.half[X, member, area] / AGENT_HALF_M
        position = bodies.position[:, member, area] / scale
        rays = Rays.cast(position, heading, RAYS.directions)
        above = np.abs(self.floors.heights(area, member) - FOOD_RADIUS_M) / scale
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
        """Set the action of each of the coming steps."""
        ahead, right, turn, shoot = action.discrete.T
        ways = np.array([0.0, 1.0, -1.0])
        self.floors.command(
            self._area[agents],
            self._member[agents],
            ahead=np.where(right == 0, ways[ahead], 0.0),
            right=ways[right],
            left_turn=ways[turn],
            shoots=shoot == 1,
        )
