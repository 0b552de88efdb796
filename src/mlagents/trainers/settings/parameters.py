"""Environment parameters: constants, samplers and curricula.

Every form of a parameter is converted to a curriculum: a list of lessons, each with a sampler. A
constant is a sampler with a single value. A parameter without lessons becomes a single lesson.
"""

from collections.abc import Mapping
from itertools import count, pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mlagents.trainers.settings.base import (
    LARGEST_INT32,
    Float,
    Float32,
    Int,
    Settings,
    list_of,
    problem,
    quoted,
    read_each,
    refuse,
)
from mlagents_envs.suggestions import did_you_mean


class SamplerParameters(Settings):
    """Settings shared by all samplers."""

    seed: Int = Field(-1, ge=-1, le=LARGEST_INT32)
    """Seed of the sampler; -1 derives one from the seed of the run."""


class ConstantParameters(SamplerParameters):
    """A sampler with a single value."""

    value: Float32 = 0.0
    """Value of the parameter."""


class UniformParameters(SamplerParameters):
    """Uniform distribution over a range."""

    min_value: Float32 = 0.0
    """Lower end of the range."""
    max_value: Float32 = 1.0
    """Upper end of the range."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.min_value > self.max_value:
            says = f"must be at most max_value ({self.max_value}), got {self.min_value}"
            refuse([problem("min_value", says=says)])
        return self


class GaussianParameters(SamplerParameters):
    """Normal distribution."""

    mean: Float32 = 1.0
    """Mean of the distribution."""
    st_dev: Float32 = Field(1.0, ge=0.0)
    """Standard deviation of the distribution."""


def _two(written: Any) -> Any:
    if isinstance(written, list | tuple) and len(written) == 2:
        return written
    raise ValueError("must be a pair [lower, upper]")


Interval = Annotated[tuple[Float32, Float32], BeforeValidator(_two)]


class MultiRangeUniformParameters(SamplerParameters):
    """Uniform distribution over several ranges."""

    intervals: Annotated[tuple[Interval, ...], list_of("pairs [lower, upper]")] = ((0.0, 1.0),)
    """Ranges, as pairs `[lower, upper]`."""

    @field_validator("intervals")
    @classmethod
    def _ascending(
        cls, intervals: tuple[tuple[float, float], ...]
    ) -> tuple[tuple[float, float], ...]:
        if not intervals:
            refuse([problem(says="needs at least one pair [lower, upper]")])
        refuse(
            [
                problem(i, says=f"must ascend, got [{lower}, {upper}]")
                for i, (lower, upper) in enumerate(intervals)
                if lower > upper
            ]
        )
        return intervals


SAMPLERS: dict[str, type[SamplerParameters]] = {
    "constant": ConstantParameters,
    "uniform": UniformParameters,
    "gaussian": GaussianParameters,
    "multirangeuniform": MultiRangeUniformParameters,
}
"""Models of `sampler_parameters`, by `sampler_type`."""


class Sampler(Settings):
    """Source of a parameter's values. The simulation draws one value per episode."""

    sampler_type: Literal["constant", "uniform", "gaussian", "multirangeuniform"]
    """Distribution of the values."""
    sampler_parameters: SerializeAsAny[SamplerParameters]
    """Parameters of the distribution. The keys depend on `sampler_type`."""

    @field_validator("sampler_parameters", mode="before")
    @classmethod
    def _follow_sampler_type(cls, written: Any, info: ValidationInfo) -> Any:
        if "sampler_type" not in info.data:
            return SamplerParameters()  # sampler_type was refused, so the allowed keys are unknown
        return SAMPLERS[info.data["sampler_type"]].model_validate(written)


_SAMPLER_IN_WORDS = "sampler (sampler_type, sampler_parameters)"


def _constant_or_sampler(written: Any, allowed: str = f"a number or a {_SAMPLER_IN_WORDS}") -> Any:
    """Convert a bare number to a constant; refuse anything that is not `allowed`."""
    if isinstance(written, Mapping | Sampler):
        return written
    try:
        value = ConstantParameters.model_validate({"value": written})
    except ValidationError as error:
        (found,) = error.errors(include_url=False)
        if isinstance(written, int | float) and not isinstance(written, bool):
            refuse([problem(says=found["msg"])])
        refuse([problem(says=f"must be {allowed}, got {quoted(written)}")])
    return Sampler(sampler_type="constant", sampler_parameters=value)


Value = Annotated[Sampler, BeforeValidator(lambda written: _constant_or_sampler(written))]


