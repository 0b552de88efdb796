"""The space of a search: settings by path, put into the content of a configuration file."""

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from mlagents.trainers.exception import TrainerConfigError
from mlagents.trainers.settings.base import quoted
from mlagents.trainers.settings.load import validated
from mlagents.trainers.settings.paths import put
from mlagents.trainers.settings.reading import Written
from mlagents.trainers.settings.search import Choices, Range
from mlagents.trainers.settings.typed import CommandLine

Space = Mapping[str, Range | Choices]
Values = Mapping[str, Any]

_MOST_CORNERS = 1024
"""Most combinations of extreme values that are all checked; beyond, those of two settings are."""


def with_values(written: Written, values: Values) -> Written:
    """Return a copy of a file's content in which the settings at some paths have other values.

    Raises:
        TrainerConfigError: A path leads through a value that is not a section.
    """
    changed = copy.deepcopy(written)
    for path, value in values.items():
        try:
            put(changed, path, value)
        except ValueError as error:
            raise TrainerConfigError(
                f"search.space.{path}: {error}. Choose between whole sections instead, or write a "
                "section."
            ) from None
    return changed


def check_space(written: Written, space: Space, command_line: CommandLine) -> None:
    """Raise an error unless the settings are valid in every corner of the space.

    With many settings, the corners of every two of them are checked, with the others as in the
    file.

    Raises:
        TrainerConfigError: The settings are invalid in some corner, which the error names.
    """
    for corner in _corners(space):
        try:
            validated(with_values(written, corner), command_line)
        except TrainerConfigError as error:
            where = ", ".join(f"{path}: {quoted(value)}" for path, value in corner.items())
            raise TrainerConfigError(
                f"search.space: the settings are invalid with {where}.\n{error}\n"
                "Narrow the space, so that every combination is valid."
            ) from None


def _corners(space: Space) -> Iterator[Values]:
    """Yield single extremes first, so that an error names no more settings than it needs."""
    extremes = {path: dimension.corners for path, dimension in space.items()}
    for n_together in range(1, len(space) + 1):
        corners = [
            dict(zip(paths, values, strict=True))
            for paths in itertools.combinations(extremes, n_together)
            for values in itertools.product(*(extremes[path] for path in paths))
        ]
        if n_together > 2 and len(corners) > _MOST_CORNERS:
            return
        yield from corners
