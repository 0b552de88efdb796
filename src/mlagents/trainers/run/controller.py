"""`Controller`: creates trainers as behaviors appear, trains until all have finished, saves."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import torch

from mlagents.playing.tally import Score
from mlagents.trainers.acting.rollout import Policy, Seat, SharedSeat
from mlagents.trainers.acting.teams import TeamSeat
from mlagents.trainers.callbacks import Callbacks
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fleet.fleet import Fleet, LocalFleet
from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.process_group import ProcessGroup
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TRAINER_TYPES, TrainerType
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.reporting.progress import ProgressTable
from mlagents.trainers.reporting.stats import StatsWriter
from mlagents.trainers.reporting.summaries import SAVED
from mlagents.trainers.run.agreement import Agreement
from mlagents.trainers.run.checkpoints import CheckpointStore
from mlagents.trainers.run.curriculum import Curriculum
from mlagents.trainers.run.evaluation import Evaluator
from mlagents.trainers.run.filming import Filmer
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.run.handle import RunHandle
from mlagents.trainers.run.interrupt import Interrupt, Interrupted
from mlagents.trainers.run.judging import Judge
from mlagents.trainers.run.lessons import begin_lessons, watches_episodes
from mlagents.trainers.run.resume import Loader
from mlagents.trainers.run.saving import Saver
from mlagents.trainers.run.statistics import Statistics
from mlagents.trainers.run.trainer_factory import TrainerFactory
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BehaviorId, BehaviorName, BehaviorSpec
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class Controller:
    """One run, from its settings to its results.

    Args:
        options: All settings of the run, with its seeds drawn.
        players: Players of the run in this process, or a fleet of them.
        folder: Folder for results.
        writers: Writers of statistics.
        device: Device to learn on.
        interrupt: Interrupt that ends the run cleanly.
        trainer_types: Trainer types, by the setting `trainer_type`.
        callbacks: Callbacks that follow the run.
        make_evaluation: Function that creates the players for evaluations; None without
            evaluations.
        make_filmer: Function that creates the filmer of the run; None without films.
        group: All learners of the run, of which only the first reports and saves; None for a
            single learner.
    """

    def __init__(
        self,
        options: RunOptions,
        players: EnvManager | Fleet,
        folder: RunFolder,
        *,
        writers: Sequence[StatsWriter],
        device: torch.device,
        interrupt: Interrupt,
        trainer_types: Mapping[str, TrainerType] = TRAINER_TYPES,
        callbacks: Callbacks | None = None,
        make_evaluation: Callable[[], EnvManager] | None = None,
        make_filmer: Callable[[], Filmer] | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        self._fleet = players if isinstance(players, Fleet) else LocalFleet(players)
        self._folder = folder
        self._interrupt = interrupt
        self._resume = options.checkpoint_settings.resume
        self._inference = options.checkpoint_settings.inference
        self._agreement = Agreement(group)
        self._is_first = self._agreement.is_first
        store = CheckpointStore(folder, resume=self._resume and self._is_first)
        self._curriculum = Curriculum(options.environment_parameters or {})
        self._curriculum.load_state(self._agreement.of_first(store.lessons))
        store.set_lessons(self._curriculum.state())
        self._league = League(
            seed=options.env_settings.seed,
            expected=[name for name, each in options.behaviors.items() if each.self_play],
            results=[Path(options.checkpoint_settings.results_dir)],
        )
        self._fleet.open(
            enter=self._trainer_of,
            seat_of=self._seat_of,
            waiting=interrupt.waiting,
            watches_episodes=watches_episodes(options),
        )
        self._progress = ProgressTable(lessons=self._curriculum.in_words, endless=self._inference)
        self._statistics = Statistics(self._curriculum, self._league, self._agreement)
        self._loader = Loader(options, folder, store, self._league)
        self._factory = self._make_factory(
            options, trainer_types, writers=[*writers, self._progress], device=device
        )
        self._saver = Saver(
            options, folder, store, self._curriculum, self._league, writes=self._is_first
        )
        self._judge = self._make_judge(options, make_evaluation, store)
        self._filmer = make_filmer() if make_filmer and self._is_first else None
        self.trainers: dict[str, Trainer] = {}
        self._trainer_of_id: dict[BehaviorName, Trainer] = {}  # teams share a trainer
        self._resumed_at: dict[str, int] = {}
        self._started_s = time.monotonic()
        self._has_begun = False
        self._callbacks = (callbacks if self._is_first else None) or Callbacks()
        self._handle = RunHandle(
            options, folder.path, self.trainers, save=self.save, evaluate=self.evaluate
        )

    def _make_factory(
        self,
        options: RunOptions,
        trainer_types: Mapping[str, TrainerType],
        *,
        writers: Sequence[StatsWriter],
        device: torch.device,
    ) -> TrainerFactory:
        return TrainerFactory(
            options,
            self._folder,
            trainer_types,
            device=device,
            writers=writers if self._is_first else [],
            agreement=self._agreement,
            curriculum=self._curriculum,
            league=self._league,
            initialize=self._loader.initialize,
            collect=self._fleet.collect,
            on_summary=self._statistics.summarize,
            on_checkpoint=self._checkpoint,
        )

    def _make_judge(
        self,
        options: RunOptions,
        make_players: Callable[[], EnvManager] | None,
        store: CheckpointStore,
    ) -> Judge | None:
        if options.evaluation is None or make_players is None:
            return None
        evaluator = Evaluator(
            options.evaluation,
            make_players,
            seed=options.env_settings.seed,
            waiting=self._interrupt.waiting,
        )
        return Judge(evaluator, self._curriculum, store, self._saver)

    def run(self) -> None:
        """Train until every behavior has finished, or until interrupted.

        All behaviors are saved at the end, unless a second signal ends the run at once.

        Raises:
            UnityTrainerException: A behavior could not be saved at the end, or the run cannot
                continue.
        """
        try:
            self._train_and_save()
        except BaseException:
            with suppress(Exception):  # the first error counts
                self._callbacks.end(self._handle)
            raise
        else:
            self._callbacks.end(self._handle)
        finally:
            for trainer in self.trainers.values():
                trainer.learner.close()
            self._league.close()
            if self._judge is not None:
                self._judge.close()
            if self._filmer is not None:
                self._filmer.close()

    def policy_of(self, behavior: BehaviorName) -> Policy:
        """Return the learning policy of a behavior."""
        return self._trainer_of(behavior).seat.policy

    def _train_and_save(self) -> None:
        try:
            self._train()
        except Interrupted as error:
            self._agreement.leave(error, self.trainers)
            logger.info("Interrupted." if self._inference else "Interrupted: saving.")
        except UnityCommunicatorStoppedException as error:
            self._agreement.leave(error, self.trainers)
            logger.info(f"The environment ended the session: {error}")
        except (Exception, SystemExit) as error:
            self._agreement.leave(error, self.trainers)
            unsaved = self._save_final()
            if self._has_begun and not unsaved:
                error.add_note(SAVED)
            raise
        if unsaved := self._save_final():
            raise UnityTrainerException(
                f"the last training progress of {', '.join(unsaved)} could not be saved in "
                f"{self._folder.path}: see above. Earlier checkpoints, if any, are intact."
            )

    def _train(self) -> None:
        self._curriculum.log_lessons()
        self._fleet.set_parameters(self._curriculum.parameters)
        self._fleet.reset()
        if self._resume and not self._inference:
            self._loader.require_own_behavior(self._fleet.behavior_specs)
        for behavior in self._agreement.behaviors(self._fleet.behavior_specs):
            self._trainer_of(behavior)
        if not self._inference:
            self._saver.begin()
            self._has_begun = True
        self._callbacks.begin(self._handle)
        self._follow_first()
        self._started_s = time.monotonic()
        with self._progress if self._is_first else nullcontext():
            self._interrupt.is_below_table = self._progress.is_shown
            try:
                while not self._is_done():
                    with self._agreement.ending_together():
                        self._advance()
                    if self._is_first:
                        self._progress.update(self.trainers.values())
            finally:
                self._interrupt.is_below_table = False

    def _is_done(self) -> bool:
        """Return whether every behavior has finished learning, or a callback has ended the run."""
        if self._handle.is_stopped:
            return True
        if self._inference or not self.trainers:
            return False
        return not any(trainer.is_learning for trainer in self.trainers.values())

    def _advance(self) -> None:
        """Receive reports of players, learn when due, and answer the reports."""
        for report in self._fleet.advance():
            self._statistics.add(report, self.trainers.values())
            self._league.record(report.player)
        entropies = self._fleet.take_entropies()
        for trainer in self.trainers.values():
            of_trainer = [entropy for policy, entropy in entropies if policy is trainer.policy]
            trainer.stats.add_stats("Policy/Entropy", of_trainer)
        with hierarchical_timer("trainer_advance"):
            self._agreement.learn(self.trainers, after=self._stop_if_learned)
        if self._agreement.has_met:
            self._look_at_results()
        if self._is_done():
            return  # without sampling actions, which a resumed run will sample
        if self._league.advance():
            self._fleet.reset()
        elif not self._begin_lessons():
            self._fleet.answer()

    def _look_at_results(self) -> None:
        """Film, call callbacks and evaluate if it is time, between two steps.

        Of several learners, the first does so, and the others follow its decisions.
        """
        if self._filmer is not None and self._filmer.is_due(self.trainers):
            self._filmer.begin(self.trainers, self._curriculum.parameters)
        has_summary, summaries = self._statistics.take_summaries()
        for summary in summaries:
            self._callbacks.summarize(summary, self._handle)
        if has_summary:
            self._follow_first()
        if self._judge is not None and self._judge.is_due(self.trainers):
            if self._is_first:
                self.evaluate()
            self._follow_first()

    def _follow_first(self) -> None:
        """Let the other learners end what the first has ended."""
        if self._agreement.is_alone:
            return
        judge = self._judge
        decided = self._agreement.follow_first(
            {
                "is_stopped": self._handle.is_stopped,
                "ended_by": {name: trainer.ended_by for name, trainer in self.trainers.items()},
                "due_at": {} if judge is None else judge.due_at,
            }
        )
        self._handle.is_stopped = decided["is_stopped"]
        for name, ended_by in decided["ended_by"].items():
            if ended_by is not None:
                self.trainers[name].end(ended_by)
        if judge is not None:
            judge.due_at = decided["due_at"]

    def save(self) -> None:
        """Save a checkpoint of every behavior; inference saves nothing."""
        for trainer in () if self._inference else self.trainers.values():
            self._saver.save(trainer)

    def evaluate(self) -> dict[str, Score]:
        """Evaluate all behaviors now, save the best policies, and end training where due."""
        if self._judge is None:
            raise UnityTrainerException(
                "there are no settings for evaluations: add `evaluation:` to the configuration"
            )
        scores = self._judge.evaluate(self.trainers)
        for name, score in scores.items():
            self._callbacks.evaluate(name, score, self._handle)
        return scores

    def _stop_if_learned(self, trainer: Trainer) -> None:
        """End the training of a behavior that reached `stop_at_reward`, in the last lessons."""
        if self._curriculum.is_in_last_lessons:
            trainer.stop_if_learned()

    def _seat_of(self, player: int, behavior: BehaviorName) -> Seat | SharedSeat:
        """Return the seat of a behavior, which all players share; with self-play, one per team."""
        trainer = self._trainer_of(behavior)
        team = self._league.team_of(behavior)
        return team if isinstance(team, TeamSeat) else trainer.seat

    def _begin_lessons(self) -> bool:
        """Begin the lessons that are due; return whether the players were reset for them."""
        if self._inference or not self._agreement.has_met:
            return False
        return begin_lessons(self._curriculum, self.trainers, self._league, self._fleet)

    def _trainer_of(self, behavior: BehaviorName) -> Trainer:
        trainer = self._trainer_of_id.get(behavior)
        if trainer is None:
            name = BehaviorId.parse(behavior).name
            spec = self._fleet.behavior_specs[behavior]
            trainer = self.trainers.get(name)
            if trainer is None:
                trainer = self.trainers[name] = self._make_trainer(name, spec)
            elif trainer.spec != spec:
                raise UnityTrainerException(
                    f"{behavior!r} and the other teams of {name!r} have different observations or "
                    "actions. Teams share one policy: give the simulation's behaviors the same "
                    "observations and actions, or different names."
                )
            self._trainer_of_id[behavior] = trainer
            self._league.enter(behavior, self._fleet.team)
        return trainer

    def _make_trainer(self, name: str, spec: BehaviorSpec) -> Trainer:
        """Return a new trainer, with the state from which it continues or starts."""
        trainer = self._factory.make(name, spec, has_begun=self._has_begun)
        if self._is_first and self._resume:
            self._resume_trainer(trainer)
        elif self._is_first:
            self._loader.initialize(trainer)
        resumed_at = self._agreement.synchronize(trainer, self._resumed_at.get(name))
        if resumed_at is not None:
            self._resumed_at[name] = resumed_at
        if self._judge is not None:
            self._judge.begin(name, trainer.step)
        return trainer

    def _resume_trainer(self, trainer: Trainer) -> None:
        if not self._loader.resume(trainer, self._curriculum.lesson_numbers):
            return
        name = trainer.name
        self._resumed_at[name] = trainer.step
        self._stop_if_learned(trainer)
        if self._judge is not None:
            self._judge.end_if_over(trainer)
        if trainer.has_learned:
            setting = str(trainer.ended_by).partition(":")[0]
            logger.info(f"To train {name} further, raise {setting} or leave it out.")
        elif not (trainer.is_learning or self._inference):
            logger.info(
                f"{name} has reached max_steps ({trainer.settings.max_steps}). To train it "
                "further, raise max_steps."
            )

    def _checkpoint(self, trainer: Trainer) -> None:
        """Save a checkpoint, after making sure that all learners have the same weights."""
        self._agreement.equalize(trainer)
        self._saver.save(trainer)

    def _save_final(self) -> list[str]:
        """Save every behavior; return those that could not be saved."""
        if self._inference:
            return []
        return self._saver.save_final(
            self.trainers.values(), resumed_at=self._resumed_at, started_s=self._started_s
        )
