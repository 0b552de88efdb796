"""Base class of the PettingZoo wrappers: named agents, their spaces, and steps of the environment.

The name of an agent is `<behavior>?agent_id=<number>`. In PettingZoo, `possible_agents` should
never change, and an agent whose episode has ended does not return before the next `reset`. In a
simulation, however, agents begin their next episode at once, and may have new ids.

Each name therefore refers to one agent per episode of the whole environment. Agents get names in
the order of their first requests after a `reset`, as long as names are unused. An agent that begins
another episode, or replaces one that ended, stays idle until the next `reset`. New names are
created only if more agents are present at once than there are names.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.envs.source import MAX_SILENT_STEPS, EnvMaker, EnvSource, no_options
from mlagents_envs.envs.spaces import ActionLayout, ObservationLayout, Space
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

AgentName = str


class Report(NamedTuple):
    """Report of one agent.

    Attributes:
        observation: Observation, in the agent's observation space.
        reward: Reward of the agent and its group since the previous report.
        terminated: Whether the task ended the episode.
        truncated: Whether a time limit ended the episode.
        info: `behavior_name`; `agent_id` in the simulation; `group_id`, 0 for none;
            `group_reward`, the group's part of the reward; `decides`, whether the next action has
            an effect; and, if the episode has ended, `interrupted`.
    """

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def has_ended(self) -> bool:
        """Whether the agent's episode is over, terminated or truncated."""
        return self.terminated or self.truncated


