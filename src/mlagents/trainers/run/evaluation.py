"""`Evaluator`: measures the policies of a run in separate episodes, without learning from them."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np

from mlagents.playing.tally import Episode, Score, Tally
from mlagents.trainers.acting.memories import Memories
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Rollout, Seat, SharedSeat
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.settings.evaluation import EvaluationSettings
from mlagents.trainers.settings.parameters import Sampler
from mlagents_envs.base_env import BehaviorId, BehaviorName
from mlagents_envs.exception import UnityException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class Best(NamedTuple):
    """The best evaluation of a behavior so far.

    Attributes:
        step: Step count of the behavior at the evaluation.
        reward: Mean reward of the episodes.
        error: Standard error of the mean; NaN for a single episode.
        n_since: Number of evaluations since this one.
        lessons: Lesson of every environment parameter. When a lesson changes, the search for the
            best starts over.
    """

    step: int
    reward: float
    error: float
    n_since: int
    lessons: dict[str, int]


class Evaluator:
    """Plays episodes with the current policies in separate players.

    Args:
        settings: Settings of the evaluations.
        make_manager: Function that creates the players, called before the first evaluation.
        seed: Seed of the sampled actions.
        waiting: Function that creates the context manager entered while waiting for players.
    """

    def __init__(
        self,
        settings: EvaluationSettings,
        make_manager: Callable[[], EnvManager],
        *,
        seed: int,
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.settings = settings
        self._make_manager = make_manager
        self._seed = seed
        self._waiting = waiting
        self._manager: EnvManager | None = None

    def evaluate(
        self, trainers: Mapping[str, Trainer], parameters: Mapping[str, Sampler]
    ) -> dict[str, Score]:
        """Play episodes of all behaviors together.

        A failure of the players is logged, and the next evaluation starts new players.

        Args:
            trainers: Trainers of the behaviors, by name.
            parameters: Environment parameters of the current lessons.

        Returns:
            Score of each behavior with finished episodes, by name.
        """
        try:
            with hierarchical_timer("evaluate"):
                episodes = self._play(trainers, parameters)
        except (UnityException, UnityTrainerException, OSError) as error:
            logger.error(
                f"The evaluation failed: {error}. Training continues. The next evaluation tries "
                "again."
            )
            self.close()
            return {}
        return {name: Score.of(ended) for name, ended in episodes.items() if ended}

    def close(self) -> None:
        """Close the players, if there are any."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def _play(
        self, trainers: Mapping[str, Trainer], parameters: Mapping[str, Sampler]
    ) -> dict[str, list[Episode]]:
        seats = {name: self._seat(trainer) for name, trainer in trainers.items()}

        def seat_of(_player: int, behavior: BehaviorName) -> Seat | SharedSeat:
            name = BehaviorId.parse(behavior).name
            if name not in seats:
                raise UnityTrainerException(
                    f"the players of the evaluation have a behavior {name!r}, which the players "
                    "of training do not have yet"
                )
            return seats[name]

        if self._manager is None:
            with self._waiting():
                self._manager = self._make_manager()
        self._manager.set_parameters(parameters)
        rollout = Rollout(self._manager, seat_of, waiting=self._waiting)
        rollout.reset()
        tallies: dict[tuple[int, BehaviorName], Tally] = {}
        n_reports: dict[int, int] = {}
        n_players = min(self.settings.num_envs, self.settings.episodes)
        while True:
            for report in rollout.advance():
                player = report.player
                n_reports[player] = n_reports.get(player, 0) + 1
                for behavior, (decisions, terminals) in report.steps.items():
                    tally = tallies.get((player, behavior))
                    if tally is None:
                        share = len(range(player, self.settings.episodes, n_players))
                        tally = tallies[player, behavior] = Tally(share)
                    if report.is_new:
                        tally.restart()
                    tally.observe(decisions, terminals)
            is_complete = all(tally.is_complete for tally in tallies.values())
            if is_complete and len(n_reports) == n_players and tallies:
                break
            if max(n_reports.values(), default=0) > self.settings.most_steps:
                counted = sum(len(tally.episodes) for tally in tallies.values())
                logger.warning(
                    f"The evaluation stopped after {self.settings.most_steps} steps with {counted} "
                    "finished episodes, fewer than requested. Its mean favors short episodes. "
                    "Raise evaluation.most_steps or lower evaluation.episodes."
                )
                break
            rollout.answer()
        episodes: dict[str, list[Episode]] = {}
        for (_, behavior), tally in tallies.items():
            episodes.setdefault(BehaviorId.parse(behavior).name, []).extend(tally.episodes)
        return episodes

    def _seat(self, trainer: Trainer) -> Seat:
        snapshot = trainer.policy.snapshot
        policy = ActingPolicy(
            snapshot,
            trainer.spec.action_spec,
            deterministic=self.settings.deterministic
            or trainer.settings.network_settings.deterministic,
            rng=np.random.default_rng([self._seed, trainer.step]),
        )
        return Seat(policy, Memories(snapshot.memory_size))


def judged(best: Best | None, score: Score, *, step: int, lessons: dict[str, int]) -> Best:
    """Return the best evaluation after a new one. If the new one is the best, `n_since` is 0."""
    if best is None or best.lessons != lessons or score.mean > best.reward:
        return Best(step, score.mean, score.error, 0, lessons)
    return best._replace(n_since=best.n_since + 1)


def why_over(settings: EvaluationSettings, best: Best) -> str | None:
    """Return the setting that ends the training of a behavior; None if training continues."""
    goal, patience = settings.stop_at_reward, settings.patience
    if goal is not None and best.reward >= goal:
        return f"evaluation.stop_at_reward: {goal:g}"
    if patience is not None and best.n_since >= patience:
        return f"evaluation.patience: {patience}"
    return None


def with_error(mean: float, error: float) -> str:
    """Return a mean and its standard error as text, without the error if it is NaN."""
    return f"{mean:.3f}" if math.isnan(error) else f"{mean:.3f} ± {error:.3f}"
