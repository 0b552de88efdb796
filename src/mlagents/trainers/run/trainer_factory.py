"""`TrainerFactory`: creates the trainer of a behavior from the settings of the run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from mlagents.trainers.acting.collector import Experience
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.exploiter import exploiters_of
from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.learning.trainer_types import TrainerType, find_trainer_type
from mlagents.trainers.reporting.stats import StatsPropertyType, StatsReporter, StatsWriter
from mlagents.trainers.reporting.summaries import behavior_in_words
from mlagents.trainers.run.agreement import Agreement
from mlagents.trainers.run.curriculum import Curriculum
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.run.memory import require_memory
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BehaviorSpec
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)


class TrainerFactory:
    """Creates trainers, with new weights and no steps.

    Args:
        options: All settings of the run.
        folder: Folder of the run, in which each behavior needs a name of its own.
        trainer_types: Trainer types, by the setting `trainer_type`.
        device: Device to learn on.
        writers: Writers of statistics; none of a learner that is not the first.
        agreement: Learners of the run.
        curriculum: Lessons of the run, which need the returns of episodes.
        league: Self-play, which behaviors with `self_play` join.
        initialize: Function that loads the initial weights of a behavior into a trainer, if the
            run begins with those of another run; see `Loader.initialize`.
        collect: Function that returns the experience of a trainer's agents.
        on_summary: Function called with a trainer and a step count when a summary is due.
        on_checkpoint: Function called with a trainer when a checkpoint is due.
    """

    def __init__(
        self,
        options: RunOptions,
        folder: RunFolder,
        trainer_types: Mapping[str, TrainerType],
        *,
        device: torch.device,
        writers: Sequence[StatsWriter],
        agreement: Agreement,
        curriculum: Curriculum,
        league: League,
        initialize: Callable[..., None],
        collect: Callable[[Trainer], Experience],
        on_summary: Callable[[Trainer, int], None],
        on_checkpoint: Callable[[Trainer], None],
    ) -> None:
        self._options = options
        self._folder = folder
        self._trainer_types = trainer_types
        self._device = device
        self._writers = writers
        self._agreement = agreement
        self._curriculum = curriculum
        self._league = league
        self._initialize = initialize
        self._collect = collect
        self._on_summary = on_summary
        self._on_checkpoint = on_checkpoint
        self._inference = options.checkpoint_settings.inference

    def make(self, name: str, spec: BehaviorSpec, *, has_begun: bool) -> Trainer:
        """Return the trainer of a behavior.

        Args:
            name: Name of the behavior, without a team.
            spec: Observations and actions of the behavior.
            has_begun: Whether the run has made its first step.

        Raises:
            UnityTrainerException: The behavior cannot be trained with its settings.
        """
        self._folder.require_free(name)
        settings = self._options.behavior_settings(name)
        try:
            trainer_type = find_trainer_type(settings.trainer_type, self._trainer_types)
        except ValueError as error:
            raise UnityTrainerException(f"behaviors.{name}.trainer_type: {error}") from None
        self._agreement.require_shareable(name, settings, has_begun=has_begun)
        if not self._inference:
            require_memory(name, spec, settings)
        make = partial(
            Trainer,
            trainer_type,
            spec=spec,
            settings=settings,
            device=self._device,
            seed=self._options.env_settings.seed,
            inference=self._inference,
            torch_settings=self._options.torch_settings,
        )
        try:
            trainer = self._make(make, name)
            if settings.self_play and not self._inference:
                initialize = partial(self._initialize, behavior=name)
                exploiters = exploiters_of(name, settings.self_play.league, make, initialize)
                n_scores = self._curriculum.n_returns(name)
                self._league.add(trainer, exploiters, n_scores=n_scores)
        except UnityTrainerException as error:
            raise UnityTrainerException(f"behaviors.{name}: {error}") from error
        trainer.stats.add_property(
            StatsPropertyType.HYPERPARAMETERS, settings.model_dump(mode="json")
        )
        logger.info(behavior_in_words(name, spec, settings))
        return trainer

    def _make(self, make: Callable[..., Trainer], name: str) -> Trainer:
        trainer: Trainer = make(
            name,
            stats=StatsReporter(name, self._writers),
            on_summary=lambda step: self._on_summary(trainer, step),
            on_checkpoint=lambda: self._on_checkpoint(trainer),
            n_returns=self._curriculum.n_returns(name),
            shards=self._agreement.shards(),
            collect=self._collect,
        )
        algorithm = trainer.learner.algorithm
        if self._options.cluster.corrects_staleness and isinstance(algorithm, PPO):
            algorithm.corrects_staleness = True
        return trainer
