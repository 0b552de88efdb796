"""Plug-ins: extensions of training in other installed packages, found by entry points.

    mlagents.stats_writer   callable(RunOptions) -> list of StatsWriter, beside the built-in ones
    mlagents.trainer_type   callable() -> dict of TrainerType, by name, for `trainer_type: name`
    mlagents.callback       callable(RunOptions) -> list of callbacks, which follow the run

If a plug-in fails, its traceback is logged and the run continues without it. `docs/plugins.md`
shows how to write them.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlagents.trainers.callbacks import Callback, as_callback, find_callbacks
from mlagents.trainers.reporting.stats import StatsPropertyType, StatsSummary, StatsWriter
from mlagents.trainers.settings.hyperparameters import check_trainer_type
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod

if TYPE_CHECKING:
    from mlagents.trainers.learning.trainer_types import TrainerType

STATS_WRITER = "mlagents.stats_writer"
TRAINER_TYPE = "mlagents.trainer_type"
CALLBACK = "mlagents.callback"

logger = get_logger(__name__)

T = TypeVar("T")


def stats_writers(options: RunOptions) -> list[StatsWriter]:
    """Return the statistics writers of all plug-ins for a run."""

    def make(plugin: Callable[[RunOptions], list[StatsWriter]]) -> list[StatsWriter]:
        writers = list(plugin(options))
        for writer in writers:
            if not isinstance(writer, StatsWriter):
                raise TypeError(
                    f"expected a list of {StatsWriter.__module__}.StatsWriter, got {writer!r}"
                )
        return writers

    return [_guarded(writer) for writers in _from_each(STATS_WRITER, make) for writer in writers]


class _Guarded(StatsWriter):
    """A plug-in's writer that is disabled at its first failure, so that the run continues."""

    def __init__(self, writer: StatsWriter) -> None:
        self._writer: StatsWriter | None = writer

    def write_stats(self, category: str, values: Mapping[str, StatsSummary], step: int) -> None:
        self._try(lambda writer: writer.write_stats(category, values, step))

    def add_property(self, category: str, property_type: StatsPropertyType, value: Any) -> None:
        self._try(lambda writer: writer.add_property(category, property_type, value))

    def close(self) -> None:
        self._try(lambda writer: writer.close())
        self._writer = None

    def _try(self, use: Callable[[StatsWriter], None]) -> None:
        if self._writer is None:
            return
        try:
            use(self._writer)
        except Exception:  # a plug-in may raise any error
            logger.exception(
                "The plug-in writer %s failed. The run continues without it:",
                type(self._writer).__qualname__,
            )
            self._writer = None


class _GuardedListener(_Guarded):
    """A guarded writer with `on_add_stat`, which takes time and which most writers lack."""

    def on_add_stat(
        self,
        category: str,
        key: str,
        value: float,
        aggregation: StatsAggregationMethod = StatsAggregationMethod.AVERAGE,
    ) -> None:
        self._try(lambda writer: writer.on_add_stat(category, key, value, aggregation))


def _guarded(writer: StatsWriter) -> StatsWriter:
    is_listener = type(writer).on_add_stat is not StatsWriter.on_add_stat
    return _GuardedListener(writer) if is_listener else _Guarded(writer)


def callbacks(options: RunOptions) -> list[tuple[str, Callback]]:
    """Return the callbacks of a run from plug-ins and the key `callbacks`, with their names.

    Raises:
        TrainerConfigError: A name of the key leads to no callback.
    """

    def make(plugin: Callable[[RunOptions], Iterable[object]]) -> list[tuple[str, Callback]]:
        name = f"{plugin.__module__}:{plugin.__qualname__}"
        return [(name, as_callback(each, name)) for each in plugin(options)]

    of_plugins = [each for made in _from_each(CALLBACK, make) for each in made]
    results = [Path(options.checkpoint_settings.results_dir)]
    return [*of_plugins, *find_callbacks(options.callbacks, results=results)]


def trainer_types() -> "dict[str, TrainerType]":
    """Return the trainer types of plug-ins, by the `trainer_type` that names them."""
    found: dict[str, TrainerType] = {}
    for of_plugin in _from_each(TRAINER_TYPE, _checked_trainer_types):
        found |= of_plugin
    return found


def _checked_trainer_types(plugin: Callable[[], Any]) -> "dict[str, TrainerType]":
    # It takes seconds to import torch; a plug-in that needs it has done so already.
    from mlagents.trainers.learning.trainer_types import TrainerType

    found = plugin()
    if not isinstance(found, Mapping):
        raise TypeError(f"expected a dictionary from names to TrainerType, got {found!r}")
    for name, trainer_type in found.items():
        if not isinstance(trainer_type, TrainerType):
            raise TypeError(
                f"trainer_type {name!r}: expected a {TrainerType.__module__}.TrainerType(learner, "
                f"algorithm, settings), got {trainer_type!r}"
            )
        check_trainer_type(name, trainer_type.settings)
    return dict(found)


def _from_each(group: str, use: Callable[[Any], T]) -> list[T]:
    """Return the results of `use` for each plug-in of a group, in the order of their names."""
    made: list[T] = []
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        try:
            made.append(use(entry.load()))
        except Exception:  # a plug-in may raise any error
            logger.exception("The plug-in %s (%s) of %s failed:", entry.name, entry.value, group)
        else:
            logger.info("Plug-in of %s: %s (%s).", group, entry.name, entry.value)
    return made
