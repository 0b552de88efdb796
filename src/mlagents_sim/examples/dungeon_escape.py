"""Dungeon Escape: slay the dragon, take its key and escape, as a group."""

from collections.abc import Mapping
from itertools import combinations, product
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
from mlagents_envs.scene import Scene
from mlagents_sim import floor_plan
from mlagents_sim.contact import FRICTION, STEP_S
from mlagents_sim.examples.push_block import (
    AGENT_DRAG,
    AGENT_HALF_M,
    FORWARD_M_S,
    RIGHT_M_S,
    ROOM_HIGH,
    ROOM_LOW,
    SEVEN_MOVES,
    TURN_COSINE,
    TURN_SINE,
)
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.planar import Bodies, Body
from mlagents_sim.plane import Indices, X, Z, along, gap_between_boxes, in_frame, turn
from mlagents_sim.ray_view import Box, RayView, Room
from mlagents_sim.rays import radius_at_edge
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import Agents, World

MEMBERS = 3
DRAGON = MEMBERS
TOMBSTONE = MEMBERS + 1
DOOR = MEMBERS + 2
COLUMNS = slice(MEMBERS + 3, MEMBERS + 7)

DRAGON_START = np.array([0.0, 8.0])
DRAGON_HALF = (0.75, 0.75)
DRAGON_SPEEDS_M_S = 1.0, 7.0
PORTAL = np.array([11.58, -11.59])
"""Position of the portal, to which the dragon walks."""
PORTAL_HALF = np.array([1.5, 0.75])
PORTAL_HEADING = np.array([-np.sqrt(0.5), np.sqrt(0.5)])
DRAGON_HEADING = (PORTAL - DRAGON_START) / np.hypot(*(PORTAL - DRAGON_START))
KEY_HALF = (0.6, 0.09)
DOOR_AT, DOOR_HALF = (0.0, 12.285), (1.5, 0.215)
COLUMNS_AT = np.array([[-4.5, 4.5, -4.5, 4.5], [-4.0, -4.0, 4.0, 4.0]])
COLUMN_RADIUS_M = 0.72
BASE_HALF_M, BASE_HEIGHT_M = 0.845, 0.18
"""The columns stand on square bases."""
TOMBSTONE_HALF = (0.5, 0.2)
START_M = 6.25
CLEAR_M = 2.5
"""Half the edge of the square in which nothing else may stand where an agent is put."""
DROP_M = 0.5
"""Height above the floor at which agents are put down."""

WALL_TAG, AGENT_TAG, DRAGON_TAG, KEY_TAG, LOCK_TAG, PORTAL_TAG = range(6)
RAYS = RaySensor(per_side=7, max_degrees=60.0, length=40.0, n_tags=6)
RAY_RADIUS_M = 0.5
BASE_RADIUS_M = float(radius_at_edge(RAY_RADIUS_M, AGENT_HALF_M - BASE_HEIGHT_M))
STACKED = 3
_UNSEEN = -1
_COLUMN_BODIES = range(COLUMNS.start, COLUMNS.stop)

_PORTAL = tuple(value[:, None] for value in (PORTAL, PORTAL_HEADING, PORTAL_HALF))
_NEAR_PORTAL_M = float(PORTAL[X] - PORTAL[Z] - 2.0 * (PORTAL_HALF[Z] + 1.2))
"""Least x - z at which an agent or a dragon may touch the portal."""
_NEAR_KEY_M = float(np.hypot(*KEY_HALF) + np.hypot(AGENT_HALF_M, AGENT_HALF_M))
"""Distance in x and in z within which an agent may touch the key."""
_OUTSIDE = np.where(np.arange(COLUMNS.stop) < MEMBERS, 0.0, np.inf)
"""Positions of the walls by body: only agents stop at walls."""


