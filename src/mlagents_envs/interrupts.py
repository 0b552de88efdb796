"""Handling of Ctrl-C while a command is still being imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED_STATUS = 130
"""Exit status of a program that Ctrl-C ended, by the convention of shells."""


@contextmanager
def ends_quietly() -> Iterator[None]:
    """End the program without a traceback if Ctrl-C is pressed within the `with` block.

    Used around the imports of a command, which may take seconds.

    Raises:
        SystemExit: Ctrl-C was pressed; the status is 130.
    """
    try:
        yield
    except KeyboardInterrupt:
        print("Interrupted before the start.", file=sys.stderr)
        sys.exit(INTERRUPTED_STATUS)
