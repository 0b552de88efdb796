"""Which lesson each environment parameter is in, and when the next one begins."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypedDict

from mlagents.trainers.settings.base import did_you_mean
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

logger = get_logger(__name__)

NEW_SHARE = 0.75
"""Weight of the reward now against the smoothed reward of the check before."""


class BehaviorProgress(NamedTuple):
    """How far a behavior is.

    Attributes:
        step: Its step count.
        max_steps: Where it ends.
        returns: Of single agents' episodes that ended since the last change of a lesson, the newest
            last; at least as many of them as `Curriculum.n_returns` asks for.
    """

    step: int
    max_steps: int
    returns: Sequence[float]


class LessonChange(NamedTuple):
    """A parameter that has moved on.

    Attributes:
        parameter: Its name.
        lesson: What it is in now.
        number: The lesson's number, counted from 0.
        needs_reset: Whether the environments are to begin anew.
    """

    parameter: str
    lesson: Lesson
    number: int
    needs_reset: bool


class ParameterState(TypedDict, total=False):
    """A parameter in `training_status.json`; other trainers know `lesson_num` alone."""

    lesson_num: int
    smoothed_reward: float


class Curriculum:
    """The lessons of all environment parameters; one without a curriculum has a single lesson.

    After a change, the caller empties the returns of all behaviors, so that a lesson is judged by
    its own episodes, and sends `parameters` to the players.

    Args:
        parameters: By name, every sampler with its seed.
        lessons: Numbers of the lessons to begin with, from 0; the first where none is given.
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
        """What players are sent: where each parameter's values come from in its lesson."""
        return {name: self._lesson(name).value for name in self._lessons}

    @property
    def lesson_numbers(self) -> dict[str, int]:
        """The number of each parameter's lesson, from 0."""
        return dict(self._numbers)

    @property
    def is_in_last_lessons(self) -> bool:
        """Whether no parameter has another lesson to come."""
        return all(self._numbers[name] == len(each) - 1 for name, each in self._lessons.items())

    def n_returns(self, behavior: str) -> int:
        """How many of its last returns a behavior is judged by."""
        lengths = [c.min_lesson_length for _, c in self._criteria() if c.behavior == behavior]
        return max([1, *lengths])

    def state(self) -> dict[str, ParameterState]:
        """Everything a resumed run needs to go on with the same lessons, fit for JSON."""
        return {
            name: {"lesson_num": number, "smoothed_reward": self._smoothed[name]}
            for name, number in self._numbers.items()
        }

    def load_state(self, state: Mapping[str, ParameterState]) -> None:
        """Go on where the run that saved `state` was; a parameter it lacks keeps its lesson."""
        for name, of_parameter in state.items():
            self._begin_at(name, of_parameter["lesson_num"])
            if name in self._smoothed:
                self._smoothed[name] = of_parameter.get("smoothed_reward", 0.0)

    def advance(self, progress: Mapping[str, BehaviorProgress]) -> list[LessonChange]:
        """Move every parameter on by one lesson whose present lesson is learned.

        Args:
            progress: Of every behavior there is, by name.

        Returns:
            What has changed, and is logged.
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
        """Log the lesson and the value of each parameter, a line each."""
        for name in self._lessons:
            logger.info(self._line(name))

    def in_words(self) -> str:
        """The lessons of all parameters that have several: `wall 2 of 4 (high)`."""
        return ", ".join(
            f"{name} {self._numbers[name] + 1} of {len(lessons)} ({self._lesson(name).name})"
            for name, lessons in self._lessons.items()
            if len(lessons) > 1
        )

    def _is_learned(
        self, name: str, criteria: CompletionCriteria, progress: BehaviorProgress
    ) -> bool:
        if len(progress.returns) < criteria.min_lesson_length:
            return False
        if criteria.measure == "progress":
            return progress.step / progress.max_steps > criteria.threshold
        if not progress.returns:
            return False
        last = list(progress.returns)[-self.n_returns(criteria.behavior) :]
        reward = sum(last) / len(last)
        if criteria.signal_smoothing:
            reward = (1 - NEW_SHARE) * self._smoothed[name] + NEW_SHARE * reward
            self._smoothed[name] = reward
        return reward > criteria.threshold

    def _lesson(self, name: str) -> Lesson:
        return self._lessons[name][self._numbers[name]]

    def _criteria(self) -> Iterator[tuple[str, CompletionCriteria]]:
        """Yield the criteria of all lessons but the last ones, each with its parameter."""
        for name, lessons in self._lessons.items():
            for lesson in lessons[:-1]:
                if lesson.completion_criteria:
                    yield name, lesson.completion_criteria

    def _begin_at(self, name: str, number: int) -> None:
        if name not in self._lessons:
            return  # the configuration has it no more
        last = len(self._lessons[name]) - 1
        if not 0 <= number <= last:
            logger.warning(
                f"{name} was in lesson {number}, but has lessons 0 to {last} now: it goes on with "
                f"lesson {last}."
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
                f"environment_parameters.{name}: a lesson waits for behavior {behavior!r}, which "
                f"the environment has not shown{did_you_mean(behavior, behaviors) or '.'} It shows "
                f"{', '.join(map(repr, behaviors))}."
            )

    def _line(self, name: str) -> str:
        lesson, n_lessons = self._lesson(name), len(self._lessons[name])
        of = f" ({self._numbers[name] + 1} of {n_lessons})" if n_lessons > 1 else ""
        value = sampler_in_words(lesson.value)
        return f"Parameter {name!r} is in lesson {lesson.name!r}{of}: {value}."


def sampler_in_words(sampler: Sampler) -> str:
    """Return what a sampler draws from, such as `Uniform sampler: min=0.5, max=2.0`."""
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
            raise TypeError(f"no words for sampler parameters {unknown!r}")
