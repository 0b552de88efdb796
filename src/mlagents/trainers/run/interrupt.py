"""Ends a run cleanly after Ctrl-C, after SIGTERM, or when its terminal closes."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

_STDERR = 2
_CLEAR_LINE = b"\r\x1b[2K"
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # missing on Windows
SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, _HANGUP)))


class Interrupted(BaseException):
    """A signal to end the run arrived while the run was waiting.

    It is not an `Exception`, so error handlers do not catch it.
    """


class Interrupt:
    """Context manager that handles signals to end a run.

    The first signal is only recorded, so that a step or an update in progress is finished. It
    raises `Interrupted` as soon as the run waits for its players. A second signal immediately
    raises `KeyboardInterrupt`: the run ends, and nothing more is saved.

    A hangup does not count as the second signal, because a closing terminal sends several. If
    hangups are ignored, as under `nohup`, they stay ignored.

    Only the main thread of a process receives signals. In other threads, this class does nothing.

    Attributes:
        is_below_table: Whether the cursor is in the empty last line of a table that is redrawn. The
            message of the first signal then stays in that line.
    """

    def __init__(self) -> None:
        self.is_below_table = False
        self._is_requested = False
        self._is_waiting = False
        self._handlers_before: dict[signal.Signals, Any] = {}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Context manager for a block that may take long and can be interrupted.

        Raises:
            Interrupted: The first signal arrived before or within the block.
        """
        self._is_waiting = True
        try:
            if self._is_requested:
                raise Interrupted
            yield
        finally:
            self._is_waiting = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_requested:
            if number == _HANGUP:
                return
            raise KeyboardInterrupt
        self._is_requested = True
        if self._is_waiting:
            raise Interrupted
        with suppress(OSError):  # `print` is not safe here: the signal may have interrupted it
            says = b"Finishing the current step or update; interrupt again to stop at once."
            if self.is_below_table and os.isatty(_STDERR):
                os.write(_STDERR, _CLEAR_LINE + says)
            else:
                os.write(_STDERR, says + b"\n")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._handlers_before = {
                number: signal.signal(number, self._handle)
                for number in SIGNALS
                if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN
            }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before = {}
