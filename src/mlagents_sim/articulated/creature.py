"""The data of a creature: its bodies, their shapes and the joints between them.

All values are in Unity's frame: left-handed, x right, y up, z forward; meters, kilograms, seconds.
A creature is described in its start pose, relative to its first body.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_sim.articulated.rotations import (
    IDENTITY,
    Array,
    conjugate,
    from_axes,
    from_euler,
    multiply,
    rotate,
)

Vector = tuple[float, float, float]

ZERO: Vector = (0.0, 0.0, 0.0)
LOCKED, LIMITED, FREE = range(3)
"""Kinds of rotation of a joint about one of its axes."""
LIMIT_PAD_RAD = 0.1
"""Angle from a limit within which the limit acts on the speed."""


class Sphere(NamedTuple):
    """A solid sphere."""

    radius: float
    center: Vector = ZERO


class Capsule(NamedTuple):
    """A solid capsule. Its length includes both caps."""

    radius: float
    length: float
    axis: Vector = (0.0, 1.0, 0.0)
    center: Vector = ZERO


class Box(NamedTuple):
    """A solid box along the axes of its body."""

    half: Vector
    center: Vector = ZERO


class Intangible(NamedTuple):
    """A solid of any shape without collisions.

    Attributes:
        moments: Moments of inertia about the center of mass, along the axes of the body.
        center: Center of mass.
    """

    moments: Vector
    center: Vector = ZERO


Shape = Sphere | Capsule | Box | Intangible


class Body(NamedTuple):
    """A rigid body with one shape of even density.

    Attributes:
        name: Name, unique within the creature.
        mass: Mass in kg.
        shape: Shape for collisions and inertia.
        position: Position of the body's origin in the start pose, relative to the first body.
        euler: Unity's Euler angles in the start pose, in degrees.
        drag: Fraction of the velocity lost per second.
        angular_drag: Fraction of the angular velocity lost per second.
    """

    name: str
    mass: float
    shape: Shape
    position: Vector = ZERO
    euler: Vector = ZERO
    drag: float = 0.05
    angular_drag: float = 0.05


class Joint(NamedTuple):
    """A joint between a child and its parent, as Unity's configurable joint.

    The joint's frame has the axes X, Y (as near to `secondary` as possible) and Z. A positive angle
    rotates the child against the axis, as in Unity.

    Attributes:
        child: Name of the body that has the joint.
        parent: Name of the parent body; "" for the world.
        anchor: Position of the joint in the child.
        axis: Direction of X in the child.
        secondary: Direction of Y in the child.
        x: Lowest and highest angle about X, in degrees; None if locked.
        y: Largest angle about Y in either direction; 0 if locked.
        z: Largest angle about Z in either direction; 0 if locked. If both Y and Z are limited, the
            limit is a cone with an elliptic base.
        is_driven: Whether a drive rotates the joint to a target.
    """

    child: str
    parent: str
    anchor: Vector
    axis: Vector = (1.0, 0.0, 0.0)
    secondary: Vector = (0.0, 1.0, 0.0)
    x: tuple[float, float] | None = None
    y: float = 0.0
    z: float = 0.0
    is_driven: bool = True

    @property
    def motions(self) -> tuple[int, int, int]:
        """Return `LOCKED`, `LIMITED` or `FREE` for each axis."""

        def motion(largest: float) -> int:
            return LOCKED if largest == 0.0 else LIMITED if largest < 180.0 else FREE

        widest = 0.0 if self.x is None else (self.x[1] - self.x[0]) / 2.0
        return motion(widest), motion(self.y), motion(self.z)


class Creature(NamedTuple):
    """Bodies and joints of one creature.

    Attributes:
        bodies: Bodies; the first one is the root of the start pose.
        joints: Joints, in the order in which Unity creates them. The order affects the motion,
            because the solver does not converge.
        spring: Stiffness of every drive.
        damper: Damping of every drive.
        max_force: Largest force of every drive at full strength.
        start_height: Height of the first body in the start pose.
        ground_height: Height of the ground.
        no_contact: Pairs of bodies that pass through each other, in addition to jointed bodies.
    """

    bodies: Sequence[Body]
    joints: Sequence[Joint]
    spring: float
    damper: float
    max_force: float
    start_height: float = 0.0
    ground_height: float = 0.0
    no_contact: Sequence[tuple[str, str]] = ()

    @property
    def body_index(self) -> Mapping[str, int]:
        """Return the index of each body by name."""
        return {body.name: i for i, body in enumerate(self.bodies)}


class Model:
    """A creature as arrays, in the order in which the solver takes its joints.

    Letters in shapes: B bodies, J joints. The world counts as body B, with an inverse mass of 0.

    Args:
        creature: Creature.

    Attributes:
        creature: Creature.
        inverse_mass: (B + 1,) inverse masses.
        inverse_inertia: (B + 1, 3) inverse moments of inertia about the bodies' own axes.
        center_of_mass: (B + 1, 3) centers of mass in the bodies.
        drag, angular_drag: (B + 1,) fractions of the velocities that are lost per second. start:
        (B, 7) positions, relative to the first body, and quaternions of the start pose. order: (J,)
        indices into the creature's joints, in the order of the solver. child, parent: (J,) bodies
        of the joints, in this order. motions: (J, 3) motions about X, Y and Z.
        child_anchor, parent_anchor: (J, 3) positions of the joints in their bodies. child_frame,
        parent_frame: (J, 4) frames of the joints in their bodies. limits: (J, 4) lowest and highest
        angle about X, largest about Y and Z, in rad. is_driven: (J,) whether a drive acts. pairs:
        (P, 2) pairs of bodies that can touch each other.

    Raises:
        UnityEnvironmentException: A joint names a body that does not exist.
    """

    def __init__(self, creature: Creature) -> None:
        self.creature = creature
        bodies, index = creature.bodies, creature.body_index
        for joint in creature.joints:
            for name in {joint.child, joint.parent} - {"", *index}:
                raise UnityEnvironmentException(
                    f"joint of body {joint.child!r}: there is no body {name!r}. The bodies are "
                    f"{list(index)}."
                )
        n = len(bodies)
        self.inverse_mass = np.array([1.0 / body.mass for body in bodies] + [0.0])
        moments = [moments_of_inertia(body.shape, body.mass) for body in bodies]
        self.inverse_inertia = np.vstack([1.0 / np.array(moments), np.zeros(3)])
        self.center_of_mass = np.array([body.shape.center for body in bodies] + [ZERO])
        self.drag = np.array([body.drag for body in bodies] + [0.0])
        self.angular_drag = np.array([body.angular_drag for body in bodies] + [0.0])
        self.start = np.array([[*body.position, *from_euler(body.euler)] for body in bodies])

        parents = [index.get(joint.parent, n) for joint in creature.joints]
        children = [index[joint.child] for joint in creature.joints]
        self.order = np.array(solving_order(list(zip(children, parents, strict=True)), n), np.intp)
        joints = [creature.joints[i] for i in self.order]
        self.child = np.array(children, np.intp)[self.order]
        self.parent = np.array(parents, np.intp)[self.order]
        self.motions = np.array([joint.motions for joint in joints], np.intp).reshape(-1, 3)
        self.is_driven = np.array([joint.is_driven for joint in joints], np.bool_)
        angles = [[*(joint.x or (0.0, 0.0)), joint.y, joint.z] for joint in joints]
        self.limits = np.radians(np.array(angles).reshape(-1, 4))
        place = np.vstack([self.start[:, :3], np.zeros(3)])
        turn = np.vstack([self.start[:, 3:], IDENTITY])
        self.child_anchor = np.array([joint.anchor for joint in joints]).reshape(-1, 3)
        self.child_frame = np.array(
            [from_axes(joint.axis, joint.secondary) for joint in joints]
        ).reshape(-1, 4)
        at = place[self.child] + rotate(turn[self.child], self.child_anchor)
        away = conjugate(turn[self.parent])
        self.parent_anchor = rotate(away, at - place[self.parent])
        self.parent_frame = multiply(away, multiply(turn[self.child], self.child_frame))

        apart = {frozenset((index[a], index[b])) for a, b in creature.no_contact}
        apart |= {frozenset(pair) for pair in zip(children, parents, strict=True)}
        round_bodies = [i for i in range(n) if isinstance(bodies[i].shape, Sphere | Capsule)]
        self.pairs = np.array(
            [(a, b) for a in round_bodies for b in round_bodies if a < b and {a, b} not in apart],
            np.intp,
        ).reshape(-1, 2)

    @cached_property
    def shape_axes(self) -> Array:
        """(B, 3) vectors from the centers of capsules to the centers of a cap; 0 for spheres."""
        axes = np.zeros((len(self.creature.bodies), 3))
        for axis, body in zip(axes, self.creature.bodies, strict=True):
            if isinstance(body.shape, Capsule):
                half_length = body.shape.length / 2 - body.shape.radius
                axis[:] = np.multiply(body.shape.axis, half_length)
        return axes

    @cached_property
    def radius(self) -> Array:
        """(B,) radii of spheres and capsules; 0 for boxes."""
        return np.array([getattr(body.shape, "radius", 0.0) for body in self.creature.bodies])

    @cached_property
    def half(self) -> Array:
        """(B, 3) half extents of boxes; 0 for spheres and capsules."""
        return np.array([getattr(body.shape, "half", ZERO) for body in self.creature.bodies])


def moments_of_inertia(shape: Shape, mass: float) -> Vector:
    """Return the moments of inertia about the shape's center, along the axes of its body."""
    if isinstance(shape, Intangible):
        return shape.moments
    if isinstance(shape, Sphere):
        moment = 0.4 * mass * shape.radius**2
        return moment, moment, moment
    if isinstance(shape, Box):
        x, y, z = (mass / 3.0 * half**2 for half in shape.half)
        return y + z, x + z, x + y
    radius, middle = shape.radius, shape.length - 2.0 * shape.radius
    cylinder = mass * middle / (middle + 4.0 / 3.0 * radius)
    caps = mass - cylinder
    along = (cylinder / 2.0 + caps * 0.4) * radius**2
    across = cylinder * (middle**2 / 12.0 + radius**2 / 4.0) + caps * (
        0.4 * radius**2 + middle**2 / 4.0 + 3.0 / 8.0 * middle * radius
    )
    x, y, z = (across + (along - across) * abs(part) for part in shape.axis)
    return x, y, z


def solving_order(joints: Sequence[tuple[int, int]], world: int) -> list[int]:
    """Return the indices of joints in the order in which Unity's engine solves them.

    The engine takes the joints from the last created to the first and puts each into the     first
    batch in which neither of its bodies occurs. It then solves the batches in order.

    Args:
        joints: Bodies of every joint, in the order of creation.
        world: Index that stands for the world, which may occur any number of times in a batch.
    """
    batches: list[tuple[set[int], list[int]]] = []
    for joint in reversed(range(len(joints))):
        bodies = set(joints[joint]) - {world}
        for used, members in batches:
            if not used & bodies:
                used |= bodies
                members.append(joint)
                break
        else:
            batches.append((bodies, [joint]))
    return [joint for _, members in batches for joint in members]


def quarter_tangent(angle: float) -> float:
    """Return the tangent of a quarter of an angle, the measure of limits."""
    return math.tan(angle / 4.0)
