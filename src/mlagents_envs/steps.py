"""`DecisionSteps` and `TerminalSteps`: reports of the agents of a behavior in one step.

Letters in shapes: N agents of this step.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.specs import AgentId, BehaviorSpec, BoolArray, FloatArray, GroupId, IntArray


class DecisionStep(NamedTuple):
    """Report of one agent that requests an action; fields as in `DecisionSteps`."""

    obs: list[NDArray[Any]]
    reward: float
    agent_id: AgentId
    action_mask: list[BoolArray] | None
    group_id: GroupId
    group_reward: float


class TerminalStep(NamedTuple):
    """Report of one agent whose episode ended; fields as in `TerminalSteps`."""

    obs: list[NDArray[Any]]
    reward: float
    interrupted: bool
    agent_id: AgentId
    group_id: GroupId
    group_reward: float


class _Steps:
    """Base class of both kinds of steps: the common columns, and the lookup of agents by id."""

    __slots__ = ("_index", "agent_id", "group_id", "group_reward", "obs", "reward")

    def __init__(
        self,
        obs: list[NDArray[Any]],
        reward: FloatArray,
        agent_id: IntArray,
        group_id: IntArray,
        group_reward: FloatArray,
    ) -> None:
        self.obs = obs
        self.reward = reward
        self.agent_id = agent_id
        self.group_id = group_id
        self.group_reward = group_reward
        self._index: dict[AgentId, int] | None = None

    @property
    def agent_id_to_index(self) -> dict[AgentId, int]:
        """Row of each agent, by agent id."""
        if self._index is None:
            self._index = {int(agent): row for row, agent in enumerate(self.agent_id)}
        return self._index

    def __len__(self) -> int:
        return len(self.agent_id)

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self.agent_id_to_index)

    def __eq__(self, other: object) -> bool:
        """Return whether both are of the same type and all arrays are equal."""
        return type(other) is type(self) and all(
            _equal(getattr(self, name), getattr(other, name))
            for name in ("agent_id", *type(self).__slots__)
        )

    def _row(self, agent_id: AgentId) -> int:
        try:
            return self.agent_id_to_index[agent_id]
        except KeyError:
            raise KeyError(
                f"agent {agent_id} is not in this batch of the agents {self.agent_id.tolist()}"
            ) from None


def _equal(one: Any, other: Any) -> bool:
    """Compare two arrays, lists of arrays or None."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(np.array_equal, one, other))
    return np.array_equal(one, other)


