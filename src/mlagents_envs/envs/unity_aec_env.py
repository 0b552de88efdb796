"""`UnityAECEnv`: many agents as a PettingZoo `AECEnv`, one after the other."""

from collections.abc import Mapping
from typing import Any

from mlagents_envs.base_env import ActionTuple, BaseEnv, BehaviorName
from mlagents_envs.envs.extras import needs
from mlagents_envs.envs.source import EnvMaker
from mlagents_envs.envs.unity_pettingzoo_base_env import (
    AgentName,
    Report,
    UnityPettingzooBaseEnv,
)

with needs("pettingzoo", extra="pettingzoo"):
    from pettingzoo import AECEnv


class UnityAECEnv(UnityPettingzooBaseEnv, AECEnv):  # type: ignore[misc]  # untyped
    """All agents of an environment, asked one after the other.

        env = UnityAECEnv(default_registry["3DBall"].make)
        env.reset(seed=1)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            env.step(None if terminated or truncated else env.action_space(agent).sample())

    The environment steps when everyone who asked has been told what to do. Who does not ask has no
    turn.

    Arguments, spaces, names and infos: see `UnityPettingzooBaseEnv`.

    Attributes:
        agent_selection: Whose turn it is.
        rewards: By agent, what the last step gave.
        terminations: By agent, whether the task ended its episode.
        truncations: By agent, whether a clock ended its episode.
        infos: By agent, see `Report`.
    """

    def __init__(
        self,
        env: BaseEnv | EnvMaker,
        seed: int | None = None,
        *,
        max_agents: Mapping[BehaviorName, int] | None = None,
        uint8_visual: bool = False,
    ) -> None:
        super().__init__(env, seed, max_agents=max_agents, uint8_visual=uint8_visual)
        self.agent_selection: AgentName = ""
        self.rewards: dict[AgentName, float] = {}
        self.terminations: dict[AgentName, bool] = {}
        self.truncations: dict[AgentName, bool] = {}
        self.infos: dict[AgentName, dict[str, Any]] = {}
        self._cumulative_rewards: dict[AgentName, float] = {}
        self._observations: dict[AgentName, Any] = {}
        self._actions: dict[AgentName, ActionTuple] = {}
        self._waiting: list[AgentName] = []  # for their turn, before the environment steps
        self._skip_agent_selection: AgentName | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new episode of the whole environment.

        Args:
            seed: Of the environment, if this wrapper was given a function that makes it.
            options: There are none; what is given is ignored, with a warning.
        """
        for of_agents in (
            self.rewards,
            self.terminations,
            self.truncations,
            self.infos,
            self._cumulative_rewards,
            self._observations,
            self._actions,
        ):
            of_agents.clear()
        self._skip_agent_selection = None
        self._take_in(self._begin(seed, options))
        self._clear_rewards()  # they are from before
        self.agent_selection = self._waiting[0]

    def observe(self, agent: AgentName) -> Any:
        """Return what an agent has seen last."""
        return self._observations[agent]

    def step(self, action: Any) -> None:
        """Let the agent whose turn it is act; None for one that has ended.

        Raises:
            UnityActionException: The action is not in the agent's space.
            UnityEnvironmentException: Nobody takes part: the episode is over or has not begun.
            ValueError: An agent that has ended is told to do something.
        """
        self._require_agents()
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._actions[agent] = self._decode(agent, action)
        self._waiting.pop(0)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        while not self._waiting and self._has_anyone_left():
            actions, self._actions = self._actions, {}
            self._take_in(self._play(actions))
        self._accumulate_rewards()
        if self._waiting:
            self.agent_selection = self._waiting[0]
        self._deads_step_first()

    def _has_anyone_left(self) -> bool:
        return any(not self.terminations[a] and not self.truncations[a] for a in self.agents)

    def _take_in(self, reports: Mapping[AgentName, Report]) -> None:
        """Note what is new, and who asks."""
        for agent, report in reports.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + report.reward
            self._cumulative_rewards.setdefault(agent, 0.0)
            self._observations[agent] = report.observation
            self.terminations[agent] = report.terminated
            self.truncations[agent] = report.truncated
            self.infos[agent] = report.info
        self.agents = [agent for agent in self.possible_agents if agent in self.rewards]
        self._waiting = [
            agent for agent in self.agents if agent in reports and not reports[agent].has_ended
        ]
