"""`RolloutWorker`: acts for the agents of some players and collects their experience.

It runs in the process of a worker. Neither this module nor its imports need torch. Torch is
imported only to unpickle a policy that is not a dense network.
"""

import logging
import pickle
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from threadpoolctl import threadpool_limits

from mlagents.trainers.acting.rollout import Rollout
from mlagents.trainers.data.snapshot import Snapshot
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fleet.messages import Cut, Gathered, Harvest, Order, Setup, Target
from mlagents.trainers.fleet.places import Places
from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.players.environments import env_manager_maker
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs import __version__
from mlagents_envs.base_env import ActionTuple, BehaviorName, BehaviorSpec
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod

Renewal = tuple[int, bytes]
"""Version of a policy, and its pickled snapshot."""

_RENEWAL_TIMEOUT_S = 60.0
_PACKAGES = ("mlagents", "mlagents_envs", "mlagents_sim")


class _NewBehavior(Exception):
    """A player has announced a behavior that the worker does not act for yet."""


class _HeldReports(EnvManager):
    """Players whose reports are held back while they contain a behavior that has no seat yet.

    Args:
        manager: Players of the worker.
        has_seat: Function that returns whether the worker acts for a behavior.
    """

    def __init__(self, manager: EnvManager, has_seat: Callable[[BehaviorName], bool]) -> None:
        self._manager = manager
        self._has_seat = has_seat
        self._held: list[PlayerSteps] = []

    @property
    def behavior_specs(self) -> Mapping[BehaviorName, BehaviorSpec]:
        """Specifications of all behaviors seen so far."""
        return self._manager.behavior_specs

    def set_parameters(self, parameters: Mapping[str, Sampler]) -> None:
        """Set environment parameters of all players."""
        self._manager.set_parameters(parameters)

    def reset(self) -> None:
        """Reset all players."""
        self._held = []
        self._manager.reset()

    def receive(self) -> list[PlayerSteps]:
        """Wait until at least one player has a report; return all reports.

        Raises:
            _NewBehavior: A behavior has no seat. A later call returns the reports.
        """
        reports, self._held = self._held or self._manager.receive(), []
        if not all(self._has_seat(name) for name in self.behavior_specs):
            self._held = reports
            raise _NewBehavior
        return reports

    def send(self, player: int, actions: Mapping[BehaviorName, ActionTuple]) -> None:
        """Send actions to a player that reported."""
        self._manager.send(player, actions)

    def close(self) -> None:
        """Close all players."""
        self._manager.close()


