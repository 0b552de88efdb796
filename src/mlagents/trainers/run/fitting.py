"""Checks that a checkpoint is sound and fits the networks and settings of a trainer."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.behavior import BehaviorSettings


def require_sound(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> None:
    """Raise if a checkpoint contains values that no run saves.

    Args:
        state: Content of the checkpoint.
        fresh: State of a new trainer, for the types of the parts.

    Raises:
        UnityTrainerException: A part has the wrong type or is out of range, or a tensor contains
            NaN or infinite numbers. The message names the part.
    """
    step = state.get("global_step", 0)
    if type(step) is not int or not 0 <= step < 2**63:
        raise UnityTrainerException(
            f"its global_step is {quoted(step)}; expected a whole number of steps, 0 or more"
        )
    kinds = {
        **dict.fromkeys(("random_states", "lessons", "settings"), dict),
        **dict.fromkeys(_RETURNS, list),
    }
    for name, kind in kinds.items():
        if name in state and not isinstance(state[name], kind):
            raise UnityTrainerException(
                f"its {name} has type {type(state[name]).__name__}; expected {kind.__name__}"
            )
    for name in [name for name in fresh if name in state and _is_network(fresh[name])]:
        if not _is_network(state[name]):
            raise UnityTrainerException(f"its {name} is not a dictionary of tensors")
        for key, tensor in fresh[name].items():
            theirs = state[name].get(key, tensor)
            if theirs.dtype.is_floating_point != tensor.dtype.is_floating_point:
                raise UnityTrainerException(
                    f"{name}.{key} is of type {theirs.dtype}; expected {tensor.dtype}"
                )
    for name in _RETURNS:
        returns = state.get(name, [])
        if not all(isinstance(number, float) and math.isfinite(number) for number in returns):
            raise UnityTrainerException(f"its {name} are not all finite numbers")
    for path, tensor in _tensors(state):
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UnityTrainerException(
                f"{path} contains NaN or infinite numbers: training diverged before it was saved, "
                "or the file was changed"
            )


def _tensors(state: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the dotted key and the tensor, for every tensor of a checkpoint."""
    if isinstance(state, torch.Tensor):
        yield path, state
    elif isinstance(state, Mapping | list | tuple):
        items = state.items() if isinstance(state, Mapping) else enumerate(state)
        for key, value in items:
            yield from _tensors(value, f"{path}.{key}" if path else str(key))


def fitted(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the initial state of a trainer with all fitting layers of a checkpoint.

    A layer is copied as a whole or not at all, because a partial normalizer is worse than none.

    Args:
        state: Content of the checkpoint.
        fresh: Initial state of the trainer.

    Returns:
        `fresh` with the layers that fit, and the names of the layers that do not.

    Raises:
        ValueError: No layer fits.
    """
    fitting, unlike, n_taken = dict(fresh), [], 0
    for network, tensors in fresh.items():
        if not _is_network(tensors):
            continue
        found = state[network] if _is_network(state.get(network)) else {}
        layers: dict[str, list[str]] = {}
        for name in tensors:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        for layer, names in layers.items():
            if all(name in found and found[name].shape == tensors[name].shape for name in names):
                fitting[network] = fitting[network] | {name: found[name] for name in names}
                n_taken += 1
            else:
                unlike.append(f"{network}: {layer}")
    if not n_taken:
        raise ValueError("no layer of the checkpoint has the name and size of a current layer")
    return fitting, unlike


def misfits(state: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Return descriptions of the differences between a checkpoint and a trainer's own state."""
    found = []
    for name, ours in fresh.items():
        theirs = state.get(name, {})
        if name not in state or _is_network(theirs) != _is_network(ours):
            found.append(f"it has no {name}")
        elif _is_network(ours):
            found += [f"{name} has an extra {tensor}" for tensor in theirs if tensor not in ours]
            for tensor, value in ours.items():
                if tensor not in theirs:
                    found.append(f"{name} lacks {tensor}")
                elif theirs[tensor].shape != value.shape:
                    shapes = f"{tuple(theirs[tensor].shape)}, not {tuple(value.shape)}"
                    found.append(f"{name} has {tensor} as {shapes}")
    return found


_RETURNS = "recent_returns", "recent_group_returns"
"""Parts of a checkpoint that are lists of returns."""

_WITHOUT_SHAPE = re.compile(
    r".*\.(deterministic|sequence_length|gamma|strength|learning_rate|demo_path)"
    r"|reward_signals\.extrinsic\..*"
)
"""Settings that do not affect the shape of networks."""


def shaping_settings(settings: BehaviorSettings) -> dict[str, Any]:
    """Return the settings that determine a behavior's networks, by dotted key."""
    written = settings.model_dump(
        mode="json", include={"trainer_type", "network_settings", "reward_signals"}
    )
    return {
        **{key: v for key, v in _flat(written) if not _WITHOUT_SHAPE.fullmatch(key)},
        "reward_signals": list(settings.reward_signals),
        "behavioral_cloning": settings.behavioral_cloning is not None,
        "hyperparameters.shared_critic": getattr(settings.hyperparameters, "shared_critic", False),
        **{
            f"hyperparameters.{key}": value
            for key, usual in _SHAPING_OPTIONS.items()
            if (value := getattr(settings.hyperparameters, key, usual)) != usual
        },
    }


_SHAPING_OPTIONS = {"normalize_values": False, "critic_norm": "none"}
"""Hyperparameters that change networks, with their defaults, which checkpoints omit."""


def _flat(written: Mapping[str, Any], below: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in written.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{below}{key}.")
        elif value is not None:
            yield f"{below}{key}", value


def changed_settings(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return descriptions of the `shaping_settings` that differ between a checkpoint and now.

    Differences that follow from a different `trainer_type` or different reward signals are left
    out.
    """
    keys = [key for key in {**saved, **now} if saved.get(key) != now.get(key)]
    if "trainer_type" in keys:
        keys = ["trainer_type"]
    elif "reward_signals" in keys:
        keys = [key for key in keys if not key.startswith("reward_signals.")]
    return [f"{key} was {quoted(saved.get(key))}, is {quoted(now.get(key))}" for key in keys]


def _is_network(state: object) -> bool:
    return isinstance(state, Mapping) and all(isinstance(t, torch.Tensor) for t in state.values())
