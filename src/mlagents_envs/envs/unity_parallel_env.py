"""`UnityParallelEnv`: many agents as a PettingZoo `ParallelEnv`, all acting at once."""

from collections.abc import Mapping
from typing import Any

from mlagents_envs.base_env import BaseEnv, BehaviorName
from mlagents_envs.envs.extras import needs
from mlagents_envs.envs.source import EnvMaker
from mlagents_envs.envs.unity_pettingzoo_base_env import (
    AgentName,
    Report,
    UnityPettingzooBaseEnv,
)
from mlagents_envs.exception import UnityActionException

with needs("pettingzoo", extra="pettingzoo"):
    from pettingzoo import ParallelEnv


class UnityParallelEnv(UnityPettingzooBaseEnv, ParallelEnv):  # type: ignore[misc]  # untyped
    """PettingZoo `ParallelEnv` of all agents of an environment, which act at once.

        env = UnityParallelEnv(default_registry["3DBall"].make)
        observations, infos = env.reset(seed=1)
        while env.agents:
            actions = {agent: env.action_space(agent).sample() for agent in env.agents}
            observations, rewards, terminations, truncations, infos = env.step(actions)

    A step continues until an agent requests an action or its episode ends. An agent without a new
    report keeps its observation and gets the reward 0. Its info has `decides` set to False: its
    next action has no effect.

    `UnityPettingzooBaseEnv` documents arguments, spaces, names and infos.
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
        self._reports: dict[AgentName, Report] = {}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentName, Any], dict[AgentName, dict[str, Any]]]:
        """Begin a new episode of the whole environment.

        Args:
            seed: Seed of the environment, if it was passed as a function.
            options: Ignored with a warning, because the environment has no options.

        Returns:
            Observations and infos, by agent.
        """
        self._reports = self._begin(seed, options)
        return (
            {agent: self._reports[agent].observation for agent in self.agents},
            {agent: self._reports[agent].info for agent in self.agents},
        )

    def step(
        self, actions: Mapping[AgentName, Any]
    ) -> tuple[
        dict[AgentName, Any],
        dict[AgentName, float],
        dict[AgentName, bool],
        dict[AgentName, bool],
        dict[AgentName, dict[str, Any]],
    ]:
        """Step all agents; agents without an action get zeros.

        Returns:
            Observations, rewards, terminations, truncations and infos by agent, for all agents
            before the step and new ones.

        Raises:
            UnityActionException: An action is not in its agent's space, or the agent is not in
                `agents`.
            UnityEnvironmentException: There are no agents: the episode is over or has not begun.
        """
        self._require_agents()
        strangers = sorted(actions.keys() - set(self.agents))
        if strangers:
            raise UnityActionException(
                f"got actions for {strangers}; expected actions only for {self.agents}"
            )
        reports = self._play(
            {agent: self._decode(agent, action) for agent, action in actions.items()}
        )
        unchanged = {agent: _nothing_new(self._reports[agent]) for agent in self.agents}
        all_reports = {**unchanged, **reports}
        self._reports = {agent: one for agent, one in all_reports.items() if not one.has_ended}
        self.agents = [agent for agent in self.possible_agents if agent in self._reports]
        return (
            {agent: one.observation for agent, one in all_reports.items()},
            {agent: one.reward for agent, one in all_reports.items()},
            {agent: one.terminated for agent, one in all_reports.items()},
            {agent: one.truncated for agent, one in all_reports.items()},
            {agent: one.info for agent, one in all_reports.items()},
        )


def _nothing_new(report: Report) -> Report:
    info = {**report.info, "group_reward": 0.0, "decides": False}
    return report._replace(reward=0.0, info=info)
