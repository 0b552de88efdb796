"""Content of a demonstration: metadata, and records in columns."""

from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    FloatArray,
    IntArray,
)

API_VERSION = 1
"""Version of the file format that this package writes."""


class DemonstrationMetadata(NamedTuple):
    """Metadata at the beginning of a demonstration file.

    Attributes:
        name: Name of at most 16 letters, digits, spaces and hyphens.
        number_steps: Number of records.
        number_episodes: Number of records that end an episode, plus one for the end of the
            recording.
        mean_reward: Sum of all rewards, divided by `number_episodes`.
        api_version: Version of the file format.
    """

    name: str
    number_steps: int
    number_episodes: int
    mean_reward: float
    api_version: int = API_VERSION


class ActionPlacement(Enum):
    """Record of a file that contains the action for the observation of record t.

    Unity's recorder stores each observation with the action in effect at that moment, which the
    agent chose one record earlier. Such a file repeats its metadata at its end. Files without this
    repetition were written by this project, by a trainer's own tools or by Unity's first packages.
    They store each action with its observation.
    """

    SAME_RECORD = 0
    """Record t."""

    NEXT_RECORD = 1
    """Record t + 1 of the same agent."""


class DemonstrationRecords(NamedTuple):
    """T records in columns: one record per decision, and one per end of an episode.

    Records are in the order of the file. The episodes of several agents may be interleaved; see
    `episodes`. The action of a record is the one chosen for its observation, wherever the file
    stores it. The reward of a record is the one received since the agent's previous record. Within
    an episode, a step of experience is observation t, mask t, action t, reward t+1. Ignore the
    action of an episode's last record.

    Attributes:
        obs: One array per observation, (T, *shape).
        action: (T, A) continuous and (T, K) discrete actions.
        action_mask: One (T, size) array per discrete branch, True where an action is *not*
            allowed; None if there are no discrete actions.
        reward: (T,) float32, reward since the previous record.
        done: (T,) bool, whether the episode ended with the record.
        interrupted: (T,) bool, whether a time limit ended the episode rather than the task.
        agent_id: (T,) int32, id of the agent.
        group_id: (T,) int32, id of the agent's group; 0 for no group.
        group_reward: (T,) float32, group reward since the previous record.
    """

    obs: list[NDArray[Any]]
    action: ActionTuple
    action_mask: list[BoolArray] | None
    reward: FloatArray
    done: BoolArray
    interrupted: BoolArray
    agent_id: IntArray
    group_id: IntArray
    group_reward: FloatArray

    def episodes(self) -> list[NDArray[np.intp]]:
        """Return the rows of each episode, in the order in which the episodes begin.

        An episode ends with a `done` record of its agent, or with the agent's last record.
        """
        by_agent = np.argsort(self.agent_id, kind="stable")
        agent_id, done = self.agent_id[by_agent], self.done[by_agent]
        begins = np.flatnonzero((agent_id[1:] != agent_id[:-1]) | done[:-1]) + 1
        episodes = (rows for rows in np.split(by_agent, begins) if len(rows))
        return sorted(episodes, key=lambda rows: int(rows[0]))


class Demonstration(NamedTuple):
    """Content of a demonstration file.

    Attributes:
        metadata: Metadata at the beginning of the file.
        behavior_name: Behavior of the recorded agents.
        spec: Observations and actions of the behavior.
        records: Recorded observations and actions.
        action_placement: Placement of actions in the file; `records` has each action at its
            observation.
    """

    metadata: DemonstrationMetadata
    behavior_name: BehaviorName
    spec: BehaviorSpec
    records: DemonstrationRecords
    action_placement: ActionPlacement = ActionPlacement.SAME_RECORD
