"""`CommandLine`: what a user typed, before it is put over the configuration file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

DEPRECATED_FLAGS = {
    "--load": "--resume continues a run; --load also starts one if there is none",
    "--train": "training is what happens without --inference",
    "--torch": "PyTorch is the only framework",
    "--tensorflow": "TensorFlow is not supported any more",
}
"""Old flags that are still accepted, with a message for the user."""


class Change(NamedTuple):
    """A setting that the user typed by its path.

    Attributes:
        path: Keys of the setting, joined by dots.
        value: Its value, as a file would hold it.
        text: What was typed, `path=value`.
    """

    path: str
    value: Any
    text: str

    def __str__(self) -> str:
        """Return the flag as it was typed."""
        return f"--set {self.text}"


@dataclass(frozen=True)
class CommandLine:
    """Flags and arguments that the user gave, without defaults.

    Attributes:
        config_path: The configuration file, if one was given.
        settings: Settings of `RunOptions`, nested as in the file; only those typed.
        deterministic: Whether every behavior takes its most likely action.
        deprecated: The flags of `DEPRECATED_FLAGS` that were typed.
        stop_at_reward: Mean reward at which the training of every behavior ends, if one was typed.
        changes: Settings that were typed by their paths, in their order. Those that have a flag of
            their own are in `settings`, too.
        view: Port of the live view, if one was asked for; 0 for any free one.
    """

    config_path: Path | None
    settings: dict[str, Any]
    deterministic: bool = False
    deprecated: tuple[str, ...] = ()
    stop_at_reward: float | None = None
    changes: tuple[Change, ...] = ()
    view: int | None = None
