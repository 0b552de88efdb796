"""One run: builds the trainers as behaviors appear, loops until they are done, saves."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mlagents.trainers.acting.rollout import Rollout, Seat
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.meter import N_RETURNS
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES, TrainerType
from mlagents.trainers.players.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.reporting.progress import ProgressTable
from mlagents.trainers.reporting.stats import (
    IS_TRAINING,
    STEP,
    StatsPropertyType,
    StatsReporter,
    StatsWriter,
)
from mlagents.trainers.reporting.summaries import (
    SAVED,
    Outcome,
    behavior_in_words,
    outcomes_in_words,
)
from mlagents.trainers.run.checkpoints import (
    CheckpointStore,
    RunFolder,
    changed_settings,
    fitted,
    initial_checkpoint,
    load_checkpoint,
    misfits,
    require_sound,
    shaping_settings,
    try_write,
)
from mlagents.trainers.run.curriculum import BehaviorProgress, Curriculum
from mlagents.trainers.run.interrupt import Interrupt, Interrupted
from mlagents.trainers.run.legacy_checkpoints import converted, is_legacy
from mlagents.trainers.run.memory import require_memory
from mlagents.trainers.settings.load import dump_configuration
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BehaviorId, BehaviorName
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
from mlagents_envs.timers import get_timer_tree, hierarchical_timer

logger = get_logger(__name__)

_CANNOT_BE_LOADED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What torch and NumPy raise for a state that is not what they saved."""


