"""`TrainerType`, a learner with an algorithm, and the built-in ones by name."""

from collections.abc import Mapping
from typing import NamedTuple

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
)


class TrainerType(NamedTuple):
    """A way to learn.

    Attributes:
        learner: Class that decides which experience is kept and when to learn.
        algorithm: Class of the algorithm, as the learner's annotation requires.
        settings: Class of the algorithm's keys below `hyperparameters`.
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
