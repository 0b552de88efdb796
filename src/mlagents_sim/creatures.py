"""`CreatureWorld`: the base of worlds in which creatures turn their joints to reach a target.

A subclass defines the creature's data, its observations and its reward. All vectors and quaternions
use the axes of the world unless their names say otherwise.

A step has Unity's order: the frame and the reward are computed first, then the bodies move. An
observation therefore uses a frame that is one step old, as the published policies expect.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple, BoolArray
from mlagents_envs.logging_util import get_logger
from mlagents_envs.scene import Scene, Shape, Solids
from mlagents_sim.articulated.bodies import STEP_S, Creatures
from mlagents_sim.articulated.creature import Box, Capsule, Creature, Intangible, Sphere
from mlagents_sim.articulated.rotations import (
    IDENTITY,
    Array,
    conjugate,
    cross,
    dot,
    multiply,
    normalized,
    rotate,
)
from mlagents_sim.world import ALL, Agents, World

logger = get_logger(__name__)

X, Y, Z = range(3)
GRAVITY_M_S2 = 14.715
LOOK_DOWN_M = 10.0
"""Distance within which a creature measures its height above the ground."""
TOUCH_M = 0.02
"""Distance from the target that counts as a touch."""
LARGEST_SPEED_M_S = 500.0
"""Speed above which the bodies of a creature count as diverged."""
SQUARE_M = 5.0
"""Edge of the squares of the ground."""
GROUND = np.array([[228, 232, 238], [206, 213, 222]])
TARGET = np.array([46, 160, 67])
COLORS = np.array([[230, 140, 40], [37, 99, 195], [64, 130, 224]])
"""Colors of the first body and, by turns, of the others."""

CLOSE_UP = 1.4
"""Extent of what pictures show, in those of the creature."""

_SHAPES = {Box: Shape.BOX, Sphere: Shape.BALL, Capsule: Shape.CAPSULE}


class CreatureWorld(World):
    """Base of the worlds with a creature that runs to a target.

    Attributes:
        creatures: Bodies of all creatures.
        target: (N, 3) centers of the targets.
        goal_speed: (N,) requested speeds, in m/s.
        frame_origin: (N, 3) origins of the orientation frames, at the first bodies.
        frame_forward: (N, 3) level directions from there to the targets.
        given_strength: (N, J) strengths of the last decision, 0 to 1.
        n_diverged: Number of episodes that were interrupted because bodies diverged.
    """

    creature: ClassVar[Creature]
    targets: ClassVar[Sequence[tuple[str, int]]]
    """Joints that actions control, as the name of the child and the number of axes."""
    strengths: ClassVar[Sequence[str]]
    """Joints whose strength is chosen by the actions that follow."""
    fatal: ClassVar[Sequence[str]] = ()
    """Bodies that must not touch the ground."""
    touching_bodies: ClassVar[Sequence[str]] = ()
    """Bodies whose touch moves the target; empty for all bodies."""
    target_radius_m: ClassVar[float] = 40.0
    """Distance from the center within which targets appear."""
    target_ahead_m: ClassVar[float | None] = None
    """Distance of a fixed target from the center along z; None for targets that move."""
    target_edge_m: ClassVar[float] = 1.0
    touch_reward: ClassVar[float] = 0.0
    """Reward for touching the target."""
    speeds_m_s: ClassVar[tuple[float, float]]
    """Lowest and highest requested speed."""

    agents_per_area = 10
    step_s = STEP_S
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": GRAVITY_M_S2}
    parameter_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"gravity": (0.0, 1000.0)}
    masses: ClassVar[Mapping[str, str]] = {}
    """Parameters that set masses, and the names of their bodies."""

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.creatures = Creatures(self.creature, n)
        self.target = np.zeros((n, 3))
        self.goal_speed = np.zeros(n)
        self.frame_origin, self.frame_forward = np.zeros((2, n, 3))
        self.given_strength = np.zeros((n, len(self.strengths)))
        self.n_diverged = 0

        index = self.creature.body_index
        joints = {joint.child: i for i, joint in enumerate(self.creature.joints)}
        turned = [(joints[name], axis) for name, n_axes in self.targets for axis in range(n_axes)]
        self._turned = np.array(turned, np.intp).T  # joint, axis of each action
        self._low, self._high = np.array([self._range(joint, axis) for joint, axis in turned]).T
        self._strong = np.array([joints[name] for name in self.strengths], np.intp)
        self._degrees = np.zeros((n, len(joints), 3))
        self._strength = np.zeros((n, len(joints)))
        stretched = np.abs(self.creatures.model.start[:, :3]).max()
        self._reach = self.target_edge_m / 2.0 + 1.5 * stretched + 1.0
        self._fatal = np.array([index[name] for name in self.fatal], np.intp)
        self._feelers = np.array([index[name] for name in self.touching_bodies or index], np.intp)
        self._move_targets(np.arange(n))

    def _range(self, joint: int, axis: int) -> tuple[float, float]:
        """Return the lowest and highest angle of a joint about one of its axes."""
        about = self.creature.joints[joint]
        largest = (0.0, about.y, about.z)[axis]
        return (about.x or (0.0, 0.0)) if axis == X else (-largest, largest)

    @abstractmethod
    def judge(self) -> Array:
        """Return the (N,) rewards of a step, computed before the bodies move."""

    def hopeless(self) -> BoolArray:
        """Return (N,) bool: whether creatures end their episode in this step without a penalty."""
        return np.zeros(self.n_agents, np.bool_)

    def begin(self, agents: Agents) -> None:
        """Put the creatures into their start pose, turned at random."""
        n = len(self.agent_id[agents])
        self.creatures.put(agents, self.rng.uniform(0.0, 360.0, n))
        self.creatures.gravity[agents] = self.parameters.draw("gravity", n)
        for parameter, name in self.masses.items():
            body = self.creature.body_index[name]
            mass = self.creature.bodies[body].mass
            self.creatures.heaviness[agents, body] = self.parameters.draw(parameter, n) / mass
        self.goal_speed[agents] = self.rng.uniform(*self.speeds_m_s, n)
        self._turn_frames(agents)

    def rest(self, agents: Agents) -> None:
        """Do nothing: targets and strengths of the joints outlive an episode, as in Unity."""

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set targets and strengths of the joints."""
        part = (np.clip(action.continuous, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0
        n_turns = len(self._low)
        rows = np.arange(self.n_agents)[agents]
        turns = self._low + part[:, :n_turns] * (self._high - self._low)
        self._degrees[rows[:, None], self._turned[0], self._turned[1]] = turns
        self.given_strength[agents] = part[:, n_turns:]
        self._strength[rows[:, None], self._strong] = part[:, n_turns:]
        self.creatures.aim(self._degrees)
        self.creatures.strengthen(self._strength)

    def act(self) -> None:
        """Turn the frames and add the reward of this step."""
        self._turn_frames(ALL)
        self.reward += self.judge()
        self.end(np.flatnonzero(self.hopeless()))

    def physics(self) -> None:
        """Move the bodies; end episodes of creatures that fell or whose bodies diverged."""
        self.creatures.step()
        state = self.creatures.state
        if not np.abs(state[..., 7:]).max() < LARGEST_SPEED_M_S:
            self._interrupt_diverged()
        reached = np.flatnonzero(self._reached())
        self.reward[reached] += self.touch_reward
        self._move_targets(reached)
        fell = np.flatnonzero(self.creatures.touching[:, self._fatal].any(axis=1))
        if fell.size:
            self.reward[fell] = -1.0
            self.end(fell)

    def scene(self) -> Scene:
        """Return all creatures, each on a ground of squares, and their targets."""
        n, model = self.n_agents, self.creatures.model
        agent = np.arange(n, dtype=np.int32)
        ground = self.creature.ground_height
        edge = self.target_radius_m + self.target_edge_m
        middle = np.arange(-edge + SQUARE_M / 2, edge, SQUARE_M)
        x, z = (axis.ravel() for axis in np.meshgrid(middle, middle, indexing="ij"))
        place = np.stack([x, np.full_like(x, ground - 0.1), z], axis=1)
        shade = np.floor((x + z) / SQUARE_M + 0.5).astype(int) % 2
        solids = [
            Solids.of("ground", Shape.BOX, place, (SQUARE_M, 0.2, SQUARE_M), GROUND[shade]),
            Solids.of(
                "target",
                Shape.BOX,
                self.target.copy(),
                np.full(3, self.target_edge_m),
                TARGET,
                area=agent,
            ),
        ]
        for body, data in enumerate(self.creature.bodies):
            if isinstance(data.shape, Intangible):
                continue
            rotation = self.creatures.rotation[:, body]
            center = np.broadcast_to(np.array(data.shape.center), (n, 3))
            size, turn = _extents(data.shape)
            solids.append(
                Solids.of(
                    data.name,
                    _SHAPES[type(data.shape)],
                    self.creatures.position[:, body] + rotate(rotation, center),
                    size,
                    COLORS[0] if body == 0 else COLORS[1 + body % 2],
                    rotation=multiply(rotation, np.broadcast_to(turn, (n, 4))),
                    area=agent,
                    agent=agent if body == 0 else None,
                )
            )
        top = ground + float(np.ptp(model.start[:, 1])) + 2.0
        return Scene(
            solids,
            n,
            (-edge, ground, -edge),
            (edge, top, edge),
            self.agent_id.copy(),
            self.step_count * self.step_s,
            close_up_m=CLOSE_UP * float(np.ptp(model.start[:, :3], axis=0).max()),
        )

    # Queries for observations and rewards.

    def frame(self) -> Array:
        """Return (N, 4) rotations of the orientation frames."""
        half = np.arctan2(self.frame_forward[:, X], self.frame_forward[:, Z]) / 2.0
        zero = np.zeros_like(half)
        return np.stack([zero, np.sin(half), zero, np.cos(half)], axis=-1)

    def in_frame(self, vectors: Array) -> Array:
        """Return vectors, (N, 3) or (N, K, 3), in the orientation frames."""
        sine, cosine = self.frame_forward[:, X], self.frame_forward[:, Z]
        if vectors.ndim == 3:
            sine, cosine = sine[:, None], cosine[:, None]
        seen = np.empty_like(vectors)
        seen[..., X] = cosine * vectors[..., X] - sine * vectors[..., Z]
        seen[..., Y] = vectors[..., Y]
        seen[..., Z] = sine * vectors[..., X] + cosine * vectors[..., Z]
        return seen

    def turned_in_frame(self, rotations: Array) -> Array:
        """Return rotations, (N, K, 4), in the orientation frames."""
        half = np.arctan2(self.frame_forward[:, X], self.frame_forward[:, Z])[:, None] / 2.0
        sine, cosine = np.sin(half), np.cos(half)
        x, y, z, w = (rotations[..., k] for k in range(4))
        seen = np.empty_like(rotations)
        seen[..., 0], seen[..., 2] = cosine * x - sine * z, cosine * z + sine * x
        seen[..., 1], seen[..., 3] = cosine * y - sine * w, cosine * w + sine * y
        return seen

    def forward(self, body: int) -> Array:
        """Return the (N, 3) forward directions of a body."""
        x, y, z, w = self.creatures.rotation[:, body].T
        ahead = np.empty((self.n_agents, 3))
        ahead[:, 0] = 2.0 * (x * z + w * y)
        ahead[:, 1] = 2.0 * (y * z - w * x)
        ahead[:, 2] = 1.0 - 2.0 * (x * x + y * y)
        return ahead

    def facing(self, body: int) -> Array:
        """Return (N,) cosines of the angles between a body's forward direction and the frame's."""
        x, y, z, w = self.creatures.rotation[:, body].T
        to_right, to_front = self.frame_forward[:, X], self.frame_forward[:, Z]
        cosine: Array = 2.0 * (x * z + w * y) * to_right + (1.0 - 2.0 * (x * x + y * y)) * to_front
        return cosine

    def turn_to_frame(self, body: int) -> Array:
        """Return (N, 4) shortest turns from a body's forward direction to that of the frame."""
        start, end = self.forward(body), self.frame_forward
        turn = np.empty((self.n_agents, 4))
        turn[:, :3] = cross(start, end)
        turn[:, 3] = 1.0 + dot(start, end)
        turn[turn[:, 3] < 1e-6] = [1.0, 0.0, 0.0, 0.0]  # backward: any axis will do
        return normalized(turn)

    def height(self, body: int) -> Array:
        """Return (N,) heights of a body's origin above the ground, 0 to 1 for `LOOK_DOWN_M`."""
        above = self.creatures.position[:, body, Y] - self.creature.ground_height
        return np.where((above >= 0.0) & (above < LOOK_DOWN_M), above / LOOK_DOWN_M, 1.0)

    def speed_match(self, velocity: Array) -> Array:
        """Return (N,) scores, 0 to 1, of how well (N, 3) velocities match the requested ones."""
        wanted = self.goal_speed[:, None] * self.frame_forward
        missing = velocity - wanted
        part = np.minimum(np.sqrt(dot(missing, missing)) / self.goal_speed, 1.0)
        match: Array = (1.0 - part**2) ** 2
        return match

    # Private helpers.

    def _turn_frames(self, agents: Agents) -> None:
        origin = self.creatures.position[agents, 0]
        way = self.target[agents] - origin
        way[:, Y] = 0.0
        distance = np.sqrt(dot(way, way))[:, None]
        is_aside = distance[:, 0] > 1e-5  # else the frame stays
        self.frame_origin[agents] = origin
        forward = self.frame_forward[agents]
        forward[is_aside] = way[is_aside] / distance[is_aside]
        self.frame_forward[agents] = forward

    def _reached(self) -> BoolArray:
        """Return (N,) bool: whether the targets are touched."""
        half = self.target_edge_m / 2.0
        near = np.zeros(self.n_agents, np.bool_)
        way = np.abs(self.creatures.position[:, 0] - self.target)[:, [X, Z]].max(axis=1)
        close = np.flatnonzero(way < self._reach)
        if close.size:
            points, radii = self.creatures.feelers(close, self._feelers)  # (n, B, K, 3), (B,)
            offset = points - self.target[close][:, None, None]
            outside = np.linalg.norm(np.maximum(np.abs(offset) - half, 0.0), axis=-1)
            near[close] = (outside < radii[:, None] + TOUCH_M).any(axis=(1, 2))
        return near

    def _move_targets(self, agents: NDArray[np.intp]) -> None:
        """Move targets to random points of a ball, projected to the ground."""
        if agents.size == 0:
            return
        height = self.creature.ground_height + self.target_edge_m / 2.0
        if self.target_ahead_m is not None:
            self.target[agents] = 0.0, height, self.target_ahead_m
            return
        direction = self.rng.normal(size=(len(agents), 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        radius = self.target_radius_m * self.rng.uniform(size=(len(agents), 1)) ** (1.0 / 3.0)
        place = direction * radius
        place[:, Y] = height
        self.target[agents] = place

    def _interrupt_diverged(self) -> None:
        """Interrupt the episodes of creatures whose bodies are faster than `LARGEST_SPEED_M_S`."""
        speeds = np.abs(self.creatures.state[..., 7:]).max(axis=(1, 2))
        diverged = np.flatnonzero(~(speeds < LARGEST_SPEED_M_S))
        if self.n_diverged == 0:
            logger.warning(
                "%s: the bodies of agent %d diverged; its episode is interrupted. This and later "
                "cases count as the statistic 'Physics/Diverged'.",
                type(self).__name__,
                diverged[0],
            )
        self.n_diverged += len(diverged)
        for _ in diverged:
            self.add_stat("Physics/Diverged", 1.0)
        self.creatures.put(diverged, np.zeros(len(diverged)))
        self.end(diverged, interrupted=True)


def _extents(shape: Box | Capsule | Sphere) -> tuple[Array, Array]:
    """Return the extents of a shape, (3,), and the rotation of its axes, (4,).

    Capsules lie along y.
    """
    if isinstance(shape, Box):
        return 2.0 * np.array(shape.half), IDENTITY
    width = 2.0 * shape.radius
    if isinstance(shape, Sphere):
        return np.full(3, width), IDENTITY
    turn = np.append(np.cross((0.0, 1.0, 0.0), shape.axis), 1.0 + shape.axis[Y])
    if not turn.any():  # upside down
        turn[X] = 1.0
    return np.array([width, shape.length, width]), normalized(turn)


def relative(rotation: Array, to: Array) -> Array:
    """Return rotations relative to other rotations."""
    return multiply(conjugate(to), rotation)
