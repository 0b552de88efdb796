"""Reacher: keep the hand of an arm of two links inside a moving goal."""

import math
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
from mlagents_envs.scene import Scene, Shape, Solids
from mlagents_sim.articulated.bodies import Creatures
from mlagents_sim.articulated.creature import (
    Body,
    Capsule,
    Creature,
    Intangible,
    Joint,
    Sphere,
    Vector,
    moments_of_inertia,
)
from mlagents_sim.articulated.rotations import Array, conjugate, dot, rotate
from mlagents_sim.world import ALL, Agents, World

STEP_S = 0.02
TORQUE_NM = 150.0
GOAL_AWAY_M = 8.0
"""Distance of the goal from the axis that it circles around."""
REWARD = 0.01
MAX_SPIN_RAD_S = 7.0
ANGULAR_DRAG = 0.05

UPPER, LOWER = range(2)
LINK = Capsule(0.5, 6.0)
HAND_RADIUS_M, HAND_AT = 1.0, (0.0, 3.0, 0.0)
"""Size of the hand, and its place in the lower link."""
LINK_KG = 1.0
SHOULDER_M, UPPER_M, ELBOW_M, LOWER_M = 0.02, -4.0, -7.0, -10.0
"""Heights in the start pose."""
LOWEST_M = -16.0


def _with_hand() -> Intangible:
    """Return the lower link: a capsule with a sphere at its end, both of the same density."""
    radius, middle = LINK.radius, LINK.length - 2.0 * LINK.radius
    capsule = math.pi * radius**2 * middle + 4.0 / 3.0 * math.pi * radius**3
    sphere = 4.0 / 3.0 * math.pi * HAND_RADIUS_M**3
    kg = (LINK_KG * np.array([capsule, sphere]) / (capsule + sphere)).tolist()
    center = HAND_AT[1] * kg[1] / LINK_KG
    of_capsule = moments_of_inertia(LINK, kg[0])
    of_sphere = moments_of_inertia(Sphere(HAND_RADIUS_M), kg[1])
    across, along, _ = np.add(of_capsule, of_sphere).tolist()
    across += kg[0] * center**2 + kg[1] * (HAND_AT[1] - center) ** 2
    return Intangible((across, along, across), (0.0, center, 0.0))


def _joint(child: str, parent: str, height: float) -> Joint:
    """Return a joint that turns about x and z of a link, at a height in it."""
    anchor: Vector = (0.0, height, 0.0)
    return Joint(child, parent, anchor, x=(-180.0, 180.0), z=180.0, is_driven=False)


UPSIDE_DOWN = (180.0, 0.0, 0.0)
ARM = Creature(
    bodies=[
        Body(
            "upper",
            LINK_KG,
            Intangible(moments_of_inertia(LINK, LINK_KG)),
            (0.0, UPPER_M, 0.0),
            UPSIDE_DOWN,
            drag=0.0,
            angular_drag=ANGULAR_DRAG,
        ),
        Body(
            "lower",
            LINK_KG,
            _with_hand(),
            (0.0, LOWER_M, 0.0),
            UPSIDE_DOWN,
            drag=0.0,
            angular_drag=ANGULAR_DRAG,
        ),
    ],
    joints=[
        _joint("upper", "", UPPER_M - SHOULDER_M),
        _joint("lower", "upper", LOWER_M - ELBOW_M),
    ],
    spring=0.0,
    damper=0.0,
    max_force=0.0,
    ground_height=-1000.0,
)


