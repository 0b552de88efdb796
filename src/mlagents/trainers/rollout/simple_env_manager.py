"""One environment, in this process."""

from collections.abc import Mapping

from mlagents.trainers.rollout.env_manager import EnvManager, PlayerSteps
from mlagents_envs.base_env import ActionTuple, BaseEnv, BehaviorName, BehaviorSpec
from mlagents_envs.timers import hierarchical_timer


class SimpleEnvManager(EnvManager):
    """Player 0 and no other.

    Args:
        env: Closed together with the manager.
    """

    def __init__(self, env: BaseEnv) -> None:
        self._env = env
        self._is_stepping = False

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._env.behavior_specs

    def reset(self) -> None:
        """Begin all episodes anew."""
        with hierarchical_timer("reset"):
            self._env.reset()
        self._is_stepping = False

    def receive(self) -> list[PlayerSteps]:
        """Finish the step that `send` began, if there is one, and report."""
        if self._is_stepping:
            with hierarchical_timer("env_step"):
                self._env.step_receive()
            self._is_stepping = False
        return [PlayerSteps(0, {name: self._env.get_steps(name) for name in self.behavior_specs})]

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Set actions and begin a step."""
        for behavior, action in actions.items():
            self._env.set_actions(behavior, action)
        self._env.step_send()
        self._is_stepping = True

    def close(self) -> None:
        """Close the environment."""
        self._env.close()
