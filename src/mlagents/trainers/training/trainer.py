"""One behavior: experience in, better policy out."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mlagents.trainers.algorithms.optimizer import Optimizer
from mlagents.trainers.algorithms.policy import Policy
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.reward_signals import ExtrinsicReward, RewardSignal
from mlagents.trainers.data.segments import SegmentBuffer, Segments
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.actor_critic import Actor
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.rollout.collector import Collector, Lanes
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.stats import CUMULATIVE_REWARD, StatsReporter
from mlagents.trainers.training.background import in_background
from mlagents.trainers.training.export import export_onnx
from mlagents_envs.base_env import ActionTuple, BehaviorSpec, DecisionSteps, TerminalSteps
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import TimerNode, get_timer_root, hierarchical_timer

logger = get_logger(__name__)

FloatArray = NDArray[np.float32]

N_RETURNS = 100
"""Episodes that a mean reward is of."""


class Algorithm(Protocol):
    """What learns: the networks of a behavior and all that changes with them."""

    @property
    def actor(self) -> Actor:
        """The network that acts."""

    @property
    def remembering_critic(self) -> NetworkBody | None:
        """The critic's body, if agents carry a memory for it beside that of the actor."""

    @property
    def generator(self) -> torch.Generator:
        """Its source of chance."""

    def modules(self) -> Mapping[str, nn.Module | Optimizer]:
        """Everything that learns, by its name in a checkpoint."""


