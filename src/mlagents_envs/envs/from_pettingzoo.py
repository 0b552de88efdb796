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
    """Turn a PettingZoo `ParallelEnv` into a `BaseEnv`.

    Agents with equal spaces follow the same behavior. It is called as the first of them is,
    without digits at the end; or, if all agents have equal spaces, as the environment is called. An
    agent's id is its place in `possible_agents`. Spaces are converted as by `from_gymnasium`. Masks
    are obeyed, whether an observation is a dict of `observation` and `action_mask` or the latter
    is in an agent's info.

    An agent that has ended stays away until all have. Then the environment is reset, in the same
    step. An agent that is gone without a word is interrupted.

    Args:
        env: Closed with what is returned.
        seed: Of the first reset.
        keep_8_bit_images: Whether images of bytes stay uint8, 0 to 255, a quarter of the memory;
            otherwise they become float32, 0 to 1.

    Raises:
        UnityGymException: It does not tell all possible agents, or a space has no counterpart.
    """
    possible_agents = getattr(env, "possible_agents", None)
    if not isinstance(env, ParallelEnv) or not possible_agents:
        raise UnityGymException(
            f"{env} is no ParallelEnv that has possible_agents; an AECEnv becomes one by "
            "pettingzoo.utils.conversions.aec_to_parallel"
        )
    made = PettingZooEnv(env, possible_agents, seed=seed)
    if keep_8_bit_images:
        made.keep_8_bit_images()
    return made


class PettingZooEnv(LocalEnv):
    """A PettingZoo `ParallelEnv` as a `BaseEnv`; see `from_pettingzoo`.

    Args:
        env: Closed with this.
        possible_agents: All who may take part.
        seed: Of the first reset.
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
        """Reset the PettingZoo environment; the first time with the seed."""
        return {name: Report(asking) for name, asking in self._begin().items()}

    def advance(self) -> dict[BehaviorName, Report]:
        """Let all agents act who asked; when none is left, begin the next episode."""
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
        """Reset, and report who asks."""
        observations, infos = self._env.reset(seed=self._seed)
        self._seed = None
        self._observations = dict(observations)
        if not self._env.agents:
            raise UnityEnvironmentException(f"{self._env} has no agents after reset()")
        return self._ask(self._env.agents, {}, infos)

    def _decode_actions(self) -> dict[AgentName, Any]:
        """Return the actions set, by agent."""
        actions: dict[AgentName, Any] = {}
        for name, cast in self._casts.items():
            agents = self.get_steps(name)[0].agent_id.tolist()
            actions.update(cast.decode(agents, self.take_actions(name)))
        return actions

    def _end(
        self, interrupted: Mapping[AgentName, bool], rewards: Mapping[AgentName, float]
    ) -> dict[BehaviorName, TerminalSteps]:
        """Report who has ended and whether a clock did it, with what they saw last."""
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
        """Report who asks."""
        strangers = [a for a in agents if not any(a in cast.ids for cast in self._casts.values())]
        if strangers:
            raise UnityEnvironmentException(
                f"{strangers} are not among the possible_agents, which must name all who ever take "
                "part; a UnityParallelEnv takes max_agents for that"
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
    """All agents that have these spaces.

    Attributes:
        ids: Of the agents, by name.
        spec: What they see and do.
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
        """Batch observations of N agents."""
        if not observations:
            return TerminalSteps.empty(self.spec).obs
        if self._has_masks:
            observations = [observation[_OBSERVATION] for observation in observations]
        return self._seen.encode_each(observations)

    def masks(
        self, observations: Sequence[Any], infos: Sequence[Mapping[str, Any]]
    ) -> list[BoolArray] | None:
        """Return one (N, size) array per branch, True where an action is forbidden.

        Where all actions are forbidden, or nothing is said, all are allowed.
        """
        if self._has_masks:
            return self._actions.masks([observation[_MASK] for observation in observations])
        return self._actions.masks([info.get(_MASK) for info in infos])

    def decode(self, agent_ids: Sequence[AgentId], action: ActionTuple) -> dict[AgentName, Any]:
        """Turn rows into what each agent does."""
        names = {agent_id: name for name, agent_id in self.ids.items()}
        decoded = self._actions.decode_each(action)
        return {names[agent]: one for agent, one in zip(agent_ids, decoded, strict=True)}


def _make_casts(
    env: ParallelEnv, possible_agents: Sequence[AgentName]
) -> dict[BehaviorName, _Cast]:
    """Sort agents by their spaces."""
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
        # What follows a question mark would be taken for a team.
        first = str(next(iter(cast.ids))).partition("?")[0]
        name = first.rstrip("_-0123456789") or "agent"
        named[name if name not in named else f"{name}_{len(named)}"] = cast
    return named
