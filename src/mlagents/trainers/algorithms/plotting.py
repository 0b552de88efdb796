"""Averages of minibatch statistics over an update."""

from collections.abc import Sequence

import torch
from torch import Tensor


def means(plots: Sequence[dict[str, Tensor]]) -> dict[str, float]:
    """Return the mean of every plotted scalar, by tag, in one transfer from the device."""
    values: dict[str, list[Tensor]] = {}
    for plotted in plots:
        for tag, value in plotted.items():
            values.setdefault(tag, []).append(value)
    if not values:
        return {}
    means_of_tags = torch.stack([torch.stack(of_tag).mean() for of_tag in values.values()])
    return dict(zip(values, means_of_tags.tolist(), strict=True))
