"""The native part that computes creatures of bodies and joints: `source/articulated.cpp`."""

from ctypes import CDLL, c_double, c_int, c_int32, c_int64, c_uint8, c_void_p

from mlagents_native.library import NativeError, Part

FALL_CASE = ([1, 0, 0, 0], [1.0, 0.0] + [1.0] * 3 + [0.0] * 3 + [0.0] * 6 + [0.0] * 4 + [0.5])
"""Layout of one sphere without joints, up to its radius."""


def declare(functions: CDLL) -> None:
    """Declare the argument types of the part's functions."""
    functions.articulated_step.argtypes = [
        c_void_p,
        c_void_p,
        c_int64,
        *[c_void_p] * 6,
        c_int,
    ]
    functions.articulated_step.restype = None


def check(functions: CDLL) -> None:
    """Let a sphere of radius 0.5 fall for a step.

    Raises:
        NativeError: It does not fall as it should.
    """
    integers, numbers = FALL_CASE
    numbers = numbers + [0.0] * 6 + [0.0, 0.0, -10.0, 0.1]  # no capsule, no box; step of 0.1 s
    state = (c_double * 13)(*[0.0] * 6, 1.0, *[0.0] * 6)
    touching = (c_uint8 * 1)(1)
    functions.articulated_step(
        (c_int32 * len(integers))(*integers),
        (c_double * len(numbers))(*numbers),
        1,
        state,
        (c_double * 1)(),
        (c_double * 1)(),
        (c_double * 1)(10.0),
        (c_double * 1)(1.0),
        touching,
        1,
    )
    expected = [0.0, -0.1, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    if any(abs(a - b) > 1e-12 for a, b in zip(state, expected, strict=True)) or touching[0]:
        raise NativeError(
            f"a sphere that falls for 0.1 s is at {list(state)}, expected {expected}. Install the "
            "package again."
        )


PART = Part("articulated", version=2, declare=declare, check=check, otherwise="NumPy")
