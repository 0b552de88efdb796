"""Contacts of spheres, capsules and boxes with the ground and of round shapes with each other.

A contact of two bodies has up to four points. Each point gets a row that keeps the bodies apart.
Friction acts at two of the points, the anchors. Each anchor may use the friction of the whole
force between the bodies, so that a box on its face and a lying capsule feel friction twice.
"""

from typing import NamedTuple

import numpy as np

from mlagents_envs.base_env import BoolArray
from mlagents_sim.articulated.creature import Box, Capsule, Model
from mlagents_sim.articulated.rotations import Array, cross, dot, rotate
from mlagents_sim.articulated.rows import Bodies, Row

CONTACT_DISTANCE_M = 0.02
"""Distance below which two shapes are in contact: twice Unity's contact offset of 0.01 m."""
FRICTION = 0.6
PUSH_OUT = 0.8
"""Fraction of a penetration that is corrected in a step."""
SLOW_M_S = 0.01
"""Sliding speed below which the direction of friction is arbitrary."""
UP = np.array([0.0, 1.0, 0.0])


class Contact(NamedTuple):
    """Rows of one contact.

    Attributes:
        presses: Normal rows, one for each point.
        rubs: Friction rows.
    """

    presses: list[Row]
    rubs: list[Row]

    def solve(self, bodies: Bodies, *, is_steady: bool, has_friction: bool) -> None:
        """Solve the rows in order."""
        for press in self.presses:
            press.solve(bodies, press.steady_bias if is_steady else press.bias)
        if has_friction:
            largest = FRICTION * np.sum([press.impulse for press in self.presses], axis=0)
            for rub in self.rubs:
                rub.lowest, rub.highest = -largest, largest
                rub.solve(bodies, rub.bias)


def ground_points(model: Model, body: int, center: Array, rotation: Array) -> tuple[Array, Array]:
    """Return the points of a body that may touch the ground.

    Args:
        model: Creature.
        body: Index of the body.
        center: (N, 3) centers of mass, which are also the centers of the shapes.
        rotation: (N, 4) rotations.

    Returns:
        (K, N, 3) lowest points of a sphere, of a capsule's caps, or corners of a box's lowest
        face in a circle; and (K, N) distances of these points from the ground.
    """
    shape = model.creature.bodies[body].shape
    if isinstance(shape, Box):
        edges = [
            half * rotate(rotation, np.broadcast_to(axis, center.shape))
            for half, axis in zip(shape.half, np.eye(3), strict=True)
        ]  # (3, N, 3) from the center to the faces
        steepness = [
            np.abs(edge[:, 1]) / half for edge, half in zip(edges, shape.half, strict=True)
        ]
        lowest = np.argmax(steepness, axis=0)  # (N,) axis of the face that looks down
        chosen = [np.choose(((lowest + k) % 3)[:, None], edges) for k in range(3)]
        face = center - np.sign(chosen[0][:, 1:2]) * chosen[0]
        a, b = chosen[1], chosen[2]
        points = np.stack([face + a + b, face + a - b, face - a - b, face - a + b])
    else:
        points = center[None]
        if isinstance(shape, Capsule):
            axis = rotate(rotation, np.broadcast_to(model.shape_axes[body], center.shape))
            points = np.stack([center + axis, center - axis])
        points = points - model.radius[body] * UP
    return points, points[..., 1] - model.creature.ground_height


def ground_contact(
    model: Model, body: int, bodies: Bodies, *, center: Array, rotation: Array, step_s: float
) -> tuple[Contact, BoolArray]:
    """Return the contact of a body with the ground, and (N,) whether there is one."""
    points, distances = ground_points(model, body, center, rotation)
    acts = distances < CONTACT_DISTANCE_M
    normal = np.broadcast_to(UP, center.shape)
    world = len(bodies.inverse_mass) - 1
    presses = [
        _press(body, world, bodies, normal, point - center, point, distance, is_active, step_s)
        for point, distance, is_active in zip(points, distances, acts, strict=True)
    ]
    rubs = []
    for at, is_anchor in _anchors(points, acts):
        for direction in _tangents(normal, bodies.velocity[body]):
            rubs.append(_rub(body, world, bodies, direction, at - center, at, is_anchor))
    touches: BoolArray = np.logical_or.reduce(acts)
    return Contact(presses, rubs), touches


