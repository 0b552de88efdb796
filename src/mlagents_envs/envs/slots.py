"""Mapping of agents, which appear and disappear, to the fixed rows of a vector environment.

`Slots` stores the report of a vector step, one row per slot. A `SlottedEnv` is one environment with
its range of slots: it writes the reports of its agents and sets their actions.
"""

import selectors
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BehaviorName,
    DecisionSteps,
    IntArray,
    TerminalSteps,
)
from mlagents_envs.envs.source import MAX_SILENT_STEPS, EnvSource
from mlagents_envs.envs.spaces import ActionLayout, ObservationLayout, UnityGymException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

Rows = slice | NDArray[np.intp]
"""Rows of a batch; a slice if they are consecutive."""

NO_AGENT = -1

_LOOK_AGAIN_S = 1.0
"""Longest wait for an answer of any environment, in seconds. After that, only the first environment
is waited for, with its own deadline."""


class Slots:
    """Report of a vector step, with arrays (S, ...) for S slots.

    The attributes from `reward` on describe only the current step.

    Args:
        observations: Layout of observations in Gymnasium.
        actions: Layout of actions in Gymnasium.
        size: Number of slots, S.

    Attributes:
        obs: Last observation of every slot, by part of the layout.
        agent_id: Agent that has the slot or had it last; `NO_AGENT` if there was none yet.
        is_running: Whether the slot's episode is running.
        has_groups: Whether any agent was in a group.
        reward: Reward of the agent.
        group_reward: Reward of the agent's group.
        terminated: Whether the task ended the episode.
        truncated: Whether a time limit ended the episode.
        acting: Whether the agent requests an action, so that the next action has an effect.
        allowed: (S, choices) whether each action is allowed.
        ended: Slots whose episode ended, with their agents and last observations.
    """

    def __init__(self, observations: ObservationLayout, actions: ActionLayout, size: int) -> None:
        self.observations = observations
        self.actions = actions
        self.size = size
        self.obs = [np.zeros((size, *part.shape), part.dtype) for part in observations.part_spaces]
        self.agent_id = np.full(size, NO_AGENT, np.int64)
        self.is_running = np.zeros(size, np.bool_)
        self.has_groups = False
        self.begin_step()

    def begin_step(self) -> None:
        """Create new arrays for the report of the next step."""
        self.reward = np.zeros(self.size, np.float32)
        self.group_reward = np.zeros(self.size, np.float32)
        self.terminated = np.zeros(self.size, np.bool_)
        self.truncated = np.zeros(self.size, np.bool_)
        self.acting = np.zeros(self.size, np.bool_)
        self.allowed = np.ones((self.size, self.actions.n_choices), np.bool_)
        self.ended: list[tuple[NDArray[np.intp], NDArray[np.int64], list[NDArray[Any]]]] = []

    def reset(self) -> None:
        """Remove all agents and their observations."""
        for held in self.obs:
            held[:] = 0
        self.agent_id[:] = NO_AGENT
        self.is_running[:] = False
        self.begin_step()

    def write_decisions(self, slots: Rows, decisions: DecisionSteps, rows: Rows) -> None:
        """Write the reports of agents that request an action."""
        self._write_obs(slots, self.observations.encode_parts([obs[rows] for obs in decisions.obs]))
        # The reward before an agent's first action of an episode is dropped: no action caused it.
        is_running = self.is_running[slots]
        self.reward[slots] += decisions.reward[rows] * is_running
        self.group_reward[slots] += decisions.group_reward[rows] * is_running
        self.is_running[slots] = True
        self.acting[slots] = True
        if decisions.action_mask is not None:
            masks = [mask[rows] for mask in decisions.action_mask]
            self.allowed[slots] = self.actions.allowed(masks)
        self.has_groups |= bool(np.count_nonzero(decisions.group_id))

    def write_terminals(
        self, slots: NDArray[np.intp], messages: list[TerminalSteps], rows: NDArray[np.intp]
    ) -> None:
        """Write the reports of agents whose episodes ended.

        Args:
            slots: Slots of the agents.
            messages: Terminal steps of one or several steps of the environment.
            rows: Rows of the agents in the concatenated messages.
        """
        obs = zip(*(terminals.obs for terminals in messages), strict=True)
        parts = self.observations.encode_parts([_joined(batches)[rows] for batches in obs])
        self._write_obs(slots, parts)
        interrupted = _joined([terminals.interrupted for terminals in messages])[rows]
        self.reward[slots] = _joined([terminals.reward for terminals in messages])[rows]
        self.group_reward[slots] = _joined([terminals.group_reward for terminals in messages])[rows]
        self.terminated[slots] = ~interrupted
        self.truncated[slots] = interrupted
        self.is_running[slots] = False
        self.has_groups |= any(np.count_nonzero(terminals.group_id) for terminals in messages)
        self.ended.append((slots, self.agent_id[slots], parts))

    def _write_obs(self, slots: Rows, parts: list[NDArray[Any]]) -> None:
        for held, part in zip(self.obs, parts, strict=True):
            held[slots] = part


