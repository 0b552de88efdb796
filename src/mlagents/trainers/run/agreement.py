"""`Agreement`: several learners of a run learn and end together, and keep the same weights."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.process_group import LearnerError, ProcessGroup
from mlagents.trainers.learning.trainer import Report, Trainer
from mlagents.trainers.reporting.stats import StatsReporter
from mlagents.trainers.run.interrupt import Interrupted
from mlagents.trainers.run.learners import require_shareable
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.sharding import ALONE, Shards
from mlagents_envs.base_env import BehaviorName, BehaviorSpec
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class Agreement:
    """This learner of a run, and what it agrees on with the others.

    All learners call the same methods in the same order. A single learner agrees with itself.

    Args:
        group: All learners of the run; None for a single learner.

    Attributes:
        is_alone: Whether there is a single learner.
        is_first: Whether this learner is the first, which alone evaluates, reports and saves.
        has_met: Whether the learners have exchanged their reports in this step.
    """

    def __init__(self, group: ProcessGroup | None) -> None:
        self._group = group
        self.is_alone = group is None
        self.is_first = group is None or group.rank == 0
        self.has_met = group is None
        self._is_ending = False
        self._has_warned_of_drift = False

    def shards(self) -> Shards:
        """Return the communication of another behavior's learners."""
        return ALONE if self._group is None else self._group.shards()

    def of_first(self, message: Any) -> Any:
        """Return the first learner's message, which JSON must support."""
        return message if self._group is None else self._group.gather(message)[0]

    def behaviors(self, specs: Mapping[BehaviorName, BehaviorSpec]) -> list[BehaviorName]:
        """Return the behaviors of the environment, which must be the same for all learners.

        Raises:
            LearnerError: They differ.
        """
        if self._group is None:
            return list(specs)
        listed = {name: repr(specs[name]) for name in sorted(specs)}
        self._group.require_same(
            "behaviors",
            ", ".join(f"{name} {spec}" for name, spec in listed.items()) or "none",
            remedy="Give all learners the same environment.",
        )
        return list(listed)

    def require_shareable(self, name: str, settings: BehaviorSettings, *, has_begun: bool) -> None:
        """Raise if several learners cannot learn a behavior together.

        Args:
            name: Name of the behavior.
            settings: Settings of the behavior.
            has_begun: Whether the first step was made before the behavior appeared.

        Raises:
            UnityTrainerException: They cannot.
        """
        if self._group is None:
            return
        require_shareable(f"behaviors.{name}", settings, self._group.size)
        if has_begun:
            raise UnityTrainerException(
                f"behavior {name!r} appeared after the first step. Several learners need all "
                "behaviors at the start: create an agent of each behavior, or use one learner."
            )

    def synchronize(self, trainer: Trainer, resumed_at: int | None) -> int | None:
        """Give all learners the weights and counts of the first, before the first step.

        Args:
            trainer: This learner's trainer of a behavior.
            resumed_at: Step at which the behavior was resumed; None if it was not, or if this
                learner is not the first.

        Returns:
            Step at which the behavior was resumed, for all learners.
        """
        if self._group is None:
            return resumed_at
        meter = trainer.meter
        first = self.of_first(
            {
                "resumed_at": resumed_at,
                "has_learned": trainer.has_learned,
                "returns": list(meter.recent_returns),
                "group_returns": list(meter.recent_group_returns),
            }
        )
        self._take_state_of_first(self._group, trainer)
        if not self.is_first:
            trainer.has_learned = first["has_learned"]
            meter.remember(first["returns"], first["group_returns"])
        step: int | None = first["resumed_at"]
        return step

    def learn(self, trainers: Mapping[str, Trainer], after: Callable[[Trainer], object]) -> None:
        """Process the steps of the agents, and learn if it is time.

        A learner meets the others when it has its share of the experience for an update.

        Args:
            trainers: This learner's trainers, by behavior.
            after: Function called with each trainer that may have learned.

        Raises:
            Interrupted: Another learner was interrupted.
            UnityCommunicatorStoppedException: The environment of a learner ended the session.
            LearnerError: Another learner has failed.
        """
        group = self._group
        if group is None:
            for trainer in trainers.values():
                trainer.advance()
                after(trainer)
            return
        is_due = [trainer.observe() and trainer.is_learning for trainer in trainers.values()]
        self.has_met = any(is_due)
        if not self.has_met:
            return

        def exchange(report: Report) -> list[Report]:
            return [Report(*each) for each in group.gather(report)]

        in_order = sorted(trainers.items())
        reports = {name: trainer.report() for name, trainer in in_order}
        messages = self._exchange(group, {"reports": reports})
        for name, trainer in in_order:
            trainer.learn_with([Report(*each["reports"][name]) for each in messages], exchange)
            after(trainer)

    def follow_first(self, decided: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the decisions of the first learner.

        Args:
            decided: This learner's decisions, which JSON must support.
        """
        if self._group is None:
            return decided
        first: Mapping[str, Any] = self._exchange(self._group, {"decided": decided})[0]["decided"]
        return first

    def gather_statistics(self, stats: StatsReporter) -> None:
        """Add the statistics of the other learners to the first learner's."""
        if self._group is None:
            return
        _, *others = self._group.gather(None if self.is_first else stats.drain())
        for drained in others if self.is_first else ():
            stats.add_drained(drained)

    def equalize(self, trainer: Trainer) -> None:
        """Give all learners the weights of the first if they differ."""
        group = self._group
        if group is None or len(set(group.gather(trainer.learner.digest()))) == 1:
            return
        # Processors of different kinds may round the last bit of a weight differently.
        if not self._has_warned_of_drift:
            self._has_warned_of_drift = True
            logger.warning(
                f"{trainer.name}: the learners' weights differ at step {trainer.step}, because "
                "their processors round differently. All continue with the weights of learner 0."
            )
        self._take_state_of_first(group, trainer)

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Make one step. If one learner is interrupted or loses its environment, all end.

        Raises:
            LearnerError: Another learner has failed.
        """
        group = self._group
        if group is None:
            yield
            return
        group.check()
        try:
            yield
        except Interrupted:
            if not self._is_ending:
                self._exchange(group, {}, ends="interrupted")
            raise
        except UnityCommunicatorStoppedException as error:
            if not self._is_ending:
                self._exchange(group, {}, ends=f"stopped: {error}")
            raise

    def leave(self, error: BaseException, trainers: Mapping[str, Trainer]) -> None:
        """Tell the other learners why this one ends, unless all have agreed to end."""
        if self._group is None or self._is_ending:
            return
        self._group.leave(str(error) or type(error).__name__)
        for trainer in trainers.values():
            with suppress(LearnerError, UnityTrainerException):
                trainer.learner.settle()

    def _exchange(
        self, group: ProcessGroup, message: Mapping[str, object], *, ends: str | None = None
    ) -> list[Any]:
        """Return the messages of all learners; raise if one of them has to end.

        Args:
            group: All learners.
            message: This learner's message.
            ends: Reason why this learner, and therefore all learners, must end.
        """
        with hierarchical_timer("wait_for_learners"):
            messages = group.gather({**message, "ends": ends})
        self._is_ending = any(each["ends"] for each in messages)
        for each in messages:
            if each["ends"] == "interrupted":
                raise Interrupted
            if each["ends"]:
                raise UnityCommunicatorStoppedException(each["ends"].partition(": ")[2])
        return messages

    def _take_state_of_first(self, group: ProcessGroup, trainer: Trainer) -> None:
        state = group.broadcast(trainer.state())
        if not self.is_first:
            trainer.load_state(state)
            trainer.reseed()
