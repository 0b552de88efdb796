"""`from_gymnasium`: a Gymnasium environment, single or vector, as a `BaseEnv`."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from mlagents_envs.base_env import (
    ActionBuffer,
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorMapping,
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


def from_gymnasium(
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
    *,
    behavior_name: BehaviorName | None = None,
    seed: int | None = None,
    keep_8_bit_images: bool = False,
) -> BaseEnv:
    """Turn a Gymnasium environment, single or vector, into a `BaseEnv` of one behavior.

    Every sub-environment is an agent that asks at every step. An episode that is truncated and not
    terminated is interrupted. Agents of a vector environment that resets in the same step, and
    the agent of a single environment, begin anew in the step in which they end; with
    `AutoresetMode.NEXT_STEP` they are away for a step. An `action_mask` in `info` is obeyed.

    What becomes of its spaces is said in `mlagents_envs.envs.foreign_spaces`.

    Args:
        env: Closed with what is returned.
        behavior_name: By default the environment's id without its namespace, or else `gymnasium`.
        seed: Of the first reset.
        keep_8_bit_images: Whether images of bytes stay uint8, 0 to 255, a quarter of the memory;
            otherwise they become float32, 0 to 1.

    Raises:
        UnityGymException: A space is of a kind that has no counterpart.
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
    """Make an environment registered in Gymnasium, and turn it into a `BaseEnv`.

    Args:
        env_id: What `gymnasium.make` takes.
        seed: Of the first reset.
        num_areas: How many sub-environments; several are made by `gymnasium.make_vec`.
        parameters: Handed to the environment as keyword arguments.

    Raises:
        UnityEnvironmentException: There is no such environment, or it cannot be made.
        UnityGymException: A space is of a kind that has no counterpart.
    """
    arguments: dict[str, Any] = dict(parameters or {})
    try:
        if num_areas == 1:
            return from_gymnasium(gymnasium.make(env_id, **arguments), seed=seed)
        return from_gymnasium(gymnasium.make_vec(env_id, num_areas, **arguments), seed=seed)
    except UnityGymException:
        raise
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise UnityEnvironmentException(f"Gymnasium cannot make {env_id!r}: {error}") from error


def _vector_of_one(env: gymnasium.Env[Any, Any]) -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP)


class GymnasiumEnv(BaseEnv):
    """A `gymnasium.vector.VectorEnv` as a `BaseEnv`; see `from_gymnasium`.

    Args:
        envs: Closed with this.
        behavior_name: What to call its one behavior.
        seed: Of the first reset.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        behavior_name: BehaviorName,
        *,
        seed: int | None = None,
    ) -> None:
        self._envs = envs
        self._autoreset = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._choices = ForeignActions(envs.single_action_space)
        self._name = behavior_name
        self._seed = seed
        self._asking = np.zeros(envs.num_envs, np.bool_)
        self._announce(keep_8_bit_images=False)
        self._has_begun = False
        self._is_closed = False

    @property
    def behavior_specs(self) -> BehaviorMapping:
        """Its one behavior."""
        return self._specs

    def keep_8_bit_images(self) -> None:
        """Leave images of bytes as they are, rather than make them float32 from 0 to 1.

        Raises:
            UnityEnvironmentException: The environment has been reset: its specification is known.
        """
        if self._has_begun:
            raise UnityEnvironmentException("keep_8_bit_images() comes before the first reset")
        self._announce(keep_8_bit_images=True)

    def reset(self) -> None:
        """Begin all episodes anew; the first time with the seed."""
        self._require_open()
        obs, info = self._envs.reset(seed=self._seed)
        self._seed = None
        self._has_begun = True
        n_agents = self._envs.num_envs
        self._terminals = TerminalSteps.empty(self._spec)
        self._ask(np.ones(n_agents, np.bool_), obs, np.zeros(n_agents, np.float32), info)

    def step(self) -> None:
        """Step all sub-environments."""
        self._require_open()
        if not self._has_begun:
            self.reset()
            return
        obs, reward, terminated, truncated, info = self._envs.step(self._take_actions())
        ended = (terminated | truncated) & self._asking
        reward = np.asarray(reward, np.float32)
        final = np.flatnonzero(ended)
        final_obs = self._observations.encode(obs, final)
        if len(final) and self._autoreset is AutoresetMode.SAME_STEP:
            final_obs = self._observations.encode_each(info["final_obs"][final])
        self._terminals = TerminalSteps(
            obs=final_obs,
            reward=reward[final],
            interrupted=~np.asarray(terminated, np.bool_)[final],
            agent_id=final.astype(np.int32),
            group_id=np.zeros(len(final), np.int32),
            group_reward=np.zeros(len(final), np.float32),
        )
        if len(final) and self._autoreset is AutoresetMode.DISABLED:
            obs, info = self._envs.reset(options={"reset_mask": ended})
        asking = np.ones_like(ended)
        if self._autoreset is AutoresetMode.NEXT_STEP:
            asking = ~ended
        self._ask(asking, obs, np.where(ended, np.float32(0.0), reward), info)

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return who asks and who ended; nobody before the first reset."""
        if behavior_name != self._name:
            raise KeyError(f"unknown behavior {behavior_name!r}; this environment has {self._name}")
        return self._decisions, self._terminals

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set one row per agent that asks."""
        self._actions.set(behavior_name, action, self._decisions)

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the row of one agent that asks."""
        self._actions.set_for_agent(behavior_name, agent_id, action, self._decisions)

    def close(self) -> None:
        """Close the Gymnasium environment."""
        if not self._is_closed:
            self._is_closed = True
            self._envs.close()

    def _announce(self, *, keep_8_bit_images: bool) -> None:
        self._observations = ForeignObservations(
            self._envs.single_observation_space, keep_8_bit_images=keep_8_bit_images
        )
        self._spec = BehaviorSpec(self._observations.specs, self._choices.spec)
        self._specs = BehaviorMapping({self._name: self._spec})
        self._actions = ActionBuffer(self._specs)
        self._decisions = DecisionSteps.empty(self._spec)
        self._terminals = TerminalSteps.empty(self._spec)

    def _require_open(self) -> None:
        if self._is_closed:
            raise UnityEnvironmentException("this environment is closed; make a new one")

    def _take_actions(self) -> Any:
        """Return the actions set, batched as Gymnasium does; zeros for those who do not ask."""
        taken = self._actions.take(self._name, len(self._decisions))
        full = self._spec.action_spec.empty_action(self._envs.num_envs)
        full.continuous[self._asking] = taken.continuous
        full.discrete[self._asking] = taken.discrete
        return self._choices.decode(full)

    def _ask(
        self, asking: BoolArray, obs: Any, reward: FloatArray, info: Mapping[str, Any]
    ) -> None:
        agents = np.flatnonzero(asking)
        masks = info.get("action_mask")
        if not isinstance(masks, np.ndarray):
            masks = np.full(len(asking), None, object)
        self._asking = asking
        self._actions.clear()
        self._decisions = DecisionSteps(
            obs=self._observations.encode(obs, agents),
            reward=reward[agents],
            agent_id=agents.astype(np.int32),
            action_mask=self._choices.masks([masks[agent] for agent in agents]),
            group_id=np.zeros(len(agents), np.int32),
            group_reward=np.zeros(len(agents), np.float32),
        )
