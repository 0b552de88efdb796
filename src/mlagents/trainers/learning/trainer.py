"""`Trainer`: trains one behavior of a run."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from mlagents.trainers.acting.collector import Collector, Experience, Needs
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Seat
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.learning.learner import Learner
from mlagents.trainers.learning.meter import N_RETURNS, Meter
from mlagents.trainers.learning.trainer_types import TrainerType
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import TorchSettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorSpec
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class Report(NamedTuple):
    """Progress of one learner, sent to the other learners of the behavior.

    Attributes:
        n_steps: Number of steps that its agents finished since the last report.
        n_unfinished: Number of steps in unfinished segments.
        returns: Returns of episodes that ended since the last report.
        group_returns: Returns of groups whose episodes ended since the last report.
        has_share: Whether it has collected its share of the experience for an update.
        can_learn: Whether it has enough past experience.
    """

    n_steps: int
    n_unfinished: int
    returns: list[float]
    group_returns: list[float]
    has_share: bool
    can_learn: bool


class Trainer:
    """Passes the experience of a behavior's agents to its learner, and new policies to its agents.

    The run calls `Rollout.advance`, then `advance` of every trainer, then `Rollout.answer`. Updates
    therefore run between a player's report and the answer to it.

    Args:
        trainer_type: Learner and algorithm of the behavior.
        name: Name of the behavior in the settings, without a team.
        spec: Observations and actions of the behavior.
        settings: Settings of the behavior.
        stats: Reporter of the behavior's statistics.
        device: Device to learn on.
        seed: Seed of weights, samples and minibatches.
        inference: Whether to act without learning.
        torch_settings: Options for faster learning.
        on_summary: Function called with the summary's step count when a summary is due.
        on_checkpoint: Function called when a checkpoint is due.
        n_returns: Smallest number of episode returns to remember.
        shards: This learner's rank, and communication with the other learners. If there are
            several learners, call `observe` and `learn_with` instead of `advance`.
        collect: Function that returns the experience of the trainer's agents, if they act in other
            processes. By default, they act in this process.

    Attributes:
        learner: Learner of the behavior.
        meter: Counts of steps and episodes.
        policy: Policy of the agents.
        needs: Requirements of the learner for collectors.
        seat: Policy and collector of the agents. Not set if the agents act in other processes.
        has_learned: Whether training ended before `max_steps`, for example at a reward goal.
        was_learning: Whether the behavior was still learning when `advance` was last called.
        ended_by: Setting that ended training before `max_steps`; None if it did not.
    """

    def __init__(
        self,
        trainer_type: TrainerType,
        name: str,
        spec: BehaviorSpec,
        settings: BehaviorSettings,
        *,
        stats: StatsReporter,
        device: torch.device,
        seed: int,
        inference: bool,
        torch_settings: TorchSettings,
        on_summary: Callable[[int], object],
        on_checkpoint: Callable[[], object],
        n_returns: int = N_RETURNS,
        shards: Shards = ALONE,
        collect: "Callable[[Trainer], Experience] | None" = None,
    ) -> None:
        self.name = name
        self.spec = spec
        self.settings = settings
        self.stats = stats
        self.meter = Meter(
            name,
            settings,
            stats,
            learns_in_groups=trainer_type.algorithm.learns_in_groups,
            n_returns=n_returns,
        )
        self._learner_type = trainer_type.learner
        self._make_algorithm = partial(
            trainer_type.algorithm,
            spec,
            settings,
            device=device,
            inference=inference,
            compute=PLAIN if inference else Compute.of(torch_settings, device),
            shards=shards,
        )
        self.learner = self._make_learner(seed)
        self.has_learned = False
        self.ended_by: str | None = None
        self.was_learning = False
        self._inference = inference
        self._on_summary = on_summary
        self._on_checkpoint = on_checkpoint
        snapshot = self.learner.algorithm.snapshot()
        self.policy = ActingPolicy(
            snapshot,
            spec.action_spec,
            deterministic=settings.network_settings.deterministic,
            rng=np.random.default_rng(shards.seed(seed)),
        )
        self.needs = _needs_of(self.learner, snapshot.memory_size)
        self._experience = (
            Collector(spec, **self.needs._asdict()) if collect is None else collect(self)
        )
        if isinstance(self._experience, Collector):
            self.seat = Seat(self.policy, self._experience)
        self._unreported = Report(0, 0, [], [], False, False)

    @property
    def step(self) -> int:
        """Number of steps counted so far."""
        return self.meter.step

    @property
    def mean_reward(self) -> float | None:
        """Mean return of the last hundred episodes; None before the first one has ended."""
        return self.meter.mean_reward

    @property
    def mean_group_reward(self) -> float | None:
        """Mean return of the last hundred groups; None before the first one has ended."""
        return self.meter.mean_group_reward

    @property
    def is_learning(self) -> bool:
        """Whether the behavior continues to learn."""
        return not (self._inference or self.has_learned or self.step >= self.settings.max_steps)

    @property
    def steps_until_due(self) -> int:
        """Number of steps until the next summary, checkpoint or end of training."""
        settings, step = self.settings, self.step
        due = [
            every - step % every for every in (settings.summary_freq, settings.checkpoint_interval)
        ]
        if self.is_learning:
            due.append(settings.max_steps - step)
        return min(due)

    def stop_if_learned(self) -> None:
        """End training if the mean reward of `N_RETURNS` episodes has reached `stop_at_reward`.

        With groups that earned rewards, the mean reward of as many groups is added.
        """
        goal = self.settings.stop_at_reward
        reward, of_groups = self.mean_reward, self.mean_group_reward
        if goal is None or reward is None or not self.is_learning:
            return
        if of_groups is not None:
            reward += of_groups
        counted = self.meter.recent_returns, self.meter.recent_group_returns
        is_known = all(len(returns) >= N_RETURNS for returns in counted if returns)
        if is_known and reward >= goal:
            self.end(f"stop_at_reward: {goal:g}")
            logger.info(
                f"{self.name} has reached a mean reward of {reward:.3f} at step {self.step} "
                f"(stop_at_reward: {goal:g})."
            )

    def end(self, by: str) -> None:
        """End training before `max_steps`.

        Args:
            by: Setting that ends training, with its value.
        """
        self.has_learned = True
        self.ended_by = by

    def advance(self) -> None:
        """Count the agents' steps, and learn from them when enough are collected."""
        self.take_over()
        self.meter.warn_of_vanished(self._experience.n_vanished)
        self.meter.warn_of(self._experience.problems)
        counts_agents = self._inference or not self.learner.counts_own_steps
        self.was_learning = was_learning = self.is_learning
        self._count(of_agents=counts_agents)
        if not was_learning:  # a finished behavior keeps acting together with the others
            self._experience.take()
            return
        segments = self._experience.take(at_least=self.learner.wants)
        self._count(of_agents=counts_agents)  # steps of segments that `take` has cut
        if segments is not None:
            self.meter.look_for_groups(segments)
        n_unfinished = self._experience.n_unfinished
        n_learned = self.learner.learn(segments, step=self.step, n_unfinished=n_unfinished)
        self.take_over()
        if self.learner.counts_own_steps:
            self._count_learned(n_learned)

    def observe(self) -> bool:
        """Process the new steps of this learner's agents, when there are several learners.

        Afterward, the learners exchange reports and call `learn_with`.

        Returns:
            Whether this learner has collected its share of the experience for an update.
        """
        self.take_over()
        self.meter.warn_of_vanished(self._experience.n_vanished)
        self.meter.warn_of(self._experience.problems)
        activity, so_far = self._experience.activity(), self._unreported
        self.meter.plot_episodes(activity)
        n_unfinished = self._experience.n_unfinished
        has_share = self._experience.n_held + n_unfinished >= self.learner.wants
        self._unreported = Report(
            so_far.n_steps + activity.n_steps,
            n_unfinished,
            so_far.returns + activity.episode_return.tolist(),
            so_far.group_returns + activity.group_return.tolist(),
            has_share,
            self.learner.can_learn,
        )
        return has_share

    def report(self) -> Report:
        """Return the progress since the last report."""
        report, self._unreported = self._unreported, Report(0, 0, [], [], False, False)
        return report

    def learn_with(
        self, reports: Sequence[Report], exchange: Callable[[Report], Sequence[Report]]
    ) -> None:
        """Count the steps of all learners, and learn together when all have enough experience.

        Args:
            reports: Reports of all learners.
            exchange: Function that sends a report and returns the reports of all learners.
        """
        self.was_learning = was_learning = self.is_learning
        self._count_all(reports)
        if not was_learning:  # a finished behavior keeps acting together with the others
            self._experience.take()
            return
        segments = None
        if not self.learner.wants:
            segments = self._experience.take()
        elif all(report.has_share for report in reports):
            segments = self._experience.take(at_least=1)
            self.observe()
            reports = exchange(self.report())
            self._count_all(reports)  # steps of segments that `take` has cut
        if segments is not None:
            self.meter.look_for_groups(segments)
        self.learner.others_can_learn = all(report.can_learn for report in reports)
        n_unfinished = sum(report.n_unfinished for report in reports)
        n_learned = self.learner.learn(segments, step=self.step, n_unfinished=n_unfinished)
        self.take_over()
        if self.learner.counts_own_steps:
            self._count_learned(n_learned)

    def take_over(self) -> None:
        """Act with the policy of the latest finished update, if it is new."""
        update = self.learner.finished()
        if update is not None:
            self.policy.snapshot = update.snapshot
            self.meter.plot(update.plots)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint.

        It contains neither unused experience nor the state of environments: a resumed run begins
        with new episodes.
        """
        state = self.learner.state()
        state["random_states"]["samples"] = self.policy.rng.bit_generator.state
        return {**state, "global_step": self.step}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the saved `state` of a run."""
        self.learner.load_state(state)
        self.meter.step = state["global_step"]
        self.policy.rng.bit_generator.state = state["random_states"]["samples"]
        self.take_over()

    def load_weights(self, state: dict[str, Any]) -> None:
        """Start from the networks of another run, without the rest of its state."""
        self.learner.load_weights(state)
        self.take_over()

    def restart(self, seed: int) -> None:
        """Start over at step 0 with new weights, a new optimizer and no experience.

        Args:
            seed: Seed of weights, samples and minibatches.
        """
        self.learner.close()
        self.learner = self._make_learner(seed)
        self.policy.snapshot = self.learner.algorithm.snapshot()
        self.policy.rng = np.random.default_rng(seed)
        self._experience.activity()
        self._experience.take(at_least=1)
        self.meter.step = 0

    def reseed(self) -> None:
        """Restart this learner's random numbers, so that they differ from the other learners'."""
        algorithm = self.learner.algorithm
        seed = algorithm.shards.seed(algorithm.seed, self.step)
        algorithm.reseed(seed)
        self.policy.rng = np.random.default_rng(seed)

    def _make_learner(self, seed: int) -> Learner:
        return self._learner_type(self.name, self._make_algorithm(seed=seed), self.settings)

    def _count(self, *, of_agents: bool) -> None:
        """Record new steps and episodes.

        Summaries and checkpoints that are due are written before the step count changes.
        """
        activity = self._experience.activity()
        self.meter.record(activity)
        if of_agents:
            self._count_steps(activity.n_steps)

    def _count_all(self, reports: Sequence[Report]) -> None:
        """Remember the episodes of all learners and count their steps."""
        for report in reports:
            self.meter.remember(report.returns, report.group_returns)
        if not self.learner.counts_own_steps:
            self._count_steps(sum(report.n_steps for report in reports))

    def _count_steps(self, n_steps: int) -> None:
        self._summarize_when_due(n_steps)
        due = self.meter.passes(self.settings.checkpoint_interval, n_steps)
        if due and self.is_learning and self.step:
            self._on_checkpoint()
        self.meter.step += n_steps

    def _count_learned(self, n_steps: int) -> None:
        """Count steps learned from. Checkpoints that are due contain the new step count."""
        self._summarize_when_due(n_steps)
        due = self.meter.passes(self.settings.checkpoint_interval, n_steps)
        self.meter.step += n_steps
        if due and self.is_learning:
            self._on_checkpoint()

    def _summarize_when_due(self, n_steps: int) -> None:
        every = self.settings.summary_freq
        if self.meter.passes(every, n_steps):
            self._on_summary((self.step + n_steps) // every * every)


def _needs_of(learner: Learner, memory_size: int) -> Needs:
    """Return a learner's requirements for collectors."""
    return Needs(
        time_horizon=learner.longest_segment,
        memory_size=memory_size,
        sequence_length=learner.sequence_length,
        n_expected=learner.wants,
        with_groups=learner.algorithm.learns_in_groups,
    )
