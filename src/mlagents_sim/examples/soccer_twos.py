"""Soccer Twos: football, two against two."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from mlagents_envs.base_env import ActionSpec, ActionTuple, BehaviorSpec, FloatArray
from mlagents_envs.scene import Scene
from mlagents_sim.examples.field_view import RAY_M, FieldView
from mlagents_sim.examples.soccer_field import CONTROLS, START_X_M, START_Z_M, Field
from mlagents_sim.frame_stack import FrameStack, stacked
from mlagents_sim.planar_world import PlanarWorld
from mlagents_sim.sensors import RaySensor
from mlagents_sim.world import Agents

FRONT = RaySensor(per_side=5, max_degrees=60.0, length=RAY_M, n_tags=6)
REAR = RaySensor(per_side=1, max_degrees=45.0, length=RAY_M, n_tags=6)
BALL_TAG, OWN_GOAL_TAG, OTHER_GOAL_TAG, WALL_TAG, MATE_TAG, OPPONENT_TAG = range(6)
STACKED = 3
TOUCH_REWARD = 0.2

_RAYS = np.concatenate([FRONT.directions, -REAR.directions], axis=1)
_SIDES = (-1, -1, 1, 1)
_PLAYERS = 4
_BLUE = [BALL_TAG, OWN_GOAL_TAG, OTHER_GOAL_TAG, WALL_TAG, *[MATE_TAG] * 2, *[OPPONENT_TAG] * 2]
_PURPLE = [BALL_TAG, OTHER_GOAL_TAG, OWN_GOAL_TAG, WALL_TAG, *[OPPONENT_TAG] * 2, *[MATE_TAG] * 2]
_TAGS = np.array([_BLUE, _BLUE, _PURPLE, _PURPLE])


class SoccerTwos(PlanarWorld):
    """Two teams of two agents, blue and purple, on each football field.

    Observations: two sensors, in three frames each, oldest first.
        1. 11 rays of 20 m, up to 60 degrees to each side: (264,). A ray has 8 numbers: one-hot
           ball, own goal, opposing goal, wall, mate or opponent; 1 for nothing; the distance
           divided by 20 m.
        2. 3 rays to the rear, up to 45 degrees to each side: (72,).
    Actions: three branches of 3: nothing, forward, back; nothing, right, left, which override
        forward and back; nothing, turn left, turn right. A push adds 2 m/s per step, or 0.6 m/s
        sideways; a turn is 2 degrees per step.
    Decisions: every 5 steps of 0.02 s.
    Reward: for the group, 1 - t / 5000 for a goal t steps after the kick-off, and -1 for a goal of
        the other team. An agent gets 0.2 times `ball_touch` each time it begins to touch the ball.
    Ends: both groups, at a goal.
    Interrupts: both groups, after 5000 steps, that is 1000 decisions.
    Parameters: `ball_touch` 0 (0 to 1); `gravity` 9.81 m/s2, which presses players and ball to the
        floor, where friction slows them.
    Start: blue agents on the left, x from -13.2 to -3.2 m, purple agents on the right, facing each
        other within 10 degrees; the ball within 2.5 m of the middle in x and in z.
    A good policy beats others. Its rating, not its reward, shows its strength.

    An agent that runs forward when it begins to touch the ball kicks it with 13.3 m/s. The ball
    bounces off walls and agents, rolls, and slides if it is fast.

    Source: recordings of Unity's physics.

    Attributes:
        field: Players and ball of every field; the blue team first.
    """

    behavior_names = ("SoccerTwos?team=0", "SoccerTwos?team=1")
    behavior_spec = BehaviorSpec(
        [
            stacked(FRONT.spec("RayPerceptionSensor"), STACKED),
            stacked(REAR.spec("RayPerceptionSensorReverse"), STACKED),
        ],
        ActionSpec.create_discrete((3, 3, 3)),
    )
    controls = CONTROLS
    agents_per_area = 8 * _PLAYERS
    n_members: ClassVar[int] = _PLAYERS
    """Number of agents on each of the fields of a scene."""
    decision_period_steps = 5
    max_steps = 5000
    default_parameters: ClassVar[Mapping[str, float]] = {"ball_touch": 0.0, "gravity": 9.81}

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(num_areas=num_areas, seed=seed, parameters=parameters)
        self._field, self._member = np.divmod(np.arange(self.n_agents), _PLAYERS)
        self.behavior[:] = self._member // 2
        self.group[:] = 1 + 2 * self._field + self.behavior
        n = self.n_agents // _PLAYERS
        self.field = self.motion = Field(
            n,
            _SIDES,
            forward=[1.0] * _PLAYERS,
            aside=[0.3] * _PLAYERS,
            kicks_always=[False] * _PLAYERS,
        )
        self._view = FieldView(self.field, FRONT, _RAYS, _TAGS)
        self._touch_reward = np.zeros(n)
        self._front = FrameStack(FRONT.spec(""), STACKED, self.n_agents)
        self._rear = FrameStack(REAR.spec(""), STACKED, self.n_agents)

    def begin(self, agents: Agents) -> None:
        """Kick off."""
        fields = self._field[agents][::_PLAYERS]  # all members of a field begin together
        n, draw = len(fields), self.parameters.draw
        self._touch_reward[fields] = TOUCH_REWARD * draw("ball_touch", n)
        z = np.array([-START_Z_M, START_Z_M, -START_Z_M, START_Z_M])
        self.field.kick_off(fields, self.rng, gravity=draw("gravity", n), z=z, x=START_X_M)
        self._front.clear(agents)
        self._rear.clear(agents)

    def observe(self, agents: Agents) -> list[FloatArray]:
        """Return the observations that the class describes."""
        seen = self._view.observe(agents)
        front, rear = seen[:, : FRONT.size], seen[:, FRONT.size :]
        return [self._front.add(agents, front), self._rear.add(agents, rear)]

    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the action of each of the coming steps."""
        self.field.command(self._member[agents], self._field[agents], action.discrete)

    def judge(self, n_steps: int) -> None:
        """Reward touches and goals."""
        self.reward += (self.field.touches * self._touch_reward).T.reshape(-1)
        side = self.field.goals()
        (fields,) = side.nonzero()
        if fields.size:
            scorer = (side[fields] < 0).astype(np.intp)  # a ball on the left is purple's goal
            speed = 1.0 - self.field.age[fields] / self.max_steps
            self.reward_group(1 + 2 * fields + scorer, speed)
            self.reward_group(2 + 2 * fields - scorer, -1.0)
            self.end_group(np.concatenate([1 + 2 * fields, 2 + 2 * fields]))

    def scene(self) -> Scene:
        """Return all fields, as `Field.shown` describes them."""
        return self.field.shown(self)
