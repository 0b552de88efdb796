"""What trains a behavior, by its `trainer_type`."""

from collections.abc import Mapping

from mlagents.trainers.training.cloning import CloningTrainer
from mlagents.trainers.training.off_policy import OffPolicyTrainer
from mlagents.trainers.training.trainer import OnPolicyTrainer, Trainer

TRAINER_TYPES: Mapping[str, type[Trainer]] = {
    "ppo": OnPolicyTrainer,
    "sac": OffPolicyTrainer,
    "bc": CloningTrainer,
}