class Reacher(World):
    """Arms of two links that keep their hand inside a goal, a ball that circles around them.

    Observations: 33 numbers: position (3), quaternion (4), angular velocity (3) and velocity (3) of
        the upper link, then of the lower link; position of the goal (3); position of the hand in
        the lower link, which is constant (3); speed of the goal in degrees per step (1). Positions
        are relative to the base, in m; axes are those of the world.
    Actions: 4 continuous, clipped to -1..1: torques about the world's x and z on the upper link,
        then on the lower one, by 150 N m.
    Decisions: every 4 steps of 0.02 s.
    Reward: 0.01 per step in which the hand touches the goal, so 40 at most.
    Ends: never.
    Interrupts: after 4000 steps, that is 1000 decisions.
    Start: both links hang straight down, at rest; the goal is anywhere on its circle of 8 m.
    Parameters: `goal_size` 5 m, the diameter of the goal (1 to 10); `goal_speed` 1 degree per step,
        the largest speed of the goal (0.2 to 4), of which an episode draws a fraction from -1 to 1;
        `deviation` 0 m, the vertical amplitude of the goal (0 to 5); `deviation_freq` 0, its waves
        per turn (0 to 3); `gravity` 9.81 m/s2 (4 to 20).
    A good policy reaches 30.

    The solver is that of the creatures, with 12 iterations; these joints would need fewer. The hand
    is a ball of 1 m radius, with the density of its link. The largest angular velocity is 7 rad/s,
    Unity's default. Links pass through each other and through the base.

    Attributes:
        arms: Links of all agents.
        goal: (N, 3) positions of the goals.
        goal_degrees: (N,) angles of the goals on their circles.
        goal_speed: (N,) speeds of the goals, in degrees per step.
        goal_radius: (N,) radii of the goals.
    """

    behavior_name = "Reacher?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(33, "VectorSensor_size33")], ActionSpec.create_continuous(4)
    )
    agents_per_area = 20
    decision_period_steps = 4
    max_steps = 4000
    default_parameters: ClassVar[Mapping[str, float]] = {
        "goal_size": 5.0,
        "goal_speed": 1.0,
        "gravity": 9.81,
        "deviation": 0.0,
        "deviation_freq": 0.0,
    }
    parameter_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "goal_size": (1.0, 10.0),
        "goal_speed": (0.2, 4.0),
        "gravity": (4.0, 20.0),
        "deviation": (0.0, 5.0),
        "deviation_freq": (0.0, 3.0),
    }

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.arms = Creatures(ARM, n)
        self.goal = np.zeros((n, 3))
        self.goal_degrees, self.goal_speed, self.goal_radius = np.zeros((3, n))
        self._deviation, self._frequency = np.zeros((2, n))
        self._torque = np.zeros((n, 2, 3))

    def begin(self, agents: Agents) -> None:
        """Let the arms hang down and put the goals anywhere on their circles."""
        n, draw = len(self.agent_id[agents]), self.parameters.draw
        self.arms.put(agents, np.zeros(n))
        self.arms.gravity[agents] = draw("gravity", n)
        self.goal_degrees[agents] = self.rng.integers(0, 360, n)
        self.goal_speed[agents] = self.rng.uniform(-1.0, 1.0, n) * draw("goal_speed", n)
        self.goal_radius[agents] = draw("goal_size", n) / 2.0
        self._deviation[agents] = draw("deviation", n)
        self._frequency[agents] = draw("deviation_freq", n)
        self._place_goals(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        arms, n = self.arms, self.n_agents
        parts = [
            part
            for link in (UPPER, LOWER)
            for part in (
                arms.position[:, link],
                arms.rotation[:, link],
                arms.spin[:, link],
                arms.velocity[:, link],
            )
        ]
        # Unity scales a link of 6 m by 3, so that its end is at 1.
        hand = np.tile([0.0, 1.0, 0.0], (n, 1))
        parts += [self.goal, hand, self.goal_speed[:, None]]
        return [np.concatenate(parts, axis=1, dtype=np.float32)[agents]]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the torques of each of the coming steps."""
        torque = TORQUE_NM * np.clip(action.continuous, -1.0, 1.0).astype(np.float64)
        self._torque[agents, :, 0] = torque[:, [0, 2]]
        self._torque[agents, :, 2] = torque[:, [1, 3]]

    def act(self) -> None:
        """Move the goals."""
        self.goal_degrees += self.goal_speed
        self._place_goals(ALL)

    def physics(self) -> None:
        """Turn and move the links; reward hands that touch their goal."""
        self._twist()
        self.arms.step(STEP_S)
        apart = self.hand() - self.goal
        self.reward += REWARD * (np.sqrt(dot(apart, apart)) <= self.goal_radius + HAND_RADIUS_M)

    def hand(self) -> Array:
        """Return (N, 3) positions of the hands."""
        turn = self.arms.rotation[:, LOWER]
        return self.arms.position[:, LOWER] + rotate(
            turn, np.broadcast_to(HAND_AT, self.goal.shape)
        )

    def scene(self) -> Scene:
        """Return all arms: two links with the hand at their end, and the goal around the base."""
        n, arms = self.n_agents, self.arms
        agent = np.arange(n, dtype=np.int32)
        radius = np.repeat(self.goal_radius[:, None], 3, axis=1)
        solids = [
            Solids.of("base", Shape.BALL, np.zeros(3), np.ones(3), BASE_COLOR),
            Solids.of("goal", Shape.BALL, self.goal.copy(), 2.0 * radius, GOAL_COLOR, area=agent),
            Solids.of(
                *("hand", Shape.BALL, self.hand(), np.full(3, 2.0 * HAND_RADIUS_M), HAND_COLOR),
                area=agent,
                agent=agent,
            ),
        ]
        size = (2.0 * LINK.radius, LINK.length, 2.0 * LINK.radius)
        for name, link in (("upper", UPPER), ("lower", LOWER)):
            place, turn = arms.position[:, link].copy(), arms.rotation[:, link]
            solids.append(
                Solids.of(
                    *(name, Shape.CAPSULE, place, size, LINK_COLOR), rotation=turn, area=agent
                )
            )
        low, high = (-11.0, LOWEST_M, -11.0), (11.0, 11.0, 11.0)
        return Scene(solids, n, low, high, self.agent_id.copy(), self.step_count * STEP_S)

    # Private helpers.

    def _place_goals(self, agents: Agents) -> None:
        angle = np.radians(self.goal_degrees[agents])
        height = self._deviation[agents] * np.cos(self._frequency[agents] * angle)
        goal = np.stack([GOAL_AWAY_M * np.sin(angle), height, GOAL_AWAY_M * np.cos(angle)], axis=1)
        self.goal[agents] = goal

    def _twist(self) -> None:
        """Apply the torques, and limit the spins that the step begins with."""
        arms = self.arms
        inverse = arms.model.inverse_inertia[: LOWER + 1]
        own = rotate(conjugate(arms.rotation), self._torque)
        spin = arms.spin + rotate(arms.rotation, own * inverse) * STEP_S
        # The engine slows spins by drag before it limits them.
        most = MAX_SPIN_RAD_S / (1.0 - ANGULAR_DRAG * STEP_S)
        speed = np.sqrt(dot(spin, spin))[..., None]
        arms.spin[:] = spin * np.minimum(1.0, most / np.maximum(speed, most))


BASE_COLOR, LINK_COLOR, HAND_COLOR = (120, 132, 148), (37, 99, 195), (230, 140, 40)
GOAL_COLOR = (46, 160, 67)
