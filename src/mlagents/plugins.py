"""What other installed packages add to training, found by their entry points.

    mlagents.stats_writer   callable(RunOptions) -> list of StatsWriter, beside the built-in ones
    mlagents.trainer_type   callable() -> (name -> Trainer class, name -> settings class), for
                            `trainer_type: name`

A plug-in that fails is logged with its traceback and left out: the built-ins work without it.
`docs/plugins.md` shows how to write them.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from mlagents.trainers.settings.hyperparameters import register_trainer_type
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.stats import StatsWriter
from mlagents_envs.logging_util import get_logger

if TYPE_CHECKING:
    from mlagents.trainers.training.trainer import Trainer

STATS_WRITER = "mlagents.stats_writer"
TRAINER_TYPE = "mlagents.trainer_type"

logger = get_logger(__name__)

T = TypeVar("T")


def stats_writers(options: RunOptions) -> list[StatsWriter]:
    """Return the writers that plug-ins make for a run."""

    def make(plugin: Callable[[RunOptions], list[StatsWriter]]) -> list[StatsWriter]:
        writers = list(plugin(options))
        for writer in writers:
            if not isinstance(writer, StatsWriter):
                raise TypeError(
                    f"it must return a list of {StatsWriter.__module__}.StatsWriter, got {writer!r}"
                )
        return writers

    return [writer for writers in _from_each(STATS_WRITER, make) for writer in writers]


def trainer_types() -> "dict[str, type[Trainer]]":
    """Return the trainers of plug-ins, by the `trainer_type` that names them.

    Configurations may name them from then on: their settings are registered.
    """
    trainers: dict[str, type[Trainer]] = {}
    for of_plugin in _from_each(TRAINER_TYPE, _register):
        trainers |= of_plugin
    return trainers


def _register(plugin: Callable[[], Any]) -> "dict[str, type[Trainer]]":
    # It takes seconds to import torch; a plug-in that needs it has done so already.
    from mlagents.trainers.training.trainer import Trainer

    trainers, settings = plugin()
    if trainers.keys() != settings.keys():
        raise ValueError(
            "the trainers and their settings must have the same names, got "
            f"{list(trainers)} and {list(settings)}"
        )
    for name, trainer in trainers.items():
        if not (isinstance(trainer, type) and issubclass(trainer, Trainer)):
            raise TypeError(
                f"trainer_type {name!r}: must be a class derived from "
                f"{Trainer.__module__}.Trainer, got {trainer!r}"
            )
        register_trainer_type(name, settings[name])
    return dict(trainers)


def _from_each(group: str, use: Callable[[Any], T]) -> list[T]:
    """Return what `use` makes of each plug-in of a group, in the order of their names."""
    made: list[T] = []
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        try:
            made.append(use(entry.load()))
        except Exception:  # whatever it is, it is not ours
            logger.exception("The plug-in %s (%s) of %s fails:", entry.name, entry.value, group)
        else:
            logger.info("Plug-in of %s: %s (%s).", group, entry.name, entry.value)
    return made
