"""Finds, starts, watches and stops a player.

A player is a simulation in a process of its own: a Unity build, or anything else that takes the
same arguments and calls the trainer (wire protocol, section 2.3).
"""

import contextlib
import difflib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from mlagents_envs.exception import UnityEnvironmentException
from mlagents_envs.logging_util import printable
from mlagents_envs.programs import find_program

LAST_LINES = ". The last lines it wrote:\n"
"""What leads, in an error, from how a player ended to its output."""

_SUFFIXES = (".app", ".exe", ".x86_64", ".x86")
_TAIL_BYTES = 4096
_TAIL_LINES = 20
_READ_BYTES = 65536
_TERMINATE_TIMEOUT_S = 3.0
_KILL_TIMEOUT_S = 3.0
_MOMENT_S = 1.0


def find_executable(name: str, *, platform: str = sys.platform) -> Path:
    """Find the executable of a build.

    Args:
        name: Its path, with or without the suffix that builds have on the platform. A program that
            was installed with this Python, such as `mlagents-sim`, needs no path.
        platform: As in `sys.platform`.

    Raises:
        UnityEnvironmentException: There is none, or it may not be executed.
    """
    candidates = _candidates(name.strip(), platform)
    found = next((path for path in candidates if path.is_file()), None)
    if found is None and (program := _installed_program(name.strip())):
        found = Path(program)
    if found is None:
        raise UnityEnvironmentException(_explain_missing(name.strip(), candidates))
    if not os.access(found, os.X_OK):
        raise UnityEnvironmentException(
            f"{found} may not be executed; allow it with: chmod +x '{found}'"
        )
    return found.absolute()


def _installed_program(name: str) -> str | None:
    return find_program(name) if Path(name).name == name else None


def _candidates(name: str, platform: str) -> list[Path]:
    """Return the files that could be meant, the best first."""
    base = next((name.removesuffix(end) for end in _SUFFIXES if name.endswith(end)), name)
    path = Path(base)
    as_given = [Path(name)] if name != base else []
    if platform == "darwin":
        programs = Path(f"{base}.app", "Contents", "MacOS")
        return [*as_given, programs / path.name, *sorted(programs.glob("*")), path]
    if platform == "win32":
        programs_in_folder = [
            file
            for file in sorted(path.glob("*.exe"))
            if not file.name.startswith("UnityCrashHandler")
        ]
        return [*as_given, Path(f"{base}.exe"), *programs_in_folder]
    return [*as_given, Path(f"{base}.x86_64"), Path(f"{base}.x86"), path]


def _explain_missing(name: str, candidates: Sequence[Path]) -> str:
    looked_for = "looked for " + ", ".join(str(path) for path in dict.fromkeys(candidates))
    path = Path(name)
    if path.is_dir():
        inside = [file.name for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES]
        hint = f" In it are: {', '.join(inside[:5])}." if inside else ""
        return f"{name!r} is a folder, not an executable; {looked_for}.{hint}"
    if not path.parent.is_dir():
        return f"no executable {name!r}: the folder {str(path.parent)!r} does not exist"
    neighbours = sorted(file.name for file in path.parent.iterdir())
    near = difflib.get_close_matches(path.name, neighbours, cutoff=0.5)
    hint = f" Similar names there: {', '.join(near)}." if near else ""
    return f"no executable {name!r}; {looked_for}.{hint}"


def player_log_file(log_folder: str, worker_id: int) -> str:
    """Return the path of a player's log; its folder is made, for a Unity build makes none.

    Raises:
        UnityEnvironmentException: It cannot be made.
    """
    try:
        os.makedirs(log_folder, exist_ok=True)
    except OSError as error:
        raise UnityEnvironmentException(f"there can be no folder for logs: {error}") from error
    return os.path.abspath(os.path.join(log_folder, f"Player-{worker_id}.log"))


def player_arguments(
    port: int,
    *,
    no_graphics: bool = False,
    log_file: str | None = None,
    additional: Sequence[str] = (),
) -> list[str]:
    """Return what a player is started with, in the order of wire protocol, section 2.3.

    Args:
        port: Where the trainer listens.
        no_graphics: Whether to do without window and graphics card.
        log_file: Where it writes its log; a `-logFile` among `additional` wins.
        additional: Arguments of the user.
    """
    arguments = ["-nographics", "-batchmode"] if no_graphics else []
    arguments += ["--mlagents-port", str(port)]
    if log_file and not any(argument.lower() == "-logfile" for argument in additional):
        arguments += ["-logFile", log_file]
    return [*arguments, *additional]


def log_file_of(arguments: Sequence[str]) -> str | None:
    """Return where a player that is started with these arguments writes its log, if they say so.

    A `-` is its standard output.
    """
    flags = [argument.lower() for argument in arguments[:-1]]
    return arguments[flags.index("-logfile") + 1] if "-logfile" in flags else None


def start_process(command: Sequence[str], *, output: int) -> "subprocess.Popen[bytes]":
    """Start a process that begins a session of its own.

    Args:
        command: Executable and arguments.
        output: Where both of its outputs go, as `subprocess.Popen` names it.

    Raises:
        UnityEnvironmentException: It cannot be started.
    """
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise UnityEnvironmentException(
            f"{command[0]} cannot be started ({error}). Is it a build for this platform?"
        ) from error


