"""A terminal to run programs in: what stands on its screen in the end, and which lines wrapped."""

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[(\?)?([\d;]*)([A-Za-z])")


class Screen:
    """All lines that were ever shown; it understands what rich and our programs send.

    Args:
        width: Columns.

    Attributes:
        wrapped: The lines that were too long for one row, as far as they stand there.
    """

    def __init__(self, width: int) -> None:
        self.wrapped: set[int] = set()
        self._width = width
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    def show(self, text: str) -> None:
        position = 0
        while position < len(text):
            if control := _CONTROL.match(text, position):
                if not control[1]:
                    self._control(control[3], int(control[2].partition(";")[0] or 1))
                position = control.end()
                continue
            self._put(text[position])
            position += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down()
        elif character >= " ":
            if self._column == self._width:
                self.wrapped.add(self._row)
                self._column = 0
                self._down()
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = character
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _control(self, letter: str, number: int) -> None:
        if letter == "A":
            self._row = max(self._row - number, 0)
        elif letter == "K":
            row = self._rows[self._row]
            del row[0 if number == 2 else self._column :]
            self.wrapped.discard(self._row)

    @property
    def lines(self) -> list[str]:
        """What stands there, without blanks at the ends."""
        return ["".join(row).rstrip() for row in self._rows]


class Session:
    """A program in a terminal of its own.

    Args:
        command: What to run.
        width: Columns of the terminal.
        cwd: The folder it runs in.
        env: All its environment variables.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        width: int = 100,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        import fcntl
        import struct
        import termios

        self.screen = Screen(width)
        self.output = ""
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        attributes = termios.tcgetattr(theirs)
        attributes[3] |= termios.NOFLSH  # otherwise, Ctrl-C discards output that is not yet read
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)

        def own_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**(os.environ if env is None else env), "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=own_terminal,
        )
        os.close(theirs)

    def wait_for(self, text: str, *, timeout_s: float = 120.0) -> None:
        """Read until the program has shown `text`, counted from the last wait."""
        seen = len(self.output)
        while text not in self.output[seen:]:
            assert self._read(timeout_s), f"ended without {text!r}:\n{self.output}"

    def type(self, keys: bytes) -> None:
        """Type keys; b"\\x03" is Ctrl-C."""
        os.write(self._terminal, keys)

    def end(self, *, timeout_s: float = 120.0) -> int:
        """Read until the program ends; return its exit status."""
        deadline = time.monotonic() + timeout_s
        while self._read(deadline - time.monotonic()):
            pass
        os.close(self._terminal)
        return self.process.wait(timeout_s)

    def _read(self, timeout_s: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(timeout_s, 0.0))
        assert ready, f"nothing came for {timeout_s} s:\n{self.output}"
        try:
            read = os.read(self._terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        text = read.decode(errors="replace")
        self.output += text
        self.screen.show(text)
        return bool(read)
