"""Errors of training and of its configuration.

TrainerError                   any error that prevents or ends a run
├── TrainerConfigError         a configuration file, a flag or a setting that cannot be used
└── UnityTrainerException      a run that cannot start or does not fit the environment
"""


class TrainerError(Exception):
    """A training run cannot start or continue. The message gives the reason and a remedy."""


class TrainerConfigError(TrainerError):
    """Settings are invalid. The message has one problem per line, with its location."""


class UnityTrainerException(TrainerError):
    """A run, its folder or its environment does not fit the request."""
