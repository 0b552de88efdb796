"""Actor, critic, and a network that contains both."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.actions import ActionHeads
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec


class Actor(nn.Module):
    """Maps observations to action distributions.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of the network.
        squashed: Whether tanh squashes continuous actions into [-1, 1].
        head_gain: Factor applied to the initial weights of the output layers; None for the
            default of each kind of action.
        compute: Precision of the body.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        squashed: bool = False,
        head_gain: float | None = 1.0,
        compute: Compute = PLAIN,
    ) -> None:
        super().__init__()
        self.body = NetworkBody(spec.observation_specs, settings, compute=compute)
        self.heads = ActionHeads(
            self.body.output_size, spec.action_spec, squashed=squashed, gain=head_gain
        )


class Critic(nn.Module):
    """Maps observations to one value per reward signal.

    Args:
        body: Body of the critic, or the actor's body if they share it.
        n_signals: Number of reward signals. Each has one output column.
    """

    def __init__(self, body: NetworkBody, n_signals: int) -> None:
        super().__init__()
        self.body = body
        self.values = nn.Linear(body.output_size, n_signals)
        nn.init.xavier_uniform_(self.values.weight)
        nn.init.zeros_(self.values.bias)

    def forward(self, obs: Sequence[Tensor], sequences: Sequences | None = None) -> Tensor:
        """Map one array (B, *shape) per observation to values (B, n_signals)."""
        return self.values(self.body(obs, sequences))


class ActorCritic(nn.Module):
    """An actor and a critic that are trained together.

    The memory of an agent is the actor's memory followed by the critic's. If they share a body,
    there is only the memory of that body.

    Args:
        spec: Observations and actions of the behavior.
        settings: Settings of both networks.
        n_signals: Number of reward signals.
        shared: Whether the critic shares the actor's body.
        policy_head_gain: Factor applied to the initial weights of the actor's output layers; None
            for the default of each kind of action.
        compute: Precision of both bodies.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        *,
        n_signals: int,
        shared: bool,
        policy_head_gain: float | None = 1.0,
        compute: Compute = PLAIN,
    ) -> None:
        super().__init__()
        self.actor = Actor(spec, settings, head_gain=policy_head_gain, compute=compute)
        body = self.actor.body
        if not shared:
            body = NetworkBody(spec.observation_specs, settings, compute=compute)
        self.critic = Critic(body, n_signals)
        self.shared = shared

    @property
    def remembering_critic(self) -> NetworkBody | None:
        """The critic's body if it has its own memory, otherwise None."""
        return None if self.shared or self.critic.body.memory is None else self.critic.body

    def evaluate(
        self,
        obs: Sequence[Tensor],
        continuous: Tensor,
        discrete: Tensor,
        action_mask: Tensor,
        sequences: Sequences | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities and entropies (B, A + K) and values (B, n_signals).

        Arguments and the first two results are as in `ActionHeads.evaluate`. `sequences` is the
        order of the steps, for networks with memory.
        """
        of_actor = of_critic = sequences
        if sequences is not None and not self.shared:
            halves = sequences.memory.split(self.actor.body.memory_size, dim=1)
            of_actor, of_critic = (sequences._replace(memory=half) for half in halves)
        encoding = self.actor.body(obs, of_actor)
        log_probs, entropies = self.actor.heads.evaluate(
            encoding, continuous, discrete, action_mask
        )
        values = self.critic.values(encoding) if self.shared else self.critic(obs, of_critic)
        return log_probs, entropies, values

    def values(self, obs: Sequence[Tensor], memory: Tensor) -> Tensor:
        """Return the values of N steps (N, n_signals), given the memory before each step."""
        body = self.critic.body
        encoding, _ = body.step(obs, memory[:, memory.shape[1] - body.memory_size :])
        return self.critic.values(encoding)

    def values_along(self, obs: Sequence[Tensor], sequences: Sequences) -> Tensor:
        """Return the values of N steps (N, n_signals), with memory carried along each sequence."""
        body = self.critic.body
        memory = sequences.memory[:, sequences.memory.shape[1] - body.memory_size :]
        return self.critic.values(body.along(obs, sequences._replace(memory=memory)))

    @torch.no_grad()
    def update_normalization(self, obs: Sequence[Tensor]) -> None:
        """Update every normalizer once with the observations."""
        self.actor.body.observations.update_normalization(obs)
        if not self.shared:
            self.critic.body.observations.update_normalization(obs)
