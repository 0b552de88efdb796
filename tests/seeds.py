"""The seeds of the tests that learn."""

import pytest


def seeds(first: int, *others: int) -> pytest.MarkDecorator:
    """Run a test with its first seed on every submission, and with the others every night.

    Broken learning fails with every seed; learning that depends on luck fails with some.
    """
    nightly = [pytest.param(seed, marks=pytest.mark.nightly) for seed in others]
    return pytest.mark.parametrize("seed", [first, *nightly])
