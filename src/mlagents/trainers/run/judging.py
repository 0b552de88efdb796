"""`Judge`: evaluates the policies of a run when due, keeps the best, and ends training."""

from collections.abc import Mapping

from mlagents.playing.tally import Score
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.reporting.stats import (
    EVALUATED_LENGTH,
    EVALUATED_REWARD,
    EVALUATION_ERROR,
)
from mlagents.trainers.run.checkpoints import CheckpointStore
from mlagents.trainers.run.curriculum import Curriculum
from mlagents.trainers.run.evaluation import Evaluator, judged, why_over, with_error
from mlagents.trainers.run.saving import Saver
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class Judge:
    """Decides by evaluations which policy is the best, and whether training ends.

    Args:
        evaluator: Evaluator of the run; the judge closes it.
        curriculum: Lessons of the run. Evaluations in different lessons are not compared.
        store: Checkpoints of the run, with the best evaluation of each behavior.
        saver: Saver of the run, which writes the best policies.

    Attributes:
        due_at: Step of the next evaluation of each behavior. Other learners copy the first one's.
    """

    def __init__(
        self, evaluator: Evaluator, curriculum: Curriculum, store: CheckpointStore, saver: Saver
    ) -> None:
        self.due_at: dict[str, int] = {}
        self._evaluator = evaluator
        self._settings = evaluator.settings
        self._curriculum = curriculum
        self._store = store
        self._saver = saver

    def begin(self, name: str, step: int) -> None:
        """Schedule the first evaluation of a behavior, given its step count at the beginning."""
        every = self._settings.every
        self.due_at[name] = (step // every + 1) * every

    def is_due(self, trainers: Mapping[str, Trainer]) -> bool:
        """Return whether an evaluation of any behavior that learns is due."""
        return any(
            trainer.step >= self.due_at[name] and trainer.was_learning
            for name, trainer in trainers.items()
        )

    def evaluate(self, trainers: Mapping[str, Trainer]) -> dict[str, Score]:
        """Evaluate all behaviors together, save the best policies, and end training where due.

        Args:
            trainers: Trainers of the behaviors, by name.

        Returns:
            Score of each behavior with finished episodes, by name; empty if the players failed.
        """
        lessons = self._curriculum.lesson_numbers
        self._schedule_next(trainers)
        scores = self._evaluator.evaluate(trainers, self._curriculum.parameters)
        for name, score in scores.items():
            trainer = trainers[name]
            step = trainer.step
            best = judged(self._store.best(name), score, step=step, lessons=lessons)
            numbers = {EVALUATED_REWARD: score.mean, EVALUATION_ERROR: score.error}
            trainer.stats.write_now(numbers | {EVALUATED_LENGTH: score.length}, step)
            compared = "the best so far"
            if best.n_since:
                compared = f"the best was {best.reward:.3f} at step {best.step}"
            logger.info(
                f"{name}. Step: {step}. Evaluation: {with_error(score.mean, score.error)}, mean of "
                f"{score.n_episodes} episodes; {compared}."
            )
            self._saver.record_evaluation(trainer, best)
            self.end_if_over(trainer)
        return scores

    def end_if_over(self, trainer: Trainer) -> None:
        """End the training of a behavior if its evaluations require it, in the last lessons."""
        best = self._store.best(trainer.name)
        if best is None or not (trainer.is_learning and self._curriculum.is_in_last_lessons):
            return
        by = why_over(self._settings, best)
        if by is not None and best.lessons == self._curriculum.lesson_numbers:
            trainer.end(by)
            logger.info(f"{trainer.name} ends at step {trainer.step} ({by}).")

    def close(self) -> None:
        """Close the players of evaluations. Calling it again does nothing."""
        self._evaluator.close()

    def _schedule_next(self, trainers: Mapping[str, Trainer]) -> None:
        """Schedule the evaluations that follow one that is about to begin."""
        every = self._settings.every
        for name, trainer in trainers.items():
            if trainer.step >= self.due_at[name]:
                self.begin(name, trainer.step)
            elif self.due_at[name] - trainer.step < every / 2:
                self.due_at[name] += every  # this evaluation replaces one that is due soon
