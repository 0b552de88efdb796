"""Every error of training and of its configuration.

TrainerError                   anything that keeps a run from going on
├── TrainerConfigError         a configuration file, a flag or a setting that cannot be used
└── UnityTrainerException      a run that cannot start or cannot fit the environment
"""


class TrainerError(Exception):
    """A training run cannot start or cannot go on; the text says why and what to do."""


class TrainerConfigError(TrainerError):
    """Settings that cannot be used; the text names where they stand, one problem a line."""


class UnityTrainerException(TrainerError):
    """A run, its folder or its environment does not fit what was asked for."""
