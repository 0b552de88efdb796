"""`World`, a `BaseEnv` in this process: agents, decision periods, episode ends, parameters.

A world computes all its agents together. Every quantity is an array with one row per agent, and
agents are given as indices into such arrays. A subclass implements

    begin(agents)       a new episode for these agents
    observe(agents)     what they see now
    command(agents, a)  the actions they repeat from now on
    act()               one step of these actions: rewards and episode ends
    physics()           objects that move by themselves, if any

and may override

    scene()             solids and their poses, for viewers, films and pictures
    render()            a picture, if there is no scene
    rest(agents)        what they do before their first action
    run(n)              up to n steps at once, where `act` and `physics` take a step each
    requests()          agents that request a decision in this step
    masks(agents)       actions they must not take

Agents with the same number in `group` share a group reward. `reward_group` pays all members that
are present, `leave` removes members before the end, and `end_group` ends the episode of the group.

`World` runs a step in the order of a Unity scene:

    step:  requests ─► report ─► act ─► time limit ─► physics ─► next step
"""

from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlagents_envs.base_env import (
    ActionTuple,
    BehaviorName,
    BehaviorSpec,
    BoolArray,
    DecisionSteps,
    TerminalSteps,
)
from mlagents_envs.exception import UnityActionException, UnityEnvironmentException
from mlagents_envs.local_env import LocalEnv, Report
from mlagents_envs.logging_util import get_logger
from mlagents_envs.scene import Control, Scene
from mlagents_envs.scene_picture import draw_scene
from mlagents_envs.side_channel.stats_side_channel import EnvironmentStats, StatsAggregationMethod
from mlagents_envs.suggestions import did_you_mean
from mlagents_sim.parameters import Gaussian, Parameters, Sampler, Uniform

logger = get_logger(__name__)

Agents = slice | NDArray[np.intp]
"""Indices of agents; a slice for all agents or for none."""

ALL = slice(None)

_MOST_FREE_STEPS = 1_000
"""Steps that a world with requests of its own runs at once."""
_MAX_UNREAD_VALUES = 10_000
"""Values kept of each statistic. A trainer reads them every few steps."""


