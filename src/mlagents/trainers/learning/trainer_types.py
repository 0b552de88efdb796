"""`TrainerType`, a learner with an algorithm, and the built-in trainer types."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.algorithms.poca import POCA
from mlagents.trainers.fast.native_ppo import FastPPO
from mlagents.trainers.fast.sac_by_hand import FastSAC
from mlagents.trainers.learning.cloning import CloningLearner
from mlagents.trainers.learning.learner import Learner
from mlagents.trainers.learning.off_policy import OffPolicyLearner
from mlagents.trainers.learning.on_policy import OnPolicyLearner
from mlagents.trainers.settings.hyperparameters import (
    BCSettings,
    HyperparameterSettings,
    POCASettings,
    PPOSettings,
    SACSettings,
    names_code,
)
from mlagents_envs.factories import find_factory


class TrainerType(NamedTuple):
    """A learner, an algorithm and its settings, selected by `trainer_type`.

    Attributes:
        learner: Class that decides which experience to keep and when to learn.
        algorithm: Class of the algorithm. It must have the type that the learner expects.
        settings: Class of the settings below `hyperparameters`.
    """

    learner: type[Learner]
    algorithm: type[Algorithm]
    settings: type[HyperparameterSettings]


TRAINER_TYPES: Mapping[str, TrainerType] = {
    "ppo": TrainerType(OnPolicyLearner, FastPPO, PPOSettings),
    "poca": TrainerType(OnPolicyLearner, POCA, POCASettings),
    "sac": TrainerType(OffPolicyLearner, FastSAC, SACSettings),
    "bc": TrainerType(CloningLearner, BC, BCSettings),
}
"""Built-in trainer types, by the setting `trainer_type`."""


def find_trainer_type(name: str, known: Mapping[str, TrainerType]) -> TrainerType:
    """Return a trainer type by its name, or import it from `module:name`.

    Raises:
        ValueError: The name is unknown, or the imported object is not a trainer type.
        UnityEnvironmentException: The module or the object does not exist.
    """
    if not names_code(name):
        if name not in known:
            raise ValueError(f"unknown trainer type {name!r}. Choose one of {', '.join(known)}.")
        return known[name]
    found: Any = find_factory(name)
    if not isinstance(found, TrainerType):
        raise ValueError(
            f"{name}: expected a {TrainerType.__module__}.TrainerType(learner, algorithm, "
            f"settings), got {found!r}"
        )
    return found
