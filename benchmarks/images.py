"""Times the image encoders with two memory layouts of their input.

`python benchmarks/images.py` prints milliseconds of processor time for a forward and a backward
pass of the encoders with images of 84 x 84 x 3, on one thread: with the channels of a pixel side by
side in memory (*channels last*), and with one plane after the other. `ImageEncoder` uses the faster
layout for each encoder.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from mlagents.trainers.networks.encoders import ImageEncoder
from mlagents.trainers.networks.layers import as_floats
from mlagents_envs.base_env import DimensionProperty, ObservationSpec, ObservationType

SIDE, CHANNELS, WIDTH = 84, 3, 256
N_ROUNDS, AT_LEAST_S = 5, 0.2


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    unspecified = (DimensionProperty.UNSPECIFIED,) * 3
    spec = ObservationSpec((CHANNELS, SIDE, SIDE), unspecified, ObservationType.DEFAULT, "an image")
    print("| Encoder | Rows | channels last | planes | planes / last |")
    print("|---|--:|--:|--:|--:|")
    for encode_type in ("simple", "nature_cnn", "resnet"):
        for n_rows in (1, 8, 64, 256):
            torch.manual_seed(0)
            encoder = ImageEncoder(spec, encode_type=encode_type, output_size=WIDTH)
            images = torch.randint(0, 256, (n_rows, *spec.shape), dtype=torch.uint8)
            layouts = (torch.channels_last, torch.contiguous_format)
            last, planes = fastest([partial(encode, encoder, images, each) for each in layouts])
            print(
                f"| {encode_type} | {n_rows} | {last:.2f} | {planes:.2f} | {planes / last:.2f} |",
                flush=True,
            )


def encode(encoder: ImageEncoder, images: Tensor, layout: torch.memory_format) -> Tensor:
    """Encode images with a given layout in memory."""
    images = as_floats(images).contiguous(memory_format=layout)
    encoded: Tensor = encoder.dense(encoder.convolutions(images).flatten(1))
    return encoded


def fastest(ways: list[Callable[[], Tensor]]) -> list[float]:
    """Return the milliseconds of a forward and a backward pass, the smallest of rounds in turn."""
    best = [float("inf")] * len(ways)
    for _ in range(N_ROUNDS):
        for i, way in enumerate(ways):
            best[i] = min(best[i], milliseconds(way))
    return best


def milliseconds(way: Callable[[], Tensor]) -> float:
    """Return the mean processor time of a pass."""
    way().square().mean().backward()
    n, begin = 0, time.process_time()
    while time.process_time() - begin < AT_LEAST_S:
        way().square().mean().backward()
        n += 1
    return 1000 * (time.process_time() - begin) / n


if __name__ == "__main__":
    main()
