"""`Loader`: loads checkpoints into trainers, and explains why one cannot be loaded."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlagents.trainers.exception import UnityTrainerException
from mlagents.trainers.learning.league import League
from mlagents.trainers.learning.trainer import Trainer
from mlagents.trainers.run.checkpoints import CheckpointStore, initial_checkpoint, load_checkpoint
from mlagents.trainers.run.fitting import (
    changed_settings,
    fitted,
    misfits,
    require_sound,
    shaping_settings,
)
from mlagents.trainers.run.folder import RunFolder
from mlagents.trainers.run.legacy_checkpoints import converted, is_legacy
from mlagents.trainers.settings.run_options import RunOptions
from mlagents_envs.base_env import BehaviorId, BehaviorName
from mlagents_envs.logging_util import get_logger

logger = get_logger(__name__)

_CANNOT_BE_LOADED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that torch and NumPy raise for states of an unexpected form."""


class Loader:
    """Loads the checkpoints from which a run continues or starts.

    Args:
        options: All settings of the run.
        folder: Folder of the run.
        store: Checkpoints of the run.
        league: Self-play of the run.
    """

    def __init__(
        self, options: RunOptions, folder: RunFolder, store: CheckpointStore, league: League
    ) -> None:
        self._options = options
        self._folder = folder
        self._store = store
        self._league = league
        self._inference = options.checkpoint_settings.inference

    def require_own_behavior(self, behaviors: Mapping[BehaviorName, object]) -> None:
        """Raise if the run has checkpoints, but none of them belongs to these behaviors."""
        learned = self._store.behaviors
        names = {BehaviorId.parse(behavior).name for behavior in behaviors}
        if learned and names and learned.isdisjoint(names):
            raise UnityTrainerException(
                f"{self._folder.path} is a run of {', '.join(sorted(learned))}, but the "
                f"environment has {', '.join(sorted(names))}. Resume it in its own environment, or "
                "choose another --run-id."
            )

    def resume(self, trainer: Trainer, lessons: Mapping[str, int]) -> bool:
        """Continue from the newest checkpoint of this run.

        Args:
            trainer: Trainer of one behavior, before its first step.
            lessons: Current lesson of every parameter. Returns that were saved during other
                lessons are dropped.

        Returns:
            Whether there was a checkpoint.
        """
        name = trainer.name
        path = self._store.newest(name)
        if path is None and self._inference:
            raise UnityTrainerException(
                f"--inference: there is no checkpoint of {name} in {self._folder.path}."
            )
        if path is None:
            logger.warning(f"{name} has no checkpoint yet: it begins at step 0.")
            self.initialize(trainer)
            return False

        def load(state: dict[str, Any]) -> None:
            trainer.load_state(state)
            self._league.load_state(name, state.get("self_play"))
            # The statistics of inference cover its own episodes only.
            if state.get("lessons") == lessons and not self._inference:
                trainer.meter.recent_returns.extend(state["recent_returns"])
                trainer.meter.recent_group_returns.extend(state.get("recent_group_returns", ()))

        self._load(trainer, path, load, asked_by="--resume", why_not=self._why_not_its_own)
        if not self._inference:
            trainer.learner.load_experience(self._folder.experience(name))
        logger.info(f"Resuming {name} at step {trainer.step}.")
        return True

    def initialize(self, trainer: Trainer, *, behavior: str | None = None) -> None:
        """Load the initial weights from `init_path` or `--initialize-from`, if given.

        Args:
            trainer: Trainer to load the weights into.
            behavior: Name of the trainer's behavior; by default its own name.
        """
        behavior = behavior or trainer.name
        settings = self._options.checkpoint_settings
        path = initial_checkpoint(
            settings.initialize_from,
            trainer.settings.init_path,
            results_dir=Path(settings.results_dir),
            behavior=behavior,
        )
        if path is None:
            return

        def load(state: dict[str, Any]) -> None:
            fitting, unlike = fitted(state, trainer.state())
            trainer.load_weights(fitting)
            if unlike:
                logger.warning(
                    f"{path} does not contain all layers of {trainer.name} in the same size. These "
                    f"start from scratch: {', '.join(unlike)}."
                )

        asked_by = "--initialize-from"
        if trainer.settings.init_path is not None:
            is_listed = behavior in self._options.behaviors
            section = f"behaviors.{behavior}" if is_listed else "default_settings"
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
        """Load a checkpoint, in the current format or of the original ML-Agents, into a trainer.

        Args:
            trainer: Trainer to load the checkpoint into.
            path: File of the checkpoint.
            load: Function that loads the content.
            asked_by: Flag or key that named the checkpoint.
            why_not: Function that explains why an error of `load` occurred.

        Raises:
            UnityTrainerException: The file cannot be read, or does not fit the networks.
        """
        try:
            state = load_checkpoint(path)
        except UnityTrainerException as error:
            raise UnityTrainerException(f"{asked_by}, for {trainer.name}: {error}") from error
        fresh = trainer.state()
        try:
            if is_legacy(state):
                state = converted(state, list(trainer.settings.reward_signals))
                missing = ", ".join(name for name in fresh if name not in state)
                logger.info(
                    f"{path} was saved by the original ML-Agents. These start from scratch: "
                    f"{missing}."
                )
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
        """Return why a run cannot continue from its own checkpoint, and what to do."""
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
            cause = "Undo this change"
        elif saved:
            cause = (
                "Its settings are the same, so its observations or actions have changed. Undo this "
                "change"
            )
        else:
            cause = (
                "Restore the observations, actions, trainer_type, reward_signals and "
                "network_settings that it was saved with"
            )
        run_id = self._options.checkpoint_settings.run_id
        return (
            f"{shown}. {cause}, or begin another run with the layers that fit: --run-id NEW "
            f"--initialize-from {run_id}."
        )


def _why_not_in_part(_trainer: Trainer, _state: Mapping[str, Any], error: Exception) -> str:
    """Return why a run cannot start with any part of a checkpoint."""
    what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return (
        f"{what}. Choose a checkpoint that shares observations, actions, trainer_type or "
        "network_settings with this behavior."
    )
