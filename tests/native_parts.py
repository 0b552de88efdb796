"""Parts of the native library with a given instruction set, and action spaces to try them with."""

from functools import cache
from typing import Any

import pytest
from hypothesis import strategies as st

from mlagents_native.library import Library, NativeError, Part, open_library


def with_library(part: Part, library: Library) -> Part:
    """Return another instance of a part, which uses the given library."""
    return Part(
        part.name,
        version=part._version,
        declare=part._declare,
        check=part._check,
        otherwise=part._otherwise,
        open_library=lambda: library,
    )


@cache
def functions_of(part: Part, instructions: str) -> Any:
    """Return the functions of a part, computed with an instruction set; skip if it is missing.

    Args:
        part: Part to load once more.
        instructions: Key of `INSTRUCTION_SETS`.
    """
    try:
        library = open_library(choice=instructions)
    except NativeError as error:
        pytest.skip(str(error))
    another = with_library(part, library)
    functions = another.load()
    assert functions is not None, another.reason
    return functions


ACTION_SIZES = {
    "continuous": {"continuous": st.integers(1, 20), "branches": st.just(())},
    "discrete": {
        "continuous": st.just(0),
        "branches": st.lists(st.integers(1, 18), min_size=1, max_size=3).map(tuple),
    },
    "hybrid": {
        "continuous": st.integers(1, 3),
        "branches": st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    },
}
"""Strategies for the number of continuous actions and the discrete branches, by kind."""
