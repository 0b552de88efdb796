"""`Session`: the connection to one simulation and, if it was started here, its player.

The session tracks which side sends next and how long to wait. It raises the errors for a simulation
that does not answer, exits or ends the session.
"""

import contextlib
import time
from typing import NoReturn

from mlagents_envs.codec import encode_close
from mlagents_envs.communicator import Communicator, Received
from mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)
from mlagents_envs.launcher import Player

_EXIT_GRACE_S = 2.0


class Session:
    """Connection to one simulation and, if it was started here, its player.

    Args:
        communicator: Opened connection.
        timeout_s: Longest wait for a message, in seconds.

    Attributes:
        player: Player that was started, or None.
        is_agreed: Whether the handshake is complete.
    """

    def __init__(self, communicator: Communicator, *, timeout_s: float) -> None:
        self.communicator = communicator
        self.player: Player | None = None
        self.is_agreed = False
        self._timeout_s = timeout_s
        self._exit_timeout_s = 0.0  # until the handshake is complete
        self._was_polled = False
        self._hangs = False
        self._is_connected = False
        self._is_closed = False
        self._owes_answer = False
        self._end: tuple[type[UnityException], str] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the simulation sends the next message."""
        return not self._owes_answer

    def agree(self) -> None:
        """Record that the handshake is complete, so that the simulation now exits on request."""
        self.is_agreed = True
        self._exit_timeout_s = self._timeout_s

    def filenos(self) -> tuple[int, ...]:
        """Return file descriptors, one of which becomes readable when it is time to `poll`."""
        own = self.communicator.filenos()
        return own if self.player is None else (*own, self.player.fileno())

    def poll(self, deadline_s: float) -> Received | None:
        """Return the simulation's next message; None if it has not arrived.

        Raises:
            UnityTimeOutException: No message has arrived, and the deadline has passed.
        """
        self._was_polled = True
        try:
            return self._next_message(0.0)
        except UnityTimeOutException:
            if time.monotonic() < deadline_s:
                return None
            raise self._silence(self.communicator.silence(self._timeout_s)) from None

    def receive(self) -> Received:
        """Return the simulation's next message; wait for it if necessary."""
        self._was_polled = False
        try:
            return self._next_message(self._timeout_s)
        except UnityTimeOutException as error:
            raise self._silence(str(error)) from error

    def _next_message(self, timeout_s: float) -> Received:
        self._require_open()
        if self._owes_answer:
            raise UnityEnvironmentException("no step was sent: call step_send() first")
        alarm = None if self.player is None else self.player.fileno()
        try:
            message = self.communicator.receive(timeout_s, alarm=alarm)
        except UnityTimeOutException:
            raise  # it may still answer
        except UnityException as error:
            self._raise_ended(error, min(timeout_s, _EXIT_GRACE_S))
        if message is None:
            raise self._remembered(self._player_exited())
        self._hangs = False
        self._is_connected = True
        self._owes_answer = True
        return message

    def send(self, message: bytes) -> None:
        """Send the answer to the simulation's last message."""
        self._require_open()
        if not self._owes_answer:
            raise UnityEnvironmentException(
                "the simulation has not answered the last step: call step_receive() first"
            )
        self._owes_answer = False
        try:
            self.communicator.send(message)
        except UnityException as error:
            self._hangs |= isinstance(error, UnityTimeOutException)
            self._raise_ended(error, _EXIT_GRACE_S)

    def raise_explained(self, error: UnityCommunicatorStoppedException) -> NoReturn:
        """Raise the error for a message that ends the session, with the reason for the exit.

        A player that ends the session waits for the answer, then exits, and its output has the
        reason. If the message was polled, this does not wait for the exit, because the thread may
        serve other sessions.

        Args:
            error: Error of the decoder for the last message.

        Raises:
            UnityEnvironmentException: The player failed.
            UnityCommunicatorStoppedException: The player did not fail, or has not exited yet.
        """
        self._remembered(error)
        if self.player is None or self._was_polled:
            raise error
        self._answer_end()
        if not self.player.wait(_EXIT_GRACE_S):
            raise error
        exited: UnityException = self._player_exited()
        if not self.player.exit_code:
            exited = UnityCommunicatorStoppedException(f"{error}. {exited}")
        raise self._remembered(exited) from error

    def _raise_ended(self, error: UnityException, timeout_s: float) -> NoReturn:
        """Raise the error for a lost connection, or for the exit of the player."""
        is_lost = isinstance(error, UnityCommunicatorStoppedException)
        if is_lost and self.player is not None and self.player.wait(timeout_s):
            raise self._remembered(self._player_exited()) from error
        raise self._remembered(error)

    def _remembered(self, error: UnityException) -> UnityException:
        """Store the type and message of the error that ended the session, for later calls.

        The error itself is not kept: its traceback would keep the environment alive.
        """
        self._end = type(error), str(error)
        return error

    def _answer_end(self) -> None:
        """Answer the simulation's last message with the end of the session."""
        if self._owes_answer:  # the simulation waits for an answer, even if it ended the session
            self._owes_answer = False
            with contextlib.suppress(UnityException):
                self.communicator.send(encode_close())

    def close(self) -> None:
        """End the session and stop the player, if any."""
        self._is_closed = True
        self._answer_end()
        self.communicator.close()
        if self.player is not None:
            self.player.stop(0.0 if self._hangs else self._exit_timeout_s)

    def _silence(self, text: str) -> UnityTimeOutException:
        """Return the error for a missed deadline, and note that the simulation hangs."""
        self._hangs = True
        return UnityTimeOutException(text if self.is_agreed else f"{text}. {self._hint()}")

    def _hint(self) -> str:
        if self.player is None:
            return (
                "Press Play in the Unity Editor while this waits, with the Behavior Type of the "
                "agents set to Default."
            )
        return (
            f"The player {self.player.command[0]!r} is running. Its agents need the Behavior Type "
            "Default, and it must not wait for a click at its start. On a machine without a "
            f"display, pass no_graphics=True{self.player.last_words() or '.'}{self._log_hint()}"
        )

    def _log_hint(self) -> str:
        assert self.player is not None
        if self.player.log_file is not None:
            return ""
        return "\nPass log_folder to see the last lines of a Unity build's log here."

    def _require_open(self) -> None:
        if self._is_closed:
            raise UnityEnvironmentException("this environment is closed")
        if self._end is not None:
            kind, text = self._end
            raise kind(f"the session is over: {text}")

    def _player_exited(self) -> UnityEnvironmentException:
        assert self.player is not None, "only the exit of a player raises the alarm"
        when = "" if self._is_connected else " before it had connected"
        return UnityEnvironmentException(
            f"the player {self.player.command[0]!r} {self.player.exit_description(when)}"
            f"{self._log_hint()}"
        )
