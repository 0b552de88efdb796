"""`SB3VecEnv`: a `UnityVectorEnv` as a Stable-Baselines3 `VecEnv`."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from mlagents_envs.base_env import BoolArray
from mlagents_envs.envs.extras import needs
from mlagents_envs.envs.spaces import UnityGymException
from mlagents_envs.envs.unity_vector_env import UnityVectorEnv

with needs("stable_baselines3", extra="sb3"):
    from stable_baselines3.common.vec_env import VecEnv

Indices = int | Iterable[int] | None


class SB3VecEnv(VecEnv):
    """Vector environment of all agents of one behavior, for Stable-Baselines3.

        envs = UnityVectorEnv(UnityEnvironment("builds/3DBall"))
        model = PPO("MlpPolicy", SB3VecEnv(envs))

    If an agent's episode ended, its info contains the last observation as `terminal_observation`,
    and `TimeLimit.truncated` tells whether a time limit ended the episode. With discrete actions,
    every agent has a method `action_masks`, for `MaskablePPO`. Wrap this environment in a
    `VecMonitor` to get episode statistics.

    Args:
        envs: Vector environment, which is closed with this one. The algorithms require that
            observations are not nested, and that actions are either continuous or discrete.

    Raises:
        UnityGymException: The actions are both continuous and discrete, or the autoreset mode is
            not `SAME_STEP`.
    """

    def __init__(self, envs: UnityVectorEnv) -> None:
        if isinstance(envs.single_action_space, spaces.Dict):
            raise UnityGymException(
                f"{envs.behavior_name}: Stable-Baselines3 supports either continuous or discrete "
                "actions, not both"
            )
        if envs.metadata["autoreset_mode"] is not AutoresetMode.SAME_STEP:
            raise UnityGymException(
                f"{envs.behavior_name}: Stable-Baselines3 expects that the next episode begins in "
                "the step in which one ends. Create the UnityVectorEnv with "
                "AutoresetMode.SAME_STEP."
            )
        self.envs = envs
        self._masks: BoolArray | None = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Begin a new episode for every agent, with the seed passed to `seed`, if any.

        Returns:
            Observations of all agents.

        Raises:
            UnityGymException: Options were set with `set_options`.
        """
        options = next((given for given in self._options if given), None)  # from set_options
        observations, infos = self.envs.reset(seed=self._seeds[0], options=options)
        self._reset_seeds()
        self._reset_options()
        self._masks = infos.get("action_mask")
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Send the actions to all environments and return at once."""
        self.envs.step_async(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], BoolArray, list[dict[str, Any]]]:
        """Finish the step that `step_async` started.

        Returns:
            Observations, rewards, whether the episodes ended, and one info dictionary per agent.
        """
        observations, rewards, terminated, truncated, infos = self.envs.step_wait()
        self._masks = infos.get("action_mask")
        dones = terminated | truncated
        by_agent: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for slot in np.flatnonzero(dones).tolist():
            by_agent[slot] = {
                "terminal_observation": infos["final_obs"][slot],
                "TimeLimit.truncated": bool(truncated[slot]),
            }
        return observations, rewards, dones, by_agent

    def action_masks(self) -> BoolArray:
        """Return which discrete actions are allowed now, (agents, actions of all branches).

        Raises:
            AttributeError: The actions are continuous.
            UnityGymException: The environment was not reset yet.
        """
        if isinstance(self.action_space, spaces.Box):
            raise AttributeError("continuous actions have no action_masks")
        if self._masks is None:
            raise UnityGymException("action_masks are not known yet: call reset() first")
        return self._masks

    def close(self) -> None:
        """Close all environments."""
        self.envs.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """Return a picture of each environment."""
        return self.envs.render() or ()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of each agent, which is that of the shared `UnityVectorEnv`.

        Raises:
            AttributeError: The attribute does not exist.
        """
        if attr_name == "action_masks":
            return [lambda mask=mask: mask for mask in self.action_masks()[self._rows(indices)]]
        return [getattr(self.envs, attr_name)] * len(self._rows(indices))

    def has_attr(self, attr_name: str) -> bool:
        """Return whether agents have the attribute."""
        if attr_name == "action_masks":
            return not isinstance(self.action_space, spaces.Box)
        return hasattr(self.envs, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Raise an error, because agents share one environment and have no own attributes.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"cannot set {attr_name!r}, because the agents share one environment. Use its side "
            "channels or parameters."
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each agent; `action_masks` is the only one.

        Raises:
            AttributeError: The method is not `action_masks`.
        """
        if method_name != "action_masks":
            raise AttributeError(
                f"agents have no method {method_name!r}, because they share one environment. Call "
                "the method of `envs`."
            )
        return list(self.action_masks()[self._rows(indices)])

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Return False for each agent, because single agents are never wrapped."""
        return [False] * len(self._rows(indices))

    def _rows(self, indices: Indices) -> list[int]:
        return list(self._get_indices(indices))