class RolloutWorker:
    """Players, their policies and their experience, in the process of a worker.

    Between the calls of `collect`, the players wait for an answer to their last reports. The next
    call answers them with the newest policies.

    Args:
        setup: Number of the worker and options of the run.

    Raises:
        UnityTrainerException: Another version of this package runs here.
    """

    def __init__(self, setup: Setup) -> None:
        if setup.version != __version__:
            raise UnityTrainerException(
                f"the head runs mlagents-next {setup.version}, but this node has {__version__}. "
                "Install the same version on all nodes."
            )
        self._setup = setup
        threadpool_limits(1, user_api="blas")  # as where torch acts; see `set_threads`
        for folder in setup.sources:
            if folder not in sys.path:
                sys.path.append(folder)
        self._log = _Records()
        for package in _PACKAGES:
            logger = logging.getLogger(package)
            logger.handlers[:] = [self._log]
            logger.propagate = False
            logger.setLevel(logging.DEBUG if setup.options.debug else logging.INFO)
        options = setup.options
        n_players = options.env_settings.num_envs
        make = env_manager_maker(
            options, log_folder=Path(setup.log_folder), first_worker=setup.worker * n_players
        )
        self._places = Places(setup.life)
        self._manager = _HeldReports(make(), self._places.has_seat)
        self._rollout = Rollout(self._manager, self._places.seat_of)
        self._statistics: dict[int, dict[str, list[tuple[float, StatsAggregationMethod]]]] = {}
        self._n_specs = 0
        self._asks = False
        """Whether players wait for an answer."""
        self._stops = threading.Event()
        self._mail: dict[str, Renewal] = {}
        self._has_mail = threading.Condition()

    # Other threads may call these two.

    def renew(self, renewals: Mapping[str, Renewal]) -> None:
        """Act with newer policies from the next collection on."""
        with self._has_mail:
            for name, (version, pickled) in renewals.items():
                # An older policy of a call may arrive after one that was sent later, by itself.
                if name not in self._mail or version > self._mail[name][0]:
                    self._mail[name] = version, pickled
            self._has_mail.notify_all()

    def stop(self) -> None:
        """End the current collection at the next report."""
        self._stops.set()

    def collect(self, order: Order) -> Harvest:
        """Act until a target is reached; return what was collected.

        Raises:
            UnityException: A player failed and may not be restarted.
            UnityTrainerException: A policy did not arrive, or it returns NaN.
        """
        began_s = time.perf_counter()
        if order.parameters:
            self._manager.set_parameters(order.parameters)
        if order.reset:
            self._rollout.reset()
            self._asks = False
        self._adopt(order)
        if order.targets is not None:
            self._advance_to(order.targets)
        gathered = {name: self._gathered(name, order.targets or {}) for name in self._places}
        statistics, self._statistics = self._statistics, {}
        return Harvest(
            self._new_specs(),
            gathered,
            {**statistics},
            self._log.take(),
            time.perf_counter() - began_s,
            self._places.take_news(),
            self._places.take_games(),
        )

    def take(self, name: str) -> Cut:
        """Cut and return the segments of a behavior, and the activity that cutting them adds."""
        return self._places.take(name)

    def close(self) -> None:
        """Close the players."""
        self._manager.close()

    def _advance_to(self, targets: Mapping[str, Target]) -> None:
        if self._asks:
            self._answer()
        while not self._stops.is_set():
            try:
                reports = self._rollout.advance()
            except _NewBehavior:
                return
            self._asks = True
            for report in reports:
                kept = self._statistics.setdefault(report.player, {})
                for key, values in report.statistics.items():
                    kept.setdefault(key, []).extend(values)
            self._places.note(report.player for report in reports)
            if self._places.has_reached(targets):
                return
            self._answer()

    def _answer(self) -> None:
        self._places.add_entropies(self._rollout.answer())
        self._asks = False

    def _gathered(self, name: str, targets: Mapping[str, Target]) -> Gathered:
        target = targets.get(name, Target())
        gathered = self._places.gather(name, target.ships)
        if self._places.has_enough(name, target):
            return gathered._replace(cut=self.take(name))
        return gathered

    def _new_specs(self) -> dict[BehaviorName, BehaviorSpec]:
        specs = self._manager.behavior_specs
        if len(specs) == self._n_specs:
            return {}
        self._n_specs = len(specs)
        return dict(specs)

    def _adopt(self, order: Order) -> None:
        """Begin new posts, and act with the newest policies."""
        posts = {post.name: post for post in order.posts}
        with self._has_mail:
            self._has_mail.wait_for(lambda: self._is_mailed(order), _RENEWAL_TIMEOUT_S)
            if not self._is_mailed(order):
                raise UnityTrainerException(
                    f"the policies {dict(order.versions)} did not arrive at worker "
                    f"{self._setup.worker} within {_RENEWAL_TIMEOUT_S:g} s."
                )
            known = {*self._places, *posts}
            mail = {name: self._mail.pop(name) for name in list(self._mail) if name in known}
        for name, (version, pickled) in mail.items():
            snapshot: Snapshot = pickle.loads(pickled)
            if name in posts:
                self._places.begin(posts[name], snapshot)
            self._places.renew(name, version, snapshot)
        self._places.oppose(order.opposition)
        if "torch" in sys.modules and mail:
            from mlagents.torch_utils import set_threads

            set_threads(self._setup.options.torch_settings.threads)

    def _is_mailed(self, order: Order) -> bool:
        held = self._places.versions
        held.update((name, version) for name, (version, _) in self._mail.items())
        return all(held.get(name, -1) >= version for name, version in order.versions.items())


class _Records(logging.Handler):
    """Keeps log messages until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self._kept.append((record.levelno, record.getMessage()))

    def take(self) -> list[tuple[int, str]]:
        """Return the messages since the last call."""
        kept, self._kept = self._kept, []
        return kept
