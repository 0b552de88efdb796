"""`from_gymnasium`: a Gymnasium environment, single or vector, as a `BaseEnv`."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from mlagents_envs.base_env import (
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DecisionSteps,
    FloatArray,
    TerminalSteps,
)
from mlagents_envs.envs.foreign_spaces import ForeignActions, ForeignObservations
from mlagents_envs.envs.spaces import UnityGymException
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.local_env import LocalEnv, Report


def from_gymnasium(
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
    *,
    behavior_name: BehaviorName | None = None,
    seed: int | None = None,
    keep_8_bit_images: bool = False,
) -> BaseEnv:
    """Convert a Gymnasium environment, single or vector, to a `BaseEnv` of one behavior.

    Each sub-environment is an agent that requests an action at every step. If an episode is
    truncated and not terminated, it counts as interrupted.

    An agent begins its next episode in the step in which the previous one ends. In vector
    environments with `AutoresetMode.NEXT_STEP`, it is absent for one step. The `action_mask` of
    `info`, if any, becomes the action mask.

    `mlagents_envs.envs.foreign_spaces` documents the conversion of spaces.

    Args:
        env: Gymnasium environment, which is closed with the returned environment.
        behavior_name: Name of the behavior; by default the environment's id without its
            namespace, or `gymnasium` if it has no id.
        seed: Seed of the first reset.
        keep_8_bit_images: Whether uint8 images stay uint8, 0 to 255, which takes a quarter of the
            memory; otherwise they become float32, 0 to 1.

    Raises:
        UnityGymException: A space is not supported.
    """
    if behavior_name is None:
        env_id = env.spec.id if env.spec is not None else "gymnasium"
        behavior_name = env_id.rpartition("/")[2]
    envs = env if isinstance(env, VectorEnv) else _vector_of_one(env)
    made = GymnasiumEnv(envs, behavior_name, seed=seed)
    if keep_8_bit_images:
        made.keep_8_bit_images()
    return made


def make_from_gymnasium(
    env_id: str,
    *,
    seed: int = 0,
    num_areas: int = 1,
    parameters: Mapping[str, float] | None = None,
) -> BaseEnv:
    """Create an environment that is registered in Gymnasium, as a `BaseEnv`.

    Args:
        env_id: Id of the environment, as in `gymnasium.make`.
        seed: Seed of the first reset.
        num_areas: Number of sub-environments; if above 1, `gymnasium.make_vec` creates them.
        parameters: Keyword arguments for the environment.

    Raises:
        UnityEnvironmentException: The environment is not registered or cannot be created.
        UnityGymException: A space is not supported.
    """
    arguments: dict[str, Any] = dict(parameters or {})
    try:
        if num_areas == 1:
            return from_gymnasium(gymnasium.make(env_id, **arguments), seed=seed)
        return from_gymnasium(gymnasium.make_vec(env_id, num_areas, **arguments), seed=seed)
    except UnityGymException:
        raise
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise UnityEnvironmentException(f"Gymnasium cannot create {env_id!r}: {error}") from error


def _vector_of_one(env: gymnasium.Env[Any, Any]) -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP)


class GymnasiumEnv(LocalEnv):
    """Adapter of a `gymnasium.vector.VectorEnv` to `BaseEnv`; see `from_gymnasium`.

    Args:
        envs: Vector environment, which is closed with this environment.
        behavior_name: Name of the behavior.
        seed: Seed of the first reset.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        behavior_name: BehaviorName,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self._envs = envs
        self._autoreset = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._observations = ForeignObservations(envs.single_observation_space)
        self._choices = ForeignActions(envs.single_action_space)
        self._name = behavior_name
        self._seed = seed
        self._asking = np.zeros(envs.num_envs, np.bool_)
        self.announce({behavior_name: BehaviorSpec(self._observations.specs, self._choices.spec)})

    def restart(self) -> dict[BehaviorName, Report]:
        """Reset all sub-environments; the first reset uses the seed."""
        obs, info = self._envs.reset(seed=self._seed)
        self._seed = None
        n_agents = self._envs.num_envs
        nothing = np.zeros(n_agents, np.float32)
        return {self._name: Report(self._ask(np.ones(n_agents, np.bool_), obs, nothing, info))}

    def advance(self) -> dict[BehaviorName, Report]:
        """Step all sub-environments."""
        obs, reward, terminated, truncated, info = self._envs.step(self._decode_actions())
        ended = (terminated | truncated) & self._asking
        reward = np.asarray(reward, np.float32)
        final = np.flatnonzero(ended)
        final_obs = self._observations.encode(obs, final)
        if len(final) and self._autoreset is AutoresetMode.SAME_STEP:
            final_obs = self._observations.encode_each(info["final_obs"][final])
        interrupted = ~np.asarray(terminated, np.bool_)[final]
        terminals = TerminalSteps.of(final_obs, reward[final], final, interrupted)
        if len(final) and self._autoreset is AutoresetMode.DISABLED:
            obs, info = self._envs.reset(options={"reset_mask": ended})
        asking = np.ones_like(ended)
        if self._autoreset is AutoresetMode.NEXT_STEP:
            asking = ~ended
        reward = np.where(ended, np.float32(0.0), reward)
        return {self._name: Report(self._ask(asking, obs, reward, info), terminals)}

    def close(self) -> None:
        """Close the Gymnasium environment."""
        if not self._is_closed:
            super().close()
            self._envs.close()

    def _decode_actions(self) -> Any:
        """Return the actions as Gymnasium's batch, with zeros for agents that requested none."""
        taken = self.take_actions(self._name)
        full = self._choices.spec.empty_action(self._envs.num_envs)
        full.continuous[self._asking] = taken.continuous
        full.discrete[self._asking] = taken.discrete
        return self._choices.decode(full)

    def _ask(
        self, asking: BoolArray, obs: Any, reward: FloatArray, info: Mapping[str, Any]
    ) -> DecisionSteps:
        agents = np.flatnonzero(asking)
        masks = info.get("action_mask")
        if not isinstance(masks, np.ndarray):
            masks = np.full(len(asking), None, object)
        self._asking = asking
        return DecisionSteps.of(
            self._observations.encode(obs, agents),
            reward[agents],
            agents,
            masks=self._choices.masks([masks[agent] for agent in agents]),
        )
