"""Log format and level of our packages.

Lines go to standard output as `[INFO] text`; at DEBUG as
`2030-01-31 12:00:00 INFO [file.py:12] text`. The root logger is never touched: an application
that wants the lines in its own log sets `logging.getLogger("mlagents_envs").propagate = True`
(likewise `mlagents`, `mlagents_sim`).
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
"""Colours, movements of the cursor, and the like."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What makes a terminal act or turn text around, but for tabs and ends of lines."""


def printable(text: str) -> str:
    """Return a text from outside such that a terminal only shows it.

    Escape sequences are left out; other control characters are written as in a Python string.
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], _ESCAPE_SEQUENCE.sub("", text))


class _StdoutHandler(logging.Handler):
    """Prints to whatever `sys.stdout` is at that moment: progress bars and tests replace it.

    A record may quote a player, so control characters are not printed as such.

    Where that is a full disk or a closed pipe, lines are lost; standard error says so once.
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

    The first call for a package gives the package's own logger our format and level; the
    loggers below inherit them.
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
    """Begin all lines with the part of the program that they come from; empty for none."""
    _handler.origin = origin


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Drop what is printed in the `with` block once its reader is gone, as after `| head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would be an error again when Python ends.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
