"""`from_pettingzoo`: a PettingZoo `ParallelEnv` as a `BaseEnv`."""

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.envs.extras import needs
from mlagents_envs.envs.foreign_spaces import ForeignActions, ForeignObservations
from mlagents_envs.envs.spaces import Space, UnityGymException
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.local_env import LocalEnv, Report

with needs("pettingzoo", extra="pettingzoo"):
    from pettingzoo import ParallelEnv

AgentName = Any

_MASK = "action_mask"
_OBSERVATION = "observation"


def from_pettingzoo(
    env: ParallelEnv, *, seed: int | None = None, keep_8_bit_images: bool = False
) -> BaseEnv:
    """Convert a PettingZoo `ParallelEnv` to a `BaseEnv`.

    Agents with equal spaces follow the same behavior, which has the name of its first agent without
    trailing digits. If all agents have equal spaces, the behavior has the name of the environment.
    An agent's id is its index in `possible_agents`. Spaces are converted as in `from_gymnasium`.
    The action mask is the `action_mask` of an agent's info, or of its observation if that is a dict
    of `observation` and `action_mask`.

    An agent whose episode has ended is absent until all episodes have ended. Then the environment
    is reset in the same step. If an agent disappears, its episode counts as interrupted.

    Args:
        env: PettingZoo environment, which is closed with the returned environment.
        seed: Seed of the first reset.
        keep_8_bit_images: Whether uint8 images stay uint8, 0 to 255, which takes a quarter of the
            memory; otherwise they become float32, 0 to 1.

    Raises:
        UnityGymException: The environment is not a `ParallelEnv` with `possible_agents`, or a
            space is not supported.
    """
    possible_agents = getattr(env, "possible_agents", None)
    if not isinstance(env, ParallelEnv) or not possible_agents:
        raise UnityGymException(
            f"{env} is not a ParallelEnv with possible_agents. Convert an AECEnv with "
            "pettingzoo.utils.conversions.aec_to_parallel."
        )
    made = PettingZooEnv(env, possible_agents, seed=seed)
    if keep_8_bit_images:
        made.keep_8_bit_images()
    return made


class PettingZooEnv(LocalEnv):
    """Adapter of a PettingZoo `ParallelEnv` to `BaseEnv`; see `from_pettingzoo`.

    Args:
        env: PettingZoo environment, which is closed with this environment.
        possible_agents: All agents that may appear.
        seed: Seed of the first reset.
    """

    def __init__(
        self, env: ParallelEnv, possible_agents: Sequence[AgentName], *, seed: int | None = None
    ) -> None:
        super().__init__()
        self._env = env
        self._seed = seed
        self._observations: dict[AgentName, Any] = {}
        self._casts = _make_casts(env, possible_agents)
        self.announce({name: cast.spec for name, cast in self._casts.items()})

    def restart(self) -> dict[BehaviorName, Report]:
        """Reset the PettingZoo environment; the first reset uses the seed."""
        return {name: Report(asking) for name, asking in self._begin().items()}

    def advance(self) -> dict[BehaviorName, Report]:
        """Step all agents that requested an action; if none is left, begin the next episode."""
        asked = list(self._observations)
        observations, rewards, terminated, truncated, infos = self._env.step(self._decode_actions())
        self._observations.update(observations)
        left = [
            agent
            for agent in self._env.agents
            if not terminated.get(agent, False) and not truncated.get(agent, False)
        ]
        gone = [agent for agent in asked if agent not in left]
        ended = self._end({agent: not terminated.get(agent, False) for agent in gone}, rewards)
        asking = self._ask(left, rewards, infos) if left else self._begin()
        return {name: Report(asking[name], ended[name]) for name in self._casts}

    def close(self) -> None:
        """Close the PettingZoo environment."""
        if not self._is_closed:
            super().close()
            self._env.close()

    def _begin(self) -> dict[BehaviorName, DecisionSteps]:
        """Reset the environment, and return the decision steps."""
        observations, infos = self._env.reset(seed=self._seed)
        self._seed = None
        self._observations = dict(observations)
        if not self._env.agents:
            raise UnityEnvironmentException(f"{self._env} has no agents after reset()")
        return self._ask(self._env.agents, {}, infos)

    def _decode_actions(self) -> dict[AgentName, Any]:
        """Return the actions by agent."""
        actions: dict[AgentName, Any] = {}
        for name, cast in self._casts.items():
            agents = self.get_steps(name)[0].agent_id.tolist()
            actions.update(cast.decode(agents, self.take_actions(name)))
        return actions

    def _end(
        self, interrupted: Mapping[AgentName, bool], rewards: Mapping[AgentName, float]
    ) -> dict[BehaviorName, TerminalSteps]:
        """Return the terminal steps, with the last observations."""
        ended = {}
        for name, cast in self._casts.items():
            gone = [agent for agent in interrupted if agent in cast.ids]
            ended[name] = TerminalSteps.of(
                cast.encode([self._observations[agent] for agent in gone]),
                [rewards.get(agent, 0.0) for agent in gone],
                [cast.ids[agent] for agent in gone],
                [interrupted[agent] for agent in gone],
            )
        return ended

    def _ask(
        self,
        agents: Sequence[AgentName],
        rewards: Mapping[AgentName, float],
        infos: Mapping[AgentName, Mapping[str, Any]],
    ) -> dict[BehaviorName, DecisionSteps]:
        """Return the decision steps, and keep only the observations of these agents."""
        strangers = [a for a in agents if not any(a in cast.ids for cast in self._casts.values())]
        if strangers:
            raise UnityEnvironmentException(
                f"{strangers} are not in possible_agents, which must list all agents that can "
                "appear. For a UnityParallelEnv, increase max_agents."
            )
        self._observations = {agent: self._observations[agent] for agent in agents}
        asks = {}
        for name, cast in self._casts.items():
            asking = [agent for agent in agents if agent in cast.ids]
            seen = [self._observations[agent] for agent in asking]
            asks[name] = DecisionSteps.of(
                cast.encode(seen),
                [rewards.get(agent, 0.0) for agent in asking],
                [cast.ids[agent] for agent in asking],
                masks=cast.masks(seen, [infos.get(agent, {}) for agent in asking]),
            )
        return asks


