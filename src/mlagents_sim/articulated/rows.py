"""Rows: scalar constraints on the velocities of two bodies, for N creatures at once.

A row maps the velocities of two bodies to one number, its rate:

    rate = linear · (v_child - v_parent) + angular_child · w_child - angular_parent · w_parent

and changes them by an impulse along the same directions. As in Unity's engine, rows are solved one
at a time: one sweep over all rows is one Gauss-Seidel iteration.
"""

from typing import NamedTuple

import numpy as np

from mlagents_envs.base_env import BoolArray
from mlagents_sim.articulated.rotations import Array, dot


class Bodies(NamedTuple):
    """The velocities and inertias of N creatures during one step. Index B stands for the world.

    Attributes:
        velocity: (B + 1, N, 3) velocities of the centers of mass.
        spin: (B + 1, N, 3) angular velocities.
        inverse_mass: (B + 1, N, 1) inverse masses.
        inverse_inertia: (B + 1, N, 3, 3) inverse inertias along the axes of the world.
    """

    velocity: Array
    spin: Array
    inverse_mass: Array
    inverse_inertia: Array


class Row:
    """One constraint of N creatures.

    Args:
        child: Index of a body.
        parent: Index of another body, or of the world.
        linear: (N, 3) direction of the velocities.
        angular_child: (N, 3) direction of the child's spin.
        angular_parent: (N, 3) direction of the parent's spin.
        error: (N,) value that the constraint keeps at 0, or at least 0. The rate is its change per
            second.

    Attributes:
        impulse: (N,) impulse so far.
        gain: (N,) impulse per unit of rate.
        kept: (N,) fraction of the impulse so far that is kept.
        bias: (N,) impulse toward a smaller error.
        steady_bias: (N,) bias in the second phase, which corrects no errors.
        lowest, highest: Limits of the impulse, (N,) or a number.
    """

    def __init__(
        self,
        child: int,
        parent: int,
        linear: Array,
        angular_child: Array,
        angular_parent: Array,
        error: Array,
    ) -> None:
        self.child, self.parent = child, parent
        self.linear = linear
        self.angular_child, self.angular_parent = angular_child, angular_parent
        self.error = error
        self.impulse = np.zeros(len(error))
        self.gain = self.kept = self.bias = self.steady_bias = self.impulse
        self.lowest: Array | float = -np.inf
        self.highest: Array | float = np.inf

    def respond(self, bodies: Bodies) -> None:
        """Compute the velocities that a unit impulse adds, and their rate."""
        child, parent = self.child, self.parent
        self.added_child = self.linear * bodies.inverse_mass[child]
        self.added_parent = self.linear * bodies.inverse_mass[parent]
        inertia = bodies.inverse_inertia
        self.added_child_spin = np.einsum("nij,nj->ni", inertia[child], self.angular_child)
        self.added_parent_spin = np.einsum("nij,nj->ni", inertia[parent], self.angular_parent)
        self.response = self.answer_to(self)

    def answer_to(self, other: "Row") -> Array:
        """Return the (N,) rates that a unit impulse of another row with the same bodies adds."""
        return (
            dot(self.linear, other.added_child + other.added_parent)
            + dot(self.angular_child, other.added_child_spin)
            + dot(self.angular_parent, other.added_parent_spin)
        )

    def make_independent_of(self, other: "Row", bodies: Bodies) -> None:
        """Subtract a multiple of another row so that neither impulse changes the other's rate."""
        share = _divided(self.answer_to(other), other.response)
        along = share[:, None]
        self.linear = self.linear - along * other.linear
        self.angular_child = self.angular_child - along * other.angular_child
        self.angular_parent = self.angular_parent - along * other.angular_parent
        self.error = self.error - share * other.error
        self.respond(bodies)

    def solve(self, bodies: Bodies, bias: Array) -> None:
        """Update the impulse within its limits, and the velocities accordingly."""
        child, parent = self.child, self.parent
        velocity, spin = bodies.velocity, bodies.spin
        rate = (
            dot(self.linear, velocity[child] - velocity[parent])
            + dot(self.angular_child, spin[child])
            - dot(self.angular_parent, spin[parent])
        )
        impulse = self.impulse * self.kept + self.gain * rate + bias
        impulse = np.minimum(np.maximum(impulse, self.lowest), self.highest)
        change = (impulse - self.impulse)[:, None]
        velocity[child] += change * self.added_child
        velocity[parent] -= change * self.added_parent
        spin[child] += change * self.added_child_spin
        spin[parent] -= change * self.added_parent_spin
        self.impulse = impulse

    def demand(self, step_s: float) -> None:
        """Require the error to be 0 after a step."""
        self.gain = -_divided(np.ones_like(self.error), self.response)
        self.kept = np.ones_like(self.error)
        self.bias = self.gain * self.error / step_s
        self.steady_bias = np.zeros_like(self.error)

    def demand_at_least_zero(self, step_s: float, acts: BoolArray) -> None:
        """Require the error to be at least 0 after a step, where the constraint acts.

        An error above 0 is room to move, which remains in the second phase.
        """
        self.demand(step_s)
        self.steady_bias = np.where(self.error > 0.0, self.bias, 0.0)
        self.lowest = 0.0
        for name in ("gain", "bias", "steady_bias"):
            setattr(self, name, np.where(acts, getattr(self, name), 0.0))

    def drive(self, step_s: float, *, spring: float, damper: float, max_force: Array) -> None:
        """Pull the error toward 0 with an implicit spring and damper."""
        yielding = step_s * step_s * spring + step_s * damper
        share = 1.0 / (1.0 + yielding * self.response)
        self.gain = -share * yielding
        self.kept = 1.0 - share
        self.bias = self.steady_bias = -share * step_s * spring * self.error
        self.highest = max_force * step_s
        self.lowest = -self.highest


def _divided(a: Array, b: Array) -> Array:
    """Return a / b, or 0 where b is too small for any motion."""
    return np.where(b > 1e-12, a / np.where(b > 1e-12, b, 1.0), 0.0)
