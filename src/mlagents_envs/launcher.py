"""Functions that find an executable, and `Player`, which starts, watches and stops it.

A player is a simulation in its own process: a Unity build, or any other program that accepts the
same arguments and connects to the trainer.
"""

import contextlib
import copy
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
from mlagents_envs.suggestions import did_you_mean

LAST_LINES = ". The last lines it wrote:\n"
"""Text between a player's exit and its output in an error."""

_SUFFIXES = (".app", ".exe", ".x86_64", ".x86")
_TAIL_BYTES = 4096
_TAIL_LINES = 20
_READ_BYTES = 65536
_TERMINATE_TIMEOUT_S = 3.0
_KILL_TIMEOUT_S = 3.0
_MOMENT_S = 1.0


def find_executable(name: str, *, platform: str = sys.platform) -> Path:
    """Return the path of a build's executable.

    Args:
        name: Path of the build, with or without the platform's suffix. A program that was
            installed with this Python, such as `mlagents-sim`, needs no path.
        platform: Platform of the build, as in `sys.platform`.

    Raises:
        UnityEnvironmentException: The executable does not exist or may not be executed.
    """
    candidates = _candidates(name.strip(), platform)
    found = next((path for path in candidates if path.is_file()), None)
    if found is None and (program := _installed_program(name.strip())):
        found = Path(program)
    if found is None:
        raise UnityEnvironmentException(_explain_missing(name.strip(), candidates))
    if not os.access(found, os.X_OK):
        raise UnityEnvironmentException(
            f"{found} is not executable; make it executable with: chmod +x '{found}'"
        )
    return found.absolute()


def _installed_program(name: str) -> str | None:
    return find_program(name) if Path(name).name == name else None


def _candidates(name: str, platform: str) -> list[Path]:
    """Return the paths to try, in order of preference."""
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
        hint = f" It contains {', '.join(inside[:5])}." if inside else ""
        return f"{name!r} is a folder, not an executable; {looked_for}.{hint}"
    here = "" if path.is_absolute() else f" The current folder is {Path.cwd()}."
    remedy = f"Check the path.{here}"
    if not path.parent.is_dir():
        folder = str(path.parent)
        return (
            f"cannot find the executable {name!r}: the folder {folder!r} does not exist. {remedy}"
        )
    neighbors = sorted(file.name for file in path.parent.iterdir())
    near = did_you_mean(path.name, neighbors, n=3, cutoff=0.5)
    return f"cannot find the executable {name!r}; {looked_for}{near or '.'} {remedy}"


def player_log_file(log_folder: str, worker_id: int) -> str:
    """Return the path of a player's log; create its folder, because a Unity build does not.

    Raises:
        UnityEnvironmentException: The folder cannot be created.
    """
    try:
        os.makedirs(log_folder, exist_ok=True)
    except OSError as error:
        raise UnityEnvironmentException(
            f"cannot create the log folder: {error}. Choose a folder that you may write to."
        ) from error
    return os.path.abspath(os.path.join(log_folder, f"Player-{worker_id}.log"))


def player_arguments(
    port: int,
    *,
    no_graphics: bool = False,
    log_file: str | None = None,
    additional: Sequence[str] = (),
) -> list[str]:
    """Return a player's command-line arguments, in the order of the original package.

    Args:
        port: Port at which the trainer listens.
        no_graphics: Whether to run without a window and a graphics card.
        log_file: Path of the player's log; a `-logFile` in `additional` takes precedence.
        additional: Arguments given by the user.
    """
    arguments = ["-nographics", "-batchmode"] if no_graphics else []
    arguments += ["--mlagents-port", str(port)]
    if log_file and not any(argument.lower() == "-logfile" for argument in additional):
        arguments += ["-logFile", log_file]
    return [*arguments, *additional]


def log_file_of(arguments: Sequence[str]) -> str | None:
    """Return the log file that these player arguments name; None if they name none.

    A `-` stands for standard output.
    """
    flags = [argument.lower() for argument in arguments[:-1]]
    return arguments[flags.index("-logfile") + 1] if "-logfile" in flags else None


def start_process(command: Sequence[str], *, output: int) -> "subprocess.Popen[bytes]":
    """Start a process in a new session.

    Args:
        command: Executable and arguments.
        output: Target of standard output and standard error, as in `subprocess.Popen`.

    Raises:
        UnityEnvironmentException: The process cannot be started.
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
            f"{command[0]} cannot be started ({error}). Check that it is a build for this platform."
        ) from error


def _show(lines: Sequence[bytes]) -> None:
    """Print a player's output, without control characters."""
    with contextlib.suppress(OSError, ValueError):  # standard output is closed
        for line in lines:
            print(printable(line.decode(errors="replace").rstrip("\r")), flush=True)


