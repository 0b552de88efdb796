"""The search itself: runs trials in processes, ends bad ones early, and judges the winner."""

import shutil
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from mlagents.search.measure import Curve, measured_behavior, score
from mlagents.search.process import Job, Point, Pool
from mlagents.search.space import Values, check_space, with_values
from mlagents.search.study import JOURNAL, Result, Study, Trial
from mlagents.trainers.exception import TrainerConfigError, UnityTrainerException
from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.load import validated
from mlagents.trainers.settings.reading import Written
from mlagents.trainers.settings.run_options import EnvironmentSettings, RunOptions
from mlagents.trainers.settings.search import SearchSettings
from mlagents.trainers.settings.typed import CommandLine
from mlagents_envs.atomic_file import write_atomically
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

BEST = "best.yaml"
LINEAGE = "population.json"
SEEDS_APART = 1000
"""Distance between the seeds of two runs with the same settings: players use those in between."""


class Plan(NamedTuple):
    """What is searched, as typed and written.

    Attributes:
        written: Content of the file without the key `search`.
        settings: Settings of the search.
        command_line: Flags that hold for every run.
        options: Settings of a run with the values of the file itself.
        folder: Folder of the search.
        jobs: Number of runs at a time.
    """

    written: Written
    settings: SearchSettings
    command_line: CommandLine
    options: RunOptions
    folder: Path
    jobs: int

    @property
    def seed(self) -> int:
        """Seed of the sampler and of each trial's first run."""
        return max(self.options.env_settings.seed, 0)

    def max_steps(self, options: RunOptions) -> int:
        """Return the steps of a run, those of the measured behavior."""
        name = measured_behavior(self.settings.measure, options)
        behavior = options.default_settings if name is None else options.behavior_settings(name)
        if behavior is None:
            raise TrainerConfigError("the file configures no behavior. Add one below `behaviors:`.")
        return behavior.max_steps

    def run_options(
        self, values: Values, name: str, *, seed: int, resume: bool = False
    ) -> RunOptions:
        """Return the settings of one run.

        Args:
            values: Values of the settings that are searched.
            name: Name of the run's folder within that of the search.
            seed: Seed of the run.
            resume: Whether the run continues one of the same name.

        Raises:
            TrainerConfigError: The settings are invalid.
        """
        options = validated(with_values(self.written, values), self.command_line)
        results, study = self.folder.parent, self.folder.name
        checkpoints = options.checkpoint_settings.model_copy(
            update={
                "results_dir": str(results),
                "run_id": f"{study}/{name}",
                "force": not resume,
                "resume": resume,
                "inference": False,
            }
        )
        environment = options.env_settings
        if "base_port" in environment.model_fields_set:  # the runs cannot share it
            fields = environment.model_fields_set - {"base_port"}
            environment = EnvironmentSettings(**{k: getattr(environment, k) for k in fields})
        torch = options.torch_settings
        if torch.threads is None:  # the runs share the processors
            torch = torch.model_copy(update={"threads": 1})
        return options.model_copy(
            update={
                "checkpoint_settings": checkpoints,
                "env_settings": environment,
                "torch_settings": torch,
                "search": None,
            }
        ).with_seed(seed)

    def job(self, options: RunOptions, name: str, *, until: int | None = None) -> Job:
        """Return the job of one run."""
        behavior = measured_behavior(self.settings.measure, options)
        log = self.folder / "logs" / f"{name}.txt"
        return Job(options, behavior, self.settings.measure, log, until)

    def score(self, values: Values, curve: Curve) -> float | None:
        """Return the value of a finished run with these settings; None if it has none."""
        options = validated(with_values(self.written, values), self.command_line)
        return score(curve, self.settings.measure, max_steps=self.max_steps(options))

    def is_better(self, one: float | None, other: float | None) -> bool:
        """Return whether one value of a run is better than another; None is worse than any."""
        if one is None or other is None:
            return one is not None
        return one > other if self.settings.measure.direction == "maximize" else one < other

    def in_words(self, value: float | None) -> str:
        """Return a value as users know it: steps without a sign."""
        if value is None:
            return "no value"
        if self.settings.measure.steps_to is not None:
            return _steps_in_words(abs(value), self.max_steps(self.options))
        return f"{value:.4g}"


