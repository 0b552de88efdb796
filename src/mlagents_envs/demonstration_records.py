"""What a demonstration consists of: metadata, and records in columns."""

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
"""Version of the file format that is written."""


class DemonstrationMetadata(NamedTuple):
    """What a file says of itself at its head.

    Attributes:
        name: What it is called, at most 16 letters, digits, blanks and hyphens.
        number_steps: Number of records.
        number_episodes: Number of records that end an episode, and one more for the end of the
            recording.
        mean_reward: Sum of all rewards by `number_episodes`.
        api_version: Version of the file format.
    """

    name: str
    number_steps: int
    number_episodes: int
    mean_reward: float
    api_version: int = API_VERSION


class ActionPlacement(Enum):
    """Which record of a file keeps the action taken at the observation of record t.

    Unity's recorder stores the action that an agent still carries out when it observes, which it
    chose one record earlier. At its end such a file repeats its metadata. Files without this
    repetition were written by this project, by a trainer's own tools or by Unity's first packages.
    They keep each action beside its observation.
    """

    SAME_RECORD = 0
    """Record t."""

    NEXT_RECORD = 1
    """Record t + 1 of the same agent."""


class DemonstrationRecords(NamedTuple):
    """T records, in columns: one for every decision, and one for every end of an episode.

    Records have the order of the file: usually episodes follow each other, but agents may have
    recorded by turns; see `episodes`. The action of a record is the one taken at its observation,
    wherever the file keeps it, and its reward the one that came before it. Within an episode, a
    step of experience is observation t, mask t, action t, reward t+1. The action of an episode's
    last record means nothing.

    Attributes:
        obs: One array per observation, (T, *shape).
        action: (T, A) and (T, K).
        action_mask: One (T, size) array per discrete branch, True where an action is *not*
            allowed; None where there are no discrete actions.
        reward: (T,) float32, since the record before.
        done: (T,) bool, whether the episode ended here.
        interrupted: (T,) bool, whether a clock ended it rather than the task.
        agent_id: (T,) int32.
        group_id: (T,) int32, 0 for no group.
        group_reward: (T,) float32, since the record before.
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
        """Return the rows of each episode, in the order in which episodes begin.

        An episode ends at its agent's first record that is `done`, or with its agent's last one.
        """
        by_agent = np.argsort(self.agent_id, kind="stable")
        agent_id, done = self.agent_id[by_agent], self.done[by_agent]
        begins = np.flatnonzero((agent_id[1:] != agent_id[:-1]) | done[:-1]) + 1
        episodes = (rows for rows in np.split(by_agent, begins) if len(rows))
        return sorted(episodes, key=lambda rows: int(rows[0]))


class Demonstration(NamedTuple):
    """A whole file.

    Attributes:
        metadata: Metadata stored in the file.
        behavior_name: Behavior of the recorded agents.
        spec: Observations and actions of the behavior.
        records: Recorded observations and actions.
        action_placement: Where the file keeps actions; `records` has them beside what was observed.
    """

    metadata: DemonstrationMetadata
    behavior_name: BehaviorName
    spec: BehaviorSpec
    records: DemonstrationRecords
    action_placement: ActionPlacement = ActionPlacement.SAME_RECORD
