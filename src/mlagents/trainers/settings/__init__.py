"""Models of the settings of a run, in one import."""

from mlagents.trainers.settings.behavior import (
    BehavioralCloningSettings,
    BehaviorSettings,
    MemorySettings,
    NetworkSettings,
    RewardSignalSettings,
    SelfPlaySettings,
)
from mlagents.trainers.settings.behavior import BehaviorSettings as TrainerSettings
from mlagents.trainers.settings.hyperparameters import (
    HyperparameterSettings,
    OnPolicySettings,
    POCASettings,
    PPOSettings,
    SACSettings,
)
from mlagents.trainers.settings.run_options import (
    CheckpointSettings,
    EngineSettings,
    EnvironmentSettings,
    RunOptions,
    TorchSettings,
)

__all__ = [
    "BehaviorSettings",
    "BehavioralCloningSettings",
    "CheckpointSettings",
    "EngineSettings",
    "EnvironmentSettings",
    "HyperparameterSettings",
    "MemorySettings",
    "NetworkSettings",
    "OnPolicySettings",
    "POCASettings",
    "PPOSettings",
    "RewardSignalSettings",
    "RunOptions",
    "SACSettings",
    "SelfPlaySettings",
    "TorchSettings",
    "TrainerSettings",
]
