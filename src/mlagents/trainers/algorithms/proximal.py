"""`Proximal`: the update shared by PPO and MA-POCA."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.losses import (
    clipped_policy_loss,
    clipped_value_loss,
    divergence,
    mean_entropy,
    normalized,
)
from mlagents.trainers.algorithms.plotting import means
from mlagents.trainers.algorithms.returns import joined_advantages
from mlagents.trainers.algorithms.reward_signals import steps_for
from mlagents.trainers.algorithms.schedules import adapted, scheduled
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.networks.actor_critic import ActorCritic
from mlagents.trainers.networks.group_critic import GroupActorCritic
from mlagents.trainers.networks.value_scale import ValueScale
from mlagents.trainers.settings.hyperparameters import OnPolicySettings
from mlagents_envs.base_env import FloatArray

POLICY_LOSS = "Losses/Policy Loss"
VALUE_LOSS = "Losses/Value Loss"


class Batch(NamedTuple):
    """Experience of one update, on the device; N rows.

    Attributes:
        obs: One array (N, *shape) per observation.
        continuous: (N, A) continuous actions.
        discrete: (N, K) int64 discrete actions.
        action_mask: (N, sum of branches) bool, True where an action is not allowed.
        old_log_probs: (N, A + K) log-probabilities under the policy that acted.
        old_values: (N, signals) outputs of the critic before the update.
        advantages: (N, 1) advantages, normalized unless each minibatch normalizes its own.
        returns: (N, signals) returns, in the units of the critic's outputs.
    """

    obs: list[Tensor]
    continuous: Tensor
    discrete: Tensor
    action_mask: Tensor
    old_log_probs: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor

    def take(self, rows: Tensor) -> "Batch":
        """Return a batch of the rows at `rows`."""
        others = [field.index_select(0, rows) for field in self[1:]]
        return Batch([batch.index_select(0, rows) for batch in self.obs], *others)

    @staticmethod
    def of(
        segments: Segments,
        obs: list[Tensor],
        *,
        values: FloatArray,
        advantages: FloatArray,
        returns: FloatArray,
    ) -> "Batch":
        """Return segments as a batch on the device of `obs`, with the estimates of the critic."""
        to_device = partial(torch.as_tensor, device=obs[0].device)
        return Batch(
            obs=obs,
            continuous=to_device(segments.continuous),
            discrete=to_device(segments.discrete).long(),
            action_mask=to_device(segments.action_mask),
            old_log_probs=to_device(segments.log_probs),
            old_values=to_device(values),
            advantages=to_device(advantages),
            returns=to_device(returns),
        )


class Terms(NamedTuple):
    """Terms of the loss of a minibatch, all scalars.

    Attributes:
        policy: Loss of the policy.
        critic: Loss of the critic.
        entropy: Mean entropy.
        plotted: Losses to plot in addition to the policy loss, by tag.
    """

    policy: Tensor
    critic: Tensor
    entropy: Tensor
    plotted: dict[str, Tensor]


class HasBatch(Protocol):
    """Experience of one update, with a batch."""

    @property
    def batch(self) -> Batch:
        """The rows of all minibatches."""


Experience = TypeVar("Experience", bound=HasBatch)
Minibatch = TypeVar("Minibatch")


class Proximal(Algorithm, Generic[Experience, Minibatch]):
    """Learns a policy and a critic from recent experience of that policy.

    A subclass creates `network`, an actor and a critic that are trained together. It provides the
    experience, its minibatches and the terms of their loss.

    Attributes:
        value_scale: Scale of the critic's outputs; None if they are in units of the rewards.
        divergences: Divergence of the policy after each pass of the last update, if measured.
    """

    settings: OnPolicySettings
    network: ActorCritic | GroupActorCritic
    value_scale: ValueScale | None
    divergences: Sequence[float] = ()

    @abstractmethod
    def prepare(
        self, segments: Segments, rewards: FloatArray
    ) -> tuple[Experience, dict[str, float]]:
        """Return the experience of an update, and statistics to plot, by tag.

        Args:
            segments: Experience of the current policy.
            rewards: (N, signals) rewards from `score`.
        """

    @abstractmethod
    def minibatches(self, experience: Experience) -> Iterator[tuple[Tensor, Minibatch]]:
        """Yield random minibatches for one pass, each as its rows (B,) and its contents."""

    @abstractmethod
    def terms(self, minibatch: Minibatch, epsilon: float) -> Terms:
        """Return the terms of the loss of a minibatch."""

    @abstractmethod
    def log_probs(self, minibatch: Minibatch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities under the current and the acting policy, both (B, A + K)."""

    def make_value_scale(self, n_signals: int) -> None:
        """Create `value_scale` if `normalize_values` is set."""
        scale = ValueScale(n_signals).to(self.device) if self.settings.normalize_values else None
        self.value_scale = scale

    def set_learning_rate(self, step: int) -> float:
        """Set and return the optimizer's learning rate. An adaptive rate stays unchanged."""
        if self.settings.learning_rate_schedule == "adaptive":
            learning_rate: float = self.optimizer.param_groups[0]["lr"]
            return learning_rate
        return super().set_learning_rate(step)

    def update(self, segments: Segments, rewards: FloatArray, *, step: int) -> dict[str, float]:
        """Learn from experience of the current policy; return the statistics to plot, by tag.

        Args:
            segments: Experience of the current policy.
            rewards: (N, signals) rewards from `score`.
            step: Step count of the behavior, for the schedules.
        """
        s = self.settings
        experience, estimates = self.prepare(segments, rewards)
        now = partial(scheduled, step=step, max_steps=self.max_steps)
        learning_rate = self.set_learning_rate(step)
        epsilon = now(s.epsilon, s.epsilon_schedule, floor=s.epsilon_floor)
        beta = now(s.beta, s.beta_schedule, floor=s.beta_floor)

        self.divergences = []
        plots: list[dict[str, Tensor]] = []
        steps = steps_for(self.signals, segments, self.device)
        for rows, losses in self.descents(experience, epsilon, beta):
            plots.append(losses)
            if steps is not None:
                of_signals = steps.take(rows)
                plots += [signal.update(of_signals) for signal in self.signals]
        if self.cloning is not None:
            plots.append(self.cloning.update(step=step))

        # Normalization comes last, so the policy acted and learned on the same observations.
        self.network.update_normalization(experience.batch.obs)
        return (
            estimates
            | means(plots)
            | {
                "Policy/Learning Rate": learning_rate,
                "Policy/Epsilon": epsilon,
                "Policy/Beta": beta,
                **({"Policy/KL Divergence": self.divergences[-1]} if self.divergences else {}),
            }
        )

    def descents(
        self, experience: Experience, epsilon: float, beta: float
    ) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Take the gradient steps of an update; yield the rows of each, and its losses by tag.

        Args:
            experience: Experience to learn from.
            epsilon: Current `epsilon` of the settings.
            beta: Current `beta` of the settings.
        """
        for _ in range(self.settings.num_epoch):
            for rows, minibatch in self.minibatches(experience):
                policy_loss, critic_loss, entropy, plotted = self.terms(minibatch, epsilon)
                loss = policy_loss + 0.5 * critic_loss - beta * entropy
                self.descend(loss, self.network.parameters(), n_rows=len(rows))
                yield rows, {POLICY_LOSS: policy_loss.detach().abs()} | plotted
            if self.has_moved_enough(experience):
                return

    def has_moved_enough(self, experience: Experience) -> bool:
        """Return whether to end the update after this pass; adapt an adaptive learning rate."""
        s = self.settings
        adapts = s.learning_rate_schedule == "adaptive"
        if s.target_kl is None and not adapts:
            return False
        moved = self.divergence(experience)
        self.divergences = [*self.divergences, moved]
        if adapts:
            group = self.optimizer.param_groups[0]
            group["lr"] = adapted(group["lr"], moved, desired=s.desired_kl)
        return s.target_kl is not None and moved > s.target_kl

    @torch.no_grad()
    def divergence(self, experience: Experience) -> float:
        """Return the mean divergence, over one pass, of the policy from the one that acted.

        With several learners, the mean includes the rows of all learners.
        """
        parts = list(self.minibatches(experience))
        each = torch.stack([divergence(*self.log_probs(part)) for _, part in parts])
        if self.shards.size == 1:
            return each.mean().item()
        n_rows = np.array([len(rows) for rows, _ in parts], np.float64)
        total, count = self.shards.sums(
            np.array([each.double().cpu().numpy() @ n_rows, n_rows.sum()])
        )
        return float(total / count)

    def with_normal_advantages(self, batch: Batch) -> Batch:
        """Return a minibatch whose advantages are normalized, if each minibatch normalizes its own.

        Mean and standard deviation include the rows of all learners.
        """
        if self.settings.normalize_advantages != "minibatch":
            return batch
        return batch._replace(advantages=normalized(batch.advantages, self.shards))

    def policy_loss(
        self, log_probs: Tensor, entropies: Tensor, batch: Batch, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of the policy and its mean entropy, both scalars.

        Args:
            log_probs: (B, A + K) log-probabilities of the components under the current policy.
            entropies: (B, A + K) entropies of the components.
            batch: Rows of the minibatch, with normalized advantages.
            epsilon: Clipping range: relative change of a probability beyond which the loss is flat.
        """
        s = self.settings
        policy_loss = clipped_policy_loss(
            log_probs, batch.old_log_probs, batch.advantages, epsilon=epsilon, joint=s.joint_ratio
        )
        n_continuous = batch.continuous.shape[1]
        return policy_loss, mean_entropy(
            entropies, n_continuous=n_continuous, joint=s.joint_entropy
        )

    def value_loss(
        self, values: Tensor, old_values: Tensor, returns: Tensor, epsilon: float
    ) -> Tensor:
        """Return the loss of values or baselines (B, signals), a scalar."""
        if self.settings.clip_values:
            return clipped_value_loss(values, old_values, returns, epsilon=epsilon)
        return nn.functional.mse_loss(values, returns)

    def joined(self, advantages: FloatArray) -> FloatArray:
        """Combine the advantages of all reward signals (N, signals) into one column (N, 1).

        The result is normalized unless each minibatch normalizes its own.
        """
        s = self.settings
        strengths = [signal.strength for signal in self.signals]
        return joined_advantages(
            advantages,
            strengths if s.normalize_each_signal else None,
            self.shards,
            normalize=s.normalize_advantages == "buffer",
        )

    def in_rewards(self, outputs: Tensor) -> FloatArray:
        """Return outputs of the critic (N, signals) in units of the rewards."""
        scale = self.value_scale
        return (outputs if scale is None else scale.returns(outputs)).cpu().numpy()

    def scaled(self, *returns: FloatArray) -> list[FloatArray]:
        """Convert returns or values (N, signals) to units of the critic's outputs.

        The first array updates these units beforehand.
        """
        if self.value_scale is None:
            return list(returns)
        each = [torch.as_tensor(of_rows, device=self.device) for of_rows in returns]
        self.value_scale.follow(each[0], self.network.critic.values)
        return [self.value_scale(of_rows).cpu().numpy() for of_rows in each]

    def estimates(self, of_signals: FloatArray, what: str) -> dict[str, float]:
        """Return the mean estimate of each reward signal, by tag, from (N, signals)."""
        return {
            f"Policy/{signal.name.capitalize()} {what} Estimate": float(of_signals[:, i].mean())
            for i, signal in enumerate(self.signals)
        }
