"""3DBall: tilt a platform so that the ball stays on it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    FloatArray,
    ObservationSpec,
)
from mlagents_sim.world import ALL, Agents, World

STEP_S = 0.02
HALF_EDGE = 2.5
"""Metres from the cube's centre to its faces."""
RADIUS = 0.5
TURN_RAD = np.radians(2.0)
"""Largest turn of the cube per step and axis."""
TURN_LIMIT = 0.25
"""Quaternion component beyond which the cube turns no farther."""

ANGULAR_DRAG = 0.05
MAX_SPIN = 7.0
FRICTION = 0.6
CONTACT_OFFSET = 0.02
"""Gap in metres at which two bodies begin to feel each other."""
CORRECTION = 0.8
"""Part of a gap or of an overlap that the solver closes in a step."""
MAX_PUSH_OUT = 10.0
"""Fastest way out of an overlap, in metres per second."""

X, Y, Z = 0, 1, 2

Array = NDArray[np.float64]


class Ball3D(World):
    behavior_name = "3DBall?team=0"
    behavior_spec = BehaviorSpec(
        [ObservationSpec.vector(8, "VectorSensor_size8")], ActionSpec.create_continuous(2)
    )
    agents_per_area = 12
    decision_period_steps = 5
    max_steps = 5000
    default_parameters = {"scale": 1.0, "gravity": 9.81, "mass": 1.0}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self._cube = np.zeros((n, 4))  # quaternion x, y, z, w
        self._ball = np.zeros((n, 3, 3))  # position, velocity, spin
        self._radius = np.full(n, RADIUS)
        self._turns = np.zeros((2, n, 4))
        self._signs = np.zeros((2, n))

    def begin(self, agents: Agents) -> None:
        n = len(self.agent_id[agents])
        tilt_x, tilt_z = np.radians(self.rng.uniform(-10.0, 10.0, (2, n)))
        self._cube[agents] = quaternion_product(axis_turn(X, tilt_x), axis_turn(Z, tilt_z))
        ball = self._ball[agents]
        ball[:, 0, Y] = 4.0
        ball[:, 0, ::2] = self.rng.uniform(-1.5, 1.5, (n, 2))
        ball[:, 1] = 0.0
        self._ball[agents] = ball
        self._radius[agents] = RADIUS * self.parameters["scale"]

    def observe(self, agents: Agents) -> list[FloatArray]:
        cube, ball = self._cube[agents], self._ball[agents]
        seen = np.empty((len(cube), 8), np.float32)
        seen[:, 0] = cube[:, Z]
        seen[:, 1] = cube[:, X]
        seen[:, 2:8] = ball[:, :2].reshape(-1, 6)
        return [seen]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        turns = np.clip(action.continuous, -1.0, 1.0)
        for i, axis in enumerate((Z, X)):
            self._turns[i, agents] = axis_turn(axis, TURN_RAD * turns[:, i])
            self._signs[i, agents] = np.sign(turns[:, i])

    def act(self) -> None:
        cube = self._cube
        for axis, sign, turn in zip((Z, X), self._signs, self._turns):
            free = cube[:, axis] * sign < TURN_LIMIT
            cube = quaternion_product(cube, np.where(free[:, None], turn, NO_TURN))
        self._cube = cube
        self.reward.fill(0.1)
        position = self._ball[:, 0]
        outside = (position < LOWEST) | (position > HIGHEST)
        if outside.any():
            fallen = np.flatnonzero(outside.any(axis=1))
            self.reward[fallen] = -1.0
            self.end(fallen)

    def physics(self) -> None:
        ball = self._ball
        ball[:, 1, Y] -= self.parameters["gravity"] * STEP_S
        ball[:, 2] *= 1.0 - ANGULAR_DRAG * STEP_S
        frame = rotation_matrix(self._cube)
        local = ball @ frame
        gap = local[:, 0, Y] - HALF_EDGE - self._radius
        beyond = np.abs(local[:, 0, ::2]) > HALF_EDGE
        if beyond.any():
            over = np.flatnonzero(beyond.any(axis=1))
            r = local[over, 0] - np.clip(local[over, 0], -HALF_EDGE, HALF_EDGE)
            dist = np.sqrt(np.einsum("ij,ij->i", r, r))
            gap[over] = dist - self._radius[over]
            frame[over] = frame[over] @ frame_of(r / dist[:, None])
            local[over] = ball[over] @ frame[over]
        touching = gap < CONTACT_OFFSET
        if touching.any():
            self._contact(local, gap, touching)
            local = local @ frame.transpose(0, 2, 1)
            ball[:, 0] += local[:, 0] * STEP_S
            ball[:, 1:] = local[:, 1:]
            spin = ball[:, 2]
            speed2 = np.vecdot(spin, spin)
            if speed2.max() > MAX_SPIN**2:
                spin *= np.minimum(1.0, MAX_SPIN / np.sqrt(np.maximum(speed2, 1e-9)))[:, None]
        else:
            ball[:, 0] += ball[:, 1] * STEP_S

    def _contact(self, local, gap, touching) -> None:
        vx, vy, vz = local[:, 1].T
        wx, _, wz = local[:, 2].T
        closing = np.minimum(gap * (-CORRECTION / STEP_S), MAX_PUSH_OUT)
        push = np.maximum(closing - vy, 0.0) * touching
        keep = np.maximum(np.minimum(closing, 0.0) - vy, 0.0) * touching
        lever = gap + self._radius
        inertia = 0.4*self._radius**2
        slip_x = vx + lever * wz
        slip_z = vz - lever * wx
        slip = np.hypot(slip_x, slip_z) + 1e-12
        stick = inertia / (inertia + lever * lever)
        grip = FRICTION / slip
        pushed = np.minimum(stick, grip * push)
        kept = np.minimum(stick, grip * keep)
        local[:, 0, 0] = vx - pushed * slip_x
        local[:, 0, 1] = vy + push
        local[:, 0, 2] = vz - pushed * slip_z
        spin_change = kept * lever / inertia
        vx -= kept * slip_x
        vy += keep
        vz -= kept * slip_z
        wx += spin_change * slip_z
        wz -= spin_change * slip_x
    def render(self): ...


