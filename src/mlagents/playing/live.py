"""`LivePlay`: play that is watched and controlled in a browser."""

import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.playing.game import Actor, Game
from mlagents.playing.policy import Policy
from mlagents.viewing.held import HeldControls, default_controls
from mlagents.viewing.page import Page
from mlagents.viewing.panels import (
    HumanPanel,
    PacePanel,
    ParameterPanel,
    PolicyPanel,
    ResultsPanel,
)
from mlagents.viewing.stage import Moment, Stage
from mlagents_envs.base_env import (
    ActionTuple,
    AgentId,
    BaseEnv,
    BehaviorId,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
    is_named,
)
from mlagents_envs.checked_env import unwrapped
from mlagents_envs.exception import UnityEnvironmentException, UnityException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.scene import HasScene

logger = get_logger(__name__)

_WAIT_S = 0.05
_STEP_S = 0.02
"""Simulated time of a step, unless the environment says otherwise: Unity's default."""


class Human:
    """A person who acts for one agent.

    Args:
        env: Environment of the agent.
        behavior: Behavior of the agent, with or without its team; None for the first one.
        held: Keys and sliders that the person holds.

    Attributes:
        agent: Index of the agent among the agents of the scene.
        agent_id: Id of the agent; None while it does not exist.
    """

    def __init__(self, env: BaseEnv, behavior: str | None, held: HeldControls) -> None:
        self._env, self._behavior, self.held = env, behavior, held
        self.agent = 0
        self.agent_id: AgentId | None = None
        self._has_begun = False

    def is_it(self, agent_id: AgentId) -> bool:
        """Return whether an id belongs to the person's agent."""
        return agent_id == self.agent_id

    def find(self) -> None:
        """Find the agent in the latest report. Call it before the actors act."""
        ids = self._ids()
        if not self._has_begun:
            first = self._first_of_behavior()
            if first is None:
                return
            self._has_begun = True
            self.agent = ids.index(first) if first in ids else 0
        self.agent_id = ids[min(self.agent, len(ids) - 1)] if ids else None

    def _ids(self) -> list[AgentId]:
        own = unwrapped(self._env)
        scene = own.scene() if isinstance(own, HasScene) else None
        if scene is not None:
            ids: list[AgentId] = scene.agent_id.tolist()
            return ids
        asking = [self._env.get_steps(name)[0].agent_id.tolist() for name in self._names()]
        return sorted(agent for some in asking for agent in some)

    def _first_of_behavior(self) -> AgentId | None:
        for name in self._names():
            decisions, _ = self._env.get_steps(name)
            if len(decisions):
                first: AgentId = decisions.agent_id[0].item()
                return first
        return None

    def _names(self) -> list[BehaviorName]:
        names = list(self._env.behavior_specs)
        return [n for n in names if self._behavior is None or is_named(n, self._behavior)]


class HumanActor:
    """Actor that lets the person act for one agent, and another actor for all others.

    Args:
        human: Person who acts.
        others: Actor of all other agents.
        spec: Specification of the behavior.
    """

    def __init__(self, human: Human, others: Actor, spec: BehaviorSpec) -> None:
        self._human, self.others, self._spec = human, others, spec

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        """Return actions for N agents."""
        self._human.find()
        action = self.others.act(decisions, terminals)
        rows = np.flatnonzero(decisions.agent_id == self._human.agent_id)
        for row in rows.tolist():
            masks = decisions.action_mask
            own = self._human.held.action(
                self._spec.action_spec, None if masks is None else [mask[row] for mask in masks]
            )
            action = ActionTuple(action.continuous.copy(), action.discrete.copy())
            action.continuous[row], action.discrete[row] = own.continuous[0], own.discrete[0]
        return action


