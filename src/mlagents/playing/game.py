"""`Game`: actors play episodes of an environment, and tallies collect the results."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from mlagents.playing.tally import Tally
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorName,
    BehaviorSpec,
    DecisionSteps,
    TerminalSteps,
    is_named,
)


class Actor(Protocol):
    """Decision maker for all agents of a behavior."""

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        """Return actions for the N agents in `decisions`; the episodes in `terminals` ended."""


class RandomActor:
    """Actor that acts at random: every allowed action is equally likely."""

    def __init__(self, spec: ActionSpec, *, seed: int) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(seed)

    def act(self, decisions: DecisionSteps, terminals: TerminalSteps) -> ActionTuple:
        """Return actions for N agents."""
        action = self._spec.random_action(len(decisions), self._rng)
        for branch, mask in enumerate(decisions.action_mask or ()):
            lots = np.where(mask, -1.0, self._rng.random(mask.shape))
            action.discrete[:, branch] = lots.argmax(axis=1)
        return action


class Answered(NamedTuple):
    """Report of one behavior, and the actions that answer it."""

    decisions: DecisionSteps
    terminals: TerminalSteps
    action: ActionTuple


class Game:
    """Plays episodes of an environment with actors and collects the results.

    Args:
        env: Environment, already reset. It is not closed.
        make_actor: Function that creates the actor of a behavior when the behavior appears.
        n_episodes: Number of episodes to collect for each behavior: those that begin first.
        only: Behavior to collect, with or without its team; None for all behaviors.

    Attributes:
        tallies: Tally of each collected behavior.
        n_decisions: Number of decisions of all agents together.
        actors: Actor of each behavior that has appeared. The caller may replace them.
        latest: Latest report of each behavior.
    """

    def __init__(
        self,
        env: BaseEnv,
        make_actor: Callable[[BehaviorName, BehaviorSpec], Actor],
        *,
        n_episodes: int,
        only: str | None = None,
    ) -> None:
        self.tallies: dict[BehaviorName, Tally] = {}
        self.n_decisions = 0
        self._env = env
        self._make_actor = make_actor
        self._n_episodes = n_episodes
        self._only = only
        self.actors: dict[BehaviorName, Actor] = {}
        self.latest: dict[BehaviorName, Answered] = {}

    def play(self) -> Iterator[int]:
        """Play until all collected episodes have ended.

        Yields:
            Number of agents that request a decision, for each report of the environment.

        Raises:
            UnityNonFiniteException: An observation or a reward is NaN or infinite.
            UnityPolicyException: A policy's action is NaN or infinite.
        """
        while True:
            n_asking = sum([self._decide(name) for name in list(self._env.behavior_specs)])
            self.n_decisions += n_asking
            yield n_asking
            if self.tallies and all(tally.is_complete for tally in self.tallies.values()):
                return
            self._env.step()

    def actor_of(self, name: BehaviorName) -> Actor:
        """Return the actor of a behavior; make it when the behavior has appeared."""
        if name not in self.actors:
            self.actors[name] = self._make_actor(name, self._env.behavior_specs[name])
            if self._only is None or is_named(name, self._only):
                self.tallies[name] = Tally(self._n_episodes)
        return self.actors[name]

    def forget(self) -> None:
        """Drop the unfinished episodes, after a reset of the environment."""
        for tally in self.tallies.values():
            tally.forget()

    def _decide(self, name: BehaviorName) -> int:
        """Act for one behavior; return the number of agents that requested a decision."""
        actor = self.actor_of(name)
        decisions, terminals = self._env.get_steps(name)
        if name in self.tallies:
            self.tallies[name].observe(decisions, terminals)
        action = actor.act(decisions, terminals)
        self.latest[name] = Answered(decisions, terminals, action)
        if len(decisions):
            self._env.set_actions(name, action)
        return len(decisions)