class UnityPettingzooBaseEnv:
    """Base class of `UnityParallelEnv` and `UnityAECEnv`.

    Actions: a float `Box` of [-1, 1] for continuous actions, `Discrete` for one branch,
    `MultiDiscrete` for several; for both kinds, a `Dict` of `continuous` and `discrete`.

    Observations: an array, or a dict of several by their names (see `observation_keys`). With
    discrete actions, the observation is a dict of this `observation` and an `action_mask`, which
    `action_space(agent).sample` accepts. The mask is 1 where an action is allowed: an int8 array
    for a single branch, or a tuple of one array per branch.

    Args:
        env: Environment, or function that creates one and takes the keyword `seed`. A seed passed
            to `reset` has an effect only with a function.
        seed: Seed for sampling from the action spaces, and for the function, if `env` is one.
        max_agents: Minimum number of names, by behavior. If agents appear later in an episode, set
            it above the number of agents that request an action after a reset.
        uint8_visual: Whether images are uint8, 0 to 255, instead of float32, 0 to 1.

    Attributes:
        agents: Agents of the running episode, in the order of `possible_agents`.
        possible_agents: All names. The list grows if more agents are present at once than before.
        observation_spaces: Observation spaces by name.
        action_spaces: Action spaces by name.

    Raises:
        UnityEnvironmentException: `max_agents` names an unknown behavior.
    """

    def __init__(
        self,
        env: BaseEnv | EnvMaker,
        seed: int | None = None,
        *,
        max_agents: Mapping[BehaviorName, int] | None = None,
        uint8_visual: bool = False,
    ) -> None:
        self.metadata: dict[str, Any] = {"name": "unity_ml_agents", "render_modes": ["rgb_array"]}
        self.agents: list[AgentName] = []
        self.observation_spaces: dict[AgentName, Space] = {}
        self.action_spaces: dict[AgentName, Space] = {}
        self._source = EnvSource(env, seed)
        self._uint8_visual = uint8_visual
        self._casts: dict[BehaviorName, _Cast] = {}
        self._cast_of: dict[AgentName, _Cast] = {}
        self._seed = seed
        self._has_warned_of_options = False
        try:
            self._begin(None)
            self.agents = []
            for behavior, n_agents in (max_agents or {}).items():
                self._make_spare_names(behavior, n_agents)
        except BaseException:
            self._source.close_if_made()
            raise

    @property
    def possible_agents(self) -> list[AgentName]:
        """All names, ordered by behavior."""
        return [name for cast in self._casts.values() for name in cast.roster.names]

    @property
    def side_channel(self) -> dict[str, Any]:
        """The environment's side channels by the names of their classes."""
        channels: Iterable[Any] = getattr(self._source.env, "side_channels", ())
        return {type(channel).__name__: channel for channel in channels}

    @property
    def render_mode(self) -> str | None:
        """`rgb_array` if the environment can render, else None."""
        return "rgb_array" if hasattr(self._source.env, "render") else None

    def observation_space(self, agent: AgentName) -> Space:
        """Return the observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: AgentName) -> Space:
        """Return the action space of an agent, the same object in every call."""
        return self.action_spaces[agent]

    def seed(self, seed: int | None = None) -> None:
        """Seed the action spaces for sampling."""
        self._seed = seed
        for index, space in enumerate(self.action_spaces.values()):
            space.seed(None if seed is None else seed + index)

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture of the environment, (H, W, 3); None if it cannot render."""
        if self.render_mode is None:
            return None
        picture: NDArray[np.uint8] = self._source.env.render()  # type: ignore[attr-defined]
        return picture

    def close(self) -> None:
        """Close the environment. Calling it again does nothing."""
        self.agents = []
        self._source.env.close()

    # Methods for the wrappers.

    def _begin(
        self, seed: int | None, options: Mapping[str, Any] | None = None
    ) -> dict[AgentName, Report]:
        """Begin a new episode of the whole environment; return a report of each agent."""
        if options and not self._has_warned_of_options:
            # Not an error, because PettingZoo's own tests pass an option.
            self._has_warned_of_options = True
            logger.warning(no_options(options))
        self._source.reset(seed)
        for cast in self._casts.values():
            cast.roster.begin()
        reports = self._receive() or self._play({})
        self.agents = [agent for agent in self.possible_agents if agent in reports]
        return reports

    def _play(self, actions: Mapping[AgentName, ActionTuple]) -> dict[AgentName, Report]:
        """Step until an agent with a name requests an action or its episode ends.

        Args:
            actions: Actions of one row, by agent. Agents without an action get zeros.

        Returns:
            Reports of all agents that request an action or whose episode ended. Agents that were
            not in `agents` are new.
        """
        for _ in range(MAX_SILENT_STEPS):
            self._set_actions(actions)
            self._source.env.step()
            reports = self._receive()
            if reports:
                return reports
            actions = {}
        raise UnityEnvironmentException(
            f"none of {self.agents} requested an action or ended its episode in {MAX_SILENT_STEPS} "
            "steps. Call reset()."
        )

    def _decode(self, agent: AgentName, action: Any) -> ActionTuple:
        """Convert the action of one agent to an `ActionTuple` of one row.

        Raises:
            UnityActionException: The action is not in the agent's action space. Continuous actions
                may exceed its bounds.
        """
        return self._cast_of[agent].decode(agent, action)

    def _require_agents(self) -> None:
        if not self.agents:
            raise UnityEnvironmentException("there are no agents; call reset() to begin an episode")

    # Private methods.

    def _receive(self) -> dict[AgentName, Report]:
        """Return the environment's current reports."""
        reports: dict[AgentName, Report] = {}
        for behavior, spec in self._source.env.behavior_specs.items():
            cast = self._casts.get(behavior)
            if cast is None:
                cast = self._casts[behavior] = _Cast(behavior, spec, self._uint8_visual)
            decisions, terminals = self._source.env.get_steps(behavior)
            # An agent whose episode ended may request an action at once, in the next episode.
            ended = [cast.roster.leave(agent_id) for agent_id in terminals.agent_id.tolist()]
            asking = [cast.roster.enter(agent_id) for agent_id in decisions.agent_id.tolist()]
            self._make_spaces(cast)
            reports.update(cast.reports(ended, terminals))
            reports.update(cast.reports(asking, decisions))
        return reports

    def _set_actions(self, actions: Mapping[AgentName, ActionTuple]) -> None:
        for behavior, cast in self._casts.items():
            if behavior not in self._source.env.behavior_specs:
                continue  # the environment is new, and the behavior has not appeared yet
            decisions, _ = self._source.env.get_steps(behavior)
            if len(decisions) == 0:
                continue
            batch = cast.spec.action_spec.empty_action(len(decisions))
            for row, agent_id in enumerate(decisions.agent_id.tolist()):
                action = actions.get(cast.roster.name_of(agent_id) or "")
                if action is not None:
                    batch.continuous[row] = action.continuous[0]
                    batch.discrete[row] = action.discrete[0]
            self._source.env.set_actions(behavior, batch)

    def _make_spare_names(self, behavior: BehaviorName, n_agents: int) -> None:
        cast = self._casts.get(behavior)
        if cast is None:
            raise UnityEnvironmentException(
                f"max_agents has the unknown behavior {behavior!r}; expected one of "
                f"{list(self._casts)}"
            )
        while len(cast.roster.names) < n_agents:
            cast.roster.make_name()
        self._make_spaces(cast)

    def _make_spaces(self, cast: "_Cast") -> None:
        """Create the spaces of new names; each has its own action space, which it seeds."""
        for name in cast.roster.names:
            if name not in self._cast_of:
                self._cast_of[name] = cast
                self.observation_spaces[name] = cast.observation_space
                space = self.action_spaces[name] = copy.deepcopy(cast.action_space)
                if self._seed is not None:
                    space.seed(self._seed + len(self.action_spaces) - 1)


