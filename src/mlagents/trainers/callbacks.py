"""Callbacks: a user's objects and functions that follow a run and may save or end it.

`docs/plugins.md` shows how to write them. They come from the key `callbacks` of the configuration,
from plug-ins, and from programs that call `run_training`.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlagents.playing.tally import Score
from mlagents.trainers.exception import TrainerConfigError, TrainerError, UnityTrainerException
from mlagents.trainers.reporting.stats import StatsSummary
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.factories import find_factory, is_factory_name


@dataclass(frozen=True)
class Summary:
    """Summary of one behavior's statistics.

    Attributes:
        behavior: Name of the behavior.
        step: Step count of the behavior.
        statistics: Summary of each statistic that has values, by its name in TensorBoard.
    """

    behavior: str
    step: int
    statistics: Mapping[str, StatsSummary]

    def value(self, tag: str) -> float | None:
        """Return the number of a statistic, or None if it has no values in this summary."""
        found = self.statistics.get(tag)
        return None if found is None else found.aggregated_value


class Run(ABC):
    """A run, as callbacks see and control it.

    Attributes:
        options: All settings of the run.
        folder: Folder of the run's results.
    """

    options: RunOptions
    folder: Path

    @property
    @abstractmethod
    def steps(self) -> Mapping[str, int]:
        """Step count of each behavior, by name."""

    @abstractmethod
    def save(self) -> None:
        """Save a checkpoint and the policy of every behavior. During inference, do nothing."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, Score]:
        """Evaluate all behaviors now; return the score of each, by name.

        This counts as one of the run's evaluations. If the players fail, the result is empty.

        Raises:
            UnityTrainerException: The settings contain no section `evaluation`.
        """

    @abstractmethod
    def stop(self, reason: str = "") -> None:
        """End the run cleanly as soon as all callbacks have returned.

        Args:
            reason: Reason for the log.
        """


class Callback:
    """Base class of callbacks. Override the methods that you need; by default, they do nothing.

    All methods are called in the training thread, between two steps. Training waits for them. A new
    object is created for every run.
    """

    def on_begin(self, run: Run) -> None:
        """Handle the beginning of the run, before its first step."""

    def on_summary(self, summary: Summary, run: Run) -> None:
        """Handle a summary of a behavior, after all writers of statistics."""

    def on_evaluation(self, behavior: str, score: Score, run: Run) -> None:
        """Handle the result of an evaluation of a behavior, after it was written."""

    def on_end(self, run: Run) -> None:
        """Handle the end of the run, after saving, even if it failed or was interrupted."""


OnSummary = Callable[[Summary, Run], Any]
"""A function that replaces a `Callback` with only `on_summary`."""


class _Function(Callback):
    def __init__(self, function: OnSummary) -> None:
        self._function = function

    def on_summary(self, summary: Summary, run: Run) -> None:
        self._function(summary, run)


class Callbacks:
    """Calls the callbacks of one run, in order.

    Args:
        callbacks: Pairs of a name, for messages, and a callback.
    """

    def __init__(self, callbacks: Iterable[tuple[str, Callback]] = ()) -> None:
        self._callbacks = list(callbacks)

    def begin(self, run: Run) -> None:
        """Call `on_begin` of each callback."""
        self._call("on_begin", lambda callback: callback.on_begin(run))

    def summarize(self, summary: Summary, run: Run) -> None:
        """Call `on_summary` of each callback."""
        where = f"on_summary of {summary.behavior} at step {summary.step}"
        self._call(where, lambda callback: callback.on_summary(summary, run))

    def evaluate(self, behavior: str, score: Score, run: Run) -> None:
        """Call `on_evaluation` of each callback."""
        where = f"on_evaluation of {behavior}"
        self._call(where, lambda callback: callback.on_evaluation(behavior, score, run))

    def end(self, run: Run) -> None:
        """Call `on_end` of each callback."""
        self._call("on_end", lambda callback: callback.on_end(run))

    def _call(self, where: str, use: Callable[[Callback], None]) -> None:
        for name, callback in self._callbacks:
            try:
                use(callback)
            except TrainerError as error:
                raise UnityTrainerException(
                    f"the callback {name} failed in {where}: {error}"
                ) from error
            except Exception as error:  # a mistake in the user's code, shown with its traceback
                error.add_note(f"The callback {name} failed in {where}.")
                raise


def as_callback(given: object, name: str) -> Callback:
    """Return a callback from an object, a class or a function.

    Args:
        given: A `Callback`, a subclass whose constructor needs no arguments, or an `OnSummary`
            function.
        name: Name of the callback, for the error.

    Raises:
        TrainerConfigError: `given` is not one of these.
    """
    if isinstance(given, type) and issubclass(given, Callback):
        try:
            inspect.signature(given).bind()
        except TypeError as error:
            raise TrainerConfigError(
                f"callback {name}: the constructor must not require arguments: {error}. Settings "
                "are in run.options, in the argument of on_begin."
            ) from None
        return given()
    if isinstance(given, Callback):
        return given
    expected = (
        f"expected a function of (summary, run) or a class derived from {Callback.__module__}."
        f"{Callback.__name__}"
    )
    if isinstance(given, type) or not callable(given):
        kind = "class" if isinstance(given, type) else type(given).__name__
        raise TrainerConfigError(f"callback {name}: {expected}, got the {kind} {given!r:.200}.")
    try:
        inspect.signature(given).bind(None, None)
    except (TypeError, ValueError) as error:
        raise TrainerConfigError(f"callback {name}: {expected}; {error}.") from None
    return _Function(given)


def find_callbacks(
    names: Sequence[str], *, results: Collection[Path] = ()
) -> list[tuple[str, Callback]]:
    """Return new callbacks from names `module:function` or `module:Class`.

    Args:
        names: Names, as in the key `callbacks`.
        results: Folders of results. Nothing is imported from them.

    Raises:
        TrainerConfigError: A name does not lead to a callback.
    """
    found = []
    for name in names:
        if not is_factory_name(name):
            raise TrainerConfigError(
                f"callbacks: expected module:function or module:Class, got {name!r}."
            )
        try:
            given = find_factory(name, results=results)
        except UnityEnvironmentException as error:
            raise TrainerConfigError(f"callbacks: {error}") from error
        found.append((name, as_callback(given, name)))
    return found
