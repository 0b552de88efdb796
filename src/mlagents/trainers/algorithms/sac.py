"""Soft actor-critic in its original form, with a state-value network (arXiv:1801.01290).

Minibatches come from a replay buffer. `alpha` is the weight of entropy: one coefficient for all
continuous actions together and one for each discrete branch, tuned as in arXiv:1812.05905.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.optimizer import Optimizer, adam
from mlagents.trainers.algorithms.plotting import means
from mlagents.trainers.algorithms.sac_types import EntropyCoefficients, Losses, Minibatch
from mlagents.trainers.data.decision import CONTINUOUS_LIMIT
from mlagents.trainers.data.replay import Replay
from mlagents.trainers.data.segments import Segments
from mlagents.trainers.fast.torch_internals import move_each
from mlagents.trainers.networks.actions import squashed_sample
from mlagents.trainers.networks.actor_critic import Actor, Critic
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.networks.twin_q import TwinQ
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.hyperparameters import SACSettings
from mlagents_envs.base_env import FloatArray

MINIBATCHES_AT_ONCE = 8
"""Number of minibatches to gather and move to the device together."""


class SAC(Algorithm):
    """Learns a policy, state values and action values from experience of any policy.

    The actor's normalizers normalize vector observations for all networks. Networks with memory
    begin each sequence with the actor's memory, the only memory in the replay buffer.

    Attributes:
        losses: Function of a minibatch and its rewards (B, signals) that returns the losses.
        branch_starts: (K,) index of each branch's first choice among the choices of all branches.
        signal_updates_due: Number of pending reward signal updates, possibly fractional. It is
            saved in checkpoints.
    """

    settings: SACSettings

    def make_networks(self, settings: BehaviorSettings) -> None:
        """Create the actor, the Q networks, the value network and its target."""
        memory = settings.network_settings.memory
        self.sequence_length = memory.sequence_length if memory else 1
        self.has_memory = memory is not None
        self.action_spec = self.spec.action_spec
        n_signals = len(settings.reward_signals)
        critic_settings = settings.network_settings.model_copy(update={"normalize": False})
        compute = self.compute
        actor = Actor(self.spec, settings.network_settings, squashed=True, compute=compute)
        self._actor = actor.to(self.device)
        layer_norm = self.settings.critic_norm == "layer"
        q = TwinQ(
            self.spec, critic_settings, n_signals=n_signals, layer_norm=layer_norm, compute=compute
        )
        self.q = q.to(self.device)
        body = NetworkBody(
            self.spec.observation_specs, critic_settings, layer_norm=layer_norm, compute=compute
        )
        self.value = Critic(body, n_signals).to(self.device)
        self.target_value = copy.deepcopy(self.value).requires_grad_(False)
        self.coefficients = EntropyCoefficients(self.action_spec, self.settings.init_entcoef)
        self.coefficients.to(self.device)
        self.losses = compute.compiled(self._losses)
        self._critic_parameters = [*self.q.parameters(), *self.value.parameters()]
        self.optimizer = adam(
            [*self.actor.parameters(), *self._critic_parameters, self.coefficients.log_alpha],
            self.settings.learning_rate,
        )
        self.signal_updates_due = 0.0
        # Outputs of all branches are concatenated; a choice is an index into its branch's part.
        branches = self.action_spec.discrete_branches
        starts = np.cumsum((0, *branches))[: len(branches)]
        self.branch_starts = torch.tensor(starts, dtype=torch.int64, device=self.device)

    @cached_property
    def gamma(self) -> Tensor:
        """Discount per step of each signal, (signals,)."""
        return torch.tensor([signal.gamma for signal in self.signals], device=self.device)

    @cached_property
    def respects_end(self) -> Tensor:
        """Whether the value is zero after the task has ended an episode, (signals,)."""
        return torch.tensor([signal.respects_end for signal in self.signals], device=self.device)

    @property
    def actor(self) -> Actor:
        """The network that acts."""
        return self._actor

    def networks(self) -> dict[str, nn.Module | Optimizer]:
        """Return all networks and the optimizer, by their names in a checkpoint."""
        return {
            "Policy": self.actor,
            "Optimizer:q_network": self.q,
            "Optimizer:value_network": self.value,
            "Optimizer:target_network": self.target_value,
            "Optimizer:entropy_coefficients": self.coefficients,
            "Optimizer:adam": self.optimizer,
        }

    @torch.no_grad()
    def see(self, *parts: Segments) -> None:
        """Update the normalizers with the observations of all parts at once.

        If there are several learners, all must call this together, even without observations.
        """
        columns = [[part.obs[i] for part in parts] for i in range(len(self.spec.observation_specs))]
        obs = [
            torch.cat([torch.as_tensor(o, device=self.device) for o in column])
            if column
            else torch.zeros(0, *spec.shape, device=self.device)
            for column, spec in zip(columns, self.spec.observation_specs, strict=True)
        ]
        self.actor.body.observations.update_normalization(obs)

    def score(self, segments: Segments) -> FloatArray:
        """Return the reward of every step from every reward signal, (N, signals)."""
        # Signals expect unsquashed samples, which they divide by this limit.
        return super().score(replace(segments, continuous=segments.continuous * CONTINUOUS_LIMIT))

    def update(self, replay: Replay, *, n_updates: int, step: int) -> dict[str, float]:
        """Take gradient steps on experience; return the statistics to plot, by tag.

        Args:
            replay: Replay buffer to sample from.
            n_updates: Number of gradient steps.
            step: Step count of the behavior, for the schedule.
        """
        learning_rate = self.set_learning_rate(step)
        plotted: list[Tensor] = []
        plots: list[dict[str, Tensor]] = []
        for batch, losses in self.descents(replay, n_updates):
            plotted.append(losses)
            plots += self._update_signals(batch)
            if self.cloning is not None:
                plots.append(self.cloning.update(step=step))

        policy_mean, q1, q2, value_mean, *estimates = torch.stack(plotted).mean(0).tolist()
        return means(plots) | {
            "Losses/Policy Loss": policy_mean,
            "Losses/Value Loss": value_mean,
            "Losses/Q1 Loss": q1,
            "Losses/Q2 Loss": q2,
            "Policy/Learning Rate": learning_rate,
            **self._coefficients_now(),
            **{
                f"Policy/{signal.name.capitalize()} Value": estimate
                for signal, estimate in zip(self.signals, estimates, strict=True)
            },
        }

    def descents(self, replay: Replay, n_updates: int) -> Iterator[tuple[Minibatch, Tensor]]:
        """Take gradient steps; yield the minibatch of each, and its losses.

        The losses have shape (4 + signals,): policy, Q network 1, Q network 2, value, and then
        the mean state value of each signal.

        Args:
            replay: Replay buffer to sample from.
            n_updates: Number of gradient steps.
        """
        for batch in self._minibatches(replay, n_updates):
            yield batch, self.take_one(batch)

    def take_one(self, batch: Minibatch) -> Tensor:
        """Take one gradient step; return its losses, (4 + signals,), in the order of `descents`."""
        losses = self.differentiate(batch, self.rewards(batch))
        self.take_step(self.actor.parameters(), self._critic_parameters, n_rows=len(batch.reward))
        online: list[Tensor] = list(self.value.parameters())
        target: list[Tensor] = list(self.target_value.parameters())
        with torch.no_grad():
            move_each(target, online, self.settings.tau)
        scalars = [losses.policy.view(1), losses.q, losses.value.view(1)]
        return torch.cat([*scalars, losses.estimate]).detach()

    def differentiate(self, batch: Minibatch, rewards: Tensor) -> Losses:
        """Return the losses of one gradient step and store their gradients in `grad`."""
        losses: Losses = self.losses(batch, rewards)
        self.optimizer.zero_grad()
        (losses.policy + losses.q.sum() + losses.value + losses.entropy).backward()
        return losses

    def _losses(self, batch: Minibatch, rewards: Tensor) -> Losses:
        """Return the losses of one gradient step.

        Args:
            batch: Minibatch to learn from.
            rewards: (B, signals) rewards of the steps.
        """
        obs = self.actor.body.observations.normalized(batch.obs)
        log_alpha, weight = self.coefficients.log_alpha, self.coefficients.weight

        # Actions of the current policy, and an estimate of its entropy.
        encoding = self.actor.body(batch.obs, batch.sequences)
        actions, probabilities, entropy = self._act(encoding, batch)

        # Q is trained on the actions taken. The policy is trained on Q of its own actions, using
        # only the first network.
        encoded = self.q.encode(obs)
        q = self.q(encoded, batch.continuous, batch.sequences)
        q_taken = q_of_choices(q, batch.discrete + self.branch_starts)  # (2, B, signals)
        first, second = q.detach()
        if self.action_spec.continuous_size:
            seen = encoded.detach()
            first = self.q.one_q(0, seen, actions, batch.sequences)
            with torch.no_grad():
                second = self.q.one_q(1, seen, actions, batch.sequences)
        q_policy = expected_q(first, probabilities)  # (B, signals)
        bonus = (log_alpha.detach().exp() * weight * entropy).sum(1)  # (B,)

        # Q[s, a] -> r + gamma * V_target[s'], V[s] -> min Q[s, a~] + alpha * entropy
        with torch.no_grad():
            goes_on = ~(batch.terminated.unsqueeze(1) & self.respects_end)
            q_target = rewards + self.discount(batch) * self._next_values(batch, obs) * goes_on
            safer = torch.minimum(q_policy, expected_q(second, probabilities))
            value_target = safer + bonus.unsqueeze(1)
        values = self.value(obs, batch.sequences)  # (B, signals)
        surplus = (entropy.detach() - self.coefficients.target).mean(0)
        return Losses(
            policy=-(q_policy.mean(1) + bonus).mean(),
            q=0.5 * (q_taken - q_target).square().mean((1, 2)),
            value=0.5 * nn.functional.mse_loss(values, value_target),
            entropy=(log_alpha * weight * surplus).sum(),
            estimate=values.detach().mean(0),
        )

    def discount(self, batch: Minibatch) -> Tensor:
        """Return the discount of the next states' values, (signals,) or (B, signals)."""
        ahead = batch.n_rewards
        return self.gamma if ahead is None else self.gamma ** ahead.unsqueeze(1)

    def _act(self, encoding: Tensor, batch: Minibatch) -> tuple[Tensor, list[Tensor], Tensor]:
        """Return actions of the current policy for the steps of a minibatch.

        Returns:
            Continuous actions (B, A), probabilities (B, choices) of every branch, and entropies
            (B, parts). If there are continuous actions, the first part is a one-sample estimate of
            their joint entropy. Each other part is the entropy of a branch.
        """
        heads, actions = self.actor.heads, batch.continuous
        entropies: list[Tensor] = []
        probabilities: list[Tensor] = []
        if heads.mean is not None:
            actions, log_probs = squashed_sample(*heads.gaussian(encoding), batch.noise)
            entropies.append(-log_probs.sum(1))
        if heads.logits is not None:
            for log_p in heads.branch_log_probs(encoding, batch.action_mask):
                probabilities.append(log_p.exp())
                entropies.append(-(probabilities[-1] * log_p).sum(1))
        return actions, probabilities, torch.stack(entropies, dim=1)

    def rewards(self, batch: Minibatch) -> Tensor:
        """Return the reward of every step from every reward signal, (B, signals)."""
        return torch.stack([signal.score(batch.steps) for signal in self.signals], dim=1)

    def _update_signals(self, batch: Minibatch) -> list[dict[str, Tensor]]:
        """Update the reward signals if due; return statistics to plot."""
        s, plots = self.settings, []
        self.signal_updates_due += s.steps_per_update / s.reward_signal_steps_per_update
        while self.signal_updates_due >= 1:
            self.signal_updates_due -= 1
            plots += [signal.update(batch.steps) for signal in self.signals]
        return plots

    def _next_values(self, batch: Minibatch, obs: list[Tensor]) -> Tensor:
        """Return the target network's values of the next states, (B, signals).

        Args:
            batch: Minibatch of steps.
            obs: Normalized observations of the steps.
        """
        sequences = batch.sequences
        if sequences is not None:
            first = [o.index_select(0, batch.first) for o in obs]
            _, memory = self.target_value.body.step(first, sequences.memory)
            sequences = sequences._replace(memory=memory)
        next_obs = self.actor.body.observations.normalized(batch.next_obs)
        return self.target_value(next_obs, sequences)

    def _coefficients_now(self) -> dict[str, float]:
        alpha = self.coefficients.log_alpha.detach().exp().tolist()
        plotted: dict[str, float] = {}
        if self.action_spec.continuous_size:
            plotted["Policy/Continuous Entropy Coeff"] = alpha.pop(0)
        if alpha:
            plotted["Policy/Discrete Entropy Coeff"] = sum(alpha) / len(alpha)
        return plotted

    def _minibatches(self, replay: Replay, n: int) -> Iterator[Minibatch]:
        """Yield n minibatches of sequences, drawn with replacement."""
        for done in range(0, n, MINIBATCHES_AT_ONCE):
            yield from self._split(*self.draw(replay, min(n - done, MINIBATCHES_AT_ONCE)))

    def draw(self, replay: Replay, n: int) -> tuple[Minibatch, list[int]]:
        """Draw n minibatches of sequences; return them as one, and the number of rows of each.

        Each place in `sequences` is relative to the row's own minibatch.
        """
        longest = self.sequence_length
        n_sequences = max(1, self.shards.share(self.settings.batch_size) // longest)
        to_device = partial(torch.as_tensor, device=self.device)
        drawn = torch.randint(replay.n_sequences, (n * n_sequences,), generator=self.generator)
        replayed = replay.take(drawn.numpy())
        noise = torch.randn(replayed.continuous.shape, generator=self.generator)
        # Sequences are stored consecutively; `place` is the position in the minibatch.
        starts = np.cumsum(replayed.length) - replayed.length
        sequence = np.repeat(np.arange(len(drawn)), replayed.length)
        within = np.arange(len(sequence)) - starts[sequence]
        place = to_device(sequence % n_sequences * longest + within)
        minibatches = Minibatch(
            obs=[to_device(o) for o in replayed.obs],
            next_obs=[to_device(o) for o in replayed.next_obs],
            continuous=to_device(replayed.continuous),
            discrete=to_device(replayed.discrete),
            action_mask=to_device(replayed.action_mask),
            reward=to_device(replayed.reward),
            terminated=to_device(replayed.terminated),
            noise=to_device(noise),
            sequences=Sequences(to_device(replayed.memory), place, longest)
            if self.has_memory
            else None,
            first=to_device(starts),
            n_rewards=None if replayed.n_rewards is None else to_device(replayed.n_rewards),
        )
        n_rows = np.diff([*starts[::n_sequences], len(sequence)]).tolist()
        return minibatches, n_rows

    def _split(self, minibatches: Minibatch, n_rows: list[int]) -> Iterator[Minibatch]:
        """Yield the minibatches that `draw` returned as one."""
        steps = minibatches.split(n_rows)
        if minibatches.sequences is None:
            yield from steps
            return
        memory, place, longest = minibatches.sequences
        n_sequences = len(memory) // len(n_rows)
        parts = zip(
            *(memory.split(n_sequences), place.split(n_rows)),
            minibatches.first.split(n_sequences),
            strict=True,
        )
        for batch, (of_memory, of_place, first) in zip(steps, parts, strict=True):
            sequences = Sequences(of_memory, of_place, longest)
            yield batch._replace(sequences=sequences, first=first - first[0])


def q_of_choices(q: Tensor, choices: Tensor) -> Tensor:
    """Return Q of the actions taken: the mean over branches.

    Args:
        q: (2, B, signals, sum of branches or 1) outputs of the Q networks.
        choices: (B, K) indices of the actions' outputs; K may be 0.

    Returns:
        (2, B, signals).
    """
    if not choices.shape[1]:
        return q.squeeze(3)
    return q.gather(3, choices[None, :, None].expand(*q.shape[:3], -1)).mean(3)


def expected_q(q: Tensor, probabilities: list[Tensor]) -> Tensor:
    """Return the expected Q of a policy: the mean over branches of each branch's expectation.

    Args:
        q: (B, signals, sum of branches or 1) outputs of one Q network.
        probabilities: Action probabilities of each branch, (B, choices); may be empty.

    Returns:
        (B, signals).
    """
    if not probabilities:
        return q.squeeze(2)
    return (q * torch.cat(probabilities, dim=1).unsqueeze(1)).sum(2) / len(probabilities)