def make_plan(
    written: Written, command_line: CommandLine, folder: Path, *, jobs: int, trials: int | None
) -> Plan:
    """Read and check what is searched, before anything runs.

    Args:
        written: Content of the configuration file; its key `search` is removed.
        command_line: Flags that hold for every run.
        folder: Folder of the search.
        jobs: Number of runs at a time.
        trials: Number of trials, which overrides that of the file.

    Raises:
        TrainerConfigError: The file has no key `search`, a setting is invalid, or would be in some
            corner of the space.
    """
    if "search" not in written:
        raise TrainerConfigError(
            f"{command_line.config_path}: has no key `search`. Add one with the `space` to search, "
            "as docs/tuning.md shows."
        )
    options = validated(written, command_line)
    command_line = replace(command_line, changes=())  # they are written now, below the space
    del written["search"]
    assert options.search is not None
    settings = options.search
    if trials is not None:
        settings = settings.model_copy(update={"trials": trials})
    if options.env_settings.env_path is None and not options.is_offline:
        raise TrainerConfigError(
            "a search needs --env: it starts an environment for every run, but the Unity Editor "
            "must be started by hand."
        )
    check_space(written, settings.space, command_line)
    plan = Plan(written, settings, command_line, options, folder, jobs)
    plan.max_steps(options)
    return plan


def _steps_in_words(steps: float, max_steps: int) -> str:
    """Return the value of a run with `steps_to`, which is above `max_steps` if it failed."""
    if steps <= max_steps:
        return f"{steps:,.0f} steps"
    missing = (steps - max_steps) / max_steps
    return f"not reached, {missing:.0%} of the way is missing"


class _Run(NamedTuple):
    """A run of a trial: its first one, or one with another seed."""

    trial: Trial
    seed_number: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return (
            f"{self.trial.number}-{self.seed_number}"
            if self.seed_number
            else str(self.trial.number)
        )


class Search:
    """Runs trials, several at a time, until all have ended.

    Args:
        plan: What is searched.
        resume: Whether to continue an earlier search in the folder.

    Raises:
        TrainerConfigError: The folder holds an earlier search that is not to be continued.
    """

    def __init__(self, plan: Plan, *, resume: bool) -> None:
        self._plan = plan
        prepare_folder(plan.folder, resume=resume)
        max_steps = plan.max_steps(plan.options)
        self._study = Study(plan.settings, plan.folder, seed=plan.seed, max_steps=max_steps)
        self._waiting: deque[_Run] = deque()
        self._curves: dict[str, Curve] = {}
        self._values: dict[int, list[float]] = {}
        self._pruned: set[int] = set()
        self._n_begun = sum(result.has_counted for result in self._study.results)

    @property
    def results(self) -> list[Result]:
        """Results of all trials that have ended."""
        return self._study.results

    @property
    def best(self) -> Result | None:
        """Best trial so far; None if none has a value."""
        best: Result | None = None
        for result in self.results:
            if result.value is not None and (
                best is None or self._plan.is_better(result.value, best.value)
            ):
                best = result
        return best

    def importances(self) -> dict[str, float]:
        """Return the share of each setting in the differences of results; empty if not known."""
        return self._study.importances()

    def run(self) -> None:
        """Run all trials.

        Raises:
            UnityTrainerException: Each of the first trials failed.
        """
        with Pool[_Run](self._plan.jobs) as pool:
            while True:
                while not pool.is_full and (run := self._next_run()):
                    self._start(pool, run)
                if pool.is_empty:
                    return
                for run, event in pool.events():
                    if isinstance(event, Point):
                        self._report(pool, run, event)
                    else:
                        self._finish(run, event.error)

    def confirm(self, best: Result) -> list[float]:
        """Return the values of the best settings in runs with seeds that no trial had."""
        plan = self._plan
        waiting = deque(range(plan.settings.confirm))
        curves: dict[int, Curve] = {number: [] for number in waiting}
        values: list[float] = []
        with Pool[int](plan.jobs) as pool:
            while waiting or not pool.is_empty:
                while waiting and not pool.is_full:
                    number = waiting.popleft()
                    seed = plan.seed + (plan.settings.seeds + number) * SEEDS_APART
                    options = plan.run_options(best.trial.values, f"best-{number}", seed=seed)
                    pool.start(number, plan.job(options, f"best-{number}"))
                for number, event in pool.events():
                    if isinstance(event, Point):
                        curves[number].append(event)
                        continue
                    value = plan.score(best.trial.values, curves[number])
                    if event.error is None and value is not None:
                        values.append(value)
                    else:
                        logger.warning("A run of the best settings has no value: %s", event.error)
        return values

    def _next_run(self) -> _Run | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._n_begun < self._study.n_trials:
            self._n_begun += 1
            return _Run(self._study.ask(), 0)
        return None

    def _start(self, pool: Pool[_Run], run: _Run) -> None:
        seed = self._plan.seed + run.seed_number * SEEDS_APART
        try:
            options = self._plan.run_options(run.trial.values, run.name, seed=seed)
        except TrainerConfigError as error:
            self._fail(run, str(error))
            return
        self._curves[run.name] = []
        pool.start(run, self._plan.job(options, run.name))

    def _report(self, pool: Pool[_Run], run: _Run, point: Point) -> None:
        self._curves[run.name].append(point)
        number = run.trial.number
        if run.seed_number or number in self._pruned:
            return
        if self._study.is_hopeless(number, *point):
            self._pruned.add(number)
            pool.stop(run)

    def _finish(self, run: _Run, error: str | None) -> None:
        number = run.trial.number
        curve = self._curves.pop(run.name)
        if error is not None:
            self._fail(run, error)
            return
        if number in self._pruned:
            self._study.tell(number, None, was_pruned=True)
            self._log(run.trial, f"ended early after {curve[-1][0]:,} steps")
            return
        value = self._plan.score(run.trial.values, curve)
        values = self._values.setdefault(number, [])
        if value is not None:
            values.append(value)
            if run.seed_number + 1 < self._plan.settings.seeds and self._deserves_more(values):
                self._waiting.append(_Run(run.trial, run.seed_number + 1))
                return
        del self._values[number]
        mean = float(np.mean(values)) if values else None
        self._study.tell(number, mean)
        if mean is None:
            self._log(run.trial, "no value, because no episode ended in its last part")
        else:
            of_seeds = f", mean of {len(values)} seeds" if len(values) > 1 else ""
            self._log(run.trial, self._plan.in_words(mean) + of_seeds)

    def _fail(self, run: _Run, error: str) -> None:
        number = run.trial.number
        logs = self._plan.folder / "logs"
        logger.warning("Trial %d failed: %s Its log: %s", number, error, logs / f"{run.name}.txt")
        self._values.pop(number, None)
        self._study.tell(number, None)
        n_failed = len(self.results)
        if n_failed >= 3 and not any(result.has_counted for result in self.results):
            raise UnityTrainerException(
                f"the first {n_failed} trials failed, so the search was ended. Train once with "
                f"mlagents-learn to find the cause, or read the logs in {logs}."
            )

    def _deserves_more(self, values: list[float]) -> bool:
        """Return whether a trial belongs to the best third of those that have ended."""
        mean = float(np.mean(values))
        others = [result.value for result in self.results if result.value is not None]
        n_better = sum(self._plan.is_better(other, mean) for other in others)
        return n_better <= len(others) // 3

    def _log(self, trial: Trial, says: str) -> None:
        best = self.best
        of_best = ""
        if best is not None:
            of_best = f" Best: {self._plan.in_words(best.value)}, trial {best.trial.number}."
        settings = values_in_words(trial.values)
        logger.info(
            f"Trial {trial.number} of {self._study.n_trials}: {says} ({settings}).{of_best}"
        )


