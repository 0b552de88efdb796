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
    """PettingZoo `AECEnv` of all agents of an environment, which act one after the other.

        env = UnityAECEnv(default_registry["3DBall"].make)
        env.reset(seed=1)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, info = env.last()
            env.step(None if terminated or truncated else env.action_space(agent).sample())

    The environment steps when every agent that requested an action has one. Agents that do not
    request an action have no turn.

    `UnityPettingzooBaseEnv` documents arguments, spaces, names and infos.

    Attributes:
        agent_selection: Agent whose turn it is.
        rewards: Reward of the last step, by agent.
        terminations: Whether the task ended the episode, by agent.
        truncations: Whether a time limit ended the episode, by agent.
        infos: Infos by agent; see `Report`.
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
        self._waiting: list[AgentName] = []  # agents whose turn comes before the next step
        self._skip_agent_selection: AgentName | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin a new episode of the whole environment.

        Args:
            seed: Seed of the environment, if it was passed as a function.
            options: Ignored with a warning, because the environment has no options.
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
        self._clear_rewards()  # they belong to the previous episode
        self.agent_selection = self._waiting[0]

    def observe(self, agent: AgentName) -> Any:
        """Return the last observation of an agent."""
        return self._observations[agent]

    def step(self, action: Any) -> None:
        """Set the action of the agent whose turn it is; None for an agent that has ended.

        Raises:
            UnityActionException: The action is not in the agent's space.
            UnityEnvironmentException: There are no agents: the episode is over or has not begun.
            ValueError: The agent has ended, and the action is not None.
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
        """Store the new reports, and the agents that request an action."""
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
