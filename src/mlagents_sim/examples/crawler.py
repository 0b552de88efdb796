"""Crawler: a creature on four legs runs to a target at a requested speed."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, FloatArray, ObservationSpec
from mlagents_sim.articulated.creature import Body, Capsule, Creature, Joint, Sphere
from mlagents_sim.articulated.rotations import Array
from mlagents_sim.creatures import CreatureWorld, relative
from mlagents_sim.world import Agents

LEGS = {"0": (1, -1, -45.0), "1": (-1, -1, 45.0), "2": (-1, 1, 135.0), "3": (1, 1, -135.0)}
"""Direction of each leg to the right and ahead, and its turn."""


def _limb(leg: str, name: str, *, mass: float, length: float, distance: float) -> Body:
    """Return a part of a leg, `distance` away from the body along the diagonal."""
    right, ahead, yaw = LEGS[leg]
    aside = distance * math.sqrt(0.5)
    place = (right * aside, -0.15, ahead * aside)
    return Body(name + leg, mass, Capsule(0.15, length), place, (-90.0, yaw, 0.0))


def _hip(leg: str) -> Joint:
    return Joint(
        f"leg{leg}", "body", (0.0, -0.5, 0.0), secondary=(0.0, 0.0, -1.0), x=(-60.0, 0.0), y=20.0
    )


def _knee(leg: str) -> Joint:
    return Joint(
        f"foreleg{leg}", f"leg{leg}", (0.0, -0.75, 0.0), secondary=(0.0, 0.0, -1.0), x=(0.0, 150.0)
    )


CRAWLER = Creature(
    bodies=[
        Body("body", 20.0, Sphere(0.5)),
        *(
            limb
            for leg in LEGS
            for limb in (
                _limb(leg, "leg", mass=2.0, length=0.95, distance=0.9),
                _limb(leg, "foreleg", mass=1.0, length=1.5, distance=1.98),
            )
        ),
    ],
    joints=[
        _knee("0"),
        _knee("3"),
        _knee("2"),
        _hip("2"),
        _hip("3"),
        _hip("1"),
        _hip("0"),
        _knee("1"),
    ],
    spring=40000.0,
    damper=5000.0,
    max_force=20000.0,
    start_height=2.656,
    ground_height=0.5,
)
BODY = 0
LIMBS = np.arange(1, 9)
PARENTS = np.array([0, 1, 0, 3, 0, 5, 0, 7])
"""Bodies that the limbs are tied to."""
STRENGTH_OF = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Among the chosen strengths, that of each limb."""


class Crawler(CreatureWorld):
    """Ten creatures with four legs of two parts each, each on its own ground.

    Observations: 126 numbers: of body, leg 0, foreleg 0, leg 1 and so on, position (3) and
        quaternion (4) in the orientation frame; then their velocities (3 each) in the frame; then
        their quaternions (4 each) relative to the body that they are tied to, and of the body
        relative to the frame. The frame is where the body was a step ago, level, and looks at the
        target. Then 32 numbers: difference between requested and mean velocity (1); mean velocity
        of all parts and requested velocity, in the frame (3, 3); turn from the body's forward
        direction to that of the frame (quaternion, 4); target in the frame (3); height above the
        ground, 1 for 10 m or more (1); then of the body whether it touches the ground (1), and of
        leg 0, foreleg 0, leg 1 and so on whether it does, and its strength (2 each).
    Actions: 20 continuous, clipped to -1..1. Targets of the joints from their lowest to their
        highest angle: legs 0 to 3 up (-60 to 0 degrees) and sideways (-20 to 20) each, forelegs 0
        to 3 down (0 to 150). Then the strengths of legs 0 to 3 and of forelegs 0 to 3.
    Decisions: every 5 steps of 0.01333 s.
    Reward: per step, a product of two parts from 0 to 1: how well the mean velocity matches the
        requested one, and how well the body looks at the target; -1 for a fall.
    Ends: when the body or a leg touches the ground; forelegs may.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Start: all legs stretched out, at a random turn; the requested speed is 0.1 to 15 m/s. A target
        that is touched appears elsewhere within 40 m of the center.
    Parameters: `gravity` 14.715 m/s2.
    A good policy reaches 3000.

    Bodies move as in Unity's physics engine; the solver reproduces recorded steps of it.
    """

    behavior_name = "Crawler?team=0"
    behavior_spec = BehaviorSpec(
        [
            ObservationSpec.vector(126, "PhysicsBodySensor:Body"),
            ObservationSpec.vector(32, "VectorSensor_size32"),
        ],
        ActionSpec.create_continuous(20),
    )
    creature = CRAWLER
    targets = (*((f"leg{i}", 2) for i in range(4)), *((f"foreleg{i}", 1) for i in range(4)))
    strengths = (*(f"leg{i}" for i in range(4)), *(f"foreleg{i}" for i in range(4)))
    fatal = ("body", "leg0", "leg1", "leg2", "leg3")
    speeds_m_s = (0.1, 15.0)
    default_parameters: ClassVar[Mapping[str, float]] = CreatureWorld.default_parameters

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        bodies, n = self.creatures, self.n_agents
        pose = np.empty((n, 9, 7), np.float32)
        pose[..., :3] = self.in_frame(bodies.position - self.frame_origin[:, None])
        turns = self.turned_in_frame(bodies.rotation)
        pose[..., 3:] = turns
        velocity = self.in_frame(bodies.velocity)
        turns[:, LIMBS] = relative(bodies.rotation[:, LIMBS], bodies.rotation[:, PARENTS])

        mean = velocity.mean(axis=1)
        wanted = np.zeros((n, 3))
        wanted[:, 2] = self.goal_speed
        limbs = np.empty((n, 8, 2))
        limbs[..., 0] = bodies.touching[:, LIMBS]
        limbs[..., 1] = self.given_strength[:, STRENGTH_OF]
        parts: list[Array] = [
            np.linalg.norm(wanted - mean, axis=1)[:, None],
            mean,
            wanted,
            self.turn_to_frame(BODY),
            self.in_frame(self.target - self.frame_origin),
            self.height(BODY)[:, None],
            bodies.touching[:, BODY, None].astype(np.float64),
            limbs.reshape(n, 16),
        ]
        seen: list[NDArray[np.floating]] = [
            pose.reshape(n, 63),
            velocity.reshape(n, 27),
            turns.reshape(n, 36),
        ]
        return [
            np.concatenate(seen, axis=1, dtype=np.float32)[agents],
            np.concatenate(parts, axis=1, dtype=np.float32)[agents],
        ]

    def judge(self) -> Array:
        """Return how well speed and direction match."""
        facing = (self.facing(BODY) + 1.0) / 2.0
        return self.speed_match(self.creatures.velocity.mean(axis=1)) * facing
