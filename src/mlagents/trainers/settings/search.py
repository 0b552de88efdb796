"""Settings of a search for better settings: the key `search`, which `mlagents-search` reads."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from mlagents.trainers.settings.base import Float, Int, Settings, list_of, problem, quoted, refuse


class Measure(Settings):
    """Statistic that the search improves."""

    behavior: str | None = None
    """Behavior to measure. It may be omitted if there is only one."""
    tag: str = "Environment/Cumulative Reward"
    """Statistic to measure, by its name in TensorBoard."""
    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether larger or smaller values are better."""
    last: Float = Field(0.2, gt=0.0, le=1.0)
    """Fraction of the steps, at the end of a run, over which the statistic is averaged."""
    steps_to: Float | None = None
    """Value of the statistic that a run should reach in as few steps as possible. A run that
    reaches it ends. null measures the statistic itself."""


class Pruning(Settings):
    """Early end of runs that are worse than others after the same number of steps."""

    rule: Literal["halving", "median", "none"] = "halving"
    """Rule: `halving` continues the best of every `factor` runs, and compares them again after
    `factor` times as many steps; `median` ends runs below the median; `none` ends no run."""
    first: Float = Field(0.15, gt=0.0, le=1.0)
    """Fraction of `max_steps` after which a run may be ended."""
    factor: Int = Field(3, ge=2)
    """Number of runs of which `halving` continues one."""


class Population(Settings):
    """Population-based training: the settings change while runs learn (arXiv:1711.09846)."""

    size: Int = Field(8, ge=4)
    """Number of runs."""
    interval: Float = Field(0.05, gt=0.0, lt=1.0)
    """Fraction of `max_steps` after which the worst quarter of the runs continues from copies of
    the best quarter, with changed settings."""
    perturb: Float = Field(1.2, gt=1.0)
    """Factor by which a copied run multiplies or divides each number."""
    resample: Float = Field(0.25, ge=0.0, le=1.0)
    """Probability that a copied run draws a setting from the space instead."""


def _number(value: Any) -> Any:
    """Read a number in its written form: 1 is a whole number, 1.0 is not."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number")
    for kind in (int, float):
        try:
            return kind(value) if isinstance(value, str) else value
        except ValueError:
            pass
    raise ValueError("must be a number")


Number = Annotated[int | float, BeforeValidator(_number)]


class Range(Settings):
    """Numbers from `from` to `to`: whole numbers if all keys are written as whole numbers."""

    low: Number = Field(alias="from")
    """Smallest value."""
    high: Number = Field(alias="to")
    """Largest value."""
    log: bool = False
    """Whether to search on a logarithmic scale, which suits learning rates."""
    step: Number | None = Field(None, gt=0)
    """Distance between neighboring values; null for any value in between."""

    @model_validator(mode="after")
    def _can_be_drawn_from(self) -> Self:
        if self.low >= self.high:
            says = f"must be above from ({quoted(self.low)}), got {quoted(self.high)}"
            refuse([problem("to", says=says)])
        if self.log and self.low <= 0:
            says = f"must be above 0 on a logarithmic scale, got {quoted(self.low)}"
            refuse([problem("from", says=says)])
        if self.log and self.step is not None:
            refuse([problem("step", says="is not possible on a logarithmic scale; remove it")])
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the values are whole numbers."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    @property
    def corners(self) -> tuple[Any, Any]:
        """Smallest and largest value that can be drawn."""
        if self.step is None:
            return self.low, self.high
        n_steps = math.floor((self.high - self.low) / self.step + 1e-9)
        return self.low, self.low + n_steps * self.step


class Choices(Settings):
    """Values to choose from."""

    choices: Annotated[tuple[Any, ...], list_of("values, as in [64, 128]")] = Field(min_length=2)
    """Values of any kind: numbers, names, null or sections."""

    @property
    def corners(self) -> tuple[Any, ...]:
        """All values, because they have no order."""
        return self.choices


def _dimension(written: Any) -> Any:
    """Read a dimension as the kind that its keys suggest, so that errors name only that kind."""
    if not isinstance(written, Mapping):
        return written
    return (Choices if "choices" in written else Range).model_validate(written)


Dimension = Annotated[Range | Choices, BeforeValidator(_dimension)]


class SearchSettings(Settings):
    """Search for better settings, by `mlagents-search`. Other commands ignore this section."""

    measure: Measure = Measure()
    """Statistic to improve."""
    trials: Int = Field(40, ge=1)
    """Number of combinations of settings to try."""
    seeds: Int = Field(1, ge=1)
    """Number of runs, with different seeds, of each trial in the best third. Their mean counts.
    Other trials have one run."""
    confirm: Int = Field(3, ge=0)
    """Number of final runs with the best settings and with new seeds."""
    sampler: Literal["tpe", "gp", "cmaes", "random", "grid", "population"] = "tpe"
    """Method that chooses the next trial: `tpe`, `gp` and `cmaes` learn from earlier trials,
    `random` and `grid` do not; `population` changes settings while runs learn."""
    prune: Pruning = Pruning()
    """Early end of runs that are worse than others."""
    population: Population = Population()
    """Settings of the sampler `population`."""
    space: dict[str, Dimension] = Field(min_length=1)
    """Settings to search: the path of each setting, such as
    `behaviors.3DBall.hyperparameters.learning_rate`, with its range or choices."""

    @field_validator("space", mode="before")
    @classmethod
    def _names_settings(cls, written: Any) -> Any:
        if not isinstance(written, Mapping):
            return written
        refuse(
            [
                problem(str(path), says="is not a setting that a search may change")
                for path in written
                if str(path).partition(".")[0] in ("search", "checkpoint_settings")
            ]
        )
        return written