def _joined(batches: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return batches[0] if len(batches) == 1 else np.concatenate(batches)


class SlottedEnv:
    """Environment with its range of slots.

    Args:
        source: Source of the environment.
        behavior: Behavior whose agents have slots.
        first: Index of the first slot.
        size: Number of slots.
        warns: Whether to log a warning if there are more agents than slots.
    """

    def __init__(
        self, source: EnvSource, behavior: BehaviorName, *, first: int, size: int, warns: bool
    ) -> None:
        self.source = source
        self.first = first
        self.size = size
        self._end_slot = first + size
        self._behavior = behavior
        self._warns = warns
        self.forget()

    def forget(self) -> None:
        """Remove all agents."""
        self._slot_of: dict[AgentId, int] = {}
        self._asked: IntArray = np.zeros(0, np.int32)
        self._slots: Rows = slice(0, 0)
        self._rows: Rows = slice(0, 0)
        self._ended: list[TerminalSteps] = []
        self._n_silent_steps = 0

    def collect(self, slots: Slots) -> bool:
        """Write the environment's report; return whether any agent with a slot requests an action.

        Raises:
            UnityGymException: No agent with a slot has requested an action for `MAX_SILENT_STEPS`
                steps.
        """
        asks = self._write(slots)
        self._n_silent_steps = 0 if asks else self._n_silent_steps + 1
        if self._n_silent_steps == MAX_SILENT_STEPS:
            raise UnityGymException(
                f"{self._behavior}: no agent with a slot requested an action in {MAX_SILENT_STEPS} "
                "steps. Call reset()."
            )
        return asks

    def _write(self, slots: Slots) -> bool:
        decisions, terminals = self.source.env.get_steps(self._behavior)
        if len(terminals):
            self._ended.append(terminals)
        if not len(decisions):
            return False
        if self._ended:
            self._end(slots)
        some_lack_slots = not isinstance(self._rows, slice)
        if some_lack_slots or not np.array_equal(decisions.agent_id, self._asked):
            self._assign(slots, decisions.agent_id)
        slots.write_decisions(self._slots, decisions, self._rows)
        return bool(np.count_nonzero(slots.acting[self.first : self._end_slot]))

    def act(self, actions: ActionTuple) -> None:
        """Set the actions of the agents that request one; agents without a slot get zeros."""
        continuous, discrete = actions.continuous[self._slots], actions.discrete[self._slots]
        if not isinstance(self._rows, slice):
            n_agents = len(self._asked)
            continuous = _spread(continuous, self._rows, n_agents)
            discrete = _spread(discrete, self._rows, n_agents)
        self.source.env.set_actions(self._behavior, ActionTuple(continuous, discrete))

    def _end(self, slots: Slots) -> None:
        """Write the ends of episodes, except those in which the agent requested no action."""
        row_of: dict[int, int] = {}
        agents = _joined([terminals.agent_id for terminals in self._ended]).tolist()
        for row, agent in enumerate(agents):
            slot = self._slot_of.get(agent)
            if slot is not None and slots.is_running[slot]:
                row_of.setdefault(slot, row)
        if row_of:
            where, rows = (np.array([*part], np.intp) for part in (row_of, row_of.values()))
            slots.write_terminals(where, self._ended, rows)
        self._ended = []

    def _assign(self, slots: Slots, asking: IntArray) -> None:
        """Assign agents to slots; new agents get slots without a running episode."""
        agents = asking.tolist()
        returning = {self._slot_of[agent] for agent in agents if agent in self._slot_of}
        free = iter(
            [
                slot
                for slot in range(self.first, self._end_slot)
                if not slots.is_running[slot] and slot not in returning
            ]
        )
        assigned: list[tuple[int, int]] = []
        for row, agent in enumerate(agents):
            slot = self._slot_of.get(agent)
            if slot is None:
                slot = next(free, None)
                if slot is None:
                    continue
                self._slot_of.pop(int(slots.agent_id[slot]), None)
                self._slot_of[agent] = slot
                slots.agent_id[slot] = agent
            assigned.append((row, slot))
        rows, where = np.array(assigned, np.intp).reshape(-1, 2).T
        self._asked = asking
        self._rows = slice(None) if len(rows) == len(agents) else rows
        is_run = len(where) > 0 and bool((np.diff(where) == 1).all())
        self._slots = slice(int(where[0]), int(where[-1]) + 1) if is_run else where
        if self._warns and len(rows) < len(agents):
            self._warns = False
            logger.warning(
                "behavior %r: %d agents request actions, but the environment has %d slots; agents "
                "without a slot get zeros as actions. Pass agents_per_env to get more slots.",
                self._behavior,
                len(agents),
                self._end_slot - self.first,
            )


def _spread(part: NDArray[Any], rows: NDArray[np.intp], n_agents: int) -> NDArray[Any]:
    """Return an (n_agents, ...) array with `part` in `rows` and zeros elsewhere."""
    spread = np.zeros((n_agents, *part.shape[1:]), part.dtype)
    spread[rows] = part
    return spread


def answered(envs: Sequence[SlottedEnv]) -> list[SlottedEnv]:
    """Return at least one environment to receive from: local ones first, then those that answered.

    Args:
        envs: Environments to which a step was sent.
    """
    by_descriptor: dict[int, SlottedEnv] = {}
    for slotted in envs:
        descriptor = slotted.source.env.fileno()
        if descriptor is None:
            return [slotted]
        by_descriptor[descriptor] = slotted
    if len(envs) > 1:
        with selectors.DefaultSelector() as selector:
            for descriptor in by_descriptor:
                selector.register(descriptor, selectors.EVENT_READ)
            if ready := selector.select(_LOOK_AGAIN_S):
                return [by_descriptor[key.fd] for key, _ in ready]
    return [envs[0]]
