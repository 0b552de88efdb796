"""The seeds of the tests that learn, and the sizes of those that try many inputs."""

import pytest


def seeds(first: int, *others: int) -> pytest.MarkDecorator:
    """Run a test with its first seed on every submission, and with the others every night.

    Broken learning fails with every seed; learning that depends on luck fails with some.
    """
    nightly = [pytest.param(seed, marks=pytest.mark.nightly) for seed in others]
    return pytest.mark.parametrize("seed", [first, *nightly])


NIGHTLY = pytest.mark.slow, pytest.mark.nightly
"""Marks of a case that only the night runs, of a test of which some cases are quick."""


def sizes(name: str, few: int, many: int) -> pytest.MarkDecorator:
    """Run a test of random inputs with few of them on every submission, and many every night."""
    return pytest.mark.parametrize(name, [few, pytest.param(many, marks=pytest.mark.nightly)])
