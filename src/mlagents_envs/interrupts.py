"""Ctrl-C in a command that has not begun yet."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED_STATUS = 130
"""What a shell reports of a program that Ctrl-C ended."""


@contextmanager
def ends_quietly() -> Iterator[None]:
    """Let Ctrl-C within the `with` block end the program, without a traceback.

    It surrounds the imports of a command, which may take seconds.

    Raises:
        SystemExit: Ctrl-C was pressed; the status is 130.
    """
    try:
        yield
    except KeyboardInterrupt:
        print("Interrupted before it began.", file=sys.stderr)
        sys.exit(INTERRUPTED_STATUS)
