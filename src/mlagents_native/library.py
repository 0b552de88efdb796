"""Finds, checks and loads the native library.

The library consists of parts. Each part is one C++ file in `source` and one Python file that
declares its functions and checks them:

    PART = Part("dense", version=3, declare=declare, check=check, otherwise="PyTorch")

    functions = PART.load()         # a ctypes library, or None: compute without
    PART.announce(logger)           # logs once which of the two happened
    with announced(logger): ...     # the same for each part that is used meanwhile

A part steps aside, and `reason` says why, if the library is missing, switched off, broken, built
for another processor or from other sources, or computes something else than the reference.
"""

import ctypes
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache
from pathlib import Path
from typing import ClassVar

VARIABLE = "MLAGENTS_NATIVE"
"""Environment variable that chooses the instruction set: `auto`, `off`, or one of these sets."""

INSTRUCTION_SETS = {"avx512": "AVX-512", "avx2": "AVX2", "baseline": "baseline instructions"}
"""Instruction sets, fastest first, by the name of their library, as messages call them."""

FOLDER = Path(__file__).parent

HOW_TO_BUILD = (
    "To build it, install a C++ compiler (g++, clang++ or Visual Studio) and then install the "
    "package again."
)


class NativeError(Exception):
    """The native library, or one of its parts, cannot be used."""


class Library:
    """A loaded library whose functions can be called.

    Attributes:
        functions: The library, as ctypes loaded it.
        instructions: Its instruction set, a key of `INSTRUCTION_SETS`.
    """

    def __init__(self, functions: CDLL, instructions: str) -> None:
        self.functions = functions
        self.instructions = instructions


def open_library(folder: Path = FOLDER, choice: str | None = None) -> Library:
    """Load the fastest library in a folder that this processor can run.

    Args:
        folder: Folder of the libraries.
        choice: `auto`, `off` or an instruction set; by default, the value of `MLAGENTS_NATIVE`.

    Raises:
        NativeError: No library can be used.
    """
    choice = choice or os.environ.get(VARIABLE) or "auto"
    if choice == "off":
        raise NativeError(f"{VARIABLE}=off switches it off. Remove that variable to use it.")
    if choice not in ("auto", *INSTRUCTION_SETS):
        raise NativeError(
            f"{VARIABLE}={choice} is not a choice: expected auto, off, "
            f"{', '.join(INSTRUCTION_SETS)}."
        )
    baseline = _load(folder, "baseline")
    has = baseline.native_instruction_sets()
    runs = {"avx512": bool(has & 2), "avx2": bool(has & 1), "baseline": True}
    if choice != "auto":
        if not runs[choice]:
            raise NativeError(
                f"{VARIABLE}={choice}: this processor does not have {INSTRUCTION_SETS[choice]}. "
                f"Set {VARIABLE} to auto."
            )
        return Library(_load(folder, choice), choice)
    for name in INSTRUCTION_SETS:
        if runs[name] and _path(folder, name).exists():
            return Library(_load(folder, name), name)
    raise AssertionError("the baseline was loaded, so it exists")


def _path(folder: Path, instructions: str) -> Path:
    return folder / f"library_{instructions}{'.dll' if os.name == 'nt' else '.so'}"


def _load(folder: Path, instructions: str) -> CDLL:
    path = _path(folder, instructions)
    if not path.exists():
        raise NativeError(f"it was not built. {HOW_TO_BUILD}")
    try:
        functions = ctypes.CDLL(str(path))
        functions.native_instruction_sets.argtypes = []
        functions.native_instruction_sets.restype = ctypes.c_int
        functions.native_dot.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        functions.native_dot.restype = ctypes.c_double
    except (OSError, AttributeError) as error:
        raise NativeError(f"{path} cannot be loaded: {error}. {HOW_TO_BUILD}") from error
    numbers = (ctypes.c_double * 11)(*range(1, 12))
    found = functions.native_dot(numbers, numbers, 11)
    if found != 506.0:  # 1 + 4 + ... + 121
        raise NativeError(f"{path} computes 1² + ... + 11² as {found}, not as 506. {HOW_TO_BUILD}")
    return functions