class _Cast:
    """Group of agents with the same observation space and action space.

    Attributes:
        ids: Ids of the agents, by name.
        spec: Specification of the agents' behavior.
    """

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        self.ids: dict[AgentName, AgentId] = {}
        self._has_masks = False
        if isinstance(observation_space, spaces.Dict):
            self._has_masks = observation_space.spaces.keys() == {_OBSERVATION, _MASK}
            if self._has_masks:
                observation_space = observation_space[_OBSERVATION]
        self._seen = ForeignObservations(observation_space)
        self._actions = ForeignActions(action_space)
        self.spec = BehaviorSpec(self._seen.specs, self._actions.spec)

    def encode(self, observations: Sequence[Any]) -> list[NDArray[Any]]:
        """Convert the observations of N agents to one (N, *shape) array per part."""
        if not observations:
            return TerminalSteps.empty(self.spec).obs
        if self._has_masks:
            observations = [observation[_OBSERVATION] for observation in observations]
        return self._seen.encode_each(observations)

    def masks(
        self, observations: Sequence[Any], infos: Sequence[Mapping[str, Any]]
    ) -> list[BoolArray] | None:
        """Return one (N, size) array per branch, True where an action is not allowed.

        If a mask is missing or allows no action, all actions are allowed.
        """
        if self._has_masks:
            return self._actions.masks([observation[_MASK] for observation in observations])
        return self._actions.masks([info.get(_MASK) for info in infos])

    def decode(self, agent_ids: Sequence[AgentId], action: ActionTuple) -> dict[AgentName, Any]:
        """Return the action of each agent, by name."""
        names = {agent_id: name for name, agent_id in self.ids.items()}
        decoded = self._actions.decode_each(action)
        return {names[agent]: one for agent, one in zip(agent_ids, decoded, strict=True)}


def _make_casts(
    env: ParallelEnv, possible_agents: Sequence[AgentName]
) -> dict[BehaviorName, _Cast]:
    """Return the agents grouped by their spaces, by behavior name."""
    sorted_agents: list[tuple[Space, Space, _Cast]] = []
    for agent_id, agent in enumerate(possible_agents):
        seen, done = env.observation_space(agent), env.action_space(agent)
        cast = next((cast for s, d, cast in sorted_agents if s == seen and d == done), None)
        if cast is None:
            cast = _Cast(seen, done)
            sorted_agents.append((seen, done, cast))
        cast.ids[agent] = agent_id
    casts = [cast for _, _, cast in sorted_agents]
    if len(casts) == 1:
        return {str(env): casts[0]}
    named: dict[BehaviorName, _Cast] = {}
    for cast in casts:
        # Text after a question mark would be read as a team.
        first = str(next(iter(cast.ids))).partition("?")[0]
        name = first.rstrip("_-0123456789") or "agent"
        named[name if name not in named else f"{name}_{len(named)}"] = cast
    return named
