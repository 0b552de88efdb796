"""Walker: a humanoid walks to a target at a requested speed."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, FloatArray, ObservationSpec
from mlagents_sim.articulated.creature import Body, Box, Capsule, Creature, Joint, Sphere, Vector
from mlagents_sim.articulated.rotations import Array
from mlagents_sim.creatures import CreatureWorld, relative
from mlagents_sim.world import Agents

RIGHT, LEFT, UP = (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
AHEAD, BACK, ORIGIN = (0.0, 0.0, 1.0), (0.0, 0.0, -1.0), (0.0, 0.0, 0.0)
SIDES = {"L": -1, "R": 1}


def _leg(side: str) -> list[Body]:
    x = 0.132 * SIDES[side]
    sole = Box((0.063924, 0.021525, 0.115012), (0.0, -0.000218, 0.032833))
    return [
        Body("thigh" + side, 14.0, Capsule(0.09, 0.30), (x, -0.264, 0.0)),
        Body("shin" + side, 7.0, Capsule(0.06, 0.32), (x, -0.594, 0.0)),
        Body("foot" + side, 5.0, sole, (x, -0.792, 0.0)),
    ]


def _arm(side: str) -> list[Body]:
    sign, height = SIDES[side], 0.49104
    return [
        Body("arm" + side, 4.0, Capsule(0.08, 0.33, RIGHT), (sign * 0.4125, height, 0.0)),
        Body("forearm" + side, 3.0, Capsule(0.08, 0.30, RIGHT), (sign * 0.7425, height, 0.0)),
        Body("hand" + side, 2.0, Sphere(0.08), (sign * 0.9735, height, 0.0)),
    ]


def _thigh(side: str) -> Joint:
    return Joint("thigh" + side, "hips", (0.0, 0.16, 0.0), LEFT, BACK, (-90.0, 60.0), 40.0)


def _shin(side: str) -> Joint:
    return Joint("shin" + side, "thigh" + side, (0.0, 0.17, 0.0), LEFT, BACK, (0.0, 120.0))


def _foot(side: str) -> Joint:
    anchor, limits = (0.0, 0.03, 0.0), (-20.0, 20.0)
    return Joint("foot" + side, "shin" + side, anchor, RIGHT, UP, limits, 20.0, 20.0)


def _bend(name: str, parent: str, anchor: Vector) -> Joint:
    """Return a joint of the back."""
    return Joint(name, parent, anchor, RIGHT, BACK, (-20.0, 20.0), 20.0, 15.0)


def _shoulder(side: str) -> Joint:
    sign = float(SIDES[side])
    anchor, axis = (-0.18 * sign, 0.0, 0.0), (0.0, sign, 0.0)
    return Joint("arm" + side, "chest", anchor, axis, AHEAD, (-60.0, 120.0), 100.0)


def _forearm(side: str) -> Joint:
    sign = float(SIDES[side])
    anchor, axis = (-0.16 * sign, 0.0, 0.0), (0.0, sign, 0.0)
    return Joint("forearm" + side, "arm" + side, anchor, axis, AHEAD, (0.0, 160.0))


WALKER = Creature(
    bodies=[
        Body("hips", 15.0, Capsule(0.10, 0.42, RIGHT)),
        Body("chest", 8.0, Capsule(0.13, 0.45, RIGHT), (0.0, 0.49104, 0.0)),
        Body("spine", 10.0, Capsule(0.08, 0.36, RIGHT), (0.0, 0.22539, 0.0)),
        Body("head", 6.0, Sphere(0.22), (0.0, 0.9405, 0.0)),
        *(body for side in SIDES for body in _leg(side)),
        *(body for side in SIDES for body in _arm(side)),
    ],
    joints=[
        _bend("spine", "hips", (0.0, -0.10, 0.0)),
        _foot("R"),
        _forearm("R"),
        Joint("handL", "forearmL", ORIGIN, is_driven=False),
        _foot("L"),
        _shin("L"),
        _thigh("R"),
        Joint("head", "chest", (0.0, -0.28, 0.0), RIGHT, BACK, (-30.0, 10.0), 20.0),
        _shoulder("L"),
        _thigh("L"),
        _shin("R"),
        _forearm("L"),
        Joint("handR", "forearmR", ORIGIN, is_driven=False),
        _shoulder("R"),
        _bend("chest", "spine", (0.0, -0.16, 0.0)),
    ],
    spring=40000.0,
    damper=5000.0,
    max_force=20000.0,
    start_height=0.953,
    ground_height=0.125,
)
NAMES = [body.name for body in WALKER.bodies]
HIPS, HEAD = NAMES.index("hips"), NAMES.index("head")
STRENGTHS = (
    *("chest", "spine", "head", "thighL", "shinL", "footL", "thighR", "shinR", "footR"),
    *("armL", "forearmL", "armR", "forearmR"),
)
DRIVEN = np.array([i for i, name in enumerate(NAMES) if name in STRENGTHS])
PARENT_OF = {joint.child: joint.parent for joint in WALKER.joints}
PARENTS = np.array([NAMES.index(PARENT_OF[NAMES[i]]) for i in DRIVEN])
STRENGTH_OF = np.array([STRENGTHS.index(NAMES[i]) for i in DRIVEN])
COLUMNS = np.cumsum([0, *(15 if i in DRIVEN else 10 for i in range(len(NAMES)))])[:-1]
"""First number of each body in the last part of the observation."""


class Walker(CreatureWorld):
    """Ten humanoids of 16 bodies, each on its own ground.

    Observations: 243 numbers: difference between requested and mean velocity (1); mean velocity of
        all bodies and requested velocity, in the orientation frame (3, 3); turns from the forward
        directions of hips and head to that of the frame (quaternions, 4 each); target in the frame
        (3). Then of hips, chest, spine, head, left thigh, shin and foot, the right ones, left arm,
        forearm and hand, and the right ones: whether it touches the ground (1); velocity, angular
        velocity and position relative to the hips, in the frame (3, 3, 3); and, except of hips and
        hands, quaternion relative to the body that it is tied to (4) and strength (1). The frame is
        where the hips were a step ago, level, and looks at the target.
    Actions: 39 continuous, clipped to -1..1. Targets of the joints from their lowest to their
        highest angle: chest x, y, z, spine x, y, z, left and right thigh x, y each, left and right
        shin x, right and left foot x, y, z each, left and right arm x, y each, left and right
        forearm x, head x, y. Then the strengths of chest, spine, head, left thigh, shin and foot,
        the right ones, left arm and forearm, and the right ones.
    Decisions: every 5 steps of 0.01333 s.
    Reward: per step, a product of two parts from 0 to 1: how well the mean velocity matches the
        requested one, and how well the head looks at the target; -1 for a fall.
    Ends: when any body other than a shin or a foot touches the ground.
    Interrupts: after 5000 steps, that is 1000 decisions.
    Start: upright with arms spread, at a random turn; the requested speed is 0.1 to 10 m/s. A
        target that is touched appears elsewhere within 9 m of the center.
    Parameters: `gravity` 14.715 m/s2; `hip_mass` 15 kg (7 to 28), `chest_mass` 8 kg (3 to 20) and
        `spine_mass` 10 kg (3 to 20).
    A good policy reaches 2500.

    Bodies move as in Unity's physics engine; the solver reproduces recorded steps of it. The
    default masses are those of Unity's scene. The current scene ignores the three mass parameters;
    this world applies them at the beginning of an episode.
    """

    behavior_name = "Walker?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(243, "VectorSensor_size243")], ActionSpec.create_continuous(39)
    )
    creature = WALKER
    targets = (
        *(("chest", 3), ("spine", 3), ("thighL", 2), ("thighR", 2), ("shinL", 1), ("shinR", 1)),
        *(("footR", 3), ("footL", 3), ("armL", 2), ("armR", 2), ("forearmL", 1), ("forearmR", 1)),
        ("head", 2),
    )
    strengths = STRENGTHS
    fatal = tuple(name for name in NAMES if not name.startswith(("shin", "foot")))
    target_radius_m = 9.0
    target_edge_m = 0.25
    speeds_m_s = (0.1, 10.0)
    default_parameters: ClassVar[Mapping[str, float]] = {
        **CreatureWorld.default_parameters,
        **{"hip_mass": 15.0, "chest_mass": 8.0, "spine_mass": 10.0},
    }
    parameter_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        **CreatureWorld.parameter_ranges,
        **{"hip_mass": (7.0, 28.0), "chest_mass": (3.0, 20.0), "spine_mass": (3.0, 20.0)},
    }
    masses: ClassVar = {"hip_mass": "hips", "chest_mass": "chest", "spine_mass": "spine"}

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        bodies, n = self.creatures, self.n_agents
        velocity = self.in_frame(bodies.velocity)
        mean = velocity.mean(axis=1)
        wanted = np.zeros((n, 3))
        wanted[:, 2] = self.goal_speed
        seen = np.empty((n, 243), np.float32)
        seen[:, 0] = np.linalg.norm(wanted - mean, axis=1)
        seen[:, 1:4], seen[:, 4:7] = mean, wanted
        seen[:, 7:11], seen[:, 11:15] = self.turn_to_frame(HIPS), self.turn_to_frame(HEAD)
        seen[:, 15:18] = self.in_frame(self.target - self.frame_origin)

        each = seen[:, 18:]
        each[:, COLUMNS] = bodies.touching
        offset = self.in_frame(bodies.position - bodies.position[:, HIPS, None])
        for first, vectors in ((1, velocity), (4, self.in_frame(bodies.spin)), (7, offset)):
            each[:, (COLUMNS + first)[:, None] + np.arange(3)] = vectors
        turns = relative(bodies.rotation[:, DRIVEN], bodies.rotation[:, PARENTS])
        each[:, (COLUMNS[DRIVEN] + 10)[:, None] + np.arange(4)] = turns
        each[:, COLUMNS[DRIVEN] + 14] = self.given_strength[:, STRENGTH_OF]
        return [seen[agents]]

    def judge(self) -> Array:
        """Return how well speed and direction match."""
        facing = (self.facing(HEAD) + 1.0) / 2.0
        return self.speed_match(self.creatures.velocity.mean(axis=1)) * facing
