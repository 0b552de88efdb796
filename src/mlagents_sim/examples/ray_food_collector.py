"""Food Collector with ray observations: gather good food and avoid bad food."""

from collections.abc import Mapping

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
from mlagents_sim.plane import in_frame
from mlagents_sim.ray_view import Box, Discs, RayView, Room
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import Agents

RAYS = RaySensor(per_side=3, max_degrees=70.0, length=50.0, n_tags=5)
RAY_RADIUS_M = 0.5


class RayFoodCollector(FoodCollector):
    """Agents as in `GridFoodCollector`, with ray observations and discrete actions.

    Observations: two sensors.
        1. 49 numbers: 7 rays: ahead, then up to 70 degrees to the right and left, alternating. A
           ray is 50 m long, times `agent_scale`, and has 7 numbers: good food, agent, wall, bad
           food, frozen agent, nothing, distance divided by length.
        2. 4 numbers: velocity to the right and ahead in m/s; 1 if frozen, 1 if shooting, else 0.
    Actions: four branches: nothing, forward, back; nothing, right, left, which takes the place of
        forward and back; nothing, turn left, turn right; nothing, shoot.
    All else is as in `GridFoodCollector`.

    Unity's scenes no longer contain it.
    """

    behavior_name = "FoodCollector?team=0"
    behavior_spec = BehaviorSpec(
        [RAYS.spec("RayPerceptionSensor"), ObservationSpec.vector(4, "VectorSensor_size4")],
        ActionSpec.create_discrete((3, 3, 3, 2)),
    )

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._agent_tags = np.zeros(self.frozen.shape, np.int8)
        # Rays scale with the agent.
        self._rays = RayView(
            RAYS,
            self.bodies,
            radius_m=RAY_RADIUS_M,
            room=Room(WALL_TAG, (-WALLS_M, -WALLS_M), (WALLS_M, WALLS_M)),
            discs=Discs(
                self.food,
                self.falling,
                np.where(GOOD, GOOD_TAG, BAD_TAG).astype(np.int8),
                FOOD_RADIUS_M,
                FOOD_RADIUS_M,
            ),
            boxes=[
                Box(tags, body=member, is_turned=True)
                for member, tags in enumerate(self._agent_tags)
            ],
            n_members=self.n_members,
            unit_half_m=AGENT_HALF_M,
        )

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        area, member = self._area[agents], self._member[agents]
        bodies = self.bodies
        heading = bodies.heading[:, member, area]
        self._agent_tags[:] = np.where(self.frozen > 0, FROZEN_TAG, AGENT_TAG)
        own = np.empty((len(area), 4), np.float32)
        own[:, :2] = in_frame(heading, bodies.velocity[:, member, area]).T
        own[:, 2] = self.frozen[member, area] > 0
        own[:, 3] = self.is_shooting[member, area]
        return [self._rays.observe(agents), own]

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