class HybridSpace(spaces.Dict):
    """`Dict` of `continuous` and `discrete` actions, which can be sampled with a discrete mask."""

    def sample(
        self, mask: Any | None = None, probability: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a random action.

        Args:
            mask: Tuple of one int8 array per branch, 1 where an action is allowed; or a mask of
                `Dict.sample`.
            probability: Probabilities of `Dict.sample`.
        """
        if isinstance(mask, tuple):
            mask = {"continuous": None, "discrete": mask}
        return super().sample(mask, probability)


class _Roster:
    """Names of one behavior, and the agents that have them in this episode.

    Attributes:
        names: Names of all possible agents.
    """

    def __init__(self, behavior: BehaviorName) -> None:
        self.names: list[AgentName] = []
        self._behavior = behavior
        self._free: list[AgentName] = []
        self._present: set[AgentId] = set()
        # Names of all agents of this episode; None for those that ended or got no name.
        self._met: dict[AgentId, AgentName | None] = {}

    def begin(self) -> None:
        """Begin a new episode: free all names."""
        self._free = list(self.names)
        self._present.clear()
        self._met.clear()

    def enter(self, agent_id: AgentId) -> AgentName | None:
        """Return the name of an agent that requests an action; None if it waits for `reset`."""
        self._present.add(agent_id)
        if agent_id not in self._met:
            if not self._free and len(self._present) > len(self.names):
                self.make_name(agent_id)
            self._met[agent_id] = self._take_name(self._name(agent_id))
        return self._met[agent_id]

    def leave(self, agent_id: AgentId) -> AgentName | None:
        """Remove an agent whose episode has ended; return its name, or None if it had none."""
        self._present.discard(agent_id)
        name = self._met.get(agent_id)
        self._met[agent_id] = None
        return name

    def name_of(self, agent_id: AgentId) -> AgentName | None:
        """Return the name of an agent in this episode, or None."""
        return self._met.get(agent_id)

    def make_name(self, number: int = 0) -> None:
        """Create a new name with this number, or the next free one."""
        while self._name(number) in self.names:
            number += 1
        self.names.append(self._name(number))
        self._free.append(self._name(number))

    def _take_name(self, wanted: AgentName) -> AgentName | None:
        if not self._free:
            return None
        return self._free.pop(self._free.index(wanted) if wanted in self._free else 0)

    def _name(self, number: int) -> AgentName:
        return f"{self._behavior}?agent_id={number}"


class _Cast:
    """Agents of one behavior: their names, observations and actions.

    Attributes:
        roster: Names of the agents.
        spec: Specification of the behavior.
        observation_space: Observation space of an agent in PettingZoo.
        action_space: Action space of an agent in PettingZoo.
    """

    def __init__(self, behavior: BehaviorName, spec: BehaviorSpec, uint8_visual: bool) -> None:
        self.roster = _Roster(behavior)
        self.spec = spec
        self._behavior = behavior
        self._actions = ActionLayout(spec.action_spec)
        self._observations = ObservationLayout(
            spec.observation_specs, "dict", uint8_visual=uint8_visual
        )
        self.action_space: Space = self._actions.space
        if isinstance(self.action_space, spaces.Dict):
            self.action_space = HybridSpace(self.action_space.spaces)
        self.observation_space = self._observation_space()

    def decode(self, agent: AgentName, action: Any) -> ActionTuple:
        """Convert the action of one agent to an `ActionTuple` of one row, and check it."""
        try:
            row = self._actions.decode_one(action)
            self.spec.action_spec.check(row, 1, behavior=self._behavior)
            if np.isfinite(row.continuous).all() and self._are_choices(action):
                return row
        except (TypeError, ValueError, KeyError, IndexError, UnityActionException):
            pass
        raise UnityActionException(
            f"agent {agent!r}: expected an action of {self.action_space}, got {action!r}"
        )

    def reports(
        self, names: Sequence[AgentName | None], steps: DecisionSteps | TerminalSteps
    ) -> Iterator[tuple[AgentName, Report]]:
        """Yield a report of each agent in `steps` that has a name."""
        observations = self._encode(steps)
        interrupted = steps.interrupted.tolist() if isinstance(steps, TerminalSteps) else None
        for row, name in enumerate(names):
            if name is None:
                continue
            group_reward = float(steps.group_reward[row])
            info: dict[str, Any] = {
                "behavior_name": self._behavior,
                "agent_id": int(steps.agent_id[row]),
                "group_id": int(steps.group_id[row]),
                "group_reward": group_reward,
                "decides": interrupted is None,
            }
            if interrupted is not None:
                info["interrupted"] = interrupted[row]
            yield (
                name,
                Report(
                    observation=_row(observations, row),
                    reward=float(steps.reward[row]) + group_reward,
                    terminated=interrupted is not None and not interrupted[row],
                    truncated=interrupted is not None and interrupted[row],
                    info=info,
                ),
            )

    @property
    def _branches(self) -> tuple[int, ...]:
        return self.spec.action_spec.discrete_branches

    def _observation_space(self) -> Space:
        space = self._observations.space
        if not self._branches:
            return space
        masks = [spaces.Box(0, 1, (size,), np.int8) for size in self._branches]
        return spaces.Dict(
            {
                "observation": space,
                "action_mask": masks[0] if self._has_one_mask else spaces.Tuple(masks),
            }
        )

    @property
    def _has_one_mask(self) -> bool:
        return isinstance(self.action_space, spaces.Discrete)

    def _encode(self, steps: DecisionSteps | TerminalSteps) -> Any:
        """Return the observations of N agents in the layout of the space, with (N, ...) arrays."""
        seen = self._observations.encode(steps.obs)
        if not self._branches:
            return seen
        allowed: Any = tuple(self._allowed(steps))
        return {"observation": seen, "action_mask": allowed[0] if self._has_one_mask else allowed}

    def _allowed(self, steps: DecisionSteps | TerminalSteps) -> Iterator[NDArray[np.int8]]:
        """Yield (N, size) per branch, 1 where an action is allowed; all 1 for ended agents."""
        masks = steps.action_mask if isinstance(steps, DecisionSteps) else None
        for branch, size in enumerate(self._branches):
            if masks is None:
                yield np.ones((len(steps), size), np.int8)
            else:
                yield (~masks[branch]).astype(np.int8)

    def _are_choices(self, action: Any) -> bool:
        if not self._branches:
            return True
        if isinstance(self.action_space, spaces.Dict):
            return bool(self.action_space["discrete"].contains(np.asarray(action["discrete"])))
        return bool(self.action_space.contains(np.asarray(action)))


def _row(batch: Any, row: int) -> Any:
    """Return the row of one agent from arrays, tuples and dicts of arrays."""
    if isinstance(batch, dict):
        return {key: _row(part, row) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_row(part, row) for part in batch)
    return batch[row]
