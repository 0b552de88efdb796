"""`Curriculum`: the current lesson of each environment parameter, and the change to the next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypedDict

from mlagents.trainers.settings.parameters import (
    CompletionCriteria,
    ConstantParameters,
    EnvironmentParameter,
    GaussianParameters,
    Lesson,
    MultiRangeUniformParameters,
    Sampler,
    UniformParameters,
)
from mlagents_envs.logging_util import get_logger
from mlagents_envs.suggestions import did_you_mean

logger = get_logger(__name__)

NEW_SHARE = 0.75
"""Weight of the current reward. The smoothed reward of the previous check has weight
1 - NEW_SHARE."""


class BehaviorProgress(NamedTuple):
    """Training progress of a behavior.

    Attributes:
        step: Step count of the behavior.
        max_steps: Step count at which training ends.
        returns: Returns of agents' episodes that ended since the last change of a lesson, newest
            last: at least the newest `Curriculum.n_returns` of them.
        elo: Elo rating; None without self-play.
        scores: Scores of self-play games that ended since the last change of a lesson, from 0 for a
            loss to 1 for a win, newest last.
        group_returns: Returns of groups, like `returns`.
    """

    step: int
    max_steps: int
    returns: Sequence[float]
    elo: float | None = None
    scores: Sequence[float] = ()
    group_returns: Sequence[float] = ()


class LessonChange(NamedTuple):
    """A parameter's change to the next lesson.

    Attributes:
        parameter: Name of the parameter.
        lesson: New lesson.
        number: Number of the new lesson, from 0.
        needs_reset: Whether the environments must be reset.
    """

    parameter: str
    lesson: Lesson
    number: int
    needs_reset: bool


class ParameterState(TypedDict, total=False):
    """A parameter in `training_status.json`. Other trainers only use `lesson_num`."""

    lesson_num: int
    smoothed_reward: float


class Curriculum:
    """Lessons of all environment parameters. A parameter without a curriculum has a single lesson.

    After a change, the caller must clear the returns of all behaviors, so that only episodes in the
    new lesson count. It must also send `parameters` to the players.

    Args:
        parameters: Parameters by name. Every sampler must have a seed.
        lessons: Numbers of the initial lessons, from 0. The default is the first lesson.
    """

    def __init__(
        self,
        parameters: Mapping[str, EnvironmentParameter],
        lessons: Mapping[str, int] | None = None,
    ) -> None:
        self._lessons = {name: p.curriculum for name, p in parameters.items()}
        self._numbers = dict.fromkeys(parameters, 0)
        self._smoothed = dict.fromkeys(parameters, 0.0)
        self._is_checked = False
        for name, number in (lessons or {}).items():
            self._begin_at(name, number)

    @property
    def parameters(self) -> dict[str, Sampler]:
        """Sampler of each parameter in its current lesson, to send to players."""
        return {name: self._lesson(name).value for name in self._lessons}

    @property
    def lesson_numbers(self) -> dict[str, int]:
        """Number of each parameter's current lesson, from 0."""
        return dict(self._numbers)

    @property
    def is_in_last_lessons(self) -> bool:
        """Whether every parameter is in its last lesson."""
        return all(self._numbers[name] == len(each) - 1 for name, each in self._lessons.items())

    def n_returns(self, behavior: str) -> int:
        """Return the number of a behavior's last returns that the lessons depend on."""
        lengths = [c.min_lesson_length for _, c in self._criteria() if c.behavior == behavior]
        return max([1, *lengths])

    def state(self) -> dict[str, ParameterState]:
        """Return the state of all lessons for a resumed run, ready for JSON."""
        return {
            name: {"lesson_num": number, "smoothed_reward": self._smoothed[name]}
            for name, number in self._numbers.items()
        }

    def load_state(self, state: Mapping[str, ParameterState]) -> None:
        """Restore a state that `state` returned. Parameters missing from it keep their lessons."""
        for name, of_parameter in state.items():
            self._begin_at(name, of_parameter["lesson_num"])
            if name in self._smoothed:
                self._smoothed[name] = of_parameter.get("smoothed_reward", 0.0)

    def advance(self, progress: Mapping[str, BehaviorProgress]) -> list[LessonChange]:
        """Advance every parameter whose current lesson is completed to its next lesson.

        Args:
            progress: Progress of every existing behavior, by name.

        Returns:
            All changes. Each is also logged.
        """
        if progress and not self._is_checked:
            self._is_checked = True
            self._warn_of_missing(progress)
        changes = []
        for name, lessons in self._lessons.items():
            number = self._numbers[name] + 1
            criteria = self._lesson(name).completion_criteria
            if number == len(lessons) or criteria is None or criteria.behavior not in progress:
                continue
            if self._is_learned(name, criteria, progress[criteria.behavior]):
                self._numbers[name] = number
                changes.append(LessonChange(name, lessons[number], number, criteria.require_reset))
                logger.info(self._line(name))
        return changes

    def log_lessons(self) -> None:
        """Log the lesson and the value of each parameter, one line each."""
        for name in self._lessons:
            logger.info(self._line(name))

    def in_words(self) -> str:
        """Describe the lessons of all parameters that have several, as in `wall 2 of 4 (high)`."""
        return ", ".join(
            f"{name} {self._numbers[name] + 1} of {len(lessons)} ({self._lesson(name).name})"
            for name, lessons in self._lessons.items()
            if len(lessons) > 1
        )

    def _is_learned(
        self, name: str, criteria: CompletionCriteria, progress: BehaviorProgress
    ) -> bool:
        of_games = criteria.measure in ("elo", "win_rate")
        of_groups = criteria.measure == "group_reward"
        returns = progress.group_returns if of_groups else progress.returns
        if len(progress.scores if of_games else returns) < criteria.min_lesson_length:
            return False
        if of_games:
            return self._beats_others(criteria, progress)
        if criteria.measure == "progress":
            return progress.step / progress.max_steps > criteria.threshold
        if not returns:
            return False
        last = list(returns)[-self.n_returns(criteria.behavior) :]
        reward = sum(last) / len(last)
        if criteria.signal_smoothing:
            reward = (1 - NEW_SHARE) * self._smoothed[name] + NEW_SHARE * reward
            self._smoothed[name] = reward
        return reward > criteria.threshold

    def _beats_others(self, criteria: CompletionCriteria, progress: BehaviorProgress) -> bool:
        """Return whether the Elo rating or the win rate of self-play completes a lesson."""
        if criteria.measure == "elo":
            return progress.elo is not None and progress.elo > criteria.threshold
        if not progress.scores:
            return False
        last = list(progress.scores)[-self.n_returns(criteria.behavior) :]
        return sum(last) / len(last) > criteria.threshold

    def _lesson(self, name: str) -> Lesson:
        return self._lessons[name][self._numbers[name]]

    def _criteria(self) -> Iterator[tuple[str, CompletionCriteria]]:
        """Yield the criteria of all lessons except the last ones, each with its parameter."""
        for name, lessons in self._lessons.items():
            for lesson in lessons[:-1]:
                if lesson.completion_criteria:
                    yield name, lesson.completion_criteria

    def _begin_at(self, name: str, number: int) -> None:
        if name not in self._lessons:
            return  # the configuration no longer has this parameter
        last = len(self._lessons[name]) - 1
        if not 0 <= number <= last:
            logger.warning(
                f"{name} was in lesson {number}, but now only has lessons 0 to {last}. It "
                f"continues with lesson {last}."
            )
            number = last
        self._numbers[name] = number

    def _warn_of_missing(self, behaviors: Mapping[str, object]) -> None:
        missing = {
            criteria.behavior: name
            for name, criteria in self._criteria()
            if criteria.behavior not in behaviors
        }
        for behavior, name in missing.items():
            logger.warning(
                f"environment_parameters.{name}: a lesson depends on behavior {behavior!r}, which "
                f"the environment does not have{did_you_mean(behavior, behaviors) or '.'} It has "
                f"{', '.join(map(repr, behaviors))}."
            )

    def _line(self, name: str) -> str:
        lesson, n_lessons = self._lesson(name), len(self._lessons[name])
        of = f" ({self._numbers[name] + 1} of {n_lessons})" if n_lessons > 1 else ""
        value = sampler_in_words(lesson.value)
        return f"Parameter {name!r} is in lesson {lesson.name!r}{of}: {value}."


def sampler_in_words(sampler: Sampler) -> str:
    """Return a description of a sampler, such as `Uniform sampler: min=0.5, max=2.0`."""
    match sampler.sampler_parameters:
        case ConstantParameters(value=value):
            return f"Float: value={value}"
        case UniformParameters(min_value=low, max_value=high):
            return f"Uniform sampler: min={low}, max={high}"
        case GaussianParameters(mean=mean, st_dev=st_dev):
            return f"Gaussian sampler: mean={mean}, stddev={st_dev}"
        case MultiRangeUniformParameters(intervals=intervals):
            pairs = [list(interval) for interval in intervals]
            return f"MultiRangeUniform sampler: intervals={pairs}"
        case unknown:
            raise TypeError(f"unknown sampler parameters {unknown!r}")