def values_in_words(values: Values) -> str:
    """Return the values of settings in a line, by the last part of their paths."""
    return ", ".join(
        f"{path.rpartition('.')[2]} {f'{value:.4g}' if isinstance(value, float) else quoted(value)}"
        for path, value in values.items()
    )


def prepare_folder(folder: Path, *, resume: bool, holds: str = JOURNAL) -> None:
    """Make the folder of a search.

    Args:
        folder: The folder.
        resume: Whether it must hold an earlier search.
        holds: File by which an earlier search is known.

    Raises:
        TrainerConfigError: It holds an earlier search or a run.
    """
    if not resume and folder.exists() and any(folder.iterdir()):
        raise TrainerConfigError(
            f"{folder} already holds results. Continue that search with --resume, replace it with "
            "--force, or choose another name with --run-id."
        )
    if resume and not (folder / holds).exists():
        raise TrainerConfigError(
            f"there is no search to continue in {folder}. Leave out --resume, or name the search "
            "with --run-id."
        )
    folder.mkdir(parents=True, exist_ok=True)


def remove_search(folder: Path) -> None:
    """Remove an earlier search. A folder that does not hold one is not touched.

    Raises:
        TrainerConfigError: The folder holds something else.
    """
    if not folder.exists():
        return
    is_search = any((folder / name).exists() for name in (JOURNAL, LINEAGE))
    if any(folder.iterdir()) and not is_search:
        raise TrainerConfigError(
            f"{folder} does not hold a search, so --force does not remove it. Choose another name "
            "with --run-id."
        )
    shutil.rmtree(folder)


def write_best(plan: Plan, values: Values, comment: str) -> Path:
    """Write the best settings and the typed flags, ready for `mlagents-learn`; return the file."""
    file = plan.folder / BEST
    best = with_values(plan.written, values)
    for section, typed in plan.command_line.settings.items():
        if section != "checkpoint_settings" and isinstance(typed, dict):
            best[section] = {**best.get(section, {}), **typed}
    text = yaml.safe_dump(best, sort_keys=False, allow_unicode=True)
    lines = "".join(f"# {line}\n" for line in comment.splitlines())
    write_atomically(file, (lines + text).encode())
    return file