class Controller:
    """Everything between the settings of a run and its results.

    Args:
        options: Of the run, with all seeds drawn.
        manager: The players.
        folder: Where results go.
        writers: Where statistics go.
        device: Where to learn.
        interrupt: Ends the run in good order.
        trainer_types: What trains a behavior, by its `trainer_type`.
    """

    def __init__(
        self,
        options: RunOptions,
        manager: EnvManager,
        folder: RunFolder,
        *,
        writers: Sequence[StatsWriter],
        device: torch.device,
        interrupt: Interrupt,
        trainer_types: Mapping[str, TrainerType] = TRAINER_TYPES,
    ) -> None:
        self._options = options
        self._manager = manager
        self._rollout = Rollout(manager, self._seat_of, waiting=interrupt.waiting)
        self._folder = folder
        self._writers = writers
        self._device = device
        self._interrupt = interrupt
        self._trainer_types = trainer_types
        self._resume = options.checkpoint_settings.resume
        self._inference = options.checkpoint_settings.inference
        self._store = CheckpointStore(folder, resume=self._resume)
        self._curriculum = Curriculum(options.environment_parameters or {})
        self._curriculum.load_state(self._store.lessons)
        self._store.set_lessons(self._curriculum.state())
        self._progress = ProgressTable(lessons=self._curriculum.in_words, endless=self._inference)
        self._trainer_of_id: dict[BehaviorName, Trainer] = {}  # teams share a trainer
        self._resumed_at: dict[str, int] = {}
        self._started_s = time.monotonic()
        self._has_begun = False
        self.trainers: dict[str, Trainer] = {}

    def run(self) -> None:
        """Train until every behavior has its steps, or until interrupted.

        However it ends, what was learned is saved, unless a second signal ends it at once.

        Raises:
            UnityTrainerException: What was learned could not be saved at the end, or the run
                cannot go on.
        """
        try:
            self._train_and_save()
        finally:
            for trainer in self.trainers.values():
                trainer.learner.close()

    def _train_and_save(self) -> None:
        try:
            self._train()
        except Interrupted:
            logger.info("Interrupted." if self._inference else "Interrupted: saving.")
        except UnityCommunicatorStoppedException as error:
            logger.info(f"The environment ended the session: {error}")
        except (Exception, SystemExit) as error:
            unsaved = self._save_final()
            if self._has_begun and not unsaved:
                error.add_note(SAVED)
            raise
        if unsaved := self._save_final():
            raise UnityTrainerException(
                f"what was learned last of {', '.join(unsaved)} could not be saved in "
                f"{self._folder.path}: see above. Earlier checkpoints, if any, are whole."
            )

    def _train(self) -> None:
        self._curriculum.log_lessons()
        self._manager.set_parameters(self._curriculum.parameters)
        self._rollout.reset()
        if self._resume and not self._inference:
            self._require_own_behavior()
        for behavior in self._manager.behavior_specs:
            self._trainer_of(behavior)
        if not self._inference:
            # From here on this is a run, to be resumed or replaced; until here it is as it was.
            try_write("the status", self._store.write_status)
            self._record_run()
            self._has_begun = True
        self._started_s = time.monotonic()
        with self._progress:
            self._interrupt.is_below_table = self._progress.is_shown
            try:
                while not self._is_done():
                    self._advance()
                    self._progress.update(self.trainers.values())
            finally:
                self._interrupt.is_below_table = False

    def _is_done(self) -> bool:
        """Whether there is nothing left to learn."""
        if self._inference or not self.trainers:
            return False
        return not any(trainer.is_learning for trainer in self.trainers.values())

    def _advance(self) -> None:
        """Take in what players report, learn if it is time, and answer them."""
        for report in self._rollout.advance():
            self._add_statistics(report)
        with hierarchical_timer("trainer_advance"):
            for trainer in self.trainers.values():
                trainer.advance()
                self._stop_if_learned(trainer)
        if self._is_done():
            return  # and draw no actions that are never taken: a resumed run draws them
        if not self._begin_lessons():
            self._answer()

    def _stop_if_learned(self, trainer: Trainer) -> None:
        """End the training of a behavior that earns enough, in the last lessons."""
        if self._curriculum.is_in_last_lessons:
            trainer.stop_if_learned()

    def _answer(self) -> None:
        entropies = self._rollout.answer()
        for trainer in self.trainers.values():
            if (entropy := entropies.get(trainer.seat.policy)) is not None:
                trainer.stats.add_stat("Policy/Entropy", entropy)

    def _seat_of(self, player: int, behavior: BehaviorName) -> Seat:
        """Return the seat of a behavior: players and teams share it."""
        return self._trainer_of(behavior).seat

    def _add_statistics(self, report: PlayerSteps) -> None:
        """Add what a player recorded itself to the statistics of every behavior."""
        for key, values in report.statistics.items():
            for value, aggregation in values:
                if aggregation is StatsAggregationMethod.MOST_RECENT and report.player:
                    continue  # several players have no common latest value: the first one's holds
                for trainer in self.trainers.values():
                    trainer.stats.add_stat(key, value, aggregation)

    def _begin_lessons(self) -> bool:
        """Begin the lessons that are due; return whether the players were reset for them."""
        if self._inference:
            return False
        changes = self._curriculum.advance(
            {
                name: BehaviorProgress(
                    trainer.step, trainer.settings.max_steps, trainer.meter.recent_returns
                )
                for name, trainer in self.trainers.items()
            }
        )
        if not changes:
            return False
        for trainer in self.trainers.values():
            trainer.meter.recent_returns.clear()
        # Only what changes: a sampler that is sent anew begins its sequence anew.
        parameters = self._curriculum.parameters
        self._manager.set_parameters({c.parameter: parameters[c.parameter] for c in changes})
        needs_reset = any(change.needs_reset for change in changes)
        if needs_reset:
            self._rollout.reset()
        return needs_reset

    def _require_own_behavior(self) -> None:
        """Raise if the run has learned, but none of the behaviors that there are."""
        learned = self._store.behaviors
        names = {BehaviorId.parse(behavior).name for behavior in self._manager.behavior_specs}
        if learned and names and learned.isdisjoint(names):
            raise UnityTrainerException(
                f"{self._folder.path} is a run of {', '.join(sorted(learned))}, and the "
                f"environment has {', '.join(sorted(names))}. Resume it in its own environment, or "
                "choose another --run-id."
            )

    def _trainer_of(self, behavior: BehaviorName) -> Trainer:
        trainer = self._trainer_of_id.get(behavior)
        if trainer is None:
            name = BehaviorId.parse(behavior).name
            trainer = self.trainers.get(name)
            if trainer is None:
                trainer = self.trainers[name] = self._make_trainer(name, behavior)
            elif trainer.spec != self._manager.behavior_specs[behavior]:
                raise UnityTrainerException(
                    f"{behavior!r} observes or does something else than the other teams of "
                    f"{name!r}. Teams share one policy: give the simulation's behaviors the same "
                    "observations and actions, or different names."
                )
            self._trainer_of_id[behavior] = trainer
        return trainer

    def _make_trainer(self, name: str, behavior: BehaviorName) -> Trainer:
        self._folder.require_free(name)
        settings = self._options.behavior_settings(name)
        trainer_type = self._trainer_types.get(settings.trainer_type)
        if trainer_type is None:
            raise UnityTrainerException(
                f"behaviors.{name}.trainer_type: there is no trainer {settings.trainer_type!r}. "
                f"There are {', '.join(self._trainer_types)}."
            )
        spec = self._manager.behavior_specs[behavior]
        if not self._inference:
            require_memory(name, spec, settings)
        try:
            trainer = Trainer(
                trainer_type,
                name,
                spec,
                settings,
                stats=StatsReporter(name, [*self._writers, self._progress]),
                device=self._device,
                seed=self._options.env_settings.seed,
                inference=self._inference,
                torch_settings=self._options.torch_settings,
                on_summary=lambda step: self._summarize(trainer, step),
                on_checkpoint=lambda: self._save(trainer),
                n_returns=self._curriculum.n_returns(name),
            )
        except UnityTrainerException as error:
            raise UnityTrainerException(f"behaviors.{name}: {error}") from error
        trainer.stats.add_property(
            StatsPropertyType.HYPERPARAMETERS, settings.model_dump(mode="json")
        )
        logger.info(behavior_in_words(name, spec, settings))
        if self._resume:
            self._load_own(trainer)
        else:
            self._load_initial(trainer)
        return trainer

    def _load_own(self, trainer: Trainer) -> None:
        """Go on from the newest checkpoint of this run."""
        name = trainer.name
        path = self._store.newest(name)
        if path is None and self._inference:
            raise UnityTrainerException(
                f"there is no checkpoint of {name} in {self._folder.path} to act by."
            )
        if path is None:
            logger.warning(f"{name} has no checkpoint yet: it begins at step 0.")
            self._load_initial(trainer)
            return

        def load(state: dict[str, Any]) -> None:
            trainer.load_state(state)
            # Lessons may have changed since, and been saved with another behavior. Inference is
            # judged by its own episodes.
            if state.get("lessons") == self._curriculum.lesson_numbers and not self._inference:
                trainer.meter.recent_returns.extend(state["recent_returns"])

        self._load(trainer, path, load, asked_by="--resume", why_not=self._why_not_its_own)
        if not self._inference:
            trainer.learner.load_experience(self._folder.experience(name))
        logger.info(f"Resuming {name} at step {trainer.step}.")
        self._resumed_at[name] = trainer.step
        self._stop_if_learned(trainer)
        if trainer.has_learned:
            logger.info(f"Raise stop_at_reward, or leave it out, to train {name} on.")
        elif not (trainer.is_learning or self._inference):
            logger.info(
                f"{name} has its {trainer.settings.max_steps} steps; raise max_steps to train it "
                "on."
            )

    def _load_initial(self, trainer: Trainer) -> None:
        """Begin with the weights that the settings name, if they name any."""
        path = initial_checkpoint(
            self._options.checkpoint_settings.initialize_from,
            trainer.settings.init_path,
            results_dir=self._folder.path.parent,
            behavior=trainer.name,
        )
        if path is None:
            return

        def load(state: dict[str, Any]) -> None:
            fitting, unlike = fitted(state, trainer.state())
            trainer.load_weights(fitting)
            if unlike:
                logger.warning(
                    f"{path} lacks layers of {trainer.name}, or has them in other sizes. These "
                    f"begin anew: {', '.join(unlike)}."
                )

        asked_by = "--initialize-from"
        if trainer.settings.init_path is not None:
            is_listed = trainer.name in self._options.behaviors
            section = f"behaviors.{trainer.name}" if is_listed else "default_settings"
            asked_by = f"{section}.init_path"
        self._load(trainer, path, load, asked_by=asked_by, why_not=_why_not_in_part)
        logger.info(f"Initialized {trainer.name} from {path}.")

    def _load(
        self,
        trainer: Trainer,
        path: Path,
        load: Callable[[dict[str, Any]], None],
        *,
        asked_by: str,
        why_not: Callable[[Trainer, Mapping[str, Any], Exception], str],
    ) -> None:
        """Load a checkpoint, ours or one of the original ML-Agents, into a trainer.

        Args:
            trainer: The trainer.
            path: The checkpoint.
            load: Takes its content.
            asked_by: The flag or key that named it.
            why_not: Returns the reason from the content and what `load` raised.

        Raises:
            UnityTrainerException: It cannot be read, or belongs to another network.
        """
        try:
            state = load_checkpoint(path)
        except UnityTrainerException as error:
            raise UnityTrainerException(f"{asked_by}, of {trainer.name}: {error}") from error
        fresh = trainer.state()
        try:
            if is_legacy(state):
                state = converted(state, list(trainer.settings.reward_signals))
                not_in_it = ", ".join(name for name in fresh if name not in state)
                logger.info(f"{path} is of the original ML-Agents. Begun anew: {not_in_it}.")
                state = fresh | state
            require_sound(state, fresh)
            load(state)
        except UnityTrainerException as error:
            raise UnityTrainerException(
                f"{asked_by}: checkpoint {path} of {trainer.name} cannot be used: {error}. Use "
                "an earlier checkpoint, or start over with --force."
            ) from error
        except _CANNOT_BE_LOADED as error:
            raise UnityTrainerException(
                f"{asked_by}: checkpoint {path} does not fit behavior {trainer.name!r}: "
                f"{why_not(trainer, state, error)}"
            ) from error

    def _why_not_its_own(self, trainer: Trainer, state: Mapping[str, Any], error: Exception) -> str:
        """Return why a run's own checkpoint cannot be gone on from, and the ways on."""
        saved = state.get("settings", {})
        changed = changed_settings(saved, shaping_settings(trainer.settings)) if saved else []
        found = changed or misfits(state, trainer.state())
        if not found:
            return (
                f"{type(error).__name__}: {error}. Its networks fit, so another part of the file "
                "is damaged or was changed. Use an earlier checkpoint, or start over with --force."
            )
        shown = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
        if changed:
            cause = "Put that back"
        elif saved:
            cause = (
                "Its settings are the same, so its observations or actions are others: undo that"
            )
        else:
            cause = (
                "Its observations, actions, trainer_type, reward_signals and network_settings must "
                "be those it was saved with: put them back"
            )
        run_id = self._options.checkpoint_settings.run_id
        return (
            f"{shown}. {cause}, or begin another run with the layers that fit: --run-id NEW "
            f"--initialize-from {run_id}."
        )

    def _summarize(self, trainer: Trainer, step: int) -> None:
        trainer.stats.set_stat(STEP, step)
        trainer.stats.set_stat(IS_TRAINING, trainer.is_learning)
        for parameter, number in self._curriculum.lesson_numbers.items():
            trainer.stats.set_stat(f"Environment/Lesson Number/{parameter}", number)
        trainer.stats.write_stats(step)

    def _record_run(self) -> None:
        """Write what is to be known of a run beside its checkpoints, as it is now."""
        configuration, timers = dump_configuration(self._options), get_timer_tree()
        try_write("the configuration", lambda: self._folder.write_configuration(configuration))
        try_write("the timers", lambda: self._folder.write_timers(timers))

    def _save(self, trainer: Trainer, *, is_final: bool = False) -> bool:
        """Save a checkpoint and what belongs to it; return whether it was written."""
        if trainer.learner.has_diverged:
            logger.error(
                f"{trainer.name} is not saved at step {trainer.step}: its weights are NaN or "
                "infinite. Earlier checkpoints, if any, are whole."
            )
            return False
        self._store.set_lessons(self._curriculum.state())
        with hierarchical_timer("save"):
            is_written = try_write(
                f"{trainer.name} at step {trainer.step}",
                lambda: self._store.save(
                    trainer.name,
                    step=trainer.step,
                    state={
                        **trainer.state(),
                        "settings": shaping_settings(trainer.settings),
                        "lessons": self._curriculum.lesson_numbers,
                        "recent_returns": list(trainer.meter.recent_returns),
                    },
                    model=trainer.learner.export(),
                    reward=trainer.mean_reward,
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

    def _save_final(self) -> list[str]:
        """Save every behavior and say how it did; return those that could not be saved."""
        unsaved: list[str] = []
        outcomes: list[Outcome] = []
        if self._inference:
            return unsaved
        for trainer in self.trainers.values():
            if trainer.step == self._resumed_at.get(trainer.name, 0):
                continue  # it is as it began
            is_saved = self._save(trainer, is_final=True)
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
                    trainer.settings.stop_at_reward if trainer.has_learned else None,
                )
            )
        if outcomes:
            logger.info(outcomes_in_words(outcomes, elapsed_s=time.monotonic() - self._started_s))
        return unsaved


def _why_not_in_part(_trainer: Trainer, _state: Mapping[str, Any], error: Exception) -> str:
    """Return why not even a part of a checkpoint can be begun with."""
    what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return f"{what}. Name one of the same observations, actions, trainer_type or network_settings."