class DecisionSteps(_Steps, Mapping[AgentId, DecisionStep]):
    """Batch of the agents of a behavior that request an action; a mapping from agent id.

    Attributes:
        obs: One array per observation, (N, *shape).
        reward: (N,) float32, sum of rewards since the agent's previous report.
        agent_id: (N,) int32, ids of the agents. If an agent ended an episode and began the next,
            its id is also in the `TerminalSteps` of the same step.
        action_mask: One (N, size) array per discrete branch, True where an action is *not*
            allowed; None if the behavior has no discrete actions or the batch is empty.
        group_id: (N,) int32, ids of the agents' groups; 0 for no group.
        group_reward: (N,) float32, sum of group rewards since the agent's previous report.
    """

    __slots__ = ("action_mask",)

    def __init__(
        self,
        obs: list[NDArray[Any]],
        reward: FloatArray,
        agent_id: IntArray,
        action_mask: list[BoolArray] | None,
        group_id: IntArray,
        group_reward: FloatArray,
    ) -> None:
        super().__init__(obs, reward, agent_id, group_id, group_reward)
        self.action_mask = action_mask

    def __getitem__(self, agent_id: AgentId) -> DecisionStep:
        row = self._row(agent_id)
        masks = self.action_mask
        return DecisionStep(
            obs=[batch[row] for batch in self.obs],
            reward=float(self.reward[row]),
            agent_id=agent_id,
            action_mask=None if masks is None else [mask[row] for mask in masks],
            group_id=int(self.group_id[row]),
            group_reward=float(self.group_reward[row]),
        )

    @staticmethod
    def of(
        obs: list[NDArray[Any]],
        reward: ArrayLike,
        agent_id: ArrayLike,
        *,
        masks: list[BoolArray] | None = None,
        groups: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "DecisionSteps":
        """Return a batch of N agents. Arrays of the right type are not copied.

        Args:
            obs: One array per observation, (N, *shape).
            reward: (N,) sums of rewards since the agents' previous report.
            agent_id: (N,) ids of the agents.
            masks: One (N, size) array per discrete branch, True where an action is not allowed.
            groups: (N,) group ids and (N,) group rewards; None if no agent is in a group.
        """
        ids = np.asarray(agent_id, np.int32)
        return DecisionSteps(
            obs, np.asarray(reward, np.float32), ids, masks, *_group_columns(groups, len(ids))
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> "DecisionSteps":
        """Return an empty batch."""
        return DecisionSteps.of(_empty_observations(spec), (), ())


class TerminalSteps(_Steps, Mapping[AgentId, TerminalStep]):
    """Batch of the agents of a behavior whose episode ended; a mapping from agent id.

    Attributes:
        obs: One array per observation, (N, *shape), the last of the episode.
        reward: (N,) float32, sum of rewards since the agent's previous report.
        interrupted: (N,) bool, True if a time limit ended the episode, False if the task did.
        agent_id: (N,) int32, ids of the agents.
        group_id: (N,) int32, ids of the agents' groups; 0 for no group.
        group_reward: (N,) float32, sum of group rewards since the agent's previous report.
    """

    __slots__ = ("interrupted",)

    def __init__(
        self,
        obs: list[NDArray[Any]],
        reward: FloatArray,
        interrupted: BoolArray,
        agent_id: IntArray,
        group_id: IntArray,
        group_reward: FloatArray,
    ) -> None:
        super().__init__(obs, reward, agent_id, group_id, group_reward)
        self.interrupted = interrupted

    def __getitem__(self, agent_id: AgentId) -> TerminalStep:
        row = self._row(agent_id)
        return TerminalStep(
            obs=[batch[row] for batch in self.obs],
            reward=float(self.reward[row]),
            interrupted=bool(self.interrupted[row]),
            agent_id=agent_id,
            group_id=int(self.group_id[row]),
            group_reward=float(self.group_reward[row]),
        )

    @staticmethod
    def of(
        obs: list[NDArray[Any]],
        reward: ArrayLike,
        agent_id: ArrayLike,
        interrupted: ArrayLike,
        *,
        groups: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> "TerminalSteps":
        """Return a batch of N agents. Arrays of the right type are not copied.

        Args:
            obs: One array per observation, (N, *shape).
            reward: (N,) sums of rewards since the agents' previous report.
            agent_id: (N,) ids of the agents.
            interrupted: (N,) whether a time limit ended the episode, or one bool for all agents.
            groups: (N,) group ids and (N,) group rewards; None if no agent is in a group.
        """
        ids = np.asarray(agent_id, np.int32)
        ends = np.full(len(ids), interrupted, np.bool_)
        return TerminalSteps(
            obs, np.asarray(reward, np.float32), ends, ids, *_group_columns(groups, len(ids))
        )

    @staticmethod
    def empty(spec: BehaviorSpec) -> "TerminalSteps":
        """Return an empty batch."""
        return TerminalSteps.of(_empty_observations(spec), (), (), ())


def _group_columns(
    groups: tuple[ArrayLike, ArrayLike] | None, n_agents: int
) -> tuple[IntArray, FloatArray]:
    """Return the group id and group reward of each agent; zeros without groups."""
    if groups is None:
        return np.zeros(n_agents, np.int32), np.zeros(n_agents, np.float32)
    group_id, group_reward = groups
    return np.asarray(group_id, np.int32), np.asarray(group_reward, np.float32)


def _empty_observations(spec: BehaviorSpec) -> list[NDArray[Any]]:
    return [
        np.zeros((0, *observation.shape), observation.dtype)
        for observation in spec.observation_specs
    ]
