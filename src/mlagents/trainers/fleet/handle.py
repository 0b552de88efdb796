"""`WorkerHandle`: state of a worker, and its restart after its process has ended."""

from collections.abc import Mapping
from typing import Any

from mlagents.trainers.exception import TrainerError, UnityTrainerException
from mlagents.trainers.fleet.messages import Failure, Order
from mlagents.trainers.fleet.workers import Gone
from mlagents.trainers.players.pool import RestartBudget
from mlagents.trainers.settings.parameters import Sampler
from mlagents.trainers.settings.run_options import EnvironmentSettings
from mlagents_envs.exception import UnityException
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class WorkerHandle:
    """State of one worker, across restarts of its process.

    Args:
        number: Number of the worker, from 0.
        environment: Settings of its players. Their limits on restarts also apply to the worker.

    Attributes:
        number: Number of the worker, from 0.
        life: Number of its process; see `Setup.life`.
        orders: Orders that it has not answered, oldest first.
        posts: Version of the policy that was last sent to its process, for each behavior that the
            process acts for.
        snapshots: Numbers of the opponents' snapshots that its process has, by behavior.
        parameters: Environment parameters to send.
        must_reset: Whether to reset its players.
        is_new: Whether its process has not answered yet.
    """

    def __init__(self, number: int, environment: EnvironmentSettings) -> None:
        self.number = number
        self.life = number
        self.orders: list[Order] = []
        self.posts: dict[str, int] = {}
        self.snapshots: dict[str, set[int]] = {}
        self.parameters: dict[str, Sampler] = {}
        self.must_reset = True
        self.is_new = True
        self._budget = RestartBudget(
            max_lifetime=environment.max_lifetime_restarts,
            rate_limit_n=environment.restarts_rate_limit_n,
            rate_limit_period_s=environment.restarts_rate_limit_period_s,
        )

    def begin_again(self, gone: Gone, *, life: int, parameters: Mapping[str, Sampler]) -> None:
        """Prepare for the next process, and log why the last one has ended.

        Orders that the last process has not answered are dropped.

        Args:
            gone: Reply that reports the end of the process.
            life: Number of the next process.
            parameters: All environment parameters of the run.

        Raises:
            UnityTrainerException: The first process ended before it had answered, or the limit on
                restarts is reached.
        """
        what = f"the process of worker {self.number} {gone.reason}"
        if self.is_new and self.life == self.number:
            raise UnityTrainerException(
                f"{what} before it began to act. Its output above may give the cause. Try "
                "the environment without --workers."
            )
        if refusal := self._budget.spend():
            raise UnityTrainerException(f"{what} and is not restarted: {refusal}.")
        logger.warning(
            f"{what[0].upper()}{what[1:]}; {self._budget}. Steps that it had not handed over are "
            "collected again."
        )
        self.orders = []
        self.life = life
        self.posts = {}
        self.snapshots = {}
        self.parameters = dict(parameters)
        self.must_reset = True
        self.is_new = True

    def has_answered(self) -> None:
        """Record an answer; log the first one after a restart."""
        if self.is_new and self.life != self.number:
            logger.info(f"Worker {self.number} acts again.")
        self.is_new = False

    def result(self, value: Any) -> Any:
        """Return the result of a call.

        Raises:
            Exception: The call failed; the error has the worker's traceback as a note. The message
                of an error of this project begins with the worker and its node.
        """
        if isinstance(value, Failure):
            error, where = value.error, f"worker {self.number}"
            if value.node:
                where += f" on {value.node}"
            if isinstance(error, TrainerError | UnityException) and len(error.args) == 1:
                error.args = (f"{where}: {error}",)
            error.add_note(f"In {where}:\n{value.trace}")
            raise error
        return value