def _show(lines: Sequence[bytes]) -> None:
    """Print what a player wrote, without what would make the terminal act."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads our output any more
        for line in lines:
            print(printable(line.decode(errors="replace").rstrip("\r")), flush=True)


class Player:
    """A running player; making this object starts it.

    Its process begins a session of its own: Ctrl-C in the terminal does not reach it, and what it
    starts itself ends with it.

    Args:
        command: Executable and arguments.
        show_output: Whether what it writes is shown on our standard output, line by line. Its last
            lines are kept for `exit_description` in any case.

    Attributes:
        command: As given.
        log_file: Where it writes its log, if its arguments say so; see `log_file_of`.

    Raises:
        UnityEnvironmentException: It cannot be started.
    """

    def __init__(self, command: Sequence[str], *, show_output: bool = False) -> None:
        self.command = list(command)
        self.log_file = log_file_of(self.command)
        self._started_at_s = time.time()
        self._process = start_process(self.command, output=subprocess.PIPE)
        self._shows_output = show_output
        self._output_tail = b""
        self._exited = threading.Event()
        self._wakeup_r, self._wakeup_w = socket.socketpair()
        self._reader = threading.Thread(target=self._keep_output_tail, daemon=True)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._reader.start()
        self._watcher.start()

    def fileno(self) -> int:
        """File descriptor that becomes readable when the player has exited."""
        return self._wakeup_r.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the player to exit; return whether it has."""
        return self._exited.wait(timeout_s)

    @property
    def exit_code(self) -> int | None:
        """Its exit status, negative the number of the signal that killed it; None while it runs."""
        return self._process.returncode

    def exit_description(self, when: str = "") -> str:
        """Say how the player ended and what it wrote last, for an error message.

        Args:
            when: Follows the first words, as in "exited with code 3 before it had connected".
        """
        code = self.exit_code
        if code is None:
            return "is still running"
        how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        return f"{how}{when}{self.last_words() or ', and wrote nothing'}"

    def last_words(self) -> str:
        """Return a sentence with the last lines it wrote, to go on with; empty without any."""
        tail = self._tail()
        return f"{LAST_LINES}{tail}" if tail else ""

    def stop(self, timeout_s: float) -> None:
        """Make sure that the player has ended, with all it started.

        Args:
            timeout_s: How long it may take to exit on its own before it is told to, then made to.
        """
        try:
            self.wait(timeout_s)
        finally:  # also when Ctrl-C cuts the wait short
            if not self.wait(0):
                self._end(by_force=False)
                if not self.wait(_TERMINATE_TIMEOUT_S):
                    self._end(by_force=True)
                    self.wait(_KILL_TIMEOUT_S)
            self._wakeup_r.close()
            if self.wait(0):  # then the threads end too, and what they hold is closed
                self._watcher.join(_KILL_TIMEOUT_S)
                self._reader.join(_KILL_TIMEOUT_S)

    def _watch(self) -> None:
        self._process.wait()
        self._end(by_force=True)  # what it started and left behind
        self._exited.set()
        self._wakeup_w.close()

    def _end(self, *, by_force: bool) -> None:
        """Tell, or make, all processes of the player's session end."""
        if sys.platform == "win32":
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL if by_force else signal.SIGTERM)

    def _keep_output_tail(self) -> None:
        """Read all the player prints, so that it never waits for us, and keep the end of it."""
        assert self._process.stdout is not None
        unfinished = b""
        with self._process.stdout as output:
            while chunk := os.read(output.fileno(), _READ_BYTES):
                self._output_tail = (self._output_tail + chunk)[-_TAIL_BYTES:]
                if self._shows_output:
                    *lines, unfinished = (unfinished + chunk).split(b"\n")
                    if len(unfinished) > _READ_BYTES:
                        lines, unfinished = [*lines, unfinished], b""
                    _show(lines)
        if unfinished:
            _show([unfinished])

    def _tail(self) -> str:
        """Return the last lines of the log file if this player wrote one, else of its output."""
        if self.exit_code is not None:
            self._reader.join(_KILL_TIMEOUT_S)
        tail = self._log_tail() or self._output_tail
        lines = tail.decode(errors="replace").strip().splitlines()
        return "\n".join(f"    {printable(line)}" for line in lines[-_TAIL_LINES:])

    def _log_tail(self) -> bytes:
        try:
            with open(self.log_file or os.devnull, "rb") as log:
                if os.fstat(log.fileno()).st_mtime < self._started_at_s - 1:  # of an earlier run
                    return b""
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read()
        except OSError:
            return b""


class SharedPlayer:
    """A holder's share of a player that plays for several; to the holder, as the player itself.

    The player ends with the last who lets it go, or with the first who will not wait for its end:
    if it hangs, it hangs for all.

    Args:
        player: Running.
        holders: All who have a share; this is added.
    """

    def __init__(self, player: Player, holders: "set[SharedPlayer]") -> None:
        self.command = player.command
        self.log_file = player.log_file
        self._player = player
        self._wakeup_r = socket.socket(fileno=os.dup(player.fileno()))
        self._holders = holders
        holders.add(self)

    def fileno(self) -> int:
        """File descriptor that becomes readable when the player has exited; each has its own."""
        return self._wakeup_r.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the player to exit; return whether it has."""
        return self._player.wait(timeout_s)

    @property
    def exit_code(self) -> int | None:
        """As that of the player."""
        return self._player.exit_code

    def exit_description(self, when: str = "") -> str:
        """Say how the player ended and what it wrote last, for an error message."""
        return self._player.exit_description(when)

    def last_words(self) -> str:
        """As those of the player."""
        return self._player.last_words()

    def stop(self, timeout_s: float) -> None:
        """Let go of the player, and make sure that it has ended if nobody else holds it.

        Else this waits for a moment: who lets go of it often does so because it has just ended, and
        is to be told how.

        Args:
            timeout_s: How long it may take to exit on its own; 0 ends it for all.
        """
        self._wakeup_r.close()
        self._holders.discard(self)
        if timeout_s == 0 or not self._holders:
            self._player.stop(timeout_s)
        else:
            self._player.wait(min(timeout_s, _MOMENT_S))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
