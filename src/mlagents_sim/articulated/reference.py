"""One step of N creatures in NumPy: the readable form of the solver.

The solver follows Unity's engine iteration by iteration. With its stiff drives and few iterations,
joints come apart and drives yield, and creatures in Unity behave accordingly. The number of
iterations and the order of the rows are therefore part of the model.

    forces ─► rows of joints and contacts ─► 12 iterations with corrections ─► new positions
                                          └► 12 iterations without them ─► new velocities
"""

import numpy as np

from mlagents_envs.base_env import BoolArray
from mlagents_sim.articulated.contacts import Contact, ground_contact, pair_contact
from mlagents_sim.articulated.creature import Model
from mlagents_sim.articulated.joints import joint_rows
from mlagents_sim.articulated.rotations import (
    IDENTITY,
    Array,
    dot,
    multiply,
    normalized,
    rotate,
)
from mlagents_sim.articulated.rows import Bodies

ITERATIONS = 12
"""Iterations of each phase."""
FRICTION_ITERATIONS = 3
"""Number of iterations with friction, at the end of the first phase."""
MAX_SPIN_RAD_S = 50.0

POSITION, ROTATION, VELOCITY, SPIN = slice(0, 3), slice(3, 7), slice(7, 10), slice(10, 13)
"""Parts of a body's state."""


def step(
    model: Model,
    state: Array,
    *,
    target: Array,
    max_force: Array,
    gravity: Array,
    heaviness: Array,
    step_s: float,
) -> np.ndarray:
    """Advance N creatures by one step, in place.

    Args:
        model: Creature.
        state: (N, B, 13) states of the bodies: position of the origin, quaternion, velocity of the
            center of mass, angular velocity.
        target: (N, J, 4) target rotations of the drives, in the order of the solver.
        max_force: (N, J) largest forces of the drives, in the order of the solver.
        gravity: (N,) downward accelerations.
        heaviness: (N, B) masses, as multiples of those of the model.
        step_s: Length of the step.

    Returns:
        (N, B) bool: whether each body touched the ground at the start of the step.
    """
    moving = slice(0, state.shape[1])
    center, rotation, bodies = _pushed(model, state, gravity, heaviness, step_s)
    velocity, spin = bodies.velocity, bodies.spin
    joints = [
        joint_rows(
            model,
            j,
            bodies,
            center=center,
            rotation=rotation,
            target=target[:, j],
            max_force=max_force[:, j],
            step_s=step_s,
        )
        for j in range(len(model.child))
    ]
    contacts, touching = _contacts(model, bodies, center, rotation, step_s)

    def iterate(*, is_steady: bool, has_friction: bool) -> None:
        for rows in joints:
            for row in rows:
                row.solve(bodies, row.steady_bias if is_steady else row.bias)
        for contact in contacts:
            contact.solve(bodies, is_steady=is_steady, has_friction=has_friction)

    for i in range(ITERATIONS):
        iterate(is_steady=False, has_friction=i >= ITERATIONS - FRICTION_ITERATIONS)
    center += velocity * step_s
    rotation = _turned(rotation, spin, step_s)
    for _ in range(ITERATIONS):
        iterate(is_steady=True, has_friction=True)

    origin = center - rotate(rotation, np.broadcast_to(model.center_of_mass[:, None], center.shape))
    for part, values in (
        (POSITION, origin),
        (ROTATION, rotation),
        (VELOCITY, velocity),
        (SPIN, spin),
    ):
        state[..., part] = values[moving].transpose(1, 0, 2)
    return touching


def _pushed(
    model: Model, state: Array, gravity: Array, heaviness: Array, step_s: float
) -> tuple[Array, Array, Bodies]:
    """Return centers of mass, rotations, and bodies with velocities after gravity and drag."""
    n, n_bodies = state.shape[:2]
    moving = slice(0, n_bodies)
    # By body, with the world at the end.
    rotation = np.tile(IDENTITY, (n_bodies + 1, n, 1))
    rotation[moving] = normalized(state[..., ROTATION].transpose(1, 0, 2))
    center, velocity, spin = np.zeros((3, n_bodies + 1, n, 3))
    center[moving] = state[..., POSITION].transpose(1, 0, 2)
    center += rotate(rotation, np.broadcast_to(model.center_of_mass[:, None], center.shape))
    velocity[moving] = state[..., VELOCITY].transpose(1, 0, 2)
    velocity[moving, :, 1] -= gravity * step_s
    velocity *= (1.0 - model.drag * step_s)[:, None, None]
    spin[moving] = state[..., SPIN].transpose(1, 0, 2)
    spin *= (1.0 - model.angular_drag * step_s)[:, None, None]
    speed = np.sqrt(dot(spin, spin))[..., None]
    spin *= np.where(speed > MAX_SPIN_RAD_S, MAX_SPIN_RAD_S / np.maximum(speed, 1e-300), 1.0)
    lightness = np.ones((n_bodies + 1, n, 1))
    lightness[moving, :, 0] = 1.0 / heaviness.T
    inverse_mass = model.inverse_mass[:, None, None] * lightness
    inverse_inertia = _inverse_inertia(model, rotation, lightness)
    return center, rotation, Bodies(velocity, spin, inverse_mass, inverse_inertia)


def _contacts(
    model: Model, bodies: Bodies, center: Array, rotation: Array, step_s: float
) -> tuple[list[Contact], BoolArray]:
    """Return the contacts that press, and (N, B) bool: whether each body touches the ground."""
    touching = np.zeros((center.shape[1], len(center) - 1), np.bool_)
    contacts = [
        pair_contact(model, (a, b), bodies, center=center, rotation=rotation, step_s=step_s)
        for a, b in model.pairs.tolist()
    ]
    for body in range(touching.shape[1]):
        contact, touching[:, body] = ground_contact(
            model, body, bodies, center=center[body], rotation=rotation[body], step_s=step_s
        )
        if touching[:, body].any():
            contacts.append(contact)
    return [c for c in contacts if any(press.gain.any() for press in c.presses)], touching


def _inverse_inertia(model: Model, rotation: Array, lightness: Array) -> Array:
    """Return (B + 1, N, 3, 3) inverse inertias along the axes of the world."""
    axes = np.stack(
        [rotate(rotation, np.broadcast_to(axis, (*rotation.shape[:2], 3))) for axis in np.eye(3)],
        axis=-1,
    )  # each body's own axes in columns
    own = model.inverse_inertia[:, None] * lightness  # (B + 1, N, 3)
    inverse: Array = np.einsum("bnik,bnk,bnjk->bnij", axes, own, axes)
    return inverse


def _turned(rotation: Array, spin: Array, step_s: float) -> Array:
    """Return rotations after turning with constant spin for a step."""
    speed = np.sqrt(dot(spin, spin))
    half = speed * step_s / 2.0
    is_turning = speed > 0.0
    scale = np.where(is_turning, np.sin(half) / np.where(is_turning, speed, 1.0), 0.0)
    turn = np.concatenate([spin * scale[..., None], np.cos(half)[..., None]], axis=-1)
    return normalized(multiply(turn, rotation))
