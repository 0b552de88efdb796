"""`PlayerPool`: several players, in other processes and in this one, driven by one thread."""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto

from mlagents.trainers.players.env_manager import (
    NO_STATISTICS,
    EnvManager,
    PlayerSteps,
    send_parameters,
)
from mlagents.trainers.players.in_process import SimpleEnvManager
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import ActionTuple, BehaviorName, BehaviorSpec
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
)
from mlagents_envs.http2_socket import Selector, wait
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)

PlayerMaker = Callable[[int], UnityEnvironment]
"""Function that starts the player of a worker, numbered from 0, without waiting for it to
connect."""

_CURABLE = (
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityTimeOutException,
)
"""Errors after which a player is restarted."""

# If the pool was not called for longer than `_ABSENCE_S`, for example during an update, players get
# another `_GRACE_S` to answer before they time out.
_ABSENCE_S = 1.0
_GRACE_S = 5.0


class RestartBudget:
    """Limits on the restarts of one player.

    Args:
        max_lifetime: Largest number of restarts in the run; -1 for no limit.
        rate_limit_n: Largest number of restarts within any period; -1 for no limit.
        rate_limit_period_s: Length of the period in seconds.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self,
        *,
        max_lifetime: int,
        rate_limit_n: int,
        rate_limit_period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_lifetime = max_lifetime
        self._rate_limit_n = rate_limit_n
        self._period_s = rate_limit_period_s
        self._clock = clock
        self._recent: deque[float] = deque()
        self.n_spent = 0

    def __str__(self) -> str:
        of = "" if self._max_lifetime == -1 else f" of {self._max_lifetime}"
        return f"restart {self.n_spent}{of}"

    def spend(self) -> str | None:
        """Count a restart and return None, or return why it is refused and how to allow it."""
        now = self._clock()
        while self._recent and self._recent[0] <= now - self._period_s:
            self._recent.popleft()
        if self._max_lifetime != -1 and self.n_spent >= self._max_lifetime:
            return (
                f"it was restarted {self.n_spent} times in this run, and "
                f"max_lifetime_restarts (--max-lifetime-restarts) is {self._max_lifetime}; "
                "raise it, or set it to -1 for no limit"
            )
        if self._rate_limit_n != -1 and len(self._recent) >= self._rate_limit_n:
            return (
                f"it was restarted {len(self._recent)} times in the last {self._period_s:g} s, and "
                f"restarts_rate_limit_n (--restarts-rate-limit-n) is {self._rate_limit_n} for "
                f"restarts_rate_limit_period_s ({self._period_s:g}); raise it, or set it to -1 for "
                "no limit"
            )
        self._recent.append(now)
        self.n_spent += 1
        return None


class _Phase(Enum):
    """Phases of a player.

    CONNECTING ─► BUSY ─► DONE ─► WAITING ─► BUSY ─► ...
    any of them ─► failure: STOPPING ─► CONNECTING
    """

    STOPPING = auto()  # a thread ends its process
    CONNECTING = auto()
    BUSY = auto()  # resets or steps
    DONE = auto()  # has a report to return
    WAITING = auto()  # its report was returned, and it waits for actions


class _Player:
    """State of one worker's player, across restarts of its process.

    Attributes:
        env: Environment of the current process.
        deadline_s: Time by which the player must answer, while it connects or is busy.
        is_forgiven: Whether the deadline has already been extended after an absence.
        is_new: Whether the next report follows a reset.
        must_reset: Whether to reset the player when it answers, instead of reporting.
        has_ever_reported: Whether the player has ever reported.
        watched: File descriptors registered for the player.
        failure: Error that caused the current restart; None once the new process plays.
        stopping: Thread that ends the process.
        has_stopped: Whether the process has ended.
    """

    def __init__(self, worker: int, budget: RestartBudget) -> None:
        self.worker = worker
        self.budget = budget
        self.env: UnityEnvironment
        self.phase = _Phase.STOPPING
        self.deadline_s = 0.0
        self.is_forgiven = False
        self.is_new = True
        self.must_reset = False
        self.has_ever_reported = False
        self.watched: tuple[int, ...] = ()
        self.failure: UnityException | None = None
        self.stopping: threading.Thread | None = None
        self.has_stopped = True

    @property
    def owes_answer(self) -> bool:
        return self.phase in (_Phase.CONNECTING, _Phase.BUSY)


class PlayerPool(EnvManager):
    """N players in other processes, connected by sockets, and optionally some in this process.

    The first `reset` starts all players. After that, `receive` waits in one selector for messages
    from any player, without polling and without threads. A player that exits, disconnects, breaks
    the protocol or does not answer in time is restarted while the others continue. A thread ends
    its old process. The first report of the new process has `is_new` set.

    If a player fails before its first report, or its restart budget is spent, the error is raised.
    The caller must then close the manager.

    Args:
        make: Function that starts a player.
        n_players: Number of players in other processes.
        timeout_s: Time in seconds within which a player must connect, and answer each message.
        make_budget: Function that returns the restart budget of a player.
        here: Managers of one player each in this process. These players come first. `receive` steps
            all of them and then does not wait for the others.
    """

    def __init__(
        self,
        make: PlayerMaker,
        n_players: int,
        *,
        timeout_s: float,
        make_budget: Callable[[], RestartBudget],
        here: Sequence[SimpleEnvManager] = (),
    ) -> None:
        self._make = make
        self._timeout_s = timeout_s
        self._here = here
        workers = range(len(here), len(here) + n_players)
        self._players = [_Player(worker, make_budget()) for worker in workers]
        self._parameters: Mapping[str, Sampler] = {}
        self._specs: dict[BehaviorName, BehaviorSpec] = {}
        self._n_specs_of: dict[int, int] = {}  # number of specs known from each worker's player
        self._selector = Selector()
        self._wakeup_r, self._wakeup_w = socket.socketpair()  # signals that a process has ended
        self._wakeup_r.setblocking(False)
        self._wakeup_w.setblocking(False)
        self._selector.register(self._wakeup_r, selectors.EVENT_READ, None)
        self._has_started = False
        self._is_closed = False
        self._left_at_s = time.monotonic()

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._specs

    @property
    def shown(self) -> object:
        """Environment of the first player, for viewing; None if it plays in another process."""
        return self._here[0].shown if self._here else None

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players, with the next message to each."""
        self._parameters = {**self._parameters, **parameters}
        for manager in self._here:
            manager.set_parameters(parameters)
        if self._has_started:
            for player in self._players:
                if player.phase is not _Phase.STOPPING:
                    _send_parameters(player, parameters)

    def reset(self) -> None:
        """Reset all players; wait until each has begun its episodes or is being restarted.

        The first reset starts the players.

        Raises:
            UnityException: A player could not be started, or must not be restarted.
        """
        for worker, manager in enumerate(self._here):
            manager.reset()
            self._take_specs(worker, manager.behavior_specs)
        with hierarchical_timer("reset"):
            if not self._has_started:
                self._has_started = True
                for player in self._players:
                    self._guard(player, self._start)
                self._serve(lambda: all(p.has_ever_reported for p in self._players))
                return
            for player in self._players:
                if player.phase is _Phase.BUSY:
                    player.must_reset = True
                elif player.phase in (_Phase.DONE, _Phase.WAITING):
                    self._guard(player, self._begin_reset)
            self._serve(lambda: not any(p.phase is _Phase.BUSY for p in self._players))

    def receive(self) -> list[PlayerSteps]:
        """Wait until at least one player has a report; return all reports.

        Raises:
            UnityException: A player failed and must not be restarted.
        """
        reports = []
        for worker, manager in enumerate(self._here):
            reports += [report._replace(player=worker) for report in manager.receive()]
            self._take_specs(worker, manager.behavior_specs)
        with hierarchical_timer("env_step"):
            is_enough = bool(reports)
            self._serve(lambda: is_enough or any(p.phase is _Phase.DONE for p in self._players))
        return reports + [self._report(p) for p in self._players if p.phase is _Phase.DONE]

    def _report(self, player: _Player) -> PlayerSteps:
        player.phase = _Phase.WAITING
        is_new, player.is_new = player.is_new, False
        env = player.env
        steps = {name: env.get_steps(name) for name in env.behavior_specs}
        statistics = next(
            (c.get_and_reset_stats() for c in env.side_channels if isinstance(c, StatsSideChannel)),
            NO_STATISTICS,
        )
        return PlayerSteps(player.worker, steps, is_new, statistics)

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Send actions to a player that reported, and start its next step."""
        if player < len(self._here):
            self._here[player].send(0, actions)
        else:
            elsewhere = self._players[player - len(self._here)]
            self._guard(elsewhere, lambda p: self._begin_step(p, actions))

    def close(self) -> None:
        """Close all players at the same time. Calling it again does nothing.

        This takes as long as closing one player, which has `timeout_s` to exit on its own.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for manager in self._here:
            manager.close()
        for player in self._players:
            self._watch(player, ())
            if self._has_started and player.phase is not _Phase.STOPPING:
                self._stop(player)
        for player in self._players:
            if player.stopping is not None:
                player.stopping.join()
        self._selector.close()
        self._wakeup_r.close()
        self._wakeup_w.close()

    # Phases of a player.

    def _start(self, player: _Player) -> None:
        player.env = self._make(player.worker)
        _send_parameters(player, self._parameters)
        player.phase = _Phase.CONNECTING
        player.is_new = True
        self._n_specs_of[player.worker] = 0
        self._expect_answer(player)

    def _begin_reset(self, player: _Player) -> None:
        player.must_reset = False
        player.is_new = True
        player.env.reset_send()
        player.phase = _Phase.BUSY
        self._expect_answer(player)

    def _begin_step(self, player: _Player, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        for behavior, action in actions.items():
            player.env.set_actions(behavior, action)
        player.env.step_send()
        player.phase = _Phase.BUSY
        self._expect_answer(player)

    def _expect_answer(self, player: _Player) -> None:
        player.deadline_s = time.monotonic() + self._timeout_s
        player.is_forgiven = False
        self._watch(player, player.env.filenos())

    def _advance(self, player: _Player) -> None:
        """Process messages of a player that connects or is busy."""
        is_done = player.env.poll(player.deadline_s)
        self._watch(player, player.env.filenos())
        if not is_done:
            return
        if player.phase is _Phase.CONNECTING:
            self._begin_reset(player)
            return
        if player.must_reset:
            self._begin_reset(player)
            return
        self._take_specs(player.worker, player.env.behavior_specs)
        player.phase = _Phase.DONE
        player.has_ever_reported = True
        if player.failure is not None:
            player.failure = None
            logger.info(f"Player {player.worker} plays again.")

    def _take_specs(self, worker: int, specs: Mapping[BehaviorName, BehaviorSpec]) -> None:
        """Add the behaviors of a player; raise if another player has different specs for them."""
        if len(specs) == self._n_specs_of.get(worker):
            return
        self._n_specs_of[worker] = len(specs)
        for name, spec in specs.items():
            known = self._specs.setdefault(name, spec)
            if spec != known:
                raise UnityException(
                    f"player {worker} announced behavior {name!r} as {spec}, but it was announced "
                    f"as {known} before. All players must run the same environment."
                )

    # Failures and restarts.

    def _guard(self, player: _Player, do: Callable[[_Player], None]) -> None:
        """Call `do` with a player; stop the player if the error allows a restart."""
        try:
            do(player)
        except _CURABLE as error:
            if not player.has_ever_reported:
                logger.error(f"Player {player.worker} could not be started.")
                if (explained := _explained(player, error)) is not error:
                    raise explained from error
                raise
            self._refuse_second_wait_for_the_editor(player, error)
            player.failure = error
            self._watch(player, ())
            self._stop(player)

    def _refuse_second_wait_for_the_editor(self, player: _Player, error: UnityException) -> None:
        """Raise if the Editor left play mode and did not enter it again in time."""
        is_wait = player.phase is _Phase.CONNECTING and isinstance(error, UnityTimeOutException)
        if is_wait and player.failure is not None and player.env.player is None:
            raise player.failure

    def _stop(self, player: _Player) -> None:
        """End a player's process in a thread, which writes to the wakeup pipe when done."""

        def end() -> None:
            try:
                player.env.close()
            finally:
                player.has_stopped = True
                with contextlib.suppress(BlockingIOError):  # the pipe is full, so it is readable
                    self._wakeup_w.send(b"\0")

        player.phase = _Phase.STOPPING
        player.has_stopped = False
        # The thread is not a daemon, so the program cannot end before the process.
        player.stopping = threading.Thread(target=end)
        player.stopping.start()

    def _replace_stopped(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup_r.recv(4096)
        for player in self._players:
            if player.stopping is not None and player.has_stopped:
                player.stopping.join()
                player.stopping = None
                self._restart(player)

    def _restart(self, player: _Player) -> None:
        assert player.failure is not None, "it was stopped because it failed"
        failure = _explained(player, player.failure)
        refusal = player.budget.spend()
        if refusal:
            raise type(failure)(
                f"player {player.worker} failed and is not restarted: {refusal}. {failure}"
            ) from player.failure
        logger.warning(f"Player {player.worker} failed; {player.budget}: {failure}")
        self._guard(player, self._start)

    # Event loop.

    def _serve(self, is_enough: Callable[[], bool]) -> None:
        """Process messages and restart failed players until `is_enough` returns True."""
        self._forgive_absence()
        while not is_enough():
            deadlines_s = [player.deadline_s for player in self._players if player.owes_answer]
            self._take_in(until_s=min(deadlines_s, default=None))
        # Players that answered in the meantime are reported together with the others.
        self._take_in(until_s=0.0)
        self._left_at_s = time.monotonic()

    def _take_in(self, *, until_s: float | None) -> None:
        """Wait for an event and process it.

        Args:
            until_s: Time at which to stop waiting. None waits forever; a past time does not wait.
        """
        ready: set[_Player | None] = set()  # None for the wakeup pipe
        with contextlib.suppress(TimeoutError):
            ready = {key.data for key in wait(self._selector, until_s)}
        if None in ready:
            self._replace_stopped()
        now = time.monotonic()
        for player in self._players:
            if not player.owes_answer:
                if player in ready:  # the message is read when the player is due to answer
                    self._watch(player, ())
            elif player in ready or player.deadline_s <= now:
                self._guard(player, self._advance)

    def _forgive_absence(self) -> None:
        """Extend deadlines that passed while the manager was not called, each once."""
        now = time.monotonic()
        if now - self._left_at_s < _ABSENCE_S:
            return
        for player in self._players:
            if player.owes_answer and player.deadline_s <= now and not player.is_forgiven:
                player.is_forgiven = True
                player.deadline_s = now + min(_GRACE_S, self._timeout_s)

    def _watch(self, player: _Player, descriptors: tuple[int, ...]) -> None:
        """Register exactly these file descriptors for a player."""
        if descriptors == player.watched:
            return
        for descriptor in player.watched:
            self._selector.unregister(descriptor)
        for descriptor in descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ, player)
        player.watched = descriptors


def _send_parameters(player: _Player, parameters: Mapping[str, Sampler]) -> None:
    for channel in player.env.side_channels:
        if isinstance(channel, EnvironmentParametersChannel):
            send_parameters(channel, parameters)


def _explained(player: _Player, error: UnityException) -> UnityException:
    """Return the error. If it is only a disconnection, add how the player's process ended."""
    if not isinstance(error, UnityCommunicatorStoppedException):
        return error
    process = player.env.player
    if process is None:
        return error
    player.env.close()
    kind = UnityEnvironmentException if process.exit_code else UnityCommunicatorStoppedException
    return kind(f"{error}. The player {process.command[0]!r} {process.exit_description()}")