class World(LocalEnv):
    """Base of the native worlds: a fixed number of agents per area, of one behavior or several.

    When an agent's episode ends, its last observation is recorded and its next episode begins at
    once. The ended episode is in the next report. If it ends between two decisions, that report may
    hold no decision requests. The same seed and actions give the same steps.

    Args:
        num_areas: Number of copies of the scene.
        seed: Seed of `rng`.
        parameters: Environment parameters that differ from the defaults.

    Attributes:
        rng: Source of all randomness, except samplers of parameters.
        parameters: Environment parameters by name, for `begin` to read. `parameters[name]` is one
            value; `parameters.draw(name, n)` is one value for each of n beginning agents. The
            values differ if the trainer set a sampler.
        n_agents: Number of agents of all areas together, N.
        agent_id: (N,) int32 ids of the agents.
        behavior: (N,) indices into `behavior_names` of the agents' behaviors. In a world of
            several behaviors, `begin` sets them.
        group: (N,) int32 numbers of the agents' groups, above 0; 0 for an agent without a group.
            A world of groups sets them in its constructor.
        is_present: (N,) which agents take part; False for an agent that has left its group.
        reward: (N,) float32 rewards for the agents' next reports. Add to them, or set them to
            overwrite those that have accrued since the last report.
        group_reward: (N,) float32 rewards of the agents' groups, as `reward`.
        step_count: Steps since the last reset.

    Raises:
        UnityEnvironmentException: A parameter does not exist or is not a finite number, `num_areas`
            is below 1, or `num_areas` or the seed is not a whole number.
    """

    behavior_name: ClassVar[BehaviorName]
    """Name of the behavior, in a world of one behavior."""
    behavior_names: ClassVar[Sequence[BehaviorName]] = ()
    """Names of the behaviors, in a world of several; replaces `behavior_name`."""
    behavior_spec: ClassVar[BehaviorSpec]
    """Specification of every behavior. Images may be 8 bit; they are returned as float32 unless
    `keep_8_bit_images` is called."""
    specs_by_name: ClassVar[Mapping[BehaviorName, BehaviorSpec]] = {}
    """Specifications of behaviors that differ; replaces `behavior_names` and `behavior_spec`.
    `observe`, `command` and `masks` then get agents of one behavior at a time."""
    agents_per_area: ClassVar[int] = 1
    decision_period_steps: ClassVar[int] = 1
    stops_at_requests: ClassVar[bool] = False
    """Whether `run` also stops after a step in which an agent requests a decision. A world with
    `requests` of its own runs several steps at once only if it does."""
    max_steps: ClassVar[int | None] = None
    """Steps after which an episode is interrupted."""
    default_parameters: ClassVar[Mapping[str, float]] = {}
    parameter_ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """Lowest and highest value of parameters that have bounds."""
    step_s: ClassVar[float] = 0.02
    """Simulated seconds of a step."""
    controls: ClassVar[Sequence[Control]] = ()
    """Keys to play an agent with; if empty, keys are derived from the action specification."""

    def __init__(
        self, *, num_areas: int = 1, seed: int = 0, parameters: Mapping[str, float] | None = None
    ) -> None:
        for argument, number in (("num_areas", num_areas), ("seed", seed)):
            if not isinstance(number, int | np.integer):
                raise UnityEnvironmentException(
                    f"{argument} must be a whole number, got {number!r}"
                )
        if num_areas < 1:
            raise UnityEnvironmentException(f"num_areas must be at least 1, got {num_areas}")
        super().__init__()
        self.step_watcher: Callable[[], None] | None = None
        """Function called after every step of time, such as one that films the world."""
        self.rng = np.random.default_rng(seed % 2**32)  # on the wire it may be negative
        self.parameters = Parameters(self.default_parameters, self.parameter_ranges)
        for name, value in (parameters or {}).items():
            self.set_parameter(name, value)
        self._unknown_parameters: set[str] = set()
        self._stats: defaultdict[str, deque[tuple[float, StatsAggregationMethod]]] = defaultdict(
            partial(deque, maxlen=_MAX_UNREAD_VALUES)
        )

        self.n_agents = self.agents_per_area * num_areas
        self.agent_id = np.arange(self.n_agents, dtype=np.int32)
        self.behavior = np.zeros(self.n_agents, np.intp)
        self.group = np.zeros(self.n_agents, np.int32)
        self.is_present = np.ones(self.n_agents, np.bool_)
        self.reward = np.zeros(self.n_agents, np.float32)
        self.group_reward = np.zeros(self.n_agents, np.float32)
        self.step_count = 0
        self._next_id = self.n_agents
        self._begun_at = np.zeros(self.n_agents, np.int64)
        # No episode reaches its time limit before this step. An episode that the task ends only
        # makes that later, so no limit needs a check until then.
        self._next_clock = self.max_steps

        specs = dict(self.specs_by_name)
        if not specs:
            names = self.behavior_names or (self.behavior_name,)
            specs = dict.fromkeys(names, self.behavior_spec)
        self._names = tuple(specs)
        self._asking: dict[BehaviorName, Agents] = {}
        self._ended: dict[BehaviorName, list[TerminalSteps]] = {name: [] for name in self._names}
        self.announce(specs)
        self._action_specs = {name: spec.action_spec for name, spec in specs.items()}
        self._n_choices = {
            name: np.array(actions.discrete_branches, np.uint32)
            for name, actions in self._action_specs.items()
        }

    # Methods that a world implements.

    @abstractmethod
    def begin(self, agents: Agents) -> None:
        """Put these agents at the start of a new episode, as set by `parameters`."""

    @abstractmethod
    def observe(self, agents: Agents) -> list[NDArray[Any]]:
        """Return one new (n, *shape) array per observation of these agents, as specified."""

    @abstractmethod
    def command(self, agents: Agents, action: ActionTuple) -> None:
        """Set the actions that these agents repeat until the next call."""

    def rest(self, agents: Agents) -> None:
        """Set empty actions for these agents, whose episodes begin."""
        for name, its_agents, _ in self._by_behavior(agents):
            n = len(self.agent_id[its_agents])
            self.command(its_agents, self._action_specs[name].empty_action(n))

    @abstractmethod
    def act(self) -> None:
        """Carry out one step of every agent's action: set `reward`, call `end`."""

    def physics(self) -> None:
        """Simulate one step of time. By default nothing moves by itself."""

    def run(self, most_steps: int) -> int:
        """Run several steps of `act` and `physics`, and count them in `step_count`.

        Stop after a step in which an episode ended. `World` calls this only if no agent reaches the
        time limit in these steps, and none requests a decision before their end. If
        `stops_at_requests` is set, stop after a step in which an agent requests one.

        Args:
            most_steps: Largest number of steps.

        Returns:
            The number of steps that were run; 0 to run the next one with `act` and `physics`.
        """
        return 0

    def scene(self) -> Scene | None:
        """Return what the world shows now; None if it cannot be shown, or only by `render`."""
        return None

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the current state: (H, W, 3) uint8, red, green, blue.

        Raises:
            UnityEnvironmentException: The world has neither a scene nor a `render` of its own.
        """
        scene = self.scene()
        if scene is None:
            raise UnityEnvironmentException(
                f"{type(self).__name__} cannot be drawn: it defines neither scene(), which returns "
                "a mlagents_envs.scene.Scene, nor render(), which returns an array (height, width, "
                "3) of uint8. Define one of them."
            )
        return draw_scene(scene)

    def requests(self) -> Agents | None:
        """Return the agents that request a decision in this step, or None.

        By default, all agents request one at the end of every decision period.
        """
        return ALL if self.step_count % self.decision_period_steps == 0 else None

    def masks(self, agents: Agents) -> list[BoolArray]:
        """Return one (n, size) array per discrete branch, True where an action is forbidden."""
        n = len(self.agent_id[agents])
        name = self._names[self.behavior[agents][0]] if n else self._names[0]
        branches = self._action_specs[name].discrete_branches
        return [np.zeros((n, size), np.bool_) for size in branches]

    # Methods that a world calls.

    def end(self, agents: NDArray[np.intp], *, interrupted: bool = False) -> None:
        """End the episodes of these agents and begin their next ones.

        Agents that have left return. Their episodes ended before, so only new ones begin.

        Args:
            agents: Indices of the agents; may be empty.
            interrupted: Whether the time limit ended the episodes, instead of the task.
        """
        if len(agents) == 0:
            return
        self._record_ends(agents[self.is_present[agents]], interrupted)
        self._begin(agents)

    def leave(self, agents: NDArray[np.intp]) -> None:
        """End the episodes of agents that leave, until `end` brings them back as new agents.

        An agent that has left requests no decisions. It still has a row in all arrays, so the world
        must keep it from touching anything.

        Args:
            agents: Indices of agents that are present; may be empty.
        """
        self._record_ends(agents, interrupted=False)
        self.is_present[agents] = False

    def reward_group(self, groups: NDArray[np.integer], reward: ArrayLike) -> None:
        """Add a reward for all present members of groups.

        Args:
            groups: (n,) numbers of the groups, all different.
            reward: Reward of all these groups, or (n,) rewards.
        """
        if len(groups) == 0:
            return
        by_group = np.zeros(int(self.group.max()) + 1, np.float32)
        by_group[groups] = reward
        self.group_reward += by_group[self.group] * self.is_present

    def end_group(self, groups: NDArray[np.integer], *, interrupted: bool = False) -> None:
        """End the episodes of groups and begin the next ones, of all their members.

        Args:
            groups: (n,) numbers of the groups; may be empty.
            interrupted: Whether the time limit ended the episodes, instead of the task.
        """
        if len(groups):
            self.end(np.isin(self.group, groups).nonzero()[0], interrupted=interrupted)

    def renew_ids(self, agents: NDArray[np.intp]) -> None:
        """Give these agents unused ids, so that the trainer takes them for new agents."""
        self.agent_id[agents] = np.arange(self._next_id, self._next_id + len(agents))
        self._next_id += len(agents)

    def add_stat(
        self,
        key: str,
        value: float,
        aggregation: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        """Add a number that the trainer plots.

        Args:
            key: Name of the statistic; slashes make groups, as in `Food/Collected`.
            value: Number to plot.
            aggregation: Way to combine the values of a period.

        Raises:
            UnityEnvironmentException: The value is not finite.
        """
        if not np.isfinite(value):
            raise UnityEnvironmentException(
                f"statistic {key!r} is {value}: expected a finite number"
            )
        self._stats[key].append((float(value), aggregation))

    # Methods of an environment.

    def set_parameter(self, name: str, value: float) -> None:
        """Set an environment parameter for all episodes that begin from now on.

        Raises:
            UnityEnvironmentException: There is no such parameter, or the value is not a finite
                number, or is beyond the parameter's range.
        """
        if name not in self.parameters:
            raise UnityEnvironmentException(self._no_parameter(name))
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise UnityEnvironmentException(
                f"environment parameter {name!r} is {value!r}: expected a finite number"
            ) from error
        self.parameters.set(name, number)

    def set_float_parameter(self, key: str, value: float) -> None:
        """Fix the parameter `key` for all episodes that begin from now on.

        A trainer calls this method and those that set samplers. As in Unity, a parameter that the
        world does not have is ignored with one warning, because one file may serve several worlds.

        Raises:
            UnityEnvironmentException: The value is not finite, or is beyond the parameter's range.
        """
        self._set_parameter(key, float(value))

    def set_uniform_sampler_parameters(
        self, key: str, min_value: float, max_value: float, seed: int
    ) -> None:
        """Draw the parameter `key` uniformly between two bounds.

        Raises:
            UnityEnvironmentException: The bounds are not finite or do not ascend, or are beyond
                the parameter's range.
        """
        self._set_parameter(key, Uniform([(min_value, max_value)], seed))

    def set_gaussian_sampler_parameters(
        self, key: str, mean: float, st_dev: float, seed: int
    ) -> None:
        """Draw the parameter `key` from a normal distribution.

        Raises:
            UnityEnvironmentException: A number is not finite, or the deviation is negative.
        """
        self._set_parameter(key, Gaussian(mean, st_dev, seed))

    def set_multirangeuniform_sampler_parameters(
        self, key: str, intervals: Sequence[tuple[float, float]], seed: int
    ) -> None:
        """Draw the parameter `key` uniformly from the union of (min, max) intervals.

        Raises:
            UnityEnvironmentException: There is no interval, or one is not finite or does not
                ascend, or is beyond the parameter's range.
        """
        self._set_parameter(key, Uniform(intervals, seed))

    def get_and_reset_stats(self) -> EnvironmentStats:
        """Return the statistics added since the last call, at most the latest 10,000 of each."""
        stats = {key: list(values) for key, values in self._stats.items()}
        self._stats.clear()
        return stats

    def restart(self) -> dict[BehaviorName, Report]:
        """Begin all episodes again; ids and pending rewards stay."""
        self.step_count = 0
        self._next_clock = self.max_steps
        for ended in self._ended.values():
            ended.clear()
        self._begin(ALL)
        return self._next_reports(self._report())

    def advance(self) -> dict[BehaviorName, Report]:
        """Run steps until an agent requests a decision or ends its episode."""
        for name, agents in self._asking.items():
            self.command(agents, self.take_actions(name))
        return self._next_reports(None)

    def check_actions(self, behavior_name: BehaviorName, action: ActionTuple) -> None:
        """Raise unless every action is a number or a choice that exists."""
        values, choices = action.continuous, action.discrete
        if values.size and np.count_nonzero(np.isfinite(values)) < values.size:
            raise UnityActionException(
                f"behavior {behavior_name!r}: continuous actions contain NaN or infinity: {values}"
            )
        # As unsigned numbers, negative choices are huge.
        limits = self._n_choices[behavior_name]
        if choices.size and np.count_nonzero(choices.view(np.uint32) >= limits):
            raise UnityActionException(
                f"behavior {behavior_name!r}: discrete actions must be from 0 up to below "
                f"{tuple(limits.tolist())}, got {choices.tolist()}"
            )

    # Private helpers.

    def _next_reports(
        self, reports: dict[BehaviorName, Report] | None
    ) -> dict[BehaviorName, Report]:
        """Return the reports. If there are none, run steps until there are."""
        while reports is None:
            n_free = self._free_steps()
            if self.step_watcher is not None:
                n_free = min(n_free, 1)
            if n_free < 1 or not self.run(n_free):
                self._pass_step()
            if self.step_watcher is not None:
                self.step_watcher()
            reports = self._report()
        return reports

    def _set_parameter(self, name: str, source: float | Sampler) -> None:
        if name in self.parameters:
            self.parameters.set(name, source)
        elif name not in self._unknown_parameters:
            self._unknown_parameters.add(name)
            logger.warning("%s It is ignored.", self._no_parameter(name))

    def _no_parameter(self, name: str) -> str:
        return (
            f"{type(self).__name__} has no environment parameter {name!r}"
            f"{did_you_mean(name, self.parameters) or '.'} It has "
            f"{sorted(self.parameters) or 'none'}."
        )

    def _seen_by_behavior(
        self, agents: Agents
    ) -> Iterable[tuple[BehaviorName, Agents, list[NDArray[Any]]]]:
        """Return the observations of agents by behavior. Behaviors without agents are left out."""
        if self.specs_by_name:
            return [
                (name, its_agents, self.observe(its_agents))
                for name, its_agents, _ in self._by_behavior(agents)
            ]
        obs = self.observe(agents)
        return [
            (name, its_agents, obs if rows is ALL else [batch[rows] for batch in obs])
            for name, its_agents, rows in self._by_behavior(agents)
        ]

    def _by_behavior(self, agents: Agents) -> list[tuple[BehaviorName, Agents, Agents]]:
        """Return the agents of each behavior and their rows, without behaviors that have none."""
        if len(self._names) == 1:
            return [(self._names[0], agents, ALL)]
        behavior = self.behavior[agents]
        indices = np.arange(self.n_agents)[agents]
        rows_of = [(behavior == k).nonzero()[0] for k in range(len(self._names))]
        return [
            (name, indices[rows], rows)
            for name, rows in zip(self._names, rows_of, strict=True)
            if rows.size
        ]

    def _record_ends(self, agents: NDArray[np.intp], interrupted: bool) -> None:
        """Record the ends of the episodes of present agents, and clear their rewards."""
        if len(agents) == 0:
            return
        for name, its_agents, obs in self._seen_by_behavior(agents):
            reward, agent_id = self.reward[its_agents], self.agent_id[its_agents]
            groups = self.group[its_agents], self.group_reward[its_agents]
            steps = TerminalSteps.of(obs, reward, agent_id, interrupted, groups=groups)
            self._ended[name].append(steps)
        self.reward[agents] = 0.0
        self.group_reward[agents] = 0.0

    def _begin(self, agents: Agents) -> None:
        self._begun_at[agents] = self.step_count
        if not self.is_present.all():
            absent = np.arange(self.n_agents)[agents]
            absent = absent[~self.is_present[absent]]
            self.is_present[absent] = True
            self.reward[absent] = self.group_reward[absent] = 0.0
            self.renew_ids(absent)
        self.begin(agents)
        self.rest(agents)

    def _free_steps(self) -> int:
        """Return the largest number of steps that `run` may run now."""
        if type(self).requests is World.requests:
            period = self.decision_period_steps
            n_steps = period - self.step_count % period
        elif self.stops_at_requests:
            n_steps = _MOST_FREE_STEPS
        else:
            return 0  # any step may be one in which an agent asks
        if self._next_clock is not None:
            n_steps = min(n_steps, self._next_clock - self.step_count - 1)
        return n_steps

    def _pass_step(self) -> None:
        """Finish the step in which decisions were taken and advance to the next."""
        self.step_count += 1
        self.act()
        if self.max_steps is not None and self.step_count == self._next_clock:
            late = self.step_count - self._begun_at == self.max_steps
            self.end(np.flatnonzero(late), interrupted=True)
            self._next_clock = int(self._begun_at.min()) + self.max_steps
        self.physics()

    def _report(self) -> dict[BehaviorName, Report] | None:
        """Return the agents' reports of this step.

        None if no agent requests a decision or ended its episode.
        """
        asking = self.requests()
        if asking is not None and not self.is_present.all():
            is_present = self.is_present[asking]
            asking = np.arange(self.n_agents)[asking][is_present]
        nobody_asks = asking is None or not self.agent_id[asking].size
        if nobody_asks and not any(self._ended.values()):
            return None
        self._asking = {}
        asks: dict[BehaviorName, DecisionSteps] = {}
        if asking is not None and not nobody_asks:
            for name, agents, obs in self._seen_by_behavior(asking):
                self._asking[name] = agents
                asks[name] = self._decision_steps(name, agents, obs)
        reports = {}
        for name, ended in self._ended.items():
            reports[name] = Report(asks.get(name), _joined(ended) if ended else None)
            ended.clear()
        return reports

    def _decision_steps(
        self, name: BehaviorName, agents: Agents, obs: list[NDArray[Any]]
    ) -> DecisionSteps:
        agent_id, reward = self.agent_id[agents].copy(), self.reward[agents].copy()
        groups = self.group[agents].copy(), self.group_reward[agents].copy()
        self.reward[agents] = 0.0
        self.group_reward[agents] = 0.0
        masks = self.masks(agents) if self._action_specs[name].discrete_branches else None
        return DecisionSteps.of(obs, reward, agent_id, masks=masks, groups=groups)


def _joined(ended: list[TerminalSteps]) -> TerminalSteps:
    if len(ended) == 1:
        return ended[0]
    observations = zip(*(steps.obs for steps in ended), strict=True)
    return TerminalSteps(
        obs=[np.concatenate(batches) for batches in observations],
        reward=np.concatenate([steps.reward for steps in ended]),
        interrupted=np.concatenate([steps.interrupted for steps in ended]),
        agent_id=np.concatenate([steps.agent_id for steps in ended]),
        group_id=np.concatenate([steps.group_id for steps in ended]),
        group_reward=np.concatenate([steps.group_reward for steps in ended]),
    )