class DungeonEscape(World):
    """Groups of three agents, each in a dungeon with a dragon that has the key to the door.

    Observations: three sensors.
        1. 10 numbers: the agent's velocity in m/s, to its right, up and ahead; three zeros; the
           quaternion 0, 0, 0, 1.
        2. 15 rays of 40 m, up to 60 degrees to each side, in three frames, oldest first: (360,). A
           ray has 8 numbers: one-hot wall, agent, dragon, key, lock or portal; 1 for nothing; the
           distance divided by 40 m.
        3. 1 number: 1 if the agent has the key, else 0.
    Action: one branch of 7: nothing, forward, back, turn right, turn left, left, right. A push adds
        3 m/s per step (2.25 m/s sideways), and a turn is 4 degrees per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: +1 for the group when an agent that has the key touches the door.
    Ends: for the group, when the door opens, or when the dragon, the agent with the key or the last
        agent is in the portal; for a single agent, when it is slain or is in the portal.
    Interrupts: the group after 15000 steps, that is 3000 decisions.
    Parameters: `gravity` 14.715 m/s2, which presses agents to the floor, where friction slows them.
    Start: the agents at random free places near the middle, with random headings, 0.5 m above the
        floor; the dragon at the far wall, from where it walks to the portal in the corner, at 1 to
        7 m/s.
    A good policy reaches a group reward of 1.

    An agent that touches the dragon slays it and dies. A tombstone takes its place, and the dragon
    drops the key. An agent that touches the key takes it. Agents that have left get no reward when
    the others escape. If the last agent dies at the dragon, the episode continues until the time
    limit.

    Attributes:
        bodies: Agents, dragon, tombstone, door and columns of every area.
        carrier: (areas,) index among the members of the agent with the key, -1 for none.
        is_slain: (areas,) whether the dragon is dead, so that a tombstone stands.
        has_dropped: (areas,) whether the key lies where the dragon was.
        dragon_m_s: (areas,) speed of the dragon.
    """

    behavior_name = "DungeonEscape?team=0"
    behavior_spec = BehaviorSpec(
        [
            ObservationSpec.vector(10, "PhysicsBodySensor:Agent"),
            stacked(RAYS.spec("RayPerceptionSensor"), STACKED),
            ObservationSpec.vector(1, "VectorSensor_size1"),
        ],
        ActionSpec.create_discrete((7,)),
    )
    controls = SEVEN_MOVES
    agents_per_area = 12 * MEMBERS
    n_members: ClassVar[int] = MEMBERS
    """Number of agents in each of the dungeons of a scene."""
    decision_period_steps = 5
    max_steps = 15000
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": 14.715}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._area, self._member = np.divmod(np.arange(self.n_agents), MEMBERS)
        self.group[:] = self._area + 1
        n = self.n_agents // MEMBERS
        agent = Body((AGENT_HALF_M, AGENT_HALF_M), mass=10.0, drag=AGENT_DRAG)
        column = Body((BASE_HALF_M, BASE_HALF_M))
        solids = [DRAGON, TOMBSTONE, DOOR, *_COLUMN_BODIES]
        among = list(combinations(range(MEMBERS), 2))
        pairs = [*among, *product(range(MEMBERS), solids)]
        self.bodies = Bodies(
            n,
            [*[agent] * MEMBERS, Body(DRAGON_HALF), Body(TOMBSTONE_HALF), Body(DOOR_HALF)]
            + [column] * 4,
            low=np.array([[-12.5], [-12.5]]) - _OUTSIDE,
            high=np.array([[12.5], [12.5]]) + _OUTSIDE,
            pairs=pairs,
            pair_friction=[0.0 if b >= COLUMNS.start else FRICTION for _, b in pairs],
        )
        self.bodies.position[:, DOOR] = np.reshape(DOOR_AT, (2, 1))
        self.bodies.position[:, COLUMNS] = COLUMNS_AT[..., None]
        self.bodies.heading[:, DRAGON] = DRAGON_HEADING[:, None]
        ends = np.array(pairs).T
        self._pairs_of = [(ends == member).any(axis=0).nonzero()[0] for member in range(MEMBERS)]
        self._at_dragon, self._at_tombstone, self._at_door = (
            (ends[1] == body).nonzero()[0] for body in (DRAGON, TOMBSTONE, DOOR)
        )
        self.carrier = np.full(n, -1)
        self.is_slain = np.zeros(n, np.bool_)
        self.has_dropped = np.zeros(n, np.bool_)
        self.dragon_m_s = np.zeros(n)
        self._action = np.zeros((MEMBERS, n), np.intp)
        self._tags = np.zeros((MEMBERS + 2, n), np.int8)  # tombstone, agents, dragon
        self._seen = self._view()
        self._rays = FrameStack(RAYS.spec(""), STACKED, self.n_agents)

    # The task.

    def begin(self, agents: Agents) -> None:
        """Put the agents where there is room, and the dragon at the far wall."""
        bodies, draw = self.bodies, self.parameters.draw
        areas = self._area[agents][::MEMBERS]  # all members of an area begin together
        n = len(areas)
        self.carrier[areas] = -1
        self.is_slain[areas] = False
        self.has_dropped[areas] = False
        self.dragon_m_s[areas] = self.rng.uniform(*DRAGON_SPEEDS_M_S, n)
        bodies.position[:, DRAGON, areas] = DRAGON_START[:, None]
        bodies.half[:, DRAGON, areas] = np.reshape(DRAGON_HALF, (2, 1))
        bodies.position[:, TOMBSTONE, areas] = 0.0
        bodies.heading[:, TOMBSTONE, areas] = [[0.0], [1.0]]
        bodies.is_solid[:, areas] = True
        bodies.is_solid[np.ix_(self._at_tombstone, areas)] = False
        yaw = self.rng.uniform(0.0, 2.0 * np.pi, (MEMBERS, n))
        gravity = draw("gravity", n)
        for member in range(MEMBERS):
            bodies.velocity[:, member, areas] = 0.0
            bodies.heading[:, member, areas] = np.sin(yaw[member]), np.cos(yaw[member])
            bodies.put_down((member, areas), gravity=gravity, above_m=DROP_M)
            self._place(member, areas)
        self._rays.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        bodies = self.bodies
        area, member = self._area[agents], self._member[agents]
        heading = bodies.heading[:, member, area]
        body = np.zeros((len(area), 10), np.float32)
        body[:, 0], body[:, 2] = in_frame(heading, bodies.velocity[:, member, area])
        body[:, 1] = bodies.climb[member, area]
        body[:, 9] = 1.0
        has_key = (self.carrier[area] == member)[:, None].astype(np.float32)
        self._set_tags()
        return [body, self._rays.add(agents, self._seen.observe(agents)), has_key]

    def _view(self) -> RayView:
        """Return what rays see. The tags of what comes and goes are set before each look."""
        standing = [Box(WALL_TAG, body=k, radius_m=BASE_RADIUS_M) for k in _COLUMN_BODIES]
        tombstone, *mates, dragon = self._tags
        boxes = [
            Box(tombstone, body=TOMBSTONE, is_turned=True),
            *standing,
            *(Box(tags, body=member, is_turned=True) for member, tags in enumerate(mates)),
            Box(dragon, body=DRAGON, is_turned=True),
            Box(LOCK_TAG, body=DOOR),
            Box(
                PORTAL_TAG,
                center=(PORTAL[X], PORTAL[Z]),
                half=(PORTAL_HALF[X], PORTAL_HALF[Z]),
                heading=(PORTAL_HEADING[X], PORTAL_HEADING[Z]),
                is_turned=True,
            ),
        ]
        room = Room(WALL_TAG, ROOM_LOW, ROOM_HIGH)
        return RayView(
            RAYS, self.bodies, radius_m=RAY_RADIUS_M, room=room, boxes=boxes, n_members=MEMBERS
        )

    def _set_tags(self) -> None:
        tombstone, *mates, dragon = self._tags
        tombstone[:] = np.where(self.is_slain, WALL_TAG, _UNSEEN)
        is_present = self.is_present.reshape(-1, MEMBERS).T
        for tags, here in zip(mates, is_present, strict=True):
            tags[:] = np.where(here, AGENT_TAG, _UNSEEN)
        key = np.where(self.has_dropped, KEY_TAG, _UNSEEN)
        dragon[:] = np.where(self.is_slain, key, DRAGON_TAG)

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        self._action[self._member[agents], self._area[agents]] = action.discrete[:, 0]

    def act(self) -> None:
        """Turn and push."""
        action, heading = self._action, self.bodies.heading[:, :MEMBERS]
        self.bodies.velocity[:, :MEMBERS] += along(heading, FORWARD_M_S[action], RIGHT_M_S[action])
        turn(heading, TURN_SINE[action], TURN_COSINE[action])

    def physics(self) -> None:
        """Move agents and dragons, and handle what they touch."""
        bodies = self.bodies
        walk = np.where(self.is_slain, 0.0, self.dragon_m_s) * STEP_S
        bodies.position[:, DRAGON] += DRAGON_HEADING[:, None] * walk
        bodies.move()
        is_present = self.is_present.reshape(-1, MEMBERS).T
        self._take_keys(is_present)
        self._slay()
        at_door = bodies.touching[self._at_door]
        in_portal, has_fled = self._in_portal(is_present)
        if at_door.any() or in_portal.any() or has_fled.any():
            self._judge(is_present, at_door, in_portal, has_fled)

    def _judge(
        self,
        is_present: NDArray[np.bool_],
        at_door: NDArray[np.bool_],
        in_portal: NDArray[np.bool_],
        has_fled: NDArray[np.bool_],
    ) -> None:
        """Let agents open doors and leave through portals; end episodes that are won or lost.

        Args:
            is_present: (M, areas) which agents are present.
            at_door: (M, areas) which agents touch the door.
            in_portal: (M, areas) which agents are in the portal.
            has_fled: (areas,) which dragons are in the portal.
        """
        has_key = np.arange(MEMBERS)[:, None] == self.carrier
        escaped = (at_door & has_key).any(axis=0)
        is_lost = (in_portal & has_key).any(axis=0)
        is_lost |= in_portal.any(axis=0) & ~(is_present & ~in_portal).any(axis=0)
        is_lost |= has_fled
        self.reward_group(1 + escaped.nonzero()[0], 1.0)
        is_over = escaped | is_lost
        member, area = (in_portal & ~is_over).nonzero()
        if member.size:
            self._remove(member, area)
        self.end_group(1 + is_over.nonzero()[0])

    def _take_keys(self, is_present: NDArray[np.bool_]) -> None:
        """Give keys that have been dropped to (M, areas) present agents that touch them."""
        (areas,) = self.has_dropped.nonzero()
        if areas.size == 0:
            return
        bodies = self.bodies
        key = bodies.position[:, DRAGON, areas]
        apart = bodies.position[:, :MEMBERS, areas] - key[:, None]
        touches = (np.abs(apart) < _NEAR_KEY_M).all(axis=0) & is_present[:, areas]
        member, at = touches.nonzero()
        if member.size == 0:
            return
        place, heading, half = (
            value[:, member, areas[at]] for value in (bodies.position, bodies.heading, bodies.half)
        )
        key_heading, key_half = DRAGON_HEADING[:, None], np.reshape(KEY_HALF, (2, 1))
        gap = gap_between_boxes(place, heading, half, key[:, at], key_heading, key_half)
        touches[member, at] = gap < 0.0
        is_taken = touches.any(axis=0)
        self.carrier[areas[is_taken]] = touches.argmax(axis=0)[is_taken]
        self.has_dropped[areas[is_taken]] = False

    def _slay(self) -> None:
        """Remove dragons and the agents that touch them; drop keys and put tombstones."""
        touches = self.bodies.touching[self._at_dragon]
        (areas,) = touches.any(axis=0).nonzero()
        if areas.size == 0:
            return
        member = touches[:, areas].argmax(axis=0)
        bodies = self.bodies
        self.is_slain[areas] = self.has_dropped[areas] = True
        bodies.half[:, DRAGON, areas] = np.reshape(KEY_HALF, (2, 1))  # the key lies there
        bodies.position[:, TOMBSTONE, areas] = bodies.position[:, member, areas]
        bodies.heading[:, TOMBSTONE, areas] = bodies.heading[:, member, areas]
        bodies.is_solid[np.ix_(self._at_dragon, areas)] = False
        bodies.is_solid[np.ix_(self._at_tombstone, areas)] = True
        self._remove(member, areas)

    def _remove(self, member: Indices, area: Indices) -> None:
        """Take agents out of their groups; nothing touches them until the group begins again."""
        self.leave(area * MEMBERS + member)
        for one, where in zip(member, area, strict=True):
            self.bodies.is_solid[self._pairs_of[one], where] = False
        self.bodies.velocity[:, member, area] = 0.0
        self._action[member, area] = 0

    def _in_portal(
        self, is_present: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return (M, areas) which agents, and (areas,) which living dragons, are in the portal.

        Args:
            is_present: (M, areas) which agents are present.
        """
        bodies = self.bodies
        x, z = bodies.position[:, : DRAGON + 1]
        is_near = x - z > _NEAR_PORTAL_M
        is_near[:MEMBERS] &= is_present
        is_near[DRAGON] &= ~self.is_slain
        body, area = is_near.nonzero()
        found = np.zeros(x.shape, np.bool_)
        if body.size:
            place, heading, half = (
                value[:, body, area] for value in (bodies.position, bodies.heading, bodies.half)
            )
            found[body, area] = gap_between_boxes(place, heading, half, *_PORTAL) < 0.0
        return found[:MEMBERS], found[DRAGON]

    def _place(self, member: int, areas: Indices) -> None:
        """Put one member of each area at a random place free of bodies placed before."""
        bodies = self.bodies
        extent = bodies.extent()
        is_not_put = np.isin(np.arange(DRAGON + 1), np.arange(member, DRAGON))[:, None]
        waiting = areas
        while waiting.size:
            place = self.rng.uniform(-START_M, START_M, (2, waiting.size))
            apart = np.abs(bodies.position[:, : DRAGON + 1, waiting] - place[:, None])
            is_apart = (apart > CLEAR_M + extent[:, : DRAGON + 1, waiting]).any(axis=0)
            is_apart |= is_not_put
            to_columns = np.abs(COLUMNS_AT[..., None] - place[:, None]) - CLEAR_M
            is_clear = np.hypot(*np.maximum(to_columns, 0.0)) > COLUMN_RADIUS_M
            is_free = is_apart.all(axis=0) & is_clear.all(axis=0)
            bodies.position[:, member, waiting[is_free]] = place[:, is_free]
            waiting = waiting[~is_free]

    def scene(self) -> Scene:
        """Return all dungeons, in the colors of `render`."""
        bodies = self.bodies
        n = bodies.position.shape[2]
        place, heading = bodies.position, bodies.heading
        plan = FloorPlan(self, n, ROOM_LOW, ROOM_HIGH, walls_m=1.0)
        _add_building(plan)
        plan.box(
            "dragon",
            floor_plan.hidden(place[:, DRAGON], ~self.is_slain),
            DRAGON_HALF,
            height_m=1.5,
            heading=heading[:, DRAGON],
            color=floor_plan.RED,
        )
        plan.box(
            "tombstone",
            floor_plan.hidden(place[:, TOMBSTONE], self.is_slain),
            TOMBSTONE_HALF,
            height_m=1.0,
            heading=heading[:, TOMBSTONE],
            color=floor_plan.GRAY,
        )
        plan.box(
            "key",
            floor_plan.hidden(place[:, DRAGON], self.has_dropped),
            KEY_HALF,
            height_m=0.3,
            low_m=0.3,
            heading=heading[:, DRAGON],
            color=floor_plan.ORANGE,
        )
        is_present = self.is_present.reshape(n, MEMBERS).T
        has_key = np.arange(MEMBERS)[:, None] == self.carrier
        plan.agents(
            "agent",
            floor_plan.hidden(place[:, :MEMBERS], is_present),
            heading[:, :MEMBERS],
            AGENT_HALF_M,
            agents=np.arange(self.n_agents).reshape(n, MEMBERS).T,
            low_m=bodies.above_m[:MEMBERS],
            color=np.where(has_key[..., None], floor_plan.ORANGE, floor_plan.AGENT),
        )
        return plan.scene()


def _add_building(plan: FloorPlan) -> None:
    """Add what stands in every dungeon."""
    plan.box(
        "portal",
        PORTAL,
        PORTAL_HALF,
        height_m=2.0,
        heading=PORTAL_HEADING,
        color=floor_plan.INK,
    )
    plan.box("door", DOOR_AT, DOOR_HALF, height_m=2.0, color=floor_plan.GREEN)
    half = np.full((2, 1), BASE_HALF_M)
    plan.box("base", COLUMNS_AT, half, height_m=BASE_HEIGHT_M, color=floor_plan.WALL, fixed=True)
    plan.disc(
        "column",
        COLUMNS_AT,
        np.full(4, COLUMN_RADIUS_M),
        height_m=2.0,
        color=floor_plan.WALL,
        fixed=True,
    )
