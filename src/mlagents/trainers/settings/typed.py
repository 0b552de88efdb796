"""`CommandLine`: a user's flags and arguments, before they are merged with the file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

DEPRECATED_FLAGS = {
    "--load": "--resume continues a run; --load also starts one if there is none",
    "--train": "training is the default, unless --inference is given",
    "--torch": "PyTorch is the only framework",
    "--tensorflow": "TensorFlow is no longer supported",
}
"""Old flags that are still accepted, each with a message for the user."""


class Change(NamedTuple):
    """A setting given on the command line by its path, with `--set`.

    Attributes:
        path: Keys of the setting, joined by dots.
        value: Value of the setting, as read from YAML.
        text: Text of the argument, `path=value`.
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
        config_path: Configuration file, if given.
        settings: Settings of `RunOptions` that were given by flags, nested as in the file.
        deterministic: Whether every behavior takes its most likely action.
        deprecated: Flags of `DEPRECATED_FLAGS` that were given.
        stop_at_reward: Mean reward at which the training of every behavior ends, if given.
        changes: Settings given with `--set`, in order. Those that also have their own flags are in
            `settings` as well.
        view: Port of the live view, if requested; 0 for any free port.
    """

    config_path: Path | None
    settings: dict[str, Any]
    deterministic: bool = False
    deprecated: tuple[str, ...] = ()
    stop_at_reward: float | None = None
    changes: tuple[Change, ...] = ()
    view: int | None = None
