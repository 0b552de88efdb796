"""`CommandLine`: what a user typed, before it is put over the configuration file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEPRECATED_FLAGS = {
    "--load": "--resume continues a run; --load also starts one if there is none",
    "--train": "training is what happens without --inference",
    "--torch": "PyTorch is the only framework",
    "--tensorflow": "TensorFlow is not supported any more",
}
"""Old flags that are still accepted, with a message for the user."""


@dataclass(frozen=True)
class CommandLine:
    """Flags and arguments that the user gave, without defaults.

    Attributes:
        config_path: The configuration file, if one was given.
        settings: Settings of `RunOptions`, nested as in the file; only those typed.
        deterministic: Whether every behavior takes its most likely action.
        deprecated: The flags of `DEPRECATED_FLAGS` that were typed.
        stop_at_reward: Mean reward at which the training of every behavior ends, if one was typed.
    """

    config_path: Path | None
    settings: dict[str, Any]
    deterministic: bool = False
    deprecated: tuple[str, ...] = ()
    stop_at_reward: float | None = None
