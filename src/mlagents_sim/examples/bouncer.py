"""Bouncer: bounce to catch a floating cube, with few jumps."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    BoolArray,
    FloatArray,
    ObservationSpec,
)
from mlagents_envs.scene import Scene
from mlagents_sim import floor_plan
from mlagents_sim.contact import STEP_S
from mlagents_sim.floor_plan import FloorPlan
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.plane import Array
from mlagents_sim.world import Agents, World

X, Y, Z = range(3)
AGENT_HALF_M, TARGET_HALF_M = 0.5, 1.0
GROUND_TOP_M = 0.5
FEEL_M = 0.51
"""Length of the ray by which an agent feels the ground."""
COOLDOWN_STEPS = 5
"""Least number of steps between two decisions."""
IMPULSE_M_S = 10.0
COST = 0.05
LOWEST_M, WIDEST_M = -1.0, 19.0
"""Bounds of the arena: lowest height, and largest distance from the middle in x and z."""
TOUCHDOWNS = 20
START_M, START_Y_M = 5.0, 2.0
TARGET_LOW, TARGET_HIGH = (-5.0, 2.0, -5.0), (5.0, 7.0, 5.0)
STACKED = 3
STEPS_AHEAD = 144
"""Steps computed at once, times the number of agents: the more there are, the sooner one lands."""
FRAME = ObservationSpec.vector(6, "VectorSensor_size6")


class Bouncer(World):
    """Cubes that bounce to catch a floating target, each in its own arena.

    An agent decides only when it touches down. It stops there, and its action lets it jump again.

    Observation: 6 numbers in three frames, oldest first: position of the agent (x, y, z) and of the
        target, relative to the arena, in m. A frame is a touchdown.
    Actions: 3 continuous, clipped to -1..1: x, y, z. The agent jumps with 10 m/s times x and z
        sideways, and upward with 10 (y = -1) to 20 m/s (y = 1).
    Decisions: on demand, when the ground is at most 0.51 m below the center of the agent, and 0.1 s
        have passed since the last decision. A step takes 0.02 s.
    Reward: at each decision -0.05 times the mean of the squares of the actions; +1 for a catch; -1
        on leaving the arena.
    Ends: when the agent leaves the arena, which is 19 m wide to each side, or at its 20th
        touchdown, so after 19 jumps.
    Interrupts: never.
    Start: the agent at a height of 2 m, within 5 m of the middle in x and z; the target within 5 m
        of the middle too, at a height of 2 to 7 m. A target that is caught appears elsewhere.
    Parameters: `target_scale` 1 (0.33 to 1.67), for an edge of 2 m; `gravity` 19.62 m/s2.
    A good policy reaches 10.

    Agents stay upright and fly without drag.

    Attributes:
        place: (N, 3) positions of the agents.
        velocity: (N, 3) velocities.
        target: (N, 3) positions of the targets.
        target_half: (N,) half edges of the targets.
        touchdowns_left: (N,) touchdowns until the episode ends.
    """

    behavior_name = "Bouncer?team=0"
    behavior_spec = BehaviorSpec([stacked(FRAME, STACKED)], ActionSpec.create_continuous(3))
    agents_per_area = 18
    stops_at_requests = True
    default_parameters: ClassVar[Mapping[str, float]] = {"target_scale": 1.0, "gravity": 19.62}
    parameter_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "target_scale": (0.33, 1.67),
        "gravity": (0.1, 200.0),
    }

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        n = self.n_agents
        self.place, self.velocity, self.target = np.zeros((3, n, 3))
        self.target_half, self._gravity = np.zeros((2, n))
        self.touchdowns_left, self._cooldown = np.zeros((2, n), np.int64)
        self._asks = np.zeros(n, np.bool_)
        self._frames = FrameStack(FRAME, STACKED, n)

    def begin(self, agents: Agents) -> None:
        """Drop agents onto the ground, and let targets appear."""
        n, draw = len(self.agent_id[agents]), self.parameters.draw
        place = self.rng.uniform(-START_M, START_M, (n, 3))
        place[:, Y] = START_Y_M
        self.place[agents], self.velocity[agents] = place, 0.0
        self._gravity[agents] = draw("gravity", n)
        self.target_half[agents] = TARGET_HALF_M * draw("target_scale", n)
        self.touchdowns_left[agents], self._cooldown[agents] = TOUCHDOWNS, 0
        self._asks[agents] = False
        self._frames.clear(agents)
        self._move_targets(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observation that the class describes."""
        frame = np.concatenate([self.place[agents], self.target[agents]], axis=1, dtype=np.float32)
        return [self._frames.add(agents, frame)]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Let agents jump."""
        way = np.clip(action.continuous, -1.0, 1.0).astype(np.float64)
        self.reward[agents] -= COST * np.square(way).mean(axis=1)
        way[:, Y] = (way[:, Y] + 1.0) / 2.0 + 1.0
        self.velocity[agents] += IMPULSE_M_S * way

    def rest(self, agents: Agents) -> None:
        """Do nothing: an agent falls until it first touches down."""

    def requests(self) -> Agents | None:
        """Return the agents that touched down."""
        return np.flatnonzero(self._asks) if self._asks.any() else None

    def act(self) -> None:
        """Do nothing: agents act when they are told to, and fly until they touch down."""

    def physics(self) -> None:
        """Let agents fly for a step; judge what they catch, leave and touch."""
        self.velocity[:, Y] -= self._gravity * STEP_S
        self.place += self.velocity * STEP_S
        self._cooldown -= 1
        self._judge(*self._events(self.place, self._cooldown))

    def run(self, most_steps: int) -> int:
        """Let agents fly up to a step in which one catches, leaves or touches anything.

        Sums over time are taken step by step, so the results are those of single steps.
        """
        n_steps = min(most_steps, STEPS_AHEAD // self.n_agents)  # T
        if n_steps < 2:
            return 0
        rise = np.empty((1 + n_steps, self.n_agents))
        rise[0], rise[1:] = self.velocity[:, Y], self._gravity * STEP_S
        rise = np.subtract.accumulate(rise)[1:]  # (T, N) speeds upward
        place = np.empty((1 + n_steps, self.n_agents, 3))
        place[0], place[1:] = self.place, self.velocity
        place[1:, :, Y] = rise
        place[1:] *= STEP_S
        place = np.add.accumulate(place)[1:]  # (T, N, 3)
        cooldown = self._cooldown - np.arange(1, n_steps + 1)[:, None]
        events = self._events(place, cooldown)
        happens = np.logical_or.reduce(events).any(axis=1)
        last = int(happens.argmax()) if happens.any() else n_steps - 1
        self.step_count += last + 1
        self.velocity[:, Y], self.place[:] = rise[last], place[last]
        self._cooldown[:] = cooldown[last]
        self._judge(*events[:, last])
        return last + 1

    def scene(self) -> Scene:
        """Return all arenas: a blue agent and its green target above the ground of each."""
        plan = FloorPlan(self, self.n_agents, (-WIDEST_M,) * 2, (WIDEST_M,) * 2, top_m=13.0)
        agents = np.arange(self.n_agents)
        for name, place, half, color, numbers in (
            ("target", self.target, self.target_half, floor_plan.GREEN, None),
            ("agent", self.place, AGENT_HALF_M, floor_plan.AGENT, agents),
        ):
            plan.box(
                name,
                place[:, [X, Z]].T,
                np.broadcast_to(np.asarray(half), (2, self.n_agents)),
                height_m=2.0 * np.asarray(half),
                low_m=place[:, Y] - half - GROUND_TOP_M,
                color=color,
                agents=numbers,
            )
        return plan.scene()

    # Private helpers.

    def _events(self, place: Array, cooldown: NDArray[np.int64]) -> BoolArray:
        """Return what happens to agents in their next step, or in several.

        Args:
            place: (..., N, 3) positions after the step.
            cooldown: (..., N) steps until they may decide.

        Returns:
            (3, ..., N) which agents touch their targets, leave the arena, and touch down.
        """
        apart = np.abs(place - self.target)
        reach = AGENT_HALF_M + self.target_half
        catches = (apart[..., X] < reach) & (apart[..., Y] < reach) & (apart[..., Z] < reach)
        height = place[..., Y]
        is_out = (np.abs(place[..., X]) > WIDEST_M) | (np.abs(place[..., Z]) > WIDEST_M)
        is_out |= height < LOWEST_M
        is_down = (height - FEEL_M <= GROUND_TOP_M) & (cooldown <= 0) & ~is_out
        return np.array([catches, is_out, is_down])

    def _judge(self, catches: BoolArray, is_out: BoolArray, is_down: BoolArray) -> None:
        """Reward the catches of a step; end episodes, and stop agents that touched down.

        Args:
            catches: (N,) which agents touch their targets.
            is_out: (N,) which agents left the arena.
            is_down: (N,) which agents touched down.
        """
        catching = np.flatnonzero(catches)
        if catching.size:
            self.reward[catching] += 1.0
            self._move_targets(catching)
        self.velocity[is_down] = 0.0
        self._cooldown[is_down] = COOLDOWN_STEPS
        self.touchdowns_left -= is_down
        is_over = self.touchdowns_left == 0
        self._asks[:] = is_down & ~is_over
        self.reward[is_out] -= 1.0
        self.end(np.flatnonzero(is_out | is_over))

    def _move_targets(self, agents: Agents) -> None:
        n = len(self.agent_id[agents])
        self.target[agents] = self.rng.uniform(TARGET_LOW, TARGET_HIGH, (n, 3))
