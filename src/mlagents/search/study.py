"""The trials of a search: which to run next and which to end early, by Optuna."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from mlagents.search.space import Space, Values
from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.search import Choices, Pruning, Range, SearchSettings

JOURNAL = "journal.log"
_NAME = "search"
_MOST_POINTS = 10_000


class Trial(NamedTuple):
    """A trial of the study.

    Attributes:
        number: Its number, from 0.
        values: Values of the settings, by path.
    """

    number: int
    values: Values


class Result(NamedTuple):
    """A trial that has ended.

    Attributes:
        trial: The trial.
        value: Measured value; None if the trial was pruned or failed.
        was_pruned: Whether it was ended early.
        curve: Values of the statistic by step, as reported for pruning.
    """

    trial: Trial
    value: float | None
    was_pruned: bool
    curve: Mapping[int, float]

    @property
    def has_counted(self) -> bool:
        """Whether the trial ran to its end or was pruned, so that it did not fail."""
        return self.was_pruned or self.value is not None


class Study:
    """Trials and their results, kept in a journal from which a later search continues.

    Args:
        settings: Settings of the search.
        folder: Folder of the journal.
        seed: Seed of the sampler.
        max_steps: Steps of a run, for pruning.

    Attributes:
        n_trials: Number of trials to run; a grid may have fewer points than was asked for.

    Raises:
        TrainerConfigError: The sampler `grid` cannot enumerate the space.
    """

    def __init__(
        self, settings: SearchSettings, folder: Path, *, seed: int, max_steps: int
    ) -> None:
        self._space: Space = settings.space
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal = str(folder / JOURNAL)
        self._study = optuna.create_study(
            study_name=_NAME,
            storage=JournalStorage(JournalFileBackend(journal, JournalFileOpenLock(journal))),
            sampler=_sampler(settings, seed),
            pruner=_pruner(settings.prune, max_steps),
            direction=settings.measure.direction,
            load_if_exists=True,
        )
        self._running: dict[int, optuna.Trial] = {}
        self.n_trials = settings.trials
        if settings.sampler == "grid":
            points = _grid(settings.space)
            self.n_trials = min(self.n_trials, len(points))
            if not self._study.trials:
                for row in np.random.default_rng(seed).permutation(len(points)):
                    self._study.enqueue_trial(points[row])
        self._ask_again_for_unfinished()

    def _ask_again_for_unfinished(self) -> None:
        """Give up the trials that ran when the search was killed, and queue their settings."""
        for trial in self._study.get_trials(states=[TrialState.RUNNING]):
            self._study.tell(trial.number, state=TrialState.FAIL)
            if trial.params:
                self._study.enqueue_trial(trial.params)

    def ask(self) -> Trial:
        """Begin the next trial."""
        asked = self._study.ask()
        self._running[asked.number] = asked
        values = {
            path: self._suggested(asked, path, dimension) for path, dimension in self._space.items()
        }
        return Trial(asked.number, values)

    def _suggested(self, trial: optuna.Trial, path: str, dimension: Range | Choices) -> Any:
        if isinstance(dimension, Choices):
            return dimension.choices[trial.suggest_categorical(path, _indices(dimension))]
        if dimension.is_whole:
            low, high = dimension.corners
            step = int(dimension.step or 1)
            return trial.suggest_int(path, low, high, step=step, log=dimension.log)
        low, high = map(float, dimension.corners)
        step_size = None if dimension.step is None else float(dimension.step)
        return trial.suggest_float(path, low, high, step=step_size, log=dimension.log)

    def is_hopeless(self, number: int, step: int, value: float) -> bool:
        """Report a value of a running trial; return whether to end it.

        Args:
            number: Number of the trial.
            step: Step of the run.
            value: Value of the measured statistic.
        """
        trial = self._running[number]
        trial.report(value, step)
        return trial.should_prune()

    def tell(self, number: int, value: float | None, *, was_pruned: bool = False) -> None:
        """End a trial with its value; one that was neither pruned nor has a value has failed."""
        trial = self._running.pop(number)
        if was_pruned:
            self._study.tell(trial, state=TrialState.PRUNED)
        elif value is None or not math.isfinite(value):
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, value)

    @property
    def results(self) -> list[Result]:
        """Results of all trials that have ended, those of earlier sessions included."""
        return [
            self._result(trial) for trial in self._study.get_trials() if trial.state.is_finished()
        ]

    def _result(self, trial: FrozenTrial) -> Result:
        values = {
            path: dimension.choices[trial.params[path]]
            if isinstance(dimension, Choices)
            else trial.params[path]
            for path, dimension in self._space.items()
            if path in trial.params
        }
        was_pruned = trial.state is TrialState.PRUNED
        value = trial.value if trial.state is TrialState.COMPLETE else None
        return Result(
            Trial(trial.number, values), value, was_pruned, dict(trial.intermediate_values)
        )

    def importances(self) -> dict[str, float]:
        """Return the share of each setting in the differences of results; empty if not known."""
        n_complete = len(self._study.get_trials(states=[TrialState.COMPLETE]))
        if n_complete < 8 or len(self._space) < 2:
            return {}
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        try:
            found = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        except (RuntimeError, ValueError):  # all results are the same, or a setting never varied
            return {}
        return dict(found)


def _indices(dimension: Choices) -> Sequence[int]:
    """Choices are told to Optuna by their indices, so that they may be anything."""
    return range(len(dimension.choices))


def _sampler(settings: SearchSettings, seed: int) -> optuna.samplers.BaseSampler:
    samplers = optuna.samplers
    match settings.sampler:
        case "tpe":
            return samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True)
        case "gp":
            return samplers.GPSampler(seed=seed)
        case "cmaes":
            return samplers.CmaEsSampler(seed=seed)
        case _:  # the points of a grid are in the queue
            return samplers.RandomSampler(seed=seed)


def _grid(space: Space) -> list[dict[str, Any]]:
    """Return every point of a grid, as Optuna knows it.

    Raises:
        TrainerConfigError: A range has no step, or there are too many points.
    """
    columns = {path: _column(path, dimension) for path, dimension in space.items()}
    n_points = math.prod(map(len, columns.values()))
    if n_points > _MOST_POINTS:
        raise TrainerConfigError(
            f"search.space: the grid has {n_points} points, more than {_MOST_POINTS}. Use larger "
            "steps, or another sampler."
        )
    return [
        dict(zip(columns, point, strict=True)) for point in itertools.product(*columns.values())
    ]


def _column(path: str, dimension: Range | Choices) -> list[Any]:
    if isinstance(dimension, Choices):
        return list(_indices(dimension))
    if dimension.step is None and not dimension.is_whole:
        raise TrainerConfigError(
            f"search.space.{path}: the sampler 'grid' needs a step or choices, got a range from "
            f"{quoted(dimension.low)} to {quoted(dimension.high)}"
        )
    low, high = dimension.corners
    step = dimension.step or 1
    return [low + i * step for i in range(round((high - low) / step) + 1)]


def _pruner(prune: Pruning, max_steps: int) -> optuna.pruners.BasePruner:
    first = max(1, int(prune.first * max_steps))
    match prune.rule:
        case "halving":
            return optuna.pruners.SuccessiveHalvingPruner(
                min_resource=first, reduction_factor=prune.factor
            )
        case "median":
            return optuna.pruners.MedianPruner(n_warmup_steps=first)
        case _:
            return optuna.pruners.NopPruner()
