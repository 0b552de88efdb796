"""Network body: maps all observations to one encoding."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fast.compute import PLAIN, Compute
from mlagents.trainers.networks.attention import EntityAttention
from mlagents.trainers.networks.encoders import ImageEncoder, Kind, VectorEncoder, kind_of
from mlagents.trainers.networks.layers import GoalLayer, Memory, Sequences, dense_block, joined
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import ObservationSpec, ObservationType


class ObservationEncoder(nn.Module):
    """Encodes every observation and concatenates the results; entity lists come last.

    An entity list is always an ordinary input, even if its observation type is a goal.

    Args:
        observation_specs: Specs of the observations, in the order of the observations.
        settings: Settings of normalization and of the image encoder.

    Raises:
        UnityTrainerException: An observation is not supported, or there are no observations.
    """

    def __init__(
        self, observation_specs: Sequence[ObservationSpec], settings: NetworkSettings
    ) -> None:
        super().__init__()
        if not observation_specs:
            raise UnityTrainerException(
                "the behavior has no observations. Add at least one sensor to its agents."
            )
        is_all_empty = not any(math.prod(spec.shape) for spec in observation_specs)
        for spec in observation_specs:
            _require_learnable_size(spec, is_needed=is_all_empty)
        encoders: list[VectorEncoder | ImageEncoder] = []
        self.fixed: list[int] = []
        """Observation index of each encoder."""
        self.entities: list[int] = []
        """Observation indices of the entity lists, which share one attention layer."""
        self.goals: list[int] = []
        """Encoder indices of goal observations."""
        self.goal_size = 0
        for index, spec in enumerate(observation_specs):
            kind = kind_of(spec)
            if kind is Kind.ENTITIES:
                self.entities.append(index)
                continue
            encoder = (
                VectorEncoder(spec.shape[0], normalize=settings.normalize)
                if kind is Kind.VECTOR
                else ImageEncoder(
                    spec,
                    encode_type=settings.vis_encode_type,
                    output_size=settings.hidden_units,
                )
            )
            if spec.observation_type is ObservationType.GOAL_SIGNAL:
                self.goals.append(len(encoders))
                self.goal_size += encoder.output_size
            self.fixed.append(index)
            encoders.append(encoder)
        self.encoders = nn.ModuleList(encoders)
        self.output_size = sum(encoder.output_size for encoder in encoders)
        self.attention: EntityAttention | None = None
        if self.entities:
            n_features = [observation_specs[index].shape[1] for index in self.entities]
            self.attention = EntityAttention(n_features, self.output_size)
            self.output_size += self.attention.output_size

    def forward(self, obs: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """Map observations, (B, *shape) each, to (B, output_size) and goals (B, goal_size)."""
        encoded = [
            encoder(obs[index]) for index, encoder in zip(self.fixed, self.encoders, strict=True)
        ]
        goal = joined([encoded[index] for index in self.goals]) if self.goals else None
        if self.attention is not None:
            others = joined(encoded) if encoded else None
            encoded.append(self.attention([obs[index] for index in self.entities], others))
        return joined(encoded), goal

    def normalized(self, obs: Sequence[Tensor]) -> list[Tensor]:
        """Return the observations after normalization, before any trained layer."""
        normalized = list(obs)
        for index, encoder in zip(self.fixed, self.encoders, strict=True):
            if isinstance(encoder, VectorEncoder):
                normalized[index] = encoder(obs[index])
        return normalized

    def update_normalization(self, obs: Sequence[Tensor]) -> None:
        """Update the running statistics of every normalizer with the observations."""
        for index, encoder in zip(self.fixed, self.encoders, strict=True):
            if isinstance(encoder, VectorEncoder) and encoder.normalizer is not None:
                encoder.normalizer.update(obs[index])


def _require_learnable_size(spec: ObservationSpec, *, is_needed: bool) -> None:
    """Raise if an observation is empty, unless it is a vector and there are other observations."""
    if math.prod(spec.shape):
        return
    is_goal = spec.observation_type is ObservationType.GOAL_SIGNAL
    if is_needed or is_goal or kind_of(spec) is not Kind.VECTOR:
        raise UnityTrainerException(
            f"observation {spec.name!r} has the shape {spec.shape}, so it is empty. Remove the "
            "sensor, or give it something to observe."
        )


class NetworkBody(nn.Module):
    """Observation encoders, followed by a dense block, goal conditioning and memory.

    Args:
        observation_specs: Specs of the observations, in the order of the observations.
        settings: Settings of the network.
        n_beside: Number of additional inputs of the dense block, besides encoded observations.
        layer_norm: Whether the dense layers are normalized.
        compute: Precision of `forward`.

    Raises:
        UnityTrainerException: An observation is not supported, or there are no observations.
    """

    def __init__(
        self,
        observation_specs: Sequence[ObservationSpec],
        settings: NetworkSettings,
        *,
        n_beside: int = 0,
        layer_norm: bool = False,
        compute: Compute = PLAIN,
    ) -> None:
        super().__init__()
        self.compute = compute
        self.observations = ObservationEncoder(observation_specs, settings)
        n_in, width = self.observations.output_size + n_beside, settings.hidden_units
        n_layers = max(1, settings.num_layers)
        self.goal_layer: GoalLayer | None = None
        if self.observations.goals and settings.goal_conditioning_type == "hyper":
            n_layers -= 1
            goal_size = self.observations.goal_size
            self.goal_layer = GoalLayer(width if n_layers else n_in, width, goal_size)
        self.dense = dense_block(n_in, width, n_layers, normalize=layer_norm)
        self.memory: Memory | None = None
        self.memory_size = 0
        self.output_size = width
        if settings.memory is not None:
            self.memory_size = settings.memory.memory_size
            self.memory = Memory(width, self.memory_size)
            self.output_size = self.memory.output_size

    @property
    def is_dense(self) -> bool:
        """Whether the body consists of only vector encoders and dense layers."""
        return (
            all(isinstance(encoder, VectorEncoder) for encoder in self.observations.encoders)
            and self.observations.attention is None
            and self.goal_layer is None
            and self.memory is None
        )

    def forward(
        self,
        obs: Sequence[Tensor],
        sequences: Sequences | None = None,
        *,
        beside: Tensor | None = None,
    ) -> Tensor:
        """Map one array (B, *shape) per observation to (B, output_size).

        Args:
            obs: Observations of B steps.
            sequences: Order of the steps, for networks with memory.
            beside: (B, n_beside) additional inputs.
        """
        with self.compute.lowered(obs[0].device):
            hidden = self._encode(obs, beside)
        hidden = self.compute.raised(hidden)
        return hidden if self.memory is None else self.memory(hidden, sequences)

    def step(self, obs: Sequence[Tensor], memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return encodings (N, output_size) and next memories (N, memory size) of N agents.

        The computation always uses the precision of the weights.
        """
        hidden = self._encode(obs)
        return (hidden, memory) if self.memory is None else self.memory.step(hidden, memory)

    def along(self, obs: Sequence[Tensor], sequences: Sequences) -> Tensor:
        """Encode whole sequences like `forward`, but always in the precision of the weights."""
        hidden = self._encode(obs)
        return hidden if self.memory is None else self.memory(hidden, sequences)

    def _encode(self, obs: Sequence[Tensor], beside: Tensor | None = None) -> Tensor:
        encoding, goal = self.observations(obs)
        if beside is not None:
            encoding = torch.cat([encoding, beside], dim=1)
        hidden = self.dense(encoding)
        return hidden if self.goal_layer is None else self.goal_layer(hidden, goal)
