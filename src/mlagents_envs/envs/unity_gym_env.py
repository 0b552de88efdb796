"""`UnityToGymWrapper`: one agent as a `gymnasium.Env`."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from mlagents_envs.base_env import BaseEnv, BehaviorSpec, DecisionSteps, TerminalSteps
from mlagents_envs.envs.rendering import RENDER_METADATA, check_render_mode, picture
from mlagents_envs.envs.source import MAX_SILENT_STEPS, EnvMaker, EnvSource, no_options
from mlagents_envs.envs.spaces import (
    ActionFlattener,
    ActionLayout,
    ObservationLayout,
    UnityGymException,
    is_image,
)
from mlagents_envs.logging_util import get_logger

__all__ = ["ActionFlattener", "UnityGymException", "UnityToGymWrapper"]

logger = get_logger(__name__)


class UnityToGymWrapper(gymnasium.Env[Any, Any]):
    """One agent of one behavior as a `gymnasium.Env`.

        env = UnityToGymWrapper(UnityEnvironment("builds/Basic"))
        observation, info = env.reset()
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

    An episode that the task ended is terminated; one that a time limit ended is truncated. `info`
    contains the `DecisionSteps` or `TerminalSteps` as `step`. With discrete actions it also
    contains the mask of allowed actions as `action_mask`, for
    `env.action_space.sample(info["action_mask"])`.

    Args:
        unity_env: Environment, or function that creates one and takes the keyword `seed`.
            `reset(seed=...)` has an effect only with a function. The environment is closed with
            the wrapper. If the constructor raises, an environment that was passed stays open.
        uint8_visual: Whether images are uint8, 0 to 255, instead of float32, 0 to 1.
        flatten_branched: Whether several discrete branches become a single one.
        allow_multiple_obs: Whether the observation is a tuple of all observations: first the
            images, last the concatenated vectors. Otherwise it is the first image, or the vectors
            if there are no images.
        action_space_seed: Seed of `action_space.sample()`.
        render_mode: Render mode: `rgb_array` to make `render()` return a picture, or None.
        ignore_other_agents: Whether other agents stay idle; otherwise they are an error.
        behavior_name: Behavior of the agent; not needed if there is only one. Agents of other
            behaviors stay idle.
        legacy_api: Whether to use the API of `gym` before 0.26, for programs written for
            ML-Agents. `reset()` then returns only the observation, and `step()` returns
            observation, reward, done and `info`. Several observations are a list, `seed(number)`
            sets the seed, and `render()` needs no render mode.

    Attributes:
        name: Name of the behavior.
        group_spec: Specification of the behavior.
        game_over: Whether the episode has ended, so that `reset` must be called.
        visual_obs: Last observed image, (channels, height, width); None without images.

    Raises:
        UnityGymException: There are several behaviors or agents, and none is chosen; the behavior
            does not exist, or has no observations or no actions; or no agent requests an action.
    """

    metadata = RENDER_METADATA
    reward_range = (-float("inf"), float("inf"))

    def __init__(
        self,
        unity_env: BaseEnv | EnvMaker,
        uint8_visual: bool = False,
        flatten_branched: bool = False,
        allow_multiple_obs: bool = False,
        action_space_seed: int | None = None,
        *,
        render_mode: str | None = None,
        ignore_other_agents: bool = False,
        behavior_name: str | None = None,
        legacy_api: bool = False,
    ) -> None:
        self.render_mode = check_render_mode("rgb_array" if legacy_api else render_mode)
        self._is_legacy = legacy_api
        if legacy_api:
            self.seed = self._seed  # not a method, because Gymnasium warns of one
        self._ignores_others = ignore_other_agents
        self._source = EnvSource(unity_env)
        self._agent = 0
        self.game_over = True
        self.visual_obs: NDArray[Any] | None = None
        try:
            self._source.reset(None)
            self.name, self.group_spec = self._choose_behavior(behavior_name)
            self._find_agent()
            self._layout = ObservationLayout(
                self.group_spec.observation_specs,
                "tuple" if allow_multiple_obs else "first",
                uint8_visual=uint8_visual,
            )
            self._actions = ActionLayout(
                self.group_spec.action_spec, flatten_branched=flatten_branched
            )
        except BaseException:
            self._source.close_if_made()
            raise
        if self._layout.left_out:
            logger.warning(
                "%s: the observations %s are omitted. Pass allow_multiple_obs=True to get them.",
                self.name,
                self._layout.left_out,
            )
        self._image = next(
            (i for i, spec in enumerate(self.group_spec.observation_specs) if is_image(spec)), None
        )
        self.observation_space = self._layout.space
        self.action_space = self._actions.space
        self.action_space.seed(action_space_seed)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode and return its first observation.

        Args:
            seed: Seed of the environment, if it was passed as a function.
            options: None or empty, because the environment has no options.

        Returns:
            First observation and `info`; with `legacy_api` only the observation.

        Raises:
            UnityGymException: Options were passed.
        """
        if options:
            raise UnityGymException(no_options(options))
        super().reset(seed=seed)
        self._source.reset(seed)
        decisions = self._find_agent()
        self.game_over = False
        observation = self._observe(decisions)
        return observation if self._is_legacy else (observation, self._info(decisions))

    def step(self, action: Any) -> Any:
        """Apply the action, and continue until the agent requests the next or its episode ends.

        Returns:
            Observation, reward, whether the task ended the episode, whether a time limit ended
            it, and `info`. With `legacy_api`: observation, reward, whether the episode has ended,
            and `info`.

        Raises:
            UnityGymException: The episode has already ended, or the agent has disappeared.
            UnityActionException: The action is not in the action space.
        """
        observation, reward, terminated, truncated, info = self._step(action)
        if self._is_legacy:
            return observation, reward, terminated or truncated, info
        return observation, reward, terminated, truncated, info

    def _step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.game_over:
            raise UnityGymException("the episode has ended: call reset() before step()")
        self._source.env.set_action_for_agent(
            self.name, self._agent, self._actions.decode_one(action)
        )
        for _ in range(MAX_SILENT_STEPS):
            self._source.env.step()
            decisions, terminals = self._steps()
            if self._agent in terminals:
                self.game_over = True
                interrupted = bool(terminals[self._agent].interrupted)
                return *self._report(terminals), not interrupted, interrupted, {"step": terminals}
            if self._agent in decisions:
                return *self._report(decisions), False, False, self._info(decisions)
            if len(decisions) and not self._ignores_others:
                raise UnityGymException(
                    f"{self.name}: agent {self._agent} disappeared without ending its episode, and "
                    f"agent {decisions.agent_id[0]} appeared. End the episode in the scene before "
                    "you remove an agent."
                )
        raise UnityGymException(
            f"{self.name}: agent {self._agent} neither requested an action nor ended its episode "
            f"in {MAX_SILENT_STEPS} steps. Call reset()."
        )

    def render(self, mode: str = "rgb_array") -> NDArray[np.uint8] | None:
        """Return the environment's picture, or else the last observed image.

        Args:
            mode: Mode that programs for the API of `gym` pass; it must be `rgb_array`.

        Returns:
            (H, W, 3) uint8; None without a render mode.

        Raises:
            UnityGymException: The environment cannot render and has no image, or the mode is
                unknown.
        """
        check_render_mode(mode)
        if self.render_mode is None:
            return None
        return picture(self._source.env, self.visual_obs)

    def close(self) -> None:
        """Close the environment. Calling it again does nothing."""
        self._source.env.close()

    def _seed(self, seed: int | None = None) -> None:
        """Seed the environment; programs for the API of `gym` call this before `reset()`."""
        if seed is not None:
            self._source.reset(seed)
            self.game_over = True

    def _choose_behavior(self, wanted: str | None) -> tuple[str, BehaviorSpec]:
        specs = self._source.env.behavior_specs
        if wanted is None and len(specs) != 1:
            raise UnityGymException(
                f"expected one behavior, but the environment has {list(specs)}. Choose one with "
                "behavior_name; the PettingZoo wrappers take several."
            )
        name = next(iter(specs)) if wanted is None else wanted
        if name not in specs:
            raise UnityGymException(
                f"behavior_name is {wanted!r}; the environment has {list(specs)}. Choose one."
            )
        return name, specs[name]

    def _find_agent(self) -> DecisionSteps:
        """Step until an agent requests an action, and select the first one."""
        for _ in range(MAX_SILENT_STEPS):
            decisions, _ = self._steps()
            if len(decisions):
                self._agent = int(decisions.agent_id[0])
                return decisions
            self._source.env.step()
        raise UnityGymException(
            f"{self.name}: no agent requested an action in {MAX_SILENT_STEPS} steps"
        )

    def _steps(self) -> tuple[DecisionSteps, TerminalSteps]:
        decisions, terminals = self._source.env.get_steps(self.name)
        n_agents = max(len(decisions), len(terminals))
        if n_agents > 1 and not self._ignores_others:
            raise UnityGymException(
                f"{self.name}: expected one agent, got {n_agents}. Use UnityVectorEnv to control "
                "all of them, or pass ignore_other_agents=True to control the first one."
            )
        return decisions, terminals

    def _report(self, steps: DecisionSteps | TerminalSteps) -> tuple[Any, float]:
        return self._observe(steps), float(steps.reward[steps.agent_id_to_index[self._agent]])

    def _observe(self, steps: DecisionSteps | TerminalSteps) -> Any:
        row = steps.agent_id_to_index[self._agent]
        if self._image is not None:
            self.visual_obs = steps.obs[self._image][row]
        observation = self._layout.encode([batch[row] for batch in steps.obs])
        return list(observation) if self._is_legacy and type(observation) is tuple else observation

    def _info(self, decisions: DecisionSteps) -> dict[str, Any]:
        info: dict[str, Any] = {"step": decisions}
        if decisions.action_mask is not None:
            row = decisions.agent_id_to_index[self._agent]
            info["action_mask"] = self._actions.mask_to_sample(
                [mask[row : row + 1] for mask in decisions.action_mask]
            )
        return info