def pair_contact(
    model: Model,
    pair: tuple[int, int],
    bodies: Bodies,
    *,
    center: Array,
    rotation: Array,
    step_s: float,
) -> Contact:
    """Return the contact of two spheres or capsules of the same creature."""
    a, b = pair
    axis_a, axis_b = (
        rotate(rotation[i], np.broadcast_to(model.shape_axes[i], center[i].shape)) for i in pair
    )
    along_a, along_b = nearest_points(center[a] - center[b], axis_a, axis_b)
    at_a, at_b = center[a] + along_a[:, None] * axis_a, center[b] + along_b[:, None] * axis_b
    apart = at_a - at_b
    length = np.sqrt(dot(apart, apart))
    distance = length - model.radius[a] - model.radius[b]
    acts = (distance < CONTACT_DISTANCE_M) & (length > 1e-9)
    normal = np.where(acts[:, None], apart / np.where(acts, length, 1.0)[:, None], UP)
    point = at_b + (model.radius[b] + 0.5 * distance)[:, None] * normal
    from_a, from_b = point - center[a], point - center[b]
    press = _press(a, b, bodies, normal, from_a, from_b, distance, acts, step_s)
    slip = bodies.velocity[a] - bodies.velocity[b]
    rubs = [
        _rub(a, b, bodies, direction, from_a, from_b, acts) for direction in _tangents(normal, slip)
    ]
    return Contact([press], rubs)


def nearest_points(offset: Array, axis_a: Array, axis_b: Array) -> tuple[Array, Array]:
    """Return the nearest points of two segments, as positions from -1 to 1 along each.

    Args:
        offset: (N, 3) from the middle of b to the middle of a.
        axis_a: (N, 3) from the middle of a to its end; 0 for a point.
        axis_b: (N, 3) from the middle of b to its end; 0 for a point.
    """

    def over(numerator: Array, denominator: Array) -> Array:
        is_large = denominator > 1e-12
        return np.where(is_large, numerator / np.where(is_large, denominator, 1.0), 0.0)

    aa, bb, ab = dot(axis_a, axis_a), dot(axis_b, axis_b), dot(axis_a, axis_b)
    a, b = dot(offset, axis_a), dot(offset, axis_b)
    first = np.clip(over(ab * b - bb * a, aa * bb - ab * ab), -1.0, 1.0)
    along_b = np.clip(over(ab * first + b, bb), -1.0, 1.0)
    along_a = np.clip(over(ab * along_b - a, aa), -1.0, 1.0)
    return along_a, along_b


def _press(
    a: int,
    b: int,
    bodies: Bodies,
    normal: Array,
    from_a: Array,
    from_b: Array,
    distance: Array,
    acts: BoolArray,
    step_s: float,
) -> Row:
    """Return the row that keeps two bodies apart at a point."""
    is_deep = distance <= 0.0
    error = np.where(is_deep, PUSH_OUT * distance, distance)
    row = Row(a, b, normal, cross(from_a, normal), cross(from_b, normal), error)
    row.respond(bodies)
    row.demand_at_least_zero(step_s, acts)
    return row


def _rub(
    a: int, b: int, bodies: Bodies, direction: Array, from_a: Array, from_b: Array, acts: BoolArray
) -> Row:
    """Return the row that keeps two bodies from sliding in one direction."""
    still = np.zeros(len(direction))
    row = Row(a, b, direction, cross(from_a, direction), cross(from_b, direction), still)
    row.respond(bodies)
    row.demand(1.0)
    row.gain = np.where(acts, row.gain, 0.0)
    return row


def _anchors(points: Array, acts: BoolArray) -> list[tuple[Array, BoolArray]]:
    """Return the anchors of friction, the two points farthest apart, and whether each acts.

    Args:
        points: (K, N, 3) points of a contact: 1, 2, or 4 in circular order.
        acts: (K, N) whether each point touches.
    """
    if len(points) < 4:
        return list(zip(points, acts, strict=True))
    n_points = len(points)
    diagonal = [acts[k] & acts[k + 2] for k in range(2)]
    first = np.argmax(acts, axis=0)
    last = n_points - 1 - np.argmax(acts[::-1], axis=0)
    one = np.where(diagonal[0], 0, np.where(diagonal[1], 1, first))
    two = np.where(diagonal[0], 2, np.where(diagonal[1], 3, last))
    creatures = np.arange(points.shape[1])
    any_acts: BoolArray = np.logical_or.reduce(acts)
    return [
        (points[one, creatures], any_acts),
        (points[two, creatures], any_acts & (one != two)),
    ]


def _tangents(normal: Array, slip: Array) -> tuple[Array, Array]:
    """Return two directions of friction: along the sliding of the bodies' centers, and across."""
    sliding = slip - dot(normal, slip)[:, None] * normal
    is_sliding = dot(sliding, sliding) > SLOW_M_S**2
    x, y, z = normal.T
    zero = np.zeros_like(x)
    is_upright = np.abs(x) < np.sqrt(0.5)
    any_tangent = np.where(
        is_upright[:, None], np.stack([zero, -z, y], axis=1), np.stack([-y, x, zero], axis=1)
    )
    first = np.where(is_sliding[:, None], sliding, any_tangent)
    first = first / np.sqrt(dot(first, first))[:, None]
    return first, cross(normal, first)
