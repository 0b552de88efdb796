"""`Controller`: creates trainers as behaviors appear, trains until all have finished, saves."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlagents.playing.tally import Score
from mlagents.trainers.acting.policy import ActingPolicy
from mlagents.trainers.acting.rollout import Seat, SharedSeat
from mlagents.trainers.acting.teams import TeamSeat
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.callbacks import Callbacks, Run, Summary
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.fleet.fleet import Fleet, LocalFleet, PlayerReport
from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.process_group import LearnerError, ProcessGroup
from mlagents.trainers.learning.trainer import Report, Trainer
from mlagents.trainers.learning.trainer_types import (
    TRAINER_TYPES,
    TrainerType,
    find_trainer_type,
)
from mlagents.trainers.players.env_manager import EnvManager
from mlagents.trainers.reporting.progress import ProgressTable
from mlagents.trainers.reporting.stats import (
    EVALUATED_LENGTH,
    EVALUATED_REWARD,
    EVALUATION_ERROR,
    IS_TRAINING,
    STEP,
    StatsPropertyType,
    StatsReporter,
    StatsWriter,
)
from mlagents.trainers.reporting.summaries import SAVED, behavior_in_words
from mlagents.trainers.run.checkpoints import CheckpointStore
from mlagents.trainers.run.curriculum import BehaviorProgress, Curriculum
from mlagents.trainers.run.evaluation import Evaluator, judged, why_over, with_error
from mlagents.trainers.run.filming import Filmer
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.run.interrupt import Interrupt, Interrupted
from mlagents.trainers.run.learners import require_shareable
from mlagents.trainers.run.memory import require_memory
from mlagents.trainers.run.resume import Loader
from mlagents.trainers.run.saving import Saver
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.sharding import ALONE
from mlagents_envs.base_env import (
    BehaviorId,
    BehaviorName,
    DecisionSteps,
    FloatArray,
    TerminalSteps,
)
from mlagents_envs.exception import UnityCommunicatorStoppedException
from mlagents_envs.logging_util import get_logger
from mlagents_envs.side_channel.stats_side_channel import StatsAggregationMethod
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
        self._options = options
        self._fleet = players if isinstance(players, Fleet) else LocalFleet(players)
        self._folder = folder
        self._writers = writers
        self._device = device
        self._interrupt = interrupt
        self._trainer_types = trainer_types
        self._resume = options.checkpoint_settings.resume
        self._inference = options.checkpoint_settings.inference
        self._group = group
        self._is_first = group is None or group.rank == 0
        self._has_met = group is None
        store = CheckpointStore(folder, resume=self._resume and self._is_first)
        self._curriculum = Curriculum(options.environment_parameters or {})
        lessons = store.lessons if group is None else group.gather(store.lessons)[0]
        self._curriculum.load_state(lessons)
        store.set_lessons(self._curriculum.state())
        self._league = League(
            seed=options.env_settings.seed,
            expected=[name for name, each in options.behaviors.items() if each.self_play],
            results=[folder.path.parent],
        )
        self._open_fleet(options, interrupt)
        self._loader = Loader(options, folder, store, self._league)
        self._saver = Saver(
            options, folder, store, self._curriculum, self._league, writes=self._is_first
        )
        self._store = store
        self._evaluator = self._make_evaluator(make_evaluation)
        self._filmer = make_filmer() if make_filmer and self._is_first else None
        self._progress = ProgressTable(lessons=self._curriculum.in_words, endless=self._inference)
        self._trainer_of_id: dict[BehaviorName, Trainer] = {}  # teams share a trainer
        self._resumed_at: dict[str, int] = {}
        self._started_s = time.monotonic()
        self._has_begun = False
        self._callbacks = (callbacks if self._is_first else None) or Callbacks()
        self._summaries: list[Summary] = []  # those that no callback has received yet
        self._has_summary = False
        self._handle = _Handle(options, folder.path, self)
        self._is_ending = False
        self._has_warned_of_drift = False
        self.trainers: dict[str, Trainer] = {}

    def _open_fleet(self, options: RunOptions, interrupt: Interrupt) -> None:
        self._fleet.open(
            enter=self._trainer_of,
            seat_of=self._seat_of,
            waiting=interrupt.waiting,
            watches_episodes=_watches_episodes(options),
        )

    def _make_evaluator(self, make: Callable[[], EnvManager] | None) -> Evaluator | None:
        if self._options.evaluation is None or make is None:
            return None
        return Evaluator(
            self._options.evaluation,
            make,
            seed=self._options.env_settings.seed,
            waiting=self._interrupt.waiting,
        )

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
            if self._evaluator is not None:
                self._evaluator.close()
            if self._filmer is not None:
                self._filmer.close()

    def probabilities(
        self, steps: Mapping[BehaviorName, tuple[DecisionSteps, TerminalSteps]]
    ) -> dict[BehaviorName, list[FloatArray]]:
        """Return the probabilities of discrete choices under the learning policies.

        Args:
            steps: Steps of one player, by behavior.

        Returns:
            One array (N, size) per branch, for each behavior with discrete actions.
        """
        found = {}
        for behavior, (decisions, _) in steps.items():
            policy = self._trainer_of(behavior).seat.policy
            if decisions.action_mask and isinstance(policy, ActingPolicy) and len(decisions):
                masks = np.concatenate(decisions.action_mask, axis=1)
                if probabilities := policy.probabilities(decisions.obs, masks):
                    found[behavior] = probabilities
        return found

    def _train_and_save(self) -> None:
        try:
            self._train()
        except Interrupted as error:
            self._leave(error)
            logger.info("Interrupted." if self._inference else "Interrupted: saving.")
        except UnityCommunicatorStoppedException as error:
            self._leave(error)
            logger.info(f"The environment ended the session: {error}")
        except (Exception, SystemExit) as error:
            self._leave(error)
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
        for behavior in self._agreed_behaviors():
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
                    if self._group is None:
                        self._advance()
                    else:
                        self._advance_with(self._group)
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
            self._add_statistics(report)
            self._league.record(report.player)
        entropies = self._fleet.take_entropies()
        for trainer in self.trainers.values():
            of_trainer = [entropy for policy, entropy in entropies if policy is trainer.policy]
            trainer.stats.add_stats("Policy/Entropy", of_trainer)
        with hierarchical_timer("trainer_advance"):
            if self._group is not None:
                self._learn_with(self._group)
            for trainer in self.trainers.values() if self._group is None else ():
                trainer.advance()
                self._stop_if_learned(trainer)
        self._look_at_results()
        if self._is_done():
            return  # without sampling actions, which a resumed run will sample
        if self._league.advance():
            self._fleet.reset()
        elif not (self._has_met and self._begin_lessons()):
            self._fleet.answer()

    def _look_at_results(self) -> None:
        """Film, call callbacks and evaluate if it is time, between two steps.

        Of several learners, the first does so, and the others follow its decisions.
        """
        if not self._has_met:
            return
        if self._filmer is not None and self._filmer.is_due(self.trainers):
            self._filmer.begin(self.trainers, self._curriculum.parameters)
        has_summary, self._has_summary = self._has_summary, False
        while self._summaries:
            self._callbacks.summarize(self._summaries.pop(0), self._handle)
        if has_summary:
            self._follow_first()
        if self._evaluator is not None and self._evaluator.is_due(self.trainers):
            if self._is_first:
                self.evaluate()
            self._follow_first()

    def _follow_first(self) -> None:
        """Let the other learners end what the first has ended."""
        group, evaluator = self._group, self._evaluator
        if group is None:
            return
        decided = {
            "is_stopped": self._handle.is_stopped,
            "ended_by": {name: trainer.ended_by for name, trainer in self.trainers.items()},
            "due_at": {} if evaluator is None else evaluator.due_at,
        }
        first, *_ = self._exchange(group, {"decided": decided})
        decided = first["decided"]
        self._handle.is_stopped = decided["is_stopped"]
        for name, ended_by in decided["ended_by"].items():
            if ended_by is not None:
                self.trainers[name].end(ended_by)
        if evaluator is not None:
            evaluator.due_at = decided["due_at"]

    def save(self) -> None:
        """Save a checkpoint of every behavior; inference saves nothing."""
        for trainer in () if self._inference else self.trainers.values():
            self._saver.save(trainer)

    def evaluate(self) -> dict[str, Score]:
        """Evaluate all behaviors now, save the best policies, and end training where due."""
        if self._evaluator is None:
            raise UnityTrainerException(
                "there are no settings for evaluations: add `evaluation:` to the configuration"
            )
        lessons = self._curriculum.lesson_numbers
        scores = self._evaluator.evaluate(self.trainers, self._curriculum.parameters)
        for name, score in scores.items():
            trainer = self.trainers[name]
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
            self._end_if_over(trainer)
        for name, score in scores.items():
            self._callbacks.evaluate(name, score, self._handle)
        return scores

    def _end_if_over(self, trainer: Trainer) -> None:
        """End the training of a behavior if its evaluations require it, in the last lessons."""
        best = self._store.best(trainer.name)
        settings = self._options.evaluation
        if not (settings and best and trainer.is_learning and self._curriculum.is_in_last_lessons):
            return
        if best.lessons == self._curriculum.lesson_numbers and (by := why_over(settings, best)):
            trainer.end(by)
            logger.info(f"{trainer.name} ends at step {trainer.step} ({by}).")

    def _advance_with(self, group: ProcessGroup) -> None:
        """Advance like `_advance`. If one learner must end, all learners end."""
        group.check()
        try:
            self._advance()
        except Interrupted:
            if not self._is_ending:
                self._meet(group, ends="interrupted")
            raise
        except UnityCommunicatorStoppedException as error:
            if not self._is_ending:
                self._meet(group, ends=f"stopped: {error}")
            raise

    def _learn_with(self, group: ProcessGroup) -> None:
        """Process the steps of this learner's agents; meet the other learners when due.

        A learner is due when it has its share of the experience for an update.
        """
        is_due = [trainer.observe() and trainer.is_learning for trainer in self.trainers.values()]
        self._has_met = any(is_due)
        if self._has_met:
            self._meet(group)

    def _meet(self, group: ProcessGroup, *, ends: str | None = None) -> None:
        """Exchange reports with the other learners and learn if it is time.

        Args:
            group: All learners.
            ends: Reason why this learner, and therefore all learners, must end.

        Raises:
            Interrupted: A learner was interrupted.
            UnityCommunicatorStoppedException: The environment of a learner ended the session.
        """
        trainers = sorted(self.trainers.items())
        reports = {name: each.report() for name, each in trainers}
        messages = self._exchange(group, {"reports": reports}, ends=ends)

        def exchange(report: Report) -> list[Report]:
            return [Report(*each) for each in group.gather(report)]

        for name, trainer in trainers:
            trainer.learn_with([Report(*each["reports"][name]) for each in messages], exchange)
            self._stop_if_learned(trainer)

    def _exchange(
        self, group: ProcessGroup, message: Mapping[str, object], *, ends: str | None = None
    ) -> list[Any]:
        """Return the messages of all learners; end with a learner that has to end."""
        with hierarchical_timer("wait_for_learners"):
            messages = group.gather({**message, "ends": ends})
        self._is_ending = any(each["ends"] for each in messages)
        for each in messages:
            if each["ends"] == "interrupted":
                raise Interrupted
            if each["ends"]:
                raise UnityCommunicatorStoppedException(each["ends"].partition(": ")[2])
        return messages

    def _agreed_behaviors(self) -> list[BehaviorName]:
        """Return the behaviors of the environment, which must be the same for all learners."""
        specs = self._fleet.behavior_specs
        if self._group is None:
            return list(specs)
        listed = {name: repr(specs[name]) for name in sorted(specs)}
        self._group.require_same(
            "behaviors",
            ", ".join(f"{name} {spec}" for name, spec in listed.items()) or "none",
            remedy="Give all learners the same environment.",
        )
        return list(listed)

    def _leave(self, error: BaseException) -> None:
        """Tell the other learners why this one ends."""
        if self._group is None or self._is_ending:  # all have already agreed to end
            return
        self._group.leave(str(error) or type(error).__name__)
        for trainer in self.trainers.values():
            with suppress(LearnerError, UnityTrainerException):
                trainer.learner.settle()

    def _stop_if_learned(self, trainer: Trainer) -> None:
        """End the training of a behavior that reached `stop_at_reward`, in the last lessons."""
        if self._curriculum.is_in_last_lessons:
            trainer.stop_if_learned()

    def _seat_of(self, player: int, behavior: BehaviorName) -> Seat | SharedSeat:
        """Return the seat of a behavior, which all players share; with self-play, one per team."""
        trainer = self._trainer_of(behavior)
        team = self._league.team_of(behavior)
        return team if isinstance(team, TeamSeat) else trainer.seat

    def _add_statistics(self, report: PlayerReport) -> None:
        """Add the statistics of a player's report to those of every behavior."""
        for key, values in report.statistics.items():
            for value, aggregation in values:
                if aggregation is StatsAggregationMethod.MOST_RECENT and report.player:
                    continue  # several players have no common latest value: use the first player's
                for trainer in self.trainers.values():
                    trainer.stats.add_stat(key, value, aggregation)

    def _begin_lessons(self) -> bool:
        """Begin the lessons that are due; return whether the players were reset for them."""
        if self._inference:
            return False
        changes = self._curriculum.advance(
            {
                name: BehaviorProgress(
                    trainer.step,
                    trainer.settings.max_steps,
                    trainer.meter.recent_returns,
                    group_returns=trainer.meter.recent_group_returns,
                    elo=self._league.elo(name),
                    scores=self._league.scores(name),
                )
                for name, trainer in self.trainers.items()
            }
        )
        if not changes:
            return False
        for trainer in self.trainers.values():
            trainer.meter.recent_returns.clear()
            self._league.scores(trainer.name).clear()
            trainer.meter.recent_group_returns.clear()
        # Send only changed parameters: a sampler that is sent again restarts its sequence.
        parameters = self._curriculum.parameters
        self._fleet.set_parameters({c.parameter: parameters[c.parameter] for c in changes})
        needs_reset = any(change.needs_reset for change in changes)
        if needs_reset:
            self._fleet.reset()
        return needs_reset

    def _trainer_of(self, behavior: BehaviorName) -> Trainer:
        trainer = self._trainer_of_id.get(behavior)
        if trainer is None:
            name = BehaviorId.parse(behavior).name
            trainer = self.trainers.get(name)
            if trainer is None:
                trainer = self.trainers[name] = self._make_trainer(name, behavior)
            elif trainer.spec != self._fleet.behavior_specs[behavior]:
                raise UnityTrainerException(
                    f"{behavior!r} and the other teams of {name!r} have different observations or "
                    "actions. Teams share one policy: give the simulation's behaviors the same "
                    "observations and actions, or different names."
                )
            self._trainer_of_id[behavior] = trainer
            self._league.enter(behavior, self._fleet.team)
        return trainer

    def _make_trainer(self, name: str, behavior: BehaviorName) -> Trainer:
        self._folder.require_free(name)
        settings = self._options.behavior_settings(name)
        try:
            trainer_type = find_trainer_type(settings.trainer_type, self._trainer_types)
        except ValueError as error:
            raise UnityTrainerException(f"behaviors.{name}.trainer_type: {error}") from None
        group = self._group
        if group is not None:
            require_shareable(f"behaviors.{name}", settings, group.size)
            if self._has_begun:
                raise UnityTrainerException(
                    f"behavior {name!r} appeared after the first step. Several learners need all "
                    "behaviors at the start: create an agent of each behavior, or use one learner."
                )
        spec = self._fleet.behavior_specs[behavior]
        if not self._inference:
            require_memory(name, spec, settings)
        try:
            trainer = Trainer(
                trainer_type,
                name,
                spec,
                settings,
                stats=StatsReporter(
                    name, [*self._writers, self._progress] if self._is_first else []
                ),
                device=self._device,
                seed=self._options.env_settings.seed,
                inference=self._inference,
                torch_settings=self._options.torch_settings,
                on_summary=lambda step: self._summarize(trainer, step),
                on_checkpoint=lambda: self._checkpoint(trainer),
                n_returns=self._curriculum.n_returns(name),
                shards=ALONE if group is None else group.shards(),
                collect=self._fleet.collect,
            )
            algorithm = trainer.learner.algorithm
            if self._options.cluster.corrects_staleness and isinstance(algorithm, PPO):
                algorithm.corrects_staleness = True
            if settings.self_play and not self._inference:
                self._league.add(trainer, n_scores=self._curriculum.n_returns(name))
        except UnityTrainerException as error:
            raise UnityTrainerException(f"behaviors.{name}: {error}") from error
        trainer.stats.add_property(
            StatsPropertyType.HYPERPARAMETERS, settings.model_dump(mode="json")
        )
        logger.info(behavior_in_words(name, spec, settings))
        if self._is_first and self._resume:
            self._resume_trainer(trainer)
        elif self._is_first:
            self._loader.initialize(trainer)
        if group is not None:
            self._synchronize(group, trainer)
        if self._evaluator is not None:
            self._evaluator.begin(name, trainer.step)
        return trainer

    def _synchronize(self, group: ProcessGroup, trainer: Trainer) -> None:
        """Give all learners the weights and counts of the first."""
        meter = trainer.meter
        counts = {
            "resumed_at": self._resumed_at.get(trainer.name),
            "has_learned": trainer.has_learned,
            "returns": list(meter.recent_returns),
            "group_returns": list(meter.recent_group_returns),
        }
        first, *_ = group.gather(counts)
        self._take_state_of_first(group, trainer)
        if group.rank:
            trainer.has_learned = first["has_learned"]
            meter.remember(first["returns"], first["group_returns"])
            if first["resumed_at"] is not None:
                self._resumed_at[trainer.name] = first["resumed_at"]

    def _take_state_of_first(self, group: ProcessGroup, trainer: Trainer) -> None:
        state = group.broadcast(trainer.state())
        if group.rank:
            trainer.load_state(state)
            trainer.reseed()

    def _checkpoint(self, trainer: Trainer) -> None:
        """Save a checkpoint, after making sure that all learners have the same weights."""
        group = self._group
        if group is not None and len(set(group.gather(trainer.learner.digest()))) > 1:
            # Processors of different kinds may round the last bit of a weight differently.
            if not self._has_warned_of_drift:
                self._has_warned_of_drift = True
                logger.warning(
                    f"{trainer.name}: the learners' weights differ at step {trainer.step}, because "
                    "their processors round differently. All continue with the weights of learner "
                    "0."
                )
            self._take_state_of_first(group, trainer)
        self._saver.save(trainer)

    def _resume_trainer(self, trainer: Trainer) -> None:
        if not self._loader.resume(trainer, self._curriculum.lesson_numbers):
            return
        name = trainer.name
        self._resumed_at[name] = trainer.step
        self._stop_if_learned(trainer)
        if not self._inference:
            self._end_if_over(trainer)
        if trainer.has_learned:
            setting = str(trainer.ended_by).partition(":")[0]
            logger.info(f"To train {name} further, raise {setting} or leave it out.")
        elif not (trainer.is_learning or self._inference):
            logger.info(
                f"{name} has reached max_steps ({trainer.settings.max_steps}). To train it "
                "further, raise max_steps."
            )

    def _save_final(self) -> list[str]:
        """Save every behavior; return those that could not be saved."""
        if self._inference:
            return []
        return self._saver.save_final(
            self.trainers.values(), resumed_at=self._resumed_at, started_s=self._started_s
        )

    def _summarize(self, trainer: Trainer, step: int) -> None:
        self._has_summary = True
        trainer.stats.set_stat(STEP, step)
        trainer.stats.set_stat(IS_TRAINING, trainer.is_learning)
        self._league.summarize(trainer.name)
        if self._group is not None:
            _, *others = self._group.gather(trainer.stats.drain() if self._group.rank else None)
            for drained in others if self._is_first else ():
                trainer.stats.add_drained(drained)
            if not self._is_first:
                return
        for parameter, number in self._curriculum.lesson_numbers.items():
            trainer.stats.set_stat(f"Environment/Lesson Number/{parameter}", number)
        values = trainer.stats.write_stats(step)
        self._summaries.append(Summary(trainer.name, step, values))


class _Handle(Run):
    """A controller's run, as callbacks see and control it.

    Attributes:
        is_stopped: Whether a callback has ended the run.
    """

    def __init__(self, options: RunOptions, folder: Path, controller: Controller) -> None:
        self.options = options
        self.folder = folder
        self.is_stopped = False
        self._controller = controller

    @property
    def steps(self) -> dict[str, int]:
        return {name: trainer.step for name, trainer in self._controller.trainers.items()}

    def save(self) -> None:
        self._controller.save()

    def evaluate(self) -> dict[str, Score]:
        return self._controller.evaluate()

    def stop(self, reason: str = "") -> None:
        if not self.is_stopped:
            logger.info(f"A callback ended the run{f': {reason}' if reason else '.'}")
        self.is_stopped = True


def _watches_episodes(options: RunOptions) -> bool:
    """Return whether lessons or the end of training depend on the returns of episodes."""
    settings = [options.default_settings, *options.behaviors.values()]
    return bool(options.environment_parameters) or any(
        each is not None and each.stop_at_reward is not None for each in settings
    )
