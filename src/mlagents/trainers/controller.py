"""One run: builds the trainers as behaviors appear, loops until they are done, saves."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mlagents.trainers.data.identifiers import BehaviorId
from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.progress import ProgressLine
from mlagents.trainers.rollout.env_manager import EnvManager, PlayerSteps
from mlagents.trainers.settings.behavior import BehaviorSettings
from mlagents.trainers.settings.run_options import RunOptions
from mlagents.trainers.stats import (
    IS_TRAINING,
    STEP,
    StatsPropertyType,
    StatsReporter,
    StatsWriter,
)
from mlagents.trainers.training.checkpoints import (
    CheckpointStore,
    RunFolder,
    initial_checkpoint,
    load_checkpoint,
)
from mlagents.trainers.training.export import export_onnx
from mlagents.trainers.training.trainer import OnPolicyTrainer
from mlagents_envs.base_env import ActionTuple, BehaviorName
from mlagents_envs.logging_util import get_logger
from mlagents_envs.timers import hierarchical_timer

logger = get_logger(__name__)


class Controller:
    """Everything between the settings of a run and its results.

    Args:
        options: Of the run, with its seed drawn.
        manager: The players.
        folder: Where results go.
        writers: Where statistics go.
        device: Where to learn.
    """

    def __init__(
        self,
        options: RunOptions,
        manager: EnvManager,
        folder: RunFolder,
        *,
        writers: Sequence[StatsWriter],
        device: torch.device,
    ) -> None:
        self._options = options
        self._manager = manager
        self._folder = folder
        self._writers = writers
        self._device = device
        self._resume = options.checkpoint_settings.resume
        self._inference = options.checkpoint_settings.inference
        self._store = CheckpointStore(folder, resume=self._resume)
        self.trainers: dict[str, OnPolicyTrainer] = {}

    def run(self) -> None:
        """Train until every behavior has its steps, or until interrupted.

        However it ends, what was learned is saved. `KeyboardInterrupt` ends it in good order.
        """
        self._manager.reset()
        try:
            with ProgressLine() as progress:
                while not self._is_done():
                    self._advance()
                    progress.update(self.trainers.values())
        except KeyboardInterrupt:
            logger.info("Interrupted." if self._inference else "Interrupted: saving.")
        finally:
            self._save_final()

    def _is_done(self) -> bool:
        """Whether there is nothing left to learn."""
        if self._inference or not self.trainers:
            return False
        return not any(trainer.is_learning for trainer in self.trainers.values())

    def _advance(self) -> None:
        """Take in what players report, learn if it is time, and answer them."""
        reports = self._manager.receive()
        asked: dict[OnPolicyTrainer, list[tuple[int, BehaviorName]]] = {}
        for report in reports:
            for behavior, (decisions, terminals) in report.steps.items():
                trainer = self._trainer_of(behavior)
                trainer.observe(report.player, decisions, terminals)
                asked.setdefault(trainer, []).append((report.player, behavior))
        for trainer in asked:
            with hierarchical_timer("trainer_advance"):
                trainer.advance()
        for player, actions in self._decide(reports, asked).items():
            self._manager.send(player, actions)

    def _decide(
        self,
        reports: Sequence[PlayerSteps],
        asked: Mapping[OnPolicyTrainer, list[tuple[int, BehaviorName]]],
    ) -> dict[int, dict[BehaviorName, ActionTuple]]:
        actions: dict[int, dict[BehaviorName, ActionTuple]] = {r.player: {} for r in reports}
        for trainer, requests in asked.items():
            for (player, behavior), action in zip(requests, trainer.decide(), strict=True):
                actions[player][behavior] = action
        return actions

    def _trainer_of(self, behavior: BehaviorName) -> OnPolicyTrainer:
        name = BehaviorId.parse(behavior).name
        trainer = self.trainers.get(name)
        if trainer is None:
            trainer = self.trainers[name] = self._make_trainer(name, behavior)
        return trainer

    def _make_trainer(self, name: str, behavior: BehaviorName) -> OnPolicyTrainer:
        settings = self._options.behavior_settings(name)
        spec = self._manager.behavior_specs[behavior]
        stats = StatsReporter(name, self._writers)
        trainer = OnPolicyTrainer(
            name,
            spec,
            settings,
            stats=stats,
            device=self._device,
            seed=self._options.env_settings.seed,
            inference=self._inference,
            on_summary=lambda step: self._summarize(trainer, stats, step),
            on_checkpoint=lambda: self._save(trainer),
        )
        stats.add_property(StatsPropertyType.HYPERPARAMETERS, settings.model_dump(mode="json"))
        if self._resume:
            self._load(trainer, self._folder.checkpoint(name), trainer.load_state)
            logger.info(f"Resuming {name} at step {trainer.step}.")
        elif path := self._initial_weights(name, settings):
            self._load(trainer, path, trainer.load_weights)
            logger.info(f"Initialized {name} from {path}.")
        if not self._inference:
            self._store.write_status()  # from here on this is a run, to be resumed or replaced
        return trainer

    def _load(
        self, trainer: OnPolicyTrainer, path: Path, load: Callable[[dict[str, Any]], None]
    ) -> None:
        """Load a checkpoint into a trainer.

        Raises:
            UnityTrainerException: It cannot be read, or belongs to another network.
        """
        state = load_checkpoint(path)
        try:
            load(state)
        except (KeyError, RuntimeError, ValueError) as error:
            raise UnityTrainerException(
                f"checkpoint {path} does not fit behavior {trainer.name!r}: {error}. Its "
                "observations, actions and network_settings must be those it was saved with."
            ) from error

    def _initial_weights(self, name: str, settings: BehaviorSettings) -> Path | None:
        return initial_checkpoint(
            self._options.checkpoint_settings.initialize_from,
            settings.init_path,
            results_dir=self._folder.path.parent,
            behavior=name,
        )

    def _summarize(self, trainer: OnPolicyTrainer, stats: StatsReporter, step: int) -> None:
        stats.set_stat(STEP, step)
        stats.set_stat(IS_TRAINING, trainer.is_learning)
        stats.write_stats(step)

    def _save(self, trainer: OnPolicyTrainer, *, is_final: bool = False) -> bool:
        """Save a checkpoint; a disk that refuses is reported and does not end the run."""
        try:
            with hierarchical_timer("save"):
                self._store.save(
                    trainer.name,
                    step=trainer.step,
                    state=trainer.state(),
                    model=export_onnx(trainer.algorithm.network.actor, trainer.spec),
                    reward=trainer.mean_reward,
                    keep=trainer.settings.keep_checkpoints,
                    is_final=is_final,
                )
        except OSError as error:
            logger.error(
                f"Could not save {trainer.name} at step {trainer.step}: {error}. Earlier "
                "checkpoints are whole; the next one will be tried."
            )
            return False
        logger.info(f"Saved {trainer.name} at step {trainer.step}.")
        return True

    def _save_final(self) -> None:
        """Save every behavior and say how it did."""
        if self._inference:
            return
        for trainer in self.trainers.values():
            if self._save(trainer, is_final=True):
                episodes = len(trainer.recent_returns)
                outcome = (
                    f"mean reward {trainer.mean_reward:.3f} over the last {episodes} episodes"
                    if episodes
                    else "no episode ended"
                )
                logger.info(
                    f"{trainer.name}: {outcome}, after {trainer.step} steps. "
                    f"Model: {self._folder.model(trainer.name)}"
                )
