"""`DemonstrationRecorder`: a wrapper that records an environment into a `.demo` file.

env ──steps──► recorder ──steps──► a policy, a script or a person
                  │ ◄──actions──
                  └──episodes──► expert.demo
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlagents_envs.atomic_file import PendingFile
from mlagents_envs.base_env import (
    ActionBuffer,
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    DecisionStep,
    DecisionSteps,
    TerminalStep,
    TerminalSteps,
    is_named,
)
from mlagents_envs.demonstration_file import (
    DemonstrationMetadata,
    DemonstrationRecords,
    DemonstrationWriter,
    demonstration_path,
)
from mlagents_envs.exception import UnityEnvironmentException, UnityException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

_PASSED_ON = (
    "render",
    "decision_period_steps",
    "side_channels",
    "get_and_reset_stats",
    "set_float_parameter",
    "set_uniform_sampler_parameters",
    "set_gaussian_sampler_parameters",
    "set_multirangeuniform_sampler_parameters",
)
"""Optional methods and attributes of environments beyond `BaseEnv`."""


class DemonstrationRecorder(BaseEnv):
    """Wrapper that records every episode of one behavior into a `.demo` file.

        with closing(DemonstrationRecorder(env, "expert.demo")) as env:
            env.reset()
            ...

    Each decision is a record of the observations, the reward since the agent's previous record, and
    the chosen action. The end of an episode is one more record. Since agents act at the same time,
    each episode is written as a whole when it ends. If a reset or `close` cuts an episode off, it
    is recorded as interrupted, and ends with the agent's last observations.

    The file appears at `path` when the recorder is closed. If nothing was recorded, no file is
    written. The recorder also has the optional methods of the environment, such as those for
    pictures, environment parameters and statistics.

    Args:
        env: Environment to wrap, which is closed with the recorder.
        path: Path of the file, ending in `.demo`. An existing file is replaced.
        behavior_name: Behavior to record, with or without its team; not needed if there is only
            one. If it appears later, it is recorded from then on.
        name: Name stored in the file; see `DemonstrationWriter`.
        is_recorded: Function that returns whether to record an agent, by its id, after it has
            acted; None to record all agents.

    Raises:
        UnityDemonstrationException: The path does not end in `.demo`.
        OSError: The file cannot be written.
    """

    def __init__(
        self,
        env: BaseEnv,
        path: str | os.PathLike[str],
        *,
        behavior_name: BehaviorName | None = None,
        name: str | None = None,
        is_recorded: Callable[[AgentId], bool] | None = None,
    ) -> None:
        self._is_recorded = is_recorded
        self._env = env
        self._path, self._name = demonstration_path(path), name
        PendingFile(self._path).discard()  # fails now instead of after the first episode
        self._behavior_name = behavior_name
        self._recording: _Recording | None = None
        self._has_warned = False
        # Set as attributes, because runtime-checkable protocols do not see `__getattr__` methods.
        for offered in _PASSED_ON:
            if hasattr(env, offered):
                setattr(self, offered, getattr(env, offered))

    @property
    def metadata(self) -> DemonstrationMetadata | None:
        """Metadata of the file; None while nothing has been recorded."""
        return None if self._recording is None else self._recording.metadata

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of the environment's behaviors, by name."""
        return self._env.behavior_specs

    def reset(self) -> None:
        """Begin a new episode for every agent; running episodes are recorded as interrupted.

        Raises:
            UnityEnvironmentException: There are several behaviors, and `behavior_name` is None.
            UnityNonFiniteException: A number of an episode is NaN or infinite. The episode is not
                recorded; recording continues.
            OSError: An episode cannot be written, for example because the disk is full. Recording
                continues.
        """
        if self._recording is not None:
            self._recording.cut_off()
        self._env.reset()
        self._note_steps()

    def step(self) -> None:
        """Step the environment, with the errors of `reset`."""
        self._note_actions()
        self._env.step()
        self._note_steps()

    def step_send(self) -> None:
        """Start a step of the environment."""
        self._note_actions()
        self._env.step_send()

    def step_receive(self) -> None:
        """Finish the step that `step_send` started, with the errors of `reset`."""
        self._env.step_receive()
        self._note_steps()

    def fileno(self) -> int | None:
        """Return the file descriptor of the environment, if any."""
        return self._env.fileno()

    def get_steps(self, behavior_name: BehaviorName) -> tuple[DecisionSteps, TerminalSteps]:
        """Return the steps of the environment."""
        return self._env.get_steps(behavior_name)

    def set_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Set the next actions of a behavior."""
        self._env.set_actions(behavior_name, action)
        if self._recording is not None and behavior_name == self._recording.behavior_name:
            self._recording.set_actions(action)

    def set_action_for_agent(
        self, behavior_name: BehaviorName, agent_id: AgentId, action: ActionTuple
    ) -> None:
        """Set the next action of one agent."""
        self._env.set_action_for_agent(behavior_name, agent_id, action)
        if self._recording is not None and behavior_name == self._recording.behavior_name:
            self._recording.set_action_for_agent(agent_id, action)

    def close(self) -> None:
        """Complete the file and close the environment. Calling it again does nothing.

        Raises:
            UnityNonFiniteException: A number of a running episode is NaN or infinite. The other
                episodes are in the file.
            OSError: An episode or the file cannot be written.
        """
        try:
            if self._recording is not None:
                self._recording.close()
            elif self._has_warned:
                self._has_warned = False
                logger.warning(f"{self._path} was not written: {self._explain_missing()}.")
        finally:
            self._env.close()

    def _note_actions(self) -> None:
        if self._recording is not None:
            self._recording.note_actions()

    def _note_steps(self) -> None:
        if self._recording is None:
            self._recording = self._begin()
        if self._recording is not None:
            self._recording.note_steps(*self._env.get_steps(self._recording.behavior_name))

    def _begin(self) -> "_Recording | None":
        """Start the file, if the behavior has appeared."""
        specs = self._env.behavior_specs
        found = list(specs)
        if self._behavior_name is not None:
            found = [full for full in specs if is_named(full, self._behavior_name)]
            found = [full for full in found if full == self._behavior_name] or found
        if len(found) > 1:
            raise UnityEnvironmentException(
                f"expected one behavior to record, got {sorted(found)}. Choose one with "
                "behavior_name (mlagents-play: --behavior)."
            )
        if not found:
            if specs and not self._has_warned:
                self._has_warned = True
                logger.warning(f"Nothing is recorded yet: {self._explain_missing()}.")
            return None
        (name,) = found
        writer = DemonstrationWriter(self._path, name, specs[name], name=self._name)
        return _Recording(writer, self._is_recorded)

    def _explain_missing(self) -> str:
        return (
            f"this environment does not have the behavior {self._behavior_name!r}; it has "
            f"{', '.join(self._env.behavior_specs)}"
        )


class _Episode(NamedTuple):
    """Running episode of one agent: its decision steps, and the action for each."""

    steps: list[DecisionStep]
    continuous: list[NDArray[np.float32]]
    discrete: list[NDArray[np.int32]]


class _Recording:
    """Recording of one behavior: its running episodes, and the file for those that end.

    Args:
        writer: Writer of the file.
        is_recorded: Function that returns whether an agent is recorded; None for all agents.
    """

    def __init__(
        self, writer: DemonstrationWriter, is_recorded: Callable[[AgentId], bool] | None = None
    ) -> None:
        self._is_recorded = is_recorded
        self.behavior_name = writer.behavior_name
        self._writer = writer
        self._branches = writer.spec.action_spec.discrete_branches
        self._actions = ActionBuffer({writer.behavior_name: writer.spec})
        self._empty = self._asking = DecisionSteps.empty(writer.spec)
        self._episodes: dict[AgentId, _Episode] = {}

    @property
    def metadata(self) -> DemonstrationMetadata | None:
        metadata = self._writer.metadata
        return metadata if metadata.number_steps else None

    def set_actions(self, action: ActionTuple) -> None:
        self._actions.set(self.behavior_name, action, self._asking)

    def set_action_for_agent(self, agent_id: AgentId, action: ActionTuple) -> None:
        self._actions.set_for_agent(self.behavior_name, agent_id, action, self._asking)

    def note_actions(self) -> None:
        """Append the actions, and the steps that requested them, to the episodes."""
        action = self._actions.take(self.behavior_name, len(self._asking))
        continuous, discrete = action.continuous.copy(), action.discrete.copy()
        for row, (agent_id, step) in enumerate(self._asking.items()):
            if self._is_recorded is not None and not self._is_recorded(agent_id):
                continue
            episode = self._episodes.setdefault(agent_id, _Episode([], [], []))
            episode.steps.append(step)
            episode.continuous.append(continuous[row])
            episode.discrete.append(discrete[row])
        self._asking = self._empty

    def note_steps(self, asking: DecisionSteps, ended: TerminalSteps) -> None:
        """Store the decision steps, and write the episodes that ended."""
        self._actions.clear()
        self._asking = asking
        self._write_all((agent_id, last, last.interrupted) for agent_id, last in ended.items())

    def cut_off(self) -> None:
        """Write the running episodes; the last record of each is the agent's last decision step."""
        self._write_all(
            (
                agent_id,
                self._asking[agent_id] if agent_id in self._asking else episode.steps.pop(),
                True,
            )
            for agent_id, episode in list(self._episodes.items())
        )

    def close(self) -> None:
        try:
            self.cut_off()
        finally:
            self._writer.close()

    def _write_all(self, ends: Iterable[tuple[AgentId, DecisionStep | TerminalStep, bool]]) -> None:
        """Write episodes; after an error, write the others before raising it."""
        errors = []
        for agent_id, last, interrupted in ends:
            try:
                self._write(agent_id, last, interrupted=interrupted)
            except (UnityException, OSError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _write(
        self, agent_id: AgentId, last: DecisionStep | TerminalStep, *, interrupted: bool
    ) -> None:
        """Write an episode, unless it has no action before its last record."""
        episode = self._episodes.pop(agent_id, None)
        if episode is None or not episode.steps:
            return
        steps = [*episode.steps, last]
        is_last = np.arange(len(steps)) == len(episode.steps)
        self._writer.append(
            DemonstrationRecords(
                obs=[np.stack(batch) for batch in zip(*(step.obs for step in steps), strict=True)],
                # The action of the last record is ignored: repeat the previous one.
                action=ActionTuple(
                    np.stack([*episode.continuous, episode.continuous[-1]])[: len(steps)],
                    np.stack([*episode.discrete, episode.discrete[-1]])[: len(steps)],
                ),
                action_mask=self._masks(episode.steps),
                reward=np.array([step.reward for step in steps], np.float32),
                done=is_last,
                interrupted=is_last & interrupted,
                agent_id=np.full(len(steps), agent_id, np.int32),
                group_id=np.array([step.group_id for step in steps], np.int32),
                group_reward=np.array([step.group_reward for step in steps], np.float32),
            )
        )

    def _masks(self, steps: list[DecisionStep]) -> list[NDArray[np.bool_]] | None:
        """Return one (T, size) array per branch; the last record, without a mask, has zeros."""
        if not self._branches:
            return None
        masks = []
        for branch, size in enumerate(self._branches):
            mask = np.zeros((len(steps) + 1, size), np.bool_)
            for row, step in enumerate(steps):
                if step.action_mask is not None:
                    mask[row] = step.action_mask[branch]
            masks.append(mask)
        return masks