NO_TURN = np.array([0.0, 0.0, 0.0, 1.0])
LOWEST = np.array([-3.0, -2.0, -3.0])
HIGHEST = np.array([3.0, np.inf, 3.0])


def axis_turn(axis, angle):
    q = np.zeros((len(angle), 4)); q[:, axis] = np.sin(angle / 2); q[:, 3] = np.cos(angle / 2)
    return q

_I=np.eye(4)
def _mul(a,b):
    x,y,z,w=a; X,Y,Z,W=b
    return np.array([w*X+x*W+y*Z-z*Y, w*Y-x*Z+y*W+z*X, w*Z+x*Y-y*X+z*W, w*W-x*X-y*Y-z*Z])
PRODUCT=np.array([[_mul(_I[i],_I[j]) for j in range(4)] for i in range(4)]).reshape(16,4)
def quaternion_product(a, b):
    return (a[:, :, None] * b[:, None, :]).reshape(-1, 16) @ PRODUCT
def _conj(q): return q*np.array([-1,-1,-1,1])
# v -> q v q*: entry (row r, col c): coefficient over q_i q_j
ROT=np.array([[[[ _mul(_mul(_I[i],_I[c]),_conj(_I[j]))[r] for c in range(3)] for r in range(3)] for j in range(4)] for i in range(4)]).reshape(16,9)
def rotation_matrix(q):
    return ((q[:, :, None] * q[:, None, :]).reshape(-1, 16) @ ROT).reshape(-1,3,3)
def frame_of(n):
    a,b,c=n.T; k=1/(1+b); f=np.empty((len(n),3,3))
    f[:,0,0]=1-a*a*k; f[:,1,0]=-a; f[:,2,0]=-a*c*k
    f[:,:,1]=n
    f[:,0,2]=-a*c*k; f[:,1,2]=-c; f[:,2,2]=1-c*c*k
    return f