@cache
def the_library() -> Library | NativeError:
    """Return the library of this process, or the reason why there is none; found only once."""
    try:
        return open_library()
    except NativeError as error:
        return error


class Part:
    """One part of the library: the functions of one C++ file.

    Args:
        name: Name of the part. The function `<name>_version` of the library returns its version.
        version: Version of the functions that the Python code expects. Increase both numbers with
            every change to the arguments or to the meaning of a function.
        declare: Function that declares the argument and result types of the functions.
        check: Function that compares the functions with their reference on a small case and raises
            `NativeError` if the results differ.
        otherwise: What computes without the library, for messages.
        open_library: Function that returns the library, or the reason why there is none.
    """

    _opening: ClassVar = threading.RLock()  # a check may open other parts
    listener: ClassVar[logging.Logger | None] = None
    """Logger that is told of each part that is used; None without one."""

    def __init__(
        self,
        name: str,
        *,
        version: int,
        declare: Callable[[CDLL], None],
        check: Callable[[CDLL], None],
        otherwise: str,
        open_library: Callable[[], Library | NativeError] = the_library,
    ) -> None:
        self.name = name
        self._version = version
        self._declare = declare
        self._check = check
        self._otherwise = otherwise
        self._open_library = open_library
        self._result: Library | NativeError | None = None
        self._is_announced = False

    def load(self) -> CDLL | None:
        """Return the library if this part of it can be used, otherwise None."""
        result = self._opened()
        if Part.listener is not None:
            self.announce(Part.listener)
        return result.functions if isinstance(result, Library) else None

    @property
    def reason(self) -> str | None:
        """Why the part cannot be used, as a sentence that begins in lower case; None if it can."""
        result = self._opened()
        return str(result) if isinstance(result, NativeError) else None

    @property
    def instructions(self) -> str | None:
        """Instruction set in use, a key of `INSTRUCTION_SETS`; None without the library."""
        result = self._opened()
        return result.instructions if isinstance(result, Library) else None

    def announce(self, logger: logging.Logger) -> None:
        """Log in one line, once in this process, whether the part is in use, and how to change it.

        Args:
            logger: Logger of the package that uses the part.
        """
        if self._is_announced:
            return
        self._is_announced = True
        result = self._opened()
        if isinstance(result, Library):
            logger.info(
                f"{self.name}: computed by the native library with "
                f"{INSTRUCTION_SETS[result.instructions]}. {VARIABLE}=off would use "
                f"{self._otherwise}."
            )
        else:
            logger.info(
                f"{self.name}: computed by {self._otherwise}, without the native library: {result}"
            )

    def _opened(self) -> Library | NativeError:
        with Part._opening:
            if self._result is None:
                try:
                    self._result = self._checked()
                except NativeError as error:
                    self._result = error
            return self._result

    def _checked(self) -> Library:
        library = self._open_library()
        if isinstance(library, NativeError):
            raise library
        try:
            version = getattr(library.functions, f"{self.name}_version")
            version.argtypes, version.restype = [], ctypes.c_int
            found = version()
            if found == self._version:
                self._declare(library.functions)
        except AttributeError as error:
            found = str(error)
        if found != self._version:
            raise NativeError(
                f"the library was built from other sources: version {found} of {self.name!r}, "
                f"expected {self._version}. Install the package again."
            )
        self._check(library.functions)
        return library


@contextmanager
def announced(logger: logging.Logger) -> Iterator[None]:
    """Announce every part that is used within a `with` block, once in this process.

    Args:
        logger: Logger of the program.
    """
    before, Part.listener = Part.listener, logger
    try:
        yield
    finally:
        Part.listener = before
