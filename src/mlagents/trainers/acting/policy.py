"""`ActingPolicy`: decides from observations, without storing the state of agents."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlagents.trainers.data.decision import CONTINUOUS_LIMIT, MASKED_LOGIT, Decision
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents_envs.base_env import ActionSpec, ActionTuple, FloatArray


class ActingPolicy:
    """Decides for agents with a snapshot of a policy.

    Args:
        snapshot: Policy to act with.
        spec: Actions of the behavior.
        deterministic: Whether to take the mean and the likeliest choice instead of a sample.
        rng: Random generator of the samples.

    Attributes:
        snapshot: Policy to act with. It may be replaced by a newer one of the same network.
        deterministic: Whether to take the mean and the likeliest choice instead of a sample.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        spec: ActionSpec,
        *,
        deterministic: bool,
        rng: np.random.Generator,
    ) -> None:
        self.snapshot = snapshot
        self.rng = rng
        self.spec = spec
        self.deterministic = deterministic
        self._branch_starts = np.cumsum((0, *spec.discrete_branches))

    def act(
        self,
        obs: Sequence[NDArray[Any]],
        action_mask: NDArray[np.bool_],
        memory: FloatArray | None = None,
    ) -> Decision:
        """Decide for N agents.

        Args:
            obs: One array (N, *shape) per observation.
            action_mask: (N, sum of branches) True where an action is not allowed.
            memory: (N, memory size) memory after the agents' last decisions, zeros at the beginning
                of an episode. None if all episodes are beginning.

        Raises:
            UnityTrainerException: The output of the network is NaN or infinite.
        """
        n_agents = len(obs[0])
        if memory is None:
            memory = np.zeros((n_agents, self.snapshot.memory_size), np.float32)
        mean, log_std, logits, memory = self.snapshot.forward(obs, memory)
        for output in (mean, log_std, logits):
            if output is not None and not math.isfinite(output.sum()):
                raise UnityTrainerException(_why_not_finite(obs))
        continuous = limited = np.zeros((n_agents, 0), np.float32)
        discrete = np.zeros((n_agents, 0), np.int32)
        log_probs: list[FloatArray] = []
        entropy = 0.0
        if mean is not None and log_std is not None:
            continuous, log_prob = self._sample_continuous(mean, log_std)
            if self.snapshot.squashed:
                log_prob -= _log_slope_of_tanh(continuous)
                limited = continuous = np.tanh(continuous)
            else:
                limited = np.clip(continuous, -CONTINUOUS_LIMIT, CONTINUOUS_LIMIT)
                limited /= CONTINUOUS_LIMIT
            log_probs.append(log_prob)
            # The entropy of the Gaussians, before squashing.
            entropy = float(log_std.mean()) + 0.5 * math.log(2 * math.pi * math.e)
        if logits is not None:
            discrete, log_prob, branch_entropy = self._sample_discrete(logits, action_mask)
            log_probs.append(log_prob)
            entropy += branch_entropy
        return Decision(
            ActionTuple(limited, discrete),
            continuous,
            discrete,
            log_probs[0] if len(log_probs) == 1 else np.concatenate(log_probs, axis=1),
            entropy,
            memory,
        )

    def probabilities(
        self, obs: Sequence[NDArray[Any]], action_mask: NDArray[np.bool_]
    ) -> list[FloatArray] | None:
        """Return the probabilities of the discrete choices, without sampling.

        Args:
            obs: One array (N, *shape) per observation.
            action_mask: (N, sum of branches) True where an action is not allowed.

        Returns:
            One array (N, size) per branch; None without discrete actions or for a policy with
            memory.
        """
        if self.snapshot.memory_size or not self.spec.discrete_size:
            return None
        _, _, logits, _ = self.snapshot.forward(obs, np.zeros((len(obs[0]), 0), np.float32))
        if logits is None:
            return None
        logits = np.where(action_mask, np.float32(MASKED_LOGIT), logits)
        found = []
        for branch in np.split(logits, self._branch_starts[1:-1], axis=1):
            parts = np.exp(branch - branch.max(axis=1, keepdims=True))
            found.append(parts / parts.sum(axis=1, keepdims=True))
        return found

    def _sample_continuous(
        self, mean: FloatArray, log_std: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        if self.deterministic:
            noise = np.zeros_like(mean)
        else:
            noise = self.rng.standard_normal(mean.shape, np.float32)
        log_probs = noise * noise
        log_probs *= -0.5
        log_probs -= log_std + np.float32(0.5 * math.log(2 * math.pi))
        noise *= np.exp(log_std)
        noise += mean
        return noise, log_probs

    def _sample_discrete(
        self, logits: FloatArray, action_mask: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], FloatArray, float]:
        """Sample with the Gumbel-max trick: argmax of log-probabilities plus Gumbel noise."""
        logits = np.where(action_mask, np.float32(MASKED_LOGIT), logits)
        noise = None if self.deterministic else self.rng.gumbel(size=logits.shape)
        rows = np.arange(len(logits))
        discrete = np.empty((len(logits), self.spec.discrete_size), np.int32)
        log_probs = np.empty((len(logits), self.spec.discrete_size), np.float32)
        entropy = 0.0
        for branch in range(self.spec.discrete_size):
            of_branch = slice(self._branch_starts[branch], self._branch_starts[branch + 1])
            log_p = logits[:, of_branch]
            log_p = log_p - log_p.max(axis=1, keepdims=True)
            log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
            chosen = (log_p if noise is None else log_p + noise[:, of_branch]).argmax(axis=1)
            discrete[:, branch] = chosen
            log_probs[:, branch] = log_p[rows, chosen]
            entropy -= float((np.exp(log_p) * log_p).sum(axis=1).mean())
        return discrete, log_probs, entropy


def _log_slope_of_tanh(x: FloatArray) -> FloatArray:
    """Return log(1 - tanh(x)²), exact even where tanh(x) rounds to 1."""
    slope: FloatArray = 2 * (np.float32(math.log(2)) - x - np.logaddexp(np.float32(0), -2 * x))
    return slope


def _why_not_finite(obs: Sequence[NDArray[Any]]) -> str:
    for number, batch in enumerate(obs):
        if not np.isfinite(batch).all():
            row = np.flatnonzero(~np.isfinite(batch.reshape(len(batch), -1)).all(axis=1))[0]
            return (
                f"observation {number}, counted from 0, is NaN or infinite for the agent in row "
                f"{row} of those that requested a decision. Make the environment report finite "
                "numbers."
            )
    return (
        "the policy outputs NaN or infinite numbers: learning has diverged. Lower learning_rate, "
        "or set normalize: true if observations are large."
    )
