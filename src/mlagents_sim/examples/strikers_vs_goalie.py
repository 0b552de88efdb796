"""Strikers Vs Goalie: two strikers against one goalie, in two behaviors."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, FloatArray
from mlagents_envs.scene import Scene
from mlagents_sim.examples.field_view import RAY_M, UNSEEN, FieldView
from mlagents_sim.examples.soccer_field import CONTROLS, START_Z_M, Field
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import Agents

FRONT = RaySensor(per_side=5, max_degrees=60.0, length=RAY_M, n_tags=5)
REAR = RaySensor(per_side=1, max_degrees=45.0, length=RAY_M, n_tags=5)
AROUND = RaySensor(per_side=20, max_degrees=180.0, length=RAY_M, n_tags=4)
BALL_TAG, GOAL_TAG, WALL_TAG, MATE_TAG, GOALIE_TAG = range(5)
STRIKER_TAG = MATE_TAG
"""Fourth tag that the goalie sees. The three before it are those of the strikers."""
STACKED = 3
GOALIE_X_M = 9.0

_RAYS = np.concatenate([FRONT.directions, -REAR.directions], axis=1)
_PLAYERS = 3
_GOALIE = 2
_OF_STRIKER = [BALL_TAG, UNSEEN, GOAL_TAG, WALL_TAG, MATE_TAG, MATE_TAG, GOALIE_TAG]
_OF_GOALIE = [BALL_TAG, UNSEEN, GOAL_TAG, WALL_TAG, STRIKER_TAG, STRIKER_TAG, UNSEEN]
_TAGS = np.array([_OF_STRIKER, _OF_STRIKER, _OF_GOALIE])
_ACTIONS = ActionSpec.create_discrete((3, 3, 3))


class StrikersVsGoalie(PlanarWorld):
    """Two strikers on each football field try to score against a goalie.

    Observations: strikers have two sensors, the goalie has one, in three frames each, oldest first.
        1. Strikers: 11 rays of 20 m, up to 60 degrees to each side: (231,). A ray has 7 numbers:
           one-hot ball, goal, wall, mate or goalie; 1 for nothing; the distance divided by 20 m.
        2. Strikers: 3 rays to the rear, up to 45 degrees to each side: (63,).
        3. Goalie: 41 rays of 20 m all around, the last two straight back: (738,). A ray has 6
           numbers: one-hot ball, own goal, wall or striker; 1 for nothing; the distance divided by
           20 m.
    Actions: three branches of 3: nothing, forward, back; nothing, right, left, which override
        forward and back; nothing, turn left, turn right. A push of a striker adds 2.6 m/s per step,
        or 0.6 m/s sideways; a push of the goalie adds 2 m/s in any direction. A turn is 2 degrees
        per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: -0.0002 per step for a striker, 0.0002 for the goalie. For the group, at a goal t steps
        after the kick-off, 1 - t / 5000 for the strikers and -1 for the goalie.
    Ends: both groups, at a goal.
    Interrupts: both groups, after 5000 steps, that is 1000 decisions.
    Parameters: `gravity` 9.81 m/s2, which presses players and ball to the floor, where friction
        slows them.
    Start: strikers on the left, x from -13.2 to -3.2 m, the goalie on the right, x from 4 to 14 m,
        facing each other within 10 degrees; the ball within 2.5 m of the middle in x and in z.
    A good policy beats the other behavior. Its rating, not its reward, shows its strength.

    A striker that runs forward when it begins to touch the ball kicks it with 13.3 m/s, and the
    goalie kicks it at every touch. The goal on the left is closed.

    Attributes:
        field: Players and ball of every field; the goalie after the strikers.
    """

    specs_by_name: ClassVar[Mapping[str, BehaviorSpec]] = {
        "Striker?team=0": BehaviorSpec(
            [
                stacked(FRONT.spec("RayPerceptionSensor"), STACKED),
                stacked(REAR.spec("RayPerceptionSensorReverse"), STACKED),
            ],
            _ACTIONS,
        ),
        "Goalie?team=1": BehaviorSpec(
            [stacked(AROUND.spec("RayPerceptionSensor"), STACKED)], _ACTIONS
        ),
    }
    controls = CONTROLS
    agents_per_area = 8 * _PLAYERS
    n_members: ClassVar[int] = _PLAYERS
    """Number of agents on each of the fields of a scene."""
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"gravity": 9.81}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._field, self._member = np.divmod(np.arange(self.n_agents), _PLAYERS)
        self.behavior[:] = self._member == _GOALIE
        self.group[:] = 1 + 2 * self._field + self.behavior
        self._per_step = np.where(self.behavior == 0, -1.0, 1.0) / self.max_steps
        n = self.n_agents // _PLAYERS
        self.field = self.motion = Field(
            n,
            sides=(-1, -1, 1),
            forward=(1.3, 1.3, 1.0),
            aside=(0.3, 0.3, 1.0),
            kicks_always=(False, False, True),
            has_left_goal=False,
        )
        self._view = FieldView(self.field, FRONT, _RAYS, _TAGS)
        self._view_around = FieldView(self.field, AROUND, AROUND.directions, _TAGS)
        self._front = FrameStack(FRONT.spec(""), STACKED, self.n_agents)
        self._rear = FrameStack(REAR.spec(""), STACKED, self.n_agents)
        self._around = FrameStack(AROUND.spec(""), STACKED, self.n_agents)

    def begin(self, agents: Agents) -> None:
        """Kick off."""
        fields = self._field[agents][::_PLAYERS]  # all members of a field begin together
        gravity = self.parameters.draw("gravity", len(fields))
        z = np.array([-START_Z_M, START_Z_M, 0.0])
        self.field.kick_off(fields, self.rng, gravity=gravity, z=z, x=GOALIE_X_M)
        for stack in (self._front, self._rear, self._around):
            stack.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes, of one behavior."""
        if self.behavior[agents][0]:
            return [self._around.add(agents, self._view_around.observe(agents))]
        seen = self._view.observe(agents)
        front, rear = seen[:, : FRONT.size], seen[:, FRONT.size :]
        return [self._front.add(agents, front), self._rear.add(agents, rear)]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        self.field.command(self._member[agents], self._field[agents], action.discrete)

    def pay_step(self) -> None:
        """Make time cost strikers and pay the goalie."""
        self.reward += self._per_step

    def judge(self, n_steps: int) -> None:
        """Reward goals."""
        (fields,) = (self.field.goals() > 0).nonzero()
        if fields.size:
            speed = 1.0 - self.field.age[fields] / self.max_steps
            self.reward_group(1 + 2 * fields, speed)
            self.reward_group(2 + 2 * fields, -1.0)
            self.end_group(np.concatenate([1 + 2 * fields, 2 + 2 * fields]))

    def scene(self) -> Scene:
        """Return all fields, as `Field.shown` describes them."""
        return self.field.shown(self)
