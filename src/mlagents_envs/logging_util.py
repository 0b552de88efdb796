"""Log format and level of this project's packages.

Lines go to standard output as `[INFO] text`; at level DEBUG as
`2030-01-31 12:00:00 INFO [file.py:12] text`. The root logger is not configured. To get the lines in
the log of your application, set `logging.getLogger("mlagents_envs").propagate = True`, and the same
for `mlagents` and `mlagents_sim`.
"""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator

CRITICAL = logging.CRITICAL
FATAL = logging.FATAL
ERROR = logging.ERROR
WARNING = logging.WARNING
INFO = logging.INFO
DEBUG = logging.DEBUG
NOTSET = logging.NOTSET


_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""ANSI escape sequences, such as colors and cursor movements."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters and bidirectional controls of Unicode, except tab and newline."""


def printable(text: str) -> str:
    """Return an untrusted text without characters that control a terminal.

    Escape sequences are removed; other control characters are escaped as in a Python string.
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], _ESCAPE_SEQUENCE.sub("", text))


class _StdoutHandler(logging.Handler):
    """Handler that prints to the current `sys.stdout`, which progress bars and tests replace.

    Control characters are escaped, because a record may quote a player.

    If printing fails (a full disk, a closed pipe), lines are lost and standard error gets one
    message.
    """

    origin = ""
    _is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.origin + printable(self.format(record)), flush=True)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                with contextlib.suppress(OSError):
                    print(f"The log cannot be written: {error}.", file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)


_SHORT = logging.Formatter("[{levelname}] {message}", style="{")
_LONG = logging.Formatter(
    "{asctime} {levelname} [{filename}:{lineno}] {message}", "%Y-%m-%d %H:%M:%S", style="{"
)

_handler = _StdoutHandler()
_handler.setFormatter(_SHORT)
_packages: set[logging.Logger] = set()
_level = INFO


def get_logger(name: str) -> logging.Logger:
    """Return the logger `name`, usually a module's `__name__`.

    The first call for a package sets the format and level of the package's logger; the loggers
    below it inherit them.
    """
    package = logging.getLogger(name.partition(".")[0])
    if package not in _packages:
        _packages.add(package)
        package.addHandler(_handler)
        package.propagate = False
        package.setLevel(_level)
    return logging.getLogger(name)


def set_log_level(log_level: int) -> None:
    """Set the level of all packages that log through `get_logger`, now or later."""
    global _level
    _level = log_level
    _handler.setFormatter(_LONG if log_level <= DEBUG else _SHORT)
    for package in _packages:
        package.setLevel(log_level)


def set_log_origin(origin: str) -> None:
    """Set a prefix for all lines, which names the part of the program; empty for none."""
    _handler.origin = origin


def discard_unwritable_output() -> None:
    """Discard output that a full disk or a closed pipe does not take.

    Otherwise Python would try again at exit, fail, and exit with status 120.
    """
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            setattr(sys, name, open(os.devnull, "w"))


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Discard the output of the `with` block if its reader has exited, as in `| head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise Python would flush the rest of the buffer at exit and fail again.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