class OnPolicyAlgorithm(Algorithm, Protocol):
    """An algorithm that learns from the experience of its present policy alone."""

    @property
    def signals(self) -> Sequence[RewardSignal]:
        """What it learns from, in the order of the columns of `score`."""

    def score(self, segments: Segments) -> FloatArray:
        """(N, signals) reward of every step, as the signals are before they learn from it."""

    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience and its `score`; return what to plot, by tag."""


class _Request(NamedTuple):
    """Agents of one player that wait for a decision."""

    player: int
    lanes: Lanes
    decisions: DecisionSteps


class Trainer(ABC):
    """All that the controller asks of what trains a behavior; when and what it learns is left open.

    It acts for the behavior's agents, turns their steps into segments, counts them and keeps the
    statistics. A subclass says what learns (`make_algorithm`), keeps the experience it is given
    (`add_experience`) and calls `start_update` when it has enough (`learn`).

    The controller calls, in this order: `observe` for each player that reported, `advance`, then
    `decide`. So an update falls between a report and its answer.

    A behavior with `threaded: true` learns in a thread of its own while its agents go on. They act
    with a copy of the policy that is renewed, in the controller's thread, when an update is done.
    There is one update at a time; who wants to begin the next waits for it. So experience is at
    most one update older than the policy that learns from it. Everything else here, the
    statistics and checkpoints among it, belongs to the controller's thread.

    Args:
        name: The behavior's name in the settings, without a team.
        spec: What it observes and does.
        settings: Its settings.
        stats: Where its statistics go.
        device: Where to learn.
        seed: Of weights, samples and minibatches.
        inference: Only act; nothing is learned.
        on_summary: Called with the step count to file it under when a summary is due.
        on_checkpoint: Called when a checkpoint is due.
        n_returns: How many returns of episodes to remember, at least.
    """

    def __init__(
        self,
        name: str,
        spec: BehaviorSpec,
        settings: BehaviorSettings,
        *,
        stats: StatsReporter,
        device: torch.device,
        seed: int,
        inference: bool,
        on_summary: Callable[[int], None],
        on_checkpoint: Callable[[], object],
        n_returns: int = N_RETURNS,
    ) -> None:
        self.name = name
        self.spec = spec
        self.settings = settings
        self.stats = stats
        self.step = 0
        self.recent_returns: deque[float] = deque(maxlen=max(n_returns, N_RETURNS))
        """What agents themselves earned, not their groups, in the episodes that ended last."""
        self.has_learned = False
        """Whether training has ended because the mean reward reached `stop_at_reward`."""
        self._inference = inference
        self._on_summary = on_summary
        self._on_checkpoint = on_checkpoint
        self.algorithm: Algorithm = self.make_algorithm(device=device, seed=seed)
        self._rng = np.random.default_rng(seed)
        self._policy = Policy(
            self.algorithm.actor,
            spec.action_spec,
            deterministic=settings.network_settings.deterministic,
            rng=self._rng,
            critic_body=None if inference else self.algorithm.remembering_critic,
        )
        self._collector = Collector(
            spec, time_horizon=self.longest_segment, memory_size=self._policy.memory_size
        )
        self._requests: list[_Request] = []
        self._extrinsic = EpisodeRewards([ExtrinsicReward.name])
        self._has_warned_of_groups = False
        self._n_vanished_told = 0
        self._update: Future[tuple[dict[str, float], TimerNode]] | None = None
        self._is_closed = False
        for module in self.algorithm.modules().values():
            if isinstance(module, Optimizer):
                module.register_step_pre_hook(self._refuse_when_closed)

    @abstractmethod
    def make_algorithm(self, *, device: torch.device, seed: int) -> Algorithm:
        """Make what learns, once, from `spec` and `settings`."""

    @abstractmethod
    def add_experience(self, segments: Segments) -> None:
        """Keep finished segments to learn from."""

    @abstractmethod
    def learn(self) -> None:
        """Start an update if there is enough experience; called at every `advance`."""

    @property
    def longest_segment(self) -> int:
        """Steps of an agent after which they are handed to `add_experience`."""
        return self.settings.time_horizon

    @property
    def is_learning(self) -> bool:
        """Whether more steps would make a difference."""
        return not (self._inference or self.has_learned or self.step >= self.settings.max_steps)

    @property
    def mean_reward(self) -> float | None:
        """Mean return of the last hundred episodes, None before the first has ended."""
        last = list(islice(reversed(self.recent_returns), N_RETURNS))
        return sum(last) / len(last) if last else None

    def stop_if_learned(self) -> None:
        """End training if the mean reward of `N_RETURNS` episodes has reached `stop_at_reward`."""
        goal = self.settings.stop_at_reward
        if goal is None or len(self.recent_returns) < N_RETURNS or not self.is_learning:
            return
        reward = self.mean_reward
        if reward is not None and reward >= goal:
            self.has_learned = True
            logger.info(
                f"{self.name} has reached a mean reward of {reward:.3f} at step {self.step} "
                f"(stop_at_reward: {goal:g})."
            )

    @property
    def has_diverged(self) -> bool:
        """Whether some weights are NaN or infinite."""
        self.finish_update()
        networks = [m for m in self.algorithm.modules().values() if isinstance(m, nn.Module)]
        weights = [weight for network in networks for weight in network.parameters()]
        return not all(bool(weight.isfinite().all()) for weight in weights)

    def state(self) -> dict[str, Any]:
        """Everything a later run needs to go on where this one is.

        Not part of it are experience that was not learned from yet and where the environments are:
        the later run begins new episodes.
        """
        self.finish_update()
        modules = self.algorithm.modules()
        return {
            **{name: module.state_dict() for name, module in modules.items()},
            "global_step": self.step,
            "random_states": {
                "samples": self._rng.bit_generator.state,
                "minibatches": self.algorithm.generator.get_state(),
            },
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where the run that saved `state` was."""
        for name, module in self.algorithm.modules().items():
            module.load_state_dict(state[name])
        self.step = state["global_step"]
        self._rng.bit_generator.state = state["random_states"]["samples"]
        self.algorithm.generator.set_state(state["random_states"]["minibatches"])
        self._policy.refresh()

    def load_weights(self, state: dict[str, Any]) -> None:
        """Begin with the networks of another run and nothing else of it."""
        for name, module in self.algorithm.modules().items():
            if isinstance(module, nn.Module):
                module.load_state_dict(state[name])
        self._policy.refresh()

    def save_experience(self, path: Path) -> None:  # noqa: B027  # most trainers keep none
        """Write the past experience that a later run is to learn from, if there is any."""

    def load_experience(self, path: Path) -> None:  # noqa: B027  # as there is none
        """Go on with the experience of the run that saved it, if it did."""

    def export(self) -> bytes:
        """Return the policy as it is now, as ONNX."""
        self.finish_update()
        return export_onnx(self.algorithm.actor, self.spec)

    def observe(self, player: int, decisions: DecisionSteps, terminals: TerminalSteps) -> None:
        """Take in what a player reported."""
        lanes = self._collector.observe(player, decisions, terminals)
        self._requests.append(_Request(player, lanes, decisions))

    def forget(self, player: int) -> None:
        """Drop what a player has left unfinished: its episodes were broken off."""
        self._collector.forget(player)
        self._requests = [request for request in self._requests if request.player != player]

    def advance(self) -> None:
        """Take in finished segments; learn when it is time, also from those that are the last."""
        if self._update is not None and self._update.done():
            self.finish_update()
        if self.is_learning:
            self._take_segments()
            self.learn()
        else:  # who has learned enough goes on beside others that learn
            self._take_segments(keep=False)

    def decide(self) -> list[ActionTuple]:
        """Return the actions for every `observe` since the last call, in order."""
        requests, self._requests = self._requests, []
        sizes = [len(request.lanes) for request in requests]
        if not sum(sizes):
            return [self.spec.action_spec.empty_action(0) for _ in requests]
        lanes = _joined([request.lanes for request in requests])
        obs = [
            _joined(list(batches))
            for batches in zip(*(request.decisions.obs for request in requests), strict=True)
        ]
        action_mask = _joined([self._mask(request.decisions) for request in requests])
        with hierarchical_timer("Policy.act"):
            decision = self._policy.act(obs, action_mask, self._collector.memory(lanes))
        self._collector.decide(lanes, action_mask, decision)
        self.stats.add_stat("Policy/Entropy", decision.entropy)
        if len(requests) == 1:
            return [decision.action]
        ends = np.cumsum(sizes)[:-1]
        parts = np.split(decision.action.continuous, ends), np.split(decision.action.discrete, ends)
        return [ActionTuple(*rows) for rows in zip(*parts, strict=True)]

    def _mask(self, decisions: DecisionSteps) -> NDArray[np.bool_]:
        """(N, sum of branches) True where an action is not allowed."""
        if decisions.action_mask:
            return np.concatenate(decisions.action_mask, axis=1)
        return np.zeros((len(decisions), sum(self.spec.action_spec.discrete_branches)), np.bool_)

    def start_update(self, update: Callable[[], dict[str, float]]) -> None:
        """Run an update after the one before it; in its own thread if the behavior is threaded.

        Args:
            update: Changes the algorithm; returns what to plot, by tag.
        """
        self.finish_update()
        if not self.settings.threaded:
            with hierarchical_timer("update"):
                self._take_over(update())
            return

        def timed_update() -> tuple[dict[str, float], TimerNode]:
            with hierarchical_timer("update"):
                results = update()
            return results, get_timer_root()

        self._update = in_background(timed_update, name=f"learns {self.name}")

    def finish_update(self) -> None:
        """Wait for the update in progress, if there is one, and act by it from now on.

        Raises:
            Exception: What the update raised.
        """
        if self._update is None:
            return
        update, self._update = self._update, None
        with hierarchical_timer("wait_for_update"):
            results, times = update.result()
        get_timer_root().merge(times, "trainer_threads")
        self._take_over(results)

    def close(self) -> None:
        """Give up the update in progress, if there is one, at its next gradient step."""
        self._is_closed = True
        if self._update is not None:
            wait([self._update])

    def _refuse_when_closed(self, *_step: object) -> None:
        if self._is_closed:
            raise UnityTrainerException(f"the trainer of {self.name} was closed while it learned")

    def _take_over(self, results: dict[str, float]) -> None:
        self._policy.refresh()
        for key, value in results.items():
            self.stats.add_stat(key, value)

    def _take_segments(self, *, keep: bool = True) -> None:
        """Count finished segments and, unless nothing more is learned, keep them."""
        self._warn_of_vanished()
        segments = self._collector.take()
        if segments is None:
            return
        self._record_episodes(segments)
        if keep:
            self.add_experience(segments)
        self._count(segments.n_steps)

    def _warn_of_vanished(self) -> None:
        n_vanished = self._collector.n_vanished
        if n_vanished >= 2 * self._n_vanished_told + 1:
            self._n_vanished_told = n_vanished
            logger.warning(
                f"{self.name}: {n_vanished} agents vanished: they stopped reporting before their "
                "episodes ended. Their steps are counted and learned from, except the last step of "
                "each, whose reward never came. The cumulative reward leaves these episodes out. "
                "End or interrupt the episode of an agent that is removed."
            )

    def _count(self, n_steps: int) -> None:
        """Move the step count; what falls due on the way is filed as before it moved."""
        reached = self.step + n_steps
        self._summarize_until(reached)
        every = self.settings.checkpoint_interval
        if self.is_learning and self.step and reached // every > self.step // every:
            self._on_checkpoint()
        self.step = reached

    def _summarize_until(self, reached: int) -> None:
        """Summarize if that falls due on the way to a step count."""
        every = self.settings.summary_freq
        if reached // every > self.step // every:
            self._on_summary(reached // every * every)

    def _record_episodes(self, segments: Segments) -> None:
        """Add what the episodes that ended brought to the statistics."""
        if not self._has_warned_of_groups and segments.group_reward.any():
            self._has_warned_of_groups = True
            logger.warning(
                f"{self.name}: a group reward came. trainer_type {self.settings.trainer_type} adds "
                "it to what each agent earns, and learns for each agent alone. The cumulative "
                "reward counts what agents earn themselves."
            )
        if ExtrinsicReward.name in self.settings.reward_signals:
            strength = self.settings.reward_signals[ExtrinsicReward.name].strength
            rewards = strength * (segments.reward + segments.group_reward)
            for tag, totals in self._extrinsic.add(segments, rewards[:, None]).items():
                self.stats.add_stats(tag, totals)
        ended_rows = segments.ended
        if ended_rows.any():
            returns = segments.episode_return[ended_rows]
            self.recent_returns.extend(returns.tolist())
            self.stats.add_stats(CUMULATIVE_REWARD, returns, StatsAggregationMethod.HISTOGRAM)
            # Transitions from decision to decision: one less than decisions, as it always was.
            lengths = segments.episode_length[ended_rows] - 1
            self.stats.add_stats("Environment/Episode Length", lengths)


_MOST_UNFINISHED = 100_000


class EpisodeRewards:
    """Sums what signals give to the segments of an episode until it ends.

    Of very many episodes that do not end, those that were not heard of for longest are forgotten.

    Args:
        signals: Their names.
    """

    def __init__(self, signals: Sequence[str]) -> None:
        self._tags = [f"Policy/{signal.capitalize()} Reward" for signal in signals]
        self._unfinished: dict[int, FloatArray] = {}

    def add(self, segments: Segments, rewards: FloatArray) -> dict[str, FloatArray]:
        """Take in segments and their (N, signals) rewards; return totals of ended ones by tag."""
        starts = np.cumsum(segments.length) - segments.length
        of_segments = np.add.reduceat(rewards, starts, axis=0)  # (S, signals)
        totals = []
        for episode, ended, reward in zip(
            segments.episode.tolist(), segments.ended.tolist(), of_segments, strict=True
        ):
            total = self._unfinished.pop(episode, 0.0) + reward
            if ended:
                totals.append(total)
            else:
                self._unfinished[episode] = total
        while len(self._unfinished) > _MOST_UNFINISHED:
            del self._unfinished[next(iter(self._unfinished))]
        return dict(zip(self._tags, np.stack(totals, axis=1), strict=True)) if totals else {}


class LearnedRewards:
    """What the signals that learn give to an episode; what the task pays is counted elsewhere.

    Args:
        signals: All signals of the behavior.
    """

    def __init__(self, signals: Sequence[RewardSignal]) -> None:
        names = [signal.name for signal in signals]
        self._columns = [i for i, name in enumerate(names) if name != ExtrinsicReward.name]
        self._of_episodes = EpisodeRewards([names[i] for i in self._columns])

    def __bool__(self) -> bool:
        """Whether any signal learns."""
        return bool(self._columns)

    def add(self, segments: Segments, rewards: FloatArray) -> dict[str, float]:
        """Take in segments and their (N, signals) rewards; return means of ended ones by tag."""
        totals = self._of_episodes.add(segments, rewards[:, self._columns])
        return {tag: float(of_episodes.mean()) for tag, of_episodes in totals.items()}


class OnPolicyTrainer(Trainer):
    """Collects experience of the present policy, learns from it, drops it, and so on.

    What is in the buffer was decided by the policy that learns from it, but for what a threaded
    behavior did during the update before.

    Reward signals that learn score experience at the beginning of the update that they learn from
    it in: where updates have a thread of their own nobody else may look at a signal, and an older
    opinion of it would be worth less.
    """

    algorithm: OnPolicyAlgorithm

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._buffer = SegmentBuffer(self.settings.hyperparameters.buffer_size)
        self._learned_rewards = LearnedRewards(self.algorithm.signals)

    def make_algorithm(self, *, device: torch.device, seed: int) -> OnPolicyAlgorithm:
        """Make PPO."""
        return PPO(self.spec, self.settings, device=device, seed=seed, inference=self._inference)

    def add_experience(self, segments: Segments) -> None:
        """Add to the buffer."""
        self._buffer.add(segments)

    def learn(self) -> None:
        """Learn from the buffer when it is full, unfinished segments included, and empty it."""
        size = self.settings.hyperparameters.buffer_size
        if self._buffer.n_steps + self._collector.n_unfinished < size:
            return
        self._collector.cut()
        self._take_segments()
        self.start_update(partial(self._learn_from, self._buffer.take(), self.step))

    def _learn_from(self, segments: Segments, step: int) -> dict[str, float]:
        """Score experience and update; in the thread of updates if there is one."""
        rewards = self.algorithm.score(segments)
        of_episodes = self._learned_rewards.add(segments, rewards)
        return self.algorithm.update(segments, rewards, step=step) | of_episodes


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
