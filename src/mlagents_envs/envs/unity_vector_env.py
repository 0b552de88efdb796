"""`UnityVectorEnv`: all agents of one behavior as a `gymnasium.vector.VectorEnv`."""

import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    BaseEnv,
    BehaviorSpec,
    BoolArray,
    FloatArray,
)
from mlagents_envs.envs.rendering import RENDER_METADATA, check_render_mode, picture
from mlagents_envs.envs.slots import NO_AGENT, Slots, SlottedEnv, answered
from mlagents_envs.envs.source import MAX_SILENT_STEPS, EnvMaker, EnvSource, no_options
from mlagents_envs.envs.spaces import ActionLayout, ObservationLayout, UnityGymException


class UnityVectorEnv(gymnasium.vector.VectorEnv[Any, Any, NDArray[Any]]):
    """Vector environment of all agents of one behavior, in one or several environments.

        players = [UnityEnvironment("build", worker_id=k, base_port=0) for k in range(4)]
        envs = UnityVectorEnv(players)
        observations, infos = envs.reset()
        observations, rewards, terminations, truncations, infos = envs.step(actions)

    Each agent has a *slot*, a row of all arrays, and keeps it during its episode. After that, the
    slot goes to the same agent if it returns, or to the first new agent. Slots 0 to n - 1 belong
    to the first environment, the next n to the second, and so on.

    A step continues each environment until at least one of its agents requests an action. The
    report of a slot depends on its agent:

    - The agent requests an action: its observation, and the reward since its previous request.
    - Its episode ended and the next one began: the last reward of the old episode, the first
      observation of the new one, and the last observation of the old one in `infos["final_obs"]`
      (`AutoresetMode.SAME_STEP`).
    - Its episode ended and the agent has not returned: the same, with `final_obs` as observation.
    - The agent did not request an action, or the slot has no agent: the previous observation
      (zeros if there is none) and the reward 0.

    With `AutoresetMode.NEXT_STEP`, a slot whose episode ended reports its last observation. The
    next episode begins in the following step: the slot's action is ignored, its reward is 0, and
    its observation is the first of the episode. The scene continues meanwhile, so the agent is idle
    for its first decision. `final_obs` and `final_info` are not present.

    `infos["acting"]` tells which slots use the next action, because their agents requested it. A
    trainer that ignores it learns from some transitions without an action, unless all agents always
    request actions at the same time. The reward before the first action of an episode is dropped,
    because no action caused it.

    `infos` contains `final_obs` and `final_info` of the slots whose episode just ended, and the
    following keys. For each key, `_key` tells which slots have it.

        acting        (num_envs,) bool, as above
        agent_id      (num_envs,) int64, agent that has the slot or had it last, -1 for none yet
        action_mask   (num_envs, choices of all branches) bool, True where allowed; with discrete
                      actions
        group_reward  (num_envs,) float32, reward of the agent's group; if there are groups

    Args:
        envs: One or several environments, or functions that create one and take the keyword
            `seed`. `reset(seed=...)` has an effect only with functions. The environments are closed
            with this one. If the constructor raises, environments that were passed stay open.
        behavior_name: Name of the behavior; not needed if there is only one.
        agents_per_env: Number of slots of each environment; by default the number of agents that
            request an action after the first reset. Agents without a slot get zeros as actions.
        flatten_obs: Whether all observations become one vector. Otherwise several are a `Dict` by
            their names, and a single one is the array itself.
        uint8_visual: Whether images are uint8, 0 to 255, instead of float32, 0 to 1.
        flatten_branched: Whether several discrete branches become a single one.
        render_mode: Render mode: `rgb_array` to make `render()` return a picture of each
            environment, or None.
        autoreset_mode: Step in which the next episode begins: `SAME_STEP`, or `NEXT_STEP`, the
            default of Gymnasium's own vector environments.

    Attributes:
        behavior_name: Name of the behavior.
        behavior_spec: Specification of the behavior.

    Raises:
        UnityGymException: The behavior does not exist, has no observations or no actions, or
            differs between the environments; or no agent requests an action.
    """

    metadata = {**RENDER_METADATA, "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(
        self,
        envs: BaseEnv | EnvMaker | Sequence[BaseEnv | EnvMaker],
        *,
        behavior_name: str | None = None,
        agents_per_env: int | None = None,
        flatten_obs: bool = False,
        uint8_visual: bool = False,
        flatten_branched: bool = False,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        self.render_mode = check_render_mode(render_mode)
        if autoreset_mode not in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
            raise UnityGymException(
                f"autoreset_mode is {autoreset_mode}; expected SAME_STEP or NEXT_STEP, because the "
                "simulation begins the next episodes itself."
            )
        self.metadata = {**self.metadata, "autoreset_mode": autoreset_mode}
        self._sources: list[EnvSource] = []
        try:
            for env in envs if isinstance(envs, Sequence) else [envs]:
                self._sources.append(EnvSource(env))
                self._sources[-1].reset(None)
            self.behavior_name, self.behavior_spec = self._choose_behavior(behavior_name)
            self._layout = ObservationLayout(
                self.behavior_spec.observation_specs,
                "flat" if flatten_obs else "dict",
                uint8_visual=uint8_visual,
            )
            self._actions = ActionLayout(
                self.behavior_spec.action_spec, flatten_branched=flatten_branched
            )
            self._envs = self._slotted(agents_per_env)
        except BaseException:
            for source in self._sources:
                source.close_if_made()
            raise
        self._image = next(
            (i for i, part in enumerate(self._layout.part_spaces) if len(part.shape) == 3), None
        )
        n_slots = sum(slotted.size for slotted in self._envs)
        self._slots = Slots(self._layout, self._actions, n_slots)

        # With NEXT_STEP: slots whose episode ended in the last step. The next episode begins in
        # the coming step.
        self._resetting = np.zeros(n_slots, np.bool_)
        self.num_envs = n_slots
        self.single_observation_space = self._layout.space
        self.single_action_space = self._actions.space
        self.observation_space = batch_space(self._layout.space, n_slots)
        self.action_space = batch_space(self._actions.space, n_slots)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode for every agent. Environment k is seeded with `seed` + k.

        Args:
            seed: Seed of the first environment; None to leave the seeds unchanged.
            options: None or empty, because the environment has no options. `reset_mask` is not
                supported either, because agents begin their episodes by themselves.

        Raises:
            UnityGymException: Options were passed.
        """
        if options and "reset_mask" in options:
            raise UnityGymException(
                "reset_mask is not supported: single agents cannot be reset, because they begin "
                "their next episodes by themselves"
            )
        if options:
            raise UnityGymException(no_options(options))
        super().reset(seed=seed)
        self._slots.reset()
        self._resetting[:] = False
        for number, slotted in enumerate(self._envs):
            slotted.forget()
            slotted.source.reset(None if seed is None else seed + number)
            while not slotted.collect(self._slots):
                slotted.source.env.step()
        return self._observations(), self._info()

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Apply the actions, and continue until an agent of each environment requests the next.

        Returns:
            Observations, rewards, whether the task ended the episode, whether a time limit ended
            it, and infos.

        Raises:
            UnityActionException: The actions are not in the action space.
            UnityGymException: All agents of an environment have disappeared.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Send the actions to all environments and return at once.

        Raises:
            UnityActionException: The actions are not in the action space.
        """
        decoded = self._actions.decode(actions)
        spec = self.behavior_spec.action_spec
        spec.check(decoded, self.num_envs, behavior=self.behavior_name)
        if self._resetting.any():
            is_used = ~self._resetting[:, None]
            decoded = ActionTuple(
                np.where(is_used, decoded.continuous, 0), np.where(is_used, decoded.discrete, 0)
            )
        for slotted in self._envs:
            slotted.act(decoded)
            slotted.source.env.step_send()

    def step_wait(self) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Finish the step that `step_async` started; answers are processed in order of arrival."""
        slots = self._slots
        slots.begin_step()
        waiting = list(self._envs)
        while waiting:
            for slotted in answered(waiting):
                slotted.source.env.step_receive()
                if slotted.collect(slots):
                    waiting.remove(slotted)
                else:
                    slotted.source.env.step_send()
        is_put_off = self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        return (
            self._put_off_resets() if is_put_off else self._observations(),
            slots.reward,
            slots.terminated,
            slots.truncated,
            self._info(),
        )

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Return a picture of each environment, (H, W, 3); None without a render mode.

        The picture is the environment's own, or else the last image of its first agent.

        Raises:
            UnityGymException: The environment cannot render, and there is no image.
        """
        if self.render_mode is None:
            return None
        images = None if self._image is None else self._slots.obs[self._image]
        return tuple(
            picture(slotted.source.env, None if images is None else images[slotted.first])
            for slotted in self._envs
        )

    def close_extras(self) -> None:
        """Close all environments."""
        for source in self._sources:
            source.env.close()

    def _choose_behavior(self, wanted: str | None) -> tuple[str, BehaviorSpec]:
        if not self._sources:
            raise UnityGymException("expected at least one environment, got none")
        specs = self._sources[0].env.behavior_specs
        name = next(iter(specs)) if wanted is None and len(specs) == 1 else wanted
        if name is None or name not in specs:
            raise UnityGymException(
                f"behavior_name is {wanted!r}; the environment has {list(specs)}. Choose one."
            )
        for source in self._sources[1:]:
            other = source.env.behavior_specs.get(name)
            if other != specs[name]:
                raise UnityGymException(
                    f"behavior {name!r} must have the same specification in all environments; got "
                    f"{specs[name]} in the first, {other} in another"
                )
        return name, specs[name]

    def _slotted(self, agents_per_env: int | None) -> list[SlottedEnv]:
        """Return the environments with their ranges of slots."""
        asking = [self._first_asking(source.env) for source in self._sources]
        sizes = [agents_per_env or n_agents for n_agents in asking]
        return [
            SlottedEnv(
                source, self.behavior_name, first=first, size=size, warns=agents_per_env is None
            )
            for source, first, size in zip(
                self._sources, itertools.accumulate(sizes, initial=0), sizes, strict=False
            )
        ]

    def _first_asking(self, env: BaseEnv) -> int:
        """Step until an agent requests an action; return the number of agents that do."""
        for _ in range(MAX_SILENT_STEPS):
            if n_agents := len(env.get_steps(self.behavior_name)[0]):
                return n_agents
            env.step()
        raise UnityGymException(
            f"{self.behavior_name}: no agent requested an action in {MAX_SILENT_STEPS} steps"
        )

    def _observations(self) -> Any:
        return self._layout.assemble([part.copy() for part in self._slots.obs])

    def _put_off_resets(self) -> Any:
        """Postpone new episodes to the next step, for NEXT_STEP; return the observations."""
        slots, resetting = self._slots, self._resetting
        for report in (slots.reward, slots.group_reward, slots.terminated, slots.truncated):
            report[resetting] = 0  # of an episode whose beginning has not been reported
        parts = [part.copy() for part in slots.obs]
        ended = np.zeros_like(resetting)
        for where, _, last in slots.ended:
            is_reported = ~resetting[where]
            for part, of_part in zip(parts, last, strict=True):
                part[where[is_reported]] = of_part[is_reported]
            ended[where[is_reported]] = True
        slots.acting[ended] = False
        slots.allowed[ended] = True
        slots.ended = []
        self._resetting = ended
        return self._layout.assemble(parts)

    def _info(self) -> dict[str, Any]:
        slots = self._slots
        info: dict[str, Any] = {"acting": slots.acting, "agent_id": slots.agent_id.copy()}
        if self.behavior_spec.action_spec.discrete_branches:
            info["action_mask"] = slots.allowed
        if slots.has_groups:
            info["group_reward"] = slots.group_reward
        info |= dict.fromkeys([f"_{key}" for key in info], np.ones(self.num_envs, np.bool_))
        if slots.ended:
            info.update(self._final_info())
        return info

    def _final_info(self) -> dict[str, Any]:
        is_final = np.zeros(self.num_envs, np.bool_)
        observations = np.empty(self.num_envs, object)
        agent_id = np.full(self.num_envs, NO_AGENT, np.int64)
        for slots, agents, parts in self._slots.ended:
            is_final[slots] = True
            agent_id[slots] = agents
            for row, slot in enumerate(slots.tolist()):
                observations[slot] = self._layout.assemble([part[row].copy() for part in parts])
        return {
            "final_obs": observations,
            "_final_obs": is_final,
            "final_info": {"agent_id": agent_id, "_agent_id": is_final},
            "_final_info": is_final,
        }
