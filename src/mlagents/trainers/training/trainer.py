"""One behavior: experience in, better policy out."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mlagents.trainers.algorithms.policy import Policy
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.rollout.collector import Collector, Lanes
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import PPOSettings
from mlagents.trainers.stats import CUMULATIVE_REWARD, StatsReporter
from mlagents_envs.base_env import ActionTuple, BehaviorSpec, DecisionSteps, TerminalSteps
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import hierarchical_timer

FloatArray = NDArray[np.float32]


class _Request(NamedTuple):
    """Agents of one player that wait for a decision."""

    lanes: Lanes
    decisions: DecisionSteps


class OnPolicyTrainer:
    """Collects experience of the present policy, learns from it, drops it, and so on.

    The controller calls, in this order: `observe` for each player that reported, `advance`, then
    `decide`. So an update falls between a report and its answer, and everything in the buffer was
    decided by the policy that is about to learn from it.

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
    ) -> None:
        assert isinstance(settings.hyperparameters, PPOSettings)
        self.name = name
        self.spec = spec
        self.settings = settings
        self.step = 0
        self.recent_returns: deque[float] = deque(maxlen=100)
        """Returns of the episodes that ended last."""
        self._buffer_size = settings.hyperparameters.buffer_size
        self._stats = stats
        self._inference = inference
        self._on_summary = on_summary
        self._on_checkpoint = on_checkpoint
        self.algorithm = PPO(spec, settings, device=device, seed=seed)
        self._rng = np.random.default_rng(seed)
        self._policy = Policy(
            self.algorithm.network.actor,
            spec.action_spec,
            deterministic=settings.network_settings.deterministic,
            rng=self._rng,
        )
        self._collector = Collector(spec, time_horizon=settings.time_horizon)
        self._requests: list[_Request] = []
        self._buffer: list[tuple[Segments, FloatArray]] = []
        self._signal_returns: dict[int, FloatArray] = {}

    @property
    def is_learning(self) -> bool:
        """Whether more steps would make a difference."""
        return not self._inference and self.step < self.settings.max_steps

    @property
    def mean_reward(self) -> float | None:
        """Mean return of the last hundred episodes, None before the first has ended."""
        return sum(self.recent_returns) / len(self.recent_returns) if self.recent_returns else None

    def state(self) -> dict[str, Any]:
        """Everything a later run needs to go on where this one is."""
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
            if isinstance(module, torch.nn.Module):
                module.load_state_dict(state[name])
        self._policy.refresh()

    def observe(self, player: int, decisions: DecisionSteps, terminals: TerminalSteps) -> None:
        """Take in what a player reported."""
        lanes = self._collector.observe(player, decisions, terminals)
        self._requests.append(_Request(lanes, decisions))

    def advance(self) -> None:
        """Take in finished segments; learn when there is enough experience."""
        self._take_segments()
        if (
            self.is_learning
            and self._n_buffered + self._collector.n_unfinished >= self._buffer_size
        ):
            self._collector.cut()
            self._take_segments()
            self._update()

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
            decision = self._policy.act(obs, action_mask)
        self._collector.decide(lanes, action_mask, decision)
        self._stats.add_stat("Policy/Entropy", decision.entropy)
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

    @property
    def _n_buffered(self) -> int:
        return sum(segments.n_steps for segments, _ in self._buffer)

    def _take_segments(self) -> None:
        segments = self._collector.take()
        if segments is None or not (self.is_learning or self._inference):
            return
        rewards = self.algorithm.score(segments)
        self._record_episodes(segments, rewards)
        if not self._inference:
            self._buffer.append((segments, rewards))
        self._count(segments.n_steps)

    def _count(self, n_steps: int) -> None:
        """Move the step count; what falls due on the way is filed as before it moved."""
        reached = self.step + n_steps
        every = self.settings.summary_freq
        if reached // every > self.step // every:
            self._on_summary(reached // every * every)
        every = self.settings.checkpoint_interval
        if self.step and reached // every > self.step // every:
            self._on_checkpoint()
        self.step = reached

    def _record_episodes(self, segments: Segments, rewards: FloatArray) -> None:
        """Add what the episodes that ended brought to the statistics."""
        starts = np.cumsum(segments.length) - segments.length
        of_segments = np.add.reduceat(rewards, starts, axis=0)  # (S, signals)
        for episode, ended, reward in zip(
            segments.episode.tolist(), segments.ended.tolist(), of_segments, strict=True
        ):
            total = self._signal_returns.pop(episode, 0.0) + reward
            if not ended:
                self._signal_returns[episode] = total
                continue
            for signal, signal_total in zip(self.algorithm.signals, total, strict=True):
                self._stats.add_stat(f"Policy/{signal.name.capitalize()} Reward", signal_total)
        ended_rows = segments.ended
        if ended_rows.any():
            returns = segments.episode_return[ended_rows]
            self.recent_returns.extend(returns.tolist())
            self._stats.add_stats(CUMULATIVE_REWARD, returns, StatsAggregationMethod.HISTOGRAM)
            # Transitions from decision to decision: one less than decisions, as it always was.
            lengths = segments.episode_length[ended_rows] - 1
            self._stats.add_stats("Environment/Episode Length", lengths)

    def _update(self) -> None:
        parts, rewards = zip(*self._buffer, strict=True)
        self._buffer.clear()
        with hierarchical_timer("update"):
            results = self.algorithm.update(
                Segments.concatenate(parts), np.concatenate(rewards), step=self.step
            )
            self._policy.refresh()
        for key, value in results.items():
            self._stats.add_stat(key, value)


def _joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
