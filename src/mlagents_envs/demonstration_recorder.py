"""`DemonstrationRecorder`: an environment whose play is written to a `.demo` file.

env ──steps──► recorder ──steps──► the player: a policy, a script or a person
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
"""What an environment may offer beyond `BaseEnv`."""


class DemonstrationRecorder(BaseEnv):
    """An environment of which every episode of one behavior is written to a `.demo` file.

        with closing(DemonstrationRecorder(env, "expert.demo")) as env:
            env.reset()
            ...

    Every decision is a record: what the agent saw, the reward since its record before, and what it
    then did. The end of an episode is one more. Agents play at the same time, so an episode is
    written as a whole when it ends. One that is cut off, by a reset or because the recorder is
    closed, ends as interrupted with what the agent saw last.

    The file is made with the first steps of the behavior and gets its name when the recorder is
    closed. If nothing was recorded there is none. Whatever the environment offers beyond `BaseEnv`,
    as pictures, environment parameters and statistics, the recorder offers too.

    Args:
        env: What to wrap; it is closed with the recorder.
        path: Ends in `.demo`; a file that is there is replaced.
        behavior_name: Whose play to record, with or without its team; may be left out where there
            is one behavior. One that is not there yet is recorded from when it appears.
        name: What the file calls itself; see `DemonstrationWriter`.
        is_recorded: Function that returns whether an agent is recorded, by its id, when it has
            acted; None for all agents.

    Raises:
        UnityDemonstrationException: The path does not end in `.demo`.
        OSError: No file can be written there.
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
        PendingFile(self._path).discard()  # rather now than when much was played
        self._behavior_name = behavior_name
        self._recording: _Recording | None = None
        self._has_warned = False
        # As attributes of its own: who looks for a protocol's methods sees no others.
        for offered in _PASSED_ON:
            if hasattr(env, offered):
                setattr(self, offered, getattr(env, offered))

    @property
    def metadata(self) -> DemonstrationMetadata | None:
        """What the file says of itself; None while nothing has been recorded."""
        return None if self._recording is None else self._recording.metadata

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Those of the environment."""
        return self._env.behavior_specs

    def reset(self) -> None:
        """Begin a new episode for every agent; those that are running are cut off.

        Raises:
            UnityEnvironmentException: There are several behaviors, and none was chosen.
            UnityNonFiniteException: Something of an episode is NaN or infinite.
            OSError: The disk is full. After either error, other episodes are recorded as before.
        """
        if self._recording is not None:
            self._recording.cut_off()
        self._env.reset()
        self._note_steps()

    def step(self) -> None:
        """Step the environment; errors as for `reset`."""
        self._note_actions()
        self._env.step()
        self._note_steps()

    def step_send(self) -> None:
        """Start a step of the environment."""
        self._note_actions()
        self._env.step_send()

    def step_receive(self) -> None:
        """Finish the step that `step_send` started; errors as for `reset`."""
        self._env.step_receive()
        self._note_steps()

    def fileno(self) -> int | None:
        """That of the environment."""
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
        """Finish the file and close the environment. Calling it again does nothing.

        Raises:
            UnityNonFiniteException, OSError: As for `reset`; what could be written is in the file.
        """
        try:
            if self._recording is not None:
                self._recording.close()
            elif self._has_warned:
                self._has_warned = False
                logger.warning(f"{self._path} was not written: {self._not_there()}.")
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
        """Make the file, if the behavior has appeared."""
        specs = self._env.behavior_specs
        found = list(specs)
        if self._behavior_name is not None:
            found = [full for full in specs if is_named(full, self._behavior_name)]
            found = [full for full in found if full == self._behavior_name] or found
        if len(found) > 1:
            raise UnityEnvironmentException(
                f"there are several behaviors, {sorted(found)}: choose the one to record by "
                "behavior_name (mlagents-play: --behavior)"
            )
        if not found:
            if specs and not self._has_warned:
                self._has_warned = True
                logger.warning(f"Nothing is recorded yet: {self._not_there()}.")
            return None
        (name,) = found
        writer = DemonstrationWriter(self._path, name, specs[name], name=self._name)
        return _Recording(writer, self._is_recorded)

    def _not_there(self) -> str:
        return (
            f"there is no behavior {self._behavior_name!r} in this environment; it has "
            f"{', '.join(self._env.behavior_specs)}"
        )


class _Episode(NamedTuple):
    """What one agent saw and did in the episode that is running; as many steps as actions."""

    steps: list[DecisionStep]
    continuous: list[NDArray[np.float32]]
    discrete: list[NDArray[np.int32]]


class _Recording:
    """The running episodes of one behavior, and the file for those that end.

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
        self._nobody = self._asking = DecisionSteps.empty(writer.spec)
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
        """Append to the episodes what those who asked now do."""
        action = self._actions.take(self.behavior_name, len(self._asking))
        continuous, discrete = action.continuous.copy(), action.discrete.copy()
        for row, (agent_id, step) in enumerate(self._asking.items()):
            if self._is_recorded is not None and not self._is_recorded(agent_id):
                continue
            episode = self._episodes.setdefault(agent_id, _Episode([], [], []))
            episode.steps.append(step)
            episode.continuous.append(continuous[row])
            episode.discrete.append(discrete[row])
        self._asking = self._nobody

    def note_steps(self, asking: DecisionSteps, ended: TerminalSteps) -> None:
        """Write the episodes that ended, and remember who asks."""
        self._actions.clear()
        self._asking = asking
        self._write_all((agent_id, last, last.interrupted) for agent_id, last in ended.items())

    def cut_off(self) -> None:
        """Write the episodes that are running; the last record of each is its last request."""
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
        """Write episodes; one that cannot be written keeps back none of the others."""
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
        """Write an episode in which something was done before its last record."""
        episode = self._episodes.pop(agent_id, None)
        if episode is None or not episode.steps:
            return
        steps = [*episode.steps, last]
        is_last = np.arange(len(steps)) == len(episode.steps)
        self._writer.append(
            DemonstrationRecords(
                obs=[np.stack(batch) for batch in zip(*(step.obs for step in steps), strict=True)],
                # A record at the end has an action that means nothing: the last one, once more.
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
        """Return one (T, size) array per branch, for the steps and a last one that has none."""
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
