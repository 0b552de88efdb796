"""`Creatures`: the motion of N copies of a creature, by the native library or the reference."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.cpus import n_cpus
from mlagents_envs.logging_util import get_logger
from mlagents_native.articulated import PART
from mlagents_sim.articulated import reference
from mlagents_sim.articulated.creature import Box, Capsule, Creature, Model
from mlagents_sim.articulated.joints import no_target
from mlagents_sim.articulated.reference import POSITION, ROTATION, SPIN, VELOCITY
from mlagents_sim.articulated.rotations import (
    Array,
    from_euler,
    multiply,
    rotate,
)

logger = get_logger(__name__)

STEP_S = 0.01333
CREATURES_PER_THREAD = 32
"""Number of creatures whose computation takes longer than starting a thread."""


class Creatures:
    """N copies of a creature, each on its own ground.

    Args:
        creature: Data of the creature.
        n: Number of copies, N.
        threads: Number of threads of the native library; by default one for every 32 copies, at
            most one per processor. It does not affect the results.
        use_native: Whether to use the native library, if it is available.

    Attributes:
        model: The creature as arrays.
        state: (N, B, 13) positions of the bodies' origins, quaternions, velocities of the centers
            of mass, and angular velocities. `position`, `rotation`, `velocity` and `spin` are
            views.
        touching: (N, B) whether each body touches the ground.
        target: (N, J, 4) target rotations of the drives, in the order of the solver; see `aim`.
        max_force: (N, J) largest forces of the drives, in the order of the solver; see
            `strengthen`.
        gravity: (N,) downward accelerations.
        heaviness: (N, B) masses, as multiples of those of the creature's data.
    """

    def __init__(
        self, creature: Creature, n: int, *, threads: int | None = None, use_native: bool = True
    ) -> None:
        self.model = model = Model(creature)
        n_bodies, n_joints = len(creature.bodies), len(creature.joints)
        self.state = np.zeros((n, n_bodies, 13))
        self.touching = np.zeros((n, n_bodies), np.bool_)
        self.target = no_target(n * n_joints).reshape(n, n_joints, 4)
        self.max_force = np.zeros((n, n_joints))
        self.gravity = np.full(n, 9.81)
        self.heaviness = np.ones((n, n_bodies))
        self.put(np.arange(n), np.zeros(n))
        self._threads = threads or max(1, min(n_cpus(), n // CREATURES_PER_THREAD))
        self._native = PART.load() if use_native else None
        if use_native and self._native is None:
            PART.announce(logger)
        if self._native is not None:
            self._integers, self._numbers = _layout(model)

    @property
    def is_native(self) -> bool:
        """Whether the steps are computed by the native library."""
        return self._native is not None

    @property
    def position(self) -> Array:
        """(N, B, 3) positions of the bodies' origins."""
        return self.state[..., POSITION]

    @property
    def rotation(self) -> Array:
        """(N, B, 4) quaternions of the bodies."""
        return self.state[..., ROTATION]

    @property
    def velocity(self) -> Array:
        """(N, B, 3) velocities of the centers of mass."""
        return self.state[..., VELOCITY]

    @property
    def spin(self) -> Array:
        """(N, B, 3) angular velocities by the axes of the world."""
        return self.state[..., SPIN]

    def put(self, which: NDArray[np.intp] | slice, yaw_degrees: ArrayLike) -> None:
        """Put creatures into their start pose, at rest, rotated about the vertical axis.

        Targets and strengths stay, as in Unity.

        Args:
            which: Indices of n creatures.
            yaw_degrees: (n,) yaw angles, in degrees.
        """
        yaw = np.asarray(yaw_degrees, np.float64)
        turn = from_euler(np.stack([np.zeros_like(yaw), yaw, np.zeros_like(yaw)], axis=-1))
        start = self.model.start
        state = np.zeros((len(yaw), *self.state.shape[1:]))
        many = np.broadcast_to(turn[:, None], (*state.shape[:2], 4))
        state[..., POSITION] = rotate(
            many, np.broadcast_to(start[:, :3], state[..., POSITION].shape)
        )
        state[..., 1] += self.model.creature.start_height
        state[..., ROTATION] = multiply(many, np.broadcast_to(start[:, 3:], many.shape))
        self.state[which] = state
        self.touching[which] = False

    def aim(self, degrees: Array) -> None:
        """Set the targets of all drives.

        Args:
            degrees: (N, J, 3) angles about X, Y and Z of each joint's frame, in degrees, by joint
                of the creature.
        """
        self.target[:] = from_euler(degrees.take(self.model.order, axis=1))

    def strengthen(self, strength: Array) -> None:
        """Set the fraction of the largest force that each drive may use.

        Args:
            strength: (N, J) fractions, 0 to 1, by joint of the creature.
        """
        strong = strength.take(self.model.order, axis=1)
        np.multiply(strong, self.model.creature.max_force, out=self.max_force)

    def step(self, step_s: float = STEP_S) -> None:
        """Advance all creatures by one step."""
        if self._native is None:
            self.touching[:] = reference.step(
                self.model,
                self.state,
                target=self.target,
                max_force=self.max_force,
                gravity=self.gravity,
                heaviness=self.heaviness,
                step_s=step_s,
            )
            return
        self._numbers[-1] = step_s
        self._native.articulated_step(
            self._integers.ctypes.data,
            self._numbers.ctypes.data,
            len(self.state),
            self.state.ctypes.data,
            self.target.ctypes.data,
            self.max_force.ctypes.data,
            self.gravity.ctypes.data,
            self.heaviness.ctypes.data,
            self.touching.ctypes.data,
            self._threads,
        )

    def feelers(self, which: NDArray[np.intp], bodies: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return points inside bodies, from which to measure distances to their surfaces.

        Args:
            which: Indices of n creatures.
            bodies: Indices of m bodies.

        Returns:
            (n, m, 5, 3) points along the middle of each body, and (m,) radii around them.
        """
        state = self.state[which[:, None], bodies]
        shape = state[..., POSITION].shape
        middle = np.broadcast_to(self.model.center_of_mass[bodies], shape)
        axis = np.broadcast_to(self.model.shape_axes[bodies], shape)
        center = state[..., POSITION] + rotate(state[..., ROTATION], middle)
        along = rotate(state[..., ROTATION], axis)
        part = np.linspace(-1.0, 1.0, 5)[:, None]
        radius = self.model.radius[bodies] + self.model.half[bodies].max(axis=1)
        return center[:, :, None] + part * along[:, :, None], radius


def _layout(model: Model) -> tuple[NDArray[np.int32], Array]:
    """Return the integers and the numbers of a creature in the order of `articulated.cpp`."""
    shapes = [body.shape for body in model.creature.bodies]
    kinds = [2 if isinstance(s, Box) else 1 if isinstance(s, Capsule) else 0 for s in shapes]
    counts = [len(shapes), len(model.child), len(model.pairs)]
    integers = [
        counts,
        model.child,
        model.parent,
        model.motions,
        model.is_driven,
        kinds,
        model.pairs,
    ]
    creature = model.creature
    numbers = [
        model.inverse_mass,
        model.inverse_inertia,
        model.center_of_mass,
        model.drag,
        model.angular_drag,
        model.radius,
        model.shape_axes,
        model.half,
        model.child_anchor,
        model.parent_anchor,
        model.child_frame,
        model.parent_frame,
        model.limits,
        [creature.spring, creature.damper, creature.ground_height, 0.0],
    ]
    return (
        np.concatenate([np.ravel(np.asarray(part, np.int32)) for part in integers]),
        np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in numbers]),
    )
