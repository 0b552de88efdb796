"""Observations to one encoding."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.encoders import make_encoder
from mlagents.trainers.networks.layers import Normalizer, dense_block
from mlagents.trainers.settings.behavior import NetworkSettings
from mlagents_envs.base_env import ObservationSpec


class NetworkBody(nn.Module):
    """Every observation through its encoder, side by side, then through a dense block.

    Args:
        observation_specs: In the order in which observations arrive.
        settings: Width, depth, normalization.

    Raises:
        UnityTrainerException: An observation cannot be learned from, or there is none.
    """

    def __init__(
        self, observation_specs: Sequence[ObservationSpec], settings: NetworkSettings
    ) -> None:
        super().__init__()
        if not observation_specs:
            raise UnityTrainerException(
                "the behavior has no observation; add at least one sensor to its agents."
            )
        encoders = [make_encoder(spec, normalize=settings.normalize) for spec in observation_specs]
        self.encoders = nn.ModuleList(encoders)
        self.dense = dense_block(
            sum(encoder.output_size for encoder in encoders),
            settings.hidden_units,
            settings.num_layers,
        )
        self.output_size = settings.hidden_units

    def forward(self, obs: Sequence[Tensor]) -> Tensor:
        """One (B, *shape) per observation to (B, output_size)."""
        encoded = [encoder(batch) for encoder, batch in zip(self.encoders, obs, strict=True)]
        return self.dense(encoded[0] if len(encoded) == 1 else torch.cat(encoded, dim=1))

    def update_normalization(self, obs: Sequence[Tensor]) -> None:
        """Count observations into the running statistics of every normalizer."""
        for encoder, batch in zip(self.encoders, obs, strict=True):
            if isinstance(encoder.normalizer, Normalizer):
                encoder.normalizer.update(batch)
