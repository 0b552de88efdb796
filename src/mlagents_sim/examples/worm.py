"""Worm: a creature of four segments crawls to a target."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, BoolArray, FloatArray, ObservationSpec
from mlagents_sim.articulated.creature import Body, Capsule, Creature, Joint, Sphere, Vector
from mlagents_sim.articulated.rotations import Array
from mlagents_sim.creatures import CreatureWorld, relative
from mlagents_sim.world import Agents

ALONG_Z: Vector = (0.0, 0.0, 1.0)
SPEED_M_S = 10.0
LARGEST_ANGLE_DEGREES = 30.0
"""Angle between head and target beyond which the reward is 0."""
DEEPEST_FALL_M = 2.0


def _segment(number: int, radius: float, length: float, z: float, y: float = 0.0) -> Body:
    shape, turn = Capsule(radius, length), (89.97866, 0.0, 0.0)  # as precise as the prefab
    return Body(f"segment{number}", 10.0, shape, (0.0, y, z), turn, drag=0.0)


def _eye(name: str, place: Vector) -> Body:
    return Body(name, 1.0, Sphere(0.12567), place, drag=0.0)


def _bend(number: int, anchor: Vector, secondary: Vector) -> Joint:
    """Return the joint between a segment and the next one."""
    name, behind = f"segment{number}", f"segment{number + 1}"
    return Joint(name, behind, anchor, secondary=secondary, x=(-60.0, 60.0), y=60.0)


def _socket(eye: str) -> Joint:
    origin = (0.0, 0.0, 0.0)
    return Joint(eye, "segment0", origin, x=(-180.0, 180.0), y=180.0, z=180.0, is_driven=False)


WORM = Creature(
    bodies=[
        Body("segment0", 10.0, Capsule(0.37, 2.0, ALONG_Z), drag=0.0),
        _segment(1, 0.33, 1.50, -1.3163, 0.0001),
        _segment(2, 0.28, 1.48, -2.4410),
        _segment(3, 0.26, 1.46, -3.5570),
        _eye("eyeR", (0.289, 0.04, 0.648)),
        _eye("eyeL", (-0.27, 0.101, 0.598)),
        Body("mouth", 1.0, Sphere(0.310834), (-0.0202, -0.0345, 0.9859), drag=0.0),
    ],
    joints=[
        _bend(0, (0.0, 0.0, -0.8), (0.0, 1.0, 0.0)),
        _socket("eyeL"),
        _bend(2, (0.0, -0.55, 0.0), (0.0, 0.0, -1.0)),
        _bend(1, (0.0, -0.55, 0.0), (0.0, 0.0, -1.0)),
        _socket("eyeR"),
        Joint("mouth", "segment0", (0.0, 0.0, 0.0), is_driven=False),
    ],
    spring=3000.0,
    damper=30.0,
    max_force=10000.0,
    start_height=1.65,
    ground_height=0.5,
)
HEAD = 0
SEGMENTS = np.arange(4)


class Worm(CreatureWorld):
    """Ten worms of four segments, with eyes and a mouth, each on its own ground.

    Observations: 64 numbers: height of the head above the ground, 1 for 10 m or more (1); requested
        velocity in the orientation frame (3); angle between head and frame, 1 for 180 degrees (1);
        turn from the head's forward direction to that of the frame (quaternion, 4); target in the
        frame (3). Then of each segment, from the head on: whether it touches the ground (1);
        velocity and angular velocity in the frame (3, 3); except of the head, position relative to
        the head in the frame (3) and quaternion relative to the segment before (4); and, except of
        the last one, strength (1). The frame is where the head was a step ago, level, and looks at
        the target.
    Actions: 9 continuous, clipped to -1..1. Targets of the three joints, up and sideways (-60 to 60
        degrees each), then their strengths.
    Decisions: every 5 steps of 0.01333 s.
    Reward: per step, a product of two parts from 0 to 1: how well the head's velocity matches 10
        m/s to the target, and how small the angle between head and frame is. The second part is 0
        for angles of 30 degrees and more.
    Ends: when the head is more than 2 m below its start.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Start: stretched out above the ground, at a random turn. A target that the mouth touches appears
        elsewhere within 40 m of the center.
    Parameters: `gravity` 14.715 m/s2.
    A good policy reaches 800.

    Bodies move as in Unity's physics engine; the solver reproduces recorded steps of it.
    """

    behavior_name = "Worm?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(64, "VectorSensor_size64")], ActionSpec.create_continuous(9)
    )
    creature = WORM
    targets = (("segment0", 2), ("segment1", 2), ("segment2", 2))
    strengths = ("segment0", "segment1", "segment2")
    touching_bodies = ("mouth",)
    speeds_m_s = (SPEED_M_S, SPEED_M_S)
    default_parameters: ClassVar[Mapping[str, float]] = CreatureWorld.default_parameters

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        bodies, n = self.creatures, self.n_agents
        velocity = self.in_frame(bodies.velocity[:, SEGMENTS])
        spin = self.in_frame(bodies.spin[:, SEGMENTS])
        offset = self.in_frame(bodies.position[:, SEGMENTS] - bodies.position[:, HEAD, None])
        rotation = bodies.rotation[:, SEGMENTS]
        turns = relative(rotation[:, 1:], rotation[:, :-1])
        touching = bodies.touching[:, SEGMENTS].astype(np.float64)
        wanted = np.zeros((n, 3))
        wanted[:, 2] = self.goal_speed
        parts = [
            self.height(HEAD)[:, None],
            wanted,
            self.angle_to_frame()[:, None] / 180.0,
            self.turn_to_frame(HEAD),
            self.in_frame(self.target - self.frame_origin),
        ]
        for k in range(4):
            parts += [touching[:, k, None], velocity[:, k], spin[:, k]]
            if k > 0:
                parts += [offset[:, k], turns[:, k - 1]]
            if k < 3:
                parts.append(self.given_strength[:, k, None])
        return [np.concatenate(parts, axis=1, dtype=np.float32)[agents]]

    def angle_to_frame(self) -> Array:
        """Return (N,) angles between head and frame, in degrees."""
        turn = relative(self.creatures.rotation[:, HEAD], self.frame())
        angle: Array = 2.0 * np.degrees(np.arccos(np.minimum(np.abs(turn[:, 3]), 1.0)))
        return angle

    def judge(self) -> Array:
        """Return how well speed and direction match."""
        angle = self.angle_to_frame()
        facing = np.where(angle < LARGEST_ANGLE_DEGREES, 1.0 - angle / 180.0, 0.0)
        reward: Array = self.speed_match(self.creatures.velocity[:, HEAD]) * facing
        return reward

    def hopeless(self) -> BoolArray:
        """Return (N,) bool: whose head has fallen off the ground."""
        fallen: BoolArray = (
            self.creatures.position[:, HEAD, 1] < self.creature.start_height - DEEPEST_FALL_M
        )
        return fallen
