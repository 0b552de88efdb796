"""Encoders of vector and image observations, and the kinds of observations."""

import math
from collections.abc import Callable
from enum import Enum

import torch
from torch import Tensor, nn

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.networks.layers import Normalizer, as_floats, linear
from mlagents_envs.base_env import DimensionProperty, ObservationSpec

MIN_SIDE = {"simple": 20, "nature_cnn": 36, "resnet": 15, "match3": 5, "fully_connected": 1}
"""Smallest length of an image's shorter side, in pixels, by `vis_encode_type`."""

CONTRAST_GAIN = 4.0
"""Factor applied to the initial filters of the first layer; see `_look_at_contrast`."""


class Kind(Enum):
    """Kind of an observation, from its dimension properties."""

    VECTOR = (DimensionProperty.NONE,)
    IMAGE = (
        DimensionProperty.NONE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    )
    ENTITIES = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)


def kind_of(spec: ObservationSpec) -> Kind:
    """Return the kind of an observation.

    Raises:
        UnityTrainerException: The observation is not supported.
    """
    for kind in Kind:
        if spec.dimension_property == kind.value:
            return kind
    if not any(spec.dimension_property) and len(spec.shape) in (1, 3):
        return Kind.VECTOR if len(spec.shape) == 1 else Kind.IMAGE
    raise UnityTrainerException(
        f"observation {spec.name!r} of shape {spec.shape} with the dimension properties "
        f"{[flag.name for flag in spec.dimension_property]} is not supported. Expected a vector "
        "(NONE), an image (NONE, TRANSLATIONAL_EQUIVARIANCE, TRANSLATIONAL_EQUIVARIANCE), a vector "
        "or image whose properties are all UNSPECIFIED, or entities (VARIABLE_SIZE, NONE)."
    )


class VectorEncoder(nn.Module):
    """Returns a vector unchanged or normalized.

    Args:
        size: Length of the vector.
        normalize: Whether to normalize with running statistics.
    """

    def __init__(self, size: int, *, normalize: bool) -> None:
        super().__init__()
        self.normalizer = Normalizer(size) if normalize else None
        self.output_size = size

    def forward(self, vector: Tensor) -> Tensor:
        """Map (B, size) to (B, output_size)."""
        return vector if self.normalizer is None else self.normalizer(vector)


class ImageEncoder(nn.Module):
    """Encodes an image with convolutions and one dense layer.

    Args:
        spec: Spec of the image.
        encode_type: Value of the setting `vis_encode_type`.
        output_size: Width of the encoding.

    Raises:
        UnityTrainerException: The image is too small for the convolutions of `encode_type`.
    """

    def __init__(self, spec: ObservationSpec, *, encode_type: str, output_size: int) -> None:
        super().__init__()
        channels, height, width = spec.shape
        if min(height, width) < MIN_SIDE[encode_type]:
            fitting = [
                f"{name} ({side})" for name, side in MIN_SIDE.items() if side <= min(height, width)
            ]
            raise UnityTrainerException(
                f"observation {spec.name!r} has {height} x {width} pixels, but vis_encode_type: "
                f"{encode_type} needs at least {MIN_SIDE[encode_type]} on both sides. For this "
                f"image, choose one of {', '.join(fitting) or 'none: it is empty'}."
            )
        self.convolutions = _CONVOLUTIONS[encode_type](channels)
        self._layout = _LAYOUTS.get(encode_type, torch.contiguous_format)
        _look_at_contrast(self.convolutions)
        with torch.no_grad():
            self.n_features = self.convolutions(torch.zeros(1, *spec.shape)).numel()
        self.dense = nn.Sequential(
            linear(self.n_features, output_size, gain=math.sqrt(2)),
            nn.ReLU() if encode_type == "resnet" else nn.LeakyReLU(),
        )
        self.output_size = output_size

    def forward(self, image: Tensor) -> Tensor:
        """Map images (B, C, H, W), float in [0, 1] or uint8, to (B, output_size)."""
        image = as_floats(image).contiguous(memory_format=self._layout)
        return self.dense(self.convolutions(image).flatten(1))


def _look_at_contrast(convolutions: nn.Sequential) -> None:
    """Subtract the mean from each first-layer filter in each channel, and amplify the rest.

    Images of a task share most of their brightness. This common part would outweigh the differences
    between images, and a policy would settle on one action for all of them. Without their mean,
    patches have a deviation much smaller than 1, but initial weights assume a deviation of 1.
    """
    first = next(iter(convolutions), None)
    if isinstance(first, nn.Conv2d):
        with torch.no_grad():
            first.weight -= first.weight.mean((2, 3), keepdim=True)
            first.weight *= CONTRAST_GAIN


def _rectified(n_in: int, n_out: int, size: int, *, stride: int = 1) -> list[nn.Module]:
    """Return a convolution that preserves the deviation, and its activation (arXiv:1502.01852)."""
    layer = nn.Conv2d(n_in, n_out, size, stride)
    nn.init.normal_(layer.weight, std=math.sqrt(2 / (n_in * size**2)))
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return [layer, nn.LeakyReLU()]


def _simple(channels: int) -> nn.Sequential:
    return nn.Sequential(
        *_rectified(channels, 16, 8, stride=4),
        *_rectified(16, 32, 4, stride=2),
    )


def _nature(channels: int) -> nn.Sequential:
    """The network of doi:10.1038/nature14236."""
    return nn.Sequential(
        *_rectified(channels, 32, 8, stride=4),
        *_rectified(32, 64, 4, stride=2),
        *_rectified(64, 64, 3),
    )


def _match3(channels: int) -> nn.Sequential:
    return nn.Sequential(
        *_rectified(channels, 35, 3),
        *_rectified(35, 144, 3),
    )


def _resnet(channels: int) -> nn.Sequential:
    """The network of arXiv:1802.01561, with swish."""
    layers: list[nn.Module] = []
    for n_out in (16, 32, 32):
        layers += [nn.Conv2d(channels, n_out, 3, padding=1), nn.MaxPool2d(3, stride=2)]
        layers += [Residual(n_out), Residual(n_out)]
        channels = n_out
    return nn.Sequential(*layers, nn.SiLU())


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *[nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)],
            *[nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1)],
        )

    def forward(self, image: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        return image + self.layers(image)


_LAYOUTS = {"resnet": torch.channels_last}
"""Layouts in memory with which a processor is faster, by encoder (`benchmarks/images.py`)."""

_CONVOLUTIONS: dict[str, Callable[[int], nn.Sequential]] = {
    "simple": _simple,
    "nature_cnn": _nature,
    "resnet": _resnet,
    "match3": _match3,
    "fully_connected": lambda channels: nn.Sequential(),
}
