"""`TrainerType`: what a behavior learns by; those that are built in, by name."""

from collections.abc import Mapping
from typing import NamedTuple

from mlagents.trainers.algorithms.base import Algorithm
from mlagents.trainers.algorithms.bc import BC
from mlagents.trainers.algorithms.ppo import PPO
from mlagents.trainers.algorithms.sac import SAC
from mlagents.trainers.learning.cloning import CloningLearner
from mlagents.trainers.learning.learner import Learner
from mlagents.trainers.learning.off_policy import OffPolicyLearner
from mlagents.trainers.learning.on_policy import OnPolicyLearner
from mlagents.trainers.settings.hyperparameters import (
    BCSettings,
    HyperparameterSettings,
    PPOSettings,
    SACSettings,
)


class TrainerType(NamedTuple):
    """A way to learn.

    Attributes:
        learner: Class that decides what experience is kept and when to learn.
        algorithm: Class that learns, of the kind that the learner asks for.
        settings: Class of the algorithm's keys below `hyperparameters`.
    """

    learner: type[Learner]
    algorithm: type[Algorithm]
    settings: type[HyperparameterSettings]


TRAINER_TYPES: Mapping[str, TrainerType] = {
    "ppo": TrainerType(OnPolicyLearner, PPO, PPOSettings),
    "sac": TrainerType(OffPolicyLearner, SAC, SACSettings),
    "bc": TrainerType(CloningLearner, BC, BCSettings),
}
"""Those that are built in, by `trainer_type`."""