class Player:
    """Player process, which the constructor starts.

    The process runs in a new session, so Ctrl-C in the terminal does not reach it, and its child
    processes end with it.

    Args:
        command: Executable and arguments.
        show_output: Whether to print the player's output line by line. Its last lines are kept for
            `exit_description` in any case.

    Attributes:
        command: Executable and arguments.
        log_file: Log file that the arguments name, or None; see `log_file_of`.

    Raises:
        UnityEnvironmentException: The process cannot be started.
    """

    def __init__(self, command: Sequence[str], *, show_output: bool = False) -> None:
        self.command = list(command)
        self.log_file = log_file_of(self.command)
        self._started_at_s = time.time()
        self._process = start_process(self.command, output=subprocess.PIPE)
        self._shows_output = show_output
        self._output_tail = bytearray()
        self._exited = threading.Event()
        self._wakeup_r, self._wakeup_w = socket.socketpair()
        self._holders = {self}  # handles that are not stopped yet
        self._reader = threading.Thread(target=self._keep_output_tail, daemon=True)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._reader.start()
        self._watcher.start()

    def share(self) -> "Player":
        """Return another handle of the same process, with its own file descriptor.

        The process ends when all handles are stopped, or when one is stopped with timeout 0, which
        is how the caller ends a player that hangs.
        """
        other = copy.copy(self)
        other._wakeup_r = self._wakeup_r.dup()
        self._holders.add(other)
        return other

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when the player has exited."""
        return self._wakeup_r.fileno()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for the player to exit; return whether it has."""
        return self._exited.wait(timeout_s)

    @property
    def exit_code(self) -> int | None:
        """Exit code; the negated signal number if a signal killed it; None while it runs."""
        return self._process.returncode

    def exit_description(self, when: str = "") -> str:
        """Return the player's exit and its last output, for an error message.

        Args:
            when: Text after the exit, as in "exited with code 3 before it had connected".
        """
        code = self.exit_code
        if code is None:
            return "is still running"
        how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        return f"{how}{when}{self.last_words() or ', and wrote nothing'}"

    def last_words(self) -> str:
        """Return the player's last lines, to append to an error; empty if there are none."""
        tail = self._tail()
        return f"{LAST_LINES}{tail}" if tail else ""

    def stop(self, timeout_s: float) -> None:
        """End the player and its child processes, unless other handles remain.

        If other handles remain, this only waits for up to a second. A handle is often stopped
        because the player is exiting, and an error can then include the exit.

        Args:
            timeout_s: Seconds that the player may take to exit by itself. After that it is
                terminated, then killed. 0 ends it for all handles.
        """
        self._holders.discard(self)
        if self._holders and timeout_s > 0:
            self._wakeup_r.close()
            self.wait(min(timeout_s, _MOMENT_S))
            return
        try:
            self.wait(timeout_s)
        finally:  # even if Ctrl-C interrupts the wait
            if not self.wait(0):
                self._end(by_force=False)
                if not self.wait(_TERMINATE_TIMEOUT_S):
                    self._end(by_force=True)
                    self.wait(_KILL_TIMEOUT_S)
            self._wakeup_r.close()
            if self.wait(0):  # then the threads end too and close their files
                self._watcher.join(_KILL_TIMEOUT_S)
                self._reader.join(_KILL_TIMEOUT_S)

    def _watch(self) -> None:
        self._process.wait()
        self._end(by_force=True)  # child processes that are still running
        self._exited.set()
        self._wakeup_w.close()

    def _end(self, *, by_force: bool) -> None:
        """Terminate all processes of the player's session; with `by_force`, kill them."""
        if sys.platform == "win32":
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL if by_force else signal.SIGTERM)

    def _keep_output_tail(self) -> None:
        """Read all output, so that the player never blocks on it, and keep the last part."""
        assert self._process.stdout is not None
        unfinished = b""
        with self._process.stdout as output:
            while chunk := os.read(output.fileno(), _READ_BYTES):
                self._output_tail += chunk
                del self._output_tail[:-_TAIL_BYTES]
                if self._shows_output:
                    *lines, unfinished = (unfinished + chunk).split(b"\n")
                    if len(unfinished) > _READ_BYTES:
                        lines, unfinished = [*lines, unfinished], b""
                    _show(lines)
        if unfinished:
            _show([unfinished])

    def _tail(self) -> str:
        """Return the last lines of the player's log file, or of its output if there is none."""
        if self.exit_code is not None:
            self._reader.join(_KILL_TIMEOUT_S)
        tail = self._log_tail() or bytes(self._output_tail)
        lines = tail.decode(errors="replace").strip().splitlines()
        return "\n".join(f"    {printable(line)}" for line in lines[-_TAIL_LINES:])

    def _log_tail(self) -> bytes:
        try:
            with open(self.log_file or os.devnull, "rb") as log:
                if os.fstat(log.fileno()).st_mtime < self._started_at_s - 1:  # from an earlier run
                    return b""
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read()
        except OSError:
            return b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
