"""`Saver`: writes checkpoints, models and records of a run."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.meter import N_RETURNS
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.reporting.summaries import Outcome, outcomes_in_words
from mlagents.trainers.run.checkpoints import CheckpointStore, none_if_nan
from mlagents.trainers.run.curriculum import Curriculum
from mlagents.trainers.run.evaluation import Best, with_error
from mlagents.trainers.run.fitting import shaping_settings
from mlagents.trainers.run.folder import RunFolder, try_write
from mlagents.trainers.settings.load import dump_configuration
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.logging_util import get_logger
from mlagents_envs.timers import get_timer_tree, hierarchical_timer

logger = get_logger(__name__)


class Saver:
    """Saves the results of a run. Errors of the disk are logged and do not end the run.

    Args:
        options: All settings of the run.
        folder: Folder of the run.
        store: Checkpoints of the run.
        curriculum: Lessons, saved with every checkpoint.
        league: Self-play, saved with every checkpoint.
        writes: Whether to write anything. With several learners, only the first one writes.
    """

    def __init__(
        self,
        options: RunOptions,
        folder: RunFolder,
        store: CheckpointStore,
        curriculum: Curriculum,
        league: League,
        *,
        writes: bool = True,
    ) -> None:
        self._options = options
        self._folder = folder
        self._store = store
        self._curriculum = curriculum
        self._league = league
        self._writes = writes

    def begin(self) -> None:
        """Write the first records. From now on, the folder contains a run to resume or replace."""
        if not self._writes:
            return
        try_write("the status", self._store.write_status)
        self._record_run()

    def save(self, trainer: Trainer, *, is_final: bool = False) -> bool:
        """Save a checkpoint with its model and records; return whether it was written."""
        if not self._writes:
            return True
        if trainer.learner.has_diverged:
            logger.error(
                f"{trainer.name} is not saved at step {trainer.step}: its weights are NaN or "
                "infinite. Earlier checkpoints, if any, are intact."
            )
            return False
        self._store.set_lessons(self._curriculum.state())
        with hierarchical_timer("save"):
            is_written = try_write(
                f"{trainer.name} at step {trainer.step}",
                lambda: self._store.save(
                    trainer.name,
                    step=trainer.step,
                    state=self._state(trainer),
                    model=trainer.learner.export(),
                    reward=trainer.mean_reward,
                    elo=self._league.elo(trainer.name),
                    keep=trainer.settings.keep_checkpoints,
                    is_final=is_final,
                ),
            )
            try_write(
                f"the experience of {trainer.name}",
                lambda: trainer.learner.save_experience(self._folder.experience(trainer.name)),
            )
            self._record_run()
        if is_written:
            logger.info(f"Saved {trainer.name} at step {trainer.step}.")
        return is_written

    def record_evaluation(self, trainer: Trainer, best: Best) -> None:
        """Write the result of an evaluation; save the policy if it is the best so far."""
        name, entry = trainer.name, {**best._asdict(), "error": none_if_nan(best.error)}
        if best.n_since:
            self._store.set_best(name, entry)
            try_write("the status", self._store.write_status)
        elif not trainer.learner.has_diverged:
            model, state = trainer.learner.export(), self._state(trainer)
            try_write(
                f"the best policy of {name}",
                lambda: self._store.save_best(name, entry, state=state, model=model),
            )

    def _best_in_words(self, name: str) -> str | None:
        best = self._store.best(name)
        if best is None:
            return None
        reward = with_error(best.reward, best.error)
        return f"{reward} in an evaluation at step {best.step:,}: {self._folder.best_model(name)}"

    def _state(self, trainer: Trainer) -> dict[str, Any]:
        """Return the content of a checkpoint."""
        return {
            **trainer.state(),
            "settings": shaping_settings(trainer.settings),
            "lessons": self._curriculum.lesson_numbers,
            "recent_returns": list(trainer.meter.recent_returns),
            "self_play": self._league.state(trainer.name),
            "recent_group_returns": list(trainer.meter.recent_group_returns),
        }

    def save_final(
        self, trainers: Iterable[Trainer], *, resumed_at: Mapping[str, int], started_s: float
    ) -> list[str]:
        """Save every behavior that has new steps, and log the results.

        Args:
            trainers: Trainers of all behaviors.
            resumed_at: Step at which each resumed behavior began.
            started_s: Time of `time.monotonic` at which training began.

        Returns:
            Names of the behaviors that could not be saved.
        """
        if not self._writes:
            for trainer in trainers:  # the first learner needs the others to finish its update
                trainer.learner.settle()
            return []
        unsaved: list[str] = []
        outcomes: list[Outcome] = []
        for trainer in trainers:
            if trainer.step == resumed_at.get(trainer.name, 0):
                continue  # nothing has changed since the run began
            is_saved = self.save(trainer, is_final=True)
            if not is_saved:
                unsaved.append(trainer.name)
            outcomes.append(
                Outcome(
                    trainer.name,
                    trainer.step,
                    trainer.settings.max_steps,
                    trainer.mean_reward,
                    min(len(trainer.meter.recent_returns), N_RETURNS),
                    self._folder.model(trainer.name) if is_saved else None,
                    trainer.ended_by,
                    trainer.mean_group_reward,
                    self._best_in_words(trainer.name),
                    self._options.is_offline,
                )
            )
        if outcomes:
            logger.info(outcomes_in_words(outcomes, elapsed_s=time.monotonic() - started_s))
        return unsaved

    def _record_run(self) -> None:
        """Write the current configuration and timers of the run."""
        configuration, timers = dump_configuration(self._options), get_timer_tree()
        try_write("the configuration", lambda: self._folder.write_configuration(configuration))
        try_write("the timers", lambda: self._folder.write_timers(timers))
