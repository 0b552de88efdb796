"""Ends a run in good order when it is told to: Ctrl-C, SIGTERM, or its terminal was closed."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

_STDERR = 2
_CLEAR_LINE = b"\r\x1b[2K"
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, _HANGUP)))


class Interrupted(BaseException):
    """The run was told to end while it waited.

    Not an `Exception`, so that nothing it passes takes it for an error of its own.
    """


class Interrupt:
    """Two ways to end, while it is entered.

    The first signal is only noted, so that a step or an update that has begun is finished; it
    raises `Interrupted` where the run waits for others, or as soon as it does. A second signal
    raises `KeyboardInterrupt` wherever the run is: it ends at once, and nothing more is saved.
    A hangup is never the second: a closing terminal sends several. Where it is ignored, as under
    `nohup`, it stays so.

    Only the main thread of a process gets signals: entered in another one, it does nothing.

    Attributes:
        is_below_table: Whether the cursor stands in the empty last line of a table, which is drawn
            over: what the first signal says then stays in that line.
    """

    def __init__(self) -> None:
        self.is_below_table = False
        self._is_requested = False
        self._is_waiting = False
        self._handlers_before: dict[signal.Signals, Any] = {}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark a block that may take long and may be interrupted.

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
        with suppress(OSError):  # not print: the signal may have come in the middle of one
            says = b"Finishing what has begun; interrupt again to stop at once."
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        self._handlers_before = {}