class CompletionCriteria(Settings):
    """Conditions under which a lesson is completed and the next one begins."""

    behavior: str
    """Name of the behavior whose progress is measured."""
    measure: Literal["reward", "group_reward", "progress", "elo", "win_rate"] = "reward"
    """Quantity to compare with `threshold`: mean episode reward, mean reward of groups (with
    `trainer_type: poca`), or completed fraction of `max_steps`. With self-play, also the Elo rating
    or the mean score against other policies, where a draw counts as half a win."""
    min_lesson_length: Int = Field(0, ge=0)
    """Number of episodes, of agents or of groups, to finish before the lesson can be completed.
    With `elo` and `win_rate`, number of games against other policies."""
    signal_smoothing: bool = True
    """Whether to average the reward with the previous check: 0.75 new, 0.25 old."""
    threshold: Float = 0.0
    """Value that the measure must exceed to complete the lesson; from 0 to 1 for `progress` and
    `win_rate`."""
    require_reset: bool = False
    """Whether the environment is reset when the next lesson begins."""

    @model_validator(mode="after")
    def _progress_is_a_share(self) -> Self:
        if self.measure in ("progress", "win_rate") and not 0.0 <= self.threshold <= 1.0:
            says = f"must be from 0 to 1 when measure is {self.measure!r}, got {self.threshold}"
            refuse([problem("threshold", says=says)])
        return self


class Lesson(Settings):
    """One stage of a curriculum."""

    name: str
    """Name of the lesson in logs."""
    value: Value
    """Value of the parameter during this lesson: a number or a sampler."""
    completion_criteria: CompletionCriteria | None = None
    """Conditions for the next lesson; required for every lesson except the last."""

    @model_validator(mode="before")
    @classmethod
    def _is_not_below_its_name(cls, written: Any) -> Any:
        """Refuse the form of early versions with one message instead of one for each key."""
        if isinstance(written, Mapping) and len(written) == 1:
            ((name, below),) = written.items()
            if name not in cls.model_fields and isinstance(below, Mapping):
                says = f"write `name: {name}` next to `value`, instead of using the name as a key"
                refuse([problem(says=says)])
        return written


class EnvironmentParameter(Settings):
    """A parameter of the environment, defined by a list of lessons."""

    curriculum: Annotated[tuple[Lesson, ...], list_of("lessons")]
    """Lessons, in order."""

    @field_validator("curriculum")
    @classmethod
    def _leads_to_the_end(cls, lessons: tuple[Lesson, ...]) -> tuple[Lesson, ...]:
        if not lessons:
            refuse([problem(says="needs at least one lesson")])
        refuse(
            [
                problem(i, "completion_criteria", says="is required, except for the last lesson")
                for i, (lesson, _next) in enumerate(pairwise(lessons))
                if lesson.completion_criteria is None
            ]
        )
        return lessons


def read_parameters(written: Mapping[Any, Any]) -> dict[str, EnvironmentParameter]:
    """Read `environment_parameters`. Each is a number, a sampler or a curriculum.

    Raises:
        ValidationError: A parameter is invalid. The error contains all problems, with locations
            that start at the parameter's name.
    """
    return read_each(written, _read_parameter)


def _read_parameter(name: str, written: Any) -> EnvironmentParameter:
    if not name.isascii():
        refuse([problem(says="the name of a parameter must be ASCII")])
    if isinstance(written, EnvironmentParameter):
        return written
    if isinstance(written, Mapping) and not _FORMS & written.keys():
        hint = "".join(did_you_mean(key, _FORMS) for key in written)
        says = "must contain sampler_type and sampler_parameters, or curriculum"
        refuse([problem(says=f"{says}, got keys {list(written)}{hint}")])
    if isinstance(written, Mapping) and "curriculum" in written:
        return EnvironmentParameter.model_validate(written)
    allowed = f"a number, a {_SAMPLER_IN_WORDS} or a curriculum"
    sampler = Sampler.model_validate(_constant_or_sampler(written, allowed))
    return EnvironmentParameter(curriculum=(Lesson(name=name, value=sampler),))


_FORMS = {"sampler_type", "sampler_parameters", "curriculum"}


def with_seeds(
    parameters: Mapping[str, EnvironmentParameter], run_seed: int
) -> dict[str, EnvironmentParameter]:
    """Return parameters with a seed for every sampler.

    Samplers without a seed get `run_seed` plus the number of their lesson. Lessons are numbered
    from 0 in the order of the file, over all parameters.
    """
    seeds = count(run_seed)
    return {
        name: EnvironmentParameter(
            curriculum=tuple(_with_seed(lesson, next(seeds)) for lesson in parameter.curriculum)
        )
        for name, parameter in parameters.items()
    }


def _with_seed(lesson: Lesson, seed: int) -> Lesson:
    parameters = lesson.value.sampler_parameters
    if parameters.seed != -1:
        return lesson
    seeded = parameters.model_copy(update={"seed": seed})
    sampler = lesson.value.model_copy(update={"sampler_parameters": seeded})
    return lesson.model_copy(update={"value": sampler})
