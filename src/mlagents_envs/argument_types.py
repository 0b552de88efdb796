"""Argument types that several commands share, with errors that `argparse` prints."""

import math
from argparse import ArgumentTypeError


def whole_number(text: str) -> int:
    """Parse a whole number from 0 to the largest signed 32-bit number."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 0 to {2**31 - 1}")
    return int(text)


def count(text: str) -> int:
    """Parse a whole number above 0."""
    number = whole_number(text)
    if number == 0:
        raise ArgumentTypeError("expected at least 1, got 0")
    return number


def port(text: str, *, lowest: int = 1) -> int:
    """Parse a port number of at least `lowest`."""
    if not text.isdecimal() or not lowest <= int(text) < 2**16:
        raise ArgumentTypeError(f"{text!r} is not a port: expected {lowest} to {2**16 - 1}")
    return int(text)


def parameter(text: str) -> tuple[str, float]:
    """Parse NAME=NUMBER with a finite number."""
    name, _, number = text.partition("=")
    try:
        if name and math.isfinite(float(number)):
            return name, float(number)
    except ValueError:
        pass
    raise ArgumentTypeError(
        f"{text!r} is not NAME=NUMBER: expected a finite number, for example gravity=9.81"
    )


def positive(text: str, *, or_zero: bool = False) -> float:
    """Parse a finite number above 0; 0 is allowed if `or_zero` is set."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (0 < number < math.inf or (or_zero and number == 0)):
        raise ArgumentTypeError(f"{text!r} is not a positive number{' or 0' * or_zero}")
    return number
