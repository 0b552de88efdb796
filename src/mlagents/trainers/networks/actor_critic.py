"""Actor, critic, and the two side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlagents.trainers.networks.actions import ActionHeads
from mlagents.trainers.networks.body import NetworkBody
from mlagents.trainers.networks.layers import Sequences
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import BehaviorSpec


class Actor(nn.Module):
    """Observations to distributions of actions.

    Args:
        spec: The behavior to act for.
        settings: Of the network.
        squashed: Whether continuous actions are, see `actions`.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, squashed: bool = False
    ) -> None:
        super().__init__()
        self.body = NetworkBody(spec.observation_specs, settings)
        self.heads = ActionHeads(self.body.output_size, spec.action_spec, squashed=squashed)


class Critic(nn.Module):
    """Observations to one value for each reward signal.

    Args:
        body: Its own, or the actor's where the two share one.
        n_signals: Number of reward signals, one column each.
    """

    def __init__(self, body: NetworkBody, n_signals: int) -> None:
        super().__init__()
        self.body = body
        self.values = nn.Linear(body.output_size, n_signals)
        nn.init.xavier_uniform_(self.values.weight)
        nn.init.zeros_(self.values.bias)

    def forward(self, obs: Sequence[Tensor], sequences: Sequences | None = None) -> Tensor:
        """One (B, *shape) per observation to (B, n_signals)."""
        return self.values(self.body(obs, sequences))


class ActorCritic(nn.Module):
    """An actor and a critic that learn together.

    An agent remembers for both: its memory is the actor's and, behind it, the critic's; where the
    two share a body it is the body's.

    Args:
        spec: The behavior to act for.
        settings: The networks' settings; both have the same.
        n_signals: Number of reward signals.
        shared: Whether the critic looks through the actor's body.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, *, n_signals: int, shared: bool
    ) -> None:
        super().__init__()
        self.actor = Actor(spec, settings)
        body = self.actor.body if shared else NetworkBody(spec.observation_specs, settings)
        self.critic = Critic(body, n_signals)
        self.shared = shared

    @property
    def remembering_critic(self) -> NetworkBody | None:
        """The critic's body, if agents carry a memory for it alone."""
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

        Arguments and the first two results as in `ActionHeads.evaluate`; `sequences` say how the
        steps follow each other, for networks with memory.
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
        """Value (N, n_signals) of each of N steps, seen with what was remembered before it."""
        body = self.critic.body
        encoding, _ = body.step(obs, memory[:, memory.shape[1] - body.memory_size :])
        return self.critic.values(encoding)

    def values_along(self, obs: Sequence[Tensor], sequences: Sequences) -> Tensor:
        """Value (N, n_signals) of each of N steps, with memory carried along each sequence."""
        body = self.critic.body
        memory = sequences.memory[:, sequences.memory.shape[1] - body.memory_size :]
        return self.critic.values(body.along(obs, sequences._replace(memory=memory)))

    @torch.no_grad()
    def update_normalization(self, obs: Sequence[Tensor]) -> None:
        """Count observations into every normalizer, each once."""
        self.actor.body.observations.update_normalization(obs)
        if not self.shared:
            self.critic.body.observations.update_normalization(obs)
