"""Detects settings that need more memory than the machine has, before anything is allocated."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.settings.behavior import BehaviorSettings, NetworkSettings
from mlagents_envs.base_env import BehaviorSpec

CONTROL_GROUPS = Path("/sys/fs/cgroup")

FIRST_LANES = 16
"""Smallest number of lanes in a collector."""

_NUMBER = 4
"""Size of a float32 or an int32, in bytes."""
_COPIES = 4
"""Numbers stored per weight during learning: weight, gradient and the two moments of Adam."""


def memory_bytes() -> int | None:
    """Return the memory of this machine or container in bytes; None if unknown.

    Source: the Linux kernel's documentation of control groups, version 2 (`memory.max`) and 1
    (`memory.limit_in_bytes`).
    """
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # some systems lack these values
        return None
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            total = min(total, int((CONTROL_GROUPS / name).read_text()))
        except (OSError, ValueError):  # the file is missing or contains "max": no limit
            continue
    return total


def require_memory(name: str, spec: BehaviorSpec, settings: BehaviorSettings) -> None:
    """Raise if a single setting needs more memory than the machine has.

    Only a lower bound for each setting is checked, so memory may still run out later.

    Args:
        name: Name of the behavior.
        spec: Observations and actions of the behavior.
        settings: Settings of the behavior.

    Raises:
        UnityTrainerException: A setting needs too much memory. The message gives its key, the
            memory it needs, and the memory available.
    """
    available = memory_bytes()
    if available is None:
        return
    for key, value, needed in _needs(spec, settings):
        if needed > available:
            raise UnityTrainerException(
                f"behaviors.{name}.{key}: {value} needs at least {in_bytes(needed)} of memory, "
                f"but this machine has {in_bytes(available)}. Choose a smaller number."
            )


def in_bytes(number: int) -> str:
    """Return a number of bytes as text, both in a suitable unit and in bytes."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if number >= size:
            return f"{number / size:,.1f} {unit} ({number:,} bytes)"
    return f"{number:,} bytes"


def _needs(spec: BehaviorSpec, settings: BehaviorSettings) -> Iterator[tuple[str, int, int]]:
    """Yield each key, its value, and a lower bound of the bytes it needs."""
    yield from _network_needs("network_settings", settings.network_settings, spec)
    for name, signal in settings.reward_signals.items():
        if name != "extrinsic":
            path = f"reward_signals.{name}.network_settings"
            yield from _network_needs(path, signal.network_settings, spec)
    if settings.trainer_type == "bc":  # keeps no experience
        return
    size, horizon = settings.hyperparameters.buffer_size, settings.time_horizon
    step = bytes_per_step(spec, settings.network_settings)
    yield "hyperparameters.buffer_size", size, size * step
    yield "time_horizon", horizon, horizon * FIRST_LANES * step


def bytes_per_step(spec: BehaviorSpec, network: NetworkSettings) -> int:
    """Return the size in bytes of one agent's step: observations, actions, memory and rewards."""
    seen = sum(math.prod(o.shape) * o.dtype.itemsize for o in spec.observation_specs)
    actions = spec.action_spec
    n_actions = actions.continuous_size + actions.discrete_size
    n_remembered = network.memory.memory_size if network.memory else 0
    numbers = 2 * n_actions + n_remembered + 2  # with log probabilities and both rewards
    return seen + sum(actions.discrete_branches) + _NUMBER * numbers


def _network_needs(
    path: str, network: NetworkSettings, spec: BehaviorSpec
) -> Iterator[tuple[str, int, int]]:
    width, n_hidden = network.hidden_units, max(network.num_layers, 1) - 1
    n_inputs = sum(o.shape[0] for o in spec.observation_specs if len(o.shape) == 1)
    weights = width * (n_inputs + 1) + n_hidden * width * (width + 1)
    yield f"{path}.hidden_units", width, weights * _NUMBER * _COPIES
    if network.memory:
        size = network.memory.memory_size
        cells = size // 2
        weights = 4 * cells * (width + cells)  # four gates
        yield f"{path}.memory.memory_size", size, weights * _NUMBER * _COPIES
