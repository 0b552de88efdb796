"""One encoder per kind of observation."""

from torch import Tensor, nn

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.layers import Normalizer
from mlagents_envs.base_env import DimensionProperty, ObservationSpec, ObservationType


class VectorEncoder(nn.Module):
    """A vector as it is, or normalized.

    Args:
        size: Length of the vector.
        normalize: Whether to keep running statistics and normalize by them.
    """

    def __init__(self, size: int, *, normalize: bool) -> None:
        super().__init__()
        self.normalizer = Normalizer(size) if normalize else None
        self.output_size = size

    def forward(self, vector: Tensor) -> Tensor:
        """(B, size) to (B, output_size)."""
        return vector if self.normalizer is None else self.normalizer(vector)


def make_encoder(spec: ObservationSpec, *, normalize: bool) -> VectorEncoder:
    """Choose the encoder for one observation.

    Raises:
        UnityTrainerException: No encoder fits its shape and properties.
    """
    plain = all(
        flag in (DimensionProperty.UNSPECIFIED, DimensionProperty.NONE)
        for flag in spec.dimension_property
    )
    if len(spec.shape) == 1 and plain and spec.observation_type is ObservationType.DEFAULT:
        return VectorEncoder(spec.shape[0], normalize=normalize)
    raise UnityTrainerException(
        f"observation {spec.name!r} of shape {spec.shape}, dimension properties "
        f"{[flag.name for flag in spec.dimension_property]} and type {spec.observation_type.name} "
        "cannot be learned from yet: this version trains on plain vectors only."
    )