class LivePlay:
    """Plays a game while a page shows it.

    Args:
        env: Environment, already reset.
        source: Environment without the recorder that may be around `env`.
        game: Game to play in it.
        page: Page that shows the stage.
        stage: Stage to show the game on.
        human: Person who acts for one agent, if any.
        load: Function that makes an actor for a behavior, from the path or the content of a model.
        runs: Folders of runs, by behavior, whose checkpoints may act.
    """

    def __init__(
        self,
        env: BaseEnv,
        source: BaseEnv,
        game: Game,
        page: Page,
        stage: Stage,
        *,
        human: Human | None,
        load: "Callable[[Path | tuple[str, bytes], BehaviorName, BehaviorSpec], Policy]",
        runs: Mapping[BehaviorName, Path],
    ) -> None:
        self._env, self._game, self._page, self._stage = env, game, page, stage
        self._human, self._load = human, load
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._has_ended = threading.Event()
        self._source: Any = unwrapped(source)
        self._set: dict[str, float] = {}
        self._pace = PacePanel(
            page.gui,
            on_reset=lambda: self._requests.put(self._reset),
            on_end=lambda: self._requests.put(self._end),
        )
        if human is not None:
            self._add_human(human)
        self._policies = {
            name: self._policy_panel(name, runs.get(name)) for name in env.behavior_specs
        }
        parameters = self._parameters()
        self._defaults = dict(parameters)
        self._parameter_panel = ParameterPanel(
            page.gui, parameters, on_set=lambda *both: self._requests.put(lambda: self._put(*both))
        )
        self._results = ResultsPanel(page.gui)
        page.add(self)

    def play(self) -> Iterator[int]:
        """Play until the game is over or the user ends it. The first step waits for a browser.

        Yields:
            Number of agents that request a decision, for each report of the environment.
        """
        while not self._page.is_open_somewhere and not self._has_ended.is_set():
            self._wait(_WAIT_S)
        due_s = time.monotonic()
        while not self._has_ended.is_set():
            try:
                for n_asking in self._game.play():
                    self._offer()
                    yield n_asking
                    due_s = max(due_s + self._report_s(), time.monotonic() - _WAIT_S)
                    self._wait(due_s - time.monotonic())
                    if self._has_ended.is_set():
                        return
                return
            except UnityEnvironmentException as error:
                if not self._set:
                    raise
                self._undo(error)

    def show(self, moment: Moment) -> None:
        """Show the results so far."""
        lines = []
        for name, tally in self._game.tallies.items():
            if tally.episodes:
                rewards = [episode.reward for episode in tally.episodes[-100:]]
                lines.append(
                    f"{name}: {len(tally.episodes)} episodes, mean reward of the last "
                    f"{len(rewards)}: **{np.mean(rewards):.3f}**"
                )
        self._results.say("  \n".join(lines) or "No episode has ended yet.")

    def _add_human(self, human: Human) -> None:
        controls = list(getattr(self._source, "controls", ()))
        spec = next(iter(self._env.behavior_specs.values()))
        human.find()
        HumanPanel(self._page.gui, controls or default_controls(spec.action_spec), human.held)
        self._page.follow(human.agent)

    def _offer(self) -> None:
        if self._stage.is_watched:
            latest = self._game.latest
            self._stage.offer(
                self._source,
                self._env.behavior_specs,
                {name: (report.decisions, report.terminals) for name, report in latest.items()},
                {name: report.action for name, report in latest.items()},
                self._probabilities,
            )

    def _probabilities(self) -> Mapping[BehaviorName, list[NDArray[np.float32]]]:
        found = {}
        for name, report in self._game.latest.items():
            actor = self._game.actors[name]
            if isinstance(actor, HumanActor):
                actor = actor.others
            if isinstance(actor, Policy) and len(report.decisions):
                probabilities = actor.probabilities(report.decisions)
                if probabilities is not None:
                    found[name] = probabilities
        return found

    def _report_s(self) -> float:
        """Return the shortest wall time between two reports, in s."""
        if not isinstance(self._source, HasScene):
            return 0.0  # a build sets its own pace
        step_s: float = getattr(self._source, "step_s", _STEP_S)
        steps = getattr(self._source, "decision_period_steps", 1)
        if steps == 1:
            step_s = max(step_s, 0.2)  # worlds in which every step is a move
        return step_s * steps / self._pace.speed

    def _wait(self, seconds: float) -> None:
        """Process requests of the page for some time, and longer while play is paused."""
        until_s = time.monotonic() + max(0.0, seconds)
        while not self._has_ended.is_set():
            left_s = until_s - time.monotonic()
            if self._pace.is_paused:
                left_s = _WAIT_S
                self._offer()
            try:
                request = self._requests.get(block=left_s > 0.0, timeout=max(left_s, 0.0) or None)
            except queue.Empty:
                if not self._pace.is_paused and time.monotonic() >= until_s:
                    return
                continue
            request()

    # Requests of the page. The thread that plays executes them.

    def _reset(self) -> None:
        self._env.reset()
        self._game.forget()

    def _end(self) -> None:
        self._has_ended.set()

    def _put(self, name: str, value: float) -> None:
        try:
            self._source.set_float_parameter(name, value)
        except UnityEnvironmentException as error:
            self._page.notify(name, str(error))
        else:
            self._set[name] = value

    def _undo(self, error: UnityEnvironmentException) -> None:
        """Restore default parameters and reset, because an episode could not begin."""
        self._page.notify("The episode cannot begin", f"{error} The default values were restored.")
        for name in self._set:
            self._source.set_float_parameter(name, self._defaults[name])
            self._parameter_panel.put_back(name, self._defaults[name])
        self._set.clear()
        self._reset()

    def _parameters(self) -> dict[str, float]:
        if not hasattr(self._source, "set_float_parameter"):
            return {}
        parameters = getattr(self._source, "parameters", {})
        return {name: float(parameters[name]) for name in parameters}

    def _policy_panel(self, name: BehaviorName, run: Path | None) -> PolicyPanel:
        checkpoints = [] if run is None else checkpoints_of(run, BehaviorId.parse(name).name)
        panel = PolicyPanel(
            self._page.gui,
            name,
            [path.stem for path in checkpoints],
            on_choose=lambda k: self._requests.put(lambda: self._use(name, checkpoints[k])),
            on_upload=lambda *file: self._requests.put(lambda: self._use(name, file)),
        )
        panel.say(_actor_in_words(self._game.actor_of(name)))
        return panel

    def _use(self, name: BehaviorName, model: "Path | tuple[str, bytes]") -> None:
        """Let another policy act for a behavior; if it cannot, show the reason on the page."""
        title = model.name if isinstance(model, Path) else model[0]
        try:
            policy = self._load(model, name, self._env.behavior_specs[name])
        except (UnityException, OSError) as error:
            self._policies[name].say(f"{error}  \n{_actor_in_words(self._game.actor_of(name))}")
            self._page.notify(f"{title} cannot act", str(error))
            return
        actor: Actor = policy
        if self._human is not None:
            actor = HumanActor(self._human, policy, self._env.behavior_specs[name])
        self._game.actors[name] = actor
        self._policies[name].say(_actor_in_words(actor))


def checkpoints_of(run: Path, behavior: str) -> list[Path]:
    """Return the models of a behavior in a run's folder, oldest first."""
    by_step = {
        int(found[1]): path
        for path in run.joinpath(behavior).glob("*.onnx")
        if (found := re.fullmatch(rf"{re.escape(behavior)}-(\d+)\.onnx", path.name))
    }
    return [by_step[step] for step in sorted(by_step)]


def _actor_in_words(actor: Actor) -> str:
    if isinstance(actor, HumanActor):
        return f"You play your agent. {_actor_in_words(actor.others)}"
    return f"{actor.name} acts." if isinstance(actor, Policy) else "Agents act at random."
